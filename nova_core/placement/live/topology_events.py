"""Nodes and links that come, go and change (paper, section 3.5, topology changes)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from msgspec import UNSET, UnsetType

from nova_core.errors import ProblemError
from nova_core.model.document import NodeRow
from nova_core.model.problem import Floats
from nova_core.model.syntax import unknown
from nova_core.placement.live.events import (
    AddWorker,
    ChangeCapacity,
    ChangeLink,
    FailNode,
    MoveNode,
    RemoveWorker,
    finite,
)
from nova_core.placement.live.hosting import Hosting, NoRoomError
from nova_core.placement.live.index import HostIndex
from nova_core.placement.live.state import TOLERANCE, Link, LiveState
from nova_core.placement.live.tables import NOBODY
from nova_core.placement.live.workload_events import drop_source


def node_of(state: LiveState, name: str) -> int:
    """Row of a node.

    Raises:
        ProblemError: when there is none of that name.
    """
    row = state.node_index.get(name)
    if row is None:
        raise ProblemError(unknown("node", name, state.node_index))
    return row


def _may_host(state: LiveState, node: int) -> bool:
    n = state.nodes
    capacity = n.capacity.item(node)
    hosts: bool = n.alive.item(node) and n.worker.item(node)
    return hosts and capacity > 0 and capacity >= state.c_min


def _enlist(state: LiveState, node: int) -> None:
    """Bring the indexes up to date with whether and for what a node may host, and where it is."""
    n = state.nodes
    row = None
    if _may_host(state, node):
        rise = n.extra.item(node, 0) + n.extra.item(node, 1)
        row = np.array([*n.position[node].tolist(), rise, n.free.item(node)])
    for number, index in enumerate(state.indexes):
        old = index.row_of(node)
        new = row if number == 0 or state.meets(node, number - 1) else None
        if old is new or (old is not None and new is not None and (old == new).all()):
            continue
        if old is not None:
            index.remove(node)
        if new is not None:
            index.insert(node, new)
        state.done(_relist, index, node, old)


def _relist(index: HostIndex, node: int, row: Floats | None) -> None:
    index.remove(node)
    if row is not None:
        index.insert(node, row)


def _position(state: LiveState, given: list[float], where: str) -> Floats:
    d = state.nodes.position.shape[1]
    if len(given) != d or not all(map(math.isfinite, given)):
        raise ProblemError(f"{where}: position {given}; {d} finite numbers of ms are needed")
    return np.array(given)


def add_worker(hosting: Hosting, event: AddWorker, overload: bool) -> None:
    """A node joins; nothing moves to it yet."""
    s, given = hosting.state, event.node
    n, where = s.nodes, f"add-worker {given.id!r}"
    if given.id in s.node_index:
        raise ProblemError(f"{where}: there is a node of that name")
    if given.position is UNSET:
        raise ProblemError(f"{where}: has no position; a node is placed in the cost space first")
    position = _position(s, given.position, where)
    row = n.used
    s.done(setattr, n, "used", row)
    n.used = row + 1
    for column, value in ((n.ids, given.id), (n.tags, _labels(given)), (n.host, _address(given))):
        column.append(value)
        s.done(column.pop)
    n.position[row] = position
    n.extra[row] = [_or_zero(given.height), _or_zero(given.penalty)]
    n.capacity[row] = n.free[row] = finite(given.capacity, where)
    n.worker[row] = True if given.worker is UNSET else given.worker
    n.memory[row], n.cost[row] = _or_nan(given.memory), _or_nan(given.cost)
    n.alive[row], n.hosted[row] = True, NOBODY
    s.put(s.node_index, given.id, row)
    _enlist(s, row)


def _labels(given: NodeRow) -> str:
    return "" if given.tags is UNSET else ",".join(given.tags)


def _address(given: NodeRow) -> str:
    return "" if given.host is UNSET or given.host is None else given.host


def _or_zero(value: float | UnsetType) -> float:
    return 0.0 if value is UNSET else value


def _or_nan(value: float | UnsetType | None) -> float:
    return math.nan if value is UNSET or value is None else value


def _retire(hosting: Hosting, node: int, overload: bool) -> None:
    """Take a node without sources and sinks out; what it hosts is placed elsewhere."""
    s, n = hosting.state, hosting.state.nodes
    s.set(n.alive, node, False)
    s.drop(s.node_index, n.ids[node])
    _enlist(s, node)
    for link in list(s.links_at.get(node, ())):
        s.drop(s.budget, link)
        s.drop(s.link_free, link)
        s.drop(s.overfull, link)
        other = link[0] if link[1] == node else link[1]
        s.drop(s.links_at[other], link)
        s.drop(s.links_at[node], link)
    residents = sorted(s.residents.of(node), key=lambda pair: (-s.size(pair), pair))
    for pair in residents:
        s.detach(pair)
    s.drop(s.overloaded, node)
    hosting.place_all(residents, overload)


def remove_worker(hosting: Hosting, event: RemoveWorker, overload: bool) -> None:
    """A node without sources and sinks leaves."""
    s = hosting.state
    node = node_of(s, event.node)
    sources = [s.sources.ids[row] for row in s.sources_on.of(node)]
    if sources:
        raise ProblemError(
            f"remove-worker: {event.node!r} produces {_some(sources)}; remove the sources first, "
            "or report its failure with fail-node"
        )
    _refuse_sink(s, node, "remove-worker")
    _retire(hosting, node, overload)


def fail_node(hosting: Hosting, event: FailNode, overload: bool) -> None:
    """A node is gone, and its sources with it."""
    s = hosting.state
    node = node_of(s, event.node)
    _refuse_sink(s, node, "fail-node")
    for source in sorted(s.sources_on.of(node)):
        drop_source(hosting, source)
    _retire(hosting, node, overload)


def _refuse_sink(state: LiveState, node: int, event: str) -> None:
    sinks = [state.join_ids[join] for join in state.sinks_on.of(node)]
    if sinks:
        raise ProblemError(
            f"{event}: {state.nodes.ids[node]!r} is the sink of {_some(sinks)}; move the sink first"
            " (move-sink, also in the same batch)"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def change_capacity(hosting: Hosting, event: ChangeCapacity, overload: bool) -> None:
    """A node can receive more or fewer tuples; what no longer fits moves, as little as will do."""
    s, n = hosting.state, hosting.state.nodes
    node = node_of(s, event.node)
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
    _enlist(s, node)
    if s.residents.any_on(node) and not _may_host(s, node):
        evict(hosting, s.residents.of(node), overload, node)
    relieve(hosting, node, overload)


def evict(hosting: Hosting, pairs: Iterable[int], overload: bool, node: int) -> None:
    """Place pairs elsewhere that a node may no longer host."""
    s = hosting.state
    leaving = sorted(pairs, key=lambda pair: (-s.size(pair), pair))
    for pair in leaving:
        _refuse_pinned(hosting, pair, node)
        s.detach(pair)
    hosting.place_all(leaving, overload)


def _refuse_pinned(hosting: Hosting, pair: int, node: int) -> None:
    if hosting.is_pinned(pair):
        s = hosting.state
        raise NoRoomError(
            f"{s.pair_name(pair)}: pinned to {s.nodes.ids[node]}, which can no longer run it",
            s.size(pair),
        )


def relieve(hosting: Hosting, node: int, overload: bool) -> None:
    """Move residents away until a node is not overloaded: the smallest that suffices, if any."""
    s, n = hosting.state, hosting.state.nodes
    while n.free[node] < -TOLERANCE * n.capacity[node]:
        residents = hosting.movable(node)
        over = -float(n.free[node])
        if not residents:
            if overload:
                return
            raise NoRoomError(
                f"{n.ids[node]}: only pinned joins are left on it, beyond its capacity", over
            )
        enough = [p for p in residents if s.shares(p)[node].size >= over * (1 - TOLERANCE)]
        pair = enough[-1] if enough else residents[0]
        placed = s.detach(pair)
        try:
            hosting.place(pair, False)
        except NoRoomError:
            if not overload:
                raise
            assert placed is not None
            s.attach(pair, placed)
            return


def move_node(hosting: Hosting, event: MoveNode, overload: bool) -> None:
    """A node's place in the cost space changes; joins move if that gains enough."""
    s, n = hosting.state, hosting.state.nodes
    node = node_of(s, event.node)
    s.set(n.position, node, _position(s, event.position, f"move-node {event.node!r}"))
    if event.height is not UNSET:
        s.set(n.extra, node, np.array([event.height, n.extra[node, 1]]))
    s.put(s.strayed, node, None)
    _enlist(s, node)
    concerned = {pair for source in s.sources_on.of(node) for pair in s.pairs_of_source.of(source)}
    for join in s.sinks_on.of(node):
        concerned.update(s.pairs_of_join.of(join))
    s.renew_points(sorted(concerned))
    hosting.improve_all(sorted(concerned.union(s.residents.of(node))))


