"""What strategies share: plans of whole joins, ranges of parameters, workers that meet a need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from problem_families import FAMILIES

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model import Instances, Partitions, Plan, Problem
from nova_core.model.expansion import graph_of
from nova_core.strategies import Strategy
from nova_core.strategies.base import (
    POSITIVE,
    RESOURCES,
    WHOLE,
    NoParameters,
    able_workers,
    check_range,
)


@dataclass(frozen=True)
class Sizes:
    small: float = 1.0
    large: float = 2.0
    count: int = 3
    unset: float | None = None


class First(Strategy):
    """Everything on the first worker."""

    name = "first"
    Parameters = Sizes
    ignores = ("capacity",)

    def place(self, problem: Problem) -> Plan:
        worker = int(np.flatnonzero(problem.nodes.worker)[0])
        return self.whole_plan(problem, np.full(len(problem.matrix), worker), notes={"tried": 1})


def test_a_whole_plan_says_what_the_strategy_says_of_itself() -> None:
    problem = FAMILIES["roomy"](1)
    plan = First(Sizes(count=7)).place(problem)
    worker = int(np.flatnonzero(problem.nodes.worker)[0])
    expected = Plan(
        problem=problem,
        strategy="first",
        objective="latency",
        partitions=Partitions.whole(problem),
        instances=Instances.whole(np.full(len(problem.matrix), worker)),
        parameters={"small": 1.0, "large": 2.0, "count": 7, "unset": None},
        breaks=("capacity",),
        notes={"tried": 1},
    )
    assert plan.same_as(expected)
    other = First().whole_plan(problem, plan.instances.node, objective="network-usage", breaks=())
    assert (other.objective, other.breaks) == ("network-usage", ())


def test_without_a_word_a_strategy_has_no_parameters_and_ignores_resources() -> None:
    assert Strategy().parameters == NoParameters()
    assert Strategy.ignores == RESOURCES
    with pytest.raises(NotImplementedError):
        Strategy().place(FAMILIES["smallest"](0))


@pytest.mark.parametrize(
    ("values", "bounds", "message"),
    [
        ({}, (0, 2), None),
        ({"small": 0.0}, (0,), None),
        ({"small": 0.0}, (POSITIVE, 9, "above 0"), "x: small is 0; expected above 0"),
        ({"large": math.inf}, (0,), "x: large is inf; expected 0 or more"),
        ({"large": math.inf}, (0, math.inf), None),
        ({"large": 2.5}, (0, 2), "x: large is 2.5; expected 0 to 2"),
        ({"small": math.nan}, (0, math.inf), "x: small is nan; expected 0 or more"),
        ({"small": -1}, (0.5, 1.5), "x: small is -1; expected 0.5 to 1.5"),
    ],
)
def test_ranges(values: dict[str, float], bounds: tuple, message: str | None) -> None:
    sizes = replace(Sizes(), **values)
    if message is None:
        check_range("x:", sizes, "small large unset", *bounds)
        return
    with pytest.raises(ProblemError) as refused:
        check_range("x:", sizes, "small large unset", *bounds)
    assert str(refused.value) == message


def test_whole_numbers_have_words_of_their_own() -> None:
    with pytest.raises(ProblemError, match="count is 0; expected a whole number >= 1"):
        check_range("x:", Sizes(count=0), "count", 1, expected=WHOLE)


@pytest.mark.parametrize("family", ["requirements", "few hosts", "near uniform"])
def test_able_workers_are_those_that_meet_the_requirement(family: str) -> None:
    problem = FAMILIES[family](2)
    graph = graph_of(problem)
    requirement = graph.requirement[graph.bodies]
    seen = []
    for pairs, fit in able_workers(problem, "x"):
        seen += pairs.tolist()
        assert len(np.unique(requirement[pairs])) == 1
        expected = problem.nodes.worker & graph.allowed(pairs[0])
        assert fit.tolist() == np.flatnonzero(expected).tolist()
    assert sorted(seen) == list(range(len(problem.matrix)))


def test_no_able_worker_is_refused_with_what_is_missing() -> None:
    problem = FAMILIES["requirements"](2)
    tags = np.full(len(problem.nodes.ids), "arm64")
    nobody = replace(problem, nodes=replace(problem.nodes, tags=tags))
    with pytest.raises(InfeasibleError, match=r"x: no node with tag gpu and .* may") as e:
        list(able_workers(nobody, "x"))
    assert e.value.missing == pytest.approx(problem.required_capacity.sum())
