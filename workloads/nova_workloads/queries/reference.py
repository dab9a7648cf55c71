"""Expected results of queries: the same queries over the same readings by DuckDB, one process."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.io.binding import Bound, Window, bind
from nova_core.io.expressions import Call, Column, Constant, Expression
from nova_engines.results import read, row_fields
from nova_workloads.comparison import EXAMPLES, Comparison
from nova_workloads.queries.readings import quoted, table_of

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_core.model.queries import Query

TOLERANCE = 1e-9
"""Floats that differ by this share of the larger, or of 1, are equal: sums depend on order."""

ResultRow = tuple[int | float | str, ...]
"""Event time in ms, then the columns."""

_SUMS = {"int": "BIGINT", "float": "DOUBLE"}


def _sql(one: Expression, columns: Sequence[Column], names: Sequence[str]) -> str:
    """An expression in DuckDB's SQL, with the types of the language."""
    if isinstance(one, Column):
        return names[columns.index(one)]
    if isinstance(one, Constant):
        if isinstance(one.value, str):
            return one.text
        kind = "BIGINT" if isinstance(one.value, int) else "DOUBLE"
        return f"CAST('{one.value!r}' AS {kind})"
    parts = [_sql(part, columns, names) for part in one.of]
    if one.name == "negative":
        return f"(-{parts[0]})"
    if one.name == "NOT":
        return f"(NOT {parts[0]})"
    if one.name == "abs":
        return f"abs({parts[0]})"
    if one.name == "/":
        return f"(CAST({parts[0]} AS DOUBLE) / CAST({parts[1]} AS DOUBLE))"
    return f"({parts[0]} {one.name} {parts[1]})"


def _aggregate(call: Call, columns: Sequence[Column], names: Sequence[str]) -> str:
    if call.name == "count":
        return "count(*)"
    of = _sql(call.of[0], columns, names)
    if call.name == "mean":
        return f"avg({of})"
    return f"CAST({call.name}({of}) AS {_SUMS[call.type]})"


def _windowed(source: str, window: Window, is_windowed: bool) -> str:
    """A row of every tuple for every window it is in, with the window's end as ``w``."""
    if is_windowed:
        return f"SELECT t + 1 AS w, * FROM {source}"
    size, slide = window.size_ms, window.slide_ms
    begin = f"(t - ((t % {slide}) + {slide}) % {slide})"
    last = f"(({size - 1} - (t - {begin})) // {slide})"
    return (
        f"SELECT {begin} - i * {slide} + {size} AS w, * EXCLUDE (i) FROM "
        f"(SELECT *, unnest(generate_series(0, CAST({last} AS BIGINT))) AS i FROM {source})"
    )


def _select(one: Bound, inputs: Sequence[Bound], sources: Sequence[str]) -> str:
    """The SELECT of an operator over its inputs, whose columns are ``t``, ``c0``, ``c1``, ..."""
    above = inputs[0].columns
    own = [f"c{i}" for i in range(len(above))]
    if one.kind == "filter":
        assert one.condition is not None  # a filter has one
        return f"SELECT * FROM {sources[0]} WHERE {_sql(one.condition, above, own)}"
    if one.kind == "project":
        projected = [f"{_sql(part, above, own)} AS c{i}" for i, part in enumerate(one.made)]
        return f"SELECT t, {', '.join(projected)} FROM {sources[0]}"
    assert one.window is not None  # joins and aggregates have one
    views = [
        _windowed(source, one.window, of.windows == one.window)
        for of, source in zip(inputs, sources, strict=True)
    ]
    if one.kind == "aggregate":
        groups = [own[above.index(column)] for column in one.groups]
        values = [*groups, *(_aggregate(call, above, own) for call in one.computed)]
        emitted = [f"{value} AS c{i}" for i, value in enumerate(values)]
        by = ", ".join(["w", *groups])
        return f"SELECT w - 1 AS t, {', '.join(emitted)} FROM ({views[0]}) GROUP BY {by}"
    names = [f"a.c{i}" for i in range(len(above))]
    names += [f"b.c{i}" for i in range(len(inputs[1].columns))]
    emitted = [f"{name} AS c{i}" for i, name in enumerate(names)]
    condition = "TRUE" if one.condition is None else _sql(one.condition, one.columns, names)
    return (
        f"SELECT a.w - 1 AS t, {', '.join(emitted)} FROM ({views[0]}) a JOIN ({views[1]}) b "
        f"ON a.w = b.w AND {condition}"
    )


