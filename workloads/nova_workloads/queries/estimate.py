"""Rates, selectivities, groups and sizes of queries, estimated from readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_core.io.binding import Bound, bind, equal_columns
from nova_core.model.key_ranges import KEY_RANGES
from nova_core.model.queries import HotKey, Join
from nova_workloads.queries.readings import encode, table_of
from nova_workloads.queries.reference import evaluate

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_core.model.queries import LogicalOperator, Query

LEAST = 1e-6
"""Selectivity of an operator that no tuple passed."""


@dataclass(frozen=True)
class Estimate:
    """The estimates for an operator.

    Attributes:
        query: its query.
        operator: its id.
        emitted: how many tuples it emitted.
        rate: tuples/s.
        name: what was estimated: ``selectivity`` or ``groups``; empty where there is nothing.
        value: the estimate.
        keys: of a join: how many values the columns have that must be equal; 0 where none must.
        hot: of a join: how many of them are frequent.
    """

    query: str
    operator: str
    emitted: int
    rate: float
    name: str = ""
    value: float = 0.0
    keys: int = 0
    hot: int = 0


def estimated(problem: Problem, database: Any) -> tuple[Problem, list[Estimate]]:
    """The problem with rates, sizes, selectivities, groups and keys of the readings.

    A selectivity is the one with which the problem gives an operator the rate of what it emitted;
    those of filters and joins above it are estimated first.

    Args:
        problem: with `streams`.
        database: with its readings (`nova_workloads.queries.readings.load`).

    Raises:
        NovaError: for too few readings.
    """
    bounds = []
    for stream in problem.streams:
        bounds += [
            one
            for one in database.execute(
                f"SELECT min(t), max(t) FROM {table_of(stream.id)}"
            ).fetchone()
            if one is not None
        ]
    seconds = (max(bounds) - min(bounds)) / 1000 if bounds else 0.0
    if seconds <= 0:
        raise NovaError("readings: at one moment only; rates need at least two")
    problem = replace(problem, sources=_sources(problem, database, seconds))
    estimates = []
    for number, query in enumerate(problem.queries):
        tables = evaluate(database, problem, query)
        bound = bind(query, problem)
        for row, operator in enumerate(query.operators):
            emitted = _number(database, f"SELECT count(*) FROM {tables[operator.id]}")
            one = Estimate(query.id, operator.id, emitted, emitted / seconds)
            changed, one = _operator(problem, number, row, one, bound, database, tables)
            estimates.append(one)
            if changed is not None:
                problem = _with(problem, number, row, changed)
    return problem, estimates


def _number(database: Any, sql: str, *values: str) -> int:
    """The only value of a query's only row."""
    (number,) = database.execute(sql, list(values)).fetchone()
    return int(number)


def _sources(problem: Problem, database: Any, seconds: float) -> Any:
    """Sources with their rates, tuples/s, and mean encoded sizes, bytes."""
    s = problem.sources
    streams = {one.id: one for one in problem.streams}
    rate, size = s.rate.copy(), np.full(len(s), 1.0) if s.tuple_bytes is None else s.tuple_bytes
    size = size.copy()
    for row, (name, stream) in enumerate(zip(s.ids.tolist(), s.stream.tolist(), strict=True)):
        if stream not in streams:
            continue
        sql = f"SELECT count(*) FROM {table_of(stream)} WHERE source = ?"
        count = _number(database, sql, name)
        if not count:
            raise NovaError(f"readings: source {name!r} has none")
        rate[row] = count / seconds
        size[row] = len(encode(database, streams[stream], name)) / count
    return replace(s, rate=rate, tuple_bytes=size)


