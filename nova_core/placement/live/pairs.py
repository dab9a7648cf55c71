"""Joins of pairs of sources in a live placement: which there are, and what events do to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.problem import Ints, Problem, pair_name
from nova_core.model.queries import Query
from nova_core.model.requirements import Asks, bad_labels, parts_of, rule_of
from nova_core.placement.cutting import Cut, Hosts
from nova_core.placement.kernels.state.tables import (
    FIRST_SOURCE,
    LEFT,
    LEG,
    LOGICAL,
    OUTPUT,
    RIGHT,
    SINK,
)
from nova_core.placement.live.demand import LogicalLink, Placing
from nova_core.placement.live.events import (
    AddOperator,
    AddPair,
    AddSource,
    JoinWith,
    MoveSink,
    RemoveOperator,
    RemovePair,
)
from nova_core.placement.live.naming import positive, row_of
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import Incidence


class PairDemand:
    """The pairs of a join matrix.

    Attributes:
        links_operators: whether operators may feed each other.
        many_legs: whether operators may have more than three legs.
        lacks: why events of whole queries are refused.
        queries: none.
    """

    links_operators: ClassVar[bool] = False
    many_legs: ClassVar[bool] = False
    lacks: ClassVar[str] = "the problem has pairs of sources, no whole queries"
    queries: tuple[Query, ...] = ()

    def __init__(self, state: LiveState, problem: Problem) -> None:
        """Take over a problem's joins.

        Args:
            state: knows their operators.
            problem: with joins of pairs.
        """
        self._s = state
        self.join_index = {name: row for row, name in enumerate(state.joins.ids)}
        m, rows = problem.matrix, np.arange(len(problem.matrix))
        self.of_source = Incidence(np.concatenate([m.left, m.right]), np.concatenate([rows, rows]))
        self.of_join = Incidence(m.join, rows)
        self.sinks_on = Incidence(problem.joins.sink, np.arange(len(problem.joins)))
        # How many sources a stream has, and how many operators join it.
        self.sources: dict[str, int] = {}
        for stream in state.sources.stream:
            self.sources[stream] = self.sources.get(stream, 0) + 1
        self.joined: dict[str, int] = {}
        for streams in zip(state.joins.left, state.joins.right, strict=True):
            for stream in set(streams):
                self.joined[stream] = self.joined.get(stream, 0) + 1
        self.emptied: dict[str, None] = {}
        self.alive = {0: len(problem.matrix)}
        output = np.bincount(problem.sink_node, m.output_rate)
        for node in np.flatnonzero(output).tolist():
            state.arriving[node] = float(output[node])

    # --- reading ----------------------------------------------------------------------------------

    def requirement(self, operator: int) -> int:
        """The number of an operator's requirement, counted from 1; 0 for none."""
        return self._s.joins.requirement[self._s.operators.row.item(operator, LOGICAL)]

    def called(self, operator: int) -> tuple[str, ...]:
        """What policies and pins call an operator."""
        return (self._s.joins.ids[self._s.operators.row.item(operator, LOGICAL)],)

    def names(self) -> Collection[str]:
        """All that `called` may answer."""
        return self.join_index

    def links(self, operator: int) -> tuple[list[LogicalLink], list[LogicalLink]]:
        """What an operator is linked with: inputs and outputs."""
        s = self._s
        begin, table = s.operators.row.item(operator, LEG), s.legs
        links = [
            (table.other.item(leg), table.end.item(leg), table.weight.item(leg), side, side)
            for leg, side in zip(range(begin, begin + 3), (0, 1, -1), strict=True)
        ]
        return links[:2], links[2:]

    def input_rates(self, operator: int) -> list[float]:
        """Tuples/s of each input."""
        rates: list[float] = self._s.operators.rate[operator, : RIGHT + 1].tolist()
        return rates

    def groups(self, some: Iterable[int]) -> list[list[int]]:
        """Operators that feed each other, producers first: of pairs, none do."""
        return [[one] for one in some]

    def order(self, some: Iterable[int]) -> list[int]:
        """Operators in an order that stays when the state is compacted."""
        return sorted(some)

    def cut(self, operator: int, hosts: Hosts, sigma: float | None, limit: float) -> Cut | None:
        """Pieces along one input; None for a pair, which is cut as a grid."""
        return None

    def around(self, node: int) -> list[int]:
        """Operators with a source or a sink on a node."""
        s = self._s
        ends = {one for source in s.sources_on.of(node) for one in self.of_source.of(source)}
        for join in self.sinks_on.of(node):
            ends.update(self.of_join.of(join))
        return sorted(ends)

    def capacity_changed(self, placer: Placing, node: int, overload: bool) -> None:
        """Nothing: what is joined does not depend on capacities."""

    def reading(self, source: int) -> Collection[int]:
        """Operators that a source's tuples reach."""
        return self.of_source.of(source)

    def of(self, name: str) -> Collection[int]:
        """Operators of a join."""
        return self.of_join.of(self.join_index.get(name, -1))

    def sinks(self, node: int) -> list[str]:
        """Joins whose results go to a node."""
        return [self._s.joins.ids[join] for join in self.sinks_on.of(node)]

    def feeding(self, join: int) -> tuple[int, Collection[int]]:
        """The sink of a join, and the operators whose results go there."""
        return self._s.joins.sink[join], sorted(self.of_join.of(join))

    def check(self) -> None:
        """Refuse an event whose result is not a valid problem.

        Raises:
            ProblemError: when no pair is left, or a joined stream has no source.
        """
        if self.alive[0] == 0:
            raise ProblemError("the event would leave no pair to join")
        for stream in self.emptied:
            raise ProblemError(
                f"the event would leave stream {stream!r}, which an operator joins, without a "
                "source"
            )

    # --- sources ----------------------------------------------------------------------------------

    def add_source(self, placer: Placing, row: int, event: AddSource, overload: bool) -> None:
        """A source starts, with its joins."""
        s, where, stream = self._s, f"add-source {event.source.id!r}", self._s.sources.stream[row]
        s.put(self.sources, stream, self.sources.get(stream, 0) + 1)
        s.drop(self.emptied, stream)
        if event.joins is UNSET:
            raise ProblemError(f"{where}: joins is missing: expected what the source joins with")
        pairs = [(*self._sides(row, join, where), join.output_rate) for join in event.joins]
        self._start(placer, pairs, overload, where)

    def drop_sources(self, placer: Placing, sources: Collection[int], overload: bool) -> None:
        """Sources end, and their joins with them."""
        s = self._s
        for source in sources:
            self._drop(sorted(self.of_source.of(source)), source)
            stream = s.sources.stream[source]
            s.put(self.sources, stream, self.sources[stream] - 1)
            if self.sources[stream] == 0 and self.joined.get(stream, 0):
                s.put(self.emptied, stream, None)

    def change_rate(self, placer: Placing, source: int, rate: float, overload: bool) -> None:
        """A source's rate changes; its joins stay where they still fit."""
        s, o = self._s, self._s.operators
        pairs = sorted(self.of_source.of(source))
        placed = {pair: s.detach(pair) for pair in pairs}
        old_rate, by_rate = s.sources.rate.item(source), s.objective == "network-usage"
        s.assign(s.sources, "rate", source, rate)
        here, sinks = FIRST_SOURCE - source, s.joins.sink
        for pair in pairs:
            begin, before = o.row.item(pair, LEG), o.rate.item(pair, OUTPUT)
            side = LEFT if s.legs.other.item(begin) == here else RIGHT
            other = o.rate.item(pair, RIGHT - side)
            # A join emits in proportion to its slower input (`nova_core.model.matching`).
            output = before * (min(rate, other) / min(old_rate, other))
            if not 0 < output < math.inf:  # only then are the words worth their time
                positive(output, f"change-rate: rate {rate}: output_rate of a pair")
            s.on_undo(self._set_rates, pair, side, old_rate, before)
            self._set_rates(pair, side, rate, output)
            s.emit(sinks[o.row.item(pair, LOGICAL)], output - before)
        if by_rate:
            s.recompute_points(pairs)
        placer.put_back(placed, overload)
        if by_rate:
            placer.improve_all(pairs)

    def _set_rates(self, pair: int, side: int, rate: float, output: float) -> None:
        """Set the rates of an input and the output of a pair, and what they weigh."""
        s, o = self._s, self._s.operators
        o.rate[pair, side], o.rate[pair, OUTPUT] = rate, output
        if s.objective == "network-usage":
            begin = o.row.item(pair, LEG)
            s.legs.weight[begin + side], s.legs.weight[begin + 2] = rate, output

    def _sides(self, source: int, join_with: JoinWith, where: str) -> tuple[int, int, int]:
        """The join, left and right source of a pair that a new source makes."""
        s = self._s
        join = row_of(self.join_index, "operator", join_with.operator)
        other = row_of(s.source_index, "source", join_with.other)
        streams = s.joins.left[join], s.joins.right[join]
        stream, other_stream = s.sources.stream[source], s.sources.stream[other]
        if (stream, other_stream) == streams:
            return join, source, other
        if (other_stream, stream) == streams:
            return join, other, source
        raise ProblemError(
            f"{where}: {join_with.operator!r} joins {streams[0]!r} with {streams[1]!r}; "
            f"{join_with.other!r} belongs to {other_stream!r} and the new source to {stream!r}"
        )

    # --- pairs ------------------------------------------------------------------------------------

    def _ends(self, join: int, left: str, right: str, where: str) -> tuple[int, int, int]:
        """The join, left and right source of a pair of existing sources."""
        s, sources = self._s, []
        for name, stream, side in (
            (left, s.joins.left[join], "left"),
            (right, s.joins.right[join], "right"),
        ):
            source = row_of(s.source_index, "source", name, f"{where}: {side}: ")
            if s.sources.stream[source] != stream:
                raise ProblemError(
                    f"{where}: {side}: {name!r} belongs to {s.sources.stream[source]!r}; the "
                    f"{side} stream of {s.joins.ids[join]!r} is {stream!r}"
                )
            sources.append(source)
        return join, sources[0], sources[1]

    def _start(
        self, placer: Placing, pairs: list[tuple[int, int, int, float]], overload: bool, where: str
    ) -> None:
        """Place new pairs.

        Args:
            placer: places them.
            pairs: join, left source, right source and output rate (tuples/s) of each.
            overload: whether nodes may be overloaded.
            where: name of the event in errors.
        """
        s = self._s
        s.put(self.alive, 0, self.alive[0] + len(pairs))
        known: set[tuple[int, int, int]] = set()
        added, output_rate_of = [], f"{where}: output_rate"
        for join, left, right, output_rate in pairs:
            if left == right:
                raise ProblemError(f"{where}: pairs the source {s.sources.ids[left]!r} with itself")
            if (join, left, right) in known:
                names = f"{s.sources.ids[left]!r} and {s.sources.ids[right]!r}"
                raise ProblemError(f"{where}: the pair of {names} is given twice")
            known.add((join, left, right))
            output = positive(output_rate, output_rate_of)
            added.append(self._new(join, left, right, output))
        placer.place_all(placer.largest_first(added), overload, recompute=True)

    def _new(self, join: int, left: int, right: int, output: float) -> int:
        """The row of a new pair."""
        s, sources, sink = self._s, self._s.sources, self._s.joins.sink[join]
        ids = sources.ids
        rates = sources.rate.item(left), sources.rate.item(right), output
        weights = rates if s.objective == "network-usage" else _WEIGHTS[s.objective]
        legs = (
            (sources.node.item(left), FIRST_SOURCE - left, weights[0]),
            (sources.node.item(right), FIRST_SOURCE - right, weights[1]),
            (sink, SINK, weights[2]),
        )
        name = pair_name(s.joins.ids[join], ids[left], ids[right])
        row = s.add_operator(name, join, rates, legs)
        s.emit(sink, output)
        s.bind(self.of_source, left, row)
        s.bind(self.of_source, right, row)
        s.bind(self.of_join, join, row)
        return row

    def _pair(self, join: int, left: int, right: int) -> int | None:
        """The row of a pair; None if it does not exist."""
        s, o = self._s, self._s.operators
        both = [FIRST_SOURCE - left, FIRST_SOURCE - right]
        for pair in min((self.of_source.of(left), self.of_source.of(right)), key=len):
            begin = o.row.item(pair, LEG)
            if s.legs.other[begin : begin + 2].tolist() == both and o.row[pair, LOGICAL] == join:
                return pair
        return None

    def _drop(self, pairs: Sequence[int], leaving: int = -1) -> None:
        """Remove pairs.

        Args:
            pairs: their rows.
            leaving: a source that is removed, too; its own list of pairs needs no update.
        """
        s, o = self._s, self._s.operators
        for pair in pairs:
            s.detach(pair)
            s.assign(o, "alive", pair, False)
            begin, join = o.row.item(pair, LEG), o.row.item(pair, LOGICAL)
            s.emit(s.joins.sink[join], -o.rate.item(pair, OUTPUT))
            for other in s.legs.other[begin : begin + 2].tolist():
                if FIRST_SOURCE - other != leaving:
                    s.unbind(self.of_source, FIRST_SOURCE - other, pair)
            s.unbind(self.of_join, join, pair)
        s.put(self.alive, 0, self.alive[0] - len(pairs))

    def add_pair(self, placer: Placing, event: AddPair, overload: bool) -> None:
        """An operator joins two more sources."""
        join = row_of(self.join_index, "operator", event.operator)
        ends = self._ends(join, event.left, event.right, "add-pair")
        if self._pair(*ends) is not None:
            raise ProblemError(
                f"add-pair: {event.operator!r} joins {event.left!r} and {event.right!r} already"
            )
        self._start(placer, [(*ends, event.output_rate)], overload, "add-pair")

    def remove_pair(self, placer: Placing, event: RemovePair, overload: bool) -> None:
        """An operator no longer joins two sources."""
        join = row_of(self.join_index, "operator", event.operator)
        pair = self._pair(*self._ends(join, event.left, event.right, "remove-pair"))
        if pair is None:
            raise ProblemError(
                f"remove-pair: {event.operator!r} does not join {event.left!r} and {event.right!r}"
            )
        self._drop([pair])

    # --- joins ------------------------------------------------------------------------------------

    def add_operator(self, placer: Placing, event: AddOperator, overload: bool) -> None:
        """A join starts, with its pairs."""
        s, new = self._s, event.operator
        where = f"add-operator {new.id!r}"
        if new.id in self.join_index:
            raise ProblemError(f"{where}: there is an operator of that name")
        sink = row_of(s.node_index, "node", new.sink, f"{where}: sink: ")
        parts = parts_of(new)
        for part, said in parts.items():
            for _, why in bad_labels(said):
                raise ProblemError(f"{where}: {part}: {why}")
        tuples = s.stream_rule(new.left, new.right)
        s.require_zone(sink, tuples, f"{where}: sink")
        row = len(s.joins)
        needs = Asks(**parts), s.number_of(tuples & rule_of(**parts))
        s.joins.append(new.id, new.left, new.right, sink, *needs, True)
        s.on_undo(s.joins.pop)
        s.put(self.join_index, new.id, row)
        s.bind(self.sinks_on, sink, row)
        for stream in dict.fromkeys((new.left, new.right)):
            s.put(self.joined, stream, self.joined.get(stream, 0) + 1)
            if not self.sources.get(stream, 0):
                s.put(self.emptied, stream, None)
        pairs = [
            (*self._ends(row, pair.left, pair.right, where), pair.output_rate)
            for pair in event.pairs
        ]
        self._start(placer, pairs, overload, where)

    def remove_operator(self, placer: Placing, event: RemoveOperator, overload: bool) -> None:
        """A join ends, and all its pairs with it."""
        s = self._s
        row = row_of(self.join_index, "operator", event.operator)
        self._drop(sorted(self.of_join.of(row)))
        s.set(s.joins.alive, row, False)
        s.drop(self.join_index, event.operator)
        self._leave_sink(row)
        for stream in dict.fromkeys((s.joins.left[row], s.joins.right[row])):
            s.put(self.joined, stream, self.joined[stream] - 1)
            if self.joined[stream] == 0:
                s.drop(self.emptied, stream)
        for table in (placer.pinned, placer.state_bytes):
            s.drop(table, event.operator)

    def _leave_sink(self, join: int) -> None:
        s, sink = self._s, self._s.joins.sink[join]
        s.unbind(self.sinks_on, sink, join)
        if not self.sinks_on.of(sink):
            s.put(s.arriving, sink, 0.0)  # exactly, without rounding errors

    def _set_ends(self, pairs: Ints, sink: int) -> None:
        self._s.legs.end[self._s.operators.row[:, LEG][pairs] + 2] = sink

    def move_sink(self, placer: Placing, event: MoveSink, overload: bool) -> None:
        """A join's result goes to another node; its pairs move if that gains enough."""
        s, o = self._s, self._s.operators
        join = row_of(self.join_index, "operator", event.operator)
        node = row_of(s.node_index, "node", event.node, "move-sink: ")
        tuples = s.stream_rule(s.joins.left[join], s.joins.right[join])
        s.require_zone(node, tuples, "move-sink: node")
        pairs = sorted(self.of_join.of(join))
        limited = bool(s.link_free)
        placed = {pair: s.detach(pair) for pair in pairs} if limited else {}
        old = s.joins.sink[join]
        s.rerouted.setdefault(join, old)
        rows = np.array(pairs, np.int64)
        s.on_undo(self._set_ends, rows, old)
        self._set_ends(rows, node)
        output = math.fsum(o.rate[:, OUTPUT][rows].tolist())
        s.emit(old, -output)
        s.emit(node, output)
        self._leave_sink(join)
        s.set(s.joins.sink, join, node)
        s.bind(self.sinks_on, node, join)
        if limited:
            s.recompute_points(pairs)
            placer.put_back(placed, overload)
            placer.improve_all(pairs)
        else:
            placer.recompute_all(pairs)


# What each ms of a pair's legs counts, see `nova_core.model.objectives.leg_weights`.
_WEIGHTS = {"latency": (1.0, 1.0, 1.0), "source-latency": (1.0, 1.0, 2.0)}
