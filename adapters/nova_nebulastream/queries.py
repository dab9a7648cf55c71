"""The queries of NebulaStream that run a flow: each a tree with one sink, in its SQL.

Every join of pairs is a query, and every query with columns is one. What two consumers of a flow
share is there once for each, as queries of NebulaStream are trees: each reads its sources itself.
Fields are called after what they hold and the number of the stream that made them: ``T_3`` is the
event time of tuples of stream 3, ``C0_3`` its first column. So `nes-cli` tells which operator it is
whose place it shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from nova_core.errors import NovaError
from nova_engines.flow import (
    AGGREGATE,
    CUT,
    FILTER,
    JOIN,
    LEFT,
    PROJECT,
    RELAY,
    RIGHT,
    SELECT,
    SINK,
    SOURCE,
    Flow,
    Operator,
)
from nova_nebulastream.expressions import (
    BOOLEAN,
    FLOAT,
    INT,
    STEP,
    TYPES,
    Value,
    constant,
    expression,
    within,
)

TIME = "UINT64"
UNION = "union"
# Fields of pairs: event time (ms), number, time of emission (us), value.
PAIR = {"T": TIME, "S": TIME, "E": TIME, "V": FLOAT}
# Of a query. What is shared is there once for each that takes it: cuts of several joins of a query
# multiply.
MOST_INPUTS = 64
_AGGREGATES = {"count": "COUNT", "sum": "SUM", "min": "MIN", "max": "MAX"}


@dataclass(frozen=True)
class Step:
    """An operator that has a place of its own, and what its tuples pass on the way to the next.

    Attributes:
        kind: ``source``, ``join``, ``aggregate``, ``union`` or ``sink``.
        node: where it runs.
        name: of the flow's operator; a union is none of the flow's.
        below: what it receives from; of a join, left and right.
        passes: kind, name and node of operators of the flow between it and the step above. All but
            relays run on its node.
    """

    kind: str
    node: str
    name: str = ""
    below: tuple[Step, ...] = ()
    passes: tuple[tuple[str, str, str], ...] = ()

    def walk(self) -> Iterator[Step]:
        """All steps: this one, then those below it, left ones first."""
        yield self
        for one in self.below:
            yield from one.walk()


@dataclass(frozen=True)
class Input:
    """A source that a query reads.

    Attributes:
        stream: what the query calls it.
        source: id of the problem's source.
        node: where it is.
        fields: name and type of each, in order: event time in ms (``T``); the tuple's number,
            where something is cut by it (``S``); columns (``C``); hashes of columns that are no
            whole numbers, where something is cut by these (``H``). Of pairs: event time, number,
            time of emission in us (``E``), value (``V``).
    """

    stream: str
    source: str
    node: str
    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Query:
    """A query of NebulaStream.

    Attributes:
        name: of its sink, unique in the flow.
        result: what it computes, for people: the flow's join of pairs, or its sink.
        sink: the flow's sink.
        sql: its text.
        fields: name and type of each field of its results.
        inputs: its sources.
        top: its steps; the sink's is the top one.
        links: nodes that send, and nodes that these send to.
    """

    name: str
    result: str
    sink: str
    sql: str
    fields: tuple[tuple[str, str], ...]
    inputs: tuple[Input, ...]
    top: Step
    links: tuple[tuple[str, str], ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that it runs on or passes, the sink's first."""
        ends = (node for link in self.links for node in link[::-1])
        return tuple(dict.fromkeys((self.top.node, *ends)))

    @property
    def placed(self) -> tuple[str, ...]:
        """Nodes of its joins and aggregates: from the sink down, left inputs first."""
        return tuple(one.node for one in self.top.walk() if one.kind in (JOIN, AGGREGATE))


