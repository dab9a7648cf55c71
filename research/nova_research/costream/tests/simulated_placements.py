"""Small plans of whole queries on hosts with limits, for tests of the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova_core.io.problem_document import queries_of
from nova_core.model.plan import Plan
from nova_core.model.problem import JoinMatrix, Joins, Nodes, PairLatencies, Problem, Sources

FILTER = {"kind": "filter", "id": "f", "input": "t0", "selectivity": 0.5}


def join(window: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"kind": "join", "id": "j", "inputs": ["f", "t1"], "window": window, "keys": 50} | fields


def aggregate(window: float = 1.0, of: str = "j", **fields: Any) -> dict[str, Any]:
    return {"kind": "aggregate", "id": "a", "input": of, "window": window, "groups": 5} | fields


def problem_on(
    operators: Sequence[dict[str, Any]],
    rates: Sequence[float],
    *,
    nodes: int = 4,
    cpu: float = 1.0,
    memory: float = 2e9,
    ms: float = 10.0,
    mbit: float = 100.0,
    tuple_bytes: float = 60.0,
) -> Problem:
    """A source per stream ``t0``, ``t1``, ... on the first nodes, the sink on the last one."""
    begin, end = np.triu_indices(nodes, 1)
    none, many = np.empty(0, np.int64), len(rates)
    return Problem(
        nodes=Nodes(
            ids=np.array([f"n{i}" for i in range(nodes)]),
            position=np.zeros((nodes, 2)),
            capacity=np.full(nodes, np.inf),
            worker=np.ones(nodes, bool),
            memory=np.full(nodes, memory),
            cpu=np.full(nodes, cpu),
        ),
        sources=Sources(
            ids=np.array([f"s{i}" for i in range(many)]),
            node=np.arange(many) % nodes,
            stream=np.array([f"t{i}" for i in range(many)]),
            rate=np.array(rates, np.float64),
            tuple_bytes=np.full(many, tuple_bytes),
        ),
        joins=Joins(np.empty(0, np.str_), np.empty(0, np.str_), np.empty(0, np.str_), none),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
        measured=PairLatencies(begin, end, np.full(len(begin), ms), np.full(len(begin), mbit)),
        queries=queries_of([{"id": "q", "sink": f"n{nodes - 1}", "operators": list(operators)}]),
    )


def plan_on(problem: Problem, hosts: Sequence[int]) -> Plan:
    """Every operator whole on the given node."""
    return Plan.whole(problem, np.array(hosts, np.int64), "by hand")
