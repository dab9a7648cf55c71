"""Lower bound and exact optima, against each other, against trying everything, and as published."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_problems import problem_of, random_problem

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation import evaluate, exact_optimum, exact_optimum_with_cuts, lower_bound
from nova_core.evaluation.assignment import AssignmentCosts
from nova_core.evaluation.bounds import relaxation
from nova_core.io import read_problem
from nova_core.model import Problem
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.verify import verify


def best_by_trying(problem: Problem, objective: str) -> float:
    """Cheapest placement of whole joins under the capacities; ``inf`` where none fits."""
    costs = AssignmentCosts(problem, objective)
    table = costs.rows(slice(0, len(problem.matrix)))
    best = np.inf
    for choice in itertools.product(range(len(costs.hosts)), repeat=len(table)):
        load = np.bincount(choice, problem.required_capacity, minlength=len(costs.hosts))
        if (load <= costs.room + 1e-9).all():
            best = min(best, sum(table[pair, host] for pair, host in enumerate(choice)))
    return best


def full_program(problem: Problem, objective: str) -> float:
    """The fractional assignment with all columns at once."""
    from scipy.optimize import linprog

    costs = AssignmentCosts(problem, objective)
    table = costs.rows(slice(0, len(problem.matrix)))
    pairs, hosts = table.shape
    once = np.kron(np.eye(pairs), np.ones((1, hosts)))
    load = np.kron(problem.required_capacity[None, :], np.eye(hosts))
    found = linprog(table.ravel(), A_ub=load, b_ub=costs.room, A_eq=once, b_eq=np.ones(pairs))
    return float(found.fun)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(6))
def test_small_optima(seed: int, objective: str) -> None:
    problem = random_problem(seed, pairs=5, hosts=5, full=0.5)
    bound = lower_bound(problem, objective)
    assert bound == pytest.approx(full_program(problem, objective), rel=1e-9)
    expected = best_by_trying(problem, objective)
    optimum = exact_optimum(problem, objective, gap=0)
    assert optimum.value == pytest.approx(expected, rel=1e-9)
    assert optimum.gap <= 1e-9
    assert bound <= optimum.value * (1 + 1e-9)
    assert verify(optimum.plan).ok
    found = evaluate(optimum.plan).estimated.objectives[objective]
    assert found == pytest.approx(optimum.value, rel=1e-9)


@pytest.mark.parametrize("full", [0.3, 0.95])
def test_column_generation_reaches_the_full_program(full: float) -> None:
    # More hosts than the first columns know, and tight enough for far ones to matter.
    problem = random_problem(9, pairs=60, hosts=50, full=full)
    assert lower_bound(problem) == pytest.approx(full_program(problem, "latency"), rel=1e-9)


def test_duals_prove_the_bound() -> None:
    problem = random_problem(4, pairs=30, hosts=40, full=0.8)
    found = relaxation(problem)
    costs = AssignmentCosts(problem, "latency")
    price = found.node_price[costs.hosts]
    assert (price <= 0).all()
    reduced = costs.reduced(slice(0, 30), found.body_price, price)
    assert reduced.min() >= -1e-6
    assert found.body_price.sum() + price @ costs.room == pytest.approx(found.value, rel=1e-9)


def test_unlimited_capacity_costs_the_cheapest_node_each() -> None:
    problem = random_problem(1, pairs=6, hosts=12, full=0.5)
    problem = problem.with_capacity(np.full(len(problem.nodes), np.inf))
    table = AssignmentCosts(problem, "latency").rows(slice(0, 6))
    assert lower_bound(problem) == pytest.approx(table.min(axis=1).sum(), rel=1e-12)
    assert exact_optimum(problem).value == pytest.approx(table.min(axis=1).sum(), rel=1e-12)
    assert exact_optimum_with_cuts(problem).value == pytest.approx(table.min(axis=1).sum())


def test_costs_too_small_for_the_solver() -> None:
    problem = problem_of([[0.0], [1e-130], [0.0], [0.0]], [1, np.inf, 1, np.inf], [(1, 2)], [1, 3])
    assert exact_optimum(problem).value == pytest.approx(1e-130, rel=1e-9, abs=0)


def test_too_little_capacity_says_how_much() -> None:
    problem = problem_of([[0.0]] * 5, [0, 0, 0, 6, 5], [(7, 8)], [3, 4])
    for find in (lower_bound, exact_optimum, exact_optimum_with_cuts):
        with pytest.raises(
            InfeasibleError, match=r"operators need 15 tuples/s, .* 4 are missing"
        ) as e:
            find(problem)
        assert e.value.missing == pytest.approx(4)


def test_whole_joins_that_do_not_fit_say_how_much() -> None:
    # Enough in total, but three joins of 10 need 5 more somewhere on three nodes of 10, 10 and 5.
    rates = [(5.0, 5.0)] * 3
    problem = problem_of([[0.0]] * 11, [0] * 7 + [10, 10, 5, 5], rates, [7, 8, 9, 10])
    with pytest.raises(InfeasibleError, match="at least 5 tuples/s are missing") as e:
        exact_optimum(problem)
    assert e.value.missing == pytest.approx(5)
    # Cut in cells of 1 + 1 the joins still receive more in total than there is.
    with pytest.raises(InfeasibleError, match="cells of cut joins do not fit"):
        exact_optimum_with_cuts(problem, sigma=0.2)


def test_a_cell_larger_than_every_node() -> None:
    problem = problem_of([[0.0]] * 5, [0, 0, 0, 9, 9], [(8, 8)], [3, 4])
    with pytest.raises(InfeasibleError, match=r"largest cell needs 16 tuples/s, .* has 9") as e:
        exact_optimum_with_cuts(problem, sigma=1)
    assert e.value.missing == pytest.approx(7)


def test_cutting_where_whole_does_not_fit() -> None:
    # 10 tuples/s cut in 3, 3, 3 and 1 with all of 2 on each side (Eq. 7 at sigma 0.5): two nodes
    # of 8 take 2 + 6 and 2 + 4; the third, far away, is not needed.
    problem = problem_of(
        [[0.0], [10], [10], [10], [20], [900]], [0, 0, 0, 8, 8, 8], [(2, 10)], [3, 4, 5]
    )
    with pytest.raises(InfeasibleError):
        exact_optimum(problem)
    optimum = exact_optimum_with_cuts(problem, sigma=0.5, gap=0)
    assert verify(optimum.plan).ok
    assert optimum.plan.load[3:].tolist() in ([8, 6, 0], [6, 8, 0])
    # Two cells each: on node 3 legs of 0, 0 and 10, on node 4 of 10, 10 and 20 ms.
    assert optimum.value == pytest.approx((2 * 10 + 2 * 40) / 4)


@pytest.mark.parametrize("seed", range(6))
def test_cuts_never_cost_more_than_whole_joins(seed: int) -> None:
    problem = random_problem(seed, pairs=4, hosts=4, full=0.4)
    whole = exact_optimum(problem, gap=1e-6)
    cut = exact_optimum_with_cuts(problem, sigma=0.4, gap=1e-6)
    assert cut.value <= whole.value * (1 + 1e-6)
    assert verify(cut.plan).ok
    found = evaluate(cut.plan).estimated.objectives["latency"]
    assert found == pytest.approx(cut.value, rel=1e-9)


def cut_by_trying(problem: Problem, sigma: float) -> float:
    """Cheapest placement of a single pair's cells, trying every assignment."""
    from nova_core.placement.partitioning import maximum_partition_rate, partition_rates

    rates = problem.left_rate[0], problem.right_rate[0]
    maximum = float(maximum_partition_rate(*(np.array([r]) for r in rates), sigma)[0])
    left, right = (partition_rates(float(r), maximum) for r in rates)
    costs = AssignmentCosts(problem, "latency")
    table = costs.rows(slice(0, 1))[0]
    best = np.inf
    for choice in itertools.product(range(len(table)), repeat=len(left) * len(right)):
        grid = np.array(choice).reshape(len(left), len(right))
        on = [grid == host for host in range(len(table))]
        load = [left[m.any(axis=1)].sum() + right[m.any(axis=0)].sum() for m in on]
        if (np.array(load) <= costs.room + 1e-9).all():
            best = min(best, float(table[grid].mean()))
    return best


