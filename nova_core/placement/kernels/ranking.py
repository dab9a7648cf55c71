"""All slots in the order of their distance from one point, the hub, and who has room.

Where a quarter of all joins share one virtual position (the sink's), the slots around it fill up to
a disc, and a search among boxes would walk the whole rim of that disc for each of these joins. In
one dimension there is no rim: the first slot with room is found in log n.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import nova_core.placement.kernels.tuning as tuning
from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints


class Ranking(NamedTuple):
    """Slots ranked from the hub outwards; without a hub every column is empty.

    Attributes:
        hub: (d,) the shared virtual position, ms.
        order: (2, n) slots, nearest first, and the rank of each slot; of equally near ones that of
            the smaller node is first.
        room: (2 m,) greatest free capacity, tuples/s, below each node of a binary tree over the
            ranks, its root at 1 and its leaves from m on.
    """

    hub: Floats
    order: Ints
    room: Floats


@njit(cache=True, nogil=True)
def square_distance(rows: Floats, rise: Floats, slot: int, point: Floats) -> float:
    """Squared distance of a slot from a point, what it rises included."""
    square = 0.0
    for k in range(len(point)):
        away = rows[slot, k] - point[k]
        square += away * away
    if len(rise) == 0:
        return square
    away = math.sqrt(square) + rise[slot, 0]
    return away * away


def no_ranking() -> Ranking:
    """The ranking of a tree without a hub."""
    return Ranking(np.empty(0), np.empty((2, 0), np.int64), np.empty(0))


def busiest_sinks(points: Floats, sink: Ints, position: Floats, most: int) -> Floats:
    """(k, d) sinks that are the virtual position of many joins, ms.

    Args:
        points: (p, d) virtual positions, ms.
        sink: (p,) sinks.
        position: (n, d) coordinates of all nodes, ms.
        most: the greatest k.
    """
    if len(points) < tuning.HUB_JOINS:
        return position[:0]
    at_sink = (points == position[sink]).all(axis=1)
    joins = np.bincount(sink[at_sink], minlength=1)
    busiest = np.argsort(-joins, kind="stable")[:most]
    return np.unique(position[busiest[joins[busiest] >= tuning.HUB_JOINS]], axis=0)


def rank_slots(hub: Floats, rows: Floats, node: Ints, rise: Floats) -> Ranking:
    """Rank slots around a hub.

    Args:
        hub: (d,) ms.
        rows: (n, d + 1) coordinates, ms, and free capacity of each slot.
        node: (n,) node indices of the slots.
        rise: what each slot rises, ms, in the first column; no rows where none does.
    """
    n = len(rows)
    square = np.zeros(n)
    for k in range(len(hub)):  # column by column: summing short rows is slow
        square += (rows[:, k] - hub[k]) ** 2
    if len(rise):
        square = (np.sqrt(square) + rise[:n, 0]) ** 2
    order = np.empty((2, n), np.int64)
    slot = np.argsort(square)
    # Few are equally near: sorting those again is cheaper than sorting all by two keys.
    equal = np.diff(square[slot]) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    slot[tied] = slot[tied][np.lexsort((node[slot[tied]], square[slot[tied]]))]
    order[0] = slot
    order[1, order[0]] = np.arange(n)
    ranking = Ranking(hub, order, np.full(2 << (n - 1).bit_length(), -np.inf))
    refresh_ranking(ranking, rows)
    return ranking


@njit(cache=True, nogil=True)
def refresh_ranking(ranking: Ranking, rows: Floats) -> None:
    """Recompute all room after free capacities were written directly."""
    room, slot, free = ranking.room, ranking.order[0], rows.shape[1] - 1
    leaves = len(room) // 2
    for i in range(len(slot)):
        room[leaves + i] = rows[slot[i], free]
    for t in range(leaves - 1, 0, -1):
        room[t] = max(room[2 * t], room[2 * t + 1])


@njit(cache=True, nogil=True)
def set_ranked(ranking: Ranking, slot: int, free: float) -> None:
    """Change one slot's free capacity, in log n."""
    room = ranking.room
    t = len(room) // 2 + ranking.order[1, slot]
    room[t] = free
    t //= 2
    while t >= 1:
        greatest = max(room[2 * t], room[2 * t + 1])
        if greatest == room[t]:
            return
        room[t] = greatest
        t //= 2


@njit(cache=True, nogil=True)
def nearest_ranked(
    ranking: Ranking, rows: Floats, rise: Floats, required: float, slots: Ints, squares: Floats
) -> int:
    """The slots nearest the hub with room for ``required``, nearest first; how many."""
    hub, order, room = ranking.hub, ranking.order, ranking.room
    leaves = len(room) // 2
    found, t = 0, 1
    if room[1] < required:
        return 0
    while True:
        while t < leaves:
            t *= 2
            if room[t] < required:
                t += 1
        slot = order[0, t - leaves]
        slots[found], squares[found] = slot, square_distance(rows, rise, slot, hub)
        found += 1
        if found == len(slots):
            return found
        # Up until there is room further out.
        while t & (t + 1) != 0 and (t % 2 == 1 or room[t + 1] < required):
            t //= 2
        if t & (t + 1) == 0:
            return found
        t += 1
