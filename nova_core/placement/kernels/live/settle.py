"""Placing whole joins, or moving those that gain by it, one after the other in one call.

Join by join, each step would wait for memory that the one before has told the place of. So what the
steps of several joins need is read ahead for all at once, as no branch depends on it; the readers
return sums of no meaning, so that the compiler does not leave the reading out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nova_core.borrowing import borrowing, inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live.changed import keep
from nova_core.placement.kernels.live.host_tree import (
    FREE,
    LEAF,
    NONE,
    HostTree,
    Search,
    nearest,
    same_place,
    search_for,
)
from nova_core.placement.kernels.live.hosts import host_cost, ideal, move_join, recompute_points
from nova_core.placement.kernels.live.tables import (
    HOST,
    LEFT,
    LEFT_NODE,
    RIGHT,
    Joins,
    Loads,
    Places,
)
from nova_core.placement.kernels.residents import AFTER, BEFORE
from nova_core.placement.kernels.tuning import AHEAD, LEVELS_AHEAD

# In place of a slot: one that is to be looked for when its join's turn comes; a join that stays.
_LATER, _STAYS = -2, -3


class Limits(NamedTuple):
    """When joins move, and where they fit.

    Attributes:
        gain: least gain of a move, in the objective's unit.
        gain_share: least gain as a share of what a join costs now.
        minimum: least room a host must have, tuples/s.
        largest: largest join that may be whole, tuples/s.
        enough: share of a need that counts as room for all of it.
    """

    gain: float
    gain_share: float
    minimum: float
    largest: float
    enough: float


class _Group(NamedTuple):
    """Work space for joins that are settled together.

    Attributes:
        slot: where each may go, as looked for before any of them moves.
        distance: of that slot and the virtual position, with the access cost, ms.
        size: what joins take of a host, tuples/s.
        need: tuples/s a host must have free.
        most: what a join may cost elsewhere, to move.
        host: where joins run, or may go, to be read ahead.
        left: hosts that joins have left, and may go to.
        search: for the nearest host.
    """

    slot: Ints
    distance: Floats
    size: Floats
    need: Floats
    most: Floats
    host: Ints
    left: Ints
    search: Search


@njit(cache=True, nogil=True)
def settle(
    row: Floats,
    node: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    used: Ints,
    hub: Floats,
    offer: Ints,
    position: Floats,
    extra: Floats,
    capacity: Floats,
    free: Floats,
    first: Ints,
    pieces: Ints,
    table: Ints,
    chain: Ints,
    points: Floats,
    kept: Ints,
    old_points: Floats,
    counts: Ints,
    rate: Floats,
    pairs: Ints,
    weights: Floats,
    recompute: bool,
    leave: bool,
    limits: Floats,
    result: Floats,
) -> int:
    """Place whole joins, one after the other; move those that have a place if that gains enough.

    Each goes to the nearest host with room. Those of up to `AHEAD` joins are looked for before any
    of them moves, and what moving needs is read for all at once; where an earlier join has taken
    the room, or left a nearer host, it is looked for again.

    Args:
        row: of a `HostTree`, as the next eight; free capacities are changed.
        node: its hosts.
        slot: their slots.
        box: its boxes.
        link: its links.
        parent: its parents.
        used: what is in use.
        hub: its hubs.
        offer: what nodes offer.
        position: of `Places`, as the next.
        extra: heights and penalties.
        capacity: of `Loads`, as the next three; changed.
        free: what is left.
        first: first residents.
        pieces: residents in pieces.
        table: of `Joins`, as the next; changed.
        chain: neighbours.
        points: (p, d) virtual positions, ms; changed if they are recomputed.
        kept: of `Kept`, as the next two; see `changed.keep`, which is done for all.
        old_points: virtual positions before.
        counts: changed.
        rate: rates of sources, tuples/s.
        pairs: (k,) those to settle.
        weights: (1, 3) of their legs.
        recompute: whether to recompute virtual positions first.
        leave: whether joins must leave the hosts they have, which are none any more.
        limits: (5,) see `Limits`.
        result: (k, 4) filled with the old and the new host of each, and with what was free on them
            before, tuples/s.

    Returns:
        How many were settled: all, or those before the first that needs a place and finds none.
    """
    keep(table, points, kept, old_points, counts, pairs)
    if recompute:
        recompute_points(position, table, points, pairs, weights)
    group = _work_space(min(len(pairs), AHEAD), position.shape[1])
    tree = HostTree(row, node, slot, box, link, parent, used, hub, offer)
    places, loads = Places(position, extra), Loads(capacity, free, first, pieces)
    joins = Joins(table, chain)
    bounds = Limits(limits[0], limits[1], limits[2], limits[3], limits[4])
    weight, begin = weights[0], 0
    while begin < len(pairs):
        some = pairs[begin : begin + AHEAD]
        rest, several = result[begin : begin + AHEAD], len(some) > 1
        if several:
            # Written somewhere, so that the compiler does not leave the reading out.
            rest[0, 2] = _read_joins(extra, joins, rate, some, group.host)
            if table[some[0], HOST] != NONE:
                rest[0, 3] = _read_hosts(tree, places, loads, chain, group.host[: len(some)])
        end, guesses = _look_ahead(
            tree, places, joins, points, rate, some, weight, leave, bounds, group
        )
        if several and guesses:
            rest[0, 3] += _read_hosts(tree, places, loads, chain, group.host[:guesses])
        settled = _move_each(
            tree, places, loads, joins, points, some[:end], weight, leave, group, rest
        )
        begin += settled
        if settled < end:
            return begin
    return len(pairs)


@njit(cache=True, nogil=True)
def _work_space(count: int, d: int) -> _Group:
    return _Group(
        np.empty(count, np.int64),
        np.empty(count),
        np.empty(count),
        np.empty(count),
        np.empty(count),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        search_for(1, d),
    )


@inlined
def _look_ahead(
    tree: HostTree,
    places: Places,
    joins: Joins,
    points: Floats,
    rate: Floats,
    pairs: Ints,
    weight: Floats,
    leave: bool,
    limits: Limits,
    group: _Group,
) -> tuple[int, int]:
    """Look for a host for each join before any of them moves.

    Returns:
        How many joins are to be moved, fewer than all if one needs a place and finds none; and how
        many hosts they may go to, listed in ``group.host``.
    """
    slot, hosts, search, table = group.slot, group.host, group.search, joins.row
    position, extra, most, needs = places.position, places.extra, group.most, group.need
    guesses, last = 0, NONE
    for k in range(len(pairs)):
        pair = pairs[k]
        old = NONE if leave else table[pair, HOST]
        size = group.size[k] = rate[table[pair, LEFT]] + rate[table[pair, RIGHT]]
        slot[k] = _STAYS
        if size > limits.largest:
            if old == NONE:
                # The last one that the caller hears of.
                return k + 1, guesses
            continue
        most[k] = math.inf
        if old != NONE:
            now = host_cost(position, extra, table, pair, weight, old)
            most[k] = now - max(limits.gain + limits.gain_share * now, 1e-9 * now)
            # No host is cheaper than the virtual position itself.
            if ideal(position, table, pair, points[pair], weight) >= most[k]:
                continue
        needs[k] = max(size, limits.minimum) * limits.enough
        slot[k], group.distance[k] = NONE, math.inf
        if last != NONE and same_place(points, last, points[pair]):
            # The join before it is about to take the room there.
            slot[k] = _LATER
            continue
        last = pair
        if nearest(tree, points[pair], needs[k], 0, search):
            slot[k], group.distance[k] = search.slot[0], search.distance[0]
            hosts[guesses] = tree.node[0, slot[k]]
            guesses += 1
        elif old == NONE:
            # The last one, unless those before it leave it a host.
            return k + 1, guesses
    return len(pairs), guesses


@inlined
def _move_each(
    tree: HostTree,
    places: Places,
    loads: Loads,
    joins: Joins,
    points: Floats,
    pairs: Ints,
    weight: Floats,
    leave: bool,
    group: _Group,
    result: Floats,
) -> int:
    """Move each join to the host that was found, or is now; how many before one without a place."""
    slot, search, left = group.slot, group.search, 0
    position, extra, table, most = places.position, places.extra, joins.row, group.most
    for k in range(len(pairs)):
        pair, need = pairs[k], group.need[k]
        old = table[pair, HOST]
        waits = leave or old == NONE
        result[k, 0] = result[k, 1] = old
        if slot[k] == _STAYS:
            if waits:
                return k
            continue
        again = slot[k] == _LATER or (slot[k] != NONE and tree.row[0, slot[k], FREE] < need)
        for i in range(left):
            again |= _is_as_near(
                places, loads, group.left[i], points[pair], need, group.distance[k]
            )
        if again:
            slot[k] = search.slot[0] if nearest(tree, points[pair], need, 0, search) else NONE
        new = tree.node[0, slot[k]] if slot[k] != NONE else NONE
        if new == NONE or (host_cost(position, extra, table, pair, weight, new) >= most[k]):
            if waits:
                return k
            continue
        result[k, 1] = new
        result[k, 2], result[k, 3] = move_join(tree, loads, joins, pair, group.size[k], new)
        # A host that all must leave takes none of them.
        if old != NONE and not leave:
            group.left[left] = old
            left += 1
    return len(pairs)


@borrowing
def _is_as_near(
    places: Places, loads: Loads, host: int, point: Floats, need: float, near: float
) -> bool:
    """Whether a node has room and is, as far as rounding tells, as near to a point as another."""
    if loads.free[host] < need:
        return False
    square = 0.0
    for k in range(len(point)):
        away = places.position[host, k] - point[k]
        square += away * away
    distance = math.sqrt(square) + places.extra[host, 0] + places.extra[host, 1]
    return distance <= near * (1 + 1e-9)


@inlined
def _read_joins(extra: Floats, joins: Joins, rate: Floats, pairs: Ints, hosts: Ints) -> float:
    """Read what settling needs of joins; ``hosts`` is filled with where they run, 0 for none."""
    total, table, chain = 0.0, joins.row, joins.chain
    for k in range(len(pairs)):
        pair = pairs[k]
        hosts[k] = max(table[pair, HOST], 0)
        total += rate[table[pair, LEFT]] + rate[table[pair, RIGHT]]
        for i in range(3):
            total += extra[table[pair, LEFT_NODE + i], 0]
    for pair in pairs:
        total += chain[max(chain[pair, BEFORE], 0), 0] + chain[max(chain[pair, AFTER], 0), 0]
    return total


@njit(cache=True, nogil=True)
def _read_hosts(tree: HostTree, places: Places, loads: Loads, chain: Ints, hosts: Ints) -> float:
    """Read what `move_join` will need of hosts."""
    rows, slot, box, parent = tree.row, tree.slot, tree.box, tree.parent
    position, extra, first = places.position, places.extra, loads.first
    trees, count, room = len(rows), len(hosts), 2 * position.shape[1]
    at = np.empty((trees, count), np.int64)
    total = 0.0
    for k in range(count):
        host = hosts[k]
        total += extra[host, 0] + position[host, 0] + loads.free[host] + loads.capacity[host]
        total += first[host]
        for h in range(trees):
            at[h, k] = max(slot[h, host], 0)
    for k in range(count):
        total += chain[max(first[hosts[k]], 0), 0]
    for h in range(trees):
        for k in range(count):
            total += rows[h, at[h, k], FREE]
            at[h, k] = parent[h, box.shape[1] + at[h, k] // LEAF]
    for _ in range(LEVELS_AHEAD):
        for h in range(trees):
            for k in range(count):
                t = at[h, k]
                # Siblings are 1 and 2, 3 and 4, and so on.
                total += box[h, t, room] + box[h, max((t - 1 ^ 1) + 1, 0), room]
                at[h, k] = max(parent[h, t], 0)
    return total
