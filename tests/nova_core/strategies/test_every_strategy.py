"""Whatever is registered as a strategy, on problems of every kind; nothing here names one.

A plan keeps every constraint, or says which it breaks on purpose; what cannot be done is refused
with the capacity that is lacking. A new strategy is covered by being registered.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from problem_families import FAMILIES
from query_cases import asking, chain, document, topology
from random_problems import problems

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation import evaluate
from nova_core.model import Plan, Problem
from nova_core.model.verify import ACCEPTABLE, CONSTRAINTS, verify
from nova_core.strategies import create, load, names, place


def plan_or_refusal(problem: Problem, strategy: str) -> Plan | None:
    try:
        return place(problem, strategy)
    except InfeasibleError as refused:
        assert refused.missing > 0
        assert str(refused)
        return None


def check(problem: Problem, strategy: str) -> Plan | None:
    plan = plan_or_refusal(problem, strategy)
    if plan is None:
        return None
    assert plan.strategy == strategy
    assert plan.problem is problem
    assert set(plan.breaks) <= ACCEPTABLE
    report = verify(plan)
    assert report.honest, f"{report.summary()}, but says it breaks only {plan.breaks}"
    for name in set(CONSTRAINTS) - ACCEPTABLE:
        assert report.counts[name] == 0
    told = evaluate(plan)
    assert np.isfinite([told.estimated.mean, told.estimated.network_usage]).all()
    assert np.isfinite(told.load.rate).all()
    again = plan_or_refusal(problem, strategy)
    assert again is not None
    assert plan.same_as(again), "one seed must give one plan"
    return plan


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("strategy", names())
def test_it_verifies_or_says_what_it_breaks(strategy: str, family: str) -> None:
    check(FAMILIES[family](1), strategy)


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(problem=problems())
def test_all_cope_with_any_valid_problem(problem: Problem) -> None:
    for strategy in names():
        check(problem, strategy)


QUERIES = {
    "chain": chain(),
    "what two others read": document(
        {"kind": "aggregate", "id": "sum", "input": "t0", "window": 1, "groups": 4},
        {"kind": "filter", "id": "high", "input": "sum", "selectivity": 0.5},
        {"kind": "join", "id": "ab", "inputs": ["high", "t1"], "match": "all", "selectivity": 0.2},
        {"kind": "join", "id": "both", "inputs": ["ab", "sum"], "match": "all"},
    ),
    "filters and a projection": [
        *document({"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5}),
        {
            "id": "wide",
            "sink": "n1",
            "operators": [{"kind": "project", "id": "p", "input": "t2", "selectivity": 1.5}],
        },
    ],
}


@pytest.mark.parametrize("shape", QUERIES)
@pytest.mark.parametrize("strategy", names())
def test_it_places_whole_queries(strategy: str, shape: str) -> None:
    roomy = asking(topology(3), QUERIES[shape])
    assert check(roomy, strategy) is not None
    capacity = np.random.default_rng(4).uniform(40, 200, len(roomy.nodes))
    check(roomy.with_capacity(capacity), strategy)


@pytest.mark.parametrize("strategy", names())
def test_it_can_do_what_is_easy(strategy: str) -> None:
    """A strategy that refuses everything would pass the tests above."""
    assert plan_or_refusal(FAMILIES["unlimited"](0), strategy) is not None


@pytest.mark.parametrize("strategy", names())
def test_parameters_are_frozen_documented_and_have_defaults(strategy: str) -> None:
    kind = load(strategy)
    assert kind.name == strategy
    assert (kind.__doc__ or "").strip()
    parameters = kind.Parameters
    assert is_dataclass(parameters)
    assert parameters.__dataclass_params__.frozen
    documented = " ".join(base.__doc__ or "" for base in parameters.__mro__)
    for field in fields(parameters):
        assert field.default is not MISSING
        assert f"{field.name}:" in documented
    with pytest.raises(ProblemError, match=f"strategy {strategy}: unknown parameter 'speed'"):
        create(strategy, speed=1)
