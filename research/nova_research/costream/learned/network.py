"""The network: messages between operators and hosts, in three phases (Costream, Algorithm 1).

Messages go from operators to their hosts, from hosts to their operators, and along the data flow
from the sources to the sink, level by level; the sink's state is read out once per metric. One
trunk serves all five metrics. What an update or an MLP computes is added to what it gets (a skip
connection), which the paper does not have: rates and windows reach the readout unchanged, so a
network need not learn to copy them. The same function runs on numpy and on jax.numpy.

Nodes come first in all arrays, then graphs. Where a batch has one query in many placements,
arrays that depend on the query alone have a graph axis of length 1 and are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nova_research.costream.learned.features import FEATURES, HOST, KINDS
from nova_research.costream.learned.graph import Batch, Layout

REGRESSIONS = ("throughput", "e2e_latency_ms", "processing_latency_ms")
CLASSES = ("back_pressure", "success")
METRICS = (*REGRESSIONS, *CLASSES)

UNITS: Mapping[str, float] = {
    "throughput": 1000.0,
    "e2e_latency_ms": 1.0,
    "processing_latency_ms": 1.0,
}
"""Factor of a regression's value before log10(1 + x), so that the 1 is small."""

Parameters = Mapping[str, Any]

_SLOPE = np.float32(0.01)


