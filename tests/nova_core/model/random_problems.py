"""hypothesis strategies for problems and plans of every shape a document must hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from msgspec import UNSET

from nova_core.io.validation import validate_problem
from nova_core.model import (
    Instances,
    JoinMatrix,
    Joins,
    Links,
    Nodes,
    PairLatencies,
    Partitions,
    Plan,
    Problem,
    Routes,
    Sources,
)
from nova_core.model.requirements import Asks, RequiresPart, ZonesPart, some_asked

# Text that trips readers: words and numbers of YAML, CSV quotes, other scripts, Nova's own signs.
AWKWARD = [
    "null",
    "true",
    "no",
    "~",
    "1e5",
    "0x1f",
    "1_000",
    "12:30",
    "2024-01-01",
    "=",
    "nan",
    "-",
]
names = st.one_of(
    st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=6),
    st.sampled_from(AWKWARD),
    st.text(st.sampled_from("aé樹🌳/*#,;:'\"\\ {}[]&!|>%@`-?\ufeff\u200b"), min_size=1, max_size=5),
)
coordinates = st.floats(-1e9, 1e9)
rates = st.one_of(st.floats(1e-3, 1e9), st.integers(1, 200).map(float))
milliseconds = st.one_of(st.floats(0, 1e9), st.just(0.0), st.integers(0, 200).map(float))
amounts = st.one_of(st.floats(0, 1e12), st.just(0.0), st.integers(0, 200).map(float))


def column(draw: st.DrawFn, count: int, values: st.SearchStrategy[float]) -> np.ndarray:
    return draw(arrays(np.float64, count, elements=values, fill=st.nothing()))


def indices(draw: st.DrawFn, count: int, below: int) -> np.ndarray:
    return draw(arrays(np.int64, count, elements=st.integers(0, below - 1), fill=st.nothing()))


def distinct_names(draw: st.DrawFn, count: int) -> np.ndarray:
    return np.array(draw(st.lists(names, min_size=count, max_size=count, unique=True)), np.str_)


def some(draw: st.DrawFn, values: np.ndarray) -> np.ndarray | None:
    return values if draw(st.booleans()) else None


def given(kind: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Parts of a document, or none, with some of their fields."""
    some = st.fixed_dictionaries({}, optional=fields).map(lambda values: kind(**values))
    return st.one_of(st.just(UNSET), some)


