"""Results held against the reference: made from the reference itself, then spoilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_harness.experiment.measured import summary
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.inventory import HostSpec, Inventory, Link
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload
from nova_workloads.joined_streams import JoinedStreams, instances_of
from nova_workloads.joined_streams import compare as check
from nova_workloads.reference import Reference

RATE, START, COUNT, WINDOW, KEYS = 500.0, 1_700_000_000_000, 400, 100, 10


def small_inventory() -> Inventory:
    hosts = (
        HostSpec("hub", "sink", cpu=1.0),
        *(HostSpec(f"s{i}", "source", cpu=0.2) for i in range(4)),
        HostSpec("w1", cpu=0.5),
        HostSpec("w2", cpu=0.3),
    )
    names = [host.name for host in hosts]
    links = {(a, b): Link(10.0) for i, a in enumerate(names) for b in names[i + 1 :]}
    return Inventory("small", hosts, links)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    inventory = small_inventory()
    capacity = {host.name: 5000.0 for host in inventory.hosts}
    document = problem_document(inventory, capacity, DebsWorkload(regions=2), Traffic(RATE, 100))
    return problem_of(document, tmp_path_factory.mktemp("problem") / "problem.yaml")


def cut_plan(problem: Problem) -> Plan:
    """The first pair in two by one pieces on both workers, the second whole."""
    rate = np.array([300.0, 200.0, 500.0, 500.0, 500.0])
    partitions = Partitions(np.array([0, 2, 3, 4, 5]), rate)
    w1, w2 = problem.node_index["w1"], problem.node_index["w2"]
    one = np.array([1, 1, 1])
    instances = Instances(
        pair=np.array([0, 0, 1]),
        node=np.array([w1, w2, w1]),
        left_begin=np.array([0, 1, 0]),
        left_end=np.array([1, 2, 1]),
        right_begin=0 * one,
        right_end=one,
    )
    return Plan(problem, "test", "latency", partitions, instances)


def streams_of(problem: Problem) -> JoinedStreams:
    return DebsWorkload(regions=2).streams(problem, Traffic(RATE, WINDOW, KEYS), seed=0)


def the_reference(problem: Problem) -> Reference:
    streams = streams_of(problem)
    flow = streams.sources(START, COUNT / RATE)
    assert flow.count == COUNT
    return streams.reference(flow)


def everything(plan: Plan, reference: Reference) -> dict[str, Any]:
    """All results, from the instances they must come from, in the order of their windows."""
    left, right = reference.rows(np.arange(reference.total))
    t = reference.tuples
    pair = np.repeat(np.arange(len(reference.per_pair)), reference.per_pair)
    instance = np.empty(reference.total, np.int64)
    for number in range(len(reference.per_pair)):
        mine = pair == number
        instance[mine] = instances_of(plan, number, t.sequence[left[mine]], t.sequence[right[mine]])
    table = {
        "instance": instance,
        "left_source": t.stream[left],
        "right_source": t.stream[right],
        "left_sequence": t.sequence[left],
        "right_sequence": t.sequence[right],
        "time_ms": reference.window_of(left),
    }
    order = np.argsort(table["time_ms"], kind="stable")
    return {name: column[order] for name, column in table.items()}


def chosen(table: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: column[rows] for name, column in table.items()}


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_each_kind_of_fault_is_counted(problem: Problem, data: st.DataObject) -> None:
    plan = cut_plan(problem)
    reference = the_reference(problem)
    table = everything(plan, reference)
    total = reference.total
    lost = data.draw(st.integers(0, 20))
    twice = data.draw(st.integers(0, 20))
    wrong = data.draw(st.integers(0, 20))
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    order = random.permutation(total)
    rows = np.concatenate([order[lost:], order[lost : lost + twice]])
    came = chosen(table, random.permutation(rows))
    surplus = chosen(table, order[-wrong:] if wrong else order[:0])
    surplus["right_sequence"] = surplus["right_sequence"] + COUNT
    came = {name: np.concatenate([came[name], surplus[name]]) for name in came}
    found = check(plan, reference, came, finished=True)
    assert found.expected == total
    assert found.delivered == total - lost + twice + wrong
    assert (found.lost, found.duplicated, found.wrong) == (lost, twice, wrong)
    assert found.cut_off == 0
    assert found.ok == (lost + twice + wrong == 0)


def test_a_result_from_another_instance_is_wrong(problem: Problem) -> None:
    plan, reference = cut_plan(problem), the_reference(problem)
    table = everything(plan, reference)
    row = int(np.flatnonzero(table["instance"] == 0)[0])
    table["instance"][row] = 1
    found = check(plan, reference, table, finished=True)
    assert found.wrong == 1
    assert "instance 1" in found.examples["wrong"][0]


def test_the_end_of_a_run_cuts_off_what_the_middle_would_lose(problem: Problem) -> None:
    plan, reference = cut_plan(problem), the_reference(problem)
    table = everything(plan, reference)
    windows = np.unique(table["time_ms"])
    slow = table["instance"] == 1
    # Instance 1 has not come as far as the others when the run is ended.
    kept = ~(slow & (table["time_ms"] >= windows[-2]))
    missing = int((~kept).sum())
    assert missing > 0
    found = check(plan, reference, chosen(table, kept), finished=False)
    assert (found.lost, found.cut_off) == (0, missing)
    # The same is lost when the job ended by itself.
    found = check(plan, reference, chosen(table, kept), finished=True)
    assert (found.lost, found.cut_off) == (missing, 0)
    # A hole is lost in any case.
    hole = slow & (table["time_ms"] == windows[0])
    found = check(plan, reference, chosen(table, kept & ~hole), finished=False)
    assert (found.lost, found.cut_off) == (int(hole.sum()), missing)


def test_nothing_delivered_is_cut_off_not_an_error(problem: Problem) -> None:
    plan, reference = cut_plan(problem), the_reference(problem)
    none = chosen(everything(plan, reference), np.zeros(reference.total, np.bool_))
    found = check(plan, reference, none, finished=False)
    assert found.cut_off == reference.total
    assert found.ok


def test_latency_counts_from_the_later_due_time(problem: Problem) -> None:
    plan = cut_plan(problem)
    k = np.arange(100)
    due = START * 1000 + 2000 * k
    records = {
        "instance": np.full(100, 2, np.int32),
        "time_ms": np.full(100, START),
        "left_sequence": k,
        "right_sequence": np.maximum(k - 1, 0),
        "left_emit_us": due + 500,
        "right_emit_us": due + 100,
        "arrive_us": due + 7000,
    }
    measured = (START * 1000 + 100_000, START * 1000 + 200_000)
    streams = streams_of(problem)
    table = streams.samples(plan, streams.sources(START, None), records, measured)
    assert table.column("pair").to_pylist() == [1] * 100
    found = summary(table, streams.tuples_per_s(table, measured), measured)
    assert found.results == 50
    assert found.latency_ms.mean == pytest.approx(7.0)
    assert found.latency_ms.p9999 == pytest.approx(7.0, rel=0.002)
    assert found.from_emit_ms.max == pytest.approx(6.5)
    # Arrivals in the tenth of a second that is measured: 3.5 results fewer at one end, more at the
    # other.
    assert found.throughput_results_per_s == 500
    assert found.throughput_tuples_per_s == 1000


def test_no_results_have_no_latency(problem: Problem) -> None:
    empty = {
        name: np.empty(0, np.int64)
        for name in (
            *("instance", "time_ms", "left_sequence", "right_sequence"),
            *("left_emit_us", "right_emit_us", "arrive_us"),
        )
    }
    streams, measured = streams_of(problem), (0, 1_000_000)
    table = streams.samples(cut_plan(problem), streams.sources(START, None), empty, measured)
    found = summary(table, streams.tuples_per_s(table, measured), measured)
    assert found.latency_ms.p50 is None
    assert found.throughput_results_per_s == 0


def test_values_come_from_data_where_there_is_some(problem: Problem, tmp_path: Path) -> None:
    for name, value in (("bmp280_a.csv", 97_000.0), ("dht22_b.csv", 55.5)):
        rows = "".join(f"7,r1,{i},{value + i}\n" for i in range(10))
        (tmp_path / name).write_text(rows)
    workload = DebsWorkload(regions=2, data=str(tmp_path))
    found = workload.streams(problem, Traffic(RATE, WINDOW, KEYS), seed=0).streams
    assert [s.sensor for s in found] == [str(name) for name in problem.sources.ids]
    assert found[0].value[0] == 97_000.0
    assert found[1].value[0] == 55.5
    # One sensor of each stream serves both regions.
    assert np.array_equal(found[2].value, found[0].value)
