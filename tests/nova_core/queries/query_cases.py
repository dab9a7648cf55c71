"""Small topologies and queries over them, and every way to place them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from nova_core.errors import ProblemError
from nova_core.io.assembly import Assembly
from nova_core.io.problem_document import ProblemDocument, queries_of
from nova_core.io.problem_writing import problem_document
from nova_core.io.syntax import convert
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, JoinMatrix, Joins, Nodes, Problem, Sources

STREAMS = 4


def topology(seed: int, nodes: int = 8, capacity: Floats | None = None) -> Problem:
    """Nodes in a square of 200 ms, two sources of different keys per stream."""
    rng = np.random.default_rng(seed)
    many, none = 2 * STREAMS, np.empty(0, np.int64)
    return Problem(
        nodes=Nodes(
            ids=np.array([f"n{i}" for i in range(nodes)]),
            position=rng.uniform(0, 200, (nodes, 2)),
            capacity=np.full(nodes, np.inf) if capacity is None else capacity,
            worker=np.ones(nodes, bool),
        ),
        sources=Sources(
            ids=np.array([f"s{i}" for i in range(many)]),
            node=rng.integers(0, nodes, many),
            stream=np.array([f"t{i // 2}" for i in range(many)]),
            rate=rng.integers(5, 60, many).astype(float),
            key=np.array([f"k{i % 2}" for i in range(many)]),
        ),
        joins=Joins(np.empty(0, np.str_), np.empty(0, np.str_), np.empty(0, np.str_), none),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
    )


def document(*operators: dict[str, Any], sink: str = "n0") -> list[dict[str, Any]]:
    return [{"id": "q", "sink": sink, "operators": list(operators)}]


def asking(problem: Problem, queries: Sequence[dict[str, Any]]) -> Problem:
    """The same problem with these queries."""
    return replace(problem, queries=queries_of(queries))


def chain(reads: bool = True, decomposable: bool = True, groups: int = 2) -> list[dict[str, Any]]:
    """A filter, two joins by key, a filter on one input, and an aggregate of both keys."""
    late = {"kind": "filter", "id": "late", "input": "abc", "selectivity": 0.4}
    return document(
        {"kind": "filter", "id": "hot", "input": "t0", "selectivity": 0.5},
        {"kind": "join", "id": "ab", "inputs": ["hot", "t1"], "selectivity": 0.5},
        {"kind": "join", "id": "abc", "inputs": ["ab", "t2"], "selectivity": 0.3},
        late | ({"reads": "t1"} if reads else {}),
        {
            "kind": "aggregate",
            "id": "mean",
            "input": "late",
            "window": 1,
            "groups": groups,
            "decomposable": decomposable,
        },
    )


def random_queries(seed: int) -> Problem:
    """Six queries over four streams of two keys; some have a part in common."""
    rng = np.random.default_rng(seed)
    nodes = 40
    capacity = np.floor(rng.exponential(size=nodes) * 150) + 30
    asked = []
    for number in range(6):
        a, b, c = (f"t{one}" for one in rng.choice(4, 3, replace=False))
        share = float(rng.choice([0.3, 0.5]))
        operators: list[dict[str, Any]] = [
            {"kind": "filter", "id": "some", "input": a, "selectivity": 0.5},
            {"kind": "join", "id": "two", "inputs": ["some", b], "selectivity": share},
        ]
        if rng.random() < 0.5:
            operators += [
                {"kind": "join", "id": "three", "inputs": ["two", c], "selectivity": 0.3},
                {"kind": "filter", "id": "few", "input": "three", "selectivity": 0.4, "reads": b},
            ]
        last = operators[-1]["id"]
        if rng.random() < 0.4:
            make = {"kind": "project", "id": "make", "input": last, "selectivity": 1.5}
            operators.append(make)
        else:
            mean = {"kind": "aggregate", "id": "mean", "input": last, "window": 1, "groups": 2,
                    "decomposable": bool(rng.random() < 0.7)}  # fmt: skip
            operators.append(mean)
        query = {"id": f"q{number}", "sink": f"n{rng.integers(nodes)}", "operators": operators}
        asked.append(query)
    return asking(topology(seed, nodes, capacity), asked)


def mixed(seed: int) -> Problem:
    """The same beside joins of pairs, of equal keys and of all, as a document has them."""
    joins = [
        {"id": "by-key", "left": "t0", "right": "t3", "sink": "n1", "selectivity": 0.5},
        {"id": "all", "left": "t1", "right": "t2", "sink": "n2", "match": "all"},
    ]
    return read_content(problem_document(random_queries(seed)) | {"query": {"operators": joins}})


def read_content(content: dict[str, Any]) -> Problem:
    """The problem of a document."""
    file = Path("mixed.yaml")
    return Assembly(convert(content, file, ProblemDocument, ProblemError), file).problem()


def best_whole(problem: Problem, objective: str) -> float:
    """The least objective of all placements that keep every operator whole; inf for none."""
    rewriting = Rewriting(True, True)
    graph = graph_of(problem, rewriting)
    bodies, required = graph.bodies.tolist(), graph.required
    least = np.inf
    for nodes in product(range(len(problem.nodes)), repeat=len(bodies)):
        load = np.bincount(nodes, required[bodies], len(problem.nodes))
        if (load > problem.nodes.capacity).any():
            continue
        plan = Plan(
            problem=problem,
            rewriting=rewriting,
            strategy="all",
            objective=objective,
            partitions=Partitions.uncut(graph.input_rate),
            instances=Instances.whole(np.array(nodes)),
        )
        least = min(least, plan.objective_value(objective))
    return least
