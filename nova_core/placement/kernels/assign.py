"""Phase III's first pass: largest join first, each to the cheapest near slot with room."""

from __future__ import annotations

import math

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import (
    NONE,
    CapacityTree,
    Search,
    nearest,
    search_for,
    set_free,
    write_free,
)
from nova_core.placement.kernels.items import (
    Candidates,
    Items,
    LinkRoom,
    Pairs,
    access_cost,
    attach,
    cheapest_with_room,
    distance_cost,
    leave_unplaced,
    needs_of,
)
from nova_core.placement.kernels.residents import charge
from nova_core.placement.kernels.rules import fits, needed


@njit(cache=True, nogil=True)
def assign_whole(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    order: Ints,
    nearby: int,
    exact: float,
) -> int:
    """Place every pair whole, in the given order; what finds no room is unplaced.

    Args:
        tree: the candidate slots; its free capacities are kept up to date.
        links: remaining bandwidth.
        pairs: what to place.
        items: state that holds every pair whole, none placed.
        order: (p,) pairs in the order they choose.
        nearby: how many of the nearest slots with room are compared by cost.
        exact: how exactly those are the nearest (`Search`).

    Returns:
        How many items are unplaced.
    """
    search = search_for(nearby, exact)
    # Columns named once, and few calls with whole tuples: each copies what describes all columns.
    position, points, anchors = tree.slot, pairs.point, pairs.anchors
    largest, minimum = pairs.largest, pairs.minimum
    size, rate, weights, free = items.size, items.rate, items.weights, items.free
    first, chain, slot_of, cost_of = items.first, items.chain, items.slot, items.cost
    plain = len(links.target) == 0 and len(pairs.height) == 0
    missing = 0
    for item in order:
        slot, cost, need = NONE, math.inf, needed(size[item], minimum, 1.0)
        may_be_whole = fits(math.inf, size[item], need, largest)
        if may_be_whole and not plain:
            slot, cost = cheapest_with_room(
                tree, links, pairs, item, rate, weights, item, need, search
            )
        elif may_be_whole:
            for k in range(nearest(tree, points[item], need, needs_of(pairs, item), search)):
                other = distance_cost(position, search.slot[k], anchors, item, weights, item)
                if other < cost:
                    slot, cost = search.slot[k], other
        if slot == NONE:
            leave_unplaced(tree, links, pairs, items, item)
            missing += 1
            continue
        if plain:
            charge(free, first, chain, slot, item, size[item])
            slot_of[item], cost_of[item] = slot, cost
        else:
            attach(tree, links, pairs, items, item, slot, cost)
        set_free(tree, slot, free[slot])
    return missing


@njit(cache=True, nogil=True)
def write_candidates(
    tree: CapacityTree,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    item: int,
    search: Search,
) -> None:
    """List the nearest slots an item would fit on, cheapest first.

    The tree's free capacity decides what fits, so it holds total capacities while lists are made
    for the search, and remaining ones while they are made for new pieces.
    """
    begin = candidates.used[0]
    found = 0
    # An item too large for one instance (Eq. 4) has no candidates: it must be cut.
    need = needed(items.size[item], pairs.minimum, 1.0)
    if fits(math.inf, items.size[item], need, pairs.largest):
        point = pairs.point[items.pair[item]]
        needs = needs_of(pairs, items.pair[item])
        found = min(nearest(tree, point, need, needs, search), len(candidates.slot) - begin)
    pair, position, anchors, weights = items.pair[item], tree.slot, pairs.anchors, items.weights
    slot_out, cost_out = candidates.slot, candidates.cost
    slots, costs, high = search.slot, search.square, len(pairs.height) > 0
    for k in range(found):
        cost = distance_cost(position, slots[k], anchors, pair, weights, item)
        if high:
            cost += access_cost(tree, pairs, pair, weights, item, slots[k])
        costs[k] = cost
    order = np.argsort(costs[:found], kind="mergesort")
    for k in range(found):
        slot_out[begin + k] = slots[order[k]]
        cost_out[begin + k] = costs[order[k]]
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
    write_free(tree, capacity)
    search = search_for(width, 1.0)
    for item in range(items.used[0]):
        write_candidates(tree, pairs, items, candidates, item, search)
    write_free(tree, items.free)
