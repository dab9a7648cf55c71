"""Whole queries in a live placement: their operators, what they share, and what events change.

An event expands the queries that it concerns anew. An operator that does the same to the same
inputs at the same rates is one operator, in whichever queries; what a query had before under the
same name goes on where it runs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.expansion import (
    Emission,
    Expansion,
    Partial,
    Row,
    SourceOf,
    Step,
    steps_of,
)
from nova_core.model.graph import JOIN, SINK, SOURCE
from nova_core.model.problem import Problem
from nova_core.model.queries import Aggregate, Filter, Join, Query, inputs_of
from nova_core.model.query_checks import check_query
from nova_core.model.requirements import ANY_NODE, Rule, bad_labels
from nova_core.placement import cutting
from nova_core.placement.kernels.state.tables import FIRST_SOURCE, HOST, LEFT, LOGICAL, RIGHT
from nova_core.placement.kernels.state.tables import SINK as TO_SINK
from nova_core.placement.live.demand import LogicalLink, Placing
from nova_core.placement.live.events import (
    AddQuery,
    AddSource,
    ChangeSelectivity,
    MoveSink,
    RemoveQuery,
)
from nova_core.placement.live.naming import row_of
from nova_core.placement.live.pieces import Pieces
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import NOWHERE
from nova_core.placement.partitioning import DEFAULT_SIGMA

# Who reads an operator: another one, or a query's sink as -1 less the query; and on which side.
Reader = tuple[int, int]


@dataclass(eq=False, slots=True)
class _Use:
    """What queries do, in one place however many do it.

    Attributes:
        token: a number of its own.
        key: what it does, to which inputs, and at which rates.
        logical: id of the queries' operator.
        operator: the operator it runs as or with; of a source `FIRST_SOURCE` less the source.
        rate: tuples/s that it emits.
        users: queries that do this, each with its name for it, less the query's.
    """

    token: int
    key: Any
    logical: str
    operator: int
    rate: float
    users: dict[int, str] = field(default_factory=dict)

    def key_at(self, rate: float) -> Any:
        """Its key at another rate."""
        return (*self.key[:2], rate, *self.key[3:])

    def set(self, key: Any, rate: float) -> None:
        """Give it another key and rate."""
        self.key, self.rate = key, rate


# What something reads: an operator, or `FIRST_SOURCE` less a source; and whose tuples these are,
# the operator's or those of what runs with it; None for a source's own.
Inputs = tuple[tuple[int, _Use | None], ...]


class _Body(msgspec.Struct, frozen=True, eq=False):
    """A placed operator besides its place.

    Attributes:
        use: what it does.
        kind: row of `nova_core.model.graph.KINDS`.
        inputs: what it reads.
        parts: into how many shares it can be cut.
        combines: whether it can be computed of parts of its inputs.
        join: the query's operator of a join.
        requirement: what hosts must meet, counted from 1; 0 for nothing.
        depth: operators on the longest way from a source.
        before: ways from sources.
        readers: who reads it, and whose tuples.
        after: ways to sinks.
    """

    use: _Use
    kind: int
    inputs: Inputs
    parts: int
    combines: bool
    join: Join | None
    requirement: int
    depth: int
    before: int
    readers: tuple[tuple[Reader, _Use | None], ...] = ()
    after: int = 0

    @property
    def linked_with(self) -> tuple[list[int], set[Reader]]:
        """What it reads, and who reads it."""
        return [other for other, _ in self.inputs], {reader for reader, _ in self.readers}


class _Trace(NamedTuple):
    """How a query's rates follow from those of sources.

    Attributes:
        uses: of each physical operator, None for sources and the sink.
        sources: of each the source, -1 for others.
        arriving: what tuples require that arrive at the sink.
        emissions: of the expansion.
        emitters: of the expansion.
        partials: of the expansion.
    """

    uses: list[_Use | None]
    sources: list[int]
    arriving: tuple[Rule, ...]
    emissions: list[Emission]
    emitters: list[int]
    partials: list[Partial]


class QueryDemand:
    """Whole queries.

    Attributes:
        links_operators: whether operators may feed each other.
        many_legs: whether operators may have more than three legs.
        lacks: why events of pairs are refused.
    """

    links_operators: ClassVar[bool] = True
    many_legs: ClassVar[bool] = True
    lacks: ClassVar[str] = "the problem has whole queries, no pairs of sources"

    def __init__(self, state: LiveState, problem: Problem) -> None:
        """Take over a problem's queries.

        Args:
            state: has their operators.
            problem: with queries.
        """
        self._s = state
        self._queries: dict[int, Query] = {}
        self._number: dict[str, int] = {}
        self._next = [0, 0]  # query, token
        self._shared: dict[Any, _Use] = {}
        self._uses: dict[int, dict[str, _Use]] = {}
        self._bodies: dict[int, _Body] = {}
        self._traces: dict[int, _Trace] = {}
        self._steps: dict[int, list[Step]] = {}
        self._available = _Sources(self)
        # Sources of each stream, and queries that read it.
        self._sources: dict[str, dict[int, None]] = {}
        self._readers: dict[str, dict[int, None]] = {}
        self._sinks: dict[int, dict[int, None]] = {}
        # What each query's sink receives: an operator or a source, and tuples/s.
        self._results: dict[int, Inputs] = {}
        for row, stream in enumerate(state.sources.stream):
            self._sources.setdefault(stream, {})[row] = None
        known = {name: row for row, name in enumerate(state.names)}
        for query in problem.queries:
            self._take_over(query, known)

    def _take_over(self, query: Query, known: dict[str, int]) -> None:
        """Register a query of the plan; its operators have rows by their names."""
        number = self._register(query)
        change = _Change(known=known)
        results = self._adopt(number, self._expanded(number), change)
        self._note_readers(change.bodies, [(number, results)], [])

    def _register(self, query: Query) -> int:
        """Number a query and note what it reads."""
        s, number = self._s, self._next[0]
        s.set(self._next, 0, number + 1)
        s.put(self._queries, number, query)
        s.put(self._number, query.id, number)
        s.put(self._uses, number, {})
        s.put(self._results, number, ())
        s.put(self._sinks.setdefault(s.node_index[query.sink], {}), number, None)
        for stream in self._streams(query):
            s.put(self._readers.setdefault(stream, {}), number, None)
        return number

    def _streams(self, query: Query) -> list[str]:
        """Logical streams that a query reads."""
        own = {operator.id for operator in query.operators}
        names = (name for operator in query.operators for name in inputs_of(operator))
        return list(dict.fromkeys(name for name in names if name not in own))

    # --- expanding --------------------------------------------------------------------------------

    def of_stream(self, stream: str) -> Iterator[SourceOf]:
        """The sources of a logical stream, in order."""
        s = self._s.sources
        for row in sorted(self._sources.get(stream, ())):
            yield SourceOf(row, s.ids[row], s.node.item(row), s.rate.item(row), s.key[row])

    def _expanded(self, number: int) -> Expansion:
        """A query's physical operators."""
        s, query = self._s, self._queries[number]
        steps = self._steps.get(number)
        if steps is None:
            steps = steps_of(query, s.rewriting, columns=bool(s.base.streams))
            s.put(self._steps, number, steps)
        expansion = Expansion(self._available, s.rewriting)
        sink = s.node_index[query.sink]
        expansion.query(number, query, steps, sink, f"query {query.id!r}")
        for row in expansion.rows:
            if not math.isfinite(row.rate):
                raise ProblemError(f"operator {row.id!r}: emits {row.rate} tuples/s; use less")
        return expansion

    # --- reading ----------------------------------------------------------------------------------

    @property
    def queries(self) -> tuple[Query, ...]:
        """The present queries, in order."""
        return tuple(self._queries[number] for number in sorted(self._queries))

    def requirement(self, operator: int) -> int:
        """The number of an operator's requirement, counted from 1; 0 for none."""
        return self._bodies[operator].requirement

    def called(self, operator: int) -> list[str]:
        """What policies and pins call an operator."""
        use = self._bodies[operator].use
        return [f"{self._queries[number].id}/{use.logical}" for number in sorted(use.users)]

    def names(self) -> dict[str, int]:
        """All that `called` may answer."""
        return {
            f"{query.id}/{operator.id}": number
            for number, query in sorted(self._queries.items())
            for operator in query.operators
        }

    def links(self, operator: int) -> tuple[list[LogicalLink], list[LogicalLink]]:
        """What an operator is linked with: inputs and outputs."""
        s, body = self._s, self._bodies[operator]
        inputs: list[LogicalLink] = []
        outputs: list[LogicalLink] = []
        for side, (other, carried) in enumerate(body.inputs):
            before = self._bodies[other].before if other >= 0 else 1
            weight = self._weight(self._rate(other, carried), before * body.after)
            node = NOWHERE if other >= 0 else s.sources.node.item(FIRST_SOURCE - other)
            inputs.append((other, node, weight, side, -1))
        for (reader, side), carried in sorted(body.readers, key=self._reader_order):
            if reader >= 0:
                weight = self._weight(
                    self._rate(operator, carried), body.before * self._bodies[reader].after
                )
                outputs.append((reader, NOWHERE, weight, -1, side))
            else:
                sink = s.node_index[self._queries[-1 - reader].sink]
                weight = self._weight(self._rate(operator, carried), body.before)
                outputs.append((TO_SINK, sink, weight, -1, 0))
        return inputs, outputs

    def _reader_order(self, of: tuple[Reader, _Use | None]) -> tuple[int, str, int, int]:
        """An order of readers that stays when the state is compacted, see `tables._leg_order`."""
        (reader, side), _ = of
        if reader >= 0:
            return 0, self._s.names[reader], 0, side
        return 1, "", -1 - reader, 0

    def _weight(self, rate: float, ways: int) -> float:
        """What each ms of a link counts, see `nova_core.model.objectives.link_weights`."""
        weights = {"latency": 1.0, "network-usage": rate, "source-latency": float(ways)}
        return weights[self._s.objective]

    def _rate(self, producer: int, carried: _Use | None) -> float:
        """Tuples/s of what is read of a producer."""
        if carried is not None:
            return carried.rate
        return self._s.sources.rate.item(FIRST_SOURCE - producer)

    def input_rates(self, operator: int) -> list[float]:
        """Tuples/s of each input."""
        return [self._rate(other, carried) for other, carried in self._bodies[operator].inputs]

    def _rates(self, body: _Body) -> tuple[float, float, float]:
        """Tuples/s of the left and the right input of an operator, and of its output."""
        rates = [self._rate(other, carried) for other, carried in body.inputs]
        left, right = rates if body.kind == JOIN else (sum(rates), 0.0)
        return left, right, body.use.rate

    def groups(self, some: Iterable[int]) -> list[list[int]]:
        """Operators that feed each other, producers first."""
        ordered, bodies = self.order(some), self._bodies
        group_of = dict.fromkeys(ordered, -1)
        count = 0
        for first in ordered:
            if group_of[first] >= 0:
                continue
            group_of[first] = count
            open_ = [first]
            while open_:
                body = bodies[open_.pop()]
                for other, _ in body.inputs:
                    if group_of.get(other) == -1:
                        group_of[other] = count
                        open_.append(other)
                for (other, _), _ in body.readers:
                    if group_of.get(other) == -1:
                        group_of[other] = count
                        open_.append(other)
            count += 1
        found: list[list[int]] = [[] for _ in range(count)]
        for one in sorted(ordered, key=lambda one: bodies[one].depth):
            found[group_of[one]].append(one)
        return found

    def order(self, some: Iterable[int]) -> list[int]:
        """Operators in an order that stays when the state is compacted."""
        return sorted(some, key=self._s.names.__getitem__)

    def cut(
        self, operator: int, hosts: cutting.Hosts, sigma: float | None, limit: float
    ) -> cutting.Cut | None:
        """Pieces along one input; None for what is cut as a grid, or not at all."""
        s, body = self._s, self._bodies[operator]
        whole = s.whole_share(operator)
        if body.join is not None:
            return cutting.by_key(hosts, body.join, whole.left, whole.right, limit)
        if body.parts > 1:
            coarse = DEFAULT_SIGMA if sigma is None else sigma
            return cutting.into_shares(hosts, whole.left, body.parts, coarse, limit)
        if body.combines and len(body.inputs) > 1:
            inputs = np.array(self.input_rates(operator))
            return cutting.into_parts(hosts, inputs, whole.output, limit)
        return None

    def around(self, node: int) -> list[int]:
        """Operators of queries with a source or a sink on a node."""
        numbers = dict(self._sinks.get(node, {}))
        for source in self._s.sources_on.of(node):
            numbers.update(self._readers.get(self._s.sources.stream[source], {}))
        return self._operators_of(numbers)

    def _operators_of(self, numbers: Iterable[int]) -> list[int]:
        found = {
            use.operator
            for number in numbers
            for use in self._uses[number].values()
            if use.operator in self._bodies
        }
        return sorted(found)

    def reading(self, source: int) -> list[int]:
        """Operators of queries that read a source's stream."""
        if not 0 <= source < self._s.sources.used:
            return []
        return self._operators_of(self._readers.get(self._s.sources.stream[source], {}))

    def of(self, name: str) -> list[int]:
        """Operators of a query."""
        number = self._number.get(name)
        return [] if number is None else self._operators_of([number])

    def sinks(self, node: int) -> list[str]:
        """Queries whose results go to a node."""
        return [self._queries[number].id for number in self._sinks.get(node, {})]

    def feeding(self, number: int) -> tuple[int, list[int]]:
        """The sink of a query, and the operators whose results go there."""
        sink = self._s.node_index[self._queries[number].sink]
        return sink, sorted({other for other, _ in self._results[number] if other >= 0})

    def check(self) -> None:
        """Refuse an event whose result is not a valid problem.

        Raises:
            ProblemError: when no query is left.
        """
        if not self._queries:
            raise ProblemError("the event would leave no query")

    # --- events -----------------------------------------------------------------------------------

    def add_source(self, placer: Placing, row: int, event: AddSource, overload: bool) -> None:
        """A source starts; the queries that read its stream read it, too."""
        where = f"add-source {event.source.id!r}"
        if event.joins is not UNSET and event.joins:
            raise ProblemError(f"{where}: joins: {self.lacks}; its stream tells who reads it")
        stream = event.source.stream
        s = self._s
        if stream not in self._sources:
            s.put(self._sources, stream, {})
        s.put(self._sources[stream], row, None)
        self._expand_anew(placer, self._readers.get(stream, {}), overload)

    def drop_sources(self, placer: Placing, sources: Collection[int], overload: bool) -> None:
        """Sources end."""
        s = self._s
        concerned: dict[int, None] = {}
        for source in sources:
            stream = s.sources.stream[source]
            s.drop(self._sources[stream], source)
            readers = self._readers.get(stream, {})
            if not self._sources[stream]:
                if readers:
                    query = self._queries[min(readers)].id
                    raise ProblemError(
                        f"the event would leave stream {stream!r}, which query {query!r} reads, "
                        "without a source"
                    )
                s.drop(self._sources, stream)
            concerned |= readers
        if concerned:
            self._expand_anew(placer, concerned, overload)

    def change_rate(self, placer: Placing, source: int, rate: float, overload: bool) -> None:
        """A source's rate changes; what reads it stays where it still fits."""
        s = self._s
        s.assign(s.sources, "rate", source, rate)
        numbers = sorted(self._readers.get(s.sources.stream[source], {}))
        rates = self._new_rates(numbers)
        if rates is None:
            # Keys do not tell the rates of sources: what reads this one is not as it was.
            for number in numbers:
                for use in self._uses[number].values():
                    if -1 - source in use.key[1]:
                        self._unshare(use)
            self._expand_anew(placer, numbers, overload)
            return
        self._set_use_rates(rates)
        changed = [use.operator for use in self._used_by(numbers)]
        placed = self._resize(placer, dict.fromkeys(changed))
        by_rate = s.objective == "network-usage"
        if by_rate:
            s.link(self.order(changed))
            s.recompute_points(changed)
        placer.put_back(placed, overload)
        if by_rate:
            placer.improve_all(changed)

    def _resize(self, placer: Placing, some: Iterable[int]) -> dict[int, int | Pieces]:
        """Give operators their rates; where those ran that do not fit there any more."""
        s, rate = self._s, self._s.operators.rate
        changed: dict[int, tuple[float, float, float]] = {}
        for one in some:
            new = self._rates(self._bodies[one])
            if new != tuple(rate[one].tolist()):
                changed[one] = new
                s.old_rates.setdefault(one, (rate.item(one, LEFT), rate.item(one, RIGHT)))
        fits: set[int] = set()
        if not (s.c_min or s.overloaded):
            host = s.operators.host
            whole = [one for one in placer.largest_first(changed) if host.item(one) >= 0]
            new_rates = np.array([changed[one] for one in whole])
            fits = s.resize(whole, new_rates, placer.limits)
        placed: dict[int, int | Pieces] = {}
        for one, rates in changed.items():
            if one in fits:
                continue
            place = s.detach(one)
            if place is not None:
                placed[one] = place
            s.assign(s.operators, "rate", one, np.array(rates))
        return placed

    def _used_by(self, numbers: Iterable[int]) -> Iterator[_Use]:
        """Operators that are placed, of some queries."""
        for number in numbers:
            for use in self._uses[number].values():
                if use.operator >= 0 and self._bodies[use.operator].use is use:
                    yield use

    def _new_rates(self, numbers: Iterable[int]) -> dict[_Use, float] | None:
        """Rates that are not what they were; None where queries do other things at these.

        Inputs may have partial aggregates or none then, and what was the same may differ.
        """
        found: dict[_Use, float] = {}
        for number in numbers:
            trace = self._traces[number]
            known = self._known(trace)
            emitted = zip(trace.emitters, trace.emissions, known, strict=True)
            for row, emission, (rate, _) in emitted:
                use = trace.uses[row]
                # One operator cannot have two rates; what has no kind is none of its own.
                if use is None or emission.kind is None:
                    continue
                if found.setdefault(use, rate) != rate:
                    return None
            for partial in trace.partials:
                if partial.pays(known[partial.input][0], self._available) != partial.there:
                    return None
        changed = {use: rate for use, rate in found.items() if rate != use.rate}
        keys = {use.key_at(rate) for use, rate in changed.items()}
        if len(keys) < len(changed) or any(
            key in self._shared and self._shared[key] not in changed for key in keys
        ):
            return None
        return changed

    def _set_use_rates(self, rates: dict[_Use, float]) -> None:
        """Give what queries do other rates; it stays shared as it is."""
        s = self._s
        for use in rates:
            s.drop(self._shared, use.key)
        for use, rate in rates.items():
            s.on_undo(use.set, use.key, use.rate)
            use.set(use.key_at(rate), rate)
            s.put(self._shared, use.key, use)

    def capacity_changed(self, placer: Placing, node: int, overload: bool) -> None:
        """Partial aggregates run where sources have room for them."""
        s = self._s
        if s.rewriting.split_aggregates:
            streams = (s.sources.stream[source] for source in s.sources_on.of(node))
            numbers = {n: None for stream in streams for n in self._readers.get(stream, ())}
            differ = [n for n in numbers if self._partials_differ(n, node)]
            if differ:
                self._expand_anew(placer, differ, overload)

    def _partials_differ(self, number: int, node: int) -> bool:
        """Whether partial aggregates of a query come or go with the room of a node."""
        trace = self._traces[number]
        if all(partial.node != node for partial in trace.partials):
            return False
        known = self._known(trace)
        return any(
            partial.pays(known[partial.input][0], self._available) != partial.there
            for partial in trace.partials
        )

    def _known(self, trace: _Trace) -> list[tuple[float, float]]:
        """Present rates of a query's emissions."""
        known: list[tuple[float, float]] = []
        for row, emission in zip(trace.emitters, trace.emissions, strict=True):
            source = trace.sources[row]
            if source < 0:
                known.append(emission.rates(known))
            else:
                rate = self._s.sources.rate.item(source)
                known.append((rate, rate))
        return known

    def add_query(self, placer: Placing, event: AddQuery, overload: bool) -> None:
        """A query starts."""
        s, query = self._s, event.query
        where = f"add-query {query.id!r}"
        if query.id in self._number:
            raise ProblemError(f"{where}: there is a query of that name")
        if s.base.streams or query.sql is not UNSET:
            from dataclasses import replace

            from nova_core.io.binding import bound_queries

            (query,) = bound_queries(replace(s.base, queries=(query,)), where)
        check_query(query, self._sources.keys(), s.node_index, where)
        for operator in query.operators:
            for _, why in bad_labels(operator.zones):
                raise ProblemError(f"{where}: zones of {operator.id!r}: {why}")
        self._expand_anew(placer, [self._register(query)], overload)

    def remove_query(self, placer: Placing, event: RemoveQuery, overload: bool) -> None:
        """A query ends."""
        s = self._s
        number = row_of(self._number, "query", event.query)
        query = self._queries[number]
        self._expand_anew(placer, [number], overload, ends=True)
        s.drop(self._queries, number)
        s.drop(self._number, event.query)
        s.drop(self._uses, number)
        s.drop(self._traces, number)
        s.drop(self._steps, number)
        s.drop(self._results, number)
        s.drop(self._sinks[s.node_index[query.sink]], number)
        for stream in self._streams(query):
            s.drop(self._readers[stream], number)
        for operator in query.operators:
            for table in (placer.pinned, placer.state_bytes):
                s.drop(table, f"{query.id}/{operator.id}")

    def change_selectivity(self, placer: Placing, event: ChangeSelectivity, overload: bool) -> None:
        """An operator emits more or fewer tuples."""
        s, where = self._s, f"change-selectivity {event.query!r}"
        number = row_of(self._number, "query", event.query, f"{where}: ")
        query = self._queries[number]
        by_id = {operator.id: row for row, operator in enumerate(query.operators)}
        row = row_of(by_id, "operator", event.operator, f"{where}: ")
        operator, share = query.operators[row], event.selectivity
        if isinstance(operator, Aggregate):
            raise ProblemError(f"{where}: {event.operator!r} aggregates, and has no selectivity")
        if not share < math.inf or (isinstance(operator, Filter) and share > 1):
            most = ", at most 1" if isinstance(operator, Filter) else ""
            raise ProblemError(
                f"{where}: selectivity of {event.operator!r}: {share:g}; expected more than 0{most}"
            )
        operators = list(query.operators)
        operators[row] = msgspec.structs.replace(operator, selectivity=share)
        s.put(self._queries, number, msgspec.structs.replace(query, operators=operators))
        s.drop(self._steps, number)
        self._expand_anew(placer, [number], overload)

    def move_sink(self, placer: Placing, event: MoveSink, overload: bool) -> None:
        """A query's result goes to another node; its operators move if that gains enough."""
        s = self._s
        number = row_of(self._number, "query", event.operator)
        node = row_of(s.node_index, "node", event.node, "move-sink: ")
        query = self._queries[number]
        old = s.node_index[query.sink]
        s.rerouted.setdefault(number, old)
        s.put(self._queries, number, msgspec.structs.replace(query, sink=event.node))
        self._check_sink(number, self._traces[number].arriving)
        s.drop(self._sinks[old], number)
        s.put(self._sinks.setdefault(node, {}), number, None)
        s.link(self.feeding(number)[1])
        placer.recompute_all(self._operators_of([number]))

    # --- expanding anew ---------------------------------------------------------------------------

    def _expand_anew(
        self, placer: Placing, numbers: Iterable[int], overload: bool, ends: bool = False
    ) -> None:
        """Expand queries again, and place what changes by that.

        Args:
            placer: places it.
            numbers: of the queries.
            overload: whether nodes may be overloaded.
            ends: whether these queries end instead.
        """
        s, some = self._s, sorted(numbers)
        expanded = [] if ends else [(number, self._expanded(number)) for number in some]
        change = _Change(before={number: self._uses[number] for number in some})
        results: list[tuple[int, Inputs]] = [(number, ()) for number in some if ends]
        for number, expansion in expanded:
            results.append((number, self._adopt(number, expansion, change)))
        if ends:
            for number in some:
                self._release(number, change.before[number].values(), change)
        gone = [
            one
            for one in sorted(change.touched - change.bodies.keys())
            if one in self._bodies and not self._bodies[one].use.users
        ]
        for one in gone:
            s.detach(one)
        rewired = self._note_readers(change.bodies, results, gone)
        for one in gone:
            s.assign(s.operators, "alive", one, False)
            s.drop(self._bodies, one)
        placed = self._resize(placer, change.bodies)
        for one, like in change.like.items():
            if (host := s.operators.row.item(like, HOST)) >= 0:
                placed[one] = host
        called = (change.touched | change.bodies.keys()) & self._bodies.keys()
        renamed = self._name(called, change)
        rewired |= {other for one in renamed for other, _ in self._bodies[one].inputs if other >= 0}
        s.link(self.order(rewired))
        concerned = sorted(rewired) if ends or not rewired else self._operators_of(some)
        s.recompute_points(concerned)
        placer.put_back(placed, overload)
        new = [one for one in change.new if one not in placed]
        placer.place_all(placer.largest_first(new), overload)
        placer.improve_all(concerned)

    def _release(self, number: int, uses: Iterable[_Use], change: _Change) -> None:
        """Have a query not do something any more; what no query does cannot be shared."""
        for use in uses:
            self._s.drop(use.users, number)
            if not use.users:
                self._unshare(use)
            change.touched.add(use.operator)

    def _unshare(self, use: _Use) -> None:
        if self._shared.get(use.key) is use:
            self._s.drop(self._shared, use.key)

    def _adopt(self, number: int, expansion: Expansion, change: _Change) -> Inputs:
        """Have a query use what there is, and what is new; what its sink receives."""
        s, skip = self._s, len(self._queries[number].id) + 1
        rows, uses = expansion.rows, dict[str, _Use]()
        used: list[_Use | None] = []
        tokens: list[int] = []
        for index, row in enumerate(rows):
            if row.kind in (SOURCE, SINK):
                tokens.append(-1 - row.source)
                used.append(None)
                continue
            local = row.id[skip:]
            rule = None if row.rule is ANY_NODE else row.rule
            # What is not shared is known by its name.
            does = (number, local) if row.does is None else row.does
            key = (does, tuple([tokens[one] for one in row.inputs]), row.rate, row.partial, rule)
            use = self._shared.get(key)
            if use is None:
                inputs = _read(rows, used, row)
                body = row.root == index
                operator = (
                    self._row_for(number, local, row, change)
                    if body
                    else _runs(rows, used, row.root)
                )
                s.set(self._next, 1, self._next[1] + 1)
                use = _Use(self._next[1], key, row.logical, operator, row.rate)
                s.put(self._shared, key, use)
                if body:
                    above = [self._body(one, change) for one, _ in inputs if one >= 0]
                    ways = [self._body(one, change).before if one >= 0 else 1 for one, _ in inputs]
                    change.bodies[operator] = _Body(
                        use,
                        row.kind,
                        inputs,
                        row.parts,
                        row.combines,
                        expansion.joins.get(index),
                        s.number_of(row.rule),
                        depth=1 + max((one.depth for one in above), default=0),
                        before=sum(ways),
                    )
            else:
                change.kept.add(use.operator)
            if use.users.get(number) != local:
                s.put(use.users, number, local)
                change.touched.add(use.operator)
            uses[local] = use
            tokens.append(use.token)
            used.append(use)
        now = set(uses.values())
        before = change.before.get(number, {}).values()
        self._release(number, [use for use in before if use not in now], change)
        s.put(self._uses, number, uses)
        sources, arriving = [row.source for row in rows], rows[-1].inputs
        emits = tuple(rows[one].emits for one in arriving)
        self._check_sink(number, emits)
        e = expansion
        trace = _Trace(used, sources, emits, e.emissions, e.emitters, e.partials)
        s.put(self._traces, number, trace)
        return _read(rows, used, rows[-1])

    def _check_sink(self, number: int, arriving: Sequence[Rule]) -> None:
        """Refuse a query whose sink is where tuples may not be."""
        s, query = self._s, self._queries[number]
        rule = reduce(and_, arriving, ANY_NODE)
        s.require_zone(s.node_index[query.sink], rule, f"query {query.id!r}: sink")

    def _body(self, operator: int, change: _Change) -> _Body:
        return change.bodies.get(operator) or self._bodies[operator]

    def _row_for(self, number: int, local: str, row: Row, change: _Change) -> int:
        """The row of an operator that no query has yet: what the query had by that name, or new."""
        if row.id in change.known:
            return change.known[row.id]
        s, old = self._s, change.before.get(number, {}).get(local)
        here = old.operator if old is not None else NOWHERE
        if here in self._bodies and here not in change.bodies and here not in change.kept:
            use = self._bodies[here].use
            if use.users.keys() <= change.before.keys():
                self._unshare(use)
                return here
        new = s.add_operator(row.id, number, (0.0, 0.0, 0.0))
        change.new.append(new)
        if here in self._bodies:
            change.like[new] = here
        return new

    def _note_readers(
        self,
        bodies: dict[int, _Body],
        results: Sequence[tuple[int, Inputs]],
        gone: Sequence[int],
    ) -> set[int]:
        """Note who reads what, and how many ways there are; the operators with other links."""
        s = self._s
        readers: dict[int, dict[Reader, _Use | None]] = {}

        def of(operator: int) -> dict[Reader, _Use | None]:
            if operator not in readers:
                known = self._bodies.get(operator)
                readers[operator] = dict(known.readers) if known else {}
            return readers[operator]

        def edit(reader: int, inputs: Inputs, reads: bool) -> None:
            for side, (producer, carried) in enumerate(inputs):
                if producer >= 0 and reads:
                    of(producer)[reader, side] = carried
                elif producer >= 0:
                    of(producer).pop((reader, side), None)

        for one in (*gone, *bodies):
            if one in self._bodies:
                edit(one, self._bodies[one].inputs, False)
        for number, result in results:
            edit(-1 - number, self._results[number], False)
            edit(-1 - number, result, True)
            s.put(self._results, number, result)
        for one, body in bodies.items():
            edit(one, body.inputs, True)
        changed = (bodies.keys() | readers.keys()) - set(gone)
        rewired: set[int] = set()
        by_rate = s.objective == "network-usage"
        for one in changed:
            old = self._bodies.get(one)
            body = msgspec.structs.replace(
                bodies.get(one) or self._bodies[one],
                readers=tuple(of(one).items()),
                after=old.after if old else 0,
            )
            if by_rate or old is None or old.linked_with != body.linked_with:
                rewired.add(one)
            s.put(self._bodies, one, body)
        ways = self._count_ways(changed)
        return rewired | ways if s.objective == "source-latency" else rewired

    def _count_ways(self, changed: Collection[int]) -> set[int]:
        """Count the ways to sinks from operators that changed, and from those above them."""
        s, bodies = self._s, self._bodies
        waiting = [(-bodies[one].depth, one) for one in changed]
        heapq.heapify(waiting)
        seen: set[int] = set()
        affected: set[int] = set()
        while waiting:
            _, one = heapq.heappop(waiting)
            if one in seen:
                continue
            seen.add(one)
            body = bodies[one]
            after = sum(bodies[to].after if to >= 0 else 1 for (to, _), _ in body.readers)
            if after == body.after:
                continue
            s.put(bodies, one, msgspec.structs.replace(body, after=after))
            affected.add(one)
            for other, _ in body.inputs:
                if other >= 0:
                    heapq.heappush(waiting, (-bodies[other].depth, other))
                    affected.add(other)
        return affected

    def _name(self, operators: Iterable[int], change: _Change) -> list[int]:
        """Call operators as the first of their queries does; those that are called otherwise."""
        s, renamed = self._s, []
        for one in operators:
            use = self._bodies[one].use
            number = min(use.users)
            name = f"{self._queries[number].id}/{use.users[number]}"
            if s.operators.row.item(one, LOGICAL) != number:
                s.assign(s.operators, "row", (one, LOGICAL), number)
            if s.names[one] != name:
                if one not in change.new:
                    s.changed.keep_one(one)
                    s.renamed.setdefault(one, s.names[one])
                s.set(s.names, one, name)
                renamed.append(one)
        return renamed


