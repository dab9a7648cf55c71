"""How smoothly a running job is handed over by choice, with Flink on a virtual rack.

Joins of pairs run on some hosts, and are handed over to others and back, again and again, as
`nova control run` does it. Nothing disturbs the hosts but the load of a case.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from needs_rack import require
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.handovers import STEADY_S, WINDOW_MS, Case, figures, plans_of
from nova_core.model.plan import Plan
from nova_engines.results import PAIR, dtype
from nova_harness.control.controller import WARM_UP_S, Controller
from nova_harness.control.deciding import Tuning
from nova_harness.control.decision_log import Entry
from nova_harness.control.disturbances import JOB, LOAD
from nova_harness.control.job_groups import read_ledgers
from nova_harness.control.outcome import PairsCheck, outcome, silence_ms
from nova_harness.engines.base import ControlledEngine
from nova_harness.experiment.bed import engine_bed, hosts_up, prepare_engine
from nova_harness.experiment.document import Experiment
from nova_testbed.inventory import read_inventory
from nova_workloads.debs import DebsWorkload

CASES = (Case(1000), Case(5000), Case(1000, load=True))
SMALL = Case(200, inventory="virtual-5", regions=1, calm_s=5.0)
# Without CPU limits, before anything is measured: Java compiles code that has run often.
WARM_S = 20.0


@pytest.mark.e2e
def test_hand_over(benchmark: BenchmarkFixture, case: Case, tmp_path: Path) -> None:
    """To other hosts and back, three times in all; every result is compared with the reference."""
    require()
    known = read_inventory(case.inventory)
    plans = plans_of(case, known, tmp_path)
    experiment = Experiment(name="handovers", strategies=["nova"])
    flink = prepare_engine(experiment, print)
    problem = plans[0].problem
    workload = DebsWorkload(regions=case.regions)
    traffic = workload.traffic(WINDOW_MS, case.rate)
    sources = workload.streams(problem, traffic, 0).sources(0, None)
    entries: list[Entry] = []
    with ExitStack() as stack:
        inventory = stack.enter_context(hosts_up(known, print))
        bed = stack.enter_context(engine_bed(experiment, inventory, flink, print, keep=False))
        assert isinstance(bed.engine, ControlledEngine)
        bed.limits.lift()
        state = tmp_path / "state"
        controller = Controller(bed.engine, state, Tuning(), entries.append)
        stack.enter_context(closing(controller))
        controller.begin(problem, plans[0], sources, traffic.match, warm_s=WARM_UP_S)
        time.sleep(WARM_S)
        bed.limits.impose()
        turns = cycle(plans[::-1])

        def calm() -> tuple[tuple[Plan], dict[str, Any]]:
            time.sleep(STEADY_S + case.calm_s)
            return (next(turns),), {}

        def hand_over(plan: Plan) -> None:
            controller.hand_over(plan, "benchmark")
            assert entries[-1].kind == "handed-over", entries[-1].text

        with ExitStack() as loads:
            if case.load:
                for name in problem.nodes.ids[np.unique(problem.sources.node)].tolist():
                    loads.callback(controller.hosts[name].start(LOAD, name=JOB).end)
            benchmark.pedantic(hand_over, setup=calm, rounds=3)
            calm()
            end_ms = controller.end()
        ledgers = read_ledgers(state)
        check = PairsCheck(problem, controller.sources, traffic.match)
        observed = outcome(ledgers, controller.hosts, controller.sources, check)
    found = figures(case.calm_s, entries, observed, end_ms)
    benchmark.extra_info |= found
    compared = observed.compared
    assert (compared.lost, compared.duplicated, compared.wrong) == (0, 0, 0)
    # At least the time that is compared: before the hand-over, after it, and while it is done.
    assert found["results"] > case.rate * (2 * case.calm_s + found["decided_s"][0])
    assert 0 < found["told_s"][0] < found["decided_s"][0]
    assert min(found["silence_ms"]) > 0 and min(found["steady_silence_ms"]) > 0
    for name in ("after_p99_ms", "steady_p99_ms"):
        assert 0 < found[name] < 30_000
    assert found["deploying_p9999_ms"] > 0 and found["steady_p9999_ms"] > 0


def test_plans_share_no_host(tmp_path: Path) -> None:
    """Every join is cut in two at least."""
    case = Case(1000)
    both = plans_of(case, read_inventory(case.inventory), tmp_path)
    first, second = (set(plan.instances.node.tolist()) for plan in both)
    assert not first & second
    assert all(len(plan.instances) >= 4 for plan in both)


def test_too_few_hosts(tmp_path: Path) -> None:
    """Without workers, there is no second plan."""
    inventory = read_inventory(SMALL.inventory)
    few = replace(inventory, hosts=tuple(h for h in inventory.hosts if h.role != "worker"))
    with pytest.raises(AssertionError, match="virtual-5: too few hosts"):
        plans_of(SMALL, few, tmp_path)


def results(begin_s: float, end_s: float, late_ms: Any) -> Any:
    """A result every 10 ms; the latency is a function of the time of emission, s."""
    emit = np.arange(begin_s, end_s, 0.01)
    made = np.zeros(len(emit), dtype(PAIR))
    made["left_emit_us"] = np.round(1e6 * emit)
    made["right_emit_us"] = made["left_emit_us"] - 5
    made["arrive_us"] = made["left_emit_us"] + np.array([round(1000 * late_ms(t)) for t in emit])
    return made


def test_figures_are_of_their_periods() -> None:
    """Decided at 94 s, boundary at 100 s; results of the 0.43 s after it arrive together."""

    def old_late(t: float) -> float:
        return 50 if t < 94 else 90

    def new_late(t: float) -> float:
        return 500 - 1000 * (t - 100) if t < 100.43 else 70 if t < 102 else 60

    log = {"boundary_ms": 100_000, "seconds": 6.5, "told_s": 0.25}
    entries = [Entry(100.5, "handed-over", "", log)]
    valid = [results(80, 100, old_late), results(100, 125, new_late)]
    compared = SimpleNamespace(delivered=7)
    observed: Any = SimpleNamespace(valid=[valid], compared=compared, silence_ms=silence_ms(valid))
    one = figures(10.0, entries, observed, 125_000)
    assert one["results"] == 7
    assert one["decided_s"] == pytest.approx([6])
    assert one["told_s"] == [0.25]
    # From the last result of the old job, at 99.99 + 0.09 s, to the first of the new, at 100.5 s.
    assert one["silence_ms"] == pytest.approx([420], abs=1)
    # Twice 2 s on both sides, in the 10 s before the decision and before the end.
    assert one["steady_silence_ms"] == pytest.approx([10] * 4)
    assert one["after_p99_ms"] == pytest.approx(500, abs=25)
    assert one["steady_p99_ms"] == pytest.approx(60)
    assert one["deploying_p9999_ms"] == pytest.approx(90)
    assert one["steady_p9999_ms"] == pytest.approx(50)
    # The new job has delivered nothing.
    valid[1] = valid[1][:0]
    with pytest.raises(AssertionError, match="no results for seconds"):
        figures(10.0, entries, observed, 125_000)