def queries(flow: Flow, *, exact: bool = False) -> list[Query]:
    """The queries that run a flow, in its order.

    Args:
        flow: what runs where.
        exact: whether results are for `result_collector`: rows say the event times of the oldest
            and the newest of their readings, and floats, which sinks write with six decimals, are
            two fields: millionths, and the rest in millionths.

    Raises:
        NovaError: for what NebulaStream cannot run.
    """
    found: list[Query] = []
    for sink in flow.sinks:
        groups = [sink.inputs] if flow.has_columns else [(name,) for name in sink.inputs]
        found += [
            _Query(flow, sink, one, len(found) + n, exact).query() for n, one in enumerate(groups)
        ]
    if not found:
        raise NovaError("plan: nothing runs in it")
    return found


def identifier(text: str) -> str:
    """A name in letters, digits and ``_``, for queries and files."""
    return re.sub(r"[^A-Za-z0-9]", "_", text)


@dataclass(frozen=True)
class _Stream:
    """Tuples on their way.

    Attributes:
        table: what they are selected from.
        made: expression and type of each of their fields.
        time: the field with their event time, ms.
        columns: fields of the flow's columns.
        number: expression of their number; empty where none is needed.
        spans: fields of the oldest and newest event times of readings.
        hashes: of columns' fields that are no whole numbers, fields with a number of each value.
        step: what emits them.
        begin: of windows' results, the field with the begin of the window.
        where: conditions on what they are selected from.
        node: that they have come to.
    """

    table: str
    made: dict[str, Value]
    time: str
    columns: tuple[str, ...]
    number: str
    spans: tuple[tuple[str, str], ...]
    step: Step
    node: str
    begin: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    # Whether `made` are just the fields of the table.
    plain: bool = False

    def values(self) -> list[Value]:
        return [self.value(name) for name in self.columns]

    def value(self, name: str) -> Value:
        return Value(name, self.made[name].type)

    def text(self, names: dict[str, str] | None = None) -> str:
        """The query; with names, of these fields (by the new name) only."""
        chosen = {name: name for name in self.made} if names is None else names
        parts = [
            made.sql if made.sql == name else f"{made.sql} AS {name}"
            for name, made in ((name, self.made[old]) for name, old in chosen.items())
        ]
        listed = "*" if self.plain and names is None else ", ".join(parts)
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        return f"SELECT {listed} FROM {self.table}{where}"

    def filtered(self, condition: str, kind: str, one: Operator) -> _Stream:
        """Those of them for which a condition on their fields holds; none holds for all."""
        if not condition:
            return self
        passed = replace(self.step, passes=(*self.step.passes, (kind, one.name, self.step.node)))
        if self.plain:
            return replace(self, where=(*self.where, condition), step=passed)
        fields = {name: self.value(name) for name in self.made}
        return replace(
            self, table=f"({self.text()})", made=fields, where=(condition,), plain=True, step=passed
        )


