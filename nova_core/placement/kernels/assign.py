"""Phase III's first pass: largest join first, each to the cheapest near slot with room."""

from __future__ import annotations

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import CapacityTree, nearest, refresh
from nova_core.placement.kernels.items import (
    NONE,
    Candidates,
    Items,
    LinkRoom,
    Pairs,
    attach,
    cheapest_with_room,
    cost_on,
    detach,
    need_of,
    sync,
    write_rectangle,
)


@njit(cache=True, nogil=True)
def assign_whole(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, order: Ints, nearby: int
) -> int:
    """Make every pair one item and place it, in the given order; what finds no room is in limbo.

    Args:
        tree: the candidate slots; its free capacities are kept up to date.
        links: remaining bandwidth.
        pairs: what to place.
        items: empty state with room for every pair.
        order: (p,) pairs in the order they choose.
        nearby: how many of the nearest slots with room are compared by cost.

    Returns:
        How many items are in limbo.
    """
    slots, squares = np.empty(nearby, np.int64), np.empty(nearby)
    limbo = len(tree.node)
    waiting = 0
    items.count[0] = len(order)
    for pair in range(len(order)):
        grid = pairs.grid[pair]
        write_rectangle(pairs, items, pair, pair, 0, grid[0], 0, grid[1])
    for item in order:
        slot, cost = NONE, 0.0
        if items.size[item] <= pairs.largest:
            slot, cost = cheapest_with_room(tree, links, pairs, items, item, slots, squares)
        if slot == NONE:
            slot, cost = limbo, cost_on(tree, pairs, items, item, limbo)
            waiting += 1
        attach(tree, links, pairs, items, item, slot, cost)
        sync(tree, items, slot)
    return waiting


@njit(cache=True, nogil=True)
def write_candidates(
    tree: CapacityTree,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    item: int,
    slots: Ints,
    squares: Floats,
) -> None:
    """List the nearest slots an item would fit on, cheapest first.

    The tree's free capacity decides what fits, so it holds total capacities while lists are made for
    the search, and remaining ones while they are made for new pieces.
    """
    begin = candidates.used[0]
    found = 0
    # An item too large for one instance (Eq. 4) has no candidates: it must be cut.
    if items.size[item] <= pairs.largest:
        width = min(len(slots), len(candidates.slot) - begin)
        point = pairs.point[items.pair[item]]
        need = need_of(pairs, items.size[item])
        found = nearest(tree, point, need, slots[:width], squares[:width])
    for k in range(found):
        squares[k] = cost_on(tree, pairs, items, item, slots[k])
    order = np.argsort(squares[:found], kind="mergesort")
    for k in range(found):
        candidates.slot[begin + k] = slots[order[k]]
        candidates.cost[begin + k] = squares[order[k]]
    candidates.used[0] = begin + found
    items.begin[item] = items.opening[item] = begin
    items.end[item] = begin + found


@njit(cache=True, nogil=True)
def list_candidates(
    tree: CapacityTree,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    capacity: Floats,
    width: int,
) -> None:
    """List candidates of every item by total capacity, then restore the tree's free capacities.

    Args:
        tree: the candidate slots.
        pairs: what is placed.
        items: the state; the items' runs of candidates are written.
        candidates: an empty pool.
        capacity: (n,) total capacity of each slot, tuples/s.
        width: candidates per item.
    """
    d = pairs.point.shape[1]
    tree.slot[:, d] = capacity
    refresh(tree)
    slots, squares = np.empty(width, np.int64), np.empty(width)
    # In the order of slots, so that neighbours in space are neighbours in memory.
    for slot in range(len(items.head)):
        item = items.head[slot]
        while item != NONE:
            write_candidates(tree, pairs, items, candidates, item, slots, squares)
            item = items.following[item]
    tree.slot[:, d] = items.free[: len(tree.node)]
    refresh(tree)


@njit(cache=True, nogil=True)
def spread(tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, nearby: int) -> int:
    """Place what is in limbo on near slots all the same, evenly by how full they get; how many.

    The overload this accepts is reported by the plan's verification.
    """
    limbo = len(tree.node)
    d = pairs.point.shape[1]
    capacity = items.free[:limbo].copy()
    for item in range(items.count[0]):
        if items.slot[item] != limbo:
            capacity[items.slot[item]] += items.size[item]
    tree.slot[:, d] = capacity
    refresh(tree)
    slots, squares = np.empty(nearby, np.int64), np.empty(nearby)
    moved = 0
    for item in range(items.count[0]):
        if items.slot[item] != limbo:
            continue
        pair = items.pair[item]
        found = nearest(tree, pairs.point[pair], max(pairs.minimum, 1e-9), slots, squares)
        best, best_fill = NONE, np.inf
        for k in range(found):
            slot = slots[k]
            fill = (capacity[slot] - items.free[slot] + items.size[item]) / capacity[slot]
            if fill < best_fill:
                best, best_fill = slot, fill
        if best != NONE:
            detach(tree, links, pairs, items, item)
            cost = cost_on(tree, pairs, items, item, best)
            attach(tree, links, pairs, items, item, best, cost)
            moved += 1
    return moved

