"""What each event does: to nodes and links, to sources, rates and sinks, and to the whole plan.

See the paper, section 3.5. Handlers take the placer, the event, and whether nodes may be
overloaded; they raise `NoRoomError` when a join fits nowhere, and `ProblemError` for events with
unknown names. The caller then undoes their changes.
"""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import numpy as np
from msgspec import UNSET, UnsetType

from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.syntax import listed
from nova_core.model.problem import GREATEST_LATENCY, Floats, Ints
from nova_core.model.verify import TOLERANCE
from nova_core.placement.kernels import tuning
from nova_core.placement.kernels.live import hosts as kernels
from nova_core.placement.kernels.live.tables import LEFT, RIGHT, SINK
from nova_core.placement.live.events import (
    AddOperator,
    AddPair,
    AddSource,
    AddWorker,
    ChangeCapacity,
    ChangeLink,
    ChangeRate,
    FailNode,
    JoinWith,
    MoveNode,
    MoveSink,
    Pin,
    Rebalance,
    RemoveOperator,
    RemovePair,
    RemoveSource,
    RemoveWorker,
    finite,
)
from nova_core.placement.live.pieces import Pieces
from nova_core.placement.live.placer import NoRoomError, Placer
from nova_core.placement.live.state import Link, LiveState
from nova_core.placement.live.tables import IN_PIECES, NOWHERE, NodeRows, SourceRows
from nova_core.suggestions import unknown

T = TypeVar("T")


def _row(index: Mapping[str, int], kind: str, name: str, where: str = "") -> int:
    """Row of a name.

    Raises:
        ProblemError: when the name is unknown.
    """
    row = index.get(name)
    if row is None:
        raise ProblemError(where + unknown(kind, name, index))
    return row


def _largest_first(state: LiveState, pairs: Collection[int]) -> list[int]:
    if len(pairs) < 2:
        return list(pairs)
    return sorted(pairs, key=lambda pair: (-state.size(pair), pair))


# --- nodes and links ------------------------------------------------------------------------------


def _may_host(state: LiveState, node: int) -> bool:
    n = state.nodes
    capacity = n.capacity.item(node)
    hosts: bool = n.alive.item(node) and n.worker.item(node)
    return hosts and capacity > 0 and capacity >= state.c_min


def _update_index(state: LiveState, node: int) -> None:
    """Update the index after a change of a node's position, capacity or role."""
    n, index = state.nodes, state.index
    old, new = index.row_of(node), None
    if _may_host(state, node):
        access = n.extra.item(node, 0) + n.extra.item(node, 1)
        new = [*n.position[node].tolist(), access, n.free.item(node)]
    if new == (None if old is None else old.tolist()):
        return
    offer = state.offer(node)
    index.replace(node, None if new is None else np.array(new), offer)
    state.on_undo(index.replace, node, old, offer)


def _position(state: LiveState, coordinates: list[float], where: str) -> Floats:
    d = state.nodes.position.shape[1]
    if len(coordinates) != d or not all(abs(x) <= GREATEST_LATENCY for x in coordinates):
        raise ProblemError(
            f"{where}: position {coordinates}; {d} numbers of ms are needed, from "
            f"{-GREATEST_LATENCY:g} to {GREATEST_LATENCY:g}"
        )
    return np.array(coordinates)


# Nodes that a warning names.
_NAMED = 5


