"""A small query with columns on hosts with limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nova_core.io.binding import bound_queries
from nova_core.io.problem_document import queries_of
from nova_core.model.plan import Plan
from nova_core.model.problem import JoinMatrix, Joins, Nodes, PairLatencies, Problem, Sources
from nova_core.model.queries import Stream
from nova_research.costream.learned.candidates import Candidates, Enumerator, plan_of_nodes


def two_streams(filters: bool = True) -> Problem:
    """Two sources at the edge, a join behind a filter, an aggregate, and a sink among 9 nodes."""
    nodes, none = 9, np.empty(0, np.int64)
    begin, end = np.triu_indices(nodes, 1)
    position = np.random.default_rng(3).uniform(0, 60, (nodes, 2))
    ids = np.array(["edge-1", "edge-2", "hub", *(f"fog-{i}" for i in range(6))])
    some = {
        "kind": "filter", "id": "some", "input": "pressure", "selectivity": 0.2,
        "where": "value > 1.5",
    }  # fmt: skip
    first = "some" if filters else "pressure"
    operators: list[dict[str, Any]] = [
        *([some] if filters else []),
        {
            "kind": "join", "id": "pairs", "inputs": [first, "humidity"], "window": 2, "slide": 1,
            "on": "pressure.region = humidity.region", "selectivity": 0.5,
        },
        {
            "kind": "aggregate", "id": "mean", "input": "pairs", "window": 1, "groups": 5,
            "group_by": ["pressure.region"], "compute": {"mean": "mean(pressure.value)"},
        },
    ]  # fmt: skip
    problem = Problem(
        nodes=Nodes(
            ids=ids,
            position=position,
            capacity=np.full(nodes, np.inf),
            worker=np.ones(nodes, bool),
            memory=np.array([1, 1, 8, 2, 2, 4, 4, 8, 8]) * 1e9,
            cpu=np.array([0.5, 0.5, 8, 1, 1, 2, 2, 4, 4]),
        ),
        sources=Sources(
            ids=np.array(["a", "b"]),
            node=np.array([0, 1]),
            stream=np.array(["pressure", "humidity"]),
            rate=np.array([100.0, 50.0]),
            tuple_bytes=np.array([60.0, 40.0]),
        ),
        joins=Joins(np.empty(0, np.str_), np.empty(0, np.str_), np.empty(0, np.str_), none),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
        measured=PairLatencies(
            begin,
            end,
            np.linalg.norm(position[begin] - position[end], axis=1),
            np.full(len(begin), 50.0),
        ),
        streams=(
            Stream(id="pressure", columns={"region": "int", "value": "float", "name": "text"}),
            Stream(id="humidity", columns={"region": "int", "value": "float"}),
        ),
        queries=queries_of([{"id": "q", "sink": "hub", "operators": operators}]),
        name="two streams",
    )
    return replace(problem, queries=bound_queries(problem, "two streams"))


def hardware(
    problem: Problem, cpu: Sequence[float], gigabytes: Sequence[float], ms: float, mbit: float
) -> Problem:
    """The same with these first nodes' CPU and memory, and all links alike."""
    nodes, measured = problem.nodes, problem.measured
    assert nodes.cpu is not None and nodes.memory is not None and measured is not None
    more = len(nodes) - len(cpu)
    many = len(measured)
    return replace(
        problem,
        nodes=replace(
            nodes,
            cpu=np.array([*cpu, *nodes.cpu[-more:]], np.float64),
            memory=np.array([*gigabytes, *nodes.memory[-more:] / 1e9]) * 1e9,
        ),
        measured=PairLatencies(
            measured.source, measured.target, np.full(many, ms), np.full(many, mbit)
        ),
    )


def candidates(problem: Problem, count: int, seed: int) -> Candidates:
    """Up to `count` different placements of all of a problem's operators."""
    enumerator = Enumerator(problem)
    everything = np.arange(len(enumerator.graph.root))
    return enumerator.draw(everything, count, np.random.default_rng(seed))


def plan_at(found: Candidates, row: int) -> Plan:
    """One placement of all of a problem's operators as a plan."""
    nodes = np.zeros(len(found.graph.root), np.int64)
    nodes[found.operators] = found.nodes(row)
    return plan_of_nodes(found.problem, found.graph, nodes, "costream")