@dataclass
class _Query:
    """Makes one query, from its sink down."""

    flow: Flow
    sink: Operator
    inputs: Sequence[str]
    index: int
    exact: bool
    sources: list[Input] = field(default_factory=list)
    links: dict[tuple[str, str], None] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.known = {one.name: one for one in self.flow.operators}
        cuts = [
            one for one in self.flow.operators if one.kind in (CUT, SELECT) and not _is_whole(one)
        ]
        self.numbered = any(not one.hashed or one.hot for one in cuts)
        self.hashed = any(one.hashed for one in cuts)

    def query(self) -> Query:
        """The query."""
        result = self.inputs[0] if not self.flow.has_columns else self.sink.name
        stream = self._together(self.inputs, self.sink.node)
        name = f"nova_results_{self.index}"
        names = self._results(stream)
        if self.exact:
            stream, names = _split(stream, names)
        sql = f"{stream.text(names)} INTO {name};"
        top = Step(SINK, self.sink.node, self.sink.name, (stream.step,))
        fields = tuple((new, stream.made[old].type) for new, old in names.items())
        one = Query(
            name,
            result,
            self.sink.name,
            _wrapped(sql),
            fields,
            tuple(self.sources),
            top,
            tuple(self.links),
        )
        _refuse_cycles(one)
        return one

    def _results(self, stream: _Stream) -> dict[str, str]:
        """Names of the fields that the sink writes, and what they are."""
        if not self.flow.has_columns:
            left, right = stream.columns
            sides = (("left", left), ("right", right))
            return {"window_start": stream.begin} | {
                f"{side}_{name}": f"{letter}_{number}"
                for side, number in sides
                for name, letter in (("sequence", "S"), ("emitted", "E"), ("value", "V"))
            }
        names = {"event_time": stream.time}
        for number, column in enumerate(self.sink.columns):
            # Names may be equal but for their streams, or be words of the language.
            name = identifier(column.rpartition(".")[2]).strip("_")
            names[f"{name}_{number}"] = stream.columns[number]
        if self.exact:
            for number, (oldest, newest) in enumerate(stream.spans):
                names[f"oldest_{number}"], names[f"newest_{number}"] = oldest, newest
        return names

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    # --- streams --------------------------------------------------------------------------------

    def _stream(self, name: str) -> _Stream:
        one = self.known[name]
        if one.kind == SOURCE:
            return self._source(one)
        if one.kind == JOIN:
            return self._join(one)
        if one.kind == AGGREGATE:
            return self._aggregate(one)
        below = self._stream(one.inputs[0])
        if one.kind == RELAY:
            return self._sent(below, one.node, ((RELAY, one.name, one.node),))
        if one.kind == PROJECT:
            return self._project(one, below)
        if one.kind == FILTER:
            return below.filtered(expression(one.programs[0], below.values()).sql, FILTER, one)
        return below.filtered(_partitions(one, below), CUT, one)

    def _streams(self, name: str) -> list[_Stream]:
        """What an operator emits, from each of what it receives if it only selects of these."""
        one = self.known[name]
        if one.kind != SELECT:
            return [self._stream(name)]
        # It selects where its inputs are produced, too: queries share nothing on the way.
        inputs = [self._stream(each) for each in one.inputs]
        return [
            each.filtered(
                _partitions(one, each),
                SELECT,
                replace(one, name=f"{one.name} at {each.step.name}") if len(inputs) > 1 else one,
            )
            for each in inputs
        ]

    def _sent(
        self, stream: _Stream, node: str, passed: tuple[tuple[str, str, str], ...] = ()
    ) -> _Stream:
        if stream.node != node:
            self.links[stream.node, node] = None
        step = replace(stream.step, passes=(*stream.step.passes, *passed))
        return replace(stream, node=node, step=step)

    def _together(self, names: Sequence[str], node: str) -> _Stream:
        """What several operators emit, where it is needed."""
        streams = [self._sent(one, node) for name in names for one in self._streams(name)]
        if len(streams) == 1:
            return streams[0]
        n, first = self._next(), streams[0]
        texts, common = [], dict[str, Value]()
        width = max(len(one.spans) for one in streams)
        for one in streams:
            fields = {f"T_{n}": one.time}
            if one.begin:
                fields[f"W_{n}"] = one.begin
            number = one.number if one.number in one.made else ""
            if self.numbered:
                fields[f"S_{n}"] = number or one.time
            fields |= {f"C{i}_{n}": column for i, column in enumerate(one.columns)}
            # Of streams that are made of different numbers of others, some say theirs twice.
            spans = [one.spans[min(i, len(one.spans) - 1)] for i in range(width)]
            for i, (oldest, newest) in enumerate(spans):
                fields[f"A{i}_{n}"], fields[f"B{i}_{n}"] = oldest, newest
            hashed = {i for i, column in enumerate(one.columns) if column in one.hashes}
            fields |= {f"H{i}_{n}": one.hashes[one.columns[i]] for i in sorted(hashed)}
            common = {name: Value(name, one.made[old].type) for name, old in fields.items()}
            texts.append(one.text(fields))
        step = Step(UNION, node, below=tuple(one.step for one in streams))
        return _Stream(
            table=f"({' UNION '.join(texts)})",
            made=common,
            time=f"T_{n}",
            columns=tuple(f"C{i}_{n}" for i in range(len(first.columns))),
            number=f"S_{n}" if self.numbered else "",
            spans=tuple((f"A{i}_{n}", f"B{i}_{n}") for i in range(width)),
            step=step,
            node=node,
            begin=f"W_{n}" if first.begin else "",
            hashes={f"C{i}_{n}": f"H{i}_{n}" for i in sorted(hashed)},
            plain=True,
        )

    def _source(self, one: Operator) -> _Stream:
        if len(self.sources) == MOST_INPUTS:
            raise NovaError(
                f"plan: {self.sink.name}: is cut into so many pieces that its query would read "
                f"sources more than {MOST_INPUTS} times, as every piece reads them itself; plan it "
                "with fewer pieces"
            )
        n = self._next()
        if one.types:
            types = {"T": TIME} | ({"S": TIME} if self.numbered else {})
            types |= {f"C{i}": TYPES[kind] for i, kind in enumerate(one.types)}
            if self.hashed:
                types |= {f"H{i}": TIME for i, kind in enumerate(one.types) if kind != "int"}
        else:
            types = PAIR
        fields = {f"{name}_{n}": Value(f"{name}_{n}", kind) for name, kind in types.items()}
        stream = f"s{n}_{identifier(one.source)}"
        made = tuple((name, value.type) for name, value in fields.items())
        self.sources.append(Input(stream, one.source, one.node, made))
        return _Stream(
            table=stream,
            made=fields,
            time=f"T_{n}",
            columns=tuple(f"C{i}_{n}" for i in range(len(one.types))) if one.types else (str(n),),
            number=f"S_{n}" if f"S_{n}" in fields else "",
            spans=((f"T_{n}", f"T_{n}"),),
            hashes={f"C{name[1:]}_{n}": f"{name}_{n}" for name in types if name[0] == "H"},
            step=Step(SOURCE, one.node, one.name),
            node=one.node,
            plain=True,
        )

    def _project(self, one: Operator, below: _Stream) -> _Stream:
        n, values = self._next(), below.values()
        made = {name: below.value(name) for name in self._carried(below)}
        columns = {f"C{i}_{n}": expression(each, values) for i, each in enumerate(one.programs)}
        hashes = {
            name: below.hashes[value.sql]
            for name, value in columns.items()
            if value.sql in below.hashes
        }
        passed = replace(
            below.step, passes=(*below.step.passes, (PROJECT, one.name, below.step.node))
        )
        table, where = (below.table, below.where) if below.plain else (f"({below.text()})", ())
        return replace(
            below,
            table=table,
            where=where,
            made=made | columns,
            columns=tuple(columns),
            hashes=hashes,
            plain=False,
            step=passed,
        )

    def _carried(self, stream: _Stream) -> list[str]:
        """Fields that go with every tuple besides its columns."""
        names = [stream.time, stream.begin, *(name for pair in stream.spans for name in pair)]
        names += stream.hashes.values()
        if self.numbered:
            names += re.findall(r"\b[A-Z]+\d*_\d+\b", stream.number)
        return list(dict.fromkeys(name for name in names if name))

    # --- windows --------------------------------------------------------------------------------

    def _join(self, one: Operator) -> _Stream:
        left = self._together(one.inputs, one.node)
        right = self._together(one.right, one.node)
        n = self._next()
        size, slide = one.window
        if not self.flow.has_columns:
            return self._pair(one, left, right, n)
        keys = [(left.columns[a], right.columns[b]) for a, b in one.keys]
        both = [*left.values(), *right.values()]
        compared = [f"({a} = {b})" for a, b in keys]
        parts = expression(one.programs[0], both).parts if one.programs else ()
        where = [part for part in parts if part not in compared] if keys else []
        on = " AND ".join(compared or parts)
        if not on:
            raise NovaError(
                f"{one.name}: compares nothing, and a join of NebulaStream needs a condition"
            )
        times = []
        for side, kept in ((left, one.kept[LEFT]), (right, one.kept[RIGHT])):
            if kept and size != slide:
                # It is of one window alone, of all that contain its time.
                where.append(f"(start = {side.begin})")
            times.append(side.begin if kept and size != slide else side.time)
        made = {f"W_{n}": Value("start", TIME), f"T_{n}": Value("(end - UINT64(1))", TIME)}
        number = ""
        if self.numbered:
            # Any two pairs of numbers must be told apart, as far as that goes.
            number = f"({left.number} * UINT64({STEP}) + {right.number})"
        columns = (*left.columns, *right.columns)
        spans = (*left.spans, *right.spans)
        carried = [name for side in (left, right) for name in self._carried(side)]
        carried = [name for name in carried if name not in (left.begin, right.begin)]
        for name in (*carried, *columns):
            made[name] = Value(name, (left.made | right.made)[name].type)
        return _Stream(
            table=f"(SELECT * FROM ({left.text()}) INNER JOIN ({right.text()}) ON {on} "
            f"WINDOW {_window(size, slide, *times)})",
            made=made,
            time=f"T_{n}",
            columns=columns,
            number=number,
            spans=spans,
            step=Step(JOIN, one.node, one.name, (left.step, right.step)),
            node=one.node,
            begin=f"W_{n}",
            hashes=left.hashes | right.hashes,
            where=tuple(where),
        )

    def _pair(self, one: Operator, left: _Stream, right: _Stream, n: int) -> _Stream:
        """A join of pairs: tuples of a window match by their numbers."""
        keys, every = one.match
        sides = []
        for side in (left, right):
            key = f"({side.number} % UINT64({keys}))"
            if every > 1:
                least = f"(({key} % UINT64({every})) = UINT64(0))"
                side = replace(side, where=(*side.where, least))
            number = side.number.removeprefix("S_")
            side = replace(side, made=side.made | {f"K_{number}": Value(key, TIME)}, plain=False)
            sides.append((side.text(), f"K_{number}", number))
        (first, a, la), (second, b, lb) = sides
        made = {f"W_{n}": Value("start", TIME)}
        for side, number in ((left, la), (right, lb)):
            made |= {f"{x}_{number}": side.value(f"{x}_{number}") for x in "SEV"}
        size, slide = one.window
        return _Stream(
            table=f"(SELECT * FROM ({first}) INNER JOIN ({second}) ON {a} = {b} "
            f"WINDOW {_window(size, slide, left.time, right.time)})",
            made=made,
            time=f"W_{n}",
            columns=(la, lb),
            number="",
            spans=(),
            step=Step(JOIN, one.node, one.name, (left.step, right.step)),
            node=one.node,
            begin=f"W_{n}",
        )

    def _aggregate(self, one: Operator) -> _Stream:
        partials = [name for name in one.inputs if self.flow.origin(name).partial]
        whole = [name for name in one.inputs if name not in partials]
        if partials and whole:
            raise NovaError(
                f"{one.name}: receives tuples and partial results; its query in NebulaStream takes "
                "one or the other"
            )
        below = self._together(one.inputs, one.node)
        n = self._next()
        size, slide = one.window
        kept = bool(partials) or one.kept[LEFT]
        width = len(one.groups)
        groups = below.columns[:width] if partials else tuple(below.columns[i] for i in one.groups)
        found = self._computed(one, below, summed=bool(partials))
        made: dict[str, Value] = {f"W_{n}": Value("start", TIME)}
        # Of one window alone: windows as far apart as these, at whose begin it is.
        window = _window(slide, slide, below.begin) if kept else _window(size, slide, below.time)
        made[f"T_{n}"] = Value(f"(start + UINT64({size - 1}))", TIME)
        columns, hashes = [], {}
        for i, group in enumerate(groups):
            columns.append(f"C{i}_{n}")
            made[columns[-1]] = Value(group, below.made[group].type)
            if group in below.hashes:
                hashes[columns[-1]] = f"H{i}_{n}"
                made[f"H{i}_{n}"] = Value(below.hashes[group], TIME)
        # A value and its hash are one group.
        groups = (*groups, *(below.hashes[group] for group in groups if group in below.hashes))
        inner = list(groups)
        for i, (term, outer) in enumerate(found):
            name = f"C{width + i}_{n}"
            inner.append(f"{term.sql} AS {name}")
            columns.append(name)
            made[name] = Value(outer.format(name), INT if "INT64" in outer else term.type)
        columns, made = self._means(one, columns, made, width)
        spans = []
        for i, (oldest, newest) in enumerate(below.spans):
            names = (f"A{i}_{n}", f"B{i}_{n}")
            inner += [f"MIN({oldest}) AS {names[0]}", f"MAX({newest}) AS {names[1]}"]
            made |= {name: Value(name, TIME) for name in names}
            spans.append(names)
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        table = f"(SELECT start, end, {', '.join(inner)} FROM ({below.text()}){by} WINDOW {window})"
        return _Stream(
            table=table,
            made=made,
            time=f"T_{n}",
            columns=tuple(columns),
            number=f"(W_{n} / UINT64({slide}))" if self.numbered else "",
            spans=tuple(spans),
            step=Step(AGGREGATE, one.node, one.name, (below.step,)),
            node=one.node,
            begin=f"W_{n}",
            hashes=hashes,
        )

    def _computed(self, one: Operator, below: _Stream, *, summed: bool) -> list[tuple[Value, str]]:
        """What an aggregate computes of every window: aggregation, and what becomes of its result.

        Of a mean, sum and count.
        """
        found: list[tuple[Value, str]] = []
        values, at = below.values(), len(one.groups)

        def add(function: str, of: Value) -> None:
            outer = "CASTTOTYPE({} AS INT64)" if function == "COUNT" or of.type == INT else "{}"
            found.append((Value(f"{function}({of.sql})", of.type), outer))

        for function, program in zip(one.functions, one.programs, strict=True):
            if summed:
                of, at = values[at], at + 1
            else:
                of = expression(program, values) if program else Value(below.time, TIME)
            if of.type not in (INT, FLOAT, TIME):
                what = "truth values" if of.type == BOOLEAN else "texts"
                raise NovaError(f"{one.name}: {function} of {what}: NebulaStream takes numbers")
            if function == "mean":
                add("SUM", of)
                if summed:
                    of, at = values[at], at + 1
            name = "SUM" if summed and function in ("count", "mean") else ""
            name = name or _AGGREGATES.get(function, "COUNT")
            add(name, of)
        return found

    def _means(
        self, one: Operator, columns: list[str], made: dict[str, Value], width: int
    ) -> tuple[list[str], dict[str, Value]]:
        """Columns of an aggregate, where sums and counts of means become one."""
        if one.partial:
            return columns, made
        kept, at = columns[:width], width
        for function in one.functions:
            name = columns[at]
            if function == "mean":
                total, count = made[name], made.pop(columns[at + 1])
                at += 1
                sql = f"({_as_float(total.sql)} / {_as_float(count.sql)})"
                made[name] = Value(sql, FLOAT)
            kept.append(name)
            at += 1
        return kept, made


