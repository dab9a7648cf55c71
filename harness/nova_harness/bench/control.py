"""CPU time of `nova control` with many hosts: reading their reports, and deciding.

Hosts are simulated: each reports its processes as a real one does, and some are under load for a
while. Only the controller is measured; nothing runs on an engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nova_core import console
from nova_core.strategies import create
from nova_harness.bench.live import live_problem
from nova_harness.control.deciding import Decider, Seen, Tuning
from nova_harness.control.sensing import HostView, HostWatch

if TYPE_CHECKING:
    from rich.table import Table

REPORT_S, LOOK_S = 5.0, 0.5
# Processes per host; session of the engine's process.
PROCESSES, ENGINE = 120, 7
# Every second, one host in ten thousand gets load for 20 to 60 s.
LOADED_PER_S, LOADED_S, LOAD = 1e-4, (20.0, 60.0), 0.6


@dataclass(frozen=True)
class Case:
    """What to measure.

    Attributes:
        nodes: of the generated topology; each is a host.
        seconds: simulated.
        seed: of the topology and the load.
    """

    nodes: int
    seconds: float
    seed: int

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"control of {self.nodes:,} hosts"


@dataclass(frozen=True)
class Measurement:
    """Times and decisions of a controller.

    Attributes:
        hosts: that report.
        joins: of the workload.
        reading: CPU time for what hosts report, s per simulated second.
        deciding: the same for looks at all hosts, and new plans.
        longest_s: the longest look, new plan included.
        decisions: that changed the plan.
        refused: decisions that found no plan.
    """

    hosts: int
    joins: int
    reading: float
    deciding: float
    longest_s: float
    decisions: int
    refused: int


class _Host:
    """A simulated host."""

    def __init__(self, random: np.random.Generator) -> None:
        self.watch = HostWatch(HostView(cores=1.0), {ENGINE})
        self.loaded_until = -1.0
        self._used = self._engine = 0.0
        self._at = 0.0
        self._lines = [
            f"{pid} (process-{pid}) S 1 {pid} {pid} 0 -1 4194560 1743 0 0 0 {ticks} 20 0 0 20 0 1 "
            f"0 {pid * 3} 19623936 1290 18446744073709551615 1 1 0 0 0 0 0 4096 1260 0 0 0 17 1 0"
            for pid, ticks in zip(
                range(100, 100 + PROCESSES), random.integers(0, 9999, PROCESSES), strict=True
            )
        ]

    def report(self, now: float) -> bytes:
        """What the host's shell prints at a time."""
        passed, self._at = now - self._at, now
        self._engine += 20 * passed
        self._used += 100 * LOAD * passed if now < self.loaded_until else 0.0
        own = f"7 (java) S 1 7 {ENGINE} 0 -1 0 0 0 0 0 {self._engine:.0f} 0 0 0 20 0 9 0 5 0"
        other = f"9 (busy) R 1 9 9 0 -1 0 0 0 0 0 {self._used:.0f} 0 0 0 20 0 1 0 8 0"
        return "\n".join([f"@ {now:.2f}", own, other, *self._lines, ".\n"]).encode()


def measure(case: Case) -> list[Measurement]:
    """Control simulated hosts for so many simulated seconds."""
    problem = live_problem(case.nodes, case.seed)
    plan = create("nova", refine=False).place(problem)
    decider = Decider(problem, plan, Tuning())
    random = np.random.default_rng(case.seed)
    names: list[str] = problem.nodes.ids.tolist()
    hosts = {name: _Host(random) for name in names}
    groups = round(REPORT_S / LOOK_S)
    reading = deciding = longest = 0.0
    decisions = refused = 0
    for look in range(1, round(case.seconds / LOOK_S) + 1):
        now = look * LOOK_S
        for name in random.choice(names, random.poisson(LOADED_PER_S * LOOK_S * len(names))):
            hosts[name].loaded_until = now + random.uniform(*LOADED_S)
        reporting = [hosts[name] for name in names[look % groups :: groups]]
        reports = [(host.watch, host.report(now)) for host in reporting]
        begun = time.process_time()
        for watch, report in reports:
            watch.take(report)
        read = time.process_time()
        seen = {
            name: Seen(True, None if host.watch.view.taken is None else host.watch.view.share)
            for name, host in hosts.items()
        }
        latest = decider.decide(seen, now)
        if any(one.delta is not None and not one.delta.empty for one in latest):
            decider.plan()
            decisions += sum(one.delta is not None and not one.delta.empty for one in latest)
        refused += sum(one.delta is None for one in latest)
        decided = time.process_time()
        reading += read - begun
        deciding += decided - read
        longest = max(longest, decided - read)
    return [
        Measurement(
            hosts=len(names),
            joins=len(problem.matrix),
            reading=reading / case.seconds,
            deciding=deciding / case.seconds,
            longest_s=longest,
            decisions=decisions,
            refused=refused,
        )
    ]


def summary_table(measurements: Sequence[Measurement]) -> Table:
    """For people."""
    return console.table(
        "Control of simulated hosts, which report every 5 s",
        [">hosts", ">joins", ">reading, cores", ">deciding, cores", ">longest look, s",
         ">changes of the plan", ">refused"],
        [
            (
                f"{one.hosts:,}",
                f"{one.joins:,}",
                f"{one.reading:.3f}",
                f"{one.deciding:.3f}",
                f"{one.longest_s:.2f}",
                f"{one.decisions:,}",
                f"{one.refused:,}",
            )
            for one in measurements
        ],
    )  # fmt: skip
