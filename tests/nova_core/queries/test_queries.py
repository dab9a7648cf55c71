"""Queries of filters, aggregates and joins: placed well, verified, written and read back."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from query_cases import asking, best_whole, chain, document, random_queries, topology

from nova_core.errors import InfeasibleError, PlanError, ProblemError
from nova_core.evaluation import evaluate
from nova_core.io.files import read_plan, read_problem, write_plan, write_problem
from nova_core.io.validation import validate_problem
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.objectives import link_weights
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import JoinMatrix, Joins, Problem
from nova_core.model.verify import verify
from nova_core.placement.queries.virtual import virtual_positions
from nova_core.schemas import schema_of
from nova_core.strategies import place

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
    asked = chain(decomposable=decomposable, groups=groups)
    problem = asking(topology(seed, 10, scarce(seed, 10, mean)), asked)
    try:
        plan = placed(problem, objective=objective, on_full=on_full)
    except InfeasibleError as error:
        assert on_full == "expand" and error.missing > 0
        return
    report = verify(plan)
    assert report.ok or (on_full == "spread" and report.honest), report.violations
    assert placed(problem, objective=objective, on_full=on_full).same_as(plan)
    for place_of in (tmp_path / "plan.json", tmp_path / "tables"):
        write_plan(plan, place_of)
        again = read_plan(place_of, problem)
        assert again.same_as(plan)
        assert np.array_equal(again.load, plan.load)
    document_of = json.loads((tmp_path / "plan.json").read_text())
    Draft202012Validator(schema_of("plan")).validate(document_of)
    assert_flows_add_up(plan)


def placed(problem: Problem, **parameters: Any) -> Plan:
    return place(problem, "nova", **parameters)


def assert_flows_add_up(plan: Plan) -> None:
    """What arrives over links is what nodes are charged, and what is needed without sharing."""
    inside = plan.links.consumer >= 0
    count = len(plan.problem.nodes)
    assert np.bincount(plan.ends[1][inside], plan.sent[inside], count) == pytest.approx(plan.load)
    needs = np.bincount(plan.links.consumer[inside], plan.links.rate[inside], len(plan.instances))
    assert needs == pytest.approx(plan.required_capacity)


@pytest.mark.parametrize("objective", OBJECTIVES[:2])
@pytest.mark.parametrize("seed", [1, 2])
def test_placement_is_the_best_there_is_with_room(seed: int, objective: str) -> None:
    problem = asking(topology(seed, 4), chain(decomposable=False))
    plan = placed(problem, objective=objective)
    assert plan.objective_value(objective) <= best_whole(problem, objective) * (1 + 1e-6)


@pytest.mark.parametrize("seed", [3, 4])
def test_scarce_capacity_costs_little_over_the_best(seed: int) -> None:
    problem = asking(topology(seed, 4, scarce(seed, 4, 100.0) + 20), chain(decomposable=False))
    best = best_whole(problem, "network-usage")
    if np.isinf(best):
        pytest.skip("nothing fits whole")
    plan = placed(problem, objective="network-usage")
    assert plan.objective_value("network-usage") <= 1.05 * best


@SOME
@given(seed=st.integers(0, 10_000), objective=st.sampled_from(OBJECTIVES))
def test_virtual_positions_are_optimal(seed: int, objective: str) -> None:
    """Their gap is proven by the pulls, and no step from them helps."""
    problem = asking(topology(seed, 8), chain())
    graph = graph_of(problem, Rewriting(True, True))
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
    problem = asking(topology(seed, 8), chain())
    usage = {
        (push, split): placed(
            problem, objective="network-usage", push_filters=push, split_aggregates=split
        ).objective_value("network-usage")
        for push in (True, False)
        for split in (True, False)
    }
    for other in (True, False):
        assert usage[True, other] <= usage[False, other] * (1 + 1e-9)
        assert usage[other, True] <= usage[other, False] * (1 + 1e-9)


def test_a_filter_runs_before_the_joins_and_the_query_emits_the_same() -> None:
    problem = asking(topology(1), chain())
    pushed, plain = (graph_of(problem, Rewriting(p, True)) for p in (True, False))
    number, late = next((n, one) for n, one in enumerate(pushed) if one.id.startswith("q/late"))
    assert pushed[late.inputs[0]].kind == "source"
    assert pushed[late.inputs[0]].id in ("s2", "s3")  # of t1, which it reads
    assert pushed.required.sum() < plain.required.sum()
    emitted = [g[g[len(g) - 1].inputs[0]].rate for g in (pushed, plain)]
    assert emitted[0] == pytest.approx(emitted[1])
    # It runs with its source, at no cost.
    assert pushed.root[number] == late.inputs[0] and pushed.required[number] == 0


def test_an_aggregate_too_large_for_any_node_is_combined_of_parts() -> None:
    operators = {"kind": "aggregate", "id": "sum", "input": "t0", "output_rate": 2.0}
    problem = topology(0)
    rate = problem.sources.rate[:2]
    capacity = np.full(8, rate.max() + 1)
    problem = problem.with_capacity(capacity)
    asked = asking(problem, document(operators | {"decomposable": True}))
    plan = placed(asked, split_aggregates=False)
    assert len(plan.instances) == 3 and verify(plan).ok
    assert plan.instances.feeds is not None
    assert (plan.instances.feeds >= 0).tolist() == [False, True, True]
    chained = replace(plan.instances, feeds=np.array([-1, 0, 1]))
    assert "complete" in broken(plan, instances=chained)
    with pytest.raises(InfeasibleError):
        placed(asking(problem, document(operators)), split_aggregates=False)
    # One result of all groups cannot be cut into shares of them.
    one = placed(asking(problem.with_capacity(2 * capacity), document(operators)))
    half, zero = one.whole_rate(0)[0] / 2, np.zeros(2, np.int64)
    cut_in_two = Instances(zero, zero, np.arange(2), np.arange(1, 3), zero, zero + 1)
    halves = Partitions(np.array([0, 2, 3]), np.array([half, half, 0.0]))
    assert "complete" in broken(one, instances=cut_in_two, partitions=halves)
    cut = asking(problem, document(operators | {"groups": 4}))
    assert verify(placed(cut, split_aggregates=False)).ok


def test_what_finds_no_room_is_cut_finer_unless_sigma_is_chosen() -> None:
    join = {"kind": "join", "id": "j", "inputs": ["t0", "t1"]}
    asked = asking(topology(5, capacity=np.full(8, 50.0)), document(join))
    with pytest.raises(InfeasibleError):
        placed(asked, sigma=0.4)
    plan = placed(asked)
    assert verify(plan).ok and plan.notes["finest_sigma"] == 0.1
    assert plan.parameters["sigma"] is None


def test_joins_alone_cost_what_nova_pays_for_them() -> None:
    """The same pairs of sources as a problem and as a query, where each fits whole."""
    base = topology(5, 20, np.full(20, 150.0))
    asked = asking(base, document({"kind": "join", "id": "j", "inputs": ["t0", "t1"]}, sink="n0"))
    problem = as_pairs(base)
    for objective in OBJECTIVES[:2]:
        plan = placed(asked, objective=objective)
        nova: Plan = place(problem, "nova", objective=objective)
        assert len(nova.instances) == len(plan.instances) == 2
        assert plan.instances.node.tolist() == nova.instances.node.tolist()
        of_queries, of_pairs = evaluate(plan), evaluate(nova)
        for name in OBJECTIVES[:2]:
            value = of_pairs.estimated.objectives[name]
            assert of_queries.estimated.objectives[name] == pytest.approx(value)
        assert of_queries.load.rate == pytest.approx(of_pairs.load.rate)
        assert of_queries.arriving.rate == pytest.approx(of_pairs.arriving.rate)
        assert of_queries.traffic == pytest.approx(of_pairs.traffic)
        assert of_queries.estimated.maximum == pytest.approx(of_pairs.estimated.maximum)


def test_measured_latencies_are_for_evaluation_and_not_in_the_plan(tmp_path: Path) -> None:
    """Network usage of a plan is estimated, of pairs and of queries; evaluation measures both."""
    base = topology(5, 6)
    matrix = 2 * base.distance(np.arange(6)[:, None], np.arange(6)[None, :])
    problem = asking(replace(base, latency=matrix), chain())
    plan = placed(problem, objective="network-usage")
    found = evaluate(plan)
    assert found.measured is not None
    assert found.measured.network_usage == pytest.approx(2 * found.estimated.network_usage)
    write_plan(plan, tmp_path / "plan.json")
    totals = json.loads((tmp_path / "plan.json").read_text())["totals"]
    assert totals["network_usage"] == pytest.approx(found.estimated.network_usage)
    assert totals["objective"] == totals["network_usage"]


def test_a_node_is_chosen_only_with_c_min_free() -> None:
    """As for pairs (paper, Eq. 3): what others left counts, not the node's whole capacity."""
    join = {"kind": "join", "id": "j", "inputs": ["t0", "t1"], "match": "key"}
    problem = asking(topology(5, 20), document(join))
    first, second = (problem.sources.rate[pair].sum() for pair in ([0, 2], [1, 3]))
    capacity = np.full(20, first + second)  # of every node, room for both
    problem = problem.with_capacity(capacity)
    for c_min in (max(first, second) + 1, first + second):
        plan = placed(problem, c_min=float(c_min), objective="network-usage")
        assert len(np.unique(plan.instances.node)) == 2
        assert verify(plan).ok
        pairs = place(as_pairs(problem), "nova", c_min=float(c_min), objective="network-usage")
        assert sorted(pairs.instances.node.tolist()) == sorted(plan.instances.node.tolist())