def _operator(
    problem: Problem,
    number: int,
    row: int,
    one: Estimate,
    bound: dict[str, Bound],
    database: Any,
    tables: dict[str, str],
) -> tuple[LogicalOperator | None, Estimate]:
    operator = problem.queries[number].operators[row]
    meaning = bound[operator.id]
    if meaning.kind == "project":
        return None, one
    whole, instances = _physical(problem, number, row)
    if meaning.kind == "aggregate":
        windows = _number(database, f"SELECT count(DISTINCT t) FROM {tables[operator.id]}")
        groups = max(1, round(one.emitted / max(1, windows) / instances))
        changed = msgspec.structs.replace(operator, groups=groups)
        return changed, replace(one, name="groups", value=groups)
    value = max(LEAST, one.rate / whole if whole > 0 else LEAST)
    if meaning.kind == "filter":
        value = min(1.0, value)
    value = float(f"{value:.4g}")
    one = replace(one, name="selectivity", value=value)
    changed = msgspec.structs.replace(operator, selectivity=value)
    if isinstance(changed, Join):
        changed, keyed = _keys(changed, bound, database, tables, instances)
        if keyed:
            one = replace(one, keys=changed.keys, hot=len(changed.hot))
    return changed, one


def _keys(
    join: Join, bound: dict[str, Bound], database: Any, tables: dict[str, str], pairs: int
) -> tuple[Join, bool]:
    """A join with the number of its keys and the most frequent ones; whether it has any.

    Args:
        join: an operator of the problem.
        bound: its query's operators, bound.
        database: with the tuples they emitted.
        tables: tables of these tuples, by id.
        pairs: number of its physical joins.
    """
    meaning = bound[join.id]
    left, right = (bound[name] for name in meaning.inputs)
    equal = equal_columns(meaning.condition, left.columns, right.columns)
    if not equal:
        return join, False
    counted = []
    for side, one in enumerate((left, right)):
        names = ", ".join(f"c{one.columns.index(pair[side])}" for pair in equal)
        counted.append(
            f"SELECT ({names}) AS k, count(*) AS n, count(*) / sum(count(*)) OVER () AS share "
            f"FROM {tables[one.id]} GROUP BY ALL"
        )
    both = f"({counted[0]}) a JOIN ({counted[1]}) b USING (k)"
    many = _number(database, f"SELECT count(*) FROM {both}")
    by_source = join.match == "key"
    keys = max(1, round(many / pairs) if by_source else many)
    hot: list[HotKey] = []
    # Of sources that are joined by key, each pair has keys, and shares, of its own.
    if keys > KEY_RANGES and (pairs == 1 or not by_source):
        rows = database.execute(
            f"SELECT k, a.share, b.share FROM {both} WHERE greatest(a.share, b.share) >= ? "
            "ORDER BY greatest(a.share, b.share) DESC, k",
            [1 / KEY_RANGES],
        ).fetchall()
        for values, *shares in rows:
            values = list(values) if isinstance(values, tuple) else [values]
            mine, theirs = (float(f"{share:.4g}") for share in shares)
            hot.append(HotKey(values=values, left=mine, right=theirs))
    return msgspec.structs.replace(join, keys=keys, hot=hot), True


def _physical(problem: Problem, number: int, row: int) -> tuple[float, int]:
    """Tuples/s of an operator that all tuples pass, by the problem; the number of its instances."""
    from nova_core.model.expansion import graph_of

    query = problem.queries[number]
    operators: list[LogicalOperator] = list(query.operators[: row + 1])
    if hasattr(operators[row], "selectivity"):
        operators[row] = msgspec.structs.replace(operators[row], selectivity=1.0)
    # Only the operators above that it reads count.
    needed, required = {operators[row].id}, []
    for one in reversed(operators):
        if one.id in needed:
            required.append(one)
            needed |= set(one.inputs if hasattr(one, "inputs") else [one.input])
    part: Query = msgspec.structs.replace(query, operators=required[::-1])
    graph = graph_of(replace(problem, queries=(part,)))
    mine = [one for one in graph if one.logical == operators[row].id]
    return sum(one.rate for one in mine), len(mine)


def _with(problem: Problem, number: int, row: int, operator: LogicalOperator) -> Problem:
    queries = list(problem.queries)
    operators = list(queries[number].operators)
    operators[row] = operator
    queries[number] = msgspec.structs.replace(queries[number], operators=operators)
    return replace(problem, queries=tuple(queries))