def _split(stream: _Stream, names: dict[str, str]) -> tuple[_Stream, dict[str, str]]:
    """Fields of which every float is two."""
    made, fields = dict(stream.made), dict[str, str]()
    for name, field_ in names.items():
        value = stream.made[field_]
        if value.type != FLOAT:
            fields[name] = field_
            continue
        million = f"({value.sql} * FLOAT64(1000000))"
        whole = f"CASTTOTYPE({million} AS INT64)"
        made[f"{field_}_whole"] = Value(whole, INT)
        made[f"{field_}_rest"] = Value(f"({million} - {_as_float(whole)})", FLOAT)
        fields |= {name: f"{field_}_whole", f"{name}_rest": f"{field_}_rest"}
    return replace(stream, made=made, plain=False), fields


def _as_float(sql: str) -> str:
    return f"CASTTOTYPE({sql} AS FLOAT64)"


def _window(size: int, slide: int, *times: str) -> str:
    at = ", ".join(times)
    if size == slide:
        return f"TUMBLING ({at}, SIZE {size} MS)"
    return f"SLIDING ({at}, SIZE {size} MS, ADVANCE BY {slide} MS)"


def _is_whole(one: Operator) -> bool:
    """Whether a cut passes everything."""
    return one.low == (0.0,) and one.high[0] > 1