def _located(
    state: LiveState, latency: Mapping[str, float | list[float]], where: str
) -> tuple[Floats, float]:
    """Position and height that fit measured latencies to other nodes, which do not move.

    Warns:
        ProblemWarning: naming latencies that fit nothing, and how far the node is from those.
    """
    from nova_core.costspace.incremental import located

    metrics = state.base.metrics
    if metrics:
        raise ProblemError(
            f"{where}: latency: positions also measure {', '.join(metrics)}, which latencies do "
            "not tell; give a position"
        )
    rows, measured = [], []
    for name, values in latency.items():
        rows.append(_row(state.node_index, "node", name, f"{where}: latency: "))
        measured.append(np.atleast_1d(np.asarray(values, np.float64)))
        greatest = measured[-1].max()
        if not greatest <= GREATEST_LATENCY:
            raise ProblemError(
                f"{where}: latency: {name}: {greatest:g} ms; expected 0 to {GREATEST_LATENCY:g}"
            )
    nodes = state.nodes
    height = nodes.extra[rows, 0]
    try:
        location, fit = located(nodes.position[rows], height if height.any() else None, measured)
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from None
    if fit.absurd.any():
        named = [
            f"{name} {ms:,.0f} ms (placed at {estimate:,.0f} ms)"
            for name, ms, estimate, absurd in zip(
                latency, fit.measured, fit.estimate, fit.absurd, strict=True
            )
            if absurd
        ]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        warnings.warn(
            f"{where}: latencies that fit nothing: {', '.join(named[:_NAMED])}{more}; the node is "
            "where most of what it measured fits: are all of these ms? Else measure again",
            ProblemWarning,
            stacklevel=2,
        )
    return location.position, location.height or 0.0


def add_worker(placer: Placer, event: AddWorker, overload: bool) -> None:
    """A node joins; nothing moves to it yet."""
    s, new_node = placer.state, event.node
    n, where = s.nodes, f"add-worker {new_node.id!r}"
    if new_node.id in s.node_index:
        raise ProblemError(f"{where}: there is a node of that name")
    if new_node.position is not UNSET and event.latency is UNSET:
        position, height = _position(s, new_node.position, where), _or(new_node.height, 0.0)
    elif new_node.position is UNSET and event.latency is not UNSET:
        if _or(new_node.height, None) is not None:
            raise ProblemError(f"{where}: height: latencies give the height; leave one of them out")
        position, height = _located(s, event.latency, where)
    else:
        raise ProblemError(f"{where}: expected either a position or latencies to other nodes")
    row = n.used
    n.used = row + 1
    n.ids.append(new_node.id)
    n.tags.append(",".join(_or(new_node.tags, [])))
    n.host.append(_or(new_node.host, ""))
    s.on_undo(_forget, n, row, n.ids, n.tags, n.host)
    n.position[row] = position
    n.extra[row] = [height, _or(new_node.penalty, 0.0)]
    n.capacity[row] = n.free[row] = finite(new_node.capacity, where)
    n.worker[row] = True if new_node.worker is UNSET else new_node.worker
    n.memory[row], n.cost[row] = _or(new_node.memory, math.nan), _or(new_node.cost, math.nan)
    n.cpu[row] = _or(new_node.cpu, math.nan)
    n.alive[row], n.first[row], n.pieces[row] = True, NOWHERE, 0
    s.put(s.node_index, new_node.id, row)
    _update_index(s, row)


def _or(value: T | UnsetType | None, default: T) -> T:
    return default if value is UNSET or value is None else value


def _forget(rows: NodeRows | SourceRows, row: int, *lists: list[str]) -> None:
    """Undo that a row was added last."""
    rows.used = row
    for column in lists:
        column.pop()


def _retire(placer: Placer, node: int, overload: bool) -> None:
    """Remove a node without sources and sinks; its joins are placed elsewhere."""
    s, n = placer.state, placer.state.nodes
    s.set(n.alive, node, False)
    s.drop(s.node_index, n.ids[node])
    _update_index(s, node)
    for link in list(s.links_at.get(node, ())):
        s.drop(s.budget, link)
        s.drop(s.link_free, link)
        s.drop(s.overfull, link)
        other = link[0] if link[1] == node else link[1]
        s.drop(s.links_at[other], link)
        s.drop(s.links_at[node], link)
    if residents := s.residents.of(node):
        placer.place_all(_largest_first(s, residents), overload, leave=True)
        s.note_load(node)


def remove_worker(placer: Placer, event: RemoveWorker, overload: bool) -> None:
    """A node without sources and sinks leaves."""
    s = placer.state
    node = _row(s.node_index, "node", event.node)
    sources = [s.sources.ids[row] for row in s.sources_on.of(node)]
    if sources:
        raise ProblemError(
            f"remove-worker: {event.node!r} produces {listed(sources, 5)}; remove the sources "
            "first, or report its failure with fail-node"
        )
    _refuse_sink(s, node, "remove-worker")
    _retire(placer, node, overload)


