"""SBON's comparators on whole queries: each as its function of an operator graph has it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from problem_families import FAMILIES
from query_cases import asking, chain, document, topology

from nova_core.model import Joins
from nova_core.model.expansion import graph_of
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies import create, place
from nova_research.operators import OperatorGraph
from nova_research.sbon.comparators import ip_multicast, neighbour_routes

SHAPES = {
    "a tree": document(
        {"kind": "filter", "id": "hot", "input": "t0", "selectivity": 0.5},
        {"kind": "join", "id": "ab", "inputs": ["hot", "t1"], "selectivity": 0.5},
        {"kind": "aggregate", "id": "mean", "input": "ab", "window": 1, "groups": 2},
    ),
    "operators on a cycle": document(
        {"kind": "aggregate", "id": "sum", "input": "t0", "window": 1, "groups": 9},
        {"kind": "filter", "id": "high", "input": "sum", "selectivity": 0.5},
        {"kind": "aggregate", "id": "most", "input": "high", "window": 5},
        {"kind": "aggregate", "id": "least", "input": "sum", "window": 2},
        {"kind": "join", "id": "both", "inputs": ["most", "least"], "match": "all"},
    ),
    "aggregates alone": document(
        {"kind": "aggregate", "id": "a", "input": "t0", "window": 1, "by": "key"}
    ),
}


def measured(problem: Problem, seed: int) -> Problem:
    """With latencies that positions do not tell."""
    random = np.random.default_rng(seed).uniform(5, 100, (len(problem.nodes),) * 2)
    latency = (random + random.T) / 2
    np.fill_diagonal(latency, 0)
    return replace(problem, latency=latency)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_optimum_of_whole_queries(shape: str, known: bool) -> None:
    problem = asking(topology(6, 5), SHAPES[shape])
    if known:
        problem = measured(problem, 6)
    plan = place(problem, "sbon-optimal")
    least = min(
        Plan.whole(problem, np.array(nodes), "all").objective_value(
            "network-usage", problem.latency
        )
        for nodes in product(range(5), repeat=len(graph_of(problem).bodies))
    )
    assert plan.objective_value("network-usage", problem.latency) == pytest.approx(least)


def test_ip_multicast_of_whole_queries() -> None:
    problem = asking(topology(8, 40), chain())
    routes = neighbour_routes(problem.latency_position, None, 4)
    graph = graph_of(problem)
    expected = ip_multicast(OperatorGraph.of_graph(graph), routes)[graph.bodies]
    assert place(problem, "sbon-ip-multicast").instances.node.tolist() == expected.tolist()


def test_producers_of_whole_queries_are_drawn_from_all_sources() -> None:
    problem = asking(topology(9, 200), chain())
    graph = graph_of(problem)
    drawn: dict[int, set[int]] = {body: set() for body in graph.bodies.tolist()}
    for seed in range(100):
        nodes = create("sbon-producer", seed=seed).solve(problem).instances.node
        for body, node in zip(drawn, nodes.tolist(), strict=True):
            drawn[body].add(node)
    for body, nodes in drawn.items():
        assert nodes == {int(graph.node[source]) for source in graph.upstream_sources(body)}


def test_consumer_and_random_of_whole_queries() -> None:
    problem = asking(topology(10, 30), chain())
    problem.nodes.worker[:15] = False
    assert set(place(problem, "sbon-consumer").instances.node.tolist()) == set(problem.sinks)
    drawn = [create("sbon-random", seed=seed).solve(problem).instances.node for seed in range(9)]
    assert all(problem.nodes.worker[nodes].all() for nodes in drawn)
    assert len({tuple(nodes.tolist()) for nodes in drawn}) == 9


def test_a_join_without_pairs_is_a_sink_without_inputs() -> None:
    """Strategies that walk objects place what there is."""
    problem = FAMILIES["unlimited"](0)
    joins = Joins(
        *(
            np.append(column, column[:1])
            for column in (
                problem.joins.ids,
                problem.joins.left,
                problem.joins.right,
                problem.joins.sink,
            )
        )
    )
    joins.ids[-1] = "none"
    alone = replace(problem, joins=joins)
    assert len(OperatorGraph.of_graph(graph_of(alone)).sources) == len(problem.sources)
    placed = place(alone, "sbon-relaxation").instances.node
    assert placed.tolist() == place(problem, "sbon-relaxation").instances.node.tolist()