def change_link(hosting: Hosting, event: ChangeLink, overload: bool) -> None:
    """A link's budget changes; joins leave it until the rest fits."""
    s = hosting.state
    link = node_of(s, event.source_node), node_of(s, event.target_node)
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
    _relieve_link(hosting, link, used, overload)


def _users(state: LiveState, link: Link) -> list[int]:
    """Pairs that send over a link."""
    source, target, ends = *link, state.pairs.ends
    found = {p for p in state.residents.of(target) if source in ends[p, :2].tolist()}
    found |= {p for p in state.residents.of(source) if ends[p, 2] == target}
    return sorted(found)


def _use_of(state: LiveState, pair: int, link: Link) -> float:
    return math.fsum(
        rate
        for node, share in state.shares(pair).items()
        for used, rate in state.legs(pair, node, share)
        if used == link
    )


def _relieve_link(hosting: Hosting, link: Link, used: dict[int, float], overload: bool) -> None:
    s = hosting.state
    while link in s.overfull:
        over = -s.link_free[link]
        movable = [pair for pair in used if not hosting.is_pinned(pair)]
        if not movable:
            if overload:
                return
            name = "->".join(s.nodes.ids[node] for node in link)
            raise NoRoomError(f"link {name}: only pinned joins use it, beyond its budget", over)
        enough = [pair for pair in movable if used[pair] >= over * (1 - TOLERANCE)]
        pair = min(enough, key=used.__getitem__) if enough else max(movable, key=used.__getitem__)
        del used[pair]
        placed = s.detach(pair)
        try:
            hosting.place(pair, False)
        except NoRoomError:
            if not overload:
                raise
            assert placed is not None
            s.attach(pair, placed)
            return