def fail_node(placer: Placer, event: FailNode, overload: bool) -> None:
    """A node fails, and its sources with it."""
    s = placer.state
    node = _row(s.node_index, "node", event.node)
    _refuse_sink(s, node, "fail-node")
    for source in sorted(s.sources_on.of(node)):
        _drop_source(s, source)
    _retire(placer, node, overload)


def _refuse_sink(state: LiveState, node: int, event: str) -> None:
    sinks = [state.joins.ids[join] for join in state.sinks_on.of(node)]
    if sinks:
        raise ProblemError(
            f"{event}: {state.nodes.ids[node]!r} is the sink of {listed(sinks, 5)}; move the sink "
            "first (move-sink, also in the same batch)"
        )


def change_capacity(placer: Placer, event: ChangeCapacity, overload: bool) -> None:
    """A node can receive more or fewer tuples; as few joins as possible move away."""
    s, n = placer.state, placer.state.nodes
    node = _row(s.node_index, "node", event.node)
    capacity = finite(event.capacity, "change-capacity: capacity")
    if s.residents.any_on(node):
        old = float(n.capacity[node])
        free = float(n.free[node]) + (capacity - old)
        if math.isinf(capacity) or math.isinf(old):
            free = capacity - math.fsum(s.shares(pair)[node].size for pair in s.residents.of(node))
    else:
        free = capacity
    s.set(n.capacity, node, capacity)
    s.sinks_changed.add(node)
    s.set_free(node, free)
    _update_index(s, node)
    if s.residents.any_on(node) and not _may_host(s, node):
        _evict(placer, s.residents.of(node), overload, node)
    _relieve(placer, node, overload)


def _evict(placer: Placer, pairs: Collection[int], overload: bool, node: int) -> None:
    """Move pairs away from a node that may no longer host them."""
    s = placer.state
    leaving = _largest_first(s, pairs)
    for pair in leaving:
        if placer.is_pinned(pair):
            name, host = s.pair_names[pair], s.nodes.ids[node]
            raise NoRoomError(f"{name}: pinned to {host}, which can no longer run it", s.size(pair))
    placer.place_all(leaving, overload, leave=True)
    s.note_load(node)


def _relieve(placer: Placer, node: int, overload: bool) -> None:
    """Move residents off a node until its lack is 0: the smallest that suffices, or the largest."""
    s, n = placer.state, placer.state.nodes
    while (over := s.lack(node)) > TOLERANCE * n.capacity.item(node):
        residents = placer.movable(node)
        if not residents:
            if overload:
                return
            beyond = "capacity" if node in s.overloaded else f"C_min of {s.c_min:g}"
            raise NoRoomError(
                f"{n.ids[node]}: only pinned joins are left on it, beyond its {beyond}", over
            )
        greatest = s.greatest(node)
        if greatest < s.c_min and len(residents) > 1:
            # The greatest instance leaves last, as free capacity beside it counts.
            residents.remove(max(residents, key=lambda pair: s.instance(pair, node)))
        enough = [p for p in residents if s.shares(p)[node].size >= over * (1 - TOLERANCE)]
        pair = enough[-1] if enough else residents[0]
        if not _moves_away(placer, pair, overload):
            return


def _moves_away(placer: Placer, pair: int, overload: bool) -> bool:
    """Place a pair elsewhere; with ``overload`` it may stay where nothing else has room."""
    placed = placer.state.detach(pair)
    try:
        placer.place(pair, False)
    except NoRoomError:
        if not overload:
            raise
        assert placed is not None
        placer.state.attach(pair, placed)
        return False
    return True


def move_node(placer: Placer, event: MoveNode, overload: bool) -> None:
    """A node's place in the cost space changes; joins move if that gains enough."""
    s, n = placer.state, placer.state.nodes
    node = _row(s.node_index, "node", event.node)
    s.set(n.position, node, _position(s, event.position, f"move-node {event.node!r}"))
    if event.height is not UNSET:
        s.set(n.extra, node, np.array([event.height, n.extra[node, 1]]))
    s.put(s.strayed, node, None)
    _update_index(s, node)
    ends = {pair for source in s.sources_on.of(node) for pair in s.pairs_of_source.of(source)}
    for join in s.sinks_on.of(node):
        ends.update(s.pairs_of_join.of(join))
    s.recompute_points(sorted(ends))
    placer.improve_all(sorted(ends.union(s.residents.of(node))))


