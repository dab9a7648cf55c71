"""Vivaldi: every node finds its place from its own measurements (Dabek et al. 2004)."""

from __future__ import annotations

import numpy as np

from nova_core.costspace.measurements import NeighbourGraph
from nova_core.costspace.sweeps import Progress, Workers
from nova_core.model.problem import Floats

# The paper's constants (section 3.4).
STEP = 0.25
TUNING = 0.25


def vivaldi(
    graph: NeighbourGraph,
    dimensions: int,
    *,
    height: bool,
    rounds: int = 300,
    samples: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
    threads: int | None = None,
) -> tuple[Floats, Floats]:
    """Run rounds in which every node measures some of its neighbours and moves after each.

    In the second half the timestep falls to nothing, so that nodes come to rest instead of
    following each single measurement for ever.

    Args:
        graph: the measurements.
        dimensions: d.
        height: whether nodes have heights.
        rounds: how many.
        samples: measurements a node takes in a round.
        seed: of start positions and of who is measured when.
        progress: called with rounds done and rounds in all.
        threads: None takes all cores; the result is the same.

    Returns:
        (n, d) positions and (n,) heights, ms, in the order of the graph's rows; heights are (0,)
        when there are none.
    """
    from nova_core.costspace.kernels import vivaldi as kernel

    n = len(graph)
    scale = typical_latency(graph)
    random = np.random.default_rng(seed)
    position = random.normal(scale=scale / 2, size=(n, dimensions))
    heights = np.full(n if height else 0, scale / 20)
    error = np.ones(n)
    new_position, new_heights, new_error = position.copy(), heights.copy(), error.copy()
    with Workers(n, threads) as workers:
        for turn in range(rounds):
            step = STEP * min(1.0, 2 * (1 - turn / rounds))
            workers.run(
                kernel.round_of, 0, n, graph.start, graph.neighbour, graph.latency,
                position, heights, error, new_position, new_heights, new_error,
                samples, step, TUNING, scale / 100, seed * rounds + turn,
            )  # fmt: skip
            position, new_position = new_position, position
            heights, new_heights = new_heights, heights
            error, new_error = new_error, error
            if progress is not None:
                progress(turn + 1, rounds)
    return position, heights


def typical_latency(graph: NeighbourGraph) -> float:
    """The median measured latency, ms; the mean where most are 0, 1 where all are."""
    if not len(graph.latency):
        return 1.0
    # The rows' order is random to the measurements: some of many tell as well as all.
    some = graph.latency[:1_000_000]
    return float(np.median(some)) or float(np.mean(some)) or 1.0


__all__ = ["typical_latency", "vivaldi"]
