"""Time, memory and errors of embedding a synthetic internet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nova_core import console
from nova_harness.bench.base import duration
from nova_harness.bench.memory import peak_memory, reset_peak

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.costspace import CostSpace
    from nova_core.model.problem import PairLatencies
    from nova_testbed.internet import SyntheticInternet

SOLVER = "solver"
HEIGHTS = "solver, heights"
VIVALDI = "vivaldi, heights"
ADD = "add a node"
STEPS: dict[str, dict[str, Any]] = {
    SOLVER: {"method": "solver", "height": False},
    VIVALDI: {"method": "vivaldi", "height": True},
    HEIGHTS: {"method": "solver", "height": True},
}
# Pairs whose errors are measured, and nodes that join.
_TESTED_PAIRS = 200_000
_JOINING = 200


@dataclass(frozen=True)
class Case:
    """A synthetic internet to embed.

    Attributes:
        nodes: how many.
        neighbours: how many others each measures, at random.
        dimensions: of the space.
        seed: of everything random.
        repeat: how often each step runs.
    """

    nodes: int
    neighbours: int = 20
    dimensions: int = 2
    seed: int = 0
    repeat: int = 1

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.nodes:,} nodes x {self.neighbours} neighbours"


@dataclass(frozen=True)
class Measurement:
    """One step on one internet.

    Attributes:
        nodes: how many.
        pairs: measured.
        step: which of `STEPS`, or `ADD`.
        wall: seconds of the quickest run; of `ADD`, the median over nodes.
        cpu: seconds on all cores together, of the same run.
        peak_bytes: most memory of the whole process, or None where Linux reports none.
        mae: of pairs that were not measured, ms.
        median_relative: of the same.
        p90_relative: of the same.
    """

    nodes: int
    pairs: int
    step: str
    wall: float
    cpu: float
    peak_bytes: int | None
    mae: float
    median_relative: float
    p90_relative: float


def measure(case: Case) -> list[Measurement]:
    """Measure every step, warm.

    Raises:
        NovaError: for an invalid case.
    """
    from nova_core.costspace import embed, errors
    from nova_testbed.internet import SyntheticInternet

    # The last nodes join at the end.
    internet = SyntheticInternet(case.nodes + _JOINING, case.seed)
    _warm_up(case)
    pairs = measured_pairs(internet, case)
    test = _other_pairs(internet, case)
    measurements = []
    for step, options in STEPS.items():
        can_tell_peak = reset_peak()
        times = []
        for _ in range(case.repeat):
            cpu, start = time.process_time(), time.perf_counter()
            space = embed(pairs, case.nodes, dimensions=case.dimensions, seed=case.seed, **options)
            times.append((time.perf_counter() - start, time.process_time() - cpu))
        peak = peak_memory() if can_tell_peak else None
        report = errors(space, test)
        wall, cpu = min(times)
        measurements.append(
            Measurement(
                nodes=case.nodes,
                pairs=len(pairs),
                step=step,
                wall=wall,
                cpu=cpu,
                peak_bytes=peak,
                mae=report.mae,
                median_relative=report.median_relative,
                p90_relative=report.p90_relative,
            )
        )
    measurements.append(_joining(internet, space, case))
    return measurements


def measured_pairs(internet: SyntheticInternet, case: Case) -> PairLatencies:
    """What the nodes measure: each some others, at random."""
    import numpy as np

    from nova_core.model.problem import PairLatencies

    n = case.nodes
    random = np.random.default_rng(case.seed)
    source = np.repeat(np.arange(n), case.neighbours)
    target = random.integers(0, n - 1, len(source))
    target += target >= source
    return PairLatencies(source, target, internet.rtt(source, target))


def _other_pairs(internet: SyntheticInternet, case: Case) -> PairLatencies:
    from dataclasses import replace

    count = max(_TESTED_PAIRS // case.nodes, 1)
    few = replace(case, neighbours=count, seed=case.seed + 1)
    if case.nodes * count > 2 * _TESTED_PAIRS:
        return measured_pairs(internet, replace(few, nodes=_TESTED_PAIRS))
    return measured_pairs(internet, few)


def _joining(internet: SyntheticInternet, space: CostSpace, case: Case) -> Measurement:
    """Let nodes join one after the other, each with its measurements of random others."""
    import numpy as np

    from nova_core.costspace import LiveCostSpace

    random = np.random.default_rng(case.seed)
    live = LiveCostSpace(space, case.seed)
    walls, cpus, off, relative = [], [], [], []
    for joining in range(case.nodes, len(internet)):
        others = random.integers(0, case.nodes, case.neighbours)
        latency = internet.rtt(joining, others)
        cpu, start = time.process_time(), time.perf_counter()
        location = live.locate(others, latency)
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - cpu)
        test = random.integers(0, case.nodes, 200)
        real = internet.rtt(joining, test)
        guess = np.linalg.norm(space.position[test] - location.position, axis=1)
        if space.height is not None and location.height is not None:
            guess += space.height[test] + location.height
        off.append(np.abs(guess - real))
        relative.append(off[-1] / real)
    return Measurement(
        case.nodes, case.neighbours, ADD, statistics.median(walls), statistics.median(cpus), None,
        float(np.mean(off)), float(np.median(relative)), float(np.quantile(relative, 0.9)),
    )  # fmt: skip


def _warm_up(case: Case) -> None:
    """Load and compile whatever the steps need: on few nodes and on many, with threads."""
    from dataclasses import replace

    from nova_core.costspace import LiveCostSpace, embed
    from nova_core.workers import PARALLEL_NODES
    from nova_testbed.internet import SyntheticInternet

    for nodes in (100, PARALLEL_NODES):
        small = replace(case, nodes=nodes)
        pairs = measured_pairs(SyntheticInternet(nodes, case.seed), small)
        for options in STEPS.values():
            space = embed(pairs, nodes, dimensions=case.dimensions, **options)
        LiveCostSpace(space).locate([1, 2, 3], [10.0, 20.0, 30.0])
        if case.nodes < PARALLEL_NODES:
            break


def summary_table(measurements: Sequence[Measurement]) -> Table:
    """Times, memory and errors of every size and step."""
    table = console.table(
        "Embedding synthetic internets, warm, all cores",
        [">nodes", ">pairs", "step", ">time", ">CPU", ">peak MB", ">MAE, ms", ">median rel. %",
         ">90P rel. %"],
        caption="Errors are those of pairs that were not measured; of `add a node`, of its own.",
    )  # fmt: skip
    for m in measurements:
        if m.step == SOLVER and m is not measurements[0]:
            table.add_section()
        table.add_row(
            f"{m.nodes:,}",
            f"{m.pairs:,}",
            m.step,
            duration(m.wall),
            duration(m.cpu),
            "-" if m.peak_bytes is None else f"{m.peak_bytes / 1e6:,.0f}",
            console.number(m.mae, 2),
            console.number(100 * m.median_relative, 2),
            console.number(100 * m.p90_relative),
        )
    return table
