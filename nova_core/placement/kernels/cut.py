"""Cutting joins: replace an item by two smaller ones where that is cheaper, or where nothing else fits.

A cut divides one input's partitions and sends the other input to both pieces, so a cut costs capacity
and traffic; repeated cuts make any m x n grid (paper, section 3.4).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.assign import write_candidates
from nova_core.placement.kernels.capacity_tree import CapacityTree
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

# Positions tried along each input; a grid of at most this many partitions a side is searched whole.
_POSITIONS = 32
_NEARBY = 8
_PIECE_CANDIDATES = 32


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
def _join_halves(pairs: Pairs, items: Items, item: int, other: int, side: int) -> None:
    """Undo `_write_halves`."""
    a, b, c, d = items.rectangle[item]
    end = items.rectangle[other, 2 * side + 1]
    if side == 0:
        write_rectangle(pairs, items, item, items.pair[item], a, end, c, d)
    else:
        write_rectangle(pairs, items, item, items.pair[item], a, b, c, end)


@njit(cache=True, nogil=True)
def cut_in_two(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    item: int,
    limit: float,
    slots: Ints,
    squares: Floats,
) -> bool:
    """Replace an item by the two pieces that cost least together, if they cost less than ``limit``.

    The tree's free capacities are read and kept. Fails when the state is full.
    """
    other = items.count[0]
    if other == len(items.size):
        return False
    here, cost_here = items.slot[item], items.cost[item]
    detach(tree, links, pairs, items, item)
    sync(tree, items, here)
    best = limit
    best_side = best_at = NONE
    for side in range(2):
        begin, end = items.rectangle[item, 2 * side], items.rectangle[item, 2 * side + 1]
        step = max(1, (end - begin + _POSITIONS - 1) // _POSITIONS)
        for at in range(begin + step, end, step):
            _write_halves(pairs, items, item, other, side, at)
            if max(items.size[item], items.size[other]) <= pairs.largest:
                # The larger piece chooses first, as in the first pass.
                first, second = item, other
                if items.size[second] > items.size[first]:
                    first, second = second, first
                slot, cost = cheapest_with_room(
                    tree, links, pairs, items, first, slots, squares
                )
                if slot != NONE and cost < best:
                    attach(tree, links, pairs, items, first, slot, cost)
                    sync(tree, items, slot)
                    slot2, cost2 = cheapest_with_room(
                        tree, links, pairs, items, second, slots, squares
                    )
                    detach(tree, links, pairs, items, first)
                    sync(tree, items, slot)
                    if slot2 != NONE and cost + cost2 < best:
                        best, best_side, best_at = cost + cost2, side, at
            _join_halves(pairs, items, item, other, side)
    if best_side == NONE:
        attach(tree, links, pairs, items, item, here, cost_here)
        sync(tree, items, here)
        return False
    items.count[0] = other + 1
    _write_halves(pairs, items, item, other, best_side, best_at)
    first, second = item, other
    if items.size[second] > items.size[first]:
        first, second = second, first
    for piece in (first, second):
        slot, cost = cheapest_with_room(tree, links, pairs, items, piece, slots, squares)
        attach(tree, links, pairs, items, piece, slot, cost)
        sync(tree, items, slot)
    _list_piece(tree, links, pairs, items, candidates, item)
    _list_piece(tree, links, pairs, items, candidates, other)
    return True


@njit(cache=True, nogil=True)
def _list_piece(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, candidates: Candidates,
    item: int,
) -> None:
    """Give a new piece its candidates: the near slots that have room for it now."""
    slots, squares = np.empty(_PIECE_CANDIDATES, np.int64), np.empty(_PIECE_CANDIDATES)
    write_candidates(tree, pairs, items, candidates, item, slots, squares)


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
    """Cut each item of ``order``, and its pieces in turn, while that saves a share ``gain`` of its cost.

    Returns:
        How many cuts were made.
    """
    slots, squares = np.empty(_NEARBY, np.int64), np.empty(_NEARBY)
    cuts = 0
    for item in order:
        first_piece = items.count[0]
        current = item
        while True:
            if _could_gain(pairs, items, current, gain) and cut_in_two(
                tree, links, pairs, items, candidates, current,
                items.cost[current] * (1.0 - gain), slots, squares,
            ):
                cuts += 1
                continue
            # Go on with the pieces that came off this item.
            current = first_piece if current == item else current + 1
            if current >= items.count[0]:
                break
    return cuts


@njit(cache=True, nogil=True)
def _could_gain(pairs: Pairs, items: Items, item: int, gain: float) -> bool:
    """Whether an item is far enough from its ideal for a cut to pay at all."""
    rectangle = items.rectangle[item]
    if rectangle[1] - rectangle[0] + rectangle[3] - rectangle[2] == 2:
        return False
    ideal = 0.0
    pair = items.pair[item]
    for i in range(3):
        square = 0.0
        for k in range(pairs.point.shape[1]):
            square += (pairs.point[pair, k] - pairs.anchors[pair, i, k]) ** 2
        ideal += items.weights[item, i] * math.sqrt(square)
    return ideal < items.cost[item] * (1.0 - gain)


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

    Two pieces that both fit are preferred; failing that an item is halved and its halves cut in turn,
    down to single replicas. What still finds no room stays in limbo.

    Returns:
        The item to go on from once the state has grown, or -1 when all are done.
    """
    slots, squares = np.empty(_NEARBY, np.int64), np.empty(_NEARBY)
    limbo = len(tree.node)
    item = start
    while item < items.count[0]:
        if items.slot[item] != limbo:
            item += 1
            continue
        if items.count[0] == len(items.size) or candidates.used[0] + 2 * _PIECE_CANDIDATES > len(
            candidates.slot
        ):
            return item
        if items.size[item] <= pairs.largest:
            slot, cost = cheapest_with_room(tree, links, pairs, items, item, slots, squares)
            if slot != NONE:
                detach(tree, links, pairs, items, item)
                attach(tree, links, pairs, items, item, slot, cost)
                sync(tree, items, slot)
                _list_piece(tree, links, pairs, items, candidates, item)
                item += 1
                continue
        a, b, c, d = items.rectangle[item]
        if (b - a) * (d - c) == 1 or not _room_for_a_replica(tree, pairs, items, item):
            item += 1
            continue
        if cut_in_two(
            tree, links, pairs, items, candidates, item, math.inf, slots, squares
        ):
            item += 1
            continue
        # Halve the input that has more partitions; both halves wait in limbo.
        other = items.count[0]
        items.count[0] = other + 1
        detach(tree, links, pairs, items, item)
        if b - a >= d - c:
            _write_halves(pairs, items, item, other, 0, (a + b) // 2)
        else:
            _write_halves(pairs, items, item, other, 1, (c + d) // 2)
        for piece in (other, item):
            attach(
                tree, links, pairs, items, piece, limbo,
                cost_on(tree, pairs, items, piece, limbo),
            )
    return NONE


@njit(cache=True, nogil=True)
def _room_for_a_replica(tree: CapacityTree, pairs: Pairs, items: Items, item: int) -> bool:
    """Whether any slot could take the smallest replica of a pair; false ends pointless halving."""
    pair = items.pair[item]
    smallest = 0.0
    for side in range(2):
        last = pairs.rate[pair, side] - pairs.maximum[pair] * (pairs.grid[pair, side] - 1)
        smallest += min(last, pairs.maximum[pair])
    return tree.box[1, tree.box.shape[1] - 1] >= need_of(pairs, smallest)


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
                    if below or beside:
                        write_rectangle(
                            pairs, items, a, items.pair[a], ra[0], max(ra[1], rb[1]), ra[2],
                            max(ra[3], rb[3]),
                        )
                        keep[b] = 0
                        remaining -= 1
                        changed = True
        begin = end
    return remaining


