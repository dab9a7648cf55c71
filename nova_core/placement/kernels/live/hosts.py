"""Hosts near a virtual position that have room, what joins cost there, and moving them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import box_distance, flat_distance
from nova_core.placement.kernels.live.columns import HOST, LEFT_NODE
from nova_core.placement.kernels.live.residents import FIRST, PIECES, enter, leave
from nova_core.placement.kernels.live.tree import LEAF, NONE, set_free, tree_at
from nova_core.placement.kernels.median import fermat_points

# Tree nodes that wait in a search at most; the caller keeps trees far flatter.
SEARCH_STACK = 256
# Distances are compared by their squares; what may be near enough but for rounding is looked at.
_ROUNDING = 1 + 1e-12


@njit(cache=True, nogil=True)
def host_cost(
    position: Floats, extra: Floats, table: Ints, pair: int, weights: Floats, host: int
) -> float:
    """Objective of a piece of a join on a host, see `nova_core.placement.objectives.leg_cost`.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        table: (p, 8) columns of pairs.
        pair: row of ``table``.
        weights: (3,) of the legs.
        host: node index.
    """
    cost = 0.0
    for i in range(3):
        end = table[pair, LEFT_NODE + i]
        square = 0.0
        for k in range(position.shape[1]):
            square += (position[end, k] - position[host, k]) ** 2
        leg = math.sqrt(square) + extra[host, 1]
        if end != host:
            leg += extra[end, 0] + extra[host, 0]
        cost += weights[i] * leg
    return cost


@njit(cache=True, nogil=True)
def nearest(
    rows: Floats,
    nodes: Ints,
    box: Floats,
    link: Ints,
    point: Floats,
    need: float,
    found_in: Ints,
    key: Floats,
    stack: Ints,
    bound: Floats,
) -> int:
    """Slots of the nearest hosts with room, nearest first; of equal ones the smaller index.

    Args:
        rows: of a `LiveTree`.
        nodes: its hosts.
        box: its boxes.
        link: its links.
        point: (d,) a virtual position, ms.
        need: tuples/s a host must have free.
        found_in: (k,) filled with their slots.
        key: (k,) filled with their distance and rise, ms.
        stack: (`SEARCH_STACK`,) room to work in.
        bound: as ``stack``.

    Returns:
        How many were found, at most k.
    """
    d = len(point)
    rise, free, least, room, below = d, d + 1, 2 * d, 2 * d + 1, 2 * d + 2
    wanted = len(found_in)
    flat, x, y = d == 2, point[0], point[d - 1]
    found = 0
    if box[0, room] < need:
        return 0
    stack[0], bound[0] = 0, 0.0
    top = 1
    limit = reach = math.inf
    while top > 0:
        top -= 1
        t = stack[top]
        left = reach - box[t, least]
        if bound[top] > left * left or left < 0.0:
            continue
        if link[t, below] >= 0:
            near = link[t, below]
            far = near + 1
            near_square = far_square = math.inf
            if box[near, room] >= need:
                near_square = (
                    flat_distance(box, near, x, y) if flat else box_distance(box, near, point)
                )
            if box[far, room] >= need:
                far_square = (
                    flat_distance(box, far, x, y) if flat else box_distance(box, far, point)
                )
            if far_square < near_square:
                near, far = far, near
                near_square, far_square = far_square, near_square
            if far_square < math.inf:
                left = reach - box[far, least]
                if far_square <= left * left and left >= 0.0:
                    stack[top], bound[top] = far, far_square
                    top += 1
            if near_square < math.inf:
                stack[top], bound[top] = near, near_square
                top += 1
            continue
        first = (NONE - link[t, below]) * LEAF
        for slot in range(first, first + link[t, below + 1]):
            if rows[slot, free] < need:
                continue
            if flat:
                square = (rows[slot, 0] - x) ** 2 + (rows[slot, 1] - y) ** 2
            else:
                square = 0.0
                for k in range(d):
                    square += (rows[slot, k] - point[k]) ** 2
            left = reach - rows[slot, rise]
            if square > left * left or left < 0.0:
                continue
            distance = math.sqrt(square) + rows[slot, rise]
            if distance > limit:
                continue
            at = found if found < wanted else wanted - 1
            if found == wanted and distance == limit and nodes[slot] > nodes[found_in[at]]:
                continue
            while at > 0 and (
                key[at - 1] > distance
                or (key[at - 1] == distance and nodes[found_in[at - 1]] > nodes[slot])
            ):
                key[at], found_in[at] = key[at - 1], found_in[at - 1]
                at -= 1
            key[at], found_in[at] = distance, slot
            if found < wanted:
                found += 1
            if found == wanted:
                limit = key[wanted - 1]
                reach = limit * _ROUNDING
    return found


@njit(cache=True, nogil=True)
def cheapest(
    rows: Floats,
    nodes: Ints,
    box: Floats,
    link: Ints,
    hub: Floats,
    position: Floats,
    extra: Floats,
    table: Ints,
    points: Floats,
    pair: int,
    weights: Floats,
    need: float,
    node: Ints,
    cost: Floats,
    stack: Ints,
    bound: Floats,
) -> int:
    """Of the nearest hosts with room for a piece of a join the cheapest first; how many.

    Args:
        rows: of a `Forest`, as the next four.
        nodes: its hosts.
        box: its boxes.
        link: its links.
        hub: its hubs.
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        table: (p, 8) columns of pairs.
        points: (p, d) virtual positions, ms.
        pair: whose piece it is.
        weights: (3,) of the piece's legs.
        need: tuples/s a host must have free.
        node: (k,) filled with hosts.
        cost: (k,) filled with the objective on each.
        stack: (`SEARCH_STACK`,) room to work in.
        bound: as ``stack``.
    """
    d = position.shape[1]
    h = tree_at(hub, points[pair])
    point = points[pair] if h == 0 else np.zeros(d)
    found = nearest(rows[h], nodes[h], box[h], link[h], point, need, node, cost, stack, bound)
    tall = h > 0
    for i in range(found):
        tall |= rows[h, node[i], d] > 0.0
    for i in range(3):
        tall |= extra[table[pair, LEFT_NODE + i], 0] > 0.0
    for i in range(found):
        slot = node[i]
        host = nodes[h, slot]
        if tall:
            value = host_cost(position, extra, table, pair, weights, host)
        else:
            # The tree has what the search has just looked at.
            value = 0.0
            for leg in range(3):
                end = table[pair, LEFT_NODE + leg]
                square = 0.0
                for k in range(d):
                    square += (position[end, k] - rows[h, slot, k]) ** 2
                value += weights[leg] * math.sqrt(square)
        at = i
        while at > 0 and (cost[at - 1] > value or (cost[at - 1] == value and node[at - 1] > host)):
            cost[at], node[at] = cost[at - 1], node[at - 1]
            at -= 1
        cost[at], node[at] = value, host
    return found


@njit(cache=True, nogil=True)
def ideal(position: Floats, table: Ints, pair: int, point: Floats, weights: Floats) -> float:
    """Objective of a join at its virtual position, heights left out."""
    cost = 0.0
    for i in range(3):
        end = table[pair, LEFT_NODE + i]
        square = 0.0
        for k in range(len(point)):
            square += (position[end, k] - point[k]) ** 2
        cost += weights[i] * math.sqrt(square)
    return cost


@njit(cache=True, nogil=True)
def renew(position: Floats, table: Ints, points: Floats, pairs: Ints, weights: Floats) -> None:
    """Work out virtual positions anew.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        table: (p, 8) columns of pairs.
        points: (p, d) virtual positions, ms; changed.
        pairs: (k,) those to work out.
        weights: (k, 3) of their legs, or (1, 3) of all.
    """
    anchors, weight = np.empty((len(pairs), 3, position.shape[1])), np.empty((len(pairs), 3))
    for k in range(len(pairs)):
        weight[k] = weights[min(k, len(weights) - 1)]
        for i in range(3):
            anchors[k, i] = position[table[pairs[k], LEFT_NODE + i]]
    found = fermat_points(anchors, weight)
    for k in range(len(pairs)):
        points[pairs[k]] = found[k]


@njit(cache=True, nogil=True)
def move(
    rows: Floats,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    owner: Ints,
    capacity: Floats,
    free: Floats,
    hosted: Ints,
    chain: Ints,
    table: Ints,
    pair: int,
    size: float,
    new: int,
) -> tuple[float, float]:
    """Take a whole join off its host, if it has one, and put it on another, or nowhere.

    Args:
        rows: of a `Forest`, as the next five.
        slot: its slots.
        box: its boxes.
        link: its links.
        parent: its parents.
        owner: its owners.
        capacity: (n,) tuples/s.
        free: (n,) what is left of it; changed, as in the forest.
        hosted: (n, 2) see `residents`; changed.
        chain: (p, 2) see `residents`; changed.
        table: (p, 8) columns of pairs; the host is changed.
        pair: the join.
        size: what it takes of a host, tuples/s.
        new: the other host, or `NONE`.

    Returns:
        What was free on the old and on the new host, tuples/s; 0 for none.
    """
    old = table[pair, HOST]
    before_old = before_new = 0.0
    if old != NONE:
        before_old = free[old]
        leave(hosted, chain, old, pair)
        # An empty node has its capacity to the last bit: rounding does not add up for ever.
        empty = hosted[old, FIRST] == NONE and hosted[old, PIECES] == 0
        free[old] = capacity[old] if empty else before_old + size
        set_free(rows, slot, box, link, parent, owner, old, free[old])
    if new != NONE:
        before_new = free[new]
        enter(hosted, chain, new, pair)
        free[new] = before_new - size
        set_free(rows, slot, box, link, parent, owner, new, free[new])
    table[pair, HOST] = new
    return before_old, before_new


@njit(cache=True, nogil=True)
def losses(
    position: Floats,
    extra: Floats,
    table: Ints,
    points: Floats,
    weights: Floats,
    pair: Ints,
    host: Ints,
) -> Floats:
    """What each pair costs on its host beyond its virtual position, heights left out there.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        table: (p, 8) columns of pairs.
        points: (p, d) virtual positions, ms.
        weights: (k, 3) of the legs of each pair to look at.
        pair: (k,) those pairs.
        host: (k,) where they run.
    """
    result = np.empty(len(pair))
    for row in range(len(pair)):
        least = ideal(position, table, pair[row], points[pair[row]], weights[row])
        result[row] = host_cost(position, extra, table, pair[row], weights[row], host[row]) - least
    return result
