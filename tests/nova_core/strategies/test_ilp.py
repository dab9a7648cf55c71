"""ILP: what a solver proves, as a strategy."""

from __future__ import annotations

import numpy as np
import pytest
from problem_families import FAMILIES, with_nodes

from nova_core.errors import ProblemError
from nova_core.evaluation import evaluate
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
        place(generate(1000, seed=0), "ilp")