def evaluate(database: Any, problem: Problem, query: Query) -> dict[str, str]:
    """Make a table of what every operator of a query emits.

    Args:
        database: with the readings (`nova_workloads.queries.readings.load`).
        problem: that has the query.
        query: one of its queries.

    Returns:
        The table of every stream and operator, by id.
    """
    tables: dict[str, str] = {}
    bound = bind(query, problem)
    for one in bound.values():
        if one.kind == "stream":
            tables[one.id] = f"(SELECT * EXCLUDE (source) FROM {table_of(one.id)})"
            continue
        inputs = [bound[name] for name in one.inputs]
        select = _select(one, inputs, [tables[name] for name in one.inputs])
        tables[one.id] = quoted(f"{query.id}/{one.id}")
        database.execute(f"CREATE OR REPLACE TABLE {tables[one.id]} AS {select}")
    return tables


def expected(database: Any, problem: Problem, query: Query) -> list[ResultRow]:
    """All results of a query, by event time."""
    tables = evaluate(database, problem, query)
    last = tables[query.operators[-1].id]
    rows: list[ResultRow] = database.execute(f"SELECT * FROM {last} ORDER BY ALL").fetchall()
    return rows


def compare(
    expected: Sequence[ResultRow], delivered: Sequence[ResultRow], *, finished: bool = True
) -> Comparison:
    """Compare results with the expected ones, in any order.

    Floats may differ by `TOLERANCE`. In a run that was ended, a missing result is cut off where no
    later one was delivered.
    """
    differences: dict[str, list[ResultRow]] = {"lost": [], "duplicated": [], "wrong": []}
    left: dict[Any, list[ResultRow]] = defaultdict(list)
    right: dict[Any, list[ResultRow]] = defaultdict(list)
    for side, rows in ((left, expected), (right, delivered)):
        for row in rows:
            side[_exact(row)].append(row)
    for key in [*left, *(key for key in right if key not in left)]:
        _compare_group(
            sorted(left[key], key=_rounded), sorted(right[key], key=_rounded), differences
        )
    missing = differences["lost"]
    if not finished:
        latest = max((int(row[0]) for row in delivered), default=-1)
        differences["lost"] = [row for row in missing if int(row[0]) < latest]
    return Comparison(
        expected=len(expected),
        delivered=len(delivered),
        lost=len(differences["lost"]),
        duplicated=len(differences["duplicated"]),
        wrong=len(differences["wrong"]),
        cut_off=len(missing) - len(differences["lost"]),
        finished=finished,
        examples={
            name: [", ".join(map(str, row)) for row in rows[:EXAMPLES]]
            for name, rows in differences.items()
        },
    )


def _exact(row: ResultRow) -> tuple[Any, ...]:
    return tuple("" if isinstance(one, float) else (type(one).__name__, one) for one in row)


def _rounded(row: ResultRow) -> tuple[float, ...]:
    return tuple(float(f"{one:.8g}") for one in row if isinstance(one, float))


def _equal(one: ResultRow, other: ResultRow) -> bool:
    return all(
        math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(one, other, strict=True)
        if isinstance(a, float) and isinstance(b, float)
    )


def _compare_group(
    expected: list[ResultRow], delivered: list[ResultRow], differences: dict[str, list[ResultRow]]
) -> None:
    i, last = 0, None
    for row in delivered:
        while (
            i < len(expected)
            and not _equal(expected[i], row)
            and _rounded(expected[i]) < _rounded(row)
        ):
            differences["lost"].append(expected[i])
            i += 1
        if i < len(expected) and _equal(expected[i], row):
            last = expected[i]
            i += 1
        else:
            again = last is not None and _equal(last, row)
            differences["duplicated" if again else "wrong"].append(row)
    differences["lost"] += expected[i:]


def read_delivered(path: Path, columns: Sequence[Column]) -> list[ResultRow]:
    """Results of a query as its sink wrote them (`nova_engines.results`).

    Raises:
        NovaError: for a file that is missing or damaged, or has other columns.
    """
    names, types = [one.text for one in columns], [one.type for one in columns]
    return read(path, row_fields(names, types)).rows()
