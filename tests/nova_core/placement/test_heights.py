"""Heights and penalties in the search, the objective and the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import synthetic_problem

from nova_core.evaluation import evaluate, exact_optimum, lower_bound
from nova_core.explain import Explainer
from nova_core.io.validation import validate_problem
from nova_core.model.objectives import OBJECTIVES, leg_cost, leg_weights
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.kernels.capacity_tree import build, nearest, search_for, set_free
from nova_core.strategies import place


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 150),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
def test_nearest_counts_rises_and_requirements(
    seed: int, count: int, dimensions: int, grid: bool, ranked: bool, requirements: int
) -> None:
    rng = np.random.default_rng(seed)
    position = rng.uniform(0, 100, (count + 3, dimensions))
    height = rng.exponential(20, count + 3)
    if grid:
        position, height = np.round(position / 25) * 25, np.round(height / 25) * 25
    free = rng.integers(0, 50, count + 3).astype(float)
    meets = rng.random((requirements, count + 3)) < 0.4
    node = np.sort(rng.permutation(count + 3)[:count])
    hub = position[0]
    tree = build(
        position,
        free,
        node,
        hub if ranked else None,
        rise=np.stack([height, height], axis=1),
        meets=meets if requirements else None,
    )
    slot_of = {int(n): slot for slot, n in enumerate(tree.node)}
    for _ in range(20):
        k, needs = int(rng.integers(1, 9)), int(rng.integers(0, requirements + 1))
        point = hub if rng.random() < 0.5 else rng.uniform(-10, 110, dimensions)
        room = float(rng.integers(0, 55))
        good = [n for n in node.tolist() if free[n] >= room and (not needs or meets[needs - 1, n])]
        away = np.linalg.norm(position - point, axis=1) + height
        wanted = np.sort(away[good])[:k]
        search = search_for(k, 1.0)
        found = nearest(tree, point, room, needs, search)
        answer = tree.node[search.slot[:found]]
        assert set(answer.tolist()) <= set(good)
        # Equally near nodes may differ by rounding, which here is that of a root and a square.
        np.testing.assert_allclose(np.sort(away[answer]), wanted, rtol=1e-9, atol=1e-9)
        changed = int(rng.choice(node))
        free[changed] = float(rng.integers(0, 50))
        set_free(tree, slot_of[changed], free[changed])


def tall(seed: int, pairs: int = 20, penalty: bool = False) -> Problem:
    """A random problem whose nodes have heights, and penalties if asked for."""
    problem = synthetic_problem(seed, nodes=2 * pairs, joins=pairs, headroom=3.0)
    rng = np.random.default_rng(seed)
    nodes = replace(
        problem.nodes,
        height=rng.exponential(15, len(problem.nodes)),
        penalty=rng.exponential(15, len(problem.nodes)) if penalty else None,
    )
    return validate_problem(replace(problem, nodes=nodes))


def cost_of(problem: Problem, node: np.ndarray, objective: str) -> float:
    ends = np.stack([problem.left_node, problem.right_node, problem.sink_node], axis=1)
    return float((leg_weights(problem, objective) * leg_cost(problem, ends, node[:, None])).sum())


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("penalty", [False, True])
def test_without_limits_every_join_is_on_its_cheapest_node(objective: str, penalty: bool) -> None:
    """As many nodes are listed as there are, so nothing cheaper may be overlooked."""
    problem = tall(3, penalty=penalty)
    problem = problem.with_capacity(np.full(len(problem.nodes), np.inf))
    plan = place(problem, objective=objective, neighbours=len(problem.nodes), cut_gain=1.0)
    best = np.full(len(problem.matrix), np.inf)
    for node in np.flatnonzero(problem.nodes.worker):
        ends = np.stack([problem.left_node, problem.right_node, problem.sink_node], axis=1)
        cost = (leg_weights(problem, objective) * leg_cost(problem, ends, node)).sum(axis=1)
        best = np.minimum(best, cost)
    assert cost_of(problem, plan.instances.node, objective) == pytest.approx(best.sum())


@pytest.mark.parametrize("seed", range(4))
def test_plans_are_near_the_optimum_and_above_the_bound(seed: int) -> None:
    problem = tall(seed, pairs=12)
    plan = place(problem, cut_gain=1.0)
    assert verify(plan).ok
    value = evaluate(plan).estimated.objectives["latency"]
    optimum = exact_optimum(problem)
    assert lower_bound(problem) <= optimum.value * (1 + 1e-9)
    if len(plan.instances) == len(problem.matrix):
        assert optimum.bound * (1 - 1e-9) <= value <= 1.03 * optimum.value


def test_honouring_heights_beats_ignoring_them() -> None:
    gains = []
    for seed in range(5):
        problem = tall(seed, pairs=40)
        flat = replace(problem, nodes=replace(problem.nodes, height=None))
        ignored = replace(place(flat), problem=problem)
        gains.append(evaluate(ignored).estimated.mean / evaluate(place(problem)).estimated.mean)
    assert min(gains) > 1.02


def test_a_leg_that_ends_where_it_begins_has_no_height() -> None:
    problem = tall(0)
    node = np.arange(len(problem.nodes))
    height = problem.nodes.height
    assert height is not None
    assert (problem.distance(node, node) == 0).all()
    apart = problem.distance(node[:-1], node[1:])
    straight = np.linalg.norm(np.diff(problem.nodes.position, axis=0), axis=1)
    assert apart == pytest.approx(straight + height[:-1] + height[1:])


def test_explanations_agree_with_the_plan() -> None:
    problem = tall(1)
    plan = place(problem)
    explainer = Explainer(plan)
    total = sum(explainer.operator(pair).cost for pair in range(len(problem.matrix)))
    assert total == pytest.approx(evaluate(plan).estimated.objectives["latency"])
    for pair in range(len(problem.matrix)):
        answer = explainer.operator(pair)
        assert answer.ideal_cost <= min(c.cost for c in answer.candidates) + 1e-9
        assert answer.ideal_cost <= answer.cost + 1e-9


def test_the_tree_strategy_spans_by_latency() -> None:
    """A tall node in the middle is no relay."""
    problem = tall(2)
    height = np.zeros(len(problem.nodes))
    worst = int(np.argmin(np.linalg.norm(problem.nodes.position - 50, axis=1)))
    height[worst] = 1e6
    plan = place(replace(problem, nodes=replace(problem.nodes, height=height)), "tree")
    assert plan.routes is not None
    ends = {*problem.left_node.tolist(), *problem.right_node.tolist(), *problem.sink_node.tolist()}
    assert worst in ends or worst not in plan.routes.node.tolist()


def test_penalties_move_joins_but_are_no_latency() -> None:
    problem = tall(4, pairs=30)
    plain = place(problem)
    busy = np.zeros(len(problem.nodes))
    hosts, joins = np.unique(plain.instances.node, return_counts=True)
    busiest = int(hosts[np.argmax(joins)])
    busy[busiest] = 1e4
    shunned = place(replace(problem, nodes=replace(problem.nodes, penalty=busy)))
    assert busiest in plain.instances.node
    assert busiest not in shunned.instances.node
    assert evaluate(shunned).estimated.maximum < 1e4


def test_metrics_are_placed_by_but_are_no_latency() -> None:
    """A third coordinate pulls joins along it; latencies do not know it."""
    problem = tall(5).with_capacity(np.full(40, np.inf))
    rng = np.random.default_rng(5)
    extra = rng.uniform(0, 300, (len(problem.nodes), 1))
    position = np.concatenate([problem.nodes.position, extra], axis=1)
    with_metric = validate_problem(
        replace(problem, nodes=replace(problem.nodes, position=position), metrics=("energy",))
    )
    node = np.arange(len(problem.nodes))
    assert np.array_equal(
        with_metric.distance(node, node[::-1]), problem.distance(node, node[::-1])
    )
    plain, weighed = place(problem, cut_gain=1.0), place(with_metric, cut_gain=1.0)
    assert cost_of(with_metric, weighed.instances.node, "latency") < cost_of(
        with_metric, plain.instances.node, "latency"
    )
    estimated = evaluate(weighed).estimated
    assert estimated.mean == pytest.approx(
        evaluate(replace(weighed, problem=problem, virtual_position=None)).estimated.mean
    )
