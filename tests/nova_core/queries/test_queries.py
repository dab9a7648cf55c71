"""Queries of filters, aggregates and joins: placed well, verified, written and read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from query_cases import best_whole, chain, document, queries, topology

from nova_core.errors import InfeasibleError, PlanError, ProblemError
from nova_core.model.plan import Plan
from nova_core.model.problem import JoinMatrix, Joins
from nova_core.queries import (
    QueryParameters,
    QueryPlan,
    place_queries,
    queries_of,
    read_query_plan,
    verify,
    write_query_plan,
)
from nova_core.queries.expansion import expand
from nova_core.queries.plan_document import plan_document, plan_text
from nova_core.queries.virtual import link_weights, virtual_positions
from nova_core.schemas import schema_of
from nova_core.strategies.nova import Nova

SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
OBJECTIVES = ("latency", "network-usage", "source-latency")


def scarce(seed: int, nodes: int = 10, mean: float = 60.0) -> np.ndarray[Any, Any]:
    return np.floor(np.random.default_rng(seed).exponential(size=nodes) * mean) + 1


@SOME
@given(
    seed=st.integers(0, 10_000),
    mean=st.sampled_from([15.0, 40.0, 200.0]),
    objective=st.sampled_from(OBJECTIVES),
    on_full=st.sampled_from(["expand", "spread"]),
    decomposable=st.booleans(),
    groups=st.sampled_from([1, 8]),
)
def test_every_plan_verifies_or_is_infeasible(
    tmp_path: Path,
    seed: int,
    mean: float,
    objective: str,
    on_full: str,
    decomposable: bool,
    groups: int,
) -> None:
    problem = topology(seed, 10, scarce(seed, 10, mean))
    asked = queries(decomposable=decomposable, groups=groups)
    parameters = QueryParameters(objective=objective, on_full=on_full)
    try:
        plan = place_queries(problem, asked, parameters)
    except InfeasibleError as error:
        assert on_full == "expand" and error.missing > 0
        return
    report = verify(plan)
    assert report.ok or (on_full == "spread" and report.honest), report.violations
    write_query_plan(plan, tmp_path / "plan.json")
    again = read_query_plan(tmp_path / "plan.json", problem, asked)
    assert (
        plan_text(again) == plan_text(plan) == plan_text(place_queries(problem, asked, parameters))
    )
    Draft202012Validator(schema_of("query-plan")).validate(plan_document(again))


@pytest.mark.parametrize("objective", OBJECTIVES[:2])
@pytest.mark.parametrize("seed", [1, 2])
def test_placement_is_the_best_there_is_with_room(seed: int, objective: str) -> None:
    problem = topology(seed, 4)
    asked = queries(decomposable=False)
    plan = place_queries(problem, asked, QueryParameters(objective=objective))
    assert plan.cost <= best_whole(problem, asked, objective) * (1 + 1e-6)


@pytest.mark.parametrize("seed", [3, 4])
def test_scarce_capacity_costs_little_over_the_best(seed: int) -> None:
    problem = topology(seed, 4, scarce(seed, 4, 100.0) + 20)
    asked = queries(decomposable=False)
    best = best_whole(problem, asked, "network-usage")
    if np.isinf(best):
        pytest.skip("nothing fits whole")
    plan = place_queries(problem, asked, QueryParameters(objective="network-usage"))
    assert plan.cost <= 1.05 * best


@SOME
@given(seed=st.integers(0, 10_000), objective=st.sampled_from(OBJECTIVES))
def test_virtual_positions_are_optimal(seed: int, objective: str) -> None:
    """Their gap is proven by the pulls, and no step from them helps."""
    problem = topology(seed, 8)
    graph = expand(problem, queries())
    weight = link_weights(graph, objective)
    found = virtual_positions(graph, problem.nodes.position, weight)
    assert -1e-12 <= found.gap < 1e-5
    producer, consumer, _, _ = graph.links
    random = np.random.default_rng(seed)
    for size in (1e-3, 1.0, 30.0):
        point = found.point.copy()
        point[graph.bodies] += random.normal(0, size, (len(graph.bodies), 2))
        distance = np.linalg.norm(point[producer] - point[consumer], axis=1)
        assert weight @ distance >= found.cost * (1 - 1e-5)


@SOME
@given(seed=st.integers(0, 10_000))
def test_rewriting_never_raises_network_usage(seed: int) -> None:
    problem, asked = topology(seed, 8), queries()
    usage = {
        (push, split): place_queries(
            problem,
            asked,
            QueryParameters("network-usage", push_filters=push, split_aggregates=split),
        ).cost
        for push in (True, False)
        for split in (True, False)
    }
    for other in (True, False):
        assert usage[True, other] <= usage[False, other] * (1 + 1e-9)
        assert usage[other, True] <= usage[other, False] * (1 + 1e-9)


def test_a_filter_runs_before_the_joins_and_the_query_emits_the_same() -> None:
    problem = topology(1)
    pushed, plain = (expand(problem, queries(), push_filters=p) for p in (True, False))
    late = next(one for one in pushed.graph.operators if one.id.startswith("q/late"))
    assert pushed.graph[late.inputs[0]].kind == "source"
    assert pushed.graph[late.inputs[0]].id in ("s2", "s3")  # of t1, which it reads
    assert pushed.required.sum() < plain.required.sum()
    emitted = [g.graph[g.graph[-1].inputs[0]].output_rate for g in (pushed, plain)]
    assert emitted[0] == pytest.approx(emitted[1])
    # It runs with its source, at no cost.
    number = list(pushed.graph.operators).index(late)
    assert pushed.root[number] == late.inputs[0] and pushed.required[number] == 0


def test_an_aggregate_too_large_for_any_node_is_combined_of_parts() -> None:
    operators = {"kind": "aggregate", "id": "sum", "input": "t0", "output_rate": 2.0}
    problem = topology(0)
    rate = problem.sources.rate[:2]
    capacity = np.full(8, rate.max() + 1)
    problem = problem.with_capacity(capacity)
    asked = queries_of(document(operators | {"decomposable": True}))
    parameters = QueryParameters(split_aggregates=False)
    plan = place_queries(problem, asked, parameters)
    assert len(plan.instances) == 3 and verify(plan).ok
    assert [one.feeds >= 0 for one in plan.instances] == [False, True, True]
    whole = queries_of(document(operators))
    with pytest.raises(InfeasibleError):
        place_queries(problem, whole, parameters)
    cut = queries_of(document(operators | {"groups": 4}))
    assert verify(place_queries(problem, cut, parameters)).ok


def test_joins_alone_cost_what_nova_pays_for_them() -> None:
    """The same pairs of sources as a problem and as a query, where each fits whole."""
    base = topology(5, 20, np.full(20, 150.0))
    asked = queries_of(document({"kind": "join", "id": "j", "inputs": ["t0", "t1"]}, sink="n0"))
    pairs = np.array([0, 1]), np.array([2, 3])
    rate = np.minimum(base.sources.rate[pairs[0]], base.sources.rate[pairs[1]])
    problem = replace(
        base,
        joins=Joins(np.array(["j"]), np.array(["t0"]), np.array(["t1"]), np.array([0])),
        matrix=JoinMatrix(np.zeros(2, np.int64), *pairs, rate),
    )
    for objective in OBJECTIVES[:2]:
        plan = place_queries(base, asked, QueryParameters(objective=objective))
        nova: Plan = Nova(Nova.Parameters(objective=objective)).place(problem)
        assert len(nova.instances) == len(plan.instances) == 2
        assert plan.node.tolist() == nova.instances.node.tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input": "t9"}, "operators[0].input of 'f': unknown stream or operator above 't9'"),
        ({"selectivity": 2}, "operators[0].selectivity: 2 is not accepted"),
        ({"selectivity": float("nan")}, "selectivity"),
        ({"kind": "sort"}, "operators[0].kind: 'sort' is not accepted"),
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"reads": "t1"}, "operators[0].reads of 'f': unknown"),
        ({"id": "t0"}, "'t0' is the name of a stream as well"),
    ],
)
def test_bad_queries_get_one_line_with_the_field(change: dict[str, Any], said: str) -> None:
    operator = {"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5} | change
    with pytest.raises(ProblemError) as caught:
        place_queries(topology(0), queries_of(document(operator)))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_other_bad_queries() -> None:
    problem = topology(0)
    aggregate = {"kind": "aggregate", "id": "a", "input": "t0"}
    with pytest.raises(ProblemError, match="neither of window and output_rate"):
        queries_of(document(aggregate))
    with pytest.raises(ProblemError, match=r"queries\[0\].sink: unknown node 'cloud'"):
        place_queries(problem, queries_of(document(aggregate | {"window": 1}, sink="cloud")))
    unread = {"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5}
    with pytest.raises(ProblemError, match="nothing reads it"):
        place_queries(problem, queries_of(document(unread, aggregate | {"window": 1})))
    with pytest.raises(ProblemError, match="objective is 'speed'"):
        QueryParameters(objective="speed")


def broken(plan: QueryPlan, **changes: Any) -> dict[str, int]:
    return {k: v for k, v in verify(replace(plan, **changes)).counts.items() if v}


def test_verification_finds_what_is_wrong(tmp_path: Path) -> None:
    problem = topology(7, 10, np.full(10, 45.0))
    asked = queries(groups=4)
    plan = place_queries(problem, asked)
    assert plan.shares and verify(plan).ok
    first = plan.instances[0]
    assert "complete" in broken(plan, instances=plan.instances[1:])
    assert "complete" in broken(plan, instances=(*plan.instances, first))
    crowded = tuple(one._replace(node=3) for one in plan.instances)
    assert list(broken(plan, instances=crowded)) == ["capacity"]
    assert "structure" in broken(plan, rewriting={"push_filters": False})
    lost = {one: (left * 0.5, right) for one, (left, right) in plan.shares.items()}
    assert "rates" in broken(plan, shares=lost)
    write_query_plan(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace('"from": "n', '"from": "n1', 1))
    with pytest.raises(PlanError, match="edges"):
        read_query_plan(tmp_path / "plan.json", problem, asked)
    with pytest.raises(PlanError, match=r"answers\.problem_digest"):
        (tmp_path / "plan.json").write_text(text)
        read_query_plan(tmp_path / "plan.json", topology(8), asked)


def test_latency_of_a_query_is_its_longest_way() -> None:
    problem = topology(1)
    asked = queries_of(document({"kind": "join", "id": "j", "inputs": ["t0", "t1"]}))
    plan = place_queries(problem, asked)
    ways = []
    for one in plan.instances:
        for source in plan.graph.graph[one.operator].inputs:
            start = plan.graph.graph[source].node
            assert start is not None
            ends = np.array([start, one.node]), np.array([one.node, 0])
            ways.append(problem.distance(*ends).sum())
    assert plan.query_latency[0] == pytest.approx(max(ways))


def test_a_query_of_filters_alone_has_nothing_to_place() -> None:
    problem = topology(1)
    operator = {"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5}
    plan = place_queries(problem, queries_of(document(operator)))
    assert not plan.instances and verify(plan).ok and not plan.load.any()
    start = problem.sources.node[:2]
    assert plan.query_latency[0] == pytest.approx(problem.distance(start, np.zeros(2, int)).max())
    assert plan_document(plan)["totals"]["nodes_used"] == 0


def test_documents_keep_their_schema() -> None:
    Draft202012Validator(schema_of("queries")).validate(chain())