def change_link(placer: Placer, event: ChangeLink, overload: bool) -> None:
    """A link's budget changes; joins leave it until the rest fits."""
    s = placer.state
    link = (
        _row(s.node_index, "node", event.source_node),
        _row(s.node_index, "node", event.target_node),
    )
    if link[0] == link[1]:
        raise ProblemError(f"change-link: from {event.source_node!r} to itself")
    budget = finite(event.budget, "change-link: budget")
    if math.isinf(budget):
        for table in (s.budget, s.link_free, s.overfull):
            s.drop(table, link)
        for node in link:
            if node in s.links_at:
                s.drop(s.links_at[node], link)
        return
    users = _users(s, link)
    s.put(s.budget, link, budget)
    s.put(s.link_free, link, budget)
    for node in link:
        s.put(s.links_at.setdefault(node, {}), link, None)
    used = {pair: _use_of(s, pair, link) for pair in users}
    free = budget - math.fsum(used.values())
    s.put(s.link_free, link, free)
    if free < -TOLERANCE * budget:
        s.put(s.overfull, link, None)
    else:
        s.drop(s.overfull, link)
    _relieve_link(placer, link, used, overload)


def _users(state: LiveState, link: Link) -> list[int]:
    """Pairs that send over a link."""
    source, target, ends = *link, state.pairs.ends
    users = {p for p in state.residents.of(target) if source in ends[p, :2].tolist()}
    users |= {p for p in state.residents.of(source) if ends[p, 2] == target}
    return sorted(users)


def _use_of(state: LiveState, pair: int, link: Link) -> float:
    return math.fsum(
        rate
        for node, share in state.shares(pair).items()
        for used, rate in state.legs(pair, node, share)
        if used == link
    )


def _relieve_link(placer: Placer, link: Link, used: dict[int, float], overload: bool) -> None:
    s = placer.state
    while link in s.overfull:
        over = -s.link_free[link]
        movable = [pair for pair in used if not placer.is_pinned(pair)]
        if not movable:
            if overload:
                return
            name = "->".join(s.nodes.ids[node] for node in link)
            raise NoRoomError(f"link {name}: only pinned joins use it, beyond its budget", over)
        enough = [pair for pair in movable if used[pair] >= over * (1 - TOLERANCE)]
        pair = min(enough, key=used.__getitem__) if enough else max(movable, key=used.__getitem__)
        del used[pair]
        if not _moves_away(placer, pair, overload):
            return


# --- sources, rates and sinks ---------------------------------------------------------------------


def _positive(value: float, what: str) -> float:
    if not 0 < value < math.inf:
        raise ProblemError(f"{what}: {value} is not a positive number of tuples/s")
    return float(value)


def add_source(placer: Placer, event: AddSource, overload: bool) -> None:
    """A source starts, with its joins."""
    s, new_source = placer.state, event.source
    rows, where = s.sources, f"add-source {new_source.id!r}"
    if new_source.id in s.source_index:
        raise ProblemError(f"{where}: there is a source of that name")
    node = _row(s.node_index, "node", new_source.node, f"{where}: ")
    rate = _positive(new_source.rate, f"{where}: rate")
    row = rows.used
    rows.used = row + 1
    rows.ids.append(new_source.id)
    rows.stream.append(new_source.stream)
    rows.key.append(_or(new_source.key, ""))
    s.on_undo(_forget, rows, row, rows.ids, rows.stream, rows.key)
    rows.node[row], rows.rate[row], rows.alive[row] = node, rate, True
    rows.tuple_bytes[row] = _or(new_source.tuple_bytes, math.nan)
    s.put(s.source_index, new_source.id, row)
    s.put(s.stream_sources, new_source.stream, s.stream_sources.get(new_source.stream, 0) + 1)
    s.drop(s.emptied, new_source.stream)
    s.bind(s.sources_on, node, row)
    pairs = [(*_sides(s, row, join, where), join.output_rate) for join in event.joins]
    _start_pairs(placer, pairs, overload, where)


