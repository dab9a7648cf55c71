"""Sources, rates and sinks that come, go and change (paper, section 3.5, workload changes)."""

from __future__ import annotations

import math

import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.syntax import unknown
from nova_core.placement.live.events import (
    AddSource,
    ChangeRate,
    JoinWith,
    MoveSink,
    Pin,
    RemoveSource,
)
from nova_core.placement.live.hosting import Hosting, NoRoomError
from nova_core.placement.live.state import NOT_THERE, TOLERANCE, LiveState
from nova_core.placement.live.tables import NOWHERE


def source_of(state: LiveState, name: str) -> int:
    """Row of a source.

    Raises:
        ProblemError: when there is none of that name.
    """
    row = state.source_index.get(name)
    if row is None:
        raise ProblemError(unknown("source", name, state.source_index))
    return row


def join_of(state: LiveState, name: str) -> int:
    """Row of an operator.

    Raises:
        ProblemError: when there is none of that name.
    """
    row = state.join_index.get(name)
    if row is None:
        raise ProblemError(unknown("operator", name, state.join_index))
    return row


def _positive(value: float, what: str) -> float:
    if not 0 < value < math.inf:
        raise ProblemError(f"{what}: {value} is not a positive number of tuples/s")
    return float(value)


def add_source(hosting: Hosting, event: AddSource, overload: bool) -> None:
    """A source starts, with its joins."""
    s, given = hosting.state, event.source
    rows, where = s.sources, f"add-source {given.id!r}"
    if given.id in s.source_index:
        raise ProblemError(f"{where}: there is a source of that name")
    node = s.node_index.get(given.node)
    if node is None:
        raise ProblemError(f"{where}: {unknown('node', given.node, s.node_index)}")
    rate = _positive(given.rate, f"{where}: rate")
    row = rows.used
    s.done(setattr, rows, "used", row)
    rows.used = row + 1
    key = "" if given.key is UNSET or given.key is None else given.key
    for column, value in ((rows.ids, given.id), (rows.stream, given.stream), (rows.key, key)):
        column.append(value)
        s.done(column.pop)
    size = given.tuple_bytes
    rows.node[row], rows.rate[row], rows.alive[row] = node, rate, True
    rows.tuple_bytes[row] = math.nan if size is UNSET or size is None else size
    s.put(s.source_index, given.id, row)
    s.put(s.stream_sources, given.stream, s.stream_sources.get(given.stream, 0) + 1)
    s.drop(s.emptied, given.stream)
    s.bind(s.sources_on, node, row)
    added = [_add_pair(s, row, join, where) for join in event.joins]
    s.renew_points(added)
    if len(added) > 1:
        added.sort(key=lambda pair: (-s.size(pair), pair))
    hosting.place_all(added, overload)


def _add_pair(state: LiveState, source: int, given: JoinWith, where: str) -> int:
    """A row for a new pair, without a place."""
    s, p = state, state.pairs
    join, other = join_of(s, given.operator), source_of(s, given.other)
    streams = s.join_left[join], s.join_right[join]
    stream, other_stream = s.sources.stream[source], s.sources.stream[other]
    if (stream, other_stream) == streams:
        left, right = source, other
    elif (other_stream, stream) == streams:
        left, right = other, source
    else:
        raise ProblemError(
            f"{where}: {given.operator!r} joins {streams[0]!r} with {streams[1]!r}; "
            f"{given.other!r} belongs to {other_stream!r} and the new source to {stream!r}"
        )
    if left == right:
        raise ProblemError(f"{where}: pairs the source with itself")
    for pair in s.pairs_of_source.of(source):
        if (p.join.item(pair), p.left.item(pair), p.right.item(pair)) == (join, left, right):
            raise ProblemError(f"{where}: the pair with {given.other!r} is given twice")
    row = p.used
    s.done(setattr, p, "used", row)
    p.used = row + 1
    p.host[row], p.moved[row] = NOWHERE, -1
    p.join[row], p.left[row], p.right[row] = join, left, right
    p.output[row] = output = _positive(given.output_rate, f"{where}: output_rate")
    p.ends[row] = s.sources.node.item(left), s.sources.node.item(right), s.sink[join]
    s.before[row] = NOT_THERE
    p.alive[row] = True
    s.emit(s.sink[join], output)
    s.put(s.alive_pairs, 0, s.alive_pairs[0] + 1)
    s.bind(s.pairs_of_source, left, row)
    s.bind(s.pairs_of_source, right, row)
    s.bind(s.pairs_of_join, join, row)
    return row


def remove_source(hosting: Hosting, event: RemoveSource, overload: bool) -> None:
    """A source ends, and its joins with it."""
    drop_source(hosting, source_of(hosting.state, event.source))


