"""Vivaldi: every node finds its place from its own measurements (Dabek et al. 2004)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.measurements import NeighbourGraph
from nova_core.costspace.scaling import spectral_start
from nova_core.workers import PARALLEL_NODES, Progress, Workers


@dataclass(frozen=True)
class VivaldiTuning:
    """Constants of the paper (section 3.4), and the number of rounds.

    Attributes:
        step: c_c, the share of an error that a node moves by.
        trust: c_e, the share of a measurement in the error that a node believes in.
        first_height: heights begin at this share of the typical latency; 0 could not grow.
        rounds: in which each node measures some neighbours.
        rounds_large: the same, of topologies large enough for threads.
        samples: neighbours that a node measures in a round.
    """

    step: float = 0.25
    trust: float = 0.25
    first_height: float = 0.05
    rounds: int = 300
    rounds_large: int = 12
    samples: int = 16


TUNING = VivaldiTuning()


def vivaldi(
    graph: NeighbourGraph,
    dimensions: int,
    *,
    height: bool,
    seed: int = 0,
    start: NDArray[np.float32] | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> NDArray[np.float32]:
    """Run rounds in which every node measures some of its neighbours and moves after each.

    In the second half the timestep falls to nothing, so that nodes come to rest instead of
    following each single measurement for ever. Nodes begin at random; where they are so many that
    hundreds of rounds are too many, at the eigenvectors of `spectral_start`.

    Args:
        graph: the measurements.
        dimensions: d.
        height: whether nodes have heights.
        seed: of start positions and of who is measured when.
        start: (n, d) or (n, d + 1) where to begin instead.
        progress: called with rounds done and rounds in all.
        threads: None takes all cores; the result is the same.

    Returns:
        (n, d) positions, ms, or (n, d + 1) with heights last, in the order of the rows.
    """
    from nova_core.costspace.kernels import vivaldi as kernel
    from nova_core.costspace.kernels.graph import Entries

    n = len(graph)
    scale = graph.typical_latency
    rounds = TUNING.rounds if n < PARALLEL_NODES else TUNING.rounds_large
    state = np.empty((n, 1 + dimensions + height), np.float32)
    state[:, 0] = 1.0
    state[:, dimensions + 1 :] = scale * TUNING.first_height
    entries, axes = Entries(graph.start, graph.neighbour, graph.latency), (0,) * dimensions
    with Workers(n, threads) as workers:
        if start is not None:
            state[:, 1:] = start
        elif n >= PARALLEL_NODES:
            state[:, 1 : dimensions + 1] = spectral_start(graph, dimensions, seed, workers)
        else:
            random = np.random.default_rng(seed)
            state[:, 1 : dimensions + 1] = random.normal(scale=scale / 2, size=(n, dimensions))
        new = state.copy()
        for turn in range(rounds):
            step = TUNING.step * min(1.0, 2 * (1 - turn / rounds))
            springs = kernel.Springs(
                np.float32(step), np.float32(TUNING.trust), np.float32(scale / 100)
            )
            workers.run(
                kernel.round_of, 0, n, entries, state, new, axes, TUNING.samples, springs,
                seed * rounds + turn,
            )  # fmt: skip
            state, new = new, state
            if progress is not None:
                progress(turn + 1, rounds)
    return np.ascontiguousarray(state[:, 1:])
