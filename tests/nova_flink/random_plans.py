"""Random problems, complete plans and workloads: cut inputs, shared nodes, relays, sinks."""

from __future__ import annotations

import os

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
)
from nova_core.model import Sources as SourceColumns
from nova_engines.flow import Match
from nova_engines.sources import Source, Sources


def random_plan(
    seed: int, *, nodes: int = 5, regions: int = 2, routes: bool = False, sinks: int = 1
) -> Plan:
    """A plan that joins every pair of every region exactly once, somewhere."""
    rng = np.random.default_rng(seed)
    rates = rng.choice([100.0, 200.0, 250.0], 2 * regions + 1)
    # One region has two pressure sensors, which both meet the one humidity sensor.
    region = np.append(np.repeat(np.arange(regions), 2), 0)
    stream = np.array(["pressure", "humidity"] * regions + ["pressure"])
    ids = np.array([f"{s}-{i}" for i, s in enumerate(stream)])
    cells = [
        (0, a, b)
        for a in range(len(ids))
        for b in range(len(ids))
        if stream[a] == "pressure" and stream[b] == "humidity" and region[a] == region[b]
    ]
    # With two sinks, the second pressure sensor's pair belongs to a join of its own.
    cells = [(sinks - 1 if a == len(ids) - 1 else 0, a, b) for _, a, b in cells]
    cells.sort()
    problem = validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array([f"n_{i}.x" for i in range(nodes)]),
                position=rng.uniform(0, 100, (nodes, 2)),
                capacity=np.full(nodes, np.inf),
                worker=np.ones(nodes, bool),
            ),
            sources=SourceColumns(
                ids=ids,
                node=rng.integers(0, nodes, len(ids)),
                stream=stream,
                rate=rates,
                key=np.array([f"region-{r}" for r in region]),
            ),
            joins=Joins(
                np.array([f"climate{i or ''}" for i in range(sinks)]),
                np.array(["pressure"] * sinks),
                np.array(["humidity"] * sinks),
                rng.permutation(nodes)[:sinks],
            ),
            matrix=JoinMatrix(*np.array(cells, np.int64).T.copy(), np.full(len(cells), 10.0)),
            links=Links.none(),
            name=f"random {seed}",
        )
    )
    offset, rate, rows = [0], [], []
    for pair, (_, left, right) in enumerate(cells):
        cut = rng.integers(1, 4, 2).tolist()
        for source, count in zip((left, right), cut, strict=True):
            share = rng.uniform(0.2, 1, count)
            rate += (rates[source] * share / share.sum()).tolist()
            offset.append(len(rate))
        boxes = _split(rng, (0, cut[0], 0, cut[1]))
        rows += [(pair, int(rng.integers(0, nodes)), *box) for box in boxes]
    instances = Instances(*np.array(rows, np.int64).T.copy())
    return Plan(
        problem=problem,
        strategy="random",
        objective="latency",
        partitions=Partitions(np.array(offset), np.array(rate)),
        instances=instances,
        routes=_routes(rng, problem, instances) if routes else None,
    )


# Length of windows in ms, keys, and which of them match.
SHAPES = ((50, 1, 1), (1, 1, 1), (200, 7, 1), (1000, 20, 4))
NODES = 3


def seeds(few: int) -> range:
    """Which of the plans that all engines are to run: a few, or as many as NOVA_PLANS says."""
    return range(1, 1 + int(os.environ.get("NOVA_PLANS", few)))


def plan_of(seed: int) -> Plan:
    """One of the plans that all engines are to run, on nodes n_0.x to n_2.x."""
    return random_plan(seed, nodes=NODES, routes=seed % 2 == 0, sinks=1 + seed % 3 // 2)


def match_of(seed: int) -> Match:
    """Which tuples match in it."""
    return Match(*SHAPES[seed % len(SHAPES)])


def _split(
    rng: np.random.Generator, box: tuple[int, int, int, int]
) -> list[tuple[int, int, int, int]]:
    """A grid of partitions as rectangles."""
    a, b, c, d = box
    if (b - a > 1 or d - c > 1) and rng.random() < 0.7:
        if d - c == 1 or (b - a > 1 and rng.random() < 0.5):
            at = int(rng.integers(a + 1, b))
            return [*_split(rng, (a, at, c, d)), *_split(rng, (at, b, c, d))]
        at = int(rng.integers(c + 1, d))
        return [*_split(rng, (a, b, c, at)), *_split(rng, (a, b, at, d))]
    return [box]


def _routes(rng: np.random.Generator, problem: Problem, i: Instances) -> Routes:
    offset, node = [0], []
    for k in range(len(i)):
        pair, own = int(i.pair[k]), int(i.node[k])
        for begin, end in (
            (int(problem.left_node[pair]), own),
            (int(problem.right_node[pair]), own),
            (own, int(problem.sink_node[pair])),
        ):
            relays = rng.integers(0, len(problem.nodes), int(rng.integers(0, 3))).tolist()
            node += [begin] if begin == end else [begin, *relays, end]
            offset.append(len(node))
    return Routes(np.array(offset, np.int64), np.array(node, np.int64))


def sources_of(problem: Problem, start_ms: int, *, seconds: float = 6) -> Sources:
    """Every source of a problem at its rate; values say which source and tuple they are of."""
    s = problem.sources
    assert s.key is not None
    return Sources(
        tuple(
            Source(
                source=str(s.ids[i]),
                rate=float(s.rate[i]),
                sensor=str(s.ids[i]),
                stream=str(s.stream[i]),
                region=str(s.key[i]),
                values=tuple(float(1000 * i + k) for k in range(7)),
            )
            for i in range(len(s))
        ),
        start_ms,
        count=int(seconds * 100),
    )