@pytest.mark.parametrize("seed", range(5))
def test_one_cut_join_against_trying_every_assignment(seed: int) -> None:
    random = np.random.default_rng(seed)
    position = random.uniform(0, 100, (6, 2)).tolist()
    capacity = [0, 0, 0, *random.integers(9, 16, 3).tolist()]
    problem = problem_of(position, capacity, [(10.0, 6.0)], [3, 4, 5])
    expected = cut_by_trying(problem, sigma=0.5)
    assert exact_optimum_with_cuts(problem, sigma=0.5, gap=0).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"time_limit": 0}, "time_limit: 0; use seconds above 0"),
        ({"time_limit": float("nan")}, "time_limit: nan"),
        ({"gap": 1}, "gap: 1; use a share from 0"),
        ({"sigma": 1.5}, "sigma: 1.5; use a value from 0 to 1"),
        ({"objective": "speed"}, "objective: unknown 'speed'"),
    ],
)
def test_values_out_of_range(limits: dict[str, float], says: str) -> None:
    problem = random_problem(0, pairs=2, hosts=2, full=0.4)
    with pytest.raises(ProblemError, match=says):
        exact_optimum_with_cuts(problem, **limits)  # type: ignore[arg-type]


def test_too_large_for_exact_cuts() -> None:
    problem = random_problem(0, pairs=30, hosts=30, full=0.4)
    with pytest.raises(ProblemError, match="at most 200000 can be solved"):
        exact_optimum_with_cuts(problem, sigma=0)


@pytest.mark.data
@pytest.mark.parametrize(
    ("instance", "capacity", "published"),
    [
        ("sim1000", "capacity_0", 24219.3),
        ("sim1000", "capacity_5", 24343.9),
        ("atlas", "capacity_0", 34301.1),
        ("atlas", "capacity_5", 34347.4),
        ("fit", "capacity_0", 3699.3),
        ("fit", "capacity_5", 3715.9),
    ],
)
def test_published_bounds(
    shared_data: Path, instance: str, capacity: str, published: float
) -> None:
    problem = read_problem(shared_data / "instances" / instance, capacity)
    assert lower_bound(problem) == pytest.approx(published, abs=0.06)


@pytest.mark.data
@pytest.mark.parametrize(
    ("instance", "capacity", "published"),
    [("fit", "capacity_5", 4211.8), ("atlas", "capacity_5", 36219.3)],
)
def test_published_optima(
    shared_data: Path, instance: str, capacity: str, published: float
) -> None:
    problem = read_problem(shared_data / "instances" / instance, capacity)
    optimum = exact_optimum(problem, gap=4e-3)
    assert verify(optimum.plan).ok
    # Both are within their gap of the true optimum.
    assert optimum.bound <= published + 0.06
    assert optimum.value == pytest.approx(published, rel=4e-3)


def test_a_solver_that_gives_up_says_so() -> None:
    problem = random_problem(0, 4, 5, 0.8)
    far = problem.nodes.position.copy()
    far[0, 0] = 2.0**64
    with pytest.raises(ProblemError, match=r"the solver .* gives up: .*; is a cost of"):
        lower_bound(replace(problem, nodes=replace(problem.nodes, position=far)))
