"""The batch solver: places of all nodes that fit all measured pairs at once, robustly.

It minimizes sum w_ij |e_ij - d_ij| over the measured pairs, e_ij = |x_i - x_j| + h_i + h_j, with
w_ij = 1 / sqrt(d_ij + c). Absolute rather than squared errors, because measured latencies break the
triangle inequality: a detour then pulls no harder the longer it is. The weight lies half way
between absolute and relative error. Each |r| is majorized by a quadratic (iteratively reweighted
least squares), each distance as in SMACOF (de Leeuw 1977), which gives every node a closed-form
step that lessens the objective.
"""

from __future__ import annotations

import numpy as np

from nova_core.costspace.mds import classical_mds, shortest_paths
from nova_core.costspace.measurements import NeighbourGraph
from nova_core.costspace.sweeps import Progress, Workers
from nova_core.costspace.vivaldi import typical_latency, vivaldi
from nova_core.model.problem import Floats

# Up to this many nodes the dense matrix of shortest paths is cheap: classical MDS of it is a start
# that is folded nowhere.
DENSE_NODES = 2000
_SWEEPS = 400
_SWEEPS_LARGE = 12


def solve(
    graph: NeighbourGraph,
    dimensions: int,
    *,
    height: bool,
    seed: int = 0,
    progress: Progress | None = None,
    threads: int | None = None,
) -> tuple[Floats, Floats]:
    """Embed all nodes.

    Args:
        graph: the measurements.
        dimensions: d.
        height: whether nodes have heights.
        seed: of the start.
        progress: called with sweeps done and sweeps in all.
        threads: None takes all cores; the result is the same.

    Returns:
        (n, d) positions and (n,) heights, ms, in the order of the graph's rows; heights are (0,)
        when there are none.
    """
    n = len(graph)
    scale = typical_latency(graph)
    if n <= DENSE_NODES:
        position = classical_mds(shortest_paths(graph), dimensions)
        # Nodes in one place do not know which way to part.
        position += np.random.default_rng(seed).normal(scale=scale * 1e-3, size=position.shape)
        heights = np.full(n if height else 0, scale / 20)
        sweeps = _SWEEPS
    else:
        position, heights = vivaldi(
            graph, dimensions, height=height, rounds=20, samples=16, seed=seed, threads=threads
        )
        sweeps = _SWEEPS_LARGE
    return refine(graph, position, heights, sweeps=sweeps, progress=progress, threads=threads)


def refine(
    graph: NeighbourGraph,
    position: Floats,
    heights: Floats,
    *,
    sweeps: int,
    progress: Progress | None = None,
    threads: int | None = None,
) -> tuple[Floats, Floats]:
    """Improve positions in sweeps over the nodes, the loss ever closer to the absolute error.

    Args:
        graph: the measurements.
        position: (n, d) start, ms; changed in place.
        heights: (n,) start, ms, or (0,) for none; changed in place.
        sweeps: how many.
        progress: called with sweeps done and sweeps in all.
        threads: None takes all cores; the result is the same.

    Returns:
        The same arrays.
    """
    from nova_core.costspace.kernels import relax as kernel

    n = len(graph)
    scale = typical_latency(graph)
    # Within a batch nodes see each other as they were; between batches as they are.
    batches = 1 if n < 20_000 else 16
    new_position, new_heights = position, heights
    if batches > 1:
        new_position, new_heights = position.copy(), heights.copy()
    with Workers(n, threads) as workers:
        for turn in range(sweeps):
            smoothing = 0.4 * scale * 0.01 ** (turn / max(sweeps - 1, 1))
            for batch in range(batches):
                begin, end = n * batch // batches, n * (batch + 1) // batches
                workers.run(
                    kernel.relax, begin, end, graph.start, graph.neighbour, graph.latency,
                    position, heights, new_position, new_heights, smoothing, scale / 100, 1.0, 1.0,
                )  # fmt: skip
                if batches > 1:
                    position[begin:end] = new_position[begin:end]
                    heights[begin:end] = new_heights[begin:end]
            if progress is not None:
                progress(turn + 1, sweeps)
    return position, heights


__all__ = ["DENSE_NODES", "refine", "solve"]
