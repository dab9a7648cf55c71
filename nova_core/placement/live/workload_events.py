"""Sources, rates and sinks that come, go and change (paper, section 3.5, workload changes)."""

from __future__ import annotations

import math

from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.syntax import unknown
from nova_core.placement.kernels.live.columns import SINK
from nova_core.placement.live.events import (
    AddSource,
    ChangeRate,
    JoinWith,
    MoveSink,
    Pin,
    RemoveSource,
)
from nova_core.placement.live.hosting import Hosting, NoRoomError
from nova_core.placement.live.state import TOLERANCE, LiveState
from nova_core.placement.live.tables import NOWHERE, SourceRows


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
    rows.used = row + 1
    key = "" if given.key is UNSET or given.key is None else given.key
    rows.ids.append(given.id)
    rows.stream.append(given.stream)
    rows.key.append(key)
    s.done(_forget_source, rows, row)
    size = given.tuple_bytes
    rows.node[row], rows.rate[row], rows.alive[row] = node, rate, True
    rows.tuple_bytes[row] = math.nan if size is UNSET or size is None else size
    s.put(s.source_index, given.id, row)
    s.put(s.stream_sources, given.stream, s.stream_sources.get(given.stream, 0) + 1)
    s.drop(s.emptied, given.stream)
    s.bind(s.sources_on, node, row)
    s.done(setattr, s.pairs, "used", s.pairs.used)
    s.put(s.alive_pairs, 0, s.alive_pairs[0] + len(event.joins))
    ends: set[tuple[int, int, int]] = set()
    added = [_add_pair(s, row, node, join, ends, where) for join in event.joins]
    if len(added) > 1:
        added.sort(key=lambda pair: (-s.size(pair), pair))
    hosting.place_all(added, overload, anew=True)


def _forget_source(rows: SourceRows, row: int) -> None:
    rows.used = row
    for column in (rows.ids, rows.stream, rows.key):
        column.pop()


def _add_pair(
    state: LiveState,
    source: int,
    node: int,
    given: JoinWith,
    known: set[tuple[int, int, int]],
    where: str,
) -> int:
    """A row for a new pair of a new source on a node, without a place.

    Args:
        state: where it is added.
        source: the new source.
        node: where that is.
        given: the pair.
        known: joins and sources of the new source's pairs so far; added to.
        where: what errors call the event.
    """
    s, p = state, state.pairs
    join, other = join_of(s, given.operator), source_of(s, given.other)
    streams = s.join_left[join], s.join_right[join]
    stream, other_stream = s.sources.stream[source], s.sources.stream[other]
    if (stream, other_stream) == streams:
        left, right, left_node, right_node = source, other, node, s.sources.node.item(other)
    elif (other_stream, stream) == streams:
        left, right, left_node, right_node = other, source, s.sources.node.item(other), node
    else:
        raise ProblemError(
            f"{where}: {given.operator!r} joins {streams[0]!r} with {streams[1]!r}; "
            f"{given.other!r} belongs to {other_stream!r} and the new source to {stream!r}"
        )
    if left == right:
        raise ProblemError(f"{where}: pairs the source with itself")
    if (join, left, right) in known:
        raise ProblemError(f"{where}: the pair with {given.other!r} is given twice")
    known.add((join, left, right))
    row, sink = p.used, s.sink[join]
    p.used = row + 1
    p.row[row] = left, right, left_node, right_node, sink, NOWHERE, -1, -1
    p.join[row] = join
    s.name_pair(row)
    p.output[row] = output = _positive(given.output_rate, f"{where}: output_rate")
    p.alive[row] = True
    s.touched.begin(row)
    s.emit(sink, output)
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
    pairs = sorted(s.pairs_of_source.of(source))
    s.touched.keep_all(pairs)
    for pair in pairs:
        s.detach(pair)
        s.set(p.alive, pair, False)
        left, right, _, _, sink, _, _, _ = p.row[pair].tolist()
        s.emit(sink, -p.output.item(pair))
        # Nobody asks any more for the pairs of the source itself.
        s.unbind(s.pairs_of_source, right if left == source else left, pair)
        s.unbind(s.pairs_of_join, p.join.item(pair), pair)
    s.put(s.alive_pairs, 0, s.alive_pairs[0] - len(pairs))
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
        s.emit(s.pairs.row.item(pair, SINK), output * ratio - output)
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
    pairs = sorted(s.pairs_of_join.of(join))
    limited = bool(s.link_free)
    placed = {pair: s.detach(pair) for pair in pairs} if limited else {}
    old = s.sink[join]
    s.unbind(s.sinks_on, old, join)
    s.set(s.sink, join, node)
    s.bind(s.sinks_on, node, join)
    if pairs:
        output = s.touched.redirect(pairs, node)
        s.emit(old, -output)
        s.emit(node, output)
        if not s.sinks_on.of(old):
            s.put(s.arriving, old, 0.0)  # to the last bit
    if limited:
        s.renew_points(pairs)
        for pair in sorted(pairs, key=lambda pair: (-s.size(pair), pair)):
            before = placed[pair]
            assert before is not None
            hosting.stay(pair, before, overload)
        hosting.improve_all(pairs)
    else:
        hosting.renew_all(pairs)


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