LABELS = st.lists(st.sampled_from(["gpu", "arm64", "ß"]), min_size=1, max_size=2)
requirements = given(RequiresPart, tags=st.one_of(st.just([]), LABELS), memory=amounts)
asks = st.builds(Asks, requires=requirements, zones=given(ZonesPart, allow=LABELS, forbid=LABELS))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Valid problems with every optional column now and then."""
    count = draw(st.integers(2, 6))
    joins = draw(st.integers(1, 2))
    per_side = draw(st.integers(1, 3))
    ids = distinct_names(draw, count)
    unknown = st.one_of(st.just(np.nan), amounts)
    capacity = column(draw, count, st.one_of(amounts, st.just(np.inf)))
    sinks = indices(draw, joins, count)
    capacity[sinks] = np.inf
    worker = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    worker[draw(st.integers(0, count - 1))] = True
    tags = st.lists(st.sampled_from(["gpu", "arm64", "ß"]), max_size=2).map(",".join)
    texts = st.one_of(st.just(""), names)
    hosts = st.sampled_from(["", "10.0.0.1", "fe80::1", "pi-01.example"])
    nodes = Nodes(
        ids=ids,
        position=column(draw, count * draw(st.integers(1, 4)), coordinates).reshape(count, -1),
        capacity=capacity,
        worker=worker,
        memory=some(draw, column(draw, count, unknown)),
        cost=some(draw, column(draw, count, unknown)),
        tags=some(draw, np.array([draw(tags) for _ in range(count)], np.str_)),
        host=some(draw, np.array([draw(hosts) for _ in range(count)], np.str_)),
        height=some(draw, column(draw, count, milliseconds)),
        penalty=some(draw, column(draw, count, amounts)),
        cpu=some(draw, column(draw, count, unknown)),
        zone=some(draw, np.array([draw(texts) for _ in range(count)], np.str_)),
    )
    axes = st.integers(0, nodes.position.shape[1] - 1)
    total = 2 * per_side * joins
    streams = distinct_names(draw, 2 * joins)
    stream = np.repeat(np.arange(2 * joins), per_side)
    sizes = column(draw, total, st.one_of(st.just(np.nan), st.floats(1, 1e6)))
    sources = Sources(
        ids=distinct_names(draw, total),
        node=indices(draw, total, count),
        stream=streams[stream],
        rate=column(draw, total, rates),
        tuple_bytes=some(draw, sizes),
        key=some(draw, np.array([draw(texts) for _ in range(total)], np.str_)),
    )
    cells = np.array(
        [
            (join, 2 * join * per_side + left, (2 * join + 1) * per_side + right)
            for join in range(joins)
            for left in range(per_side)
            for right in range(per_side)
        ]
    )
    rows = draw(st.permutations(range(len(cells))))[: draw(st.integers(1, len(cells)))]
    chosen = cells[rows]
    matrix = JoinMatrix(*chosen.T.copy(), column(draw, len(chosen), rates))
    return validate_problem(
        Problem(
            nodes=nodes,
            sources=sources,
            joins=Joins(
                distinct_names(draw, joins),
                streams[0::2],
                streams[1::2],
                sinks,
                asks=some_asked([draw(asks) for _ in range(joins)]),
            ),
            matrix=matrix,
            links=Links(*_node_pairs(draw, count, True, amounts)),
            latency=some(draw, _dense(draw, count)),
            name=draw(names),
            measured=some(draw, _measured(draw, count)),
            metrics=tuple(distinct_names(draw, draw(axes)).tolist()),
        )
    )


def _measured(draw: st.DrawFn, count: int) -> PairLatencies:
    source, target, latency = _node_pairs(draw, count, False, milliseconds)
    sizes = st.one_of(st.just(np.nan), st.floats(1, 1e6))
    mbit = some(draw, column(draw, len(source), sizes)) if len(source) else None
    return PairLatencies(source, target, latency, mbit)


def _node_pairs(
    draw: st.DrawFn, count: int, directed: bool, values: st.SearchStrategy[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    every = [(a, b) for a in range(count) for b in range(count) if a < b or (directed and a > b)]
    chosen = draw(st.lists(st.sampled_from(every), unique=True, max_size=4))
    ends = np.array(chosen, np.int64).reshape(-1, 2)
    return ends[:, 0].copy(), ends[:, 1].copy(), column(draw, len(ends), values)


def _dense(draw: st.DrawFn, count: int) -> np.ndarray:
    half = np.triu(column(draw, count * count, st.floats(0, 1e6)).reshape(count, count), 1)
    return half + half.T


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of random problems: cut inputs, instances that share a node, routes.

    They need not be good, nor complete: a bad plan must be readable too, so that checking it can
    say so.
    """
    problem = draw(problems())
    pairs, count = len(problem.matrix), len(problem.nodes)
    inputs = np.array(draw(st.lists(st.integers(1, 4), min_size=2 * pairs, max_size=2 * pairs)))
    offset = np.concatenate(([0], np.cumsum(inputs)))
    partitions = Partitions(offset, column(draw, int(offset[-1]), rates))
    if draw(st.booleans()):
        whole = np.stack([problem.left_rate, problem.right_rate], axis=1).ravel()
        single = inputs == 1
        partitions.rate[offset[:-1][single]] = whole[single]
    rows = []
    for pair in range(pairs):
        for _ in range(draw(st.integers(0, 3))):
            bounds = []
            for side in (0, 1):
                begin = draw(st.integers(0, int(inputs[2 * pair + side]) - 1))
                bounds += [begin, draw(st.integers(begin + 1, int(inputs[2 * pair + side])))]
            rows.append((pair, draw(st.integers(0, count - 1)), *bounds))
    instances = Instances(*np.array(rows, np.int64).reshape(-1, 6).T.copy())
    dimensions = problem.nodes.position.shape[1]
    virtual = column(draw, pairs * dimensions, coordinates).reshape(pairs, dimensions)
    virtual[np.array(draw(st.lists(st.booleans(), min_size=pairs, max_size=pairs)))] = np.nan
    values = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(-1e300, 1e300), st.text()),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
        max_leaves=4,
    )
    return Plan(
        problem=problem,
        strategy=draw(st.text(max_size=5)),
        objective=draw(st.sampled_from(["latency", "network-usage", "made-up"])),
        partitions=partitions,
        instances=instances,
        parameters=draw(st.dictionaries(st.text(max_size=4), values, max_size=3)),
        virtual_position=some(draw, virtual),
        routes=_routes(draw, problem, instances) if rows and draw(st.booleans()) else None,
        breaks=tuple(draw(st.lists(st.sampled_from(["capacity", "worker"]), max_size=2))),
        notes=draw(st.dictionaries(st.text(max_size=4), values, max_size=2)),
    )


def _routes(draw: st.DrawFn, problem: Problem, i: Instances) -> Routes:
    offset, node = [0], []
    for k in range(len(i)):
        pair, own = int(i.pair[k]), int(i.node[k])
        for begin, end in (
            (problem.left_node[pair], own),
            (problem.right_node[pair], own),
            (own, problem.sink_node[pair]),
        ):
            relays = draw(st.lists(st.integers(0, len(problem.nodes) - 1), max_size=2))
            node += [int(begin), *relays, int(end)]
            offset.append(len(node))
    return Routes(np.array(offset, np.int64), np.array(node, np.int64))
