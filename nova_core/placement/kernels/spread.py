"""What fits nowhere, evenly over near hosts (paper, section 3.4: option 1 of overload)."""

from __future__ import annotations

import math

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import (
    CapacityTree,
    nearest,
    search_for,
    write_free,
)
from nova_core.placement.kernels.items import (
    Items,
    LinkRoom,
    Pairs,
    attach,
    cost_on,
    detach,
    needs_of,
    range_rate,
    unplaced,
    write_rectangle,
)

NONE = -1


@njit(cache=True, nogil=True)
def total(values: Floats) -> float:
    """The sum from first to last: numpy and numba add in different orders."""
    result = 0.0
    for value in values:
        result += value
    return result


@njit(cache=True, nogil=True)
def evenly(left: Floats, right: Floats, used: Floats, capacity: Floats, k: int) -> Ints:
    """Cut a join over hosts, so that the fullest of them is as little full as halving can make it.

    The hosts are halved again and again by capacity, and with them the partitions of the input at
    which the fuller half is least full; what does not get better by a cut stays whole.

    Args:
        left: (m,) rates of the left input's partitions, tuples/s.
        right: (n,) of the right input's.
        used: (h,) load of the hosts, nearest first, tuples/s.
        capacity: (h,) their capacities, tuples/s, more than 0.
        k: how many hosts to use at most; 0 for the ratio of what the join requires to the hosts'
            median capacity, and at least 2.

    Returns:
        (r, 5) rows: number of a host, first and last + 1 of the left partitions, and of the right.
    """
    some = np.flatnonzero(np.isfinite(capacity))
    if len(some) == 0:
        # They have room, but a link to them has none.
        some = np.arange(1)
    elif k == 0:
        ratio = (total(left) + total(right)) / np.median(capacity[some])
        some = some[: max(2, int(min(np.ceil(ratio), len(some))))]
    else:
        some = some[:k]
    # The largest first: where one is as large as all others, it is a half of its own.
    some = some[np.argsort(-capacity[some], kind="mergesort")]
    sums = np.zeros((2, max(len(left), len(right)) + 1))
    sums[0, 1 : len(left) + 1], sums[1, 1 : len(right) + 1] = left.cumsum(), right.cumsum()
    waiting = np.empty((len(some) + 1, 6), np.int64)  # hosts from, to; partitions as in the rows
    waiting[0] = np.array([0, len(some), 0, len(left), 0, len(right)])
    rows, count, top = np.empty((len(some), 5), np.int64), 0, 1
    while top:
        top -= 1
        low, high, a, b, c, d = waiting[top]
        if high - low == 1:
            rows[count] = np.array([some[low], a, b, c, d])
            count += 1
            continue
        middle, enough = low + 1, total(capacity[some[low:high]]) / 2
        while middle < high - 1 and total(capacity[some[low:middle]]) < enough:
            middle += 1
        nearer, farther = some[low:middle], some[middle:high]
        load = total(used[nearer]), total(used[farther])
        room = total(capacity[nearer]), total(capacity[farther])
        whole = sums[0, b] - sums[0, a], sums[1, d] - sums[1, c]
        alone = load[0] + _least(*whole, len(nearer)), load[1] + _least(*whole, len(farther))
        best = min(alone[0] / room[0], alone[1] / room[1])
        best_side = best_at = NONE
        for side in range(2):
            begin, end = (a, b) if side == 0 else (c, d)
            for at in range(begin + 1, end):
                first = _least(sums[side, at] - sums[side, begin], whole[1 - side], len(nearer))
                second = _least(sums[side, end] - sums[side, at], whole[1 - side], len(farther))
                fullest = max((load[0] + first) / room[0], (load[1] + second) / room[1])
                if fullest < best * (1 - 1e-9):
                    best, best_side, best_at = fullest, side, at
        if best_side == NONE:
            near = alone[0] / room[0] <= alone[1] / room[1]
            waiting[top, 0], waiting[top, 1] = (low, middle) if near else (middle, high)
            top += 1
        else:
            waiting[top + 1] = waiting[top]
            waiting[top, 1] = waiting[top + 1, 0] = middle
            edge = 2 * best_side
            waiting[top, 3 + edge] = waiting[top + 1, 2 + edge] = best_at
            top += 2
    return rows[:count]


@njit(cache=True, nogil=True)
def _least(left: float, right: float, hosts: int) -> float:
    """What a join of two inputs is at least over so many hosts, each with an equal part of it.

    A host that joins the share x of one input with y of the other does x * y of the work, and x + y
    is least where they are equal.
    """
    return max(left + right, 2 * math.sqrt(left * right * hosts))


@njit(cache=True, nogil=True)
def spread(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, nearby: int, k: int
) -> int:
    """Place unplaced items on near slots all the same, `evenly`; how many pieces.

    The overload this accepts is reported by the plan's verification.

    Args:
        tree: the candidate slots; its free capacities are not kept.
        links: remaining bandwidth.
        pairs: what is placed.
        items: the state, with room for ``nearby`` items more for each that is unplaced.
        nearby: near slots looked at.
        k: see `evenly`.
    """
    nowhere = unplaced(tree)
    capacity = items.free[:nowhere].copy()
    for item in range(items.used[0]):
        if items.slot[item] != nowhere:
            capacity[items.slot[item]] += items.size[item]
    write_free(tree, capacity)
    search, pieces = search_for(nearby, 1.0), 0
    for item in range(items.used[0]):
        if items.slot[item] != nowhere:
            continue
        pair = items.pair[item]
        need = max(pairs.minimum, 1e-9)
        found = nearest(tree, pairs.point[pair], need, needs_of(pairs, pair), search)
        if found == 0:
            continue
        slots = search.slot[:found][np.argsort(search.square[:found], kind="mergesort")]
        a, b, c, d = items.rectangle[item]
        rate, most, grid = pairs.rate[pair], pairs.maximum[pair], pairs.grid[pair]
        left, right = np.empty(b - a), np.empty(d - c)
        for n in range(b - a):
            left[n] = range_rate(rate[0], most, grid[0], a + n, a + n + 1)
        for n in range(d - c):
            right[n] = range_rate(rate[1], most, grid[1], c + n, c + n + 1)
        used = capacity[slots] - items.free[slots]
        detach(tree, links, pairs, items, item)
        for row in evenly(left, right, used, capacity[slots], k):
            piece = item
            if row[1] != 0 or row[3] != 0:
                piece = items.used[0]
                items.used[0] += 1
            write_rectangle(
                pairs, items, piece, pair, a + row[1], a + row[2], c + row[3], c + row[4]
            )
            slot = slots[row[0]]
            attach(tree, links, pairs, items, piece, slot, cost_on(tree, pairs, items, piece, slot))
            pieces += 1
    return pieces