def drop_source(hosting: Hosting, source: int) -> None:
    """Take a source and its pairs out."""
    s, rows, p = hosting.state, hosting.state.sources, hosting.state.pairs
    for pair in sorted(s.pairs_of_source.of(source)):
        s.detach(pair)
        s.set(p.alive, pair, False)
        s.emit(p.ends.item(pair, 2), -p.output.item(pair))
        s.put(s.alive_pairs, 0, s.alive_pairs[0] - 1)
        s.unbind(s.pairs_of_source, p.left.item(pair), pair)
        s.unbind(s.pairs_of_source, p.right.item(pair), pair)
        s.unbind(s.pairs_of_join, p.join.item(pair), pair)
    s.set(rows.alive, source, False)
    s.drop(s.source_index, rows.ids[source])
    stream = rows.stream[source]
    s.put(s.stream_sources, stream, s.stream_sources[stream] - 1)
    if s.stream_sources[stream] == 0 and stream in s.joined_streams:
        s.put(s.emptied, stream, None)
    s.unbind(s.sources_on, rows.node.item(source), source)


def change_rate(hosting: Hosting, event: ChangeRate, overload: bool) -> None:
    """A source's rate changes; its joins stay where they still fit."""
    s = hosting.state
    source = source_of(s, event.source)
    rate = _positive(event.rate, "change-rate: rate")
    ratio = rate / float(s.sources.rate[source])
    pairs = sorted(s.pairs_of_source.of(source))
    placed = {pair: s.detach(pair) for pair in pairs}
    s.set(s.sources.rate, source, rate)
    for pair in pairs:
        output = s.pairs.output.item(pair)
        s.set(s.pairs.output, pair, output * ratio)
        s.emit(s.pairs.ends.item(pair, 2), output * ratio - output)
    by_rate = s.objective == "network-usage"
    if by_rate:
        s.renew_points(pairs)
    for pair in sorted(pairs, key=lambda pair: (-s.size(pair), pair)):
        before = placed[pair]
        if before is None:
            hosting.place(pair, overload)
        else:
            hosting.stay(pair, before, overload)
    if by_rate:
        hosting.improve_all(pairs)


def move_sink(hosting: Hosting, event: MoveSink, overload: bool) -> None:
    """An operator's result goes to another node; its joins move if that gains enough."""
    s = hosting.state
    join = join_of(s, event.operator)
    node = s.node_index.get(event.node)
    if node is None:
        raise ProblemError(f"move-sink: {unknown('node', event.node, s.node_index)}")
    pairs, ends = sorted(s.pairs_of_join.of(join)), s.pairs.ends
    limited = bool(s.link_free)
    placed = {pair: s.detach(pair) if limited else None for pair in pairs}
    old = s.sink[join]
    s.unbind(s.sinks_on, old, join)
    s.set(s.sink, join, node)
    s.bind(s.sinks_on, node, join)
    if pairs:
        s.touch(*pairs)
        rows = np.array(pairs)
        output = float(s.pairs.output.take(rows).sum())
        s.emit(old, -output)
        s.emit(node, output)
        if not s.sinks_on.of(old):
            s.put(s.arriving, old, 0.0)  # to the last bit
        s.set(ends, (rows, 2), node)
        s.renew_points(pairs)
    if limited:
        for pair in sorted(pairs, key=lambda pair: (-s.size(pair), pair)):
            before = placed[pair]
            assert before is not None
            hosting.stay(pair, before, overload)
    hosting.improve_all(pairs)


def pin(hosting: Hosting, event: Pin, overload: bool) -> None:
    """An operator's instances stay where they are, or no longer."""
    s = hosting.state
    join_of(s, event.operator)
    if event.pinned:
        s.put(hosting.pinned, event.operator, True)
    else:
        s.drop(hosting.pinned, event.operator)


def check_problem(state: LiveState) -> None:
    """Refuse an event that would leave no problem that can be placed.

    Raises:
        ProblemError: when no pair is left, or a stream that is joined has no source.
        NoRoomError: when a sink cannot take what arrives.
    """
    if state.alive_pairs[0] == 0:
        raise ProblemError("the event would leave no pair to join")
    for stream in state.emptied:
        raise ProblemError(
            f"the event would leave stream {stream!r}, which an operator joins, without a source"
        )
    for sink in state.sinks_changed:
        arrives, fits = state.arriving.get(sink, 0.0), float(state.nodes.capacity[sink])
        if arrives > fits * (1 + TOLERANCE):
            raise NoRoomError(
                f"sink {state.nodes.ids[sink]}: cannot take the output, {arrives:g} tuples/s "
                f"arrive and {fits:g} fit",
                arrives - fits,
            )


__all__ = [
    "add_source",
    "change_rate",
    "check_problem",
    "drop_source",
    "join_of",
    "move_sink",
    "pin",
    "remove_source",
    "source_of",
]
