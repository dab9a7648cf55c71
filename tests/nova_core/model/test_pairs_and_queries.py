"""A pair is the smallest query: a problem of pairs and the same one as queries have equal plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.evaluation import evaluate
from nova_core.io.problem_document import queries_of
from nova_core.model.edges import edges
from nova_core.model.expansion import AS_WRITTEN, Rewriting, graph_of
from nova_core.model.graph import KINDS, pair_graph
from nova_core.model.objectives import OBJECTIVES, leg_weights, link_weights
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import JoinMatrix, Joins, Nodes, Problem, Sources
from nova_core.model.verify import verify

STREAMS = 3


def both(seed: int) -> tuple[Problem, Problem]:
    """Joins of every two of three streams: as pairs, and as a query of one join each."""
    rng = np.random.default_rng(seed)
    nodes, sources = int(rng.integers(3, 9)), int(rng.integers(STREAMS, 9))
    stream = np.append(np.arange(STREAMS), rng.integers(0, STREAMS, sources - STREAMS))
    of_streams = list(combinations(range(STREAMS), 2))[: int(rng.integers(1, 4))]
    sink, share = rng.integers(0, nodes, len(of_streams)), rng.uniform(0.1, 3, len(of_streams))
    rate = rng.uniform(1, 90, sources)
    rows = [
        (join, left, right, share[join] * min(rate[left], rate[right]))
        for join, (a, b) in enumerate(of_streams)
        for left in np.flatnonzero(stream == a).tolist()
        for right in np.flatnonzero(stream == b).tolist()
    ]
    names = [f"t{one}" for one in range(STREAMS)]
    join, left, right = (np.array(column) for column in list(zip(*rows, strict=True))[:3])
    pairs = Problem(
        nodes=Nodes(
            ids=np.array([f"n{i}" for i in range(nodes)]),
            position=rng.uniform(0, 200, (nodes, 2)),
            capacity=rng.uniform(50, 500, nodes),
            worker=rng.random(nodes) < 0.8,
            height=rng.uniform(0, 5, nodes) if rng.random() < 0.5 else None,
        ),
        sources=Sources(
            ids=np.array([f"s{i}" for i in range(sources)]),
            node=rng.integers(0, nodes, sources),
            stream=np.array(names)[stream],
            rate=rate,
            tuple_bytes=rng.uniform(10, 90, sources) if rng.random() < 0.5 else None,
        ),
        joins=Joins(
            ids=np.array([f"q{i}" for i in range(len(of_streams))]),
            left=np.array([names[a] for a, _ in of_streams]),
            right=np.array([names[b] for _, b in of_streams]),
            sink=sink,
        ),
        matrix=JoinMatrix(join, left, right, np.array([one[3] for one in rows])),
    )
    none: Any = np.empty(0, np.int64)
    text = np.empty(0, np.str_)
    queries = [
        {
            "id": f"q{number}",
            "sink": f"n{sink[number]}",
            "operators": [
                {
                    "id": "j",
                    "kind": "join",
                    "inputs": [names[a], names[b]],
                    "match": "all",
                    "selectivity": float(share[number]),
                }
            ],
        }
        for number, (a, b) in enumerate(of_streams)
    ]
    whole = replace(
        pairs,
        joins=Joins(text, text, text, none),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
        queries=queries_of(queries),
    )
    return pairs, whole


def plan_of(problem: Problem, seed: int) -> Plan:
    """Every operator in a random grid of pieces, several of them on one node."""
    rng = np.random.default_rng([seed, 1])
    whole = Partitions.whole(problem)
    cuts, rows = {}, []
    for operator in range(len(whole.count) // 2):
        grid = rng.integers(1, 4, 2).tolist() if rng.random() < 0.6 else [1, 1]
        for side, count in enumerate(grid):
            parts = rng.uniform(0.2, 1, count)
            rate = whole.rate[2 * operator + side]
            cuts[2 * operator + side] = (
                rate * parts / parts.sum() if count > 1 else np.array([rate])
            )
        rows += [
            (operator, rng.integers(0, len(problem.nodes)), a, a + 1, b, b + 1)
            for a in range(grid[0])
            for b in range(grid[1])
        ]
    columns = np.array(rows, np.int64).T.copy()
    return Plan(problem, "random", "latency", whole.with_cuts(cuts), Instances(*columns))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_pair_is_the_smallest_query(seed: int) -> None:
    pairs, queries = (plan_of(problem, seed) for problem in both(seed))
    for mine, theirs in zip(pairs.links, queries.links, strict=True):
        # Graphs number their links differently.
        if mine is not pairs.links.logical:
            assert np.array_equal(mine, theirs)
    assert all(np.array_equal(*each) for each in zip(pairs.flows, queries.flows, strict=True))
    for name in ("load", "required_capacity", "output_rate", "path_latency"):
        assert np.array_equal(getattr(pairs, name), getattr(queries, name))
    assert np.array_equal(pairs.query_latency(), queries.query_latency())
    for objective in OBJECTIVES:
        value = pairs.objective_value(objective)
        assert value == pytest.approx(queries.objective_value(objective), rel=1e-12)
    found, wanted = evaluate(queries).to_dict(), evaluate(pairs).to_dict()
    assert found.keys() == wanted.keys()
    assert np.array_equal(queries.source_latency(), pairs.source_latency(), equal_nan=True)
    for name in ("estimated", "load", "arriving"):
        mine, theirs = found.pop(name), wanted.pop(name)
        assert mine.pop("objectives", {}) == pytest.approx(theirs.pop("objectives", {}))
        assert mine == pytest.approx(theirs, rel=1e-12, nan_ok=True)
    assert found == wanted
    assert verify(queries).counts == verify(pairs).counts
    one, other = edges(pairs), edges(queries)
    for name in ("link", "source", "target", "rate", "latency", "bandwidth", "offset", "begin"):
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_links_of_pairs_weigh_what_their_legs_do(seed: int) -> None:
    pairs, _ = both(seed)
    graph = graph_of(pairs)
    _, at_body = graph.at_body
    for objective in OBJECTIVES:
        legs = link_weights(graph, objective)[at_body].reshape(-1, 3)
        assert np.array_equal(legs, leg_weights(pairs, objective))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_objectives_are_means_over_replicas(seed: int) -> None:
    """Eq. 1 of the paper for every replica, against counting one leg at a time."""
    problem, _ = both(seed)
    plan = plan_of(problem, seed)
    i, total = plan.instances, 0.0
    weights = leg_weights(problem, "source-latency")
    for pair in range(len(problem.matrix)):
        mine = np.flatnonzero(i.pair == pair)
        for k in mine.tolist():
            left, right, sink = problem.pair_ends[pair].tolist()
            ends = np.array([[left, i.node[k]], [right, i.node[k]], [i.node[k], sink]])
            ms = problem.distance(ends[:, 0], ends[:, 1])
            total += float(weights[pair] @ ms) * i.replicas[k] / i.replicas[mine].sum()
    assert plan.objective_value("source-latency") == pytest.approx(total)


def test_a_graph_of_pairs_has_columns_and_names() -> None:
    problem, _ = both(3)
    graph = pair_graph(problem)
    pairs = len(problem.matrix)
    assert graph.names.tolist() == problem.pair_names().tolist()
    assert [graph.ids[int(one)] for one in graph.bodies] == graph.names.tolist()
    assert [KINDS[kind] for kind in np.unique(graph.kind)] == ["source", "join", "sink"]
    assert graph.bodies.tolist() == list(range(len(problem.sources), len(problem.sources) + pairs))
    assert np.array_equal(graph.required[graph.bodies], problem.required_capacity)
    for number, one in enumerate(graph):
        assert graph.ids.of(np.array([number])).tolist() == [one.id]
    assert len(graph.ways[0]) == 2 * pairs


def test_a_problem_keeps_the_graphs_that_were_made_of_it() -> None:
    _, queries = both(1)
    assert graph_of(queries) is graph_of(queries, AS_WRITTEN)
    assert graph_of(queries, Rewriting(True, True)) is not graph_of(queries)
