"""How long whole queries take to place, on generated topologies."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nova_core.model.expansion import Rewriting, expand, graph_of
from nova_core.model.objectives import link_weights
from nova_core.placement.queries.virtual import virtual_positions
from nova_core.strategies import place
from nova_harness.bench.queries import generated

# Numbers of nodes.
CASES, SMALL = (1_000, 10_000), 100

pytestmark = pytest.mark.usefixtures("one_core")
objectives = pytest.mark.parametrize("objective", ["latency", "network-usage"])


def test_expand(benchmark: BenchmarkFixture, case: int) -> None:
    """To make the operator graph."""
    problem = generated(case, seed=0)
    graph = benchmark(expand, problem, Rewriting(True, True, True))
    assert len(problem.queries) == 3 * case // 10 < len(graph)


@objectives
def test_virtual(benchmark: BenchmarkFixture, case: int, objective: str) -> None:
    """Phase II."""
    problem = generated(case, seed=0)
    graph = graph_of(problem, Rewriting(True, True, True))
    weight = link_weights(graph, objective)
    assert benchmark(virtual_positions, graph, problem.nodes.position, weight).cost > 0


@objectives
def test_place(benchmark: BenchmarkFixture, case: int, objective: str) -> None:
    """All of it, from queries to the plan; virtual positions are a lower bound of its objective."""
    problem = generated(case, seed=0)
    plan = benchmark(place, problem, objective=objective)
    weight = link_weights(plan.graph, objective)
    best = virtual_positions(plan.graph, problem.nodes.position, weight).cost
    over_virtual = plan.objective_value(objective) / best
    benchmark.extra_info |= {"instances": len(plan.instances), "over_virtual": over_virtual}
    assert (plan.load <= problem.nodes.capacity * (1 + 1e-9)).all()
    assert 1 - 1e-6 <= over_virtual < 1.5
