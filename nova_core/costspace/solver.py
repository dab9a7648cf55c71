"""The batch solver: places of all nodes that fit all measured pairs at once, robustly.

It minimizes sum w_ij |e_ij - d_ij| over the measured pairs, e_ij = |x_i - x_j| + h_i + h_j, with
w_ij = 1 / sqrt(d_ij + c), c the mean latency. Absolute rather than squared errors, because measured
latencies break the triangle inequality: a detour then pulls no harder the longer it is. The weight
lies between absolute and relative error. Each |r| is majorized by a quadratic (iteratively
reweighted least squares), each distance as in SMACOF (de Leeuw 1977), which gives every node a
closed-form step that lessens the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.mds import classical_mds, shortest_paths
from nova_core.costspace.measurements import NeighbourGraph
from nova_core.costspace.spectral import spectral_start
from nova_core.costspace.sweeps import Progress, Workers
from nova_core.costspace.vivaldi import FIRST_HEIGHT

# Up to this many nodes the dense matrix of shortest paths is cheap: classical MDS of it is a start
# that is folded nowhere.
DENSE_NODES = 2000
# Errors below this share of the typical latency count as squares: at first, from a start that is
# close, and in the end.
_ROUGH, _CLOSE, _FINE = 0.4, 0.05, 0.002
# Few nodes: sweeps from the start, and after each round of escapes.
_SWEEPS, _MORE_SWEEPS = 300, 100
# In an escape every node tries some other places, so that it is not caught on the wrong side of
# others, and takes some steps from the best. With many nodes there are fewer, with more none.
_TRIES, _STEPS = 8, 15
_ESCAPES, _ESCAPES_MANY = 4, 2
_ENTRIES_TO_ESCAPE = 2_000_000
# Many nodes: sweeps over a quarter, half and all of each node's measurements, in this many batches.
# Within a batch nodes see each other as they were, between batches as they are.
MANY_NODES = 5000
_PARTS = ((4, 12), (2, 2), (1, 1))
_BATCHES = 16
# Measurements, from both ends, for which that is all there is time for; fewer get more sweeps.
_ENTRIES_AT_ONCE = 40_000_000
_MOST_REPEATS = 40


def solve(
    graph: NeighbourGraph,
    dimensions: int,
    *,
    height: bool,
    seed: int = 0,
    start: NDArray[np.float32] | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> NDArray[np.float32]:
    """Embed all nodes.

    Args:
        graph: the measurements.
        dimensions: d.
        height: whether nodes have heights.
        seed: of the start and of places tried.
        start: (n, d) or (n, d + 1) where nodes were before; then they are only adjusted.
        progress: called with sweeps done and sweeps in all.
        threads: None takes all cores; the result is the same.

    Returns:
        (n, d) positions, ms, or (n, d + 1) with heights last, in the order of the rows.
    """
    n = len(graph)
    with Workers(n, threads) as workers:
        if start is None:
            state = np.empty((n, dimensions + height), np.float32)
            state[:, dimensions:] = graph.typical_latency * FIRST_HEIGHT
            state[:, :dimensions] = (
                _classical_start(graph, dimensions, seed)
                if n <= DENSE_NODES
                else spectral_start(graph, dimensions, seed, workers)
            )
        else:
            state = start.copy()
        run = _Sweeps(graph, state, dimensions, workers)
        plan = _plan(len(graph), len(graph.latency), _ROUGH if start is None else _CLOSE)
        for done, step in enumerate(plan, 1):
            if step.escape:
                run.escape(seed + done)
            run.sweep(step.smoothing, step.part, step.parts)
            if progress is not None:
                progress(done, len(plan))
    return state


@dataclass(frozen=True)
class _Step:
    """One sweep.

    Attributes:
        smoothing: share of the typical latency below which errors count as squares.
        part: which part of each node's measurements counts.
        parts: of how many.
        escape: whether nodes try other places first.
    """

    smoothing: float
    part: int = 0
    parts: int = 1
    escape: bool = False


def _plan(nodes: int, entries: int, first: float) -> list[_Step]:
    """What there is time for: ever finer sweeps, then escapes with finer sweeps after each."""
    if nodes < MANY_NODES:
        sweeps = [(0, 1)] * _SWEEPS
        last, escapes = _FINE, _ESCAPES
    else:
        repeats = min(max(_ENTRIES_AT_ONCE // max(entries, 1), 1), _MOST_REPEATS)
        sweeps = [(t % parts, parts) for parts, count in _PARTS for t in range(count * repeats)]
        last = max(_CLOSE / repeats, _FINE)
        escapes = _ESCAPES_MANY if entries <= _ENTRIES_TO_ESCAPE else 0
    steps = [
        _Step(smoothing, part, parts)
        for smoothing, (part, parts) in zip(
            np.geomspace(max(first, last), last, len(sweeps)).tolist(), sweeps, strict=True
        )
    ]
    again = np.geomspace(_CLOSE, _FINE, _MORE_SWEEPS).tolist()
    for _ in range(escapes):
        steps += [_Step(smoothing, escape=i == 0) for i, smoothing in enumerate(again)]
    return steps


class _Sweeps:
    """Moves all nodes once, in place.

    Few nodes move one after the other. Many do in batches, on all cores; rows are in random order,
    so a batch is a random sample.
    """

    def __init__(
        self,
        graph: NeighbourGraph,
        state: NDArray[np.float32],
        dimensions: int,
        workers: Workers,
    ) -> None:
        n = len(graph)
        batches = _BATCHES if n >= MANY_NODES else 1
        self._graph = graph
        self._state = state
        self._new = state.copy() if batches > 1 else state
        self._dimensions = dimensions
        self._workers = workers
        self._bounds = [n * batch // batches for batch in range(batches + 1)]

    def sweep(self, smoothing: float, part: int, parts: int) -> None:
        """Let every node take a step (`kernels.relax`)."""
        from nova_core.costspace.kernels import relax

        g = self._graph
        self._run(
            relax.relax, (0,) * self._dimensions, np.float32(smoothing * g.typical_latency),
            np.float32(g.mean_latency), part, parts,
        )  # fmt: skip

    def escape(self, seed: int) -> None:
        """Let every node try other places (`kernels.place`)."""
        from nova_core.costspace.kernels import place

        g = self._graph
        self._run(
            place.place, self._dimensions, _TRIES, _STEPS, g.mean_latency, g.typical_latency, seed,
            False,
        )  # fmt: skip

    def _run(self, kernel: Callable[..., None], *arguments: object) -> None:
        g = self._graph
        for begin, end in pairwise(self._bounds):
            self._workers.run(
                kernel, begin, end, g.start, g.neighbour, g.latency, self._state, self._new,
                *arguments,
            )  # fmt: skip
            if self._new is not self._state:
                self._state[begin:end] = self._new[begin:end]


def _classical_start(graph: NeighbourGraph, dimensions: int, seed: int) -> NDArray[np.float64]:
    position = classical_mds(shortest_paths(graph), dimensions)
    # Nodes in one place do not know which way to part.
    noise = np.random.default_rng(seed).normal(size=position.shape)
    return np.asarray(position + noise * graph.typical_latency * 1e-3)


__all__ = ["DENSE_NODES", "MANY_NODES", "solve"]
