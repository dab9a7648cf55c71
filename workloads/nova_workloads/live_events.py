"""Random events for a live placement, like those of a deployment in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeVar

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from nova_core.io.problem_document import NodeRow, SourceRow
from nova_core.model.problem import Floats, Problem
from nova_core.model.queries import Aggregate, Filter, Join, LogicalOperator, Project
from nova_core.model.requirements import RequiresPart
from nova_core.placement.live import (
    AddOperator,
    AddPair,
    AddQuery,
    AddSource,
    AddWorker,
    Batch,
    ChangeCapacity,
    ChangeLink,
    ChangeRate,
    ChangeSelectivity,
    Event,
    FailNode,
    JoinWith,
    MoveNode,
    MoveSink,
    NewOperator,
    NewPair,
    RemoveOperator,
    RemovePair,
    RemoveQuery,
    RemoveSource,
    RemoveWorker,
)

# Kinds of events and how often each is drawn, for joins of pairs.
SHARES: dict[str, float] = {
    "add-worker": 2,
    "add-worker, measured": 0.5,
    "remove-worker": 1,
    "fail-node": 1,
    "add-source": 2,
    "remove-source": 1,
    "add-pair": 1,
    "remove-pair": 0.5,
    "add-operator": 0.3,
    "remove-operator": 0.2,
    "change-rate": 6,
    "change-capacity": 3,
    "move-node": 3,
    "move-sink": 0.1,
    "change-link": 0.5,
    "batch": 0.5,
}
_OF_PAIRS = ("add-pair", "remove-pair", "add-operator", "remove-operator")
# The same for whole queries.
QUERY_SHARES = {kind: share for kind, share in SHARES.items() if kind not in _OF_PAIRS} | {
    # One more is joined with many.
    "add-source": 1,
    "add-query": 0.5,
    "remove-query": 0.4,
    "change-selectivity": 2,
}
T = TypeVar("T")
# An operator, a left and a right source.
Pair = tuple[str, str, str]
GREATEST_CAPACITY = 300
DRIFT = 5.0  # ms, of a node that moves
MEASURED = 5  # nodes that a new one without a position has measured


def shares_of(problem: Problem) -> dict[str, float]:
    """Kinds of events that a problem takes, and how often each is drawn."""
    return QUERY_SHARES if problem.queries else SHARES


class RandomEvents:
    """Draws events that fit the current problem, and tracks what they change.

    Attributes:
        kinds: what is drawn, with the shares.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        kinds: Sequence[str] = (),
        sinks: Sequence[str] = (),
    ) -> None:
        """Begin.

        Args:
            problem: that the events change.
            seed: one seed gives one stream of events.
            kinds: of `shares_of` the problem; all of them if there are none.
            sinks: nodes that sinks move to; a new one each time if there are none.
        """
        self._targets = list(sinks)
        self._random = np.random.default_rng(seed)
        known = shares_of(problem)
        self.kinds = tuple(kinds) or tuple(known)
        shares = np.array([known[kind] for kind in self.kinds])
        self._chances = shares / shares.sum()
        ids, sources = problem.nodes.ids.tolist(), problem.sources
        # Of new nodes that have not been added yet.
        self._drawn: dict[str, Floats] = {}
        self._position = {name: problem.nodes.position[i] for i, name in enumerate(ids)}
        # Maintained: a scan of many thousands per event would evict the processor's caches.
        # Joins of pairs, or whole queries.
        self._queries = {query.id: query for query in problem.queries}
        operators = list(self._queries) or problem.joins.ids.tolist()
        self._operators: _Bag[str] = _Bag(operators)
        # The first one of joins stays, and a query.
        self._removable: _Bag[str] = _Bag(operators[1:])
        # Pairs that may be removed; some vanish with a source or an operator.
        self._pairs: _Bag[Pair] = _Bag()
        if "remove-pair" in self.kinds:
            m, names = problem.matrix, sources.ids.tolist()
            for join, left, right in zip(
                m.join.tolist(), m.left.tolist(), m.right.tolist(), strict=True
            ):
                self._pairs.add((self._operators.at(join), names[left], names[right]))
        nodes = problem.nodes
        texts = [] if nodes.tags is None else np.unique(nodes.tags).tolist()
        self._tags = sorted({tag for text in texts for tag in text.split(",") if tag})
        ends = [ids[row] for row in problem.sinks.tolist()]
        self._sinks = dict(zip(operators, ends, strict=True))
        # Of sources; empty where they have none.
        self._keys = [] if sources.key is None else np.unique(sources.key).tolist()
        self._streams = {
            name: (left, right)
            for name, left, right in zip(
                problem.joins.ids.tolist(),
                problem.joins.left.tolist(),
                problem.joins.right.tolist(),
                strict=True,
            )
        }
        self._sources: dict[str, tuple[str, str]] = {}
        self._on_sink = set(self._sinks.values())
        self._by_stream: dict[str, _Bag[str]] = {}
        # Streams of several sources, of which one may end.
        self._plural: _Bag[str] = _Bag()
        # Not a set: the order of its names differs from process to process.
        self._on_node: dict[str, dict[str, None]] = {}
        for name, node, stream in zip(
            sources.ids.tolist(), sources.node.tolist(), sources.stream.tolist(), strict=True
        ):
            self._add_source(name, ids[node], stream)
        self._nodes = _Bag(ids)
        self._rate = (float(sources.rate.min()), float(sources.rate.max()))
        self._number = 0
        self._draw: dict[str, Callable[[], Event | None]] = {
            "add-worker": self._add_worker,
            "add-worker, measured": self._add_measured_worker,
            "remove-worker": self._remove_worker,
            "fail-node": self._fail_node,
            "add-source": self._new_source,
            "remove-source": self._remove_source,
            "add-pair": self._add_pair,
            "remove-pair": self._remove_pair,
            "add-operator": self._add_operator,
            "remove-operator": self._remove_operator,
            "add-query": self._add_query,
            "remove-query": self._remove_query,
            "change-selectivity": self._change_selectivity,
            "change-rate": self._change_rate,
            "change-capacity": self._change_capacity,
            "move-node": self._move_node,
            "move-sink": self._move_sink,
            "change-link": self._change_link,
            "batch": self._batch,
        }

    def only(self, kind: str) -> None:
        """Draw events of one kind from now on."""
        self.kinds = (kind,)
        self._chances = np.ones(1)

    def next(self) -> Event:
        """One event."""
        while True:
            kind = str(self._random.choice(self.kinds, p=self._chances))
            event = self._draw[kind]()
            if event is not None:
                return event

    def happened(self, event: Event) -> None:
        """Record an event that has taken effect; not for refused ones."""
        if isinstance(event, Batch):
            for each in event.events:
                self.happened(each)
        elif isinstance(event, AddWorker):
            self._position[event.node.id] = self._drawn.pop(event.node.id)
            self._nodes.add(event.node.id)
        elif isinstance(event, RemoveWorker | FailNode):
            for source in list(self._on_node.get(event.node, ())):
                self._drop_source(source)
            self._nodes.discard(event.node)
        elif isinstance(event, AddSource):
            self._add_source(event.source.id, event.source.node, event.source.stream)
        elif isinstance(event, RemoveSource):
            self._drop_source(event.source)
        elif isinstance(event, AddPair):
            self._pairs.add((event.operator, event.left, event.right))
        elif isinstance(event, RemovePair):
            self._pairs.discard((event.operator, event.left, event.right))
        elif isinstance(event, AddOperator):
            name = event.operator.id
            self._operators.add(name)
            self._removable.add(name)
            self._streams[name] = event.operator.left, event.operator.right
            self._sinks[name] = event.operator.sink
            self._on_sink.add(event.operator.sink)
            for pair in event.pairs:
                self._pairs.add((name, pair.left, pair.right))
        elif isinstance(event, RemoveOperator):
            self._operators.discard(event.operator)
            self._removable.discard(event.operator)
            del self._streams[event.operator], self._sinks[event.operator]
        elif isinstance(event, AddQuery):
            name = event.query.id
            self._operators.add(name)
            self._queries[name] = event.query
            self._sinks[name] = event.query.sink
            self._on_sink.add(event.query.sink)
        elif isinstance(event, RemoveQuery):
            self._operators.discard(event.query)
            del self._queries[event.query], self._sinks[event.query]
        elif isinstance(event, ChangeSelectivity):
            query = self._queries[event.query]
            operators = [
                replace(one, selectivity=event.selectivity) if one.id == event.operator else one
                for one in query.operators
            ]
            self._queries[event.query] = replace(query, operators=operators)
        elif isinstance(event, MoveNode):
            self._position[event.node] = np.array(event.position)
        elif isinstance(event, MoveSink):
            self._sinks[event.operator] = event.node
            self._on_sink.add(event.node)

    # --- current state ----------------------------------------------------------------------------

    def _add_source(self, name: str, node: str, stream: str) -> None:
        self._sources[name] = (node, stream)
        sources = self._by_stream.setdefault(stream, _Bag())
        sources.add(name)
        if len(sources) == 2:
            self._plural.add(stream)
        self._on_node.setdefault(node, {})[name] = None

    def _drop_source(self, name: str) -> None:
        node, stream = self._sources.pop(name)
        self._by_stream[stream].discard(name)
        if len(self._by_stream[stream]) == 1:
            self._plural.discard(stream)
        del self._on_node[node][name]

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}-new-{self._number}"

    def _some_operator(self) -> str:
        return self._operators.draw(self._random)

    def _some_rate(self) -> float:
        return float(self._random.integers(round(self._rate[0]), round(self._rate[1]) + 1))

    def _some_source(self) -> str | None:
        if not len(self._plural):
            return None
        return self._by_stream[self._plural.draw(self._random)].draw(self._random)

    # --- events -----------------------------------------------------------------------------------

    def _add_worker(self) -> Event:
        near = self._position[self._nodes.draw(self._random)]
        row = self._node_near("n", near, float(self._random.integers(1, GREATEST_CAPACITY)))
        return AddWorker(node=row)

    def _add_measured_worker(self) -> Event:
        """Latencies to some nodes are distances to where these were drawn or have moved."""
        event = self._add_worker()
        assert isinstance(event, AddWorker)
        others = {self._nodes.draw(self._random) for _ in range(MEASURED)}
        place = self._drawn[event.node.id]
        latency: dict[str, float | list[float]] = {
            name: float(np.linalg.norm(self._position[name] - place)) for name in sorted(others)
        }
        return AddWorker(node=replace(event.node, position=UNSET), latency=latency)

    def _node_near(
        self, prefix: str, near: Floats, capacity: float | Literal["unlimited"]
    ) -> NodeRow:
        place = np.round(near + self._random.normal(0, DRIFT, len(near)), 4)
        name = self._name(prefix)
        self._drawn[name] = place
        return NodeRow(id=name, capacity=capacity, position=place.tolist())

    def _remove_worker(self) -> Event | None:
        node = self._nodes.draw(self._random)
        busy = self._on_node.get(node) or node in self._on_sink
        return None if busy else RemoveWorker(node=node)

    def _fail_node(self) -> Event | None:
        node = self._nodes.draw(self._random)
        return None if node in self._on_sink else FailNode(node=node)

    def _new_source(self) -> Event | None:
        if self._queries:
            return self._new_source_of_queries()
        operator = self._some_operator()
        streams = self._streams[operator]
        side = int(self._random.integers(2))
        others = self._by_stream.get(streams[1 - side])
        if not others:
            return None
        partners = {others.draw(self._random) for _ in range(int(self._random.integers(1, 3)))}
        source = SourceRow(
            id=self._name("s"),
            node=self._nodes.draw(self._random),
            stream=streams[side],
            rate=self._some_rate(),
        )
        joins = [
            JoinWith(operator=operator, other=other, output_rate=1.0) for other in sorted(partners)
        ]
        return AddSource(source=source, joins=joins)

    def _new_source_of_queries(self) -> Event | None:
        """One more of a stream; queries say what it is joined with."""
        near = self._some_source()
        if near is None:
            return None
        source = SourceRow(
            id=self._name("s"),
            node=self._nodes.draw(self._random),
            stream=self._sources[near][1],
            rate=self._some_rate(),
        )
        if self._keys:
            source.key = str(self._random.choice(self._keys))
        return AddSource(source=source)

    def _remove_source(self) -> Event | None:
        source = self._some_source()
        return None if source is None else RemoveSource(source=source)

    def _some_pairs(self, streams: tuple[str, str], count: int) -> list[tuple[str, str]]:
        """At most so many pairs of sources of two streams; any but those of a source itself."""
        sides = [self._by_stream.get(stream) for stream in streams]
        if not (sides[0] and sides[1]):
            return []
        drawn = [(sides[0].draw(self._random), sides[1].draw(self._random)) for _ in range(count)]
        return sorted({pair for pair in drawn if pair[0] != pair[1]})

    def _add_pair(self) -> Event | None:
        operator = self._some_operator()
        for left, right in self._some_pairs(self._streams[operator], 1):
            if (operator, left, right) not in self._pairs:
                return AddPair(operator=operator, left=left, right=right, output_rate=1.0)
        return None

    def _remove_pair(self) -> Event | None:
        while len(self._pairs) > 1:
            operator, left, right = pair = self._pairs.draw(self._random)
            if operator in self._streams and left in self._sources and right in self._sources:
                return RemovePair(operator=operator, left=left, right=right)
            self._pairs.discard(pair)
        return None

    def _add_operator(self) -> Event | None:
        """A query over the streams of another, with a sink that takes any output."""
        streams = self._streams[self._some_operator()]
        pairs = self._some_pairs(streams, int(self._random.integers(1, 5)))
        if not pairs:
            return None
        requires: RequiresPart | UnsetType = UNSET
        if self._tags and self._random.random() < 0.5:
            requires = RequiresPart(tags=[str(self._random.choice(self._tags))])
        new = [NewPair(left=left, right=right, output_rate=1.0) for left, right in pairs]
        operator = NewOperator(
            id=self._name("q"), left=streams[0], right=streams[1], sink="", requires=requires
        )
        if self._targets:
            sink = self._targets[int(self._random.integers(len(self._targets)))]
            return AddOperator(operator=replace(operator, sink=sink), pairs=new)
        row = self._new_sink(self._position[self._nodes.draw(self._random)])
        started = AddOperator(operator=replace(operator, sink=row.id), pairs=new)
        return Batch(events=[AddWorker(node=row), started])

    def _remove_operator(self) -> Event | None:
        if not len(self._removable):
            return None
        return RemoveOperator(operator=self._removable.draw(self._random))

    def _add_query(self) -> Event:
        """One like another, which may share what it does, or do a part of it otherwise."""
        like = self._queries[self._some_operator()]
        operators = list(like.operators)
        changed = int(self._random.integers(2 * len(operators)))
        if changed < len(operators) and not isinstance(operators[changed], Aggregate):
            operators[changed] = replace(
                operators[changed], selectivity=self._some_selectivity(operators[changed])
            )
        query = replace(like, id=self._name("q"), operators=operators)
        if self._targets:
            sink = self._targets[int(self._random.integers(len(self._targets)))]
            return AddQuery(query=replace(query, sink=sink))
        row = self._new_sink(self._position[self._nodes.draw(self._random)])
        return Batch(events=[AddWorker(node=row), AddQuery(query=replace(query, sink=row.id))])

    def _remove_query(self) -> Event | None:
        return RemoveQuery(query=self._some_operator()) if len(self._operators) > 1 else None

    def _change_selectivity(self) -> Event | None:
        """Of an operator; perhaps to that of another query's, so that both are one."""
        query, other = (self._queries[self._some_operator()] for _ in range(2))
        operator = query.operators[int(self._random.integers(len(query.operators)))]
        if isinstance(operator, Aggregate):
            return None
        selectivity = self._some_selectivity(operator)
        for one in other.operators if self._random.random() < 0.4 else []:
            if one.id == operator.id and not isinstance(one, Aggregate) and one.selectivity:
                selectivity = float(one.selectivity)
        return ChangeSelectivity(query=query.id, operator=operator.id, selectivity=selectivity)

    def _some_selectivity(self, operator: LogicalOperator) -> float:
        assert isinstance(operator, Filter | Project | Join)
        now = float(operator.selectivity or 1.0)
        most = 1.0 if isinstance(operator, Filter) else 4.0
        return float(np.clip(round(now * self._random.uniform(0.4, 2.2), 3), 0.01, most))

    def _change_rate(self) -> Event | None:
        source = self._some_source()
        return None if source is None else ChangeRate(source=source, rate=self._some_rate())

    def _change_capacity(self) -> Event:
        node = self._nodes.draw(self._random)
        while node in self._on_sink:
            node = self._nodes.draw(self._random)
        capacity = float(self._random.integers(0, GREATEST_CAPACITY))
        return ChangeCapacity(node=node, capacity=capacity)

    def _move_node(self) -> Event | None:
        node = self._nodes.draw(self._random)
        if node in self._on_sink:
            return None
        position = self._position[node] + self._random.normal(0, DRIFT, len(self._position[node]))
        return MoveNode(node=node, position=[round(float(x), 4) for x in position])

    def _move_sink(self) -> Event:
        """To a node that takes any output: few others could."""
        operator = self._some_operator()
        if self._targets:
            node = self._targets[int(self._random.integers(len(self._targets)))]
            return MoveSink(operator=operator, node=node)
        row = self._new_sink(self._position[self._sinks[operator]])
        return Batch(events=[AddWorker(node=row), MoveSink(operator=operator, node=row.id)])

    def _new_sink(self, near: Floats) -> NodeRow:
        return replace(self._node_near("sink", near, "unlimited"), worker=False)

    def _change_link(self) -> Event | None:
        source = self._some_source()
        if source is None:
            return None
        ends = self._sources[source][0], self._nodes.draw(self._random)
        if ends[0] == ends[1]:
            return None
        return ChangeLink(source_node=ends[0], target_node=ends[1], budget=10 * self._some_rate())

    def _batch(self) -> Event | None:
        kinds = (self._add_worker, self._change_rate, self._change_capacity, self._new_source)
        events = [kinds[i]() for i in self._random.integers(0, len(kinds), 3)]
        if any(event is None for event in events):
            return None
        return Batch(events=events)  # type: ignore[arg-type]


class _Bag(Generic[T]):
    """Names, or pairs, of which any can be drawn and dropped at once."""

    def __init__(self, names: Sequence[T] = ()) -> None:
        self._names = list(names)
        self._place = {name: place for place, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: T) -> bool:
        return name in self._place

    def at(self, place: int) -> T:
        return self._names[place]

    def add(self, name: T) -> None:
        self._place[name] = len(self._names)
        self._names.append(name)

    def discard(self, name: T) -> None:
        place = self._place.pop(name)
        last = self._names.pop()
        if last != name:
            self._names[place] = last
            self._place[last] = place

    def draw(self, random: np.random.Generator) -> T:
        return self._names[int(random.integers(len(self._names)))]
