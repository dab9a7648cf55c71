"""What an engine runs for a plan of whole queries, operator by operator, each on its node.

A source emits its readings. Filters and projections run where their input is produced. An
instance's input is cut there, too, so that only the plan's partitions travel; instances of one
operator on one node share what arrives, and each selects its own range.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines import dataflow
from nova_engines.dataflow import Dataflow, Flow, FlowOperator, interval
from nova_engines.documents import from_json, from_plain, to_json, to_plain

if TYPE_CHECKING:
    from nova_core.io.binding import Bound
    from nova_core.io.expressions import Column, Expression
    from nova_core.model.plan import Plan

SOURCE, FILTER, PROJECT, CUT, SELECT, JOIN, AGGREGATE, SINK = KINDS = (
    "source",
    "filter",
    "project",
    "cut",
    "select",
    "join",
    "aggregate",
    "sink",
)
LEFT, RIGHT, PARTIAL = 0, 1, 2
"""Which input of its consumer a tuple is of; partial results of an aggregate are neither."""

QUERIES = "queries"
"""Only in documents of flows of queries."""

Program = tuple[str, ...]
"""An expression in postfix order: ``c:N`` is column N, ``i:``, ``f:`` and ``t:`` are constants."""


@dataclass(frozen=True)
class Operator(FlowOperator):
    """One operator of a plan of queries; a join tells its inputs apart by the side of the cuts.

    Attributes:
        types: of sources and sinks: types of the columns.
        columns: of sinks: names of the columns.
        programs: of filters and joins: the condition, or none; of projections: what they emit; of
            aggregates: what is aggregated, an empty one for ``count``.
        side: of cuts and selects: which input of the consumer passes.
        low: of cuts and selects: begin of each interval of the u in [0, 1) that passes.
        high: their ends.
        hashed: of cuts and selects: columns whose values give u; without, the tuple's number.
        hot: of cuts by key: values of frequent keys, with begin and end of each key's part of
            [0, 1). A tuple of the left input has one place in it, by its number; one of the right
            input has all of them.
        others: of cuts by key: begin of the part, up to 1, that all other keys share by their u.
        window: of joins and aggregates: length and distance, ms.
        kept: of joins and aggregates: whether the left and the right input keep their windows.
        keys: of joins: columns of the left input that equal columns of the right one, in pairs.
        groups: of aggregates: columns.
        functions: of aggregates: ``count``, ``sum``, ``mean``, ``min`` or ``max`` each.
        partial: of aggregates: whether it emits partial results.
        query: of sinks: ids of queries, by input.
    """

    types: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    programs: tuple[Program, ...] = ()
    side: int = LEFT
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    hashed: tuple[int, ...] = ()
    hot: tuple[tuple[tuple[str, ...], float, float], ...] = ()
    others: float = 0.0
    window: tuple[int, int] = (0, 0)
    kept: tuple[bool, bool] = (False, False)
    keys: tuple[tuple[int, int], ...] = ()
    groups: tuple[int, ...] = ()
    functions: tuple[str, ...] = ()
    partial: bool = False
    query: str = ""


@dataclass(frozen=True)
class QueryFlow(Flow[Operator]):
    """All operators of a plan of queries."""

    operators: tuple[Operator, ...]

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps({QUERIES: True, **to_plain(self)})

    @classmethod
    def from_json(cls, text: str) -> QueryFlow:
        """From what `to_json` wrote."""
        document = json.loads(text)
        document.pop(QUERIES)
        return from_plain(document, cls, "flow of queries")


def read_flow(text: str) -> Dataflow | QueryFlow:
    """The flow of a job, as `QueryFlow.to_json` or `Dataflow.to_json` wrote it."""
    return QueryFlow.from_json(text) if QUERIES in json.loads(text) else Dataflow.from_json(text)


def flow_of(plan: Plan) -> Dataflow | QueryFlow:
    """What an engine must run for a plan: of pairs, or of queries with columns."""
    if plan.problem.queries:
        return from_plan(plan)
    return dataflow.from_plan(plan, plan.problem)


@dataclass(frozen=True)
class Readings:
    """Where the tuples of the sources come from, and how fast they are replayed.

    Attributes:
        files: a file of encoded tuples (`nova_workloads.queries.readings.encode`) for every
            source, on the client's host.
        first_ms: event time of the first tuple of all.
        start_ms: when that is emitted, ms since the epoch; at once where that has passed.
        speed: ms of event time per ms; 0 emits everything as fast as it is taken.
        watermark_ms: watermarks are at multiples of it.
    """

    files: dict[str, str] = field(default_factory=dict)
    first_ms: int = 0
    start_ms: int = 0
    speed: float = 1.0
    watermark_ms: int = 10

    def to_json(self) -> str:
        """As JSON text."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Readings:
        """From what `to_json` wrote."""
        return from_json(text, cls, "readings")

    def file(self, source: str) -> str:
        """The tuples of a source.

        Raises:
            NovaError: where there are none.
        """
        if source not in self.files:
            raise NovaError(f"readings: source {source!r} is not there")
        return self.files[source]

    def encoded(self, source: str) -> bytes:
        """The content of that file.

        Raises:
            NovaError: where there is none, or it cannot be read.
        """
        file = self.file(source)
        try:
            return Path(file).read_bytes()
        except OSError as error:
            raise NovaError(f"{file}: {error.strerror}") from error