def _partitions(one: Operator, below: _Stream) -> str:
    """The condition that a tuple is of a cut's partitions."""
    if _is_whole(one):
        return ""
    if not one.hashed:
        return within(below.number, one.low, one.high)
    number = "UINT64(0)"
    for column in (below.columns[i] for i in one.hashed):
        if below.made[column].type == INT:
            value = f"CASTTOTYPE({column} AS UINT64)"
        elif column in below.hashes:
            value = below.hashes[column]
        else:
            raise NovaError(
                f"{one.name}: is cut by computed values that are no whole numbers, which "
                "NebulaStream has no operation for; plan it so that it is not cut"
            )
        number = f"({number} * UINT64({STEP}) + {value})"
    if not one.hot:
        return within(number, one.low, one.high)
    cases, known = [], []
    for values, begin, end in one.hot:
        equal = [
            f"{column} = {_constant(value, below.made[column].type)}"
            for column, value in zip((below.columns[i] for i in one.hashed), values, strict=True)
        ]
        known.append(f"({' AND '.join(equal)})")
        share = _part(begin, end, one)
        if one.side == LEFT:
            condition = within(below.number, *share) if share[0] else None
        else:
            condition = "" if share[0] else None
        if condition is not None:
            cases.append(f"({' AND '.join(filter(None, (known[-1], condition)))})")
    share = _part(one.others, 1.0, one)
    if share[0]:
        others = [f"(NOT {case})" for case in known]
        cases.append(f"({' AND '.join(filter(None, (*others, within(number, *share))))})")
    return f"({' OR '.join(cases)})" if cases else f"({below.time} = UINT64(0))"