@dataclass
class _Change:
    """Operators of queries that are expanded.

    Attributes:
        before: what these queries used, by query and name.
        known: rows of operators by name, while a plan is taken over.
        bodies: operators that do something else than before, or are new.
        kept: operators that a query uses as before, or uses that were there.
        touched: operators that other queries use than before, or under other names.
        new: rows of those that are new.
        like: of the new ones, whose place they start at.
    """

    before: dict[int, dict[str, _Use]] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    bodies: dict[int, _Body] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    new: list[int] = field(default_factory=list)
    like: dict[int, int] = field(default_factory=dict)


def _runs(rows: list[Row], used: Sequence[_Use | None], one: int) -> int:
    """The operator that a row is, or runs with; of a source `FIRST_SOURCE` less the source."""
    use = used[one]
    return FIRST_SOURCE - rows[one].source if use is None else use.operator


def _read(rows: list[Row], used: Sequence[_Use | None], row: Row) -> Inputs:
    """What a row reads."""
    return tuple((_runs(rows, used, one), used[one]) for one in row.inputs)


class _Sources:
    """What queries read in a live placement."""

    def __init__(self, demand: QueryDemand) -> None:
        self.of = demand.of_stream
        self._s = demand._s
        self._nodes = demand._s.nodes

    def rule(self, stream: str) -> Rule:
        return self._s.stream_rule(stream)

    def meets(self, node: int, rule: Rule) -> bool:
        return self._s.meets(node, rule)

    def room(self, node: int) -> float:
        n = self._nodes
        return n.capacity.item(node) if n.worker.item(node) else 0.0
