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

from nova_core.costspace.measurements import NeighbourGraph
from nova_core.costspace.scaling import classical_mds, shortest_paths, spectral_start
from nova_core.workers import Progress, Workers


@dataclass(frozen=True)
class SolverTuning:
    """How much work the solver does, and how robust it is meanwhile.

    Errors below a share of the typical latency count as squares; the share falls with each sweep.

    Attributes:
        dense_nodes: up to this many nodes the start is classical MDS of all shortest paths, which
            has no folds; above, that matrix would be too large.
        first_height: heights begin at this share of the typical latency; 0 could not grow.
        rough: share of the typical latency below which errors are squares at first.
        close: the same from a start that is close.
        fine: the same in the end.
        sweeps: of few nodes, from the start.
        escape_sweeps: after each round of escapes, in which every node tries some other places, so
            that it is not caught on the wrong side of others.
        tries: places that a node tries in an escape.
        steps: that it takes from the best of them.
        escapes: rounds of them with few nodes.
        escapes_many: with many.
        escape_entries: with many, for at most so many measurements; else there are none.
        many_nodes: from this many on, each node is moved by a part of its measurements only.
        parts: of many nodes, into how many parts measurements are split, and how many such sweeps.
        batches: of many nodes. Nodes in a batch see each other's old positions; later batches see
            the new ones.
        entries_at_once: measurements, from both ends, that get one round of sweeps over parts;
            fewer get more rounds.
        most_repeats: most rounds.
    """

    dense_nodes: int = 2000
    first_height: float = 0.05
    rough: float = 0.4
    close: float = 0.05
    fine: float = 0.002
    sweeps: int = 300
    escape_sweeps: int = 100
    tries: int = 8
    steps: int = 15
    escapes: int = 4
    escapes_many: int = 2
    escape_entries: int = 2_000_000
    many_nodes: int = 5000
    parts: tuple[tuple[int, int], ...] = ((4, 12), (2, 2), (1, 1))
    batches: int = 16
    entries_at_once: int = 40_000_000
    most_repeats: int = 40


TUNING = SolverTuning()


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
            state[:, dimensions:] = graph.typical_latency * TUNING.first_height
            state[:, :dimensions] = (
                _classical_start(graph, dimensions, seed)
                if n <= TUNING.dense_nodes
                else spectral_start(graph, dimensions, seed, workers)
            )
        else:
            state = start.copy()
        run = _Sweeps(graph, state, dimensions, workers)
        smoothing = TUNING.rough if start is None else TUNING.close
        plan = _plan(n, len(graph.latency), smoothing)
        for sweep, step in enumerate(plan, 1):
            if step.escape:
                run.escape(seed + sweep)
            run.sweep(step.smoothing, step.part, step.parts)
            if progress is not None:
                progress(sweep, len(plan))
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
    """The sweeps, each finer, then escapes with finer sweeps after each."""
    t = TUNING
    if nodes < t.many_nodes:
        sweeps = [(0, 1)] * t.sweeps
        last, escapes = t.fine, t.escapes
    else:
        repeats = min(max(t.entries_at_once // max(entries, 1), 1), t.most_repeats)
        sweeps = [(i % parts, parts) for parts, count in t.parts for i in range(count * repeats)]
        last = max(t.close / repeats, t.fine)
        escapes = t.escapes_many if entries <= t.escape_entries else 0
    steps = [
        _Step(smoothing, part, parts)
        for smoothing, (part, parts) in zip(
            np.geomspace(max(first, last), last, len(sweeps)).tolist(), sweeps, strict=True
        )
    ]
    again = np.geomspace(t.close, t.fine, t.escape_sweeps).tolist()
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
        batches = TUNING.batches if n >= TUNING.many_nodes else 1
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

        g, effort = self._graph, place.Effort(TUNING.tries, TUNING.steps, settle=False)
        self._run(place.place, self._dimensions, effort, g.mean_latency, g.typical_latency, seed)

    def _run(self, kernel: Callable[..., None], *arguments: object) -> None:
        from nova_core.costspace.kernels.graph import Entries

        entries = Entries(self._graph.start, self._graph.neighbour, self._graph.latency)
        for begin, end in pairwise(self._bounds):
            self._workers.run(kernel, begin, end, entries, self._state, self._new, *arguments)
            if self._new is not self._state:
                self._state[begin:end] = self._new[begin:end]


def _classical_start(graph: NeighbourGraph, dimensions: int, seed: int) -> NDArray[np.float64]:
    position = classical_mds(shortest_paths(graph), dimensions)
    # Nodes at the same position have no direction in which to separate.
    noise = np.random.default_rng(seed).normal(size=position.shape)
    return np.asarray(position + noise * graph.typical_latency * 1e-3)
