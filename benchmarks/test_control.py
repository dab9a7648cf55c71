"""CPU time of `nova control` with many hosts: reading their reports, and deciding.

Hosts are simulated: each reports its processes as a real one does, and some are under load for a
while. Only the controller is measured; nothing runs on an engine.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nova_core.strategies import create
from nova_harness.bench.live import live_problem
from nova_harness.control.deciding import Decider, Seen, Tuning
from nova_harness.control.sensing import HostView, HostWatch

# Numbers of hosts.
CASES, SMALL = (10_000,), 300
REPORT_S, LOOK_S = 5.0, 0.5
# In a minute.
LOOKS = 120
# Processes per host; session of the engine's process.
PROCESSES, ENGINE = 120, 7
# Every second, one host gets load for 20 to 60 s.
LOADED_PER_S, LOADED_S, LOAD = 1.0, (20.0, 60.0), 0.6

pytestmark = [
    pytest.mark.usefixtures("one_core"),
    pytest.mark.benchmark(timer=time.process_time),
]


class Host:
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


class Simulation:
    """Hosts, and their controller."""

    def __init__(self, nodes: int) -> None:
        problem = live_problem(nodes, seed=0)
        self.decider = Decider(problem, create("nova", refine=False).place(problem), Tuning())
        self.random = np.random.default_rng(0)
        self.names: list[str] = problem.nodes.ids.tolist()
        self.hosts = {name: Host(self.random) for name in self.names}
        self.looks = self.decisions = self.refused = 0
        self.reports: list[tuple[HostWatch, bytes]] = []

    def report(self) -> None:
        """Let time pass to the next look at all hosts; some have reported since the last one."""
        self.looks += 1
        now, random = self.looks * LOOK_S, self.random
        for name in random.choice(self.names, random.poisson(LOADED_PER_S * LOOK_S)):
            self.hosts[name].loaded_until = now + random.uniform(*LOADED_S)
        groups = round(REPORT_S / LOOK_S)
        reporting = [self.hosts[name] for name in self.names[self.looks % groups :: groups]]
        self.reports = [(host.watch, host.report(now)) for host in reporting]

    def read(self) -> None:
        """What hosts have reported."""
        for watch, report in self.reports:
            watch.take(report)

    def decide(self) -> None:
        """Look at all hosts, and make a new plan if something has changed."""
        seen = {
            name: Seen(True, None if host.watch.view.taken is None else host.watch.view.share)
            for name, host in self.hosts.items()
        }
        latest = self.decider.decide(seen, self.looks * LOOK_S)
        if changes := sum(one.delta is not None and not one.delta.empty for one in latest):
            self.decider.plan()
            self.decisions += changes
        self.refused += sum(one.delta is None for one in latest)


@pytest.fixture
def simulation(case: int) -> Simulation:
    """After the first minute."""
    simulation = Simulation(case)
    for _ in range(LOOKS):
        simulation.report()
        simulation.read()
        simulation.decide()
    return simulation


def test_read(benchmark: BenchmarkFixture, simulation: Simulation) -> None:
    """The reports of half a second, for a minute."""
    benchmark.pedantic(simulation.read, setup=simulation.report, rounds=LOOKS)
    now = simulation.looks * LOOK_S
    assert all(watch.last and watch.last.at_s == now for watch, _ in simulation.reports)


def test_decide(benchmark: BenchmarkFixture, simulation: Simulation) -> None:
    """A look each half second at all hosts, and a new plan if there is one, for a minute."""

    def reported() -> None:
        simulation.report()
        simulation.read()

    benchmark.pedantic(simulation.decide, setup=reported, rounds=LOOKS)
    assert simulation.decisions
    benchmark.extra_info |= {"decisions": simulation.decisions, "refused": simulation.refused}
