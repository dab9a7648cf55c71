"""Random complete plans whose data never goes around: sensors, workers in an order, a sink."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nova_core.io.validation import validate_problem
from nova_core.model import (
    Instances,
    JoinMatrix,
    Joins,
    Links,
    Nodes,
    Partitions,
    Plan,
    Problem,
    Routes,
    Sources,
)

WORKERS = 4


def nes_plan(seed: int, *, routes: bool = False, together: bool = False) -> Plan:
    """Two left sensors and a right one, each on a node (all on one if ``together``); cut joins."""
    rng = np.random.default_rng(seed)
    count = 3 + WORKERS + 1
    nodes = Nodes(
        ids=np.array([f"n {i}" for i in range(count)]),
        position=rng.uniform(0, 100, (count, 2)),
        capacity=np.full(count, np.inf),
        worker=np.ones(count, bool),
        host=np.array([f"10.0.0.{i}" for i in range(count)]),
    )
    sources = Sources(
        ids=np.array(["p/1", "p/2", "select"]),
        node=np.zeros(3, np.int64) if together else np.arange(3),
        stream=np.array(["pressure", "pressure", "humidity"]),
        rate=rng.choice([10.0, 25.0, 33.0], 3),
    )
    problem = validate_problem(
        Problem(
            nodes=nodes,
            sources=sources,
            joins=Joins(
                np.array(["climate"]),
                np.array(["pressure"]),
                np.array(["humidity"]),
                np.array([count - 1]),
            ),
            matrix=JoinMatrix(
                np.zeros(2, np.int64), np.array([0, 1]), np.array([2, 2]), np.full(2, 5.0)
            ),
            links=Links.none(),
        )
    )
    offset, rate, rows = [0], [], []
    for pair, left in enumerate((0, 1)):
        cut = [int(rng.integers(1, 4)), int(rng.integers(1, 4))]
        for source, pieces in zip((left, 2), cut, strict=True):
            share = rng.uniform(0.2, 1, pieces)
            rate += (sources.rate[source] * share / share.sum()).tolist()
            offset.append(len(rate))
        # One instance per left partition: both inputs of some are cut, of some only one.
        for a in range(cut[0]):
            node = int(rng.integers(3, count))
            rows.append((pair, node, a, a + 1, 0, cut[1]))
    instances = Instances(*np.array(rows, np.int64).T.copy())
    return Plan(
        problem=problem,
        strategy="random",
        objective="latency",
        partitions=Partitions(np.array(offset), np.array(rate)),
        instances=instances,
        routes=_routes(rng, problem, instances) if routes else None,
    )


def _routes(rng: np.random.Generator, problem: Problem, i: Instances) -> Routes:
    """Through workers in ascending order only, so that nothing comes back."""
    offset, node = [0], []
    sink = len(problem.nodes) - 1
    for k in range(len(i)):
        own = int(i.node[k])
        ends = (int(problem.left_node[i.pair[k]]), int(problem.right_node[i.pair[k]]))
        for begin, end in ((ends[0], own), (ends[1], own), (own, sink)):
            between = np.arange(max(begin + 1, 3), end)
            node += [begin, *between[rng.random(len(between)) < 0.4].tolist()]
            node += [] if begin == end else [end]
            offset.append(len(node))
    return Routes(np.array(offset, np.int64), np.array(node, np.int64))


def moved(plan: Plan, node: int) -> Plan:
    """The same plan with every join on one node."""
    return replace(
        plan,
        instances=replace(plan.instances, node=np.full(len(plan.instances), node)),
        routes=None,
    )
