"""CPU time of the simulator of placements, on random plans of random queries."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nova_core.model.plan import Plan
from nova_research.costream.corpus.prepared import Item, Preparing, Settings
from nova_research.costream.corpus.ranges import NAMED
from nova_research.costream.simulator.kernels import simulation
from nova_research.costream.simulator.simulate import fitted_constants, labels_of
from nova_research.costream.simulator.stages import Stages, stages_of
from nova_research.costream.training.traces import MEASURED_S, WARM_UP_S, Labels

# Traces.
CASES, SMALL = (100,), 4
HOSTS = 4
# Times the usual rates.
LOAD = 4.0

pytestmark = pytest.mark.benchmark(timer=time.process_time)
of_ranges = pytest.mark.parametrize("ranges", ["rack", "paper"])


def plans_of(ranges: str, traces: int, scratch: Path) -> list[tuple[Plan, float]]:
    """Plans, and s that each is measured."""
    settings = Settings(
        seed=0, batch=traces, inventory="bench", hosts=HOSTS, warm_up_s=WARM_UP_S,
        duration_s=MEASURED_S, drain_s=0.0, cores=float("inf"),
    )  # fmt: skip
    names = [f"host{number}" for number in range(HOSTS)]
    preparing = Preparing(settings, 0, [names], LOAD, scratch, NAMED[ranges])
    plans = [preparing.plan(Item(number)) for number in range(traces)]
    return [(one.plan, one.seconds) for one in plans]


def simulated(plan: Plan, stages: Stages, seconds: float) -> list[Labels]:
    """What the queries of a plan come to."""
    outcome = simulation.simulate(stages.network, fitted_constants(), WARM_UP_S, seconds)
    return [labels_of(outcome, seconds, stages.upstream(one.id)) for one in plan.problem.queries]


@of_ranges
def test_prepare(benchmark: BenchmarkFixture, case: int, ranges: str, tmp_path: Path) -> None:
    """To work out what runs where, for all traces."""
    plans, again = (plans_of(ranges, case, tmp_path) for _ in range(2))
    nodes = [[plan.instances.node.tolist() for plan, _ in some] for some in (plans, again)]
    assert nodes[0] == nodes[1]
    assert len(benchmark(lambda: [stages_of(plan) for plan, _ in plans])) == case


@of_ranges
def test_simulate(benchmark: BenchmarkFixture, case: int, ranges: str, tmp_path: Path) -> None:
    """To run all traces, for 8 s and more each; some have no results, or back-pressure."""
    ready = [(plan, stages_of(plan), s) for plan, s in plans_of(ranges, case, tmp_path)]
    simulated(*ready[0])  # compiles
    found = benchmark(lambda: [label for one in ready for label in simulated(*one)])
    assert len(found) >= case
    failing = sum(not one.success or one.back_pressure for one in found) / len(found)
    benchmark.extra_info["failing"] = failing
