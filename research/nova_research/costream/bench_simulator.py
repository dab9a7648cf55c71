"""How long the simulator takes for a trace, on one core."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.model.query_plan import QueryPlan

HOSTS = 4


@dataclass(frozen=True)
class Case:
    """Random plans of random queries, see `corpus`.

    Attributes:
        ranges: one of `nova_research.costream.corpus.ranges.NAMED`.
        load: times the usual rates.
        traces: how many.
        seed: of queries, hardware and plans.
        repeat: how often; the quickest counts.
    """

    ranges: str
    load: float = 1.0
    traces: int = 100
    seed: int = 0
    repeat: int = 3

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.traces} traces in the ranges of the {self.ranges}, {self.load:g} times"


@dataclass(frozen=True)
class Measurement:
    """One case.

    Attributes:
        ranges: of the case.
        load: of the case.
        traces: of the case.
        failing: share of traces without results or with back-pressure.
        prepare: ms of CPU time per trace, to work out what runs where.
        simulate: ms of CPU time per trace, to run it for 8 s and more.
    """

    ranges: str
    load: float
    traces: int
    failing: float
    prepare: float
    simulate: float


def plans_of(case: Case) -> list[tuple[QueryPlan, float]]:
    """Plans, and s that each is measured."""
    from nova_research.costream.corpus.prepared import Item, Preparing, Settings
    from nova_research.costream.corpus.ranges import NAMED
    from nova_research.costream.training.traces import MEASURED_S, WARM_UP_S

    settings = Settings(
        seed=case.seed, batch=case.traces, inventory="bench", hosts=HOSTS, warm_up_s=WARM_UP_S,
        duration_s=MEASURED_S, drain_s=0.0, cores=float("inf"),
    )  # fmt: skip
    names = [f"host{number}" for number in range(HOSTS)]
    with tempfile.TemporaryDirectory() as scratch:
        drawn = NAMED[case.ranges]
        preparing = Preparing(settings, 0, [names], case.load, Path(scratch), drawn)
        plans = [preparing.plan(Item(number)) for number in range(case.traces)]
    return [(one.plan, one.seconds) for one in plans]


def measure(case: Case) -> list[Measurement]:
    """Time one case, the quickest of some runs."""
    from nova_research.costream.simulator.kernels import simulation
    from nova_research.costream.simulator.simulate import fitted_constants, labels_of
    from nova_research.costream.simulator.stages import stages_of
    from nova_research.costream.training.traces import WARM_UP_S

    plans, constants = plans_of(case), fitted_constants()
    stages = [stages_of(plan) for plan, _ in plans]
    simulation.simulate(stages[0].network, constants, WARM_UP_S, 0.1)
    runs, failing = [], 0
    for _ in range(case.repeat):
        begin = time.process_time()
        for plan, _ in plans:
            stages_of(plan)
        middle = time.process_time()
        labels = []
        for ran, (plan, seconds) in zip(stages, plans, strict=True):
            outcome = simulation.simulate(ran.network, constants, WARM_UP_S, seconds)
            labels += [
                labels_of(outcome, seconds, ran.upstream(query.id))
                for query in plan.problem.queries
            ]
        runs.append((middle - begin, time.process_time() - middle))
        failing = sum(not one.success or one.back_pressure for one in labels)
    prepare, simulate = (1e3 * min(column) / case.traces for column in zip(*runs, strict=True))
    share = failing / len(labels)
    return [Measurement(case.ranges, case.load, case.traces, share, prepare, simulate)]


def summary_table(measurements: list[Measurement]) -> Table:
    """The figures for people."""
    from nova_core import console

    return console.table(
        "The simulator, one core: CPU time per trace",
        ["ranges", ">load", ">traces", ">failing", ">prepare (ms)", ">simulate (ms)"],
        [
            (
                one.ranges,
                f"{one.load:g}",
                f"{one.traces:,}",
                f"{100 * one.failing:.0f} %",
                f"{one.prepare:.2f}",
                f"{one.simulate:.2f}",
            )
            for one in measurements
        ],
    )
