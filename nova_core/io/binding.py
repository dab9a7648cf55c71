"""Queries with columns: what every operator's expressions mean, and what it emits.

A query of a problem with `streams` can be run. Here SQL becomes operators, names are written in
full, and what follows from an expression is filled in: which sources a join may pair, whether an
aggregate has a result per key, and that it can be computed of partial results. So the same query
in SQL and as operators is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from nova_core.errors import ProblemError
from nova_core.io.expressions import (
    Call,
    Column,
    Expression,
    columns_of,
    conjuncts,
    read_aggregate,
    read_column,
    read_condition,
    read_value,
)
from nova_core.model.queries import (
    Aggregate,
    Filter,
    Join,
    LogicalOperator,
    Project,
    Query,
    Stream,
    inputs_of,
)
from nova_core.suggestions import unknown

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

MILLISECONDS = 1000
SHORTEST_MS = 10


@dataclass(frozen=True)
class Window:
    """Windows of event time: one begins at every multiple of `slide_ms` since the epoch.

    Attributes:
        size_ms: length.
        slide_ms: distance between their beginnings, at most their length.
    """

    size_ms: int
    slide_ms: int


@dataclass(frozen=True)
class Bound:
    """An operator, or a stream, with what its expressions mean.

    Attributes:
        id: of the operator or stream.
        kind: ``stream``, ``filter``, ``project``, ``join`` or ``aggregate``.
        inputs: ids.
        columns: what it emits.
        window: of joins and aggregates.
        windows: in which windows its tuples lie already; an operator with the same windows takes
            them as they are, any other puts them into windows by their event time.
        condition: of filters and joins; None lets everything pass.
        made: of projections: what is emitted.
        groups: of aggregates: columns.
        computed: of aggregates: what is emitted behind these.
        keyed: columns that equal the key of the source.
    """

    id: str
    kind: str
    inputs: tuple[str, ...]
    columns: tuple[Column, ...]
    window: Window | None = None
    windows: Window | None = None
    condition: Expression | None = None
    made: tuple[Expression, ...] = ()
    groups: tuple[Column, ...] = ()
    computed: tuple[Call, ...] = ()
    keyed: frozenset[Column] = frozenset()


def stream_columns(streams: Sequence[Stream]) -> dict[str, list[Column]]:
    """Columns of every stream."""
    return {
        one.id: [Column(one.id, name, kind) for name, kind in one.columns.items()]
        for one in streams
    }


def bound_queries(problem: Problem, where: str) -> tuple[Query, ...]:
    """A problem's queries in their full form; as they are where the problem has no `streams`.

    Args:
        problem: with the queries as they are written, as SQL or operators.
        where: what errors begin with.

    Raises:
        ProblemError: naming the place, the value and what would be accepted.
    """
    streams, keyed = problem.streams, keyed_streams(problem)
    _check_streams(streams, dict.fromkeys(problem.sources.stream.tolist()), where)
    full = []
    for number, query in enumerate(problem.queries):
        place = f"{where}: queries[{number}]"
        if not streams:
            _refuse_expressions(query, place)
            full.append(query)
            continue
        if query.sql is not UNSET:
            if query.operators:
                raise ProblemError(f"{place}: both of operators and sql; give one")
            from nova_core.io.sql import read_sql

            operators = read_sql(str(query.sql), stream_columns(streams), f"{place}.sql")
            query = Query(id=query.id, sink=query.sink, operators=operators)
        full.append(_Binder(query, streams, keyed, place).query())
    return tuple(full)


def bind(query: Query, problem: Problem) -> dict[str, Bound]:
    """What the operators of a problem's query mean, and the streams they read, by id.

    Raises:
        ProblemError: for a problem without `streams`.
    """
    if not problem.streams:
        raise ProblemError(
            f"{problem.name}: streams are missing: what the tuples hold has to be known to run or "
            "estimate queries"
        )
    binder = _Binder(query, problem.streams, keyed_streams(problem), f"{problem.name}: {query.id}")
    binder.query()
    return binder.bound


def equal_columns(
    condition: Expression | None, left: Sequence[Column], right: Sequence[Column]
) -> list[tuple[Column, Column]]:
    """Columns of the left input that must equal ones of the right one, other than floats.

    Args:
        condition: of a join.
        left: columns of its left input.
        right: columns of its right input.
    """
    pairs = []
    for part in conjuncts(condition) if condition is not None else []:
        if not (isinstance(part, Call) and part.name == "="):
            continue
        one, other = part.of
        if isinstance(one, Column) and isinstance(other, Column):
            if one in right and other in left:
                one, other = other, one
            if one in left and other in right and one.type == other.type != "float":
                pairs.append((one, other))
    return pairs


def keyed_streams(problem: Problem) -> frozenset[str]:
    """Streams all of whose sources have a key."""
    sources = problem.sources
    names = sources.stream.tolist()
    if sources.key is None:
        return frozenset()
    without = {name for name, key in zip(names, sources.key.tolist(), strict=True) if not key}
    return frozenset(set(names) - without)


def _refuse_expressions(query: Query, place: str) -> None:
    if query.sql is not UNSET:
        raise ProblemError(f"{place}.sql: streams are missing: give the columns of every stream")
    for row, operator in enumerate(query.operators):
        for name in ("where", "on", "columns", "group_by", "compute"):
            if getattr(operator, name, UNSET) is not UNSET:
                raise ProblemError(
                    f"{place}.operators[{row}].{name} of {operator.id!r}: streams are missing: "
                    "give the columns of every stream"
                )


class _Binder:
    def __init__(
        self, query: Query, streams: Sequence[Stream], keyed: frozenset[str], place: str
    ) -> None:
        self._query, self._place = query, place
        self.bound: dict[str, Bound] = {}
        for one in streams:
            columns = tuple(stream_columns([one])[one.id])
            key = [column for column in columns if column.name == one.key]
            if one.key is not UNSET and not key:
                names = unknown("column", str(one.key), one.columns)
                raise ProblemError(f"{place}: key of stream {one.id!r}: {names}")
            if key and key[0].type != "text":
                raise ProblemError(f"{place}: key of stream {one.id!r}: {one.key!r} is no text")
            have = frozenset(key if one.id in keyed else [])
            self.bound[one.id] = Bound(one.id, "stream", (), columns, keyed=have)
        self._streams = set(self.bound)

    def query(self) -> Query:
        """The query, with everything filled in."""
        operators = [
            self._operator(row, operator) for row, operator in enumerate(self._query.operators)
        ]
        return Query(id=self._query.id, sink=self._query.sink, operators=operators)

    def _operator(self, row: int, operator: LogicalOperator) -> LogicalOperator:
        here = f"{self._place}.operators[{row}]"
        name = f"of {operator.id!r}"
        inputs = []
        for one in inputs_of(operator):
            if one not in self.bound:
                raise ProblemError(
                    f"{here} {name}: {unknown('stream or operator above', one, self.bound)}"
                )
            inputs.append(self.bound[one])
        full: LogicalOperator
        if isinstance(operator, Filter):
            full, bound = self._filter(operator, inputs[0], f"{here}.where {name}")
        elif isinstance(operator, Project):
            full, bound = self._project(operator, inputs[0], f"{here}.columns {name}")
        elif isinstance(operator, Join):
            full, bound = self._join(operator, inputs, here, name)
        else:
            full, bound = self._aggregate(operator, inputs[0], here, name)
        self.bound[operator.id] = bound
        return full

    def _filter(self, operator: Filter, above: Bound, where: str) -> tuple[Filter, Bound]:
        if operator.where is UNSET:
            raise ProblemError(f"{where}: missing; a condition is expected")
        condition = read_condition(operator.where, above.columns, where)
        if operator.reads is not UNSET:
            self._check_reads(operator, condition, where)
        full = msgspec.structs.replace(
            operator,
            where=condition.text,
            selectivity=1.0 if operator.selectivity is UNSET else operator.selectivity,
        )
        bound = replace(
            above, id=operator.id, kind="filter", inputs=(above.id,), condition=condition,
            window=None, made=(), groups=(), computed=(),
        )  # fmt: skip
        return full, bound

    def _check_reads(self, operator: Filter, condition: Expression, where: str) -> None:
        reads = self.bound.get(str(operator.reads))
        if reads is None:
            return  # refused with all other names
        odd = [one for one in columns_of(condition) if one not in reads.columns]
        if odd:
            raise ProblemError(
                f"{where}: reads {operator.reads!r}, but {odd[0].text} is no column of that"
            )

    def _project(self, operator: Project, above: Bound, where: str) -> tuple[Project, Bound]:
        if operator.columns is UNSET or not operator.columns:
            raise ProblemError(f"{where}: missing; a name and an expression each are expected")
        if operator.selectivity != 1:
            raise ProblemError(f"{where}: selectivity: expected 1: it emits a tuple per tuple")
        values = {
            name: read_value(text, above.columns, f"{where}: {name}")
            for name, text in operator.columns.items()
        }
        columns = tuple(Column(operator.id, name, one.type) for name, one in values.items())
        keyed = [c for c, one in zip(columns, values.values(), strict=True) if one in above.keyed]
        full = msgspec.structs.replace(
            operator, columns={name: one.text for name, one in values.items()}
        )
        return full, Bound(
            operator.id,
            "project",
            (above.id,),
            columns,
            windows=above.windows,
            made=tuple(values.values()),
            keyed=frozenset(keyed),
        )

    def _window(
        self, operator: Join | Aggregate, here: str, name: str
    ) -> tuple[Window, float | UnsetType]:
        if operator.window is UNSET:
            raise ProblemError(f"{here}.window {name}: missing; its length in s is expected")
        size = float(operator.window)
        slide = size if operator.slide is UNSET else float(operator.slide)
        lengths = []
        for field, value in (("window", size), ("slide", slide)):
            ms = round(value * MILLISECONDS)
            if abs(ms - value * MILLISECONDS) > 1e-6 or ms < SHORTEST_MS:
                raise ProblemError(
                    f"{here}.{field} {name}: {value:g} s: expected whole ms, at least {SHORTEST_MS}"
                )
            lengths.append(ms)
        return Window(*lengths), UNSET if lengths[0] == lengths[1] else slide

    def _join(
        self, operator: Join, inputs: list[Bound], here: str, name: str
    ) -> tuple[Join, Bound]:
        left, right = inputs
        both = {one.origin for one in left.columns} & {one.origin for one in right.columns}
        if both:
            raise ProblemError(
                f"{here}.inputs {name}: both hold columns of {sorted(both)[0]!r}; a stream joined "
                "with itself is left out"
            )
        columns = (*left.columns, *right.columns)
        window, slide = self._window(operator, here, name)
        condition = None
        if operator.on is not UNSET:
            condition = read_condition(operator.on, columns, f"{here}.on {name}")
        equal = equal_columns(condition, left.columns, right.columns)
        by_key = any(one in left.keyed and other in right.keyed for one, other in equal)
        if (operator.keys > 1 or operator.hot) and not equal:
            raise ProblemError(
                f"{here}.keys {name}: {operator.keys}, but `on` does not say that two columns of "
                "whole numbers or text are equal"
            )
        _check_hot(operator, equal, f"{here}.hot {name}")
        if operator.match == "key" and not by_key:
            raise ProblemError(
                f"{here}.match {name}: key, but `on` does not say that the keys of "
                f"{left.id!r} and {right.id!r} are equal"
            )
        match = operator.match if operator.match is not UNSET else "key" if by_key else "all"
        full = msgspec.structs.replace(
            operator, on=UNSET if condition is None else condition.text, match=match, slide=slide
        )
        keyed = left.keyed | right.keyed if match == "key" else frozenset()
        return full, Bound(
            operator.id,
            "join",
            (left.id, right.id),
            columns,
            window,
            window,
            condition,
            keyed=keyed,
        )

    def _aggregate(
        self, operator: Aggregate, above: Bound, here: str, name: str
    ) -> tuple[Aggregate, Bound]:
        if operator.compute is UNSET or not operator.compute:
            raise ProblemError(f"{here}.compute {name}: missing; an aggregate each is expected")
        if operator.output_rate is not UNSET:
            raise ProblemError(f"{here}.output_rate {name}: give window, and groups")
        window, slide = self._window(operator, here, name)
        texts = [] if operator.group_by is UNSET else operator.group_by
        groups = [
            read_column(text, above.columns, f"{here}.group_by[{i}] {name}")
            for i, text in enumerate(texts)
        ]
        if operator.groups > 1 and not groups:
            # Otherwise plans could cut the aggregate by groups, although it has only one.
            text = f"{operator.groups}: there is one group without group_by"
            raise ProblemError(f"{here}.groups {name}: {text}")
        calls = {
            key: read_aggregate(text, above.columns, f"{here}.compute {name}: {key}")
            for key, text in operator.compute.items()
        }
        names = [one.name for one in groups]
        twice = [one for one in (*names, *calls) if [*names, *calls].count(one) > 1]
        if twice:
            raise ProblemError(f"{here} {name}: column {twice[0]!r} is there twice")
        has_key = any(one in above.keyed for one in groups)
        if operator.by == "key" and not has_key:
            raise ProblemError(f"{here}.by {name}: key, but no column of group_by is the key")
        full = msgspec.structs.replace(
            operator,
            group_by=[one.text for one in groups],
            compute={key: one.text for key, one in calls.items()},
            by="key" if has_key else "all",
            decomposable=True,
            slide=slide,
        )
        columns = [Column(operator.id, one.name, one.type) for one in groups]
        keyed = [new for new, old in zip(columns, groups, strict=True) if old in above.keyed]
        columns += [Column(operator.id, key, one.type) for key, one in calls.items()]
        return full, Bound(
            operator.id,
            "aggregate",
            (above.id,),
            tuple(columns),
            window,
            window,
            groups=tuple(groups),
            computed=tuple(calls.values()),
            keyed=frozenset(keyed),
        )


def _check_hot(join: Join, equal: Sequence[tuple[Column, Column]], where: str) -> None:
    """Refuse hot keys that do not have a join's columns, and duplicates.

    Raises:
        ProblemError: naming the key.
    """
    seen = set()
    for row, one in enumerate(join.hot):
        types = ["int" if isinstance(value, int) else "text" for value in one.values]
        needed = [left.type for left, _ in equal]
        if types != needed:
            raise ProblemError(
                f"{where}: [{row}].values: {one.values}; expected {', '.join(needed)}: a value of "
                "each column that `on` says is equal"
            )
        if tuple(one.values) in seen:
            raise ProblemError(f"{where}: [{row}].values: {one.values} is there twice")
        seen.add(tuple(one.values))


def _check_streams(streams: Sequence[Stream], sources: Mapping[str, object], where: str) -> None:
    """Refuse streams that are listed twice, or that no source has.

    Raises:
        ProblemError: naming the stream.
    """
    seen: set[str] = set()
    for row, one in enumerate(streams):
        if one.id in seen:
            raise ProblemError(f"{where}: streams[{row}].id: {one.id!r} is there twice")
        seen.add(one.id)
        if one.id not in sources:
            raise ProblemError(f"{where}: streams[{row}].id: {unknown('stream', one.id, sources)}")
