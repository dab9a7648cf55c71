"""Random problems of queries with columns, readings for them, and random plans."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from click.testing import CliRunner

from nova_core import read_problem
from nova_core.cli import cli
from nova_core.model import Instances, Partitions, Problem
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.graph import Graph
from nova_core.model.plan import Plan

START_MS = 1_700_000_000_000
KEYS = ("north", "süd")
STREAMS = ("heat", "strain", "torque", "flux")
# Values of the column n, by which joins are cut.
NUMBERS = 12
# Those of the first forty whose queries have results, the smallest jobs first.
SEEDS = (11, 21, 30, 37, 34, 23, 38, 35, 28, 9, 27, 14, 17, 1, 25, 5, 36, 26, 13, 3, 12, 6, 19)
SEEDS += (31, 39, 8, 20, 15, 4, 7)
WINDOWS = ((0.01, None), (0.05, None), (0.25, None), (1.0, None), (2.0, None))
WINDOWS += ((0.1, 0.05), (0.5, 0.2), (2.0, 1.0))


def seeds(few: int) -> tuple[int, ...]:
    """Which queries an engine is to run: a few, or as many as NOVA_PLANS says."""
    return SEEDS[: int(os.environ.get("NOVA_PLANS", few))]


def random_problem(seed: int, directory: Path, *, nodes: int = 3, seconds: float = 3.0) -> Problem:
    """A problem of a query of 2 to 9 operators and one of its first ones, and its readings."""
    rng = np.random.default_rng(seed)
    joins = int(rng.integers(0, 4))
    streams = list(rng.permutation(STREAMS)[: joins + 1])
    names = [f"n_{i}.x" for i in range(nodes)]
    sources = []
    for stream in streams:
        for key in KEYS:
            rate = int(rng.integers(12, 24))
            sources.append(
                {
                    "id": f"{stream}-{key}",
                    "node": str(rng.choice(names)),
                    "stream": str(stream),
                    "rate": rate,
                    "key": key,
                }
            )
            _readings(rng, directory / f"{stream}-{key}.csv", key, rate, seconds)
    columns = {"place": "text", "value": "float", "n": "int"}
    document: dict[str, Any] = {
        "nova": 1,
        "name": f"random {seed}",
        "nodes": [
            {"id": n, "position": rng.uniform(0, 50, 2).tolist(), "capacity": "unlimited"}
            | {"worker": True}
            for n in names
        ],
        "sources": sources,
        "streams": [{"id": str(s), "columns": columns, "key": "place"} for s in streams],
        "queries": [
            {"id": "q", "sink": str(rng.choice(names)), "operators": _operators(rng, streams)}
        ],
    }
    # Another sink takes what one of the operators emits.
    operators = document["queries"][0]["operators"]
    early = np.random.default_rng([seed, 2]).integers(1, len(operators) + 1)
    document["queries"].append({"id": "early", "sink": names[0], "operators": operators[:early]})
    path = directory / "problem.yaml"
    path.write_text(yaml.safe_dump(document, allow_unicode=True))
    return read_problem(path)


def sources_file(problem: Path, readings: Path, speed: float = 1.0) -> Path:
    """What `nova query sources` makes of readings."""
    made = problem.parent / "sources"
    command = ["query", "sources", str(problem), "--readings", str(readings), "-o", str(made)]
    done = CliRunner().invoke(cli, [*command, "--speed", str(speed)])
    assert done.exit_code == 0, done.output
    return made / "sources.json"


def compared(problem: Path, readings: Path, query: str, results: Path) -> str:
    """What `nova query reference` says of a file of results; they are right."""
    command = ["query", "reference", str(problem), "--readings", str(readings), "--query", query]
    done = CliRunner().invoke(cli, [*command, "--check", str(results)])
    assert done.exit_code == 0, done.output
    return done.output


def _readings(rng: Any, path: Path, key: str, rate: int, seconds: float) -> None:
    times = np.sort(rng.integers(0, int(seconds * 1000), int(rate * seconds))) + START_MS
    # Eighths add up exactly, in whatever order.
    rows = [f"{t},{key},{rng.integers(-400, 400) / 8},{rng.integers(0, NUMBERS)}" for t in times]
    path.write_text("\n".join(["time,place,value,n", *rows]) + "\n", encoding="utf-8")


def _operators(rng: Any, streams: list[Any]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    size, slide = WINDOWS[rng.integers(0, len(WINDOWS))]
    window = {"window": size, **({} if slide is None else {"slide": slide})}
    last, first = str(streams[0]), str(streams[0])
    for number, other in enumerate(map(str, streams[1:]), 1):
        how = rng.integers(0, 3)
        on = f"{first}.n = {other}.n AND abs({first}.value - {other}.value) <= 40"
        if how < 2:
            on = f"{first}.place = {other}.place AND {on}"
        if how == 1:
            on += f" AND {first}.value < {other}.value + 30.5"
        hot = {"values": [KEYS[0], 3] if how < 2 else [3], "left": 0.3, "right": 0.2}
        made.append(
            {"id": f"j{number}", "kind": "join", "inputs": [last, other], "on": on, **window}
            | {"keys": NUMBERS, "hot": [hot]}
        )
        last = f"j{number}"
    for number, stream in enumerate(map(str, streams), 1):
        if rng.random() < 0.5 or (len(streams) == 1):
            condition = [f"{stream}.value > -20", f"{stream}.n <> 3 OR {stream}.value >= 0"]
            made.append(
                {"id": f"f{number}", "kind": "filter", "input": last, "reads": stream}
                | {"where": condition[rng.integers(0, 2)]}
            )
            if last == stream:
                del made[-1]["reads"]
            last = f"f{number}"
    if rng.random() < 0.7:
        by = [[], [f"{first}.place"], [f"{first}.n"], [f"{first}.place", f"{first}.n"]]
        group = by[rng.integers(0, 4)]
        if rng.random() < 0.3:
            window = {"window": 1.0}
        compute = {"count": "count()", "total": f"sum({first}.value * 2)"}
        compute |= {"mean": f"mean({first}.n)", "low": f"min({first}.value)"}
        made.append(
            {"id": "a", "kind": "aggregate", "input": last, "group_by": group}
            | {"groups": 4 if group else 1, "compute": compute, **window}
        )
        if rng.random() < 0.5:
            made.append({"id": "h", "kind": "filter", "input": "a", "where": "count > 1"})
    elif len(made) < 2:
        values = {"v": f"{first}.value / 2 - 1", "n": f"-{first}.n", "place": f"{first}.place"}
        made.append({"id": "s", "kind": "project", "input": last, "columns": values})
    return made


def random_query_plan(seed: int, problem: Problem) -> Plan:
    """Every operator somewhere, whole or in pieces."""
    rng = np.random.default_rng([seed, 1])
    rewriting = Rewriting(*(bool(rng.random() < 0.7) for _ in Rewriting._fields))
    graph = graph_of(problem, rewriting)
    rates: list[float] = []
    offset, rows = [0], []
    by_key = np.zeros(len(graph.bodies), bool)
    for pair, body in enumerate(graph.bodies.tolist()):
        by_key[pair] = graph[body].kind == "join" and rng.random() < 0.4
        pieces = _pieces_by_key if by_key[pair] else _pieces
        cut, instances = pieces(rng, graph, body, len(problem.nodes), len(rows))
        for column in cut:
            rates += column
            offset.append(len(rates))
        rows += [(pair, *one) for one in instances]
    columns = np.array(rows, np.int64).reshape(-1, 7).T.copy()
    return Plan(
        problem=problem,
        strategy="random",
        objective="latency",
        partitions=Partitions(np.array(offset), np.array(rates), by_key),
        instances=Instances(*columns),
        rewriting=rewriting,
    )


def _pieces(
    rng: Any, graph: Graph, body: int, nodes: int, before: int
) -> tuple[list[list[float]], list[tuple[int, ...]]]:
    """Partitions of both inputs; node, ranges and feeds of each instance."""
    one = graph[body]
    inputs = [graph[i].rate for i in one.inputs]

    def node() -> int:
        return int(rng.integers(0, nodes))

    if one.kind == "join":
        counts = rng.integers(1, 3, 2).tolist() if rng.random() < 0.5 else [1, 1]
        cut = []
        for rate, count in zip(inputs, counts, strict=True):
            share = rng.uniform(0.2, 1, count)
            cut.append((rate * share / share.sum()).tolist())
        return cut, [
            (node(), a, a + 1, b, b + 1, -1) for a in range(counts[0]) for b in range(counts[1])
        ]
    total = float(sum(inputs))
    if graph.combines[body] and len(inputs) > 1 and rng.random() < 0.6:
        half = int(rng.integers(1, len(inputs)))
        root = (node(), 0, 0, 0, 1, -1)
        parts = [(0, half), (half, len(inputs))]
        return [inputs, [0.0]], [root, *((node(), a, b, 0, 1, before) for a, b in parts)]
    count = int(rng.integers(1, 4)) if graph.parts[body] > 1 else 1
    return [[total / count] * count, [0.0]], [(node(), i, i + 1, 0, 1, -1) for i in range(count)]


def _pieces_by_key(
    rng: Any, graph: Graph, body: int, nodes: int, _: int
) -> tuple[list[list[float]], list[tuple[int, ...]]]:
    """Ranges of a join's keys, each an instance."""
    left, right = (graph[one].rate for one in graph[body].inputs)
    share = rng.uniform(0.2, 1, int(rng.integers(2, 5)))
    cut = [(left * share / share.sum()).tolist(), [right]]
    return cut, [(int(rng.integers(0, nodes)), i, i + 1, 0, 1, -1) for i in range(len(share))]
