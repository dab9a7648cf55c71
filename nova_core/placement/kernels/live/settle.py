"""Placing whole joins, or moving those that gain by it, one after the other in one call."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live.columns import HOST, LEFT, RIGHT
from nova_core.placement.kernels.live.hosts import (
    SEARCH_STACK,
    host_cost,
    ideal,
    move,
    nearest,
    renew,
)
from nova_core.placement.kernels.live.look_ahead import AHEAD, read_hosts, read_joins
from nova_core.placement.kernels.live.touched import touch_all
from nova_core.placement.kernels.live.tree import NONE, same_place, tree_at

# A host that is to be looked for when its join's turn comes.
_LATER = -2


@njit(cache=True, nogil=True)
def settle(
    rows: Floats,
    nodes: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    owner: Ints,
    hub: Floats,
    position: Floats,
    extra: Floats,
    capacity: Floats,
    free: Floats,
    hosted: Ints,
    chain: Ints,
    table: Ints,
    points: Floats,
    kept: Ints,
    old_points: Floats,
    count: Ints,
    rate: Floats,
    pairs: Ints,
    weights: Floats,
    anew: bool,
    limits: Floats,
    said: Floats,
) -> int:
    """Place whole joins, one after the other; move those that have a place if that gains enough.

    Each goes to the nearest host with room. Those of up to `AHEAD` joins are looked for before any
    of them moves, and what moving needs is read for all at once; where an earlier join has taken
    the room, or left a nearer host, it is looked for again.

    Args:
        rows: of a `Forest`, as the next seven.
        nodes: its hosts.
        slot: its slots.
        box: its boxes.
        link: its links.
        parent: its parents.
        owner: its owners.
        hub: its hubs.
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        capacity: (n,) tuples/s.
        free: (n,) what is left of it; changed, as in the forest.
        hosted: (n, 2) see `residents`; changed.
        chain: (p, 2) see `residents`; changed.
        table: (p, 8) columns of pairs; hosts are changed.
        points: (p, d) virtual positions, ms; changed if they are to be worked out.
        kept: see `touched.touch`, which is done for all, as the next two.
        old_points: virtual positions before.
        count: changed.
        rate: rates of sources, tuples/s.
        pairs: (k,) those to settle.
        weights: (1, 3) of their legs.
        anew: whether to work out virtual positions anew.
        limits: least gain, and least gain as a share of what a join costs now; least room a host
            must have and largest join that may be whole, tuples/s; share of a need that counts as
            room for all of it.
        said: (k, 4) filled with the old and the new host of each, and with what was free on them
            before, tuples/s.

    Returns:
        How many were settled: all, or those before the first that has no place and finds none.
    """
    node, key = np.empty(1, np.int64), np.empty(1)
    stack, bound = np.empty(SEARCH_STACK, np.int64), np.empty(SEARCH_STACK)
    ahead = min(len(pairs), AHEAD)
    most, need = np.empty(ahead), np.empty(ahead)
    tree, at, near = np.empty(ahead, np.int64), np.empty(ahead, np.int64), np.empty(ahead)
    hosts, left = np.empty(ahead, np.int64), np.empty(ahead, np.int64)
    touch_all(table, points, kept, old_points, count, pairs)
    if anew:
        renew(position, table, points, pairs, weights)
    weight, origin = weights[0], np.zeros(position.shape[1])
    room = position.shape[1] + 1
    begin = end = 0
    while begin < len(pairs):
        group = pairs[begin : begin + AHEAD]
        several = len(group) > 1
        if several:
            # Written somewhere, lest the compiler leave the reading out.
            said[begin, 2] = read_joins(extra, chain, table, rate, group, hosts)
            if table[group[0], HOST] != NONE:
                said[begin, 3] = read_hosts(
                    rows, slot, box, parent, owner, position, extra, capacity, free, hosted, chain,
                    hosts[: len(group)],
                )  # fmt: skip
        guesses = 0
        last, end = NONE, len(group)
        for k in range(len(group)):
            pair = group[k]
            old = table[pair, HOST]
            size = rate[table[pair, LEFT]] + rate[table[pair, RIGHT]]
            tree[k] = NONE
            if size > limits[3]:
                if old == NONE:
                    # The last one that the caller hears of.
                    end = k + 1
                    break
                continue
            most[k] = math.inf
            if old != NONE:
                now = host_cost(position, extra, table, pair, weight, old)
                most[k] = now - max(limits[0] + limits[1] * now, 1e-9 * now)
                # No host is cheaper than the virtual position itself.
                if ideal(position, table, pair, points[pair], weight) >= most[k]:
                    continue
            need[k] = max(size, limits[2]) * limits[4]
            h = tree[k] = tree_at(hub, points[pair])
            point = points[pair] if h == 0 else origin
            at[k], near[k] = NONE, math.inf
            if last != NONE and same_place(points, last, points[pair]):
                # The join before it is about to take the room there.
                at[k] = _LATER
                continue
            last = pair
            if nearest(rows[h], nodes[h], box[h], link[h], point, need[k], node, key, stack, bound):
                at[k], near[k] = node[0], key[0]
                hosts[guesses] = nodes[h, node[0]]
                guesses += 1
            elif old == NONE:
                # The last one, unless those before it leave it a host.
                end = k + 1
                break
        if several and guesses:
            said[begin, 3] += read_hosts(
                rows, slot, box, parent, owner, position, extra, capacity, free, hosted, chain,
                hosts[:guesses],
            )  # fmt: skip
        gone = 0
        for k in range(end):
            pair, h = group[k], tree[k]
            old = table[pair, HOST]
            said[begin + k, 0] = said[begin + k, 1] = old
            if h == NONE:
                if old == NONE:
                    return begin + k
                continue
            again = at[k] == _LATER or (at[k] != NONE and rows[h, at[k], room] < need[k])
            for i in range(gone):
                again |= _as_near(position, extra, free, left[i], points[pair], need[k], near[k])
            if again:
                point = points[pair] if h == 0 else origin
                at[k] = NONE
                if nearest(
                    rows[h], nodes[h], box[h], link[h], point, need[k], node, key, stack, bound
                ):  # fmt: skip
                    at[k] = node[0]
            new = nodes[h, at[k]] if at[k] != NONE else NONE
            if new == NONE or host_cost(position, extra, table, pair, weight, new) >= most[k]:
                if old == NONE:
                    return begin + k
                continue
            said[begin + k, 1] = new
            size = rate[table[pair, LEFT]] + rate[table[pair, RIGHT]]
            said[begin + k, 2], said[begin + k, 3] = move(
                rows, slot, box, link, parent, owner, capacity, free, hosted, chain, table, pair,
                size, new,
            )  # fmt: skip
            if old != NONE:
                left[gone] = old
                gone += 1
        begin += end
    return len(pairs)


@njit(cache=True, nogil=True)
def _as_near(
    position: Floats,
    extra: Floats,
    free: Floats,
    host: int,
    point: Floats,
    need: float,
    near: float,
) -> bool:
    """Whether a node has room and is, as far as rounding tells, as near to a point as another."""
    if free[host] < need:
        return False
    square = 0.0
    for k in range(len(point)):
        square += (position[host, k] - point[k]) ** 2
    distance = math.sqrt(square) + extra[host, 0] + extra[host, 1]
    return distance <= near * (1 + 1e-9)
