"""Cutting joins: replace an item by two smaller ones where that is cheaper or nothing else fits.

A cut divides one input's partitions and sends the other input to both pieces, so a cut costs
capacity and traffic; repeated cuts make any m x n grid (paper, section 3.4).
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.assign import write_candidates
from nova_core.placement.kernels.capacity_tree import CapacityTree, Search, search_for, set_free
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
    links_fit,
    place_cheapest,
    send_to_limbo,
    sync,
    write_rectangle,
)

# Rows of the work space; typed, as `items.NONE` is.
FIRST, SECOND = cast("int", np.int64(0)), cast("int", np.int64(1))
# Positions tried along each input; a grid of at most this many partitions a side is searched whole.
_POSITIONS = 32
_NEARBY = 4
_PIECE_CANDIDATES = 16


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
        search_for(_NEARBY),
        search_for(_PIECE_CANDIDATES),
    )


@njit(cache=True, nogil=True)
def _write_halves(pairs: Pairs, items: Items, item: int, other: int, side: int, at: int) -> None:
    """Shrink an item to the partitions of one input before ``at``; another item gets the rest."""
    a, b, c, d = items.rectangle[item]
    pair = items.pair[item]
    if side == 0:
        write_rectangle(pairs, items, item, pair, a, at, c, d)
        write_rectangle(pairs, items, other, pair, at, b, c, d)
    else:
        write_rectangle(pairs, items, item, pair, a, b, c, at)
        write_rectangle(pairs, items, other, pair, a, b, at, d)


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
        # Sending the smaller input to both pieces costs least; the other cut is for want of choice.
        if total < broadcast and rectangle[3 - 2 * side] - rectangle[2 - 2 * side] > 1:
            continue
        step = max(1, (end - begin + _POSITIONS - 1) // _POSITIONS)
        for at in range(begin + step, end, step):
            before = maximum * (at - begin)
            # The larger piece chooses first, as in the first pass.
            first_rate, first_cells = before, at - begin
            if total - before > before:
                first_rate, first_cells = total - before, end - at
            if first_rate + broadcast > pairs.largest:
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
                max(first_rate + broadcast, pairs.minimum),
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
                max(second_rate + broadcast, pairs.minimum),
                work.search,
            )
            set_free(tree, slot, free)
            if slot2 != NONE and cost + cost2 < best:
                best, best_side, best_at = cost + cost2, side, at
    if best_side != NONE:
        items.used[0] = other + 1
        _write_halves(pairs, items, item, other, best_side, best_at)
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
    """Objective of an item at its virtual position."""
    pair = items.pair[item]
    point, anchors, weights = pairs.point[pair], pairs.anchors[pair], items.weights[item]
    ideal = 0.0
    for i in range(3):
        square = 0.0
        for k in range(len(point)):
            square += (point[k] - anchors[i, k]) ** 2
        ideal += weights[i] * math.sqrt(square)
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
    """Cut what is in limbo until the pieces fit, from item ``start`` on.

    Two pieces that both fit are preferred; failing that an item is halved and its halves cut in
    turn, down to single replicas. What still finds no room stays in limbo.

    Returns:
        The item to go on from once the state has grown, or -1 when all are done.
    """
    work = _work_space()
    limbo = len(tree.node)
    item = start
    while item < items.used[0]:
        if items.slot[item] != limbo:
            item += 1
            continue
        if items.used[0] == len(items.size) or candidates.used[0] + 2 * _PIECE_CANDIDATES > len(
            candidates.slot
        ):
            return item
        detach(tree, links, pairs, items, item)
        if place_cheapest(tree, links, pairs, items, item, work.search):
            write_candidates(tree, pairs, items, candidates, item, work.listing)
            item += 1
            continue
        send_to_limbo(tree, links, pairs, items, item)
        a, b, c, d = items.rectangle[item]
        if (b - a) * (d - c) == 1 or not _room_for_a_replica(tree, pairs, items, item):
            item += 1
            continue
        if cut_in_two(tree, links, pairs, items, candidates, item, math.inf, work):
            item += 1
            continue
        # Halve the input that has more partitions; both halves wait in limbo.
        other = items.used[0]
        items.used[0] = other + 1
        detach(tree, links, pairs, items, item)
        if b - a >= d - c:
            _write_halves(pairs, items, item, other, 0, (a + b) // 2)
        else:
            _write_halves(pairs, items, item, other, 1, (c + d) // 2)
        for piece in (other, item):
            send_to_limbo(tree, links, pairs, items, piece)
    return NONE


@njit(cache=True, nogil=True)
def _room_for_a_replica(tree: CapacityTree, pairs: Pairs, items: Items, item: int) -> bool:
    """Whether any slot could take the smallest replica of a pair; false ends pointless halving."""
    pair = items.pair[item]
    smallest = 0.0
    for side in range(2):
        last = pairs.rate[pair, side] - pairs.maximum[pair] * (pairs.grid[pair, side] - 1)
        smallest += min(last, pairs.maximum[pair])
    return tree.box[1, tree.box.shape[1] - 1] >= max(smallest, pairs.minimum)


@njit(cache=True, nogil=True)
def merge_pieces(pairs: Pairs, items: Items, order: Ints, keep: Ints) -> int:
    """Unite pieces of one pair that met on a node and form a rectangle together.

    Args:
        pairs: what is placed.
        items: the state; rectangles grow, residents' lists and free capacities are left alone.
        order: (m,) items sorted by pair.
        keep: (m,) filled with 1 for items that remain, 0 for those united into another.

    Returns:
        How many items remain.
    """
    keep[: len(order)] = 1
    remaining = len(order)
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and items.pair[order[end]] == items.pair[order[begin]]:
            end += 1
        changed = end - begin > 1
        while changed:
            changed = False
            for i in range(begin, end):
                for j in range(begin, end):
                    a, b = order[i], order[j]
                    if i == j or not keep[a] or not keep[b] or items.slot[a] != items.slot[b]:
                        continue
                    ra, rb = items.rectangle[a], items.rectangle[b]
                    below = ra[1] == rb[0] and ra[2] == rb[2] and ra[3] == rb[3]
                    beside = ra[3] == rb[2] and ra[0] == rb[0] and ra[1] == rb[1]
                    # Sizes add up but for the input both pieces receive.
                    side = 1 if below else 0
                    size = items.size[a] + items.size[b] - items.rate[a, side]
                    if (below or beside) and size <= pairs.largest:
                        write_rectangle(
                            pairs,
                            items,
                            a,
                            items.pair[a],
                            ra[0],
                            max(ra[1], rb[1]),
                            ra[2],
                            max(ra[3], rb[3]),
                        )
                        keep[b] = 0
                        remaining -= 1
                        changed = True
        begin = end
    return remaining


@njit(cache=True, nogil=True)
def fill(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, item: int, slots: Ints
) -> bool:
    """Place a whole join on given candidates, nearest first, cut over several when none has room.

    Each candidate takes as many partitions of one input, with all of the other, as it has room for.
    Without room for everything nothing is placed and false is returned.
    """
    for slot in slots:
        if _has_room(tree, links, pairs, items, item, slot):
            attach(tree, links, pairs, items, item, slot, cost_on(tree, pairs, items, item, slot))
            return True
    first = items.used[0]
    rest = item
    for slot in slots:
        a, b, c, d = items.rectangle[rest]
        other = items.used[0]
        best_side = best_at = NONE
        best_cells = 0
        for side in range(2):
            begin, end = (a, b) if side == 0 else (c, d)
            across = (d - c) if side == 0 else (b - a)
            at = end
            # The last cut always leaves something: the join did not fit whole.
            while at > begin and (at - begin) * across > best_cells:
                write_rectangle(
                    pairs,
                    items,
                    rest,
                    items.pair[item],
                    a,
                    at if side == 0 else b,
                    c,
                    d if side == 0 else at,
                )
                if _has_room(tree, links, pairs, items, rest, slot):
                    best_side, best_at, best_cells = side, at, (at - begin) * across
                    break
                at -= 1
        write_rectangle(pairs, items, rest, items.pair[item], a, b, c, d)
        if best_side == NONE:
            continue
        done = best_cells == (b - a) * (d - c)
        if not done:
            items.pair[other] = items.pair[item]
            _write_halves(pairs, items, rest, other, best_side, best_at)
            items.used[0] = other + 1
        attach(tree, links, pairs, items, rest, slot, cost_on(tree, pairs, items, rest, slot))
        if done:
            return True
        rest = other
    # Undo: the join goes back to one unplaced item.
    for piece in range(first, items.used[0]):
        if items.slot[piece] != NONE:
            detach(tree, links, pairs, items, piece)
    if items.slot[item] != NONE:
        detach(tree, links, pairs, items, item)
    items.used[0] = first
    grid = pairs.grid[items.pair[item]]
    write_rectangle(pairs, items, item, items.pair[item], 0, grid[0], 0, grid[1])
    return False


@njit(cache=True, nogil=True)
def _has_room(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, item: int, slot: int
) -> bool:
    """Whether a slot can take an item within every constraint."""
    size = items.size[item]
    if size > pairs.largest or items.free[slot] < max(size, pairs.minimum):
        return False
    if len(links.target) == 0:
        return True
    return links_fit(tree, links, pairs.node[items.pair[item]], items.rate[item], slot)
