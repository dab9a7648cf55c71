"""Whole queries on a generated topology, whose placement `guard` times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nova_core.io.problem_document import queries_of
from nova_core.model.problem import JoinMatrix, Joins, Nodes, Problem, Sources

KEYS = 2


def generated(nodes: int, seed: int) -> Problem:
    """A topology and three queries per ten nodes, each over three streams of two keys.

    A query is a filter, two joins by key, a filter on one of their inputs and an aggregate.
    Capacities are exponential, three times what the queries need in all.
    """
    random = np.random.default_rng(seed)
    count = max(1, 3 * nodes // 10)
    streams = max(3, count // 2)
    many, none = KEYS * streams, np.empty(0, np.int64)
    problem = Problem(
        nodes=Nodes(
            # As an array at once: a size that is too big is told before memory fills.
            ids=np.strings.add("n", np.arange(nodes).astype(f"U{len(str(nodes))}")),
            position=random.uniform(0, 200, (nodes, 2)),
            capacity=np.floor(random.exponential(size=nodes) * 120) + 1,
            worker=np.ones(nodes, bool),
        ),
        sources=Sources(
            ids=np.array([f"s{i}" for i in range(many)]),
            node=random.integers(0, nodes, many),
            stream=np.array([f"t{i // KEYS}" for i in range(many)]),
            rate=random.integers(5, 60, many).astype(float),
            key=np.array([f"k{i % KEYS}" for i in range(many)]),
        ),
        joins=Joins(np.empty(0, np.str_), np.empty(0, np.str_), np.empty(0, np.str_), none),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
    )
    queries = []
    for number in range(count):
        a, b, c = (f"t{one}" for one in random.choice(streams, 3, replace=False))
        operators: list[dict[str, Any]] = [
            {"kind": "filter", "id": "some", "input": a, "selectivity": 0.5},
            {"kind": "join", "id": "two", "inputs": ["some", b], "selectivity": 0.5},
            {"kind": "join", "id": "three", "inputs": ["two", c], "selectivity": 0.3},
            {"kind": "filter", "id": "few", "input": "three", "selectivity": 0.4, "reads": b},
            {"kind": "aggregate", "id": "mean", "input": "few", "window": 1, "groups": 2},
        ]
        sink = f"n{random.integers(nodes)}"
        queries.append({"id": f"q{number}", "sink": sink, "operators": operators})
    return replace(problem, queries=queries_of(queries))
