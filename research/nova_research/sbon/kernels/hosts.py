"""Exact searches on the tree of nodes by capacity, one operator after the other."""

from __future__ import annotations

import math

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import (
    CapacityTree,
    box_distance,
    nearest,
    search_for,
    set_free,
)


@njit(cache=True, nogil=True)
def _cost(
    tree: CapacityTree, position: Floats, height: Floats, end: Ints, weight: Floats, slot: int
) -> float:
    node, total = tree.node[slot], 0.0
    for leg in range(len(end)):
        if end[leg] == node:
            continue
        square = 0.0
        for k in range(position.shape[1]):
            away = position[end[leg], k] - position[node, k]
            square += away * away
        total += weight[leg] * (math.sqrt(square) + height[end[leg]] + height[node])
    return total


@njit(cache=True, nogil=True)
def _bound(
    tree: CapacityTree, position: Floats, height: Floats, end: Ints, weight: Floats, t: int
) -> float:
    """What every slot below a tree node that is no end costs at least."""
    least = tree.rise[len(tree.slot) + t, 0] if len(tree.rise) else 0.0
    total = 0.0
    for leg in range(len(end)):
        away = math.sqrt(box_distance(tree.box, t, position[end[leg]]))
        total += weight[leg] * (away + height[end[leg]] + least)
    return total


@njit(cache=True, nogil=True)
def cheapest(
    tree: CapacityTree, position: Floats, height: Floats, slot: Ints, ends: Ints, weights: Floats
) -> Ints:
    """(p,) for every row of nodes the node of the tree nearest to all of them.

    Heights count on every leg but from a node to itself.

    Args:
        tree: nodes to choose from, with their heights as rise if there are any.
        position: (n, d) coordinates of all nodes, ms.
        height: (n,) ms.
        slot: (n,) place of every node in the tree, -1 of others.
        ends: (p, l) nodes.
        weights: (p, l) of the legs to them; 0 for nodes that do not count.
    """
    n, leaves = len(tree.slot), len(tree.box) // 2
    found = np.empty(len(ends), np.int64)
    waiting, bounds = np.empty(128, np.int64), np.empty(128)
    for pair in range(len(ends)):
        end, weight = ends[pair], weights[pair]
        best, chosen = math.inf, -1
        # The bound knows nothing of legs without length, so the ends themselves come first.
        for leg in range(len(end)):
            here = slot[end[leg]]
            if here >= 0:
                cost = _cost(tree, position, height, end, weight, here)
                if cost < best:
                    best, chosen = cost, here
        waiting[0], bounds[0], count = 1, 0.0, 1
        while count:
            count -= 1
            t = waiting[count]
            if bounds[count] >= best and chosen >= 0:
                continue
            if t >= leaves:
                for here in range((t - leaves) * n // leaves, (t - leaves + 1) * n // leaves):
                    cost = _cost(tree, position, height, end, weight, here)
                    if cost < best or chosen < 0:
                        best, chosen = cost, here
                continue
            left = _bound(tree, position, height, end, weight, 2 * t)
            right = _bound(tree, position, height, end, weight, 2 * t + 1)
            # The nearer one is looked at first.
            near = 2 * t if left <= right else 2 * t + 1
            waiting[count], bounds[count] = 4 * t + 1 - near, max(left, right)
            waiting[count + 1], bounds[count + 1] = near, min(left, right)
            count += 2
        found[pair] = tree.node[chosen]
    return found


@njit(cache=True, nogil=True)
def map_in_turn(tree: CapacityTree, points: Floats, required: Floats) -> tuple[Ints, int]:
    """Give each point the nearest slot with room, or where none has, the one with most of it.

    Args:
        tree: slots with their free capacity, which is taken off.
        points: (m, d) ms.
        required: (m,) tuples/s.

    Returns:
        (m,) nodes, and how many points found no room.
    """
    found, overloaded = np.empty(len(points), np.int64), 0
    search, free = search_for(1, 1.0), tree.slot.shape[1] - 1
    for row in range(len(points)):
        if nearest(tree, points[row], required[row], 0, search) > 0:
            slot = search.slot[0]
        else:
            overloaded += 1
            slot = 0
            for other in range(1, len(tree.slot)):
                more = tree.slot[other, free] - tree.slot[slot, free]
                if more > 0.0 or (more == 0.0 and tree.node[other] < tree.node[slot]):
                    slot = other
        found[row] = tree.node[slot]
        set_free(tree, slot, tree.slot[slot, free] - required[row])
    return found, overloaded
