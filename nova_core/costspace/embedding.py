"""Embedding: from measured latencies to a cost space (paper, section 3.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.measurements import (
    NeighbourGraph,
    neighbour_graph,
    pairs_of,
    symmetric,
)
from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, PairLatencies
from nova_core.workers import Progress, Workers

METHODS = ("solver", "vivaldi", "smacof", "classical")
# Multidimensional scaling takes a whole matrix and has no heights.
DENSE_METHODS = ("smacof", "classical")
DIMENSIONS = range(1, 11)


def embed(
    measured: Floats | PairLatencies,
    nodes: int | None = None,
    *,
    dimensions: int = 2,
    height: bool = False,
    method: str = "solver",
    seed: int = 0,
    start: CostSpace | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> CostSpace:
    """Coordinates of all nodes from measured latencies.

    The same latencies, seed and method give the same space, on any number of threads and with the
    nodes in any order.

    Args:
        measured: pairs, each in one direction or both, whose values all count; or an (n, n) matrix,
            ms, NaN where nothing was measured, whose directions are averaged.
        nodes: n; needed with pairs.
        dimensions: d of the space, 2 to 5 by custom.
        height: whether each node also gets a height, the latency of its own access link; only
            ``solver`` and ``vivaldi`` know heights.
        method: ``solver`` fits all pairs at once (`nova_core.costspace.solver`), ``vivaldi`` is the
            decentralized algorithm (`nova_core.costspace.vivaldi`); of a matrix also ``smacof`` and
            ``classical``, multidimensional scaling, where missing pairs count as their shortest
            path (`nova_core.costspace.scaling`).
        seed: of everything random.
        start: for ``solver`` and ``vivaldi``, a space of the same nodes, dimensions and kind, as of
            before: nodes are adjusted to the new latencies and stay where they were as far as those
            allow.
        progress: called with steps done and steps in all.
        threads: None takes all cores.

    Raises:
        DisconnectedError: when the measured pairs do not connect all nodes.
        ProblemError: for latencies, nodes or options that cannot be.
    """
    matrix = None if isinstance(measured, PairLatencies) else measured
    pairs = measured if isinstance(measured, PairLatencies) else pairs_of(measured)
    n = nodes or 0 if matrix is None else len(matrix)
    known = METHODS if matrix is not None else METHODS[:2]
    if method not in known:
        raise ProblemError(f"method: {method!r}; expected one of {', '.join(known)}")
    _check(n, dimensions, height, method, seed, start)
    graph = neighbour_graph(pairs, n, seed, threads)
    if matrix is not None and method in DENSE_METHODS:
        state = _scaled(graph, symmetric(matrix), dimensions, method)
    else:
        if method == "solver":
            from nova_core.costspace.solver import solve as run
        else:
            from nova_core.costspace.vivaldi import vivaldi as run
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


def _check(
    nodes: int, dimensions: int, height: bool, method: str, seed: int, start: CostSpace | None
) -> None:
    if dimensions not in DIMENSIONS:
        raise ProblemError(
            f"dimensions: {dimensions}; expected {DIMENSIONS[0]} to {DIMENSIONS[-1]}"
        )
    if nodes < 1:
        raise ProblemError(f"nodes: {nodes}; expected at least 1")
    if seed < 0:
        raise ProblemError(f"seed: {seed}; expected a number >= 0")
    if method in DENSE_METHODS and height:
        raise ProblemError(f"method: {method} knows no heights; use solver or vivaldi")
    if start is not None and (
        start.position.shape != (nodes, dimensions) or (start.height is not None) != height
    ):
        raise ProblemError(
            f"start: a space of {len(start)} nodes in {start.dimensions}-d with"
            f"{'out' * (start.height is None)} heights; expected {nodes} nodes in {dimensions}-d "
            f"with{'out' * (not height)} heights"
        )


def _scaled(
    graph: NeighbourGraph, latency: Floats, dimensions: int, method: str
) -> NDArray[np.float32]:
    """(n, d) positions by multidimensional scaling, in the order of the rows."""
    from nova_core.costspace import scaling

    complete = latency[np.ix_(graph.node, graph.node)]
    missing = np.isnan(complete)
    if missing.any():
        complete[missing] = scaling.shortest_paths(graph)[missing]
    scale = scaling.classical_mds if method == "classical" else scaling.smacof
    return scale(complete, dimensions).astype(np.float32)


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
    from nova_core.costspace.kernels.graph import Entries

    n = len(graph)
    relative = np.empty(n)
    with Workers(n, threads) as workers:
        entries = Entries(graph.start, graph.neighbour, graph.latency)
        workers.run(relax.relative_errors, 0, n, entries, state, (0,) * dimensions, relative)
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
