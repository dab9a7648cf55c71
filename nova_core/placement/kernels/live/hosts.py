"""Searching the live tree: the hosts nearest a virtual position that have room, and their cost."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live.tree import LEAF, NONE, set_free

# Levels a search can go down; the caller keeps trees far flatter.
_LEVELS = 256


@njit(cache=True, nogil=True)
def host_cost(
    position: Floats, extra: Floats, ends: Ints, pair: int, weights: Floats, host: int
) -> float:
    """Objective of a piece of a join on a host, see `nova_core.placement.objectives.leg_cost`.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        ends: (p, 3) nodes of the left source, the right source and the sink of each pair.
        pair: row of ``ends``.
        weights: (3,) of the legs.
        host: node index.
    """
    cost = 0.0
    for i in range(3):
        end = ends[pair, i]
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

    Returns:
        How many were found, at most k.
    """
    d = len(point)
    rise, free, least, room, below = d, d + 1, 2 * d, 2 * d + 1, 2 * d + 2
    wanted = len(found_in)
    stack, bound = np.empty(_LEVELS, np.int64), np.empty(_LEVELS)
    found = 0
    if box[0, room] < need:
        return 0
    stack[0], bound[0] = 0, 0.0
    top = 1
    limit = math.inf
    while top > 0:
        top -= 1
        t = stack[top]
        if bound[top] > limit:
            continue
        if link[t, below] >= 0:
            near = link[t, below]
            far = near + 1
            near_bound = far_bound = math.inf
            if box[near, room] >= need:
                square = 0.0
                for k in range(d):
                    gap = max(box[near, k] - point[k], point[k] - box[near, d + k], 0.0)
                    square += gap * gap
                near_bound = math.sqrt(square) + box[near, least]
            if box[far, room] >= need:
                square = 0.0
                for k in range(d):
                    gap = max(box[far, k] - point[k], point[k] - box[far, d + k], 0.0)
                    square += gap * gap
                far_bound = math.sqrt(square) + box[far, least]
            if far_bound < near_bound:
                near, far = far, near
                near_bound, far_bound = far_bound, near_bound
            if far_bound < math.inf and far_bound <= limit:
                stack[top], bound[top] = far, far_bound
                top += 1
            if near_bound < math.inf and near_bound <= limit:
                stack[top], bound[top] = near, near_bound
                top += 1
            continue
        first = (NONE - link[t, below]) * LEAF
        for slot in range(first, first + link[t, below + 1]):
            if rows[slot, free] < need:
                continue
            square = 0.0
            for k in range(d):
                square += (rows[slot, k] - point[k]) ** 2
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
    return found


@njit(cache=True, nogil=True)
def cheapest(
    rows: Floats,
    nodes: Ints,
    box: Floats,
    link: Ints,
    position: Floats,
    extra: Floats,
    ends: Ints,
    points: Floats,
    pair: int,
    weights: Floats,
    need: float,
    node: Ints,
    cost: Floats,
) -> int:
    """Of the nearest hosts with room for a piece of a join the cheapest first; how many.

    Args:
        rows: of a `LiveTree` of hosts by place, or by distance if the virtual position is a hub.
        nodes: its hosts.
        box: its boxes.
        link: its links.
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        ends: (p, 3) nodes of the sources and the sink of each pair.
        points: (p, d) virtual positions, ms.
        pair: whose piece it is.
        weights: (3,) of the piece's legs.
        need: tuples/s a host must have free.
        node: (k,) filled with hosts.
        cost: (k,) filled with the objective on each.
    """
    d, dimensions = position.shape[1], rows.shape[1] - 2
    point = points[pair] if dimensions == d else np.zeros(dimensions)
    found = nearest(rows, nodes, box, link, point, need, node, cost)
    tall = False
    for i in range(found):
        tall |= rows[node[i], dimensions] > 0.0
    for i in range(3):
        tall |= extra[ends[pair, i], 0] > 0.0
    for i in range(found):
        slot = node[i]
        host = nodes[slot]
        if tall or dimensions != d:
            value = host_cost(position, extra, ends, pair, weights, host)
        else:
            # The tree has what the search has just looked at.
            value = 0.0
            for leg in range(3):
                end = ends[pair, leg]
                square = 0.0
                for k in range(d):
                    square += (position[end, k] - rows[slot, k]) ** 2
                value += weights[leg] * math.sqrt(square)
        at = i
        while at > 0 and (cost[at - 1] > value or (cost[at - 1] == value and node[at - 1] > host)):
            cost[at], node[at] = cost[at - 1], node[at - 1]
            at -= 1
        cost[at], node[at] = value, host
    return found