def _sides(s: LiveState, source: int, join_with: JoinWith, where: str) -> tuple[int, int, int]:
    """The operator, left and right source of a pair that a new source makes."""
    join = _row(s.join_index, "operator", join_with.operator)
    other = _row(s.source_index, "source", join_with.other)
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


def _ends(s: LiveState, join: int, left: str, right: str, where: str) -> tuple[int, int, int]:
    """The operator, left and right source of a pair of existing sources."""
    sources = []
    for name, stream, side in (
        (left, s.joins.left[join], "left"),
        (right, s.joins.right[join], "right"),
    ):
        source = _row(s.source_index, "source", name, f"{where}: {side}: ")
        if s.sources.stream[source] != stream:
            raise ProblemError(
                f"{where}: {side}: {name!r} belongs to {s.sources.stream[source]!r}; the {side} "
                f"stream of {s.joins.ids[join]!r} is {stream!r}"
            )
        sources.append(source)
    return join, sources[0], sources[1]


def _start_pairs(
    placer: Placer, pairs: list[tuple[int, int, int, float]], overload: bool, where: str
) -> None:
    """Place new pairs.

    Args:
        placer: places them.
        pairs: operator, left source, right source and output rate (tuples/s) of each.
        overload: whether nodes may be overloaded.
        where: name of the event in errors.
    """
    s, p, nodes = placer.state, placer.state.pairs, placer.state.sources.node
    s.on_undo(setattr, p, "used", p.used)
    s.put(s.alive_pairs, 0, s.alive_pairs[0] + len(pairs))
    known: set[tuple[int, int, int]] = set()
    added, output_rate_of = [], f"{where}: output_rate"
    for join, left, right, output_rate in pairs:
        if left == right:
            raise ProblemError(f"{where}: pairs the source {s.sources.ids[left]!r} with itself")
        if (join, left, right) in known:
            names = f"{s.sources.ids[left]!r} and {s.sources.ids[right]!r}"
            raise ProblemError(f"{where}: the pair of {names} is given twice")
        known.add((join, left, right))
        row, sink = p.used, s.joins.sink[join]
        p.used = row + 1
        left_node, right_node = nodes.item(left), nodes.item(right)
        p.row[row] = left, right, left_node, right_node, sink, NOWHERE, -1, -1
        p.join[row] = join
        s.name_pair(row)
        p.output[row] = output = _positive(output_rate, output_rate_of)
        p.alive[row] = True
        s.changed.add(row)
        s.emit(sink, output)
        s.bind(s.pairs_of_source, left, row)
        s.bind(s.pairs_of_source, right, row)
        s.bind(s.pairs_of_join, join, row)
        added.append(row)
    placer.place_all(_largest_first(s, added), overload, recompute=True)


def _pair(s: LiveState, join: int, left: int, right: int) -> int | None:
    """The row of a pair; None if it does not exist."""
    p = s.pairs
    of_both = s.pairs_of_source.of(left), s.pairs_of_source.of(right)
    for pair in min(of_both, key=len):
        if p.row[pair, : RIGHT + 1].tolist() == [left, right] and p.join.item(pair) == join:
            return pair
    return None


def add_pair(placer: Placer, event: AddPair, overload: bool) -> None:
    """An operator joins two more sources."""
    s = placer.state
    join = _row(s.join_index, "operator", event.operator)
    ends = _ends(s, join, event.left, event.right, "add-pair")
    if _pair(s, *ends) is not None:
        raise ProblemError(
            f"add-pair: {event.operator!r} joins {event.left!r} and {event.right!r} already"
        )
    _start_pairs(placer, [(*ends, event.output_rate)], overload, "add-pair")


def remove_pair(placer: Placer, event: RemovePair, overload: bool) -> None:
    """An operator no longer joins two sources."""
    s = placer.state
    join = _row(s.join_index, "operator", event.operator)
    pair = _pair(s, *_ends(s, join, event.left, event.right, "remove-pair"))
    if pair is None:
        raise ProblemError(
            f"remove-pair: {event.operator!r} does not join {event.left!r} and {event.right!r}"
        )
    _drop_pairs(s, [pair])