def shapes(hidden: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all parameters.

    Args:
        hidden: width of states.
        layers: of each update; encoders and readouts have one more.
    """
    shape_of: dict[str, tuple[int, ...]] = {}

    def mlp(name: str, first: int, last: int | None = None, more: int = 0) -> None:
        for layer in range(layers + more):
            shape_of[f"{name}.{layer}.weight"] = (hidden if layer else first, hidden)
            shape_of[f"{name}.{layer}.bias"] = (hidden,)
        if last is not None:
            shape_of[f"{name}.{layers}.weight"] = (hidden, last)
            shape_of[f"{name}.{layers}.bias"] = (last,)

    mlp("encode.host", len(HOST), more=1)
    updates = ["host", *(f"placed.{kind}" for kind in KINDS)]
    updates += [f"flow.{kind}" for kind in KINDS if kind != "source"]
    for kind in KINDS:
        mlp(f"encode.{kind}", len(FEATURES[kind]), more=1)
    for update in updates:
        mlp(update, hidden)
        shape_of[f"{update}.message"] = (hidden, hidden)
    for metric in METRICS:
        mlp(f"read.{metric}", hidden, 1)
        shape_of[f"read.{metric}.skip"] = (hidden, 1)
    for kind in (*KINDS, "host"):
        shape_of[f"encode.{kind}.skip"] = (shape_of[f"encode.{kind}.0.weight"][0], hidden)
    return shape_of


def initial(hidden: int, layers: int, seed: int) -> dict[str, np.ndarray]:
    """Parameters to begin training with: normal, by the number of inputs (He et al. 2015).

    Those of skip connections are half as large, so that a state is not twice as large with them.
    """
    random = np.random.default_rng(seed)
    parameters = {}
    for name, shape in shapes(hidden, layers).items():
        if name.endswith(".bias"):
            parameters[name] = np.zeros(shape, np.float32)
            continue
        # An update adds two products.
        inputs = shape[0] * (2 if name.startswith(("host", "placed", "flow")) else 1)
        scale = 0.5 if name.endswith("skip") else 1.0
        parameters[name] = scale * random.normal(0, np.sqrt(2 / inputs), shape).astype(np.float32)
    return parameters


def encode(xp: Any, parameters: Parameters, layout: Layout, batch: Batch) -> Any:
    """(o, b or 1, h) states of operators before any message."""
    groups = zip(layout, batch.features, strict=True)
    return xp.concatenate(
        [_mlp(xp, parameters, f"encode.{kind}", features) for (kind, _), features in groups]
    )


def on_hosts(xp: Any, parameters: Parameters, layout: Layout, batch: Batch) -> Any:
    """(b, k, h) sums of encoded operators on each host."""
    return _sums(xp, batch.placement, encode(xp, parameters, layout, batch))


def _sums(xp: Any, placement: Any, state: Any) -> Any:
    return _mix(xp, placement.transpose(0, 2, 1), state).transpose(1, 0, 2)


def forward(
    xp: Any, parameters: Parameters, layout: Layout, batch: Batch, others: Any = None
) -> dict[str, Any]:
    """Every metric of every sink of the layout's last group.

    Args:
        xp: numpy or jax.numpy.
        parameters: named as in `shapes`.
        layout: types and numbers of operators, group by group; sinks are the last.
        batch: of this layout, features scaled.
        others: of other queries, see `on_hosts`.

    Returns:
        Per metric (s, b): log10(1 + units) of regressions, logits of classes.
    """
    state = encode(xp, parameters, layout, batch)
    placement = batch.placement
    sums = _sums(xp, placement, state)
    messages = (sums if others is None else sums + others).transpose(1, 0, 2)
    host = _mlp(xp, parameters, "encode.host", batch.hosts.transpose(1, 0, 2))
    host = _update(xp, parameters, "host", host, messages)
    back = _mix(xp, placement, host)
    placed, start = [], 0
    for kind, count in layout:
        own = state[start : start + count]
        placed.append(_update(xp, parameters, f"placed.{kind}", own, back[start : start + count]))
        start += count
    flowed: list[Any] = []
    for (kind, _), own, inputs in zip(layout, placed, batch.inputs, strict=True):
        if kind != "source":
            before = xp.concatenate(flowed)
            own = _update(xp, parameters, f"flow.{kind}", own, _mix(xp, inputs, before))
        flowed.append(own)
    return {
        metric: _mlp(xp, parameters, f"read.{metric}", flowed[-1], last=True)[..., 0]
        for metric in METRICS
    }


def _layers(parameters: Parameters, name: str) -> Iterator[tuple[Any, Any]]:
    layer = 0
    while f"{name}.{layer}.weight" in parameters:
        yield parameters[f"{name}.{layer}.weight"], parameters[f"{name}.{layer}.bias"]
        layer += 1


def _mlp(xp: Any, parameters: Parameters, name: str, state: Any, last: bool = False) -> Any:
    """Layer after layer, and the input's product beside them; `last` leaves the last one linear."""
    layers = list(_layers(parameters, name))
    skip = _times(state, parameters[f"{name}.skip"])
    for number, (weight, bias) in enumerate(layers):
        state = _times(state, weight) + bias
        if not last or number < len(layers) - 1:
            state = _leaky(xp, state)
    return state + skip


def _update(xp: Any, parameters: Parameters, name: str, own: Any, message: Any) -> Any:
    """A state after a message: itself and an MLP of both, concatenated (section III-B).

    The first layer's product with both is the sum of a product with each.
    """
    first, *more = _layers(parameters, name)
    weight, bias = first
    before = own
    state = _times(message, parameters[f"{name}.message"]) + (_times(own, weight) + bias)
    state = _leaky(xp, state)
    for weight, bias in more:
        state = _leaky(xp, _times(state, weight) + bias)
    return before + state


def _leaky(xp: Any, state: Any) -> Any:
    return xp.maximum(state, _SLOPE * state)


def _times(state: Any, weight: Any) -> Any:
    """A product over the last axis, computed as a product of two matrices."""
    flat = state.reshape(-1, state.shape[-1]) @ weight
    return flat.reshape(*state.shape[:-1], weight.shape[-1])


def _mix(xp: Any, weights: Any, states: Any) -> Any:
    """(n, b, h) sums of states (m, b or 1, h) by weights (b or 1, n, m)."""
    if weights.shape[0] == 1:
        mixed = weights[0] @ states.reshape(states.shape[0], -1)
        return mixed.reshape(-1, *states.shape[1:])
    if states.shape[1] == 1:
        return _times(weights, states[:, 0]).transpose(1, 0, 2)
    return xp.matmul(weights, states.transpose(1, 0, 2)).transpose(1, 0, 2)
