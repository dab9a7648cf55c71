"""Embedding: from measured latencies to a cost space (paper, section 3.2)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.measurements import (
    NeighbourGraph,
    neighbour_graph,
    pairs_of,
    symmetric,
)
from nova_core.costspace.sweeps import Progress
from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, PairLatencies

Method = Literal["solver", "vivaldi"]
MatrixMethod = Literal["solver", "vivaldi", "smacof", "classical"]
DIMENSIONS = range(1, 11)


def embed(
    pairs: PairLatencies,
    nodes: int,
    *,
    dimensions: int = 2,
    height: bool = False,
    method: Method = "solver",
    seed: int = 0,
    progress: Progress | None = None,
    threads: int | None = None,
) -> CostSpace:
    """Coordinates of all nodes from the latencies of some pairs.

    The same pairs, seed and method give the same space, on any number of threads and with the
    nodes in any order.

    Args:
        pairs: measured pairs, each in one direction or both; a pair's values all count.
        nodes: n.
        dimensions: d of the space, 2 to 5 by custom.
        height: whether each node also gets a height, the latency of its own access link.
        method: ``solver`` fits all pairs at once (`nova_core.costspace.solver`), ``vivaldi`` is
            the decentralized algorithm (`nova_core.costspace.vivaldi`).
        seed: of everything random.
        progress: called with steps done and steps in all.
        threads: None takes all cores.

    Raises:
        DisconnectedError: when the pairs do not connect all nodes.
        ProblemError: for latencies, nodes or dimensions that cannot be.
    """
    if dimensions not in DIMENSIONS:
        raise ProblemError(
            f"dimensions: {dimensions}; expected {DIMENSIONS[0]} to {DIMENSIONS[-1]}"
        )
    if nodes < 1:
        raise ProblemError(f"nodes: {nodes}; expected at least 1")
    if seed < 0:
        raise ProblemError(f"seed: {seed}; expected a number >= 0")
    graph = neighbour_graph(pairs, nodes, seed)
    if method == "solver":
        from nova_core.costspace.solver import solve as run
    elif method == "vivaldi":
        from nova_core.costspace.vivaldi import vivaldi as run
    else:
        raise ProblemError(f"method: {method!r}; expected one of {', '.join(get_args(Method))}")
    position, heights = run(
        graph, dimensions, height=height, seed=seed, progress=progress, threads=threads
    )
    return _space(graph, position, heights if height else None)


def embed_matrix(
    latency: Floats,
    *,
    dimensions: int = 2,
    height: bool = False,
    method: MatrixMethod = "solver",
    seed: int = 0,
    progress: Progress | None = None,
    threads: int | None = None,
) -> CostSpace:
    """Coordinates of all nodes from a matrix of latencies.

    Args:
        latency: (n, n) ms, NaN where nothing was measured; directions are averaged.
        dimensions: d of the space.
        height: whether each node also gets a height; only ``solver`` and ``vivaldi`` know them.
        method: ``solver`` and ``vivaldi`` as in `embed`; ``smacof`` and ``classical`` are
            multidimensional scaling, where missing pairs count as their shortest path.
        seed: of everything random.
        progress: called with steps done and steps in all.
        threads: None takes all cores.

    Raises:
        DisconnectedError: when the measured pairs do not connect all nodes.
        ProblemError: for latencies or options that cannot be.
    """
    pairs = pairs_of(latency)
    n = len(latency)
    if method in ("solver", "vivaldi"):
        return embed(
            pairs, n, dimensions=dimensions, height=height, method=method, seed=seed,
            progress=progress, threads=threads,
        )  # fmt: skip
    if method not in ("smacof", "classical"):
        known = ", ".join(get_args(MatrixMethod))
        raise ProblemError(f"method: {method!r}; expected one of {known}")
    if height:
        raise ProblemError(f"method: {method} knows no heights; use solver or vivaldi")
    from nova_core.costspace import mds

    graph = neighbour_graph(pairs, n, seed)
    complete = symmetric(latency)[np.ix_(graph.node, graph.node)]
    missing = np.isnan(complete)
    if missing.any():
        complete[missing] = mds.shortest_paths(graph)[missing]
    scale = mds.classical_mds if method == "classical" else mds.smacof
    return _space(graph, scale(complete, dimensions), None)


def _space(graph: NeighbourGraph, position: Floats, heights: Floats | None) -> CostSpace:
    """Rows back in the nodes' order, centred, along principal axes."""
    from nova_core.costspace.kernels import relax

    error = relax.relative_errors(
        graph.start, graph.neighbour, graph.latency, position,
        np.empty(0) if heights is None else heights,
    )  # fmt: skip
    back = np.empty(len(graph), np.int64)
    back[graph.node] = np.arange(len(graph))
    position = along_principal_axes(position)[back]
    return CostSpace(position, None if heights is None else heights[back], error[back])


def along_principal_axes(position: Floats) -> Floats:
    """The same points centred and turned: most spread along the first axis, tails to the right."""
    centred = position - position.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes[:, ::-1]
    skew = (turned**3).sum(axis=0)
    return np.asarray(turned * np.where(skew < 0, -1.0, 1.0))


__all__ = ["MatrixMethod", "Method", "along_principal_axes", "embed", "embed_matrix"]