def add_operator(placer: Placer, event: AddOperator, overload: bool) -> None:
    """A query starts: an operator with its pairs."""
    s, new_operator = placer.state, event.operator
    where = f"add-operator {new_operator.id!r}"
    if new_operator.id in s.join_index:
        raise ProblemError(f"{where}: there is an operator of that name")
    sink = _row(s.node_index, "node", new_operator.sink, f"{where}: sink: ")
    tags, memory = "", math.nan
    if new_operator.requires is not UNSET:
        tags = ",".join(_or(new_operator.requires.tags, []))
        memory = _or(new_operator.requires.memory, math.nan)
    row, requirement = len(s.joins), s.number_of(tags, memory)
    s.joins.append(
        new_operator.id,
        new_operator.left,
        new_operator.right,
        sink,
        tags,
        memory,
        requirement,
        True,
    )
    s.on_undo(s.joins.pop)
    s.put(s.join_index, new_operator.id, row)
    s.bind(s.sinks_on, sink, row)
    for stream in dict.fromkeys((new_operator.left, new_operator.right)):
        s.put(s.joined_streams, stream, s.joined_streams.get(stream, 0) + 1)
        if not s.stream_sources.get(stream, 0):
            s.put(s.emptied, stream, None)
    pairs = [
        (*_ends(s, row, pair.left, pair.right, where), pair.output_rate) for pair in event.pairs
    ]
    _start_pairs(placer, pairs, overload, where)


def remove_operator(placer: Placer, event: RemoveOperator, overload: bool) -> None:
    """A query ends: an operator, and all its joins with it."""
    s = placer.state
    row = _row(s.join_index, "operator", event.operator)
    _drop_pairs(s, sorted(s.pairs_of_join.of(row)))
    sink = s.joins.sink[row]
    s.set(s.joins.alive, row, False)
    s.drop(s.join_index, event.operator)
    s.unbind(s.sinks_on, sink, row)
    if not s.sinks_on.of(sink):
        s.put(s.arriving, sink, 0.0)  # exactly, without rounding errors
    for stream in dict.fromkeys((s.joins.left[row], s.joins.right[row])):
        s.put(s.joined_streams, stream, s.joined_streams[stream] - 1)
        if s.joined_streams[stream] == 0:
            s.drop(s.emptied, stream)
    for table in (placer.pinned, placer.state_bytes):
        s.drop(table, event.operator)


def remove_source(placer: Placer, event: RemoveSource, overload: bool) -> None:
    """A source ends, and its joins with it."""
    _drop_source(placer.state, _row(placer.state.source_index, "source", event.source))


def _drop_source(s: LiveState, source: int) -> None:
    """Remove a source and its pairs."""
    rows = s.sources
    _drop_pairs(s, sorted(s.pairs_of_source.of(source)), source)
    s.set(rows.alive, source, False)
    s.drop(s.source_index, rows.ids[source])
    stream = rows.stream[source]
    s.put(s.stream_sources, stream, s.stream_sources[stream] - 1)
    if s.stream_sources[stream] == 0 and s.joined_streams.get(stream, 0):
        s.put(s.emptied, stream, None)
    s.unbind(s.sources_on, rows.node.item(source), source)


def _drop_pairs(s: LiveState, pairs: list[int], leaving: int = -1) -> None:
    """Remove pairs.

    Args:
        s: the state.
        pairs: their rows.
        leaving: a source that is removed, too; its own list of pairs needs no update.
    """
    p = s.pairs
    s.changed.keep(np.array(pairs, np.int64))
    for pair in pairs:
        s.detach(pair)
        s.set(p.alive, pair, False)
        left, right, _, _, sink, _, _, _ = p.row[pair].tolist()
        s.emit(sink, -p.output.item(pair))
        for source in (left, right):
            if source != leaving:
                s.unbind(s.pairs_of_source, source, pair)
        s.unbind(s.pairs_of_join, p.join.item(pair), pair)
    s.put(s.alive_pairs, 0, s.alive_pairs[0] - len(pairs))


