"""The simulator: what must hold of any run, and what is known of simple ones."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_placements import FILTER, aggregate, join, plan_on, problem_on

from nova_core.errors import NovaError
from nova_core.model.plan import Plan
from nova_core.strategies import place
from nova_research.costream.simulator.kernels.simulation import Constants
from nova_research.costream.simulator.simulate import Simulated, median_ms, read_constants, simulate

FREE = Constants(*([0.0] * len(Constants())))._replace(buffer_kb=512.0)
"""Work costs nothing, and nothing waits."""


def run(plan: Plan, constants: Constants | None = None, **seconds: float) -> Simulated:
    return simulate(plan, Constants() if constants is None else constants, **seconds)


def test_a_filter_under_no_load_passes_its_share_after_links_and_work() -> None:
    plan = plan_on(problem_on([FILTER], [200]), [])
    labels = run(plan).labels
    assert labels.throughput == pytest.approx(100)
    c = Constants()
    work = (c.source_us + 2 * c.step_us + 2 * c.send_us + c.sink_us + 2 * c.wake_us + 10) / 1e3
    least, most = 10 + c.wait_ms, 10 + c.wait_ms + work
    assert labels.e2e_latency_ms is not None
    assert least < labels.e2e_latency_ms < most
    assert labels.processing_latency_ms == pytest.approx(labels.e2e_latency_ms, abs=0.2)
    assert (labels.success, labels.back_pressure) == (True, False)
    assert run(plan, FREE).labels.e2e_latency_ms == pytest.approx(10, abs=0.1)


def test_latencies_are_above_0() -> None:
    """Fifths of results that take as long as they vary: some would be early."""
    amount, mean = np.array([1.0, 1.0]), np.array([0.001, 0.002])
    assert 0 < median_ms(amount, mean, np.array([0.1, 0.1])) < 100
    assert median_ms(np.array([1.0]), np.array([-0.1]), np.array([0.0])) == pytest.approx(1e-3)


def test_a_narrow_link_adds_the_time_a_tuple_takes() -> None:
    problem = problem_on([FILTER], [20], mbit=0.1, tuple_bytes=960)
    labels = run(plan_on(problem, []), FREE).labels
    # 1,000 bytes are 80 ms at 0.1 Mbit/s.
    assert labels.e2e_latency_ms == pytest.approx(90, abs=1)


@pytest.mark.parametrize("window", [0.25, 1.0, 2.0])
def test_windows_add_between_nothing_and_their_length(window: float) -> None:
    plan = plan_on(problem_on([FILTER, join(window)], [400, 300]), [2])
    labels = run(plan, FREE).labels
    assert labels.e2e_latency_ms is not None
    # Of two readings that are spread evenly over a window, the older one's median age.
    assert labels.e2e_latency_ms == pytest.approx(20 + 1e3 * window * math.sqrt(0.5), rel=0.08)
    assert labels.e2e_latency_ms <= 21 + 1e3 * window


def test_aggregates_have_a_result_per_group_and_slide() -> None:
    operators = [FILTER, aggregate(1.0, "f", slide=0.5)]
    labels = run(plan_on(problem_on(operators, [400]), [1]), FREE).labels
    assert labels.throughput == pytest.approx(10)
    # Of 40 readings of a group, the oldest is almost as old as the window.
    assert labels.e2e_latency_ms == pytest.approx(20 + 1e3 * 40 / 41, rel=0.02)
    few = [FILTER, aggregate(1.0, "f", groups=1000)]
    labels = run(plan_on(problem_on(few, [400]), [1]), FREE).labels
    # 200 tuples of any of 1,000 groups.
    assert labels.throughput == pytest.approx(1000 * (1 - math.exp(-0.2)), rel=0.01)


def test_joins_have_as_many_results_as_the_problem_says() -> None:
    for slide in (1.0, 0.4):
        operators = [FILTER, join(1.0, slide=slide, selectivity=0.5)]
        plan = plan_on(problem_on(operators, [400, 300]), [2])
        assert run(plan, FREE, measured_s=10.0).labels.throughput == pytest.approx(100, rel=0.01)


def test_an_aggregate_of_a_join_keeps_its_windows() -> None:
    """Results of a window are aggregated when that ends, not a window later."""
    operators = [FILTER, join(2.0), aggregate(2.0)]
    labels = run(plan_on(problem_on(operators, [400, 300]), [2, 2]), FREE).labels
    assert labels.e2e_latency_ms is not None
    assert 1800 < labels.e2e_latency_ms <= 2021
    other = [FILTER, join(2.0), aggregate(4.0)]
    later = run(plan_on(problem_on(other, [400, 300]), [2, 2]), FREE, measured_s=12.0).labels
    assert later.e2e_latency_ms is not None
    assert 3000 < later.e2e_latency_ms <= 4021


def test_windows_that_never_end_have_no_result() -> None:
    labels = run(plan_on(problem_on([FILTER, join(16.0)], [40, 40]), [2])).labels
    assert (labels.success, labels.results, labels.throughput) == (False, 0, 0.0)
    assert labels.e2e_latency_ms is None
    assert labels.processing_latency_ms is None
    assert not labels.back_pressure


def test_too_much_work_holds_sources_up() -> None:
    operators = [FILTER, join(0.5), aggregate(1.0)]
    good = run(plan_on(problem_on(operators, [4000, 4000]), [2, 2])).labels
    assert not good.back_pressure
    weak = run(plan_on(problem_on(operators, [4000, 4000], cpu=0.02), [2, 2])).labels
    assert weak.back_pressure
    assert weak.behind_s > 0.5
    assert weak.throughput < good.throughput
    # What is late is emitted late: the way after that is short.
    if weak.success:
        assert weak.e2e_latency_ms is not None
        assert weak.processing_latency_ms is not None
        assert weak.processing_latency_ms < weak.e2e_latency_ms


def test_a_narrow_link_holds_sources_up() -> None:
    problem = problem_on([FILTER], [2000], mbit=0.2)
    labels = run(plan_on(problem, []), Constants()._replace(buffer_kb=64)).labels
    assert labels.back_pressure
    # 0.2 Mbit/s are 250 tuples/s of 100 bytes.
    assert labels.throughput == pytest.approx(250, rel=0.05)


def test_too_little_memory_ends_a_run() -> None:
    operators = [FILTER, join(4.0)]
    problem = problem_on(operators, [20000, 20000], cpu=4.0, memory=1e12)
    plan = plan_on(problem, [2])
    assert run(plan).out_of_memory_s is None
    small = replace(problem.nodes, memory=np.full(4, 310e6))
    found = run(plan_on(replace(problem, nodes=small), [2]))
    assert found.out_of_memory_s is not None
    assert (found.labels.success, found.labels.back_pressure) == (False, True)
    none = replace(problem.nodes, memory=np.full(4, 100e6))
    found = run(plan_on(replace(problem, nodes=none), [2]))
    assert found.out_of_memory_s == 0.0
    assert all(one.records_out == 0 for one in found.operators.values())


def test_full_heaps_slow_hosts_down() -> None:
    operators = [FILTER, join(4.0)]
    problem = problem_on(operators, [5000, 5000], cpu=0.3, memory=1e12)
    free = run(plan_on(problem, [2]))
    crowded = replace(problem.nodes, memory=np.full(4, 308.5e6))
    slowed = run(plan_on(replace(problem, nodes=crowded), [2]))
    assert slowed.out_of_memory_s is None
    assert slowed.labels.e2e_latency_ms is not None
    assert free.labels.e2e_latency_ms is not None
    assert slowed.labels.e2e_latency_ms > free.labels.e2e_latency_ms


def test_neighbours_on_a_host_take_each_others_cpu() -> None:
    operators = [FILTER, join(0.25)]
    problem = problem_on(operators, [9000, 9000], cpu=0.08)
    apart = run(plan_on(problem, [2])).labels
    together = run(plan_on(problem, [0])).labels
    assert together.behind_s > apart.behind_s


def test_a_join_without_a_window_is_refused() -> None:
    bare = {"kind": "join", "id": "j", "inputs": ["f", "t1"]}
    with pytest.raises(NovaError, match=r"q/j.*window: missing"):
        simulate(plan_on(problem_on([FILTER, bare], [10, 10]), [2]))


@pytest.mark.parametrize("keys", [1, 5000])
def test_pieces_of_operators_do_what_the_whole_does(keys: int) -> None:
    """Nova cuts a join: as many results in all, each tuple taken as often as the plan has it."""
    operators = [FILTER, join(1.0, keys=keys)]
    problem = problem_on(operators, [400, 300], nodes=8)
    rng = np.random.default_rng(3)
    capacity = np.array([10, 10, 400, 400, 400, 400, 400, 10], np.float64)
    nodes = replace(problem.nodes, capacity=capacity, position=rng.uniform(0, 20, (8, 2)))
    plan = place(replace(problem, nodes=nodes), "nova")
    assert isinstance(plan, Plan)
    assert len(plan.instances) > 1
    assert plan.by_key.any() == (keys > 1)
    whole = run(plan_on(problem, [2]), FREE)
    found = run(plan, FREE)
    assert found.labels.throughput == pytest.approx(whole.labels.throughput, rel=0.01)
    name = "q/j(s0*s1)"
    taken = found.operators[name].records_in / whole.operators[name].records_in
    assert taken == pytest.approx(plan.links.rate[plan.links.consumer >= 0].sum() / 500, rel=0.02)


def test_partial_aggregates_add_up() -> None:
    operators: list[dict[str, Any]] = [
        {"kind": "aggregate", "id": "a", "input": "t0", "window": 1, "groups": 4}
        | {"decomposable": True}
    ]
    problem = problem_on(operators, [400, 400], nodes=8)
    sources = replace(problem.sources, stream=np.array(["t0", "t0"]))
    rng = np.random.default_rng(5)
    nodes = replace(problem.nodes, position=rng.uniform(0, 100, (8, 2)))
    plan = place(replace(problem, sources=sources, nodes=nodes), "nova")
    assert isinstance(plan, Plan)
    assert len(plan.instances) == 3
    assert run(plan, FREE).labels.throughput == pytest.approx(4)


# --- properties ---------------------------------------------------------------------------------

SECOND = join(0.5, id="k", inputs=["j", "t2"], keys=20)

shapes = st.sampled_from(
    [
        ([FILTER], 1, 0),
        ([FILTER, aggregate(0.5, "f")], 1, 1),
        ([FILTER, join(0.5)], 2, 1),
        ([FILTER, join(1.0, slide=0.4), aggregate(1.0, slide=0.4)], 2, 2),
        ([FILTER, join(1.0), aggregate(2.0, groups=50)], 2, 2),
        (
            [
                FILTER,
                join(0.5),
                join(0.5, id="k", inputs=["j", "t2"], keys=20),
                aggregate(0.5, "k"),
            ],
            3,
            3,
        ),
    ]
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    operators, sources, placed = draw(shapes)
    rates = draw(st.lists(st.integers(1, 3000), min_size=sources, max_size=sources))
    problem = problem_on(
        operators,
        rates,
        cpu=draw(st.sampled_from([0.01, 0.05, 0.2, 1.0, 4.0])),
        memory=draw(st.sampled_from([0.25e9, 0.3e9, 0.32e9, 1e9])),
        ms=draw(st.floats(0, 200)),
        mbit=draw(st.sampled_from([0.1, 1.0, 10.0, 1000.0])),
    )
    return plan_on(problem, draw(st.lists(st.integers(0, 3), min_size=placed, max_size=placed)))


@settings(max_examples=150, deadline=None)
@given(plans())
def test_nothing_comes_out_that_did_not_go_in(plan: Plan) -> None:
    found = run(plan)
    graph = plan.graph
    for one in graph:
        count = found.operators[one.id]
        assert count.records_in >= 0
        assert count.records_out >= 0
        above = sum(found.operators[graph[number].id].records_out for number in one.inputs)
        assert count.records_in <= above * (1 + 1e-6) + 1e-6
        if one.kind == "source":
            assert count.records_out <= one.rate * 8 + 1e-6
        if one.kind == "filter":
            assert count.records_out == pytest.approx(count.records_in / 2)
        if one.kind == "aggregate":
            # Each tuple is in as many windows as overlap.
            assert count.records_out <= 3 * count.records_in + 1e-6
    labels = found.labels
    assert labels.success == (labels.results > 0) == (labels.throughput > 0)
    assert labels.results <= found.operators["q/sink"].records_in + 1e-5
    if labels.success:
        assert labels.e2e_latency_ms is not None
        assert labels.processing_latency_ms is not None
        assert 0 <= labels.processing_latency_ms <= labels.e2e_latency_ms + 1e-6
        assert labels.e2e_latency_ms <= 8000
        sources = np.array([one.node for one in graph if one.kind == "source"])
        links = plan.problem.measured
        assert links is not None
        # Some result has come from its source to the sink.
        if (sources != 3).all():
            assert labels.e2e_latency_ms >= links.latency[0] - 1e-6


@settings(max_examples=60, deadline=None)
@given(plans())
def test_the_same_run_comes_out_the_same(plan: Plan) -> None:
    assert run(plan) == run(plan)


@settings(max_examples=60, deadline=None)
@given(plans(), st.sampled_from([1.5, 4.0]))
def test_more_cpu_never_gives_clearly_less(plan: Plan, more: float) -> None:
    problem = plan.problem
    assert problem.nodes.cpu is not None
    nodes = replace(problem.nodes, cpu=problem.nodes.cpu * more)
    slow, fast = run(plan), run(replace(plan, problem=replace(problem, nodes=nodes)))
    if fast.out_of_memory_s is not None:
        return  # tuples that come faster fill windows earlier
    assert fast.labels.behind_s <= slow.labels.behind_s + 0.1
    into = (one.operators["q/sink"].records_in for one in (slow, fast))
    assert next(into) <= 1.02 * next(into) + 1


@settings(max_examples=60, deadline=None)
@given(plans(), st.sampled_from([0.1, 0.5]))
def test_less_bandwidth_never_gives_less_latency(plan: Plan, less: float) -> None:
    problem = plan.problem
    links = problem.measured
    assert links is not None
    assert links.mbit is not None
    narrow = replace(problem, measured=replace(links, mbit=links.mbit * less))
    wide, thin = run(plan).labels, run(replace(plan, problem=narrow)).labels
    assert thin.behind_s >= wide.behind_s - 0.1
    # Where fewer results come at all, others are looked at.
    same = wide.results == thin.results and not wide.back_pressure and not thin.back_pressure
    if same and wide.e2e_latency_ms is not None and thin.e2e_latency_ms is not None:
        assert thin.e2e_latency_ms >= 0.98 * wide.e2e_latency_ms - 2


# --- constants ----------------------------------------------------------------------------------


def test_constants_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "constants.json"
    file.write_text(json.dumps({"constants": {"send_us": 9}}))
    assert read_constants(file) == Constants(send_us=9.0)
    assert isinstance(read_constants(), Constants)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "constants: numbers by name"),
        ("[]", "constants: numbers by name"),
        ("[" * 100_000, "constants: numbers by name"),
        ('{"constants": {"sent_us": 1}}', "of source_us, step_us"),
        ('{"constants": {"send_us": "x"}}', "constants: numbers by name"),
        ('{"constants": {"send_us": -1}}', "constants.send_us: -1; a number >= 0"),
        ('{"constants": {"send_us": NaN}}', "constants.send_us: nan"),
    ],
)
def test_bad_constants_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "constants.json"
    file.write_text(text)
    with pytest.raises(NovaError, match=message) as caught:
        read_constants(file)
    assert str(caught.value).startswith(str(file))
    with pytest.raises(NovaError, match="No such file"):
        read_constants(tmp_path / "none.json")
