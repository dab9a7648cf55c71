"""ILP: what a solver proves, as a strategy."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from problem_families import FAMILIES, with_nodes

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation import evaluate
from nova_core.io.files import read_problem
from nova_core.strategies import place
from nova_workloads.topology import generate


def test_no_strategy_with_whole_joins_is_cheaper() -> None:
    problem = generate(12, heterogeneity=0.5, seed=3)
    best = place(problem, "ilp", gap=0.0)
    assert best.notes["cost"] == pytest.approx(best.notes["bound"])
    told = evaluate(best).estimated.objectives["latency"]
    assert told == pytest.approx(best.notes["cost"])
    other = place(problem, "nova", sigma=1.0)
    assert told <= evaluate(other).estimated.objectives["latency"] * (1 + 1e-9)


def test_cuts_fit_where_whole_joins_do_not() -> None:
    problem = FAMILIES["smallest"](0)
    need = float(problem.required_capacity.max())
    capacity = np.full(len(problem.nodes.ids), 0.8 * need)
    capacity[problem.joins.sink] = problem.nodes.capacity[problem.joins.sink]
    tight = with_nodes(problem, capacity=capacity, worker=np.ones(len(capacity), bool))
    plan = place(tight, "ilp", cut=True)
    assert plan.notes["cost"] >= plan.notes["bound"]
    assert len(plan.instances.node) > len(problem.matrix)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"objective": "least"}, "expected one of latency"),
        ({"sigma": 2.0}, "sigma is 2; expected 0 to 1"),
        ({"time_limit": 0.0}, "use seconds above 0"),
    ],
)
def test_bad_parameters(parameters: dict[str, object], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        place(FAMILIES["smallest"](0), "ilp", **parameters)


def test_large_problems_are_refused() -> None:
    with pytest.raises(ProblemError, match="use a smaller problem"):
        place(generate(2000, seed=0), "ilp")
    with pytest.raises(ProblemError, match=r"3 operators on 9 nodes; .* or fewer candidates"):
        replaced = pytest.MonkeyPatch()
        with replaced.context() as patch:
            patch.setattr("nova_core.strategies.ilp.MOST_COLUMNS", 26)
            place(generate(10, seed=0), "ilp", candidates=9)


@pytest.mark.parametrize("seed", range(4))
def test_candidates_bound_what_all_nodes_would_give(seed: int) -> None:
    problem = generate(30, heterogeneity=0.5, seed=seed)
    problem = problem.with_capacity(1.5 * problem.nodes.capacity)
    best = place(problem, "ilp", gap=0.0)
    few = place(problem, "ilp", gap=0.0, candidates=3)
    cost, bound = float(few.notes["cost"]), float(few.notes["bound"])
    least = float(best.notes["cost"])
    assert bound <= least * (1 + 1e-9) and least <= cost * (1 + 1e-9)
    assert evaluate(few).estimated.objectives["latency"] == pytest.approx(cost)
    # With all nodes as candidates, the result is exact.
    every = place(problem, "ilp", gap=0.0, candidates=len(problem.nodes))
    assert every.notes["cost"] == pytest.approx(least)
    assert every.notes["bound"] == pytest.approx(best.notes["bound"])


def test_joins_that_do_not_fit_on_their_candidates_get_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a first placement, one candidate for each join is too few where room is scarce."""
    monkeypatch.setattr("nova_core.evaluation.exact._greedy", lambda *_: (None, np.inf))
    problem = generate(30, heterogeneity=0.5, seed=1)
    best, few = (place(problem, "ilp", gap=0.0, candidates=n) for n in (None, 1))
    assert few.notes["candidates"] > len(problem.matrix)
    assert few.notes["bound"] <= best.notes["cost"] * (1 + 1e-9)
    assert best.notes["cost"] <= few.notes["cost"] * (1 + 1e-9)
    assert evaluate(few).load.overloaded_count == 0


@pytest.mark.data
def test_a_thousand_nodes(shared_data: Path) -> None:
    problem = read_problem(shared_data / "instances" / "sim1000", "capacity_5")
    begin = time.monotonic()
    plan = place(problem, "ilp", time_limit=5.0, gap=0.05)
    assert time.monotonic() - begin < 60  # it also takes time to set the program up
    cost, bound = float(plan.notes["cost"]), float(plan.notes["bound"])
    assert plan.notes["candidates"] <= 61 * len(problem.matrix)
    assert 0.9 * cost <= bound <= cost  # at worst the first placement, 6 % above
    assert bound > 24_700  # with parts of joins on nodes of any size: 24,344
    assert evaluate(plan).load.overloaded_count == 0


def test_where_nobody_may_host_the_missing_capacity_is_told() -> None:
    problem = generate(10, seed=1)
    nobody = replace(problem.nodes, worker=np.zeros(len(problem.nodes), bool))
    with pytest.raises(InfeasibleError, match="nodes that may host have 0"):
        place(replace(problem, nodes=nobody), "ilp")