def change_rate(placer: Placer, event: ChangeRate, overload: bool) -> None:
    """A source's rate changes; its joins stay where they still fit."""
    s = placer.state
    source = _row(s.source_index, "source", event.source)
    rate = _positive(event.rate, "change-rate: rate")
    rates, p = s.sources.rate, s.pairs
    pairs = sorted(s.pairs_of_source.of(source))
    placed = {pair: s.detach(pair) for pair in pairs}
    old_rate = rates.item(source)
    s.set(rates, source, rate)
    for pair in pairs:
        left, right, before = p.row.item(pair, LEFT), p.row.item(pair, RIGHT), p.output.item(pair)
        other = rates.item(right if left == source else left)
        # A join emits in proportion to its slower input (`nova_core.model.matching`).
        output = before * (min(rate, other) / min(old_rate, other))
        if not 0 < output < math.inf:  # only then are the words worth their time
            _positive(output, f"change-rate: rate {rate}: output_rate of a pair")
        s.set(p.output, pair, output)
        s.emit(p.row.item(pair, SINK), output - before)
    by_rate = s.objective == "network-usage"
    if by_rate:
        s.recompute_points(pairs)
    _put_back(placer, placed, overload)
    if by_rate:
        placer.improve_all(pairs)


def _put_back(placer: Placer, placed: dict[int, int | Pieces | None], overload: bool) -> None:
    """Place pairs where they were if they still fit, the largest first."""
    for pair in _largest_first(placer.state, placed):
        before = placed[pair]
        if before is None:
            placer.place(pair, overload)
        else:
            placer.stay(pair, before, overload)


def move_sink(placer: Placer, event: MoveSink, overload: bool) -> None:
    """An operator's result goes to another node; its joins move if that gains enough."""
    s = placer.state
    join = _row(s.join_index, "operator", event.operator)
    node = _row(s.node_index, "node", event.node, "move-sink: ")
    pairs = sorted(s.pairs_of_join.of(join))
    limited = bool(s.link_free)
    placed = {pair: s.detach(pair) for pair in pairs} if limited else {}
    old = s.joins.sink[join]
    s.unbind(s.sinks_on, old, join)
    s.set(s.joins.sink, join, node)
    s.bind(s.sinks_on, node, join)
    if pairs:
        rows = np.array(pairs)
        s.changed.keep(rows)
        s.pairs.row[rows, SINK] = node
        output = math.fsum(s.pairs.output[rows].tolist())
        s.emit(old, -output)
        s.emit(node, output)
        if not s.sinks_on.of(old):
            s.put(s.arriving, old, 0.0)  # exactly, without rounding errors
    if limited:
        s.recompute_points(pairs)
        _put_back(placer, placed, overload)
        placer.improve_all(pairs)
    else:
        placer.recompute_all(pairs)


def pin(placer: Placer, event: Pin, overload: bool) -> None:
    """Pin an operator's instances to their nodes, or unpin them."""
    s = placer.state
    _row(s.join_index, "operator", event.operator)
    if event.pinned:
        s.put(placer.pinned, event.operator, True)
    else:
        s.drop(placer.pinned, event.operator)


# --- the whole plan -------------------------------------------------------------------------------


def rebalance(placer: Placer, event: Rebalance, overload: bool) -> None:
    """Make at most so many moves, each worth more than the policy's threshold.

    Nodes that are overloaded, or lack C_min, are relieved first, at any cost. Then joins move in
    the order of their greatest possible gain: to a host with room, or to one whose resident moves
    elsewhere, which counts as two moves.
    """
    s = placer.state
    budget = event.moves
    for node in sorted({*s.overloaded, *s.short}):
        before = len(s.changed)
        _relieve(placer, node, True)  # joins without room elsewhere stay
        budget -= len(s.changed) - before
        if budget <= 0:
            return
    p = s.pairs
    whole = np.flatnonzero(p.alive[: p.used] & (p.host[: p.used] != IN_PIECES))
    weights = _all_weights(placer, whole)
    loss = kernels.losses(
        s.nodes.position, s.nodes.extra, p.row, p.point, weights, whole, p.host[whole]
    )
    # The queue is in the order of upper bounds of gains.
    queue = [(-value, pair) for value, pair in zip(loss.tolist(), whole.tolist(), strict=True)]
    heapq.heapify(queue)
    while queue and budget > 0:
        most, pair = heapq.heappop(queue)
        if -most <= placer.threshold(pair, 0.0) or placer.is_pinned(pair) or placer.rests(pair):
            continue
        if int(p.host[pair]) == IN_PIECES or pair in s.changed:
            continue
        if placer.improve(pair):
            budget -= 1
        elif budget > 1 and _swap(placer, pair):
            budget -= 2


