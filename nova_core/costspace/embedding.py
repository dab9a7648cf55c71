"""Embedding: from measured latencies to a cost space (paper, section 3.2)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.measurements import (
    NeighbourGraph,
    neighbour_graph,
    pairs_of,
    symmetric,
)
from nova_core.costspace.sweeps import Progress, Workers
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
    start: CostSpace | None = None,
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
        start: a space of the same nodes, dimensions and kind, as of before: nodes are adjusted to
            the new latencies and stay where they were as far as those allow.
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
    if start is not None and (
        start.position.shape != (nodes, dimensions) or (start.height is not None) != height
    ):
        raise ProblemError(
            f"start: a space of {len(start)} nodes in {start.dimensions}-d with"
            f"{'out' * (start.height is None)} heights; expected {nodes} nodes in {dimensions}-d "
            f"with{'out' * (not height)} heights"
        )
    graph = neighbour_graph(pairs, nodes, seed, threads)
    if method == "solver":
        from nova_core.costspace.solver import solve as run
    elif method == "vivaldi":
        from nova_core.costspace.vivaldi import vivaldi as run
    else:
        raise ProblemError(f"method: {method!r}; expected one of {', '.join(get_args(Method))}")
    state = run(
        graph,
        dimensions,
        height=height,
        seed=seed,
        start=None if start is None else packed(start)[graph.node],
        progress=progress,
        threads=threads,
    )
    return _space(graph, state, dimensions, threads, turn=start is None)


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
    return _space(graph, scale(complete, dimensions).astype(np.float32), dimensions, threads)


def packed(space: CostSpace) -> NDArray[np.float32]:
    """(n, d) positions or (n, d + 1) with heights last, as the kernels take them."""
    columns = (space.position,) if space.height is None else (space.position, space.height)
    return np.column_stack(columns).astype(np.float32)


def _space(
    graph: NeighbourGraph,
    state: NDArray[np.float32],
    dimensions: int,
    threads: int | None,
    turn: bool = True,
) -> CostSpace:
    """Rows back in the nodes' order; centred, along principal axes."""
    from nova_core.costspace.kernels import relax

    n = len(graph)
    relative = np.empty(n)
    with Workers(n, threads) as workers:
        workers.run(
            relax.relative_errors, 0, n, graph.start, graph.neighbour, graph.latency, state,
            (0,) * dimensions, relative,
        )  # fmt: skip
    back = np.empty(n, np.int64)
    back[graph.node] = np.arange(n)
    position = state[back, :dimensions].astype(np.float64)
    height = state[back, dimensions].astype(np.float64) if state.shape[1] > dimensions else None
    return CostSpace(along_principal_axes(position) if turn else position, height, relative[back])


def along_principal_axes(position: Floats) -> Floats:
    """The same points centred and turned: most spread along the first axis, tails to the right."""
    centred = position - position.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes[:, ::-1]
    skew = (turned**3).sum(axis=0)
    return np.asarray(turned * np.where(skew < 0, -1.0, 1.0))


__all__ = ["MatrixMethod", "Method", "along_principal_axes", "embed", "embed_matrix", "packed"]