def program(one: Expression, columns: Sequence[Column]) -> Program:
    """An expression in postfix order, over tuples with these columns."""
    return tuple(_tokens(one, columns))


def _tokens(one: Expression, columns: Sequence[Column]) -> Iterator[str]:
    from nova_core.io.expressions import Call, Constant

    if isinstance(one, Constant):
        yield f"{one.type[0]}:{one.value}"
    elif isinstance(one, Call):
        for part in one.of:
            yield from _tokens(part, columns)
        yield one.name
    else:
        yield f"c:{columns.index(one)}"


def from_plan(plan: Plan) -> QueryFlow:
    """What the engine must run for a plan of queries with columns.

    Raises:
        NovaError: for a problem without `streams`.
    """
    return _Builder(plan).flow()


class _Builder:
    def __init__(self, plan: Plan) -> None:
        from nova_core.io.binding import bind

        self.plan, self.graph = plan, plan.graph
        self.bound = [bind(query, plan.problem) for query in plan.problem.queries]
        self.nodes: list[str] = plan.problem.nodes.ids.tolist()
        self.operators: dict[str, Operator] = {}
        replica = plan.replica_number.tolist()
        pairs: list[int] = plan.instances.pair.tolist()
        self.body: list[int] = plan.graph.bodies[plan.instances.pair].tolist()
        self.node: list[str] = [self.nodes[n] for n in plan.instances.node.tolist()]
        self.names = [f"{plan.operator_name(p)}#{replica[k]}" for k, p in enumerate(pairs)]
        feeds = plan.instances.feeds
        self.feeds: list[int] = [-1] * len(pairs) if feeds is None else feeds.tolist()
        self.combined = {self.body[k] for k, one in enumerate(self.feeds) if one >= 0}
        self.columns: dict[int, tuple[Column, ...]] = {}
        self.types: dict[int, tuple[str, ...]] = {}

    def flow(self) -> QueryFlow:
        """Everything, in an order in which inputs come first."""
        sent = self._sent()
        for number, one in enumerate(self.graph):
            if one.kind == "source":
                self._source(number)
            elif one.kind == "sink":
                self._sink(number, sent)
            elif self.graph.root[number] == number:
                # Pieces of a combined aggregate come before the one that combines them.
                mine = [k for k, body in enumerate(self.body) if body == number]
                for k in sorted(mine, key=lambda k: self.feeds[k] < 0):
                    self._instance(k, number, sent)
            else:
                self._fused(number)
        return QueryFlow(
            tuple(self.operators.values()), self.plan.problem.digest, self.plan.strategy
        )

    def _add(self, one: Operator) -> str:
        self.operators.setdefault(one.name, one)
        return one.name

    def _meaning(self, number: int) -> Bound:
        one = self.graph[number]
        return self.bound[one.query][one.logical]

    # --- links ----------------------------------------------------------------------------------

    def _sent(self) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
        """Per consumer (instance, or -1 - number of a sink): producer, operator, side.

        The producer is an instance, or -1 - number of a source; it sends the operator's output.
        """
        producers, consumers, _, _ = self.graph.links
        operators = self.graph.carried
        sent: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        links = self.plan.links
        rows = zip(*(column.tolist() for column in links[:4]), strict=True)
        for begin, end, logical, side in rows:
            if logical < 0:
                sent.setdefault((end, -1), []).append((begin, self.body[begin], PARTIAL))
                continue
            origin = begin if begin >= 0 else -1 - int(producers[logical])
            target = (end, -1) if end >= 0 else (-1, int(consumers[logical]))
            sent.setdefault(target, []).append((origin, int(operators[logical]), side))
        return sent

    def _output(self, producer: int, operator: int) -> tuple[str, str]:
        """Name and node of what emits an operator's output at a producer."""
        if producer < 0:
            return self._at_source(operator), self._node_of(-1 - producer)
        if operator == self.body[producer]:
            return self.names[producer], self.node[producer]
        return f"{self.graph[operator].id}@{self.names[producer]}", self.node[producer]

    def _node_of(self, number: int) -> str:
        return self.nodes[int(self.graph.node[number])]

    def _at_source(self, operator: int) -> str:
        one = self.graph[operator]
        return f"source {one.id}" if one.kind == "source" else one.id

    # --- operators ------------------------------------------------------------------------------

    def _source(self, number: int) -> None:
        one = self.graph[number]
        stream = str(self.plan.problem.sources.stream[self.graph.source[number]])
        columns = self.bound[0][stream].columns
        self.columns[number] = columns
        types = tuple(column.type for column in columns)
        name = f"source {one.id}"
        self._add(Operator(name, self._node_of(number), SOURCE, source=one.id, types=types))

    def _fused(self, number: int) -> None:
        """Add a filter or projection at every producer of its root's output."""
        one, root = self.graph[number], int(self.graph.root[number])
        meaning, above = self._meaning(number), self.columns[one.inputs[0]]
        programs: tuple[Program, ...]
        if one.kind == "filter":
            assert meaning.condition is not None  # a filter has one
            programs, kind = (program(meaning.condition, above),), FILTER
            self.columns[number] = above
        else:
            programs, kind = (
                tuple(program(expression, above) for expression in meaning.made),
                PROJECT,
            )
            self.columns[number] = meaning.columns
        at_source = self.graph[root].kind == "source"
        producers = (
            [-1 - root] if at_source else [k for k, body in enumerate(self.body) if body == root]
        )
        for producer in producers:
            if producer >= 0 and self.feeds[producer] >= 0:
                continue  # emits partial results, which are of another shape
            above_name, node = self._output(producer, one.inputs[0])
            name, _ = self._output(producer, number)
            self._add(Operator(name, node, kind, (above_name,), programs=programs))

    def _instance(
        self, k: int, number: int, sent: dict[tuple[int, int], list[tuple[int, int, int]]]
    ) -> None:
        inputs: list[str] = []
        for producer, operator, side in sent.get((k, -1), []):
            inputs += self._received(k, number, producer, operator, side)
        one = self.graph[number]
        if one.kind == "join":
            self._join(k, number, tuple(inputs))
        elif one.kind == "aggregate":
            self._aggregate(k, number, tuple(inputs))
        else:
            raise NovaError(f"{one.id}: a {one.kind} cannot be run by itself")

    def _received(self, k: int, number: int, producer: int, operator: int, side: int) -> list[str]:
        """Add a cut of an instance's share of an output, and a select where the cut is shared."""
        name, node = self._output(producer, operator)
        if self._is_partial(producer, operator):
            side = PARTIAL
        own_range, reached = self._range(k, number, side)
        shared = self._sharing(k, number, side)
        by = self._hashed(k, number, operator, side)
        end = f"{self.graph[number].id} {side}"
        runs = sorted({self._range(other, number, side)[0] for other in shared})
        cut = f"send {name} to {end} on {self.node[k]}"
        self._add(replace(_cut(CUT, cut, node, name, side, _merged(runs), reached), **by))
        if _merged(runs) == [own_range]:
            return [cut]
        select = f"select {name} for {self.names[k]} {side}"
        chosen = _cut(SELECT, select, self.node[k], cut, side, [own_range], reached)
        self._add(replace(chosen, **by))
        return [select]

    def _is_partial(self, producer: int, operator: int) -> bool:
        """Whether an operator's output at a producer is partial results of an aggregate."""
        if producer >= 0 and self.feeds[producer] >= 0:
            return True
        return bool(self.graph.partial[operator])

    def _sharing(self, k: int, number: int, side: int) -> list[int]:
        """Instances of an operator on one node; pieces of combined aggregates share nothing."""
        if number in self.combined:
            return [k]
        return [
            other
            for other, body in enumerate(self.body)
            if body == number and self.node[other] == self.node[k]
        ]

    def _range(self, k: int, number: int, side: int) -> tuple[tuple[int, int], list[float]]:
        """Partitions of an input that an instance takes, and cumulative shares of all of them."""
        from nova_core.model.partitioner import reached

        if number in self.combined:
            return (0, 1), [1.0]
        i, parts = self.plan.instances, self.plan.partitions
        is_join = self.graph[number].kind == "join"
        # By key, both inputs are cut in the same ranges.
        right = is_join and side == RIGHT and not self.plan.by_key[k]
        begin, end = (i.right_begin, i.right_end) if right else (i.left_begin, i.left_end)
        ends = reached(parts.rates(int(i.pair[k]), int(right)))
        return (int(begin[k]), int(end[k])), ends.tolist()

    def _hashed(self, k: int, number: int, operator: int, side: int) -> dict[str, Any]:
        """Columns by whose values an aggregate, or a join that is cut by key, is cut."""
        from nova_core.model.key_ranges import intervals

        one = self.graph[number]
        if self.plan.by_key[k]:
            rates = self.plan.partitions.rates(int(self.plan.instances.pair[k]), 0)
            hot, others = intervals(self.graph.joins[number], rates)
            columns = tuple(pair[side] for pair in self._keys(number))
            return {"hashed": columns, "hot": tuple(hot), "others": others}
        if one.kind != "aggregate" or number in self.combined:
            return {}
        groups = self._meaning(number).groups
        if side == PARTIAL:
            # They come first in partial results.
            return {"hashed": tuple(range(len(groups)))}
        return {"hashed": tuple(self.columns[operator].index(column) for column in groups)}

    def _keys(self, number: int) -> tuple[tuple[int, int], ...]:
        """Columns of a join's left input that equal columns of the right one, in pairs."""
        from nova_core.io.binding import equal_columns

        left, right = (self.columns[n] for n in self.graph[number].inputs)
        equal = equal_columns(self._meaning(number).condition, left, right)
        return tuple((left.index(one), right.index(other)) for one, other in equal)

    def _kept(self, number: int) -> tuple[bool, bool]:
        meaning = self._meaning(number)
        bound = self.bound[self.graph[number].query]
        keeps = [bound[name].windows == meaning.window for name in meaning.inputs]
        return keeps[0], keeps[-1]

    def _join(self, k: int, number: int, inputs: tuple[str, ...]) -> None:
        meaning, one = self._meaning(number), self.graph[number]
        left, right = (self.columns[n] for n in one.inputs)
        self.columns[number] = both = (*left, *right)
        condition = meaning.condition
        assert meaning.window is not None  # a join has one
        self._add(
            Operator(
                self.names[k],
                self.node[k],
                JOIN,
                inputs,
                programs=() if condition is None else (program(condition, both),),
                window=(meaning.window.size_ms, meaning.window.slide_ms),
                kept=self._kept(number),
                keys=self._keys(number),
            )
        )

    def _aggregate(self, k: int, number: int, inputs: tuple[str, ...]) -> None:
        meaning, one = self._meaning(number), self.graph[number]
        raw = next((n for n in one.inputs if not self.graph.partial[n]), one.inputs[0])
        above = self.columns[raw]
        if self.graph.partial[raw]:
            # All inputs are partial results: the columns are those of their own input.
            above = self.columns[self.graph[raw].inputs[0]]
        self.columns[number] = meaning.columns
        assert meaning.window is not None  # an aggregate has one
        self._add(
            Operator(
                self.names[k],
                self.node[k],
                AGGREGATE,
                inputs,
                programs=tuple(
                    program(call.of[0], above) if call.of else () for call in meaning.computed
                ),
                window=(meaning.window.size_ms, meaning.window.slide_ms),
                kept=self._kept(number),
                groups=tuple(above.index(column) for column in meaning.groups),
                functions=tuple(call.name for call in meaning.computed),
                partial=one.partial or self.feeds[k] >= 0,
            )
        )

    def _sink(self, number: int, sent: dict[tuple[int, int], list[tuple[int, int, int]]]) -> None:
        one = self.graph[number]
        inputs = [
            self._output(producer, operator)[0]
            for producer, operator, _ in sent.get((-1, number), [])
        ]
        query = self.plan.problem.queries[one.query]
        columns = self.bound[one.query][query.operators[-1].id].columns
        self._add(
            Operator(
                f"sink {query.id}",
                self._node_of(number),
                SINK,
                tuple(dict.fromkeys(inputs)),
                types=tuple(column.type for column in columns),
                columns=tuple(column.text for column in columns),
                query=query.id,
            )
        )


def _cut(
    kind: str,
    name: str,
    node: str,
    above: str,
    side: int,
    runs: Sequence[tuple[int, int]],
    reached: Sequence[float],
) -> Operator:
    low, high = zip(*(interval(reached, begin, end) for begin, end in runs), strict=True)
    return Operator(name, node, kind, (above,), side=side, low=low, high=high)


def _merged(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order; those that touch or overlap are merged."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged
