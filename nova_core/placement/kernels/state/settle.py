"""Placing whole operators, or moving those that gain by it, one after the other in one call.

Operator by operator, each step would wait for memory that the one before has told the place of. So
what the steps of several need is read ahead for all at once, as no branch depends on it. The
readers return sums of no meaning, so that the compiler does not leave the reading out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nova_core.borrowing import borrowing, inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.residents import AFTER, BEFORE
from nova_core.placement.kernels.rules import distance, fits, needed
from nova_core.placement.kernels.state.changed import keep
from nova_core.placement.kernels.state.host_tree import (
    FREE,
    LEAF,
    NONE,
    HostTree,
    Search,
    nearest,
    same_place,
    search_for,
)
from nova_core.placement.kernels.state.hosts import (
    host_cost,
    ideal,
    move_operator,
    recompute_points,
)
from nova_core.placement.kernels.state.tables import (
    HOST,
    LEFT,
    LEG,
    LEGS,
    RIGHT,
    Legs,
    Limits,
    Loads,
    Operators,
    Places,
    Tables,
)
from nova_core.placement.kernels.tuning import AHEAD, LEVELS_AHEAD

# In place of a slot: one that is to be looked for when its join's turn comes; a join that stays.
_LATER, _STAYS = -2, -3


class _Group(NamedTuple):
    """Work space for joins that are settled together.

    Attributes:
        slot: where each may go, as looked for before any of them moves.
        distance: of that slot and the virtual position, with the access cost, ms.
        need: tuples/s a host must have free.
        most: what a join may cost elsewhere, to move.
        host: where joins run, or may go, to be read ahead.
        left: hosts that joins have left, and may go to.
        search: for the nearest host.
    """

    slot: Ints
    distance: Floats
    need: Floats
    most: Floats
    host: Ints
    left: Ints
    search: Search


@njit(cache=True, nogil=True)
def settle(
    tables: Tables, some: Ints, recompute: bool, leave: bool, limits: Floats, result: Floats
) -> int:
    """Place whole operators, one after the other; move those that have a place if it gains enough.

    Each goes to the nearest host with room. Those of up to `AHEAD` operators are looked for before
    any of them moves, and what moving needs is read for all at once; where an earlier one has taken
    the room, or left a nearer host, it is looked for again.

    Args:
        tables: all of them; changed, see `changed.keep`, which is done for all.
        some: (k,) those to settle; none is linked with another operator.
        recompute: whether to recompute virtual positions first.
        leave: whether operators must leave the hosts they have, which are none any more.
        limits: (5,) see `Limits`.
        result: (k, 4) filled with the old and the new host of each, and with what was free on them
            before, tuples/s.

    Returns:
        How many were settled: all, or those before the first that needs a place and finds none.
    """
    tree, places, loads = tables.tree, tables.places, tables.loads
    operators, legs, kept = tables.operators, tables.legs, tables.kept
    points = operators.point
    keep(operators.row, points, kept.row, kept.point, kept.counts, some)
    if recompute:
        recompute_points(tables, some)
    group = _work_space(min(len(some), AHEAD), points.shape[1])
    bounds = Limits(limits[0], limits[1], limits[2], limits[3], limits[4])
    begin = 0
    while begin < len(some):
        next_ones = some[begin : begin + AHEAD]
        rest, several = result[begin : begin + AHEAD], len(next_ones) > 1
        if several:
            # Written somewhere, so that the compiler does not leave the reading out.
            rest[0, 2] = _read_operators(places.extra, operators, legs, next_ones, group.host)
            if operators.row[next_ones[0], HOST] != NONE:
                hosts = group.host[: len(next_ones)]
                rest[0, 3] = _read_hosts(tree, places, loads, operators.chain, hosts)
        end, guesses = _look_ahead(tree, places, operators, legs, next_ones, leave, bounds, group)
        if several and guesses:
            hosts = group.host[:guesses]
            rest[0, 3] += _read_hosts(tree, places, loads, operators.chain, hosts)
        settled = _move_each(
            tree, places, loads, operators, legs, next_ones[:end], leave, group, rest
        )
        begin += settled
        if settled < end:
            return begin
    return len(some)


@njit(cache=True, nogil=True)
def _work_space(count: int, d: int) -> _Group:
    return _Group(
        np.empty(count, np.int64),
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
    operators: Operators,
    legs: Legs,
    some: Ints,
    leave: bool,
    limits: Limits,
    group: _Group,
) -> tuple[int, int]:
    """Look for a host for each operator before any of them moves.

    Returns:
        How many are to be moved, fewer than all if one needs a place and finds none; and how many
        hosts they may go to, listed in ``group.host``.
    """
    slot, hosts, search, row = group.slot, group.host, group.search, operators.row
    points, most, needs = operators.point, group.most, group.need
    guesses, last = 0, NONE
    for k in range(len(some)):
        one = some[k]
        old = NONE if leave else row[one, HOST]
        size = operators.rate[one, LEFT] + operators.rate[one, RIGHT]
        slot[k] = _STAYS
        needs[k] = needed(size, limits.minimum, limits.enough)
        if not fits(math.inf, size, needs[k], limits.largest):
            if old == NONE:
                # The last one that the caller hears of.
                return k + 1, guesses
            continue
        most[k] = math.inf
        if old != NONE:
            begin = row[one, LEG]
            now = host_cost(places, operators, legs, one, legs.weight, begin, old)
            most[k] = now - max(limits.gain + limits.gain_share * now, 1e-9 * now)
            # No host is cheaper than the virtual position itself.
            if ideal(places, operators, legs, one) >= most[k]:
                continue
        slot[k], group.distance[k] = NONE, math.inf
        if last != NONE and same_place(points, last, points[one]):
            # The one before it is about to take the room there.
            slot[k] = _LATER
            continue
        last = one
        if nearest(tree, points[one], needs[k], 0, search):
            slot[k], group.distance[k] = search.slot[0], search.distance[0]
            hosts[guesses] = tree.node[0, slot[k]]
            guesses += 1
        elif old == NONE:
            # The last one, unless those before it leave it a host.
            return k + 1, guesses
    return len(some), guesses


@inlined
def _move_each(
    tree: HostTree,
    places: Places,
    loads: Loads,
    operators: Operators,
    legs: Legs,
    some: Ints,
    leave: bool,
    group: _Group,
    result: Floats,
) -> int:
    """Move each to the host that was found, or is now; how many before one without a place."""
    slot, search, left = group.slot, group.search, 0
    row, points, most = operators.row, operators.point, group.most
    for k in range(len(some)):
        one, need = some[k], group.need[k]
        old = row[one, HOST]
        waits = leave or old == NONE
        result[k, 0] = result[k, 1] = old
        if slot[k] == _STAYS:
            if waits:
                return k
            continue
        again = slot[k] == _LATER or (slot[k] != NONE and tree.row[0, slot[k], FREE] < need)
        for i in range(left):
            again |= _is_as_near(places, loads, group.left[i], points[one], need, group.distance[k])
        if again:
            slot[k] = search.slot[0] if nearest(tree, points[one], need, 0, search) else NONE
        new = tree.node[0, slot[k]] if slot[k] != NONE else NONE
        if new == NONE or (
            host_cost(places, operators, legs, one, legs.weight, row[one, LEG], new) >= most[k]
        ):
            if waits:
                return k
            continue
        result[k, 1] = new
        result[k, 2], result[k, 3] = move_operator(tree, loads, operators, legs, one, new)
        # A host that all must leave takes none of them.
        if old != NONE and not leave:
            group.left[left] = old
            left += 1
    return len(some)


@borrowing
def _is_as_near(
    places: Places, loads: Loads, host: int, point: Floats, need: float, near: float
) -> bool:
    """Whether a node has room and is, as far as rounding tells, as near to a point as another."""
    if loads.free[host] < need:
        return False
    away = distance(places.position[host], point) + places.extra[host, 0] + places.extra[host, 1]
    return away <= near * (1 + 1e-9)


@inlined
def _read_operators(
    extra: Floats, operators: Operators, legs: Legs, some: Ints, hosts: Ints
) -> float:
    """Read what settling needs of operators; ``hosts`` becomes where they run, 0 for none."""
    total, row, chain = 0.0, operators.row, operators.chain
    for k in range(len(some)):
        one = some[k]
        hosts[k] = max(row[one, HOST], 0)
        begin = row[one, LEG]
        total += operators.rate[one, LEFT] + legs.weight[begin] + legs.end[begin]
    for one in some:
        begin = row[one, LEG]
        for i in range(begin, begin + row[one, LEGS]):
            total += extra[legs.end[i], 0]
        total += chain[max(chain[one, BEFORE], 0), 0] + chain[max(chain[one, AFTER], 0), 0]
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
