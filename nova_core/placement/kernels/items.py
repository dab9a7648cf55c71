"""What Phase III moves around: joins and pieces of joins, who sits on which slot, and what is left.

An item is a rectangle of one pair's partition grid; an uncut join is the whole grid. Items without
a host are in the slot *unplaced*, of unlimited room, whose cost outweighs every real one, so that
every improvement that finds them a host is made first.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from nova_core.borrowing import borrowing, inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import (
    NONE,
    CapacityTree,
    Search,
    meets,
    nearest,
    search_for,
    set_free,
)
from nova_core.placement.kernels.residents import charge, discharge
from nova_core.placement.kernels.rules import distance, fits, leg_cost, needed
from nova_core.placement.kernels.tuning import UNPLACED_COST

# Typed, as `NONE` is.
NO_REQUIREMENT = cast("int", np.int64(0))


class LinkRoom(NamedTuple):
    """Remaining bandwidth of budgeted directed node pairs, sorted by source, then target.

    Attributes:
        offset: (N + 1,) start of each source node's run.
        target: node indices.
        free: tuples/s left.
    """

    offset: Ints
    target: Ints
    free: Floats


class Pairs(NamedTuple):
    """The joins to place, one row per pair; constant.

    Attributes:
        node: (p, 3) left source's node, right source's node, sink.
        anchors: (p, 3, d) their coordinates, ms.
        weights: (p, 3) of the legs in the objective.
        point: (p, d) virtual positions.
        rate: (p, 3) left, right and output rate, tuples/s.
        maximum: (p,) p_max of Eq. 7, tuples/s.
        grid: (p, 2) partitions m and n of both inputs under p_max.
        by_rate: whether a piece's legs weigh by its own rates rather than by its share of the grid.
        height: (p, 3) heights of those nodes, ms; (0, 3) where no node has access costs.
        needs: (p,) requirement hosts must meet, from 1; 0 for none. (0,) where no pair has any.
        largest: t_b, the greatest required capacity an instance may have, tuples/s.
        minimum: C_min, what a node must have free to be chosen, tuples/s.
    """

    node: Ints
    anchors: Floats
    weights: Floats
    point: Floats
    rate: Floats
    maximum: Floats
    grid: Ints
    by_rate: bool
    height: Floats
    needs: Ints
    largest: float
    minimum: float


class Items(NamedTuple):
    """The state: one row per item, filled up to ``used[0]``, and one per slot.

    Attributes:
        used: (1,) items in use.
        pair: (m,) row of the join matrix.
        rectangle: (m, 4) left begin, left end, right begin, right end in the pair's grid.
        rate: (m, 3) left, right and output rate of the item, tuples/s.
        weights: (m, 3) of its legs in the objective.
        size: (m,) required capacity, tuples/s.
        slot: (m,) slot occupied.
        cost: (m,) objective there.
        begin: (m,) start of the item's candidates.
        end: (m,) end of them.
        opening: (m,) where to look for the cheapest candidate with room; those before have none.
        chain: (m, 2) neighbours in the list of the slot, see `residents`.
        first: (n + 1,) first resident of each slot; the last slot is that of unplaced items.
        free: (n + 1,) free capacity of each slot, tuples/s.
    """

    used: Ints
    pair: Ints
    rectangle: Ints
    rate: Floats
    weights: Floats
    size: Floats
    slot: Ints
    cost: Floats
    begin: Ints
    end: Ints
    opening: Ints
    chain: Ints
    first: Ints
    free: Floats


class Candidates(NamedTuple):
    """Pool of candidate slots: each item's run is cheapest first.

    Attributes:
        used: (1,) entries in use.
        slot: slots, of a type that kernels need not test for places from the end.
        cost: the objective of the item on each.
    """

    used: Ints
    slot: NDArray[np.uint32]
    cost: Floats


@inlined
def unplaced(tree: CapacityTree) -> int:
    """The slot of items without a host, after all others."""
    return len(tree.node)


@borrowing
def range_rate(whole: float, maximum: float, count: int, begin: int, end: int) -> float:
    """Rate of partitions begin..end of one input, tuples/s: p_max each, the remainder last.

    Args:
        whole: rate of the input, tuples/s.
        maximum: p_max, tuples/s.
        count: its partitions.
        begin: first of the range.
        end: after its last.
    """
    if begin == 0 and end == count:
        return whole
    rate = maximum * (end - begin)
    return rate + (whole - maximum * count) if end == count else rate


@borrowing
def write_rectangle(
    pairs: Pairs,
    items: Items,
    item: int,
    pair: int,
    left: int,
    left_end: int,
    right: int,
    right_end: int,
) -> None:
    """Make an item a rectangle of its pair's grid: rates, weights and size follow."""
    items.pair[item] = pair
    items.rectangle[item, 0], items.rectangle[item, 1] = left, left_end
    items.rectangle[item, 2], items.rectangle[item, 3] = right, right_end
    rate, maximum, grid = pairs.rate[pair], pairs.maximum[pair], pairs.grid[pair]
    left_rate = range_rate(rate[0], maximum, grid[0], left, left_end)
    right_rate = range_rate(rate[1], maximum, grid[1], right, right_end)
    share = left_rate / rate[0] * right_rate / rate[1]
    items.rate[item, 0], items.rate[item, 1] = left_rate, right_rate
    items.rate[item, 2] = rate[2] * share
    items.size[item] = left_rate + right_rate
    cells = (left_end - left) * (right_end - right)
    fraction = cells / (grid[0] * grid[1])
    for leg in range(3):
        items.weights[item, leg] = (
            items.rate[item, leg] if pairs.by_rate else pairs.weights[pair, leg] * fraction
        )


@borrowing
def write_halves(pairs: Pairs, items: Items, item: int, other: int, side: int, at: int) -> None:
    """Shrink an item to the partitions of one input before ``at``; another item gets the rest."""
    a, b, c, d = items.rectangle[item]
    pair = items.pair[item]
    if side == 0:
        write_rectangle(pairs, items, item, pair, a, at, c, d)
        write_rectangle(pairs, items, other, pair, at, b, c, d)
    else:
        write_rectangle(pairs, items, item, pair, a, b, c, at)
        write_rectangle(pairs, items, other, pair, a, b, at, d)


@borrowing
def _link(links: LinkRoom, source: int, target: int) -> int:
    """Index of a budgeted link, or -1."""
    low, high = links.offset[source], links.offset[source + 1]
    while low < high:
        middle = (low + high) // 2
        if links.target[middle] < target:
            low = middle + 1
        else:
            high = middle
    if low < links.offset[source + 1] and links.target[low] == target:
        return low
    return NONE


@inlined
def needs_of(pairs: Pairs, pair: int) -> int:
    """The requirement a pair's hosts must meet, counted from 1; 0 for none."""
    return pairs.needs[pair] if len(pairs.needs) else NO_REQUIREMENT


@borrowing
def may_host(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, pair: int, rate: Floats, slot: int
) -> bool:
    """Whether a slot meets a pair's requirement and its links have room for a piece's rates.

    The links are those between the slot and the pair's sources and sink; free capacity is left to
    the caller.
    """
    needs = needs_of(pairs, pair)
    host, nodes = tree.node[slot], pairs.node[pair]
    if needs and not meets(tree, slot, needs):
        return False
    if len(links.target) == 0:
        return True
    for leg in range(3):
        source, target = (nodes[leg], host) if leg < 2 else (host, nodes[leg])
        if source != target:
            link = _link(links, source, target)
            # Two streams of one node share the link to the host.
            both = leg < 2 and nodes[0] == nodes[1]
            if link != NONE and links.free[link] < (rate[0] + rate[1] if both else rate[leg]):
                return False
    return True


@borrowing
def _use_links(
    tree: CapacityTree, links: LinkRoom, nodes: Ints, rate: Floats, slot: int, sign: float
) -> None:
    host = tree.node[slot]
    for leg in range(3):
        source, target = (nodes[leg], host) if leg < 2 else (host, nodes[leg])
        if source != target:
            link = _link(links, source, target)
            if link != NONE:
                links.free[link] -= sign * rate[leg]


@borrowing
def access_cost(
    tree: CapacityTree, pairs: Pairs, pair: int, weights: Floats, row: int, slot: int
) -> float:
    """What heights and the host's penalty add to the objective of a piece on a slot.

    A height counts on every leg but one that ends where it begins.

    Args:
        tree: the hosts.
        pairs: what is placed, with heights.
        pair: the piece's pair.
        weights: (..., 3) of its legs, in one row.
        row: that row.
        slot: where it would run.
    """
    host, height = tree.node[slot], tree.rise[slot, 1]
    penalty = tree.rise[slot, 0] - height
    total = 0.0
    for i in range(3):
        same = pairs.node[pair, i] == host
        leg = leg_cost(0.0, pairs.height[pair, i], height, penalty, same)
        total += weights[row, i] * leg
    return total


@inlined
def distance_cost(
    position: Floats, slot: int, anchors: Floats, pair: int, weights: Floats, row: int
) -> float:
    """Objective of a piece on a slot, but for heights and penalties.

    Args:
        position: (n, d or more) coordinates of the slots, ms.
        slot: where it would run.
        anchors: (p, 3, d) of pairs, ms.
        pair: the piece's.
        weights: (..., 3) of its legs, in one row.
        row: that row.
    """
    cost = 0.0
    for i in range(3):
        cost += weights[row, i] * distance(position[slot], anchors[pair, i])
    return cost


@borrowing
def cost_on(tree: CapacityTree, pairs: Pairs, items: Items, item: int, slot: int) -> float:
    """Objective of an item on a slot."""
    if slot == unplaced(tree):
        return UNPLACED_COST * items.size[item]
    pair = items.pair[item]
    cost = distance_cost(tree.slot, slot, pairs.anchors, pair, items.weights, item)
    if len(pairs.height):
        cost += access_cost(tree, pairs, pair, items.weights, item, slot)
    return cost


@borrowing
def attach(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    item: int,
    slot: int,
    cost: float,
) -> None:
    """Put an item on a slot."""
    charge(items.free, items.first, items.chain, slot, item, items.size[item])
    items.slot[item] = slot
    items.cost[item] = cost
    items.opening[item] = items.begin[item]
    if len(links.target) and slot < unplaced(tree):
        _use_links(tree, links, pairs.node[items.pair[item]], items.rate[item], slot, 1.0)


@borrowing
def detach(tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, item: int) -> None:
    """Take an item off its slot."""
    slot = items.slot[item]
    discharge(items.free, items.first, items.chain, slot, item, items.size[item])
    items.slot[item] = NONE
    if len(links.target) and slot < unplaced(tree):
        _use_links(tree, links, pairs.node[items.pair[item]], items.rate[item], slot, -1.0)


@njit(cache=True, nogil=True)
def cheapest_with_room(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    pair: int,
    rate: Floats,
    weights: Floats,
    row: int,
    need: float,
    search: Search,
) -> tuple[int, float]:
    """The cheapest of the nearest slots with room now, and its cost; -1 for none.

    Args:
        tree: slots and their free capacity.
        links: remaining bandwidth.
        pairs: what is placed.
        pair: the pair of what needs a slot.
        rate: (..., 3) tuples/s on its legs, in one row.
        weights: (..., 3) of the legs, in one row.
        row: that row.
        need: tuples/s a slot must have free.
        search: work space; as many slots are compared, more where links are full.
    """
    position, anchors, point = tree.slot, pairs.anchors, pairs.point
    linked, high, needs = len(links.target) > 0, len(pairs.height) > 0, needs_of(pairs, pair)
    while True:
        found = nearest(tree, point[pair], need, needs, search)
        slots = search.slot
        best, best_cost = NONE, math.inf
        for k in range(found):
            slot = slots[k]
            if linked and not may_host(tree, links, pairs, pair, rate[row], slot):
                continue
            cost = distance_cost(position, slot, anchors, pair, weights, row)
            if high:
                cost += access_cost(tree, pairs, pair, weights, row, slot)
            if cost < best_cost:
                best, best_cost = slot, cost
        if best != NONE or found < len(slots):
            return best, best_cost
        search = search_for(4 * len(slots), 1.0)


@njit(cache=True, nogil=True)
def place_cheapest(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    item: int,
    search: Search,
) -> bool:
    """Put an item without a place on its cheapest near slot with room; false when there is none."""
    pair, size = items.pair[item], items.size[item]
    need = needed(size, pairs.minimum, 1.0)
    if not fits(math.inf, size, need, pairs.largest):
        return False
    slot, cost = cheapest_with_room(
        tree, links, pairs, pair, items.rate, items.weights, item, need, search
    )
    if slot == NONE:
        return False
    attach(tree, links, pairs, items, item, slot, cost)
    set_free(tree, slot, items.free[slot])
    return True


@borrowing
def leave_unplaced(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, item: int
) -> None:
    """Put an item without a host into the slot of unplaced items."""
    cost = UNPLACED_COST * items.size[item]
    attach(tree, links, pairs, items, item, unplaced(tree), cost)


@borrowing
def sync(tree: CapacityTree, items: Items, slot: int) -> None:
    """Write a slot's free capacity to the tree."""
    if slot < unplaced(tree):
        set_free(tree, slot, items.free[slot])
