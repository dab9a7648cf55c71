"""The batch solver: places of all nodes that fit all measured pairs at once, robustly.

It minimizes sum w_ij |e_ij - d_ij| over the measured pairs, e_ij = |x_i - x_j| + h_i + h_j, with
w_ij = 1 / sqrt(d_ij + c), c the mean latency. Absolute rather than squared errors, because measured
latencies break the triangle inequality: a detour then pulls no harder the longer it is. The weight
lies between absolute and relative error. Each |r| is majorized by a quadratic (iteratively
reweighted least squares), each distance as in SMACOF (de Leeuw 1977), which gives every node a
closed-form step that lessens the objective.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.mds import classical_mds, shortest_paths
from nova_core.costspace.measurements import NeighbourGraph
from nova_core.costspace.spectral import spectral_start
from nova_core.costspace.sweeps import PARALLEL_NODES, Progress, Workers
from nova_core.costspace.vivaldi import FIRST_HEIGHT

# Up to this many nodes the dense matrix of shortest paths is cheap: classical MDS of it is a start
# that is folded nowhere.
DENSE_NODES = 2000
# Errors below this share of the typical latency count as squares; from the first to the last sweep
# of a start from far off, and of improvements.
_ROUGH, _CLOSE, _FINE = 0.4, 0.05, 0.002
_SWEEPS, _MORE_SWEEPS = 300, 100
# Nodes caught on the wrong side of others try this many other places, this many times over.
_TRIES, _ESCAPES = 8, 4
# Many nodes: sweeps over a quarter, half and all of each node's measurements, in this many batches.
# Within a batch nodes see each other as they were, between batches as they are.
_PARTS = ((4, 12), (2, 2), (1, 1))
_BATCHES = 16
_LAST_LARGE = 0.05
# Measurements, from both ends, for which that is all there is time for; fewer get more sweeps.
_ENTRIES_AT_ONCE = 40_000_000
_MOST_REPEATS = 8


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
        first = _ROUGH if start is None else _CLOSE
        if n < PARALLEL_NODES:
            _solve_few(graph, state, dimensions, first, seed, progress)
        else:
            _solve_many(graph, state, dimensions, first, workers, progress)
    return state


def _classical_start(graph: NeighbourGraph, dimensions: int, seed: int) -> NDArray[np.float64]:
    position = classical_mds(shortest_paths(graph), dimensions)
    # Nodes in one place do not know which way to part.
    noise = np.random.default_rng(seed).normal(size=position.shape)
    return np.asarray(position + noise * graph.typical_latency * 1e-3)


def _solve_few(
    graph: NeighbourGraph,
    state: NDArray[np.float32],
    dimensions: int,
    first: float,
    seed: int,
    progress: Progress | None,
) -> None:
    """Sweep node by node; then let single nodes jump, and sweep again."""
    from nova_core.costspace.kernels import place, relax

    n = len(graph)
    scale, floor = graph.typical_latency, np.float32(graph.mean_latency)
    axes = (0,) * dimensions
    total = _SWEEPS + _ESCAPES * _MORE_SWEEPS
    done = 0
    for escape in range(_ESCAPES + 1):
        sweeps = _MORE_SWEEPS if escape else _SWEEPS
        rough = _CLOSE if escape else first
        if escape:
            place.place(
                0, n, graph.start, graph.neighbour, graph.latency, state, state, axes,
                _TRIES, floor, np.float32(scale), seed * _ESCAPES + escape,
            )  # fmt: skip
        for smoothing in scale * np.geomspace(rough, _FINE, sweeps):
            relax.relax(
                0, n, graph.start, graph.neighbour, graph.latency, state, state, axes,
                np.float32(smoothing), floor, 0, 1,
            )  # fmt: skip
            done += 1
            if progress is not None:
                progress(done, total)


def _solve_many(
    graph: NeighbourGraph,
    state: NDArray[np.float32],
    dimensions: int,
    first: float,
    workers: Workers,
    progress: Progress | None,
) -> None:
    """Sweep in batches on all cores; rows are in random order, so a batch is a random sample."""
    from nova_core.costspace.kernels import relax

    n = len(graph)
    repeats = min(max(_ENTRIES_AT_ONCE // max(len(graph.latency), 1), 1), _MOST_REPEATS)
    sweeps = [(turn % parts, parts) for parts, count in _PARTS for turn in range(count * repeats)]
    smoothings = graph.typical_latency * np.geomspace(first, _LAST_LARGE, len(sweeps))
    bounds = [n * batch // _BATCHES for batch in range(_BATCHES + 1)]
    axes = (0,) * dimensions
    new = state.copy()
    for done, ((part, parts), smoothing) in enumerate(zip(sweeps, smoothings, strict=True), 1):
        for begin, end in pairwise(bounds):
            workers.run(
                relax.relax, begin, end, graph.start, graph.neighbour, graph.latency, state, new,
                axes, np.float32(smoothing), np.float32(graph.mean_latency), part, parts,
            )  # fmt: skip
            state[begin:end] = new[begin:end]
        if progress is not None:
            progress(done, len(sweeps))


__all__ = ["DENSE_NODES", "solve"]