@njit(cache=True, nogil=True)
def _ideal(position: Floats, ends: Ints, point: Floats, weights: Floats) -> float:
    """Objective of a join at its virtual position, heights left out."""
    cost = 0.0
    for i in range(3):
        square = 0.0
        for k in range(len(point)):
            square += (position[ends[i], k] - point[k]) ** 2
        cost += weights[i] * math.sqrt(square)
    return cost


@njit(cache=True, nogil=True)
def settle(
    rows: Floats,
    nodes: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    owner: Ints,
    position: Floats,
    extra: Floats,
    free: Floats,
    ends: Ints,
    points: Floats,
    host: Ints,
    left: Ints,
    right: Ints,
    rate: Floats,
    pairs: Ints,
    weights: Floats,
    limits: Floats,
    nearby: int,
    before: Floats,
) -> int:
    """Place whole joins, one after the other; move those that have a place if that gains enough.

    Args:
        rows: of a `LiveTree` of hosts by place, as the next six.
        nodes: its hosts.
        slot: its slots.
        box: its boxes.
        link: its links.
        parent: its parents.
        owner: its owners.
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        free: (n,) what is left of their capacity, tuples/s; changed, as in the tree.
        ends: (p, 3) nodes of the sources and the sink of each pair.
        points: (p, d) virtual positions, ms.
        host: (p,) where pairs run, `NONE` for nowhere; changed.
        left: (p,) left source of each pair.
        right: (p,) right source of each pair.
        rate: rates of sources, tuples/s.
        pairs: (k,) those to settle.
        weights: (3,) of their legs.
        limits: least gain, and least gain as a share of what a join costs now; least room a host
            must have and largest join that may be whole, tuples/s; share of a need that counts as
            room for all of it.
        nearby: hosts compared.
        before: (k, 2) filled, for a pair whose host changes, with what was free on the old one
            and on the new one, tuples/s.

    Returns:
        How many were settled: all, or those before the first that has no place and finds none.
    """
    node, cost = np.empty(nearby, np.int64), np.empty(nearby)
    for k in range(len(pairs)):
        pair = pairs[k]
        old = host[pair]
        size = rate[left[pair]] + rate[right[pair]]
        if size > limits[3]:
            if old == NONE:
                return k
            continue
        most = math.inf
        if old != NONE:
            now = host_cost(position, extra, ends, pair, weights, old)
            most = now - max(limits[0] + limits[1] * now, 1e-9 * now)
            # No host is cheaper than the virtual position itself.
            if _ideal(position, ends[pair], points[pair], weights) >= most:
                continue
        need = max(size, limits[2]) * limits[4]
        found = cheapest(
            rows, nodes, box, link, position, extra, ends, points, pair, weights, need, node, cost
        )
        if found == 0 or cost[0] >= most:
            if old == NONE:
                return k
            continue
        new = node[0]
        if old != NONE:
            before[k, 0] = free[old]
            free[old] += size
            set_free(rows, slot, box, link, parent, owner, old, free[old])
        before[k, 1] = free[new]
        free[new] -= size
        set_free(rows, slot, box, link, parent, owner, new, free[new])
        host[pair] = new
    return len(pairs)


@njit(cache=True, nogil=True)
def losses(
    position: Floats,
    extra: Floats,
    ends: Ints,
    points: Floats,
    weights: Floats,
    pair: Ints,
    host: Ints,
) -> Floats:
    """What each pair costs on its host beyond its virtual position, heights left out there.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        ends: (p, 3) nodes of the sources and the sink of each pair.
        points: (p, d) virtual positions, ms.
        weights: (k, 3) of the legs of each pair to look at.
        pair: (k,) those pairs.
        host: (k,) where they run.
    """
    result = np.empty(len(pair))
    for row in range(len(pair)):
        ideal = _ideal(position, ends[pair[row]], points[pair[row]], weights[row])
        result[row] = host_cost(position, extra, ends, pair[row], weights[row], host[row]) - ideal
    return result