def _all_weights(placer: Placer, pairs: Ints) -> Floats:
    """(k, 3) weights of pairs' legs."""
    s, p = placer.state, placer.state.pairs
    if s.objective != "network-usage":
        return np.tile(s.weights(0), (len(pairs), 1))
    rate = s.sources.rate
    return np.stack([rate[p.left[pairs]], rate[p.right[pairs]], p.output[pairs]], axis=1)


def _swap(placer: Placer, pair: int) -> bool:
    """Move a whole join to a near host whose resident goes elsewhere, if both together gain.

    The resident goes to the cheapest host with room, or to the host that the join leaves.
    """
    s, p = placer.state, placer.state.pairs
    share, weights = s.whole_share(pair), s.weights(pair)
    here, now = int(p.host[pair]), placer.cost(pair)
    need = placer.need(share.size)
    best, choice = 0.0, None
    for node, cost in placer.near(pair, weights, -math.inf, tuning.SWAPS):
        gain = now - cost
        if gain <= best + placer.threshold(pair, now):
            break
        if node == here or s.nodes.capacity[node] < need or not s.links_fit(pair, node, share):
            continue
        for other in placer.movable(node)[: tuning.SWAP_RESIDENTS]:
            if p.host[other] == IN_PIECES or placer.rests(other):
                continue
            other_share, other_weights = s.whole_share(other), s.weights(other)
            if s.nodes.free[node] + other_share.size < need:
                continue
            other_now = placer.cost(other)
            margin = placer.threshold(pair, now) + placer.threshold(other, other_now)
            places = []
            alternative = placer.elsewhere(other, node)
            if alternative is not None:
                places.append(alternative)
            if s.nodes.free[here] + share.size >= placer.need(other_share.size) and (
                s.index.meets(here, s.requirement(other)) and s.links_fit(other, here, other_share)
            ):
                places.append((here, placer.cost_on(other, other_weights, here)))
            for target, target_cost in places:
                total = gain + other_now - target_cost - margin
                if total > max(best, 1e-9 * now):
                    best, choice = total, (node, other, target)
    if choice is None:
        return False
    node, other, target = choice
    s.detach(pair)
    s.detach(other)
    s.attach(other, target)
    s.attach(pair, node)
    return True


def check_problem(state: LiveState) -> None:
    """Refuse an event whose result is not a valid problem.

    Raises:
        ProblemError: when no pair is left, or a joined stream has no source.
        NoRoomError: when a sink's capacity is below the rate that arrives.
    """
    if state.alive_pairs[0] == 0:
        raise ProblemError("the event would leave no pair to join")
    for stream in state.emptied:
        raise ProblemError(
            f"the event would leave stream {stream!r}, which an operator joins, without a source"
        )
    for sink in state.sinks_changed:
        arrives, fits = state.arriving.get(sink, 0.0), state.nodes.capacity.item(sink)
        if arrives > fits * (1 + TOLERANCE):
            raise NoRoomError(
                f"sink {state.nodes.ids[sink]}: cannot take the output, {arrives:g} tuples/s "
                f"arrive and {fits:g} fit",
                arrives - fits,
            )


Handler = Callable[[Placer, Any, bool], None]

HANDLERS: dict[type, Handler] = {
    AddWorker: add_worker,
    RemoveWorker: remove_worker,
    FailNode: fail_node,
    ChangeCapacity: change_capacity,
    MoveNode: move_node,
    ChangeLink: change_link,
    AddSource: add_source,
    RemoveSource: remove_source,
    AddPair: add_pair,
    RemovePair: remove_pair,
    AddOperator: add_operator,
    RemoveOperator: remove_operator,
    ChangeRate: change_rate,
    MoveSink: move_sink,
    Pin: pin,
    Rebalance: rebalance,
}