def _constant(text: str, kind: str) -> str:
    return constant({INT: "i", FLOAT: "f"}.get(kind, "t"), text).sql


def _part(begin: float, end: float, one: Operator) -> tuple[list[float], list[float]]:
    """Where a cut's intervals meet [begin, end), as shares of that."""
    low, high = [], []
    for first, last in zip(one.low, one.high, strict=True):
        if max(first, begin) < min(last, end):
            low.append(max(0.0, (first - begin) / (end - begin)))
            high.append((last - begin) / (end - begin) if last < end else 2.0)
    return low, high


def _wrapped(sql: str) -> str:
    """On lines of their own: each input of a join, and what is behind it."""
    return sql.replace(" INNER JOIN ", "\n INNER JOIN ").replace(" WINDOW ", "\n WINDOW ") + "\n"


def _refuse_cycles(one: Query) -> None:
    from graphlib import CycleError, TopologicalSorter

    order: TopologicalSorter[str] = TopologicalSorter()
    for source, target in one.links:
        order.add(target, source)
    try:
        order.prepare()
    except CycleError as error:
        around = " -> ".join(reversed(error.args[1]))
        raise NovaError(
            f"plan: {one.result}: data would go around ({around}), and NebulaStream rejects "
            "topologies with a cycle; place it where its data does not come back to a node it has "
            f"left, e.g. on {one.top.node}"
        ) from None
