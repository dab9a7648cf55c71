"""Reordered queries: the same results with fewer tuples, from orders that may be changed."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_core.cli import cli
from nova_core.io.binding import bind
from nova_core.io.files import read_problem, write_problem
from nova_core.model.expansion import graph_of
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.strategies import place
from nova_research.whitewater.reordering import reordered

SOME = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# Four streams of two keys, the first much faster than the others.
RATES = {"a": 40.0, "b": 20.0, "c": 5.0, "d": 10.0}
COLUMNS = {"k": "text", "v": "int"}


def written(
    folder: Path, *operators: dict[str, Any], columns: bool = False, **more: Any
) -> Problem:
    """A problem as people write it."""
    document = {
        "nova": 1,
        "nodes": [
            {"id": "cloud", "position": [0, 0], "capacity": "unlimited", "worker": True},
            *({"id": f"n{i}", "position": [50, 10 * i], "capacity": 1000} for i in range(4)),
        ],
        "sources": [
            {
                "id": f"{name}{key}",
                "node": f"n{row}",
                "stream": name,
                "rate": rate,
                "key": f"k{key}",
            }
            for row, (name, rate) in enumerate(RATES.items())
            for key in range(2)
        ],
        "queries": [{"id": "q", "sink": "cloud", "operators": list(operators), **more}],
    }
    if columns:
        document["streams"] = [{"id": x, "columns": COLUMNS, "key": "k"} for x in RATES]
    (folder / "problem.yaml").write_text(yaml.safe_dump(document))
    return read_problem(folder / "problem.yaml")


def join(name: str, left: str, right: str, share: float, **more: Any) -> dict[str, Any]:
    return {"kind": "join", "id": name, "inputs": [left, right], "selectivity": share, **more}


def emitted(problem: Problem) -> float:
    """Tuples/s that reach the sink."""
    graph = graph_of(problem)
    return sum(graph[one].rate for one in graph[len(graph) - 1].inputs)


def received(problem: Problem) -> float:
    """Tuples/s that joins receive."""
    graph = graph_of(problem)
    return sum(float(graph.required[n]) for n, one in enumerate(graph) if one.kind == "join")


def test_the_selective_join_comes_first(tmp_path: Path) -> None:
    problem = written(tmp_path, join("ab", "a", "b", 2.0), join("abc", "ab", "c", 0.1))
    changed, [order] = reordered(problem)
    assert (order.before, order.after) == ("((a * b) * c)", "((a * c) * b)")
    assert order.reordered < order.load
    assert order.load == pytest.approx(received(problem))
    assert order.reordered == pytest.approx(received(changed))
    assert emitted(changed) == pytest.approx(emitted(problem))
    assert verify(place(changed)).ok
    usage = "network-usage"
    plans = [place(one, "sink").objective_value(usage) for one in (problem, changed)]
    assert plans[1] == pytest.approx(plans[0])  # all streams go there in any order


def test_a_filter_goes_before_the_joins(tmp_path: Path) -> None:
    problem = written(
        tmp_path,
        join("ab", "a", "b", 0.5),
        {"kind": "filter", "id": "hot", "input": "ab", "selectivity": 0.1, "reads": "a"},
        {"kind": "aggregate", "id": "mean", "input": "hot", "by": "key", "window": 1},
    )
    changed, [order] = reordered(problem)
    assert order.after == "mean((hot(a) * b))"
    assert emitted(changed) == pytest.approx(emitted(problem))


@pytest.mark.parametrize(
    "second",
    [
        join("abc", "ab", "c", 0.01, match="all"),
        join("abc", "ab", "c", 0.01, window=5),
        {"kind": "aggregate", "id": "mean", "input": "ab", "by": "key", "window": 1},
    ],
)
def test_what_may_not_change_places_stays(tmp_path: Path, second: dict[str, Any]) -> None:
    """Joins of other windows or other pairs of sources, and aggregates."""
    problem = written(tmp_path, join("ab", "a", "b", 2.0), second)
    changed, [order] = reordered(problem)
    assert order.after == order.before
    assert changed.same_as(problem)


def test_an_operator_that_two_read_stays_where_it_is(tmp_path: Path) -> None:
    problem = written(
        tmp_path,
        join("ab", "a", "b", 2.0),
        {"kind": "filter", "id": "few", "input": "ab", "selectivity": 0.1, "reads": "a"},
        join("abc", "ab", "c", 0.1),
        join("all", "few", "abc", 0.1),
    )
    _, [order] = reordered(problem)
    assert order.after.count("(a * b)") == 2


@SOME
@given(
    seed=st.integers(0, 10_000),
    shares=st.lists(st.sampled_from([0.01, 0.3, 1.0, 4.0]), min_size=6, max_size=6),
)
def test_queries_emit_what_they_did(tmp_path: Path, seed: int, shares: list[float]) -> None:
    draw = random.Random(seed)
    names, operators = list(RATES), []
    draw.shuffle(names)
    top = names[0]
    for row, (name, share) in enumerate(zip(names[1:], shares, strict=False)):
        operators.append(join(f"j{row}", *draw.sample([top, name], 2), share))
        top = f"j{row}"
        if draw.random() < 0.6:
            filtered = {"kind": "filter", "id": f"f{row}", "input": top}
            read = draw.choice([*names[: row + 2], None])
            filtered |= {"selectivity": min(1.0, shares[row + 3])}
            operators.append(filtered | ({"reads": read} if read else {}))
            top = f"f{row}"
    problem = written(tmp_path, *operators)
    changed, [order] = reordered(problem, seed)
    assert emitted(changed) == pytest.approx(emitted(problem), rel=1e-9)
    assert order.reordered <= order.load * (1 + 1e-9)
    assert received(changed) == pytest.approx(order.reordered)
    ids = [{one.id for one in problem.queries[0].operators} for problem in (problem, changed)]
    assert ids[0] == ids[1]
    write_problem(changed, tmp_path / "changed.yaml")
    again = read_problem(tmp_path / "changed.yaml")
    assert again.same_as(replace(changed, name=again.name))


@pytest.mark.parametrize("seed", range(6))
def test_results_over_readings_are_the_same(tmp_path: Path, seed: int) -> None:
    from nova_workloads.queries.readings import connection, load
    from nova_workloads.queries.reference import expected

    draw = random.Random(seed)
    conditions = ["a.k = b.k AND a.v < b.v", "b.k = c.k", "c.k = d.k AND c.v <= d.v + 1"]
    operators, top = [], "a"
    for row, (name, on) in enumerate(zip("bcd", conditions, strict=True)):
        share = draw.choice([0.05, 1.0, 3.0])
        operators.append(join(f"j{row}", top, name, share, on=on, window=1))
        top = f"j{row}"
    operators.append(
        {"kind": "filter", "id": "f", "input": top, "where": "b.v > 2", "selectivity": 0.5}
    )
    problem = written(tmp_path, *operators, columns=True)
    readings = tmp_path / "readings"
    readings.mkdir()
    for source in problem.sources.ids.tolist():
        with (readings / f"{source}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["time", "k", "v"])
            times = sorted(draw.sample(range(3000), 12))
            rows.writerows([time, f"k{source[1]}", draw.randrange(6)] for time in times)
    changed, [order] = reordered(problem, seed)
    assert order.after != order.before
    found = []
    for one in (problem, changed):
        database = connection()
        load(database, one, readings)
        [query] = one.queries
        names = ["time", *(c.text for c in bind(query, one)[query.operators[-1].id].columns)]
        rows = expected(database, one, query)
        found.append(sorted(tuple(sorted(zip(names, row, strict=True))) for row in rows))
    assert found[0] == found[1]
    assert len(found[0]) > 0


def test_the_command_writes_a_problem_that_can_be_compared(tmp_path: Path) -> None:
    written(tmp_path, join("ab", "a", "b", 2.0), join("abc", "ab", "c", 0.1))
    new = tmp_path / "new.yaml"

    def nova(*arguments: str) -> Any:
        return CliRunner().invoke(cli, arguments, prog_name="nova")

    said = nova("query", "reorder", str(tmp_path / "problem.yaml"), "-o", str(new))
    assert said.exit_code == 0, said.output
    assert "((a * c) * b)" in said.output
    [found] = json.loads(nova("query", "reorder", str(new), "--json").stdout)["queries"]
    assert found["after"] == found["before"] == "((a * c) * b)"
    compared = nova("compare", str(new), "nova", "whitewater-tabu", "nes-bottom-up")
    assert compared.exit_code == 0, compared.output
