"""Every constraint: kept by a good plan, and caught where it is broken."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_problems import plans

from nova_core.errors import PlanError
from nova_core.io.validation import validate_problem
from nova_core.model import (
    Instances,
    JoinMatrix,
    Joins,
    Links,
    Nodes,
    Partitions,
    Plan,
    Problem,
    Routes,
    Sources,
    coverage,
)
from nova_core.model.traffic import hops
from nova_core.model.verify import ACCEPTABLE, CONSTRAINTS, Report, verify

# Nodes 0 sink, 1 and 2 sources of the first pair, 3 and 4 of the second, 5 to 8 workers.
WORKERS = [5, 6, 7, 8]


def problem() -> Problem:
    worker = np.zeros(9, bool)
    worker[WORKERS] = True
    return validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array([f"n{i}" for i in range(9)]),
                position=np.arange(18.0).reshape(9, 2),
                capacity=np.array([100.0, 0, 0, 0, 0, 30, 30, 30, 100]),
                worker=worker,
            ),
            sources=Sources(
                ids=np.array(["a", "b", "c", "d"]),
                node=np.array([1, 2, 3, 4]),
                stream=np.array(["l", "r", "l", "r"]),
                rate=np.array([20.0, 10, 12, 6]),
            ),
            joins=Joins(np.array(["j"]), np.array(["l"]), np.array(["r"]), np.array([0])),
            matrix=JoinMatrix(
                np.zeros(2, np.int64), np.array([0, 2]), np.array([1, 3]), np.array([2.0, 1.0])
            ),
        )
    )


def plan(rows: list[tuple[int, ...]] | None = None, **changes: object) -> Plan:
    """The first pair cut in 2 x 2 partitions on nodes 5, 6 and 7, the second whole on node 8."""
    cut = [(0, 5, 0, 1, 0, 2), (0, 6, 1, 2, 0, 1), (0, 7, 1, 2, 1, 2), (1, 8, 0, 1, 0, 1)]
    made = Plan(
        problem=problem(),
        strategy="by hand",
        objective="latency",
        partitions=Partitions(np.array([0, 2, 4, 5, 6]), np.array([12.0, 8, 6, 4, 12, 6])),
        instances=Instances(*np.array(rows or cut).T),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def broken(report: Report) -> set[str]:
    return {name for name, count in report.counts.items() if count}


def only(report: Report, constraint: str) -> str:
    """The text of the one violation there is."""
    assert broken(report) == {constraint}
    assert len(report.violations) == 1
    assert not report.ok
    return report.violations[0].text


def test_a_good_plan_keeps_everything() -> None:
    report = verify(plan())
    assert report.ok
    assert report.honest
    assert set(report.counts) == set(CONSTRAINTS)
    assert report.summary() == f"keeps all {len(CONSTRAINTS)} constraints"


def test_a_cell_joined_nowhere() -> None:
    rows = [(0, 5, 0, 1, 0, 2), (0, 6, 1, 2, 0, 1), (1, 8, 0, 1, 0, 1)]
    text = only(verify(plan(rows)), "complete")
    assert text == "j/a*b: of 4 pairs of partitions 1 never joined"


def test_a_cell_joined_twice() -> None:
    rows = [(0, 8, 0, 2, 0, 2), (0, 5, 0, 1, 0, 1), (1, 8, 0, 1, 0, 1)]
    text = only(verify(plan(rows)), "complete")
    assert text == "j/a*b: of 4 pairs of partitions 1 joined again"


def test_a_pair_placed_nowhere() -> None:
    assert only(verify(plan([(0, 8, 0, 2, 0, 2)])), "complete").startswith("j/c*d: of 1 pairs")


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        ([12.0, 8, 6, 4, 12, 5], "j/c*d right: partitions sum to 5 tuples/s, its source sends 6"),
        ([20.0, 0, 6, 4, 12, 6], "j/a*b left: a partition has rate 0, not above 0"),
        ([12.0, 8, 6, 4, np.nan, 6], "j/c*d left: a partition has rate nan, not above 0"),
        ([25.0, -5, 6, 4, 12, 6], "j/a*b left: a partition has rate -5, not above 0"),
    ],
)
def test_partitions_that_do_not_add_up(rate: list[float], says: str) -> None:
    rows = [(0, 8, 0, 2, 0, 2), (1, 8, 0, 1, 0, 1)]
    made = plan(rows)
    made = replace(made, partitions=replace(made.partitions, rate=np.array(rate)))
    report = verify(made)
    assert report.counts["partitions"] == 1
    assert [v.text for v in report.violations if v.constraint == "partitions"] == [says]


def test_overload() -> None:
    rows = [(0, 5, 0, 2, 0, 2), (1, 5, 0, 1, 0, 1)]
    text = only(verify(plan(rows)), "capacity")
    assert text == "node n5 receives 48 tuples/s, 18 over its capacity of 30"


def test_partitions_shared_on_a_node_count_once() -> None:
    # Four cells one by one on a node of 30 receive the 30 tuples/s of the whole join.
    rows = [(0, 5, a, a + 1, b, b + 1) for a in (0, 1) for b in (0, 1)]
    assert verify(plan([*rows, (1, 8, 0, 1, 0, 1)])).ok


def test_rounding_is_no_overload() -> None:
    made = plan([(0, 5, 0, 2, 0, 2), (1, 8, 0, 1, 0, 1)])
    for capacity, right in ((30 * (1 - 1e-12), True), (30 * (1 - 1e-6), False)):
        nodes = replace(made.problem.nodes, capacity=made.problem.nodes.capacity.copy())
        nodes.capacity[5] = capacity
        assert verify(replace(made, problem=replace(made.problem, nodes=nodes))).ok is right


def test_a_node_that_may_not_host() -> None:
    rows = [(0, 8, 0, 2, 0, 2), (1, 0, 0, 1, 0, 1)]
    text = only(verify(plan(rows)), "worker")
    assert text == "node n0 may not host operators but runs 1 instance(s)"


def test_minimum_capacity() -> None:
    rows = [(0, 5, 0, 2, 0, 2), (1, 8, 0, 1, 0, 1)]
    assert verify(plan(rows, parameters={"c_min": 30})).ok
    text = only(verify(plan(rows, parameters={"c_min": 40})), "minimum-capacity")
    assert text == "node n5 had 30 tuples/s available at most when last chosen, C_min is 40"
    # Both on one node: what the smaller needs was gone when the greater was placed.
    rows = [(0, 8, 0, 2, 0, 2), (1, 8, 0, 1, 0, 1)]
    made = plan(rows, parameters={})
    smaller = made.load[8] - made.required_capacity.max()
    assert smaller > 0
    room = float(made.problem.nodes.capacity[8] - smaller)
    assert verify(plan(rows, parameters={"c_min": room})).ok
    only(verify(plan(rows, parameters={"c_min": room + 0.01})), "minimum-capacity")


def test_replica_bandwidth() -> None:
    # Needs: 12 + 10, 8 + 6, 8 + 4 and 12 + 6.
    assert verify(plan(parameters={"bandwidth": 22})).ok
    assert verify(plan(parameters={"bandwidth": None})).ok
    text = only(verify(plan(parameters={"bandwidth": 20.0})), "replica-bandwidth")
    assert text == "j/a*b#0: receives 22 tuples/s, t_b allows 20"


@pytest.mark.parametrize("value", ["30", True, [3]])
def test_a_parameter_that_is_no_number(value: object) -> None:
    with pytest.raises(PlanError, match=r"parameters\.c_min is .*; use a number"):
        verify(plan(parameters={"c_min": value}))


def with_links(made: Plan, *rows: tuple[int, int, float]) -> Plan:
    source, target, budget = np.array(rows).T
    links = Links(source.astype(np.int64), target.astype(np.int64), budget)
    return replace(made, problem=replace(made.problem, links=links))


def test_links() -> None:
    # Node 2 sends its first partition of 6 to nodes 5 and 6, the other of 4 to 5 and 7.
    exact = ((2, 5, 10.0), (2, 6, 6.0), (2, 7, 4.0), (8, 0, 1.0), (5, 6, 0.0), (0, 8, 0.0))
    assert verify(with_links(plan(), *exact)).ok
    text = only(verify(with_links(plan(), *exact[:1], (2, 6, 5.5))), "link")
    assert text == "link n2->n6 carries 6 tuples/s, its budget is 5.5"


def test_a_partition_shared_on_a_node_crosses_the_link_once() -> None:
    rows = [(0, 5, a, a + 1, b, b + 1) for a in (0, 1) for b in (0, 1)]
    made = plan([*rows, (1, 8, 0, 1, 0, 1)])
    assert verify(with_links(made, (1, 5, 20.0), (2, 5, 10.0), (5, 0, 2.0))).ok
    # Both pairs on one link: their traffic adds up.
    both = plan([(0, 8, 0, 2, 0, 2), (1, 8, 0, 1, 0, 1)])
    assert only(verify(with_links(both, (8, 0, 2.5))), "link").startswith("link n8->n0 carries 3 ")


def routed(*legs: list[int]) -> Plan:
    offset = np.concatenate(([0], np.cumsum([len(leg) for leg in legs])))
    rows = [(0, 8, 0, 2, 0, 2), (1, 0, 0, 1, 0, 1)]
    node = np.array([node for leg in legs for node in leg])
    return plan(rows, routes=Routes(offset, node), breaks=("worker",))


GOOD_ROUTES = [[1, 7, 8], [2, 8], [8, 7, 0], [3, 0], [4, 3, 0], [0]]


def test_routes() -> None:
    made = routed(*GOOD_ROUTES)
    # Relaying the 6 tuples/s of node 4 overloads node 3, which has no capacity at all.
    assert broken(verify(made)) == {"worker", "capacity"}
    traffic = hops(made).per_node_pair(9)
    rows = zip(traffic.source.tolist(), traffic.target.tolist(), traffic.rate, strict=True)
    assert {(a, b): rate for a, b, rate in rows} == {
        (1, 7): 20,
        (2, 8): 10,
        (3, 0): 12 + 6,
        (4, 3): 6,
        (7, 0): 2,
        (7, 8): 20,
        (8, 7): 2,
    }
    # Hops of relays count for budgets.
    relayed = with_links(made, (7, 8, 19.0), (4, 3, 6.0))
    assert verify(relayed).counts["link"] == 1


def test_a_route_to_the_wrong_node() -> None:
    report = verify(routed([1, 7, 6], *GOOD_ROUTES[1:]))
    texts = [v.text for v in report.violations if v.constraint == "route"]
    assert texts == ["j/a*b left input: route runs from n1 to n6, must run from n1 to n8"]
    assert not report.honest


def change(made: Plan, **columns: object) -> Plan:
    return replace(made, instances=replace(made.instances, **columns))  # type: ignore[arg-type]


STRUCTURE = {
    "instances.pair: row 3 is not in 0..1": lambda p: change(p, pair=np.array([0, 0, 0, 2])),
    "instances.pair: rows are not ordered": lambda p: change(p, pair=np.array([1, 0, 0, 0])),
    "instances.node: row 1 is not in 0..8": lambda p: change(p, node=np.array([5, -1, 9, 8])),
    "instances: columns differ in length": lambda p: change(p, node=np.array([5])),
    "instances.left: row 0 is not a range": lambda p: change(p, left_end=np.array([0, 2, 2, 1])),
    "instances.right: row 3 is not a range": lambda p: change(p, right_end=np.array([2, 1, 2, 2])),
    "partitions.offset: must rise from 0 to 6 in 5 entries": lambda p: replace(
        p, partitions=Partitions(np.array([0, 2, 4, 6]), p.partitions.rate)
    ),
    "virtual_position: must have 2 rows": lambda p: replace(p, virtual_position=np.zeros((3, 2))),
    "routes.offset: must rise from 0 to 1 in 13 entries": lambda p: replace(
        p, routes=Routes(np.array([0, 1]), np.array([0]))
    ),
    "routes.node: row 0 is not in 0..8": lambda p: replace(
        p, routes=Routes(np.arange(13), np.full(12, 9))
    ),
}


@pytest.mark.parametrize("says", STRUCTURE)
def test_structure(says: str) -> None:
    report = verify(replace(STRUCTURE[says](plan()), breaks=tuple(CONSTRAINTS)))
    assert any(v.text.startswith(says) for v in report.violations)
    # Nothing else can be checked then, and nothing excuses it.
    assert set(report.counts) == {"structure"}
    assert not report.honest


def test_what_is_broken_on_purpose_is_accepted() -> None:
    rows = [(0, 0, 0, 2, 0, 2), (1, 0, 0, 1, 0, 1)]
    nodes = problem().nodes
    nodes.capacity[0] = 40
    overloaded = plan(rows, problem=replace(problem(), nodes=nodes))
    assert not verify(overloaded).honest
    assert not verify(replace(overloaded, breaks=("capacity",))).honest
    report = verify(replace(overloaded, breaks=("capacity", "worker")))
    assert report.honest
    assert not report.ok
    assert all(v.accepted for v in report.violations)
    assert report.summary() == "breaks capacity (1, on purpose), worker (1, on purpose)"


def test_a_wrong_answer_cannot_be_on_purpose() -> None:
    report = verify(plan([(0, 8, 0, 2, 0, 2)], breaks=tuple(CONSTRAINTS)))
    assert not report.honest
    assert {"complete", "partitions", "route", "structure"} == set(CONSTRAINTS) - ACCEPTABLE


def test_counts_stay_exact_when_violations_are_many() -> None:
    # Every worker but the last is given a capacity that its load exceeds by its number.
    rows = [(0, 5, 0, 1, 0, 2), (0, 6, 1, 2, 0, 1), (0, 7, 1, 2, 1, 2), (1, 8, 0, 1, 0, 1)]
    made = plan(rows)
    nodes = replace(made.problem.nodes, capacity=np.maximum(0, made.load - np.arange(9)))
    report = verify(replace(made, problem=replace(made.problem, nodes=nodes)), spelled_out=2)
    assert report.counts["capacity"] == 4
    assert [v.where for v in report.violations] == ["n8", "n7"]


def test_the_report_is_json() -> None:
    rows = [(0, 5, 0, 2, 0, 2), (1, 5, 0, 1, 0, 1)]
    document = json.loads(json.dumps(verify(plan(rows)).to_dict(), allow_nan=False))
    assert document["ok"] is False
    assert document["constraints"]["capacity"] == {"violations": 1, "accepted": False}
    assert document["violations"][0]["where"] == "n5"
    assert document["violations"][0]["amount"] == 48
    assert document["violations"][0]["limit"] == 30


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=40)
@given(plans(), st.sampled_from([1, 3, 1_000_000]))
def test_coverage_agrees_with_painting_cells(made: Plan, chunk: int) -> None:
    m, n = made.partitions.count[0::2], made.partitions.count[1::2]
    grids = [np.zeros((a, b), int) for a, b in zip(m, n, strict=True)]
    i = made.instances
    for k in range(len(i)):
        rows = slice(i.left_begin[k], i.left_end[k])
        grids[i.pair[k]][rows, i.right_begin[k] : i.right_end[k]] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "CHUNK_ROWS", chunk)
        missing, surplus = coverage.coverage(made)
    assert missing.tolist() == [int((g == 0).sum()) for g in grids]
    assert surplus.tolist() == [int(np.maximum(g - 1, 0).sum()) for g in grids]


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=40)
@given(plans())
def test_any_plan_that_can_be_read_can_be_verified(made: Plan) -> None:
    report = verify(made)
    assert report.counts["structure"] == 0
    assert report.ok == (not report.violations)
    capacity = made.problem.nodes.capacity
    assert report.counts["capacity"] == int((made.load > capacity * (1 + 1e-9)).sum())
    json.dumps(report.to_dict(), allow_nan=False)
