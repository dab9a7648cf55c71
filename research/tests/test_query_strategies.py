"""Strategies of other systems on whole queries: honest plans, and what sets each apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_cases import asking, chain, document, topology

from nova_core.errors import InfeasibleError
from nova_core.io.files import read_plan, write_plan
from nova_core.model.expansion import graph_of
from nova_core.model.verify import verify
from nova_core.strategies import create, names, place

NES = ("nes-bottom-up", "nes-top-down", "ifcop")
SOME = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SHAPES = {
    "chain": chain(),
    "late filter": chain(reads=False),
    "two read one": document(
        {"kind": "filter", "id": "hot", "input": "t0", "selectivity": 0.5},
        {"kind": "join", "id": "ab", "inputs": ["hot", "t1"], "match": "all", "selectivity": 0.2},
        {"kind": "join", "id": "ac", "inputs": ["hot", "t2"], "selectivity": 0.5},
        {"kind": "join", "id": "both", "inputs": ["ab", "ac"], "match": "all"},
    ),
    "three queries": [
        *document({"kind": "join", "id": "j", "inputs": ["t0", "t1"], "selectivity": 0.5}),
        {
            "id": "wide",
            "sink": "n1",
            "operators": [{"kind": "project", "id": "p", "input": "t2", "selectivity": 1.5}],
        },
        {
            "id": "sum",
            "sink": "n2",
            "operators": [{"kind": "aggregate", "id": "a", "input": "t0", "window": 1}],
        },
    ],
}


# Filters, projections and joins, each read by one other.
TREES = {
    "joins": document(
        {"kind": "filter", "id": "hot", "input": "t0", "selectivity": 0.5},
        {"kind": "join", "id": "ab", "inputs": ["hot", "t1"], "selectivity": 0.2},
        {"kind": "filter", "id": "some", "input": "ab", "selectivity": 0.5},
        {"kind": "project", "id": "more", "input": "some", "selectivity": 2.0},
        {"kind": "join", "id": "abc", "inputs": ["more", "t2"]},
    ),
    "a join and a filter": [
        *document({"kind": "join", "id": "j", "inputs": ["t0", "t1"], "selectivity": 0.5}),
        {
            "id": "f",
            "sink": "n1",
            "operators": [{"kind": "filter", "id": "p", "input": "t2", "selectivity": 0.5}],
        },
    ],
}
SHAPES |= TREES


@pytest.mark.parametrize("strategy", names())
@SOME
@given(
    seed=st.integers(0, 10_000),
    mean=st.sampled_from([30.0, 200.0, np.inf]),
    shape=st.sampled_from(sorted(SHAPES)),
)
def test_plans_break_only_what_they_say(
    tmp_path: Path, strategy: str, seed: int, mean: float, shape: str
) -> None:
    capacity = None
    if mean < np.inf:
        capacity = np.floor(np.random.default_rng(seed).exponential(size=10) * mean) + 1
    problem = asking(topology(seed, 10, capacity), SHAPES[shape])
    try:
        plan = place(problem, strategy)
    except InfeasibleError as error:
        assert error.missing > 0
        return
    report = verify(plan)
    assert report.honest, report.violations
    assert place(problem, strategy).same_as(plan)
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json", problem).same_as(plan)


@pytest.mark.parametrize("strategy", NES[:2])
@SOME
@given(seed=st.integers(0, 10_000), shape=st.sampled_from(sorted(SHAPES)))
def test_nebulastream_keeps_capacity(strategy: str, seed: int, shape: str) -> None:
    capacity = np.random.default_rng(seed).integers(20, 200, 10).astype(float)
    problem = asking(topology(seed, 10, capacity), SHAPES[shape])
    try:
        plan = place(problem, strategy)
    except InfeasibleError:
        return
    assert (plan.load <= capacity * (1 + 1e-9)).all()


def test_bottom_up_begins_at_sources_and_top_down_at_the_sink() -> None:
    problem = asking(topology(5, 40), SHAPES["chain"])
    bodies = graph_of(problem).bodies
    sink = np.zeros(len(bodies), np.int64)
    down = place(problem, "nes-top-down").instances.node
    assert (problem.distance(down, sink) == 0).all()
    up = place(problem, "nes-bottom-up").instances.node
    assert problem.distance(up, sink).mean() > 0


@pytest.mark.parametrize("strategy", names())
def test_a_filter_alone_runs_with_its_sources(strategy: str) -> None:
    filters = document({"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5})
    plan = place(asking(topology(1), filters), strategy)
    assert len(plan.instances) == 0
    assert verify(plan).honest


def test_more_candidates_cost_no_more() -> None:
    problem = asking(topology(3, 12), SHAPES["chain"])
    few, many = (create("ifcop", iterations=n).solve(problem).notes["cost"] for n in (1, 300))
    assert many < few


def test_whitewaters_throughput_is_how_much_faster_sources_may_be() -> None:
    capacity = np.random.default_rng(2).uniform(50, 400, 12)
    problem = asking(topology(2, 12, capacity), TREES["a join and a filter"])
    plan = place(problem, "whitewater-tabu")
    # Joins receive as much faster as sources send.
    busiest = (plan.load / capacity).max()
    assert plan.notes["throughput"] == pytest.approx(1 / busiest)
    assert plan.notes["throughput"] >= place(problem, "whitewater-greedy").notes["throughput"]


def test_whitewaters_aggregates_emit_the_same_at_any_speed() -> None:
    shared = document(
        {"kind": "aggregate", "id": "sum", "input": "t0", "window": 1, "groups": 4},
        {"kind": "filter", "id": "high", "input": "sum", "selectivity": 0.5},
        {"kind": "join", "id": "ab", "inputs": ["high", "t1"], "match": "all", "selectivity": 0.2},
        {"kind": "join", "id": "ac", "inputs": ["sum", "t2"], "match": "all", "selectivity": 0.5},
        {"kind": "join", "id": "both", "inputs": ["ab", "ac"], "match": "all"},
    )
    capacity = np.random.default_rng(2).uniform(400, 900, 12)
    plan = place(asking(topology(2, 12, capacity), shared), "whitewater-tabu")
    assert plan.notes["throughput"] >= place(plan.problem, "whitewater-greedy").notes["throughput"]
    # The same at that speed: sources are faster, the aggregate is not.
    speed = plan.notes["throughput"]
    sources = plan.problem.sources
    graph = plan.graph
    emitted = {"q/sum": graph.rate[list(graph.ids).index("q/sum")]}
    rate = np.zeros(len(graph))
    load = np.zeros(12)
    for one, operator in enumerate(graph):
        inputs = [rate[i] for i in operator.inputs]
        before = [graph.rate[i] for i in operator.inputs]
        if operator.kind == "source":
            rate[one] = speed * sources.rate[graph.source[one]]
        elif operator.kind in ("join", "filter"):
            rate[one] = graph.rate[one] * np.prod(inputs) / np.prod(before)
        else:
            rate[one] = emitted.get(operator.id, 0.0)
        if graph.body_of[one] >= 0:
            load[plan.instances.node[graph.body_of[one]]] += sum(inputs)
    assert (load / capacity).max() == pytest.approx(1.0)