def as_pairs(problem: Problem) -> Problem:
    """Streams t0 and t1 joined by key, at node 0."""
    pairs = np.array([0, 1]), np.array([2, 3])
    rate = np.minimum(problem.sources.rate[pairs[0]], problem.sources.rate[pairs[1]])
    return replace(
        problem,
        queries=(),
        joins=Joins(np.array(["j"]), np.array(["t0"]), np.array(["t1"]), np.array([0])),
        matrix=JoinMatrix(np.zeros(2, np.int64), *pairs, rate),
    )


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
        placed(asking(topology(0), document(operator)))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_other_bad_queries() -> None:
    problem = topology(0)
    aggregate = {"kind": "aggregate", "id": "a", "input": "t0"}
    with pytest.raises(ProblemError, match="neither of window and output_rate"):
        placed(asking(problem, document(aggregate)))
    with pytest.raises(ProblemError, match=r"queries\[0\].sink: unknown node 'cloud'"):
        placed(asking(problem, document(aggregate | {"window": 1}, sink="cloud")))
    unread = {"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5}
    with pytest.raises(ProblemError, match="nothing reads it"):
        placed(asking(problem, document(unread, aggregate | {"window": 1})))
    with pytest.raises(ProblemError, match="index, k and neighbours"):
        placed(asking(problem, chain()), k=3)


def broken(plan: Plan, **changes: Any) -> dict[str, int]:
    return {k: v for k, v in verify(replace(plan, **changes)).counts.items() if v}


def test_verification_finds_what_is_wrong(tmp_path: Path) -> None:
    problem = asking(topology(7, 10, np.full(10, 45.0)), chain(groups=4))
    plan = placed(problem)
    i, rows = plan.instances, np.arange(len(plan.instances))
    assert plan.partitions.count.max() > 1 and verify(plan).ok

    def picked(order: np.ndarray[Any, Any]) -> Instances:
        return Instances(*(getattr(i, f.name)[order] for f in fields(Instances)[:6]))

    assert "complete" in broken(plan, instances=picked(rows[1:]))
    assert "complete" in broken(plan, instances=picked(np.append(0, rows)))
    crowded = replace(i, node=np.full(len(rows), 3))
    assert list(broken(plan, instances=crowded)) == ["capacity"]
    lost = Partitions(plan.partitions.offset, plan.partitions.rate * 0.5)
    assert "partitions" in broken(plan, partitions=lost)
    assert "structure" in broken(plan, instances=replace(i, feeds=np.roll(rows, 1)))
    write_plan(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    for wrong, said in (
        (text.replace('"from": "n', '"from": "n1', 1), "edges"),
        (text.replace('"rewriting"', '"notes_"'), "unknown field 'notes_'"),
        (text.replace('"nova_plan": 2', '"nova_plan": 1'), "format version 1; 2 is read here"),
    ):
        (tmp_path / "plan.json").write_text(wrong)
        with pytest.raises(PlanError, match=said):
            read_plan(tmp_path / "plan.json", problem)
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanError, match=r"problem\.digest"):
        read_plan(tmp_path / "plan.json", asking(topology(8), chain(groups=4)))
    with pytest.raises(PlanError, match=r"problem\.digest"):
        read_plan(tmp_path / "plan.json", asking(problem, chain(groups=5)))


def test_latency_of_a_query_is_its_longest_way() -> None:
    problem = asking(topology(1), document({"kind": "join", "id": "j", "inputs": ["t0", "t1"]}))
    plan = placed(problem)
    ways = []
    for operator, node in zip(plan.graph.bodies, plan.instances.node.tolist(), strict=True):
        mine = []
        for source in plan.graph.inputs(operator):
            start = plan.graph.node[source]
            ends = np.array([start, node]), np.array([node, 0])
            mine.append(problem.distance(*ends).sum())
        ways.append(max(mine))
    assert plan.query_latency()[0] == pytest.approx(max(ways))
    assert plan.path_latency == pytest.approx(ways)


def test_a_query_of_filters_alone_has_nothing_to_place(tmp_path: Path) -> None:
    operator = {"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5}
    problem = asking(topology(1), document(operator))
    plan = placed(problem)
    assert not len(plan.instances) and verify(plan).ok and not plan.load.any()
    far = problem.distance(problem.sources.node[:2], np.zeros(2, int)).max()
    assert plan.query_latency()[0] == pytest.approx(far)
    assert evaluate(plan).estimated.mean == evaluate(plan).estimated.direct_mean
    for place_of in (tmp_path / "plan.json", tmp_path / "tables"):
        write_plan(plan, place_of)
        assert read_plan(place_of, problem).same_as(plan)


@SOME
@given(seed=st.integers(0, 10_000), objective=st.sampled_from(OBJECTIVES))
def test_problems_of_queries_are_read_as_they_were_written(
    tmp_path: Path, seed: int, objective: str
) -> None:
    problem = asking(topology(seed), chain())
    for place_of in (tmp_path / "problem.json", tmp_path / "problem.yaml", tmp_path / "tables"):
        write_problem(problem, place_of)
        assert read_problem(place_of).same_as(problem)
    document_of = json.loads((tmp_path / "problem.json").read_text())
    Draft202012Validator(schema_of("problem")).validate(document_of)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([None, 0.1]), st.sampled_from([30.0, 60.0]))
def test_a_plan_with_a_largest_instance_breaks_only_what_it_names(
    seed: int, sigma: float | None, bandwidth: float
) -> None:
    try:
        plan = place(random_queries(seed), sigma=sigma, bandwidth=bandwidth)
    except InfeasibleError:
        return
    assert verify(plan).honest, verify(plan).summary()


def test_a_problem_has_pairs_or_queries() -> None:
    problem = asking(topology(5), chain())
    none = Joins(np.array(["j"]), np.array(["t0"]), np.array(["t1"]), np.array([0]))
    with pytest.raises(ProblemError, match="a problem has either"):
        validate_problem(replace(problem, joins=none))
    with pytest.raises(ProblemError, match="nova translate takes joins of pairs"):
        problem.require_pairs("nova translate")


@pytest.mark.parametrize("nodes", [8, 80])
def test_plots_draw_queries(nodes: int) -> None:
    from matplotlib.text import Text

    from nova_core.plotting import draw

    problem = asking(topology(1, nodes), chain())
    figure = draw(problem, placed(problem))
    figure.draw_without_rendering()
    texts = {text.get_text() for text in figure.findobj(Text)}
    assert {"sink", "virtual position (ideal)"} <= texts
    assert any("1 query in" in text for text in texts)
