"""What is explained of operators of pairs and of whole queries, against what plans add up to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_cases import asking, chain, document, topology
from synthetic import synthetic_problem

from nova_core.errors import PlanError
from nova_core.explain import Explainer, find
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.placement.queries.virtual import medians
from nova_core.strategies import place

SOME = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SUM = {"kind": "aggregate", "id": "sum", "input": "t0", "output_rate": 2.0, "decomposable": True}


def asked(seed: int, mean: float, keys: int = 1) -> Problem:
    """A chain of operators whose second join has keys, on nodes of different heights and rooms."""
    random = np.random.default_rng(seed)
    problem = topology(seed, 10, np.floor(random.exponential(size=10) * mean) + 1)
    nodes = replace(problem.nodes, height=random.uniform(0, 20, 10))
    (query,) = chain()
    query["operators"][2] |= {"keys": keys}
    return asking(replace(problem, nodes=nodes), [query])


def whole(plan: Plan, row: int, node: int) -> Plan:
    """The plan with an operator in one piece on a node."""
    i, parts = plan.instances, plan.partitions
    begin, end = np.searchsorted(i.pair, [row, row + 1]).tolist()
    number = np.append(np.arange(len(i)), -1)
    number[end:-1] -= end - begin - 1

    def with_one(column: Any, value: int) -> Any:
        return np.concatenate([column[:begin], [value], column[end:]])

    columns = ("left_begin", "right_begin", "left_end", "right_end")
    ranges = {one: with_one(getattr(i, one), "end" in one) for one in columns}
    feeds = None if i.feeds is None else with_one(number[i.feeds], -1)
    cut = [one for one in np.flatnonzero(parts.count > 1).tolist() if one // 2 != row]
    by_key = [] if parts.by_key is None else np.flatnonzero(parts.by_key).tolist()
    uncut = Partitions.uncut(plan.graph.input_rate)
    return replace(
        plan,
        instances=Instances(with_one(i.pair, row), with_one(i.node, node), feeds=feeds, **ranges),
        partitions=uncut.with_cuts(
            {one: parts.rates(one // 2, one % 2) for one in cut}, set(by_key) - {row}
        ),
    )


@SOME
@given(
    seed=st.integers(0, 10_000),
    headroom=st.sampled_from([1.2, 4.0]),
    sigma=st.sampled_from([0.1, 0.5]),
    objective=st.sampled_from(OBJECTIVES),
)
def test_costs_of_pairs_add_up_to_the_objective(
    seed: int, headroom: float, sigma: float, objective: str
) -> None:
    problem = synthetic_problem(seed, nodes=30, joins=10, headroom=headroom)
    plan = place(problem, "nova", sigma=sigma, objective=objective, on_full="spread")
    answers = [Explainer(plan).operator(row) for row in range(plan.operator_count)]
    assert sum(one.cost for one in answers) == pytest.approx(plan.objective_value(objective))


@SOME
@given(
    seed=st.integers(0, 10_000),
    mean=st.sampled_from([15.0, 40.0, 200.0]),
    keys=st.sampled_from([1, 10_000]),
    objective=st.sampled_from(OBJECTIVES),
)
def test_operators_of_queries_cost_what_the_plan_adds_up_to(
    seed: int, mean: float, keys: int, objective: str
) -> None:
    problem = asked(seed, mean, keys)
    plan = place(problem, "nova", objective=objective, on_full="spread")
    explainer, links, i = Explainer(plan), plan.links, plan.instances
    answers = [explainer.operator(row, nearest=10) for row in range(plan.operator_count)]
    # Each link counts at both its ends, and once within an operator.
    cost = plan.link_weight(objective) * plan.link_latency()
    operators = np.append(i.pair, -1)
    ends = np.stack([operators[np.maximum(side, -1)] for side in links[:2]])
    for row, one in enumerate(answers):
        assert one.cost == pytest.approx(cost[(ends == row).any(axis=0)].sum())
        # No candidate costs less than the ideal, and none that is cheaper is left out.
        assert one.ideal_cost <= min(c.cost for c in one.candidates) * (1 + 1e-6)
        assert len(one.candidates) == len({c.node for c in one.candidates}) == 10
        if plan.replica_count[row] == 1:
            assert one.hosts[0].cost == pytest.approx(one.cost)
        there = [whole(plan, row, problem.node_index[c.node]) for c in one.candidates]
        value = np.array([each.objective_value(objective) for each in there])
        told = np.array([c.cost for c in one.candidates])
        assert told - told[0] == pytest.approx(value - value[0], rel=1e-6, abs=1e-6)
    # With heights, the ideal of an operator may be one of its ends, which only one answer looks at.
    flat = replace(problem, nodes=replace(problem.nodes, height=None))
    plan = replace(plan, problem=flat)
    explainer = Explainer(plan)
    worst = [explainer.operator(row) for row in explainer.farthest(100)]
    above = [one.cost - one.ideal_cost for one in worst]
    assert above == pytest.approx(sorted(above, reverse=True), rel=1e-5, abs=1e-5)
    assert len(worst) == plan.operator_count


@SOME
@given(seed=st.integers(0, 10_000), mean=st.sampled_from([40.0, 200.0]))
def test_a_node_is_wished_for_by_what_would_cost_less_there(seed: int, mean: float) -> None:
    plan = place(asked(seed, mean), "nova", on_full="spread")
    explainer, name = Explainer(plan), plan.operator_names().tolist()
    answers = [explainer.operator(row, nearest=10) for row in range(len(name))]
    for node, label in enumerate(plan.problem.nodes.ids.tolist()):
        wishes = {one.operator: one.gain for one in explainer.node(node, 100).wishes}
        gains = {
            one.operator: one.cost - next(c.cost for c in one.candidates if c.node == label)
            for one in answers
            if label not in {host.node for host in one.hosts}
        }
        greater = {key: gain for key, gain in gains.items() if gain > 1e-6}
        assert wishes.keys() >= greater.keys()
        assert [wishes[key] for key in greater] == pytest.approx(list(greater.values()))


@SOME
@given(seed=st.integers(0, 10_000), dimensions=st.integers(1, 3))
def test_medians_cost_the_least_whatever_the_number_of_ends(seed: int, dimensions: int) -> None:
    random = np.random.default_rng(seed)
    position = random.uniform(0, 100, (12, dimensions))
    at = np.append(0, np.cumsum(random.permutation(np.arange(1, 9))))
    node, weight = random.integers(0, 12, at[-1]), random.exponential(size=at[-1])
    points, sums = medians(position, at, node, weight)
    for run, (point, least) in enumerate(zip(points, sums.tolist(), strict=True)):
        part = slice(at[run], at[run + 1])

        def cost(there: Any, part: slice = part) -> float:
            away = np.linalg.norm(position[node[part]] - there, axis=1)
            return float(weight[part] @ away)

        assert cost(point) == pytest.approx(least)
        steps = [random.normal(0, size, dimensions) for size in (1e-3, 1.0, 30.0)]
        others = [*(point + step for step in steps), *position[node[part]]]
        assert min(map(cost, others)) >= least * (1 - 1e-6)


def test_neighbours_are_named() -> None:
    plan = place(asking(topology(1), chain()), "nova")
    explainer = Explainer(plan)
    for row in range(plan.operator_count):
        one = explainer.operator(row)
        body = plan.graph[int(plan.graph.bodies[row])]
        assert [other.name for other in one.inputs] == [plan.graph.ids[n] for n in body.inputs]
        assert sum(other.rate for other in one.inputs) == pytest.approx(one.required_capacity)
        assert all(other.rate == body.rate for other in one.outputs)
        assert one.queries == {"q": plan.query_latency()[0]}
        for link in one.outputs:
            if link.kind == "sink":
                assert (link.name, link.nodes) == ("q/sink", ("n0",))
            else:
                (receiver,) = find(plan, link.name)
                assert one.operator in [each.name for each in explainer.operator(receiver).inputs]


def test_names_mean_operators() -> None:
    late = {"kind": "filter", "id": "late", "input": "sum", "selectivity": 0.5}
    only = {"kind": "filter", "id": "only", "input": "t3", "selectivity": 0.5}
    more = [document(SUM, late)[0] | {"id": "p"}, document(only)[0] | {"id": "alone"}]
    queries = [*chain(), *more]
    plan = place(asking(topology(1), queries), "nova")
    names = plan.operator_names()

    def found(name: str) -> set[str]:
        return set(names[find(plan, name)].tolist())

    of_query = {one for one in names.tolist() if one.startswith("q/")}
    assert found("q") == of_query
    assert found("ab") == found("q/ab") == {one for one in of_query if one.startswith("q/ab(")}
    assert found("hot") and found("hot") <= found("ab")
    assert found("hot") == found("q/hot(s0)") | found("q/hot(s1)")
    assert found("s0") >= found("q/hot(s0)")
    assert found("late") >= found("p/late") == {"p/sum"}
    assert found("alone") == found("only") == set()  # it runs with its source
    for name in names.tolist():
        assert found(name) == {name}
    with pytest.raises(PlanError, match="operator, join, query or source; did you mean q/ab"):
        find(plan, "q/abs")


def test_kinds_of_cuts_of_aggregates_are_explained() -> None:
    problem = topology(0)
    problem = problem.with_capacity(np.full(8, problem.sources.rate[:2].max() + 1))

    def reasons(**fields: Any) -> str:
        plan = place(asking(problem, document(SUM | fields)), "nova", split_aggregates=False)
        assert len(plan.instances) > 1
        one = Explainer(plan).operator(0)
        assert one.cost == pytest.approx(plan.objective_value("latency"))
        return " ".join(one.reasons)

    assert "cut by its inputs: one instance combines" in reasons()
    assert "cut by its 4 groups" in reasons(groups=4)


def test_an_operator_that_a_plan_leaves_out_is_explained() -> None:
    plan = place(asking(topology(1), chain()), "nova")
    rows = plan.instances.pair != 0
    columns = {
        name: getattr(plan.instances, name)[rows]
        for name in ("pair", "node", "left_begin", "left_end", "right_begin", "right_end")
    }
    kept = replace(plan, instances=replace(plan.instances, **columns))
    answers = [Explainer(kept).operator(row) for row in range(kept.operator_count)]
    assert answers[0].reasons[-1] == "the plan has it nowhere" and not answers[0].hosts


def test_breaks_are_said_as_the_plan_has_them() -> None:
    problem = synthetic_problem(1, nodes=30, joins=10, headroom=4.0)
    for strategy in ("nova", "sink", "top-c"):
        plan = place(problem, strategy)
        said = [one for one in Explainer(plan).operator(0).reasons if "break" in one]
        assert said == [f"the plan may break on purpose: {', '.join(plan.breaks)}"] * bool(
            plan.breaks
        )
