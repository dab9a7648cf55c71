"""The operators that an engine runs for a plan.

A source emits its tuples. Filters and projections run where their input is produced. What a node
gets of an output is cut where that is produced, so that only the plan's partitions travel, and
relayed where a route has inner nodes. Instances of one operator on one node share what arrives;
each selects its own range where that is more.

Pairs of sources are the smallest queries. Their tuples have no columns: each says which source it
is of. So what takes whole streams needs no cut, and results of many pairs share a sink.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from nova_core.errors import NovaError
from nova_engines.flow import (
    AGGREGATE,
    CUT,
    FILTER,
    JOIN,
    LEFT,
    PARTIAL,
    PROJECT,
    RELAY,
    RIGHT,
    SELECT,
    SIDES,
    SINK,
    SOURCE,
    Flow,
    Match,
    Operator,
    Program,
)

if TYPE_CHECKING:
    from nova_core.io.binding import Bound
    from nova_core.io.expressions import Column, Expression
    from nova_core.model.plan import Plan

Ranges = list[tuple[int, int]]


def flow_of(plan: Plan, match: Match | None = None) -> Flow:
    """What an engine must run for a plan.

    Args:
        plan: where instances run and what they receive.
        match: which tuples of its pairs match; without, only where these run is of interest.

    Raises:
        NovaError: for queries of a problem without `streams`.
    """
    return _Walk(plan, match).flow()


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


class _Link(NamedTuple):
    """What is sent between two places; instances that share it have the same.

    Attributes:
        producer: instance, or -1 - number of a source.
        operator: whose output it is, at the producer.
        consumer: operator that takes it.
        at: its node; of what cannot be shared, -1 - its instance.
        side: input of the consumer.
        way: inner nodes of the route.
    """

    producer: int
    operator: int
    consumer: int
    at: int
    side: int
    way: tuple[int, ...]


class _Walk:
    """Walks through a plan's graph, from the sources on."""

    def __init__(self, plan: Plan, match: Match | None) -> None:
        from nova_core.io.binding import Bound, Window, bind, stream_columns

        self.plan, self.graph = plan, plan.graph
        self.logical = list(plan.graph)
        self.match = match
        window = None if match is None else Window(match.window_ms, match.window_ms)
        pair = Bound("", "join", ("", ""), (), window)
        queries = plan.problem.queries
        self.bound: list[dict[str, Bound]] = (
            [bind(query, plan.problem) for query in queries]
            if queries
            else [{"": pair}] * self.graph.queries
        )
        self.streams = stream_columns(plan.problem.streams)
        self.nodes: list[str] = plan.problem.nodes.ids.tolist()
        self.operators: dict[str, Operator] = {}
        replica = plan.replica_number.tolist()
        self.body: list[int] = self.graph.bodies[plan.instances.pair].tolist()
        self.node: list[int] = plan.instances.node.tolist()
        self.ids = [f"{self.logical[body].id}#{replica[k]}" for k, body in enumerate(self.body)]
        feeds = plan.instances.feeds
        self.feeds: list[int] = [-1] * len(self.body) if feeds is None else feeds.tolist()
        self.combined = {self.body[k] for k, one in enumerate(self.feeds) if one >= 0}
        self.instances: dict[int, list[int]] = defaultdict(list)
        for k, body in enumerate(self.body):
            self.instances[body].append(k)
        self.columns: dict[int, tuple[Column, ...]] = {}
        self.by_key: list[bool] = plan.by_key.tolist()
        # Of each operator and input, where in [0, 1) its partitions end.
        self.reached: dict[tuple[int, int], list[float]] = {}
        # The first instance that takes what is sent, and what its node gets by it.
        self.sent: dict[_Link, tuple[int, Ranges]] = {}
        self.arriving: dict[tuple[int, int, int], list[_Link]] = defaultdict(list)
        # The last operator on its way, and the partitions that arrive.
        self.arrived: dict[_Link, tuple[str, Ranges]] = {}
        self.results: dict[int, list[_Link]] = defaultdict(list)
        self._read_links()

    def flow(self) -> Flow:
        """Everything, in an order in which inputs come first."""
        logical = self.plan.links.logical
        used = set(self.graph.links.producer[logical[logical >= 0]].tolist())
        for number, one in enumerate(self.logical):
            if one.kind == "source":
                self._source(number, runs=number in used)
            elif one.kind == "sink":
                continue  # after everything else: many may share one
            elif self.graph.root[number] == number:
                # Pieces of a combined aggregate come before the one that combines them.
                for k in sorted(self.instances[number], key=lambda k: self.feeds[k] < 0):
                    self._instance(k, number)
            else:
                self._fused(number)
        self._sinks()
        return Flow(tuple(self.operators.values()), self.plan.problem.digest, self.plan.strategy)

    def _add(self, one: Operator) -> str:
        self.operators.setdefault(one.name, one)
        return one.name

    def _meaning(self, number: int) -> Bound:
        one = self.logical[number]
        return self.bound[one.query][one.logical]

    # --- links ----------------------------------------------------------------------------------

    def _read_links(self) -> None:
        """Find out what is sent, what of it is shared, and which partitions it carries."""
        plan, graph = self.plan, self.graph
        producers, consumers = (column.tolist() for column in graph.links[:2])
        carried = graph.carried.tolist()
        new = [[bound.tolist() for bound in plan.new_range(side)] for side in (LEFT, RIGHT)]
        rows = zip(*(column.tolist() for column in plan.links[:4]), strict=True)
        for row, (begin, end, logical, side) in enumerate(rows):
            origin = begin if begin >= 0 else -1 - producers[logical]
            operator = carried[logical] if logical >= 0 else self.body[begin]
            if self._is_partial(origin, operator):
                side = PARTIAL
            way = self._way(row)
            if end < 0:
                sink = consumers[logical]
                self.results[sink].append(_Link(origin, operator, sink, -1 - end, side, way))
                continue
            shares = self.body[end] not in self.combined
            at = self.node[end] if shares else -1 - end
            link = _Link(origin, operator, self.body[end], at, side, way)
            begins, ends = new[self._cut_as(end, side)]
            adds = (begins[end], ends[end]) if shares else (0, 1)
            if adds[0] == adds[1]:
                continue  # it is there already
            if link not in self.sent:
                self.sent[link] = end, []
                self.arriving[self.body[end], at, side].append(link)
            self.sent[link][1].append(adds)

    def _way(self, row: int) -> tuple[int, ...]:
        routes = self.plan.routes
        if routes is None:
            return ()
        return tuple(routes.node[routes.offset[row] : routes.offset[row + 1]].tolist()[1:-1])

    def _is_partial(self, producer: int, operator: int) -> bool:
        """Whether an operator's output at a producer is partial results of an aggregate."""
        if producer >= 0 and self.feeds[producer] >= 0:
            return True
        return bool(self.graph.partial[operator])

    def _cut_as(self, k: int, side: int) -> int:
        """Which input's partitions an instance's input is cut in."""
        # By key, both inputs are cut in the same ranges.
        return RIGHT if side == RIGHT and not self.by_key[k] else LEFT

    def _output(self, producer: int, operator: int) -> tuple[str, str]:
        """Name and node of what emits an operator's output at a producer."""
        one = self.logical[operator]
        if producer < 0:
            name = f"source {one.id}" if one.kind == "source" else one.id
            return name, self.nodes[int(self.graph.node[-1 - producer])]
        if operator == self.body[producer]:
            name = f"{one.kind} {self.ids[producer]}"
        else:
            name = f"{one.id}@{self.ids[producer]}"
        return name, self.nodes[self.node[producer]]

    def _relayed(self, last: str, way: tuple[int, ...], what: str) -> str:
        """Add relays behind an operator; the name of the last one on the way."""
        for number, node in enumerate(way, 1):
            last = self._add(Operator(f"relay {what} {number}", self.nodes[node], RELAY, (last,)))
        return last

    # --- operators ------------------------------------------------------------------------------

    def _source(self, number: int, *, runs: bool) -> None:
        one = self.logical[number]
        stream = str(self.plan.problem.sources.stream[self.graph.source[number]])
        self.columns[number] = columns = tuple(self.streams.get(stream, ()))
        if runs:
            types = tuple(column.type for column in columns)
            name, node = self._output(-1 - number, number)
            self._add(Operator(name, node, SOURCE, source=one.id, types=types))

    def _fused(self, number: int) -> None:
        """Add a filter or projection at every producer of its root's output."""
        one, root = self.logical[number], int(self.graph.root[number])
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
        at_source = self.logical[root].kind == "source"
        for producer in [-1 - root] if at_source else self.instances[root]:
            if producer >= 0 and self.feeds[producer] >= 0:
                continue  # emits partial results, which are of another shape
            above_name, node = self._output(producer, one.inputs[0])
            name, _ = self._output(producer, number)
            self._add(Operator(name, node, kind, (above_name,), programs=programs))

    def _instance(self, k: int, number: int) -> None:
        at = -1 - k if number in self.combined else self.node[k]
        inputs = [self._input(k, number, at, side) for side in (LEFT, RIGHT, PARTIAL)]
        one = self.logical[number]
        name, node = self._output(k, number)
        if one.kind == "join":
            join = self._join(number)
            self._add(Operator(name, node, JOIN, inputs[LEFT], inputs[RIGHT], **join))
        elif one.kind == "aggregate":
            received = (*inputs[LEFT], *inputs[PARTIAL])
            self._add(Operator(name, node, AGGREGATE, received, **self._aggregate(k, number)))
        else:
            raise NovaError(f"{one.id}: a {one.kind} cannot be run by itself")

    def _input(self, k: int, number: int, at: int, side: int) -> tuple[str, ...]:
        """Add what is sent to an instance, and a select where that is more; what it receives."""
        links = self.arriving.get((number, at, side), [])
        if not links:
            return ()
        own, reached = self._range(k, number, side)
        received: list[str] = []
        surplus = False
        for link in links:
            name, runs = self._arrival(link)
            if any(begin < own[1] and own[0] < end for begin, end in runs):
                received.append(name)
                surplus |= runs[0][0] < own[0] or runs[-1][1] > own[1]
        if not surplus:
            return tuple(received)
        cut = self._partitions(k, number, links[0].operator, side, [own], reached)
        select = f"select {self.ids[k]} {SIDES[side]}"
        node = self.nodes[self.node[k]]
        return (self._add(Operator(select, node, SELECT, tuple(received), **cut)),)

    def _arrival(self, link: _Link) -> tuple[str, Ranges]:
        """Add what sends a link's tuples; the last operator on the way, and the partitions."""
        if link in self.arrived:
            return self.arrived[link]
        first, runs = self.sent[link]
        runs, (output, node) = _merged(runs), self._output(link.producer, link.operator)
        what = f"{output} to {self.ids[first]} {SIDES[link.side]}"
        _, reached = self._range(first, link.consumer, link.side)
        last = output
        if self.columns[link.operator] or runs != [(0, len(reached))]:
            args = (first, link.consumer, link.operator, link.side, runs, reached)
            cut = Operator(f"send {what}", node, CUT, (last,), **self._partitions(*args))
            last = self._add(cut)
        self.arrived[link] = self._relayed(last, link.way, what), runs
        return self.arrived[link]

    def _range(self, k: int, number: int, side: int) -> tuple[tuple[int, int], list[float]]:
        """Partitions of an input that an instance takes, and cumulative shares of all of them."""
        from nova_core.model.partitioner import reached

        if number in self.combined:
            return (0, 1), [1.0]
        i, parts, as_side = self.plan.instances, self.plan.partitions, self._cut_as(k, side)
        begin, end = (i.right_begin, i.right_end) if as_side else (i.left_begin, i.left_end)
        if (number, as_side) not in self.reached:
            ends = reached(parts.rates(int(i.pair[k]), as_side)).tolist()
            self.reached[number, as_side] = ends
        return (int(begin[k]), int(end[k])), self.reached[number, as_side]

    def _partitions(
        self, k: int, number: int, operator: int, side: int, runs: Ranges, reached: list[float]
    ) -> dict[str, Any]:
        """Which tuples of an operator's output a cut for an instance's input passes."""
        low, high = zip(*(interval(reached, begin, end) for begin, end in runs), strict=True)
        cut = {"side": side, "low": low, "high": high}
        return cut | self._hashed(k, number, operator, side)

    def _hashed(self, k: int, number: int, operator: int, side: int) -> dict[str, Any]:
        """Columns by whose values an aggregate, or a join that is cut by key, is cut."""
        from nova_core.model.key_ranges import intervals

        one = self.logical[number]
        if self.by_key[k]:
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

        left, right = (self.columns[n] for n in self.logical[number].inputs)
        equal = equal_columns(self._meaning(number).condition, left, right)
        return tuple((left.index(one), right.index(other)) for one, other in equal)

    def _windows(self, number: int) -> dict[str, Any]:
        """Windows of a join or an aggregate, and which of its inputs keep theirs."""
        meaning = self._meaning(number)
        if meaning.window is None:
            return {}  # of pairs, where nobody has said
        bound = self.bound[self.logical[number].query]
        keeps = [bound[name].windows == meaning.window for name in meaning.inputs]
        size = meaning.window.size_ms, meaning.window.slide_ms
        return {"window": size, "kept": (keeps[0], keeps[-1])}

    def _join(self, number: int) -> dict[str, Any]:
        meaning, one = self._meaning(number), self.logical[number]
        left, right = (self.columns[n] for n in one.inputs)
        self.columns[number] = both = (*left, *right)
        condition, match = meaning.condition, self.match
        return {
            "programs": () if condition is None else (program(condition, both),),
            **self._windows(number),
            "match": (1, 1) if both or match is None else (match.keys, match.every),
            "keys": self._keys(number),
        }

    def _aggregate(self, k: int, number: int) -> dict[str, Any]:
        meaning, one = self._meaning(number), self.logical[number]
        raw = next((n for n in one.inputs if not self.graph.partial[n]), one.inputs[0])
        above = self.columns[raw]
        if self.graph.partial[raw]:
            # All inputs are partial results: the columns are those of their own input.
            above = self.columns[self.logical[raw].inputs[0]]
        self.columns[number] = meaning.columns
        return {
            "programs": tuple(
                program(call.of[0], above) if call.of else () for call in meaning.computed
            ),
            **self._windows(number),
            "groups": tuple(above.index(column) for column in meaning.groups),
            "functions": tuple(call.name for call in meaning.computed),
            "partial": one.partial or self.feeds[k] >= 0,
        }

    def _sinks(self) -> None:
        """Add sinks: of each query, or of all pairs whose results one node gets."""
        inputs: dict[str, dict[str, None]] = defaultdict(dict)
        sinks: dict[str, Operator] = {}
        for number, links in sorted(self.results.items()):
            node, queries = self.nodes[int(self.graph.node[number])], self.plan.problem.queries
            query = queries[int(self.graph.query[number])].id if queries else ""
            sink, columns = f"sink {query or node}", self.columns[self.logical[number].inputs[0]]
            types, names = tuple(one.type for one in columns), tuple(one.text for one in columns)
            sinks[sink] = Operator(sink, node, SINK, types=types, columns=names, query=query)
            for link in links:
                output, _ = self._output(link.producer, link.operator)
                # Each instance has relays of its own: shared ones would wait for the slowest.
                last = self._relayed(output, link.way, f"{output} to {sink}")
                inputs[sink][last] = None
        for sink, received in inputs.items():
            self._add(replace(sinks[sink], inputs=tuple(received)))


def interval(reached: Sequence[float], begin: int, end: int) -> tuple[float, float]:
    """The interval of the u in [0, 1) of tuples of partitions ``begin`` to ``end`` - 1.

    Args:
        reached: cumulative shares of all partitions.
        begin: the first partition.
        end: one past the last.
    """
    return reached[begin - 1] if begin else 0.0, reached[end - 1] if end < len(reached) else 2.0


def _merged(runs: Ranges) -> Ranges:
    """Ranges in order; those that touch or overlap are merged."""
    merged: Ranges = []
    for begin, end in sorted(runs):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged
