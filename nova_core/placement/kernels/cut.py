"""Cutting joins: replace an item by two smaller ones where that is cheaper or nothing else fits.

A cut divides one input's partitions and sends the other input to both pieces, so a cut costs
capacity and traffic; repeated cuts make any m x n grid (paper, section 3.4).
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.assign import write_candidates
from nova_core.placement.kernels.capacity_tree import (
    NONE,
    CapacityTree,
    Search,
    search_for,
    set_free,
)
from nova_core.placement.kernels.items import (
    Candidates,
    Items,
    LinkRoom,
    Pairs,
    attach,
    cheapest_with_room,
    detach,
    leave_unplaced,
    needs_of,
    place_cheapest,
    sync,
    unplaced,
    write_halves,
    write_rectangle,
)
from nova_core.placement.kernels.rules import (
    cut_step,
    distance,
    fits,
    halved_side,
    leg_cost,
    needed,
)
from nova_core.placement.kernels.tuning import (
    CUT_NEARBY,
    CUT_POSITIONS,
    PIECE_CANDIDATES,
)

# Rows of the work space; typed, as `items.NONE` is.
FIRST, SECOND = cast("int", np.int64(0)), cast("int", np.int64(1))


class CutWork(NamedTuple):
    """Work space of a cut: rates and weights of both pieces, and slots compared and listed."""

    rate: Floats
    weights: Floats
    search: Search
    listing: Search


@njit(cache=True, nogil=True)
def _work_space() -> CutWork:
    return CutWork(
        np.empty((2, 3)),
        np.empty((2, 3)),
        search_for(CUT_NEARBY, 1.0),
        search_for(PIECE_CANDIDATES, 1.0),
    )


@njit(cache=True, nogil=True)
def cut_in_two(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    item: int,
    limit: float,
    work: CutWork,
) -> bool:
    """Replace an item by the two pieces that cost least together, if they cost less than ``limit``.

    The tree's free capacities are read and kept. Fails when the state is full.
    """
    other = items.used[0]
    if other == len(items.size):
        return False
    here, cost_here = items.slot[item], items.cost[item]
    detach(tree, links, pairs, items, item)
    sync(tree, items, here)
    pair = items.pair[item]
    rectangle, maximum = items.rectangle[item], pairs.maximum[pair]
    rate, weights = items.rate[item], items.weights[item]
    free_column, rows = tree.slot.shape[1] - 1, tree.slot
    ideal = 0.0 if pairs.by_rate else _ideal(pairs, items, item)
    best = limit
    best_side = best_at = NONE
    for side in range(2):
        begin, end = rectangle[2 * side], rectangle[2 * side + 1]
        total, broadcast = rate[side], rate[1 - side]
        # Sending the smaller input to both costs least: the other one only where that is whole.
        if total < broadcast and rectangle[3 - 2 * side] - rectangle[2 - 2 * side] > 1:
            continue
        step = cut_step(end - begin, CUT_POSITIONS)
        for at in range(begin + step, end, step):
            before = maximum * (at - begin)
            # The larger piece chooses first, as in the first pass.
            first_rate, first_cells = before, at - begin
            if total - before > before:
                first_rate, first_cells = total - before, end - at
            need = needed(first_rate + broadcast, pairs.minimum, 1.0)
            if not fits(math.inf, first_rate + broadcast, need, pairs.largest):
                continue
            _write_leg(work, 0, pairs, side, first_rate, first_cells, rate, weights, end - begin)
            slot, cost = cheapest_with_room(
                tree,
                links,
                pairs,
                pair,
                work.rate,
                work.weights,
                FIRST,
                need,
                work.search,
            )
            # The second piece costs at least its share of the ideal.
            rest = ideal * (1.0 - first_cells / (end - begin))
            if slot == NONE or cost + rest >= best:
                continue
            second_rate, second_cells = total - first_rate, end - begin - first_cells
            _write_leg(work, 1, pairs, side, second_rate, second_cells, rate, weights, end - begin)
            free = rows[slot, free_column]
            set_free(tree, slot, free - first_rate - broadcast)
            slot2, cost2 = cheapest_with_room(
                tree,
                links,
                pairs,
                pair,
                work.rate,
                work.weights,
                SECOND,
                needed(second_rate + broadcast, pairs.minimum, 1.0),
                work.search,
            )
            set_free(tree, slot, free)
            if slot2 != NONE and cost + cost2 < best:
                best, best_side, best_at = cost + cost2, side, at
    if best_side != NONE:
        items.used[0] = other + 1
        write_halves(pairs, items, item, other, best_side, best_at)
        first, second = item, other
        if items.size[second] > items.size[first]:
            first, second = second, first
        if place_cheapest(tree, links, pairs, items, first, work.search):
            if place_cheapest(tree, links, pairs, items, second, work.search):
                write_candidates(tree, pairs, items, candidates, item, work.listing)
                write_candidates(tree, pairs, items, candidates, other, work.listing)
                return True
            # Only a link both pieces use can be too narrow for the second one now.
            slot = items.slot[first]
            detach(tree, links, pairs, items, first)
            sync(tree, items, slot)
        a, b, c, d = items.rectangle[item]
        e, f, g, h = items.rectangle[other]
        write_rectangle(pairs, items, item, pair, min(a, e), max(b, f), min(c, g), max(d, h))
        items.used[0] = other
    attach(tree, links, pairs, items, item, here, cost_here)
    sync(tree, items, here)
    return False


@njit(cache=True, nogil=True)
def _write_leg(
    work: CutWork,
    row: int,
    pairs: Pairs,
    side: int,
    piece_rate: float,
    cells: int,
    rate: Floats,
    weights: Floats,
    partitions: int,
) -> None:
    """Rates and weights of a piece that keeps ``piece_rate`` of one input, without making it."""
    share = piece_rate / rate[side]
    work.rate[row, side], work.rate[row, 1 - side] = piece_rate, rate[1 - side]
    work.rate[row, 2] = rate[2] * share
    for leg in range(3):
        work.weights[row, leg] = (
            work.rate[row, leg] if pairs.by_rate else weights[leg] * cells / partitions
        )


@njit(cache=True, nogil=True)
def cut_where_cheaper(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    order: Ints,
    gain: float,
) -> int:
    """Cut each item of ``order``, and its pieces in turn, while that saves a share of its cost.

    Args:
        tree: the candidate slots; its free capacities are kept up to date.
        links: remaining bandwidth.
        pairs: what is placed.
        items: the state.
        candidates: pool for the pieces' candidates.
        order: items to try, in this order.
        gain: share of an item's cost that a cut must save.

    Returns:
        How many cuts were made.
    """
    work = _work_space()
    cuts = 0
    for item in order:
        first_piece = items.used[0]
        current = item
        while True:
            if _could_gain(pairs, items, current, gain) and cut_in_two(
                tree,
                links,
                pairs,
                items,
                candidates,
                current,
                items.cost[current] * (1.0 - gain),
                work,
            ):
                cuts += 1
                continue
            # Go on with the pieces that came off this item.
            current = first_piece if current == item else current + 1
            if current >= items.used[0]:
                break
    return cuts


@njit(cache=True, nogil=True)
def _could_gain(pairs: Pairs, items: Items, item: int, gain: float) -> bool:
    """Whether an item is far enough from its ideal for a cut to pay at all."""
    rectangle = items.rectangle[item]
    if rectangle[1] - rectangle[0] + rectangle[3] - rectangle[2] == 2:
        return False
    return _ideal(pairs, items, item) < items.cost[item] * (1.0 - gain)


@njit(cache=True, nogil=True)
def _ideal(pairs: Pairs, items: Items, item: int) -> float:
    """Objective of an item on a host without a height at its virtual position."""
    pair = items.pair[item]
    point, anchors, weights = pairs.point[pair], pairs.anchors[pair], items.weights[item]
    ideal = 0.0
    for i in range(3):
        far = pairs.height[pair, i] if len(pairs.height) else 0.0
        ideal += weights[i] * leg_cost(distance(point, anchors[i]), far, 0.0, 0.0, False)
    return ideal


@njit(cache=True, nogil=True)
def cut_to_fit(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    start: int,
) -> int:
    """Cut unplaced items until the pieces fit, from item ``start`` on.

    Two pieces that both fit are preferred; failing that an item is halved and its halves cut in
    turn, down to single replicas. What still finds no room stays unplaced.

    Returns:
        The item to go on from once the state has grown, or -1 when all are done.
    """
    work = _work_space()
    nowhere = unplaced(tree)
    item = start
    while item < items.used[0]:
        if items.slot[item] != nowhere:
            item += 1
            continue
        if items.used[0] == len(items.size) or candidates.used[0] + 2 * PIECE_CANDIDATES > len(
            candidates.slot
        ):
            return item
        detach(tree, links, pairs, items, item)
        if place_cheapest(tree, links, pairs, items, item, work.search):
            write_candidates(tree, pairs, items, candidates, item, work.listing)
            item += 1
            continue
        leave_unplaced(tree, links, pairs, items, item)
        a, b, c, d = items.rectangle[item]
        if (b - a) * (d - c) == 1 or not _room_for_a_replica(tree, pairs, items, item):
            item += 1
            continue
        if cut_in_two(tree, links, pairs, items, candidates, item, math.inf, work):
            item += 1
            continue
        # Halve the input that has more partitions; both halves are unplaced.
        other = items.used[0]
        items.used[0] = other + 1
        detach(tree, links, pairs, items, item)
        if halved_side(b - a, d - c) == 0:
            write_halves(pairs, items, item, other, 0, (a + b) // 2)
        else:
            write_halves(pairs, items, item, other, 1, (c + d) // 2)
        for piece in (other, item):
            leave_unplaced(tree, links, pairs, items, piece)
    return NONE


@njit(cache=True, nogil=True)
def _room_for_a_replica(tree: CapacityTree, pairs: Pairs, items: Items, item: int) -> bool:
    """Whether any slot could take the smallest replica of a pair; false ends pointless halving."""
    pair = items.pair[item]
    smallest = 0.0
    for side in range(2):
        last = pairs.rate[pair, side] - pairs.maximum[pair] * (pairs.grid[pair, side] - 1)
        smallest += min(last, pairs.maximum[pair])
    room = 2 * pairs.point.shape[1] + needs_of(pairs, pair)
    return tree.box[1, room] >= needed(smallest, pairs.minimum, 1.0)
