"""Whole queries, exactly: optima, fronts and bounds against every placement of small problems."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from query_cases import asking, document, topology

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation import evaluate, exact_optimum, exact_optimum_with_cuts, lower_bound
from nova_core.evaluation.pareto import pareto_front
from nova_core.model.expansion import graph_of
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Problem
from nova_core.model.verify import verify
from nova_core.strategies import place

SHAPES: dict[str, list[dict[str, Any]]] = {
    "a join after a filter, then an aggregate": document(
        {"kind": "filter", "id": "hot", "input": "t0", "selectivity": 0.5},
        {"kind": "join", "id": "ab", "inputs": ["hot", "t1"], "selectivity": 0.5},
        {"kind": "aggregate", "id": "mean", "input": "ab", "window": 1, "groups": 2},
    ),
    "what two others read, one of it through a filter": document(
        {"kind": "aggregate", "id": "sum", "input": "t0", "window": 1, "groups": 9},
        {"kind": "filter", "id": "high", "input": "sum", "selectivity": 0.5},
        {"kind": "aggregate", "id": "most", "input": "high", "window": 5},
        {"kind": "join", "id": "both", "inputs": ["sum", "most"], "match": "all"},
    ),
    "two queries, and one of filters": [
        *document({"kind": "aggregate", "id": "a", "input": "t0", "window": 1}),
        {
            "id": "wide",
            "sink": "n1",
            "operators": [
                {"kind": "project", "id": "p", "input": "t2", "selectivity": 1.5},
                {"kind": "aggregate", "id": "a", "input": "p", "window": 1},
            ],
        },
        {
            "id": "f",
            "sink": "n2",
            "operators": [{"kind": "filter", "id": "p", "input": "t3", "selectivity": 0.5}],
        },
    ],
}


def asked(shape: str, seed: int, crowded: bool, nodes: int = 4) -> Problem:
    """A problem on nodes without limits, or with a little more room than the largest operator."""
    problem = asking(topology(seed, nodes), SHAPES[shape])
    if not crowded:
        return problem
    most = graph_of(problem).required.max()
    return problem.with_capacity(most * np.random.default_rng(seed).uniform(1.0, 1.4, nodes))


def every_placement(problem: Problem) -> Floats:
    """(k, 4) objectives and number of nodes of all placements that overload nothing."""
    graph, found = graph_of(problem), []
    for nodes in itertools.product(range(len(problem.nodes)), repeat=len(graph.bodies)):
        plan = Plan.whole(problem, np.array(nodes), "all")
        if (plan.load <= problem.nodes.capacity).all():
            values = [plan.objective_value(objective) for objective in OBJECTIVES]
            found.append([*values, len(set(nodes))])
    return np.array(found)


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_optima_of_whole_queries(shape: str, crowded: bool) -> None:
    problem = asked(shape, 3, crowded)
    every = every_placement(problem)
    for column, objective in enumerate(OBJECTIVES):
        plan = place(problem, "ilp", objective=objective, gap=0.0)
        least = every[:, column].min()
        assert plan.notes["cost"] == pytest.approx(least, rel=1e-7)
        assert plan.notes["bound"] <= least * (1 + 1e-7)
        told = evaluate(plan).estimated.objectives[objective]
        assert told == pytest.approx(least, rel=1e-7)
        assert verify(plan).ok
        assert lower_bound(problem, objective) <= least * (1 + 1e-7)
    if not crowded:  # trees without limits: the program's relaxation has whole solutions
        assert lower_bound(problem) == pytest.approx(every[:, 0].min(), rel=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
def test_fronts_of_whole_queries(shape: str) -> None:
    problem = asked(shape, 4, crowded=True)
    at = [OBJECTIVES.index("latency"), OBJECTIVES.index("network-usage"), len(OBJECTIVES)]
    every = every_placement(problem)[:, at]
    front = pareto_front(problem, steps=4)
    for point in front:
        values = np.array([point.latency, point.network_usage, point.nodes])
        as_good = (every <= values * (1 + 1e-5)).all(axis=1)
        assert not (as_good & (every < values * (1 - 1e-5)).any(axis=1)).any()
        told = evaluate(point.plan)
        assert told.estimated.objectives["latency"] == pytest.approx(point.latency)
        assert told.estimated.network_usage == pytest.approx(point.network_usage)
        assert told.nodes_used == point.nodes
        assert verify(point.plan).counts["capacity"] == 0
    ends = np.array([[p.latency, p.network_usage, p.nodes] for p in front]).min(axis=0)
    assert ends == pytest.approx(every.min(axis=0), rel=1e-5)


def test_a_join_that_is_cut_within_a_query() -> None:
    # One key only, so one join; each node takes half of what it receives.
    queries = document(
        {"kind": "join", "id": "ab", "inputs": ["t0", "t1"], "match": "all", "selectivity": 0.5},
        {"kind": "aggregate", "id": "mean", "input": "ab", "window": 1},
    )
    problem = asking(topology(5, 3), queries)
    graph = graph_of(problem)
    most = graph.required[graph.bodies].max()
    crowded = problem.with_capacity(np.full(3, 0.9 * most + graph.required.sum() / 2))
    loose = exact_optimum(problem, gap=0)
    assert exact_optimum_with_cuts(problem, 0.9, gap=1e-6).value <= loose.value * (1 + 1e-6)
    cut = exact_optimum_with_cuts(crowded, 0.9, gap=1e-6, time_limit=20)
    assert verify(cut.plan).ok
    assert evaluate(cut.plan).estimated.objectives["latency"] == pytest.approx(cut.value)
    assert cut.bound <= exact_optimum(crowded, gap=0).value * (1 + 1e-6)


def test_there_is_a_placement_when_the_time_is_over() -> None:
    queries = [each | {"id": f"q{row}"} for row in range(6) for each in SHAPES[next(iter(SHAPES))]]
    problem = asking(topology(1, 40), queries)
    graph = graph_of(problem)
    crowded = problem.with_capacity(np.full(40, 1.5 * graph.required.max()))
    hasty = exact_optimum(crowded, time_limit=0.05)
    assert verify(hasty.plan).ok
    assert hasty.bound <= hasty.value
    assert hasty.value == pytest.approx(hasty.plan.objective_value("latency"))


def test_nothing_to_place() -> None:
    filters = document({"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5})
    problem = asking(topology(1), filters)
    straight = Plan.whole(problem, np.empty(0, np.int64), "all").objective_value("latency")
    assert lower_bound(problem) == pytest.approx(straight)
    for find in (exact_optimum, exact_optimum_with_cuts):
        assert find(problem).value == find(problem).bound == pytest.approx(straight)
    [point] = pareto_front(problem)
    assert (point.latency, point.nodes) == (pytest.approx(straight), 0)


def test_what_fits_nowhere_and_what_is_too_large() -> None:
    shape = "a join after a filter, then an aggregate"
    loose = asked(shape, 3, crowded=False)
    need = graph_of(loose).required
    full = loose.with_capacity(np.full(4, need.sum() / 5))
    for find in (exact_optimum, exact_optimum_with_cuts, pareto_front, lower_bound):
        with pytest.raises(InfeasibleError, match="operators need") as refused:
            find(full)
        assert refused.value.missing == pytest.approx(need.sum() / 5)
    small = loose.with_capacity(np.full(4, need.max() - 1))
    for whole in (exact_optimum, pareto_front):
        with pytest.raises(InfeasibleError, match="whole operators do not fit") as refused:
            whole(small)
        assert refused.value.missing > 0
    large = asking(topology(1, 400), SHAPES[shape])
    for attempt in (lambda: place(large, "ilp"), lambda: pareto_front(large)):
        with pytest.raises(ProblemError, match=r"3 operators.* 2 links between them"):
            attempt()
    with pytest.raises(ProblemError, match=r"2 links between them and 2,000 nodes"):
        lower_bound(asking(topology(1, 2000), SHAPES[shape]))
