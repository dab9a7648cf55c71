"""A k-d tree whose inner nodes carry the greatest free capacity below them.

It answers "nearest node with room for c" exactly, in about log n, and takes updates in log n; it
needs no k and never overlooks a node (DESIGN, Phase III). Where nodes have heights or penalties it
also carries the least of them, so that "near" counts them; where joins require tags or memory, the
greatest free capacity of slots that have them, per requirement.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np

from nova_core.borrowing import inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels.ranking import (
    Ranking,
    nearest_ranked,
    no_ranking,
    rank_slots,
    refresh_ranking,
    set_ranked,
)
from nova_core.workers import Workers

LEAF_SIZE = 16
# Bits of a number without its sign.
MOST_REQUIREMENTS = 62
# A typed -1: a plain one is a literal to numba, which compiles callees anew for each literal.
NONE = cast("int", np.int64(-1))
# Below infinity, which is the distance to a tree node without room.
FARTHEST = np.finfo(np.float64).max


class CapacityTree(NamedTuple):
    """Candidate nodes in tree order ("slots") and an implicit complete binary tree over them.

    Tree node 1 is the root, ``2 t`` and ``2 t + 1`` are the children of t, and the last half of the
    numbers are leaves; leaf l covers slots ``l * n // leaves`` up to ``(l + 1) * n // leaves``.
    Columns that are read together lie together, for the cache's sake.

    Attributes:
        slot: (n, d + 1) coordinates, ms, and free capacity, tuples/s, of each slot.
        node: (n,) the problem's node index of each slot.
        box: (2 leaves, 2 d + 1 + r) least and greatest coordinates and greatest free capacity below
            each tree node, then that of the slots that meet each of r requirements.
        rise: (n + 2 leaves, 2) what every leg to a slot adds to its distance, ms (its height and
            penalty), and the slot's height alone; then of each tree node, the least rise below it.
            Empty without heights and penalties.
        offer: (n,) bits of the requirements each slot meets; empty where no join has any.
        ranking: the same slots around the virtual position that most joins share, if many do.
    """

    slot: Floats
    node: Ints
    box: Floats
    rise: Floats
    offer: Ints
    ranking: Ranking


class Search(NamedTuple):
    """Work space and answer of `nearest`.

    Attributes:
        slot: (k,) slots found.
        square: (k,) their squared distances.
        stack: tree nodes still to visit.
        bound: squared distances to their boxes.
        exact: 1 finds the nearest; less passes over what may be nearer by no more than a factor of
            its root, which saves visits where much around a point is full.
    """

    slot: Ints
    square: Floats
    stack: Ints
    bound: Floats
    exact: float


@njit(cache=True, nogil=True)
def search_for(k: int, exact: float) -> Search:
    """Work space for the k nearest."""
    return Search(np.empty(k, np.int64), np.empty(k), np.empty(64, np.int64), np.empty(64), exact)


@njit(cache=True, nogil=True)
def _gather(rows: Floats, node: Ints, begin: int, end: int, axis: int, bound: float) -> int:
    """Move those of the rows begin..end that lie below a bound to their front; where others begin.

    Every row is moved, whether it need be or not: that costs less than the processor's wrong
    guesses of which need be.
    """
    middle, width = begin, rows.shape[1]
    for row in range(begin, end):
        below = rows[row, axis] < bound
        if width == 3:  # two coordinates: a fifth less time than by the loop
            rows[row, 0], rows[middle, 0] = rows[middle, 0], rows[row, 0]
            rows[row, 1], rows[middle, 1] = rows[middle, 1], rows[row, 1]
            rows[row, 2], rows[middle, 2] = rows[middle, 2], rows[row, 2]
        else:
            for k in range(width):
                rows[row, k], rows[middle, k] = rows[middle, k], rows[row, k]
        node[row], node[middle] = node[middle], node[row]
        middle += below
    return middle


@njit(cache=True, nogil=True)
def select(rows: Floats, node: Ints, begin: int, end: int, middle: int, axis: int) -> None:
    """Reorder rows begin..end so that row ``middle`` splits them along an axis (quickselect)."""
    while end - begin > 1:
        # Median of three against sorted input.
        a, b, c = rows[begin, axis], rows[(begin + end) // 2, axis], rows[end - 1, axis]
        pivot = max(min(a, b), min(max(a, b), c))
        other = _gather(rows, node, begin, end, axis, pivot)
        if other == begin:  # the pivot is the least: it and its equals come first
            other = _gather(rows, node, begin, end, axis, np.nextafter(pivot, math.inf))
            if middle < other:
                return
        if middle < other:
            end = other
        else:
            begin = other


def build(
    position: Floats,
    free: Floats,
    node: Ints,
    hub: Floats | None = None,
    *,
    rise: Floats | None = None,
    meets: Bools | None = None,
) -> CapacityTree:
    """Build the tree over candidate nodes.

    Args:
        position: (N, d) coordinates of all nodes, ms.
        free: (N,) their free capacity, tuples/s.
        node: (n,) indices of the nodes that may host.
        hub: (d,) a point that many searches will start from, or None.
        rise: (N, 2) what every leg to a node adds to its distance, and its height alone, ms; None
            for nothing.
        meets: (r, N) whether nodes meet each requirement; None where no join has any.
    """
    n, d = len(node), position.shape[1]
    requirements = 0 if meets is None else len(meets)
    leaves = 1
    while leaves * LEAF_SIZE < n:
        leaves *= 2
    rises = np.empty((0, 2))
    slot, node, wide = _rows(position, free, rises if rise is None else rise, node, leaves)
    with Workers(n) as workers:
        subtrees = 1
        while subtrees < min(workers.threads, leaves):
            subtrees *= 2
        _split(0, 1, slot, node, wide, leaves, d, 1, subtrees)
        workers.run(_split, 0, subtrees, slot, node, wide, leaves, d, subtrees, leaves)
    box = _boxes(slot, leaves, d, requirements)
    offer = np.empty(0, np.int64)
    if meets is not None:
        offer = (np.int64(1) << np.arange(requirements)) @ meets[:, node]
    if rise is not None:
        rises, slot = _with_least(slot[:, d + 1 :], leaves), slot[:, : d + 1].copy()
    tree = CapacityTree(slot, node, box, rises, offer, no_ranking())
    refresh(tree)
    if hub is None:
        return tree
    return tree._replace(ranking=rank_slots(hub, tree.slot, tree.node, tree.rise))


def _with_least(rise: Floats, leaves: int) -> Floats:
    """Rows of ``rise`` of the slots, then of each tree node the least below it (see `rise`)."""
    n = len(rise)
    first = np.arange(leaves) * n // leaves
    least = np.zeros((2 * leaves, 2))
    least[:, 0] = math.inf  # of a leaf without slots
    filled = np.diff(np.append(first, n)) > 0
    least[leaves:, 0][filled] = np.minimum.reduceat(rise[:, 0], first[filled])
    level = leaves // 2
    while level:
        below = least[2 * level : 4 * level, 0]
        least[level : 2 * level, 0] = np.minimum(below[0::2], below[1::2])
        level //= 2
    return np.concatenate([rise, least])


@njit(cache=True, nogil=True)
def _rows(
    position: Floats, free: Floats, rise: Floats, node: Ints, leaves: int
) -> tuple[Floats, Ints, Floats]:
    """Rows of the slots in no order yet, their nodes, and room for the extents of tree nodes.

    Rises split the tree like one more coordinate: where low nodes are apart from tall ones, the
    least rise below a tree node tells more.

    Returns:
        (n, d + 1, or d + 3 with rises) coordinates, free capacity and rises; (n,) nodes; and
        (2 leaves, 2, d, or d + 1 with rises) least and greatest of what may be split, the root's
        filled in.
    """
    n, d = len(node), position.shape[1]
    tall = len(rise) > 0
    slot = np.empty((n, d + 3 if tall else d + 1))
    for i in range(n):
        slot[i, :d] = position[node[i]]
        slot[i, d] = free[node[i]]
        if tall:
            slot[i, d + 1 :] = rise[node[i]]
    wide = np.empty((2 * leaves, 2, d + 1 if tall else d))
    for k in range(wide.shape[2]):
        column = slot[:, k if k < d else d + 1]
        wide[1, 0, k], wide[1, 1, k] = column.min(), column.max()
    return slot, node.copy(), wide


@njit(cache=True, nogil=True)
def _split(
    begin: int,
    end: int,
    slot: Floats,
    node: Ints,
    wide: Floats,
    leaves: int,
    d: int,
    roots: int,
    until: int,
) -> None:
    """Split subtrees, each tree node along its widest axis; any threads may, side by side.

    Args:
        begin: the first subtree.
        end: behind the last one.
        slot: (n, ...) rows of the slots, reordered.
        node: (n,) their nodes, reordered alike.
        wide: extents of tree nodes (`_rows`). Downwards, boxes are only halved at the splits, which
            suffices to choose the widest axis.
        leaves: number of leaves of the whole tree.
        d: number of coordinates; what is split beyond them lies behind the free capacity.
        roots: how many subtrees there are, a power of two.
        until: how many tree nodes the first level has that is not split.
    """
    n, first, count = len(slot), roots + begin, end - begin
    width = leaves // roots  # leaves below each tree node of the level
    while width > leaves // until:
        for t in range(first, first + count):
            leaf = t * width - leaves
            low, high = leaf * n // leaves, (leaf + width) * n // leaves
            middle = (leaf + width // 2) * n // leaves
            axis = 0
            for k in range(1, wide.shape[2]):
                if wide[t, 1, k] - wide[t, 0, k] > wide[t, 1, axis] - wide[t, 0, axis]:
                    axis = k
            column = axis if axis < d else d + 1
            select(slot, node, low, high, middle, column)
            wide[2 * t], wide[2 * t + 1] = wide[t], wide[t]
            wide[2 * t, 1, axis] = wide[2 * t + 1, 0, axis] = slot[middle, column]
        first, count, width = 2 * first, 2 * count, width // 2


@njit(cache=True, nogil=True)
def _boxes(slot: Floats, leaves: int, d: int, requirements: int) -> Floats:
    """Boxes of all tree nodes, as small as what they hold; their room is left to `refresh`."""
    n, box = len(slot), np.empty((2 * leaves, 2 * d + 1 + requirements))
    for leaf in range(leaves):
        t = leaves + leaf
        box[t, :d], box[t, d:] = math.inf, -math.inf
        for r in range(leaf * n // leaves, (leaf + 1) * n // leaves):
            for k in range(d):
                box[t, k] = min(box[t, k], slot[r, k])
                box[t, d + k] = max(box[t, d + k], slot[r, k])
    for t in range(leaves - 1, 0, -1):
        for k in range(d):
            box[t, k] = min(box[2 * t, k], box[2 * t + 1, k])
            box[t, d + k] = max(box[2 * t, d + k], box[2 * t + 1, d + k])
    return box


@njit(cache=True, nogil=True)
def refresh(tree: CapacityTree) -> None:
    """Recompute every tree node's room after free capacities were written directly."""
    leaves, rooms = len(tree.box) // 2, tree.box.shape[1]
    for room in range(2 * (tree.slot.shape[1] - 1), rooms):
        for leaf in range(leaves):
            _refresh_leaf(tree.slot, tree.box, tree.offer, leaf, room)
        for t in range(leaves - 1, 0, -1):
            tree.box[t, room] = max(tree.box[2 * t, room], tree.box[2 * t + 1, room])
    if len(tree.ranking.hub):
        refresh_ranking(tree.ranking, tree.slot)


@njit(cache=True, nogil=True)
def write_free(tree: CapacityTree, free: Floats) -> None:
    """Change the free capacity of all slots, tuples/s; ``free`` may have more entries."""
    tree.slot[:, tree.slot.shape[1] - 1] = free[: len(tree.slot)]
    refresh(tree)


@njit(cache=True, nogil=True)
def _refresh_leaf(rows: Floats, box: Floats, offer: Ints, leaf: int, column: int) -> None:
    n, free, leaves = len(rows), rows.shape[1] - 1, len(box) // 2
    requirement = column - 2 * free  # 0 is for slots of every kind
    room = -math.inf
    for slot in range(leaf * n // leaves, (leaf + 1) * n // leaves):
        if requirement == 0 or (offer[slot] >> (requirement - 1)) & 1:
            room = max(room, rows[slot, free])
    box[leaves + leaf, column] = room


@njit(cache=True, nogil=True)
def meets(tree: CapacityTree, slot: int, requirement: int) -> bool:
    """Whether a slot meets a requirement, counted from 1."""
    return (tree.offer[slot] >> (requirement - 1)) & 1 == 1


@njit(cache=True, nogil=True)
def set_free(tree: CapacityTree, slot: int, free: float) -> None:
    """Change one slot's free capacity, in log n."""
    if len(tree.ranking.hub):
        set_ranked(tree.ranking, slot, free)
    rows, box, offer = tree.slot, tree.box, tree.offer
    n, leaves, rooms, last = len(rows), len(box) // 2, box.shape[1], rows.shape[1] - 1
    greater = max(rows[slot, last], free)
    rows[slot, last] = free
    leaf = slot * leaves // n
    while (leaf + 1) * n // leaves <= slot:
        leaf += 1
    for column in range(2 * last, rooms):
        if greater < box[leaves + leaf, column]:
            continue  # another slot has the most
        _refresh_leaf(rows, box, offer, leaf, column)
        t = (leaves + leaf) // 2
        while t >= 1:
            room = max(box[2 * t, column], box[2 * t + 1, column])
            if room == box[t, column]:
                break
            box[t, column] = room
            t //= 2


@njit(cache=True, nogil=True)
def box_distance(box: Floats, t: int, point: Floats) -> float:
    """Squared distance from a point to a tree node's box."""
    d = len(point)
    square = 0.0
    for k in range(d):
        gap = max(box[t, k] - point[k], point[k] - box[t, d + k])
        if gap > 0.0:
            square += gap * gap
    return square


@inlined
def flat_distance(box: Floats, t: int, x: float, y: float) -> float:
    """The same in two dimensions; a call with arrays takes a fifth of a search."""
    across = max(box[t, 0] - x, x - box[t, 2], 0.0)
    along = max(box[t, 1] - y, y - box[t, 3], 0.0)
    return across * across + along * along


@njit(cache=True, nogil=True)
def _is(point: Floats, hub: Floats) -> bool:
    same = True
    for k in range(len(hub)):
        same &= point[k] == hub[k]
    return same


@inlined
def _farther(nodes: Ints, square_a: float, slot_a: int, square_b: float, slot_b: int) -> bool:
    """Whether a is farther than b; equally far nodes are ordered by index, for determinism."""
    if square_a != square_b:
        return square_a > square_b
    return nodes[slot_a] > nodes[slot_b]


@njit(cache=True, nogil=True)
def _sift(nodes: Ints, slots: Ints, squares: Floats, i: int) -> None:
    """Restore the heap (farthest on top) below entry i."""
    while True:
        child = 2 * i + 1
        if child >= len(slots):
            return
        if child + 1 < len(slots):
            child += _farther(
                nodes, squares[child + 1], slots[child + 1], squares[child], slots[child]
            )
        if not _farther(nodes, squares[child], slots[child], squares[i], slots[i]):
            return
        slots[i], slots[child] = slots[child], slots[i]
        squares[i], squares[child] = squares[child], squares[i]
        i = child


@njit(cache=True, nogil=True)
def nearest(tree: CapacityTree, point: Floats, required: float, needs: int, search: Search) -> int:
    """The nearest slots with room for ``required``, in no particular order.

    Distances include what slots rise. Of slots equally near, those with the smaller node index are
    taken.

    Args:
        tree: where to look.
        point: (d,) a virtual position.
        required: tuples/s a slot must have free.
        needs: the requirement a slot must meet, counted from 1; 0 for none.
        search: filled with the slots found and their squared distances.

    Returns:
        How many were found, at most k.
    """
    if len(tree.ranking.hub) and not needs and _is(point, tree.ranking.hub):
        return nearest_ranked(
            tree.ranking, tree.slot, tree.rise, required, search.slot, search.square
        )
    # Columns named once: reading them out of the tuple in the loop costs a reference count each.
    rows, nodes, box, rise, offer = tree.slot, tree.node, tree.box, tree.rise, tree.offer
    slots, squares, stack, bounds = search.slot, search.square, search.stack, search.bound
    k, d, exact = len(slots), len(point), search.exact
    n, leaves, room = len(rows), len(box) // 2, 2 * d + needs
    tall = len(rise) > 0
    flat, x, y = d == 2, point[0], point[d - 1]
    found = 0
    if box[1, room] < required:
        return 0
    stack[0], bounds[0] = 1, 0.0
    top = 1
    limit = cut = FARTHEST  # the farthest of the k found, and beyond what nothing is visited
    while top > 0:
        top -= 1
        t, bound = stack[top], bounds[top]
        while t < leaves and bound <= cut:  # down to the nearest leaf
            near, far = 2 * t, 2 * t + 1
            near_bound = far_bound = math.inf
            if box[near, room] >= required:
                near_bound = (
                    flat_distance(box, near, x, y) if flat else box_distance(box, near, point)
                )
            if box[far, room] >= required:
                far_bound = flat_distance(box, far, x, y) if flat else box_distance(box, far, point)
            if tall:
                away = math.sqrt(near_bound) + rise[n + near, 0]
                near_bound = away * away
                away = math.sqrt(far_bound) + rise[n + far, 0]
                far_bound = away * away
            if far_bound < near_bound:
                near, far = far, near
                near_bound, far_bound = far_bound, near_bound
            if far_bound <= cut:
                stack[top], bounds[top] = far, far_bound
                top += 1
            t, bound = near, near_bound
        if bound > cut:
            continue
        leaf = t - leaves
        for slot in range(leaf * n // leaves, (leaf + 1) * n // leaves):
            if rows[slot, d] < required or (needs and not (offer[slot] >> (needs - 1)) & 1):
                continue
            if flat:
                away, aside = rows[slot, 0] - x, rows[slot, 1] - y
                square = away * away + aside * aside
            else:
                square = 0.0
                for m in range(d):
                    away = rows[slot, m] - point[m]
                    square += away * away
            if tall:
                away = math.sqrt(square) + rise[slot, 0]
                square = away * away
            if square > limit:
                continue
            if found < k:
                slots[found], squares[found] = slot, square
                found += 1
                if found == k:
                    for i in range(k // 2 - 1, -1, -1):
                        _sift(nodes, slots, squares, i)
                    limit, cut = squares[0], exact * squares[0]
            elif _farther(nodes, limit, slots[0], square, slot):
                slots[0], squares[0] = slot, square
                _sift(nodes, slots, squares, 0)
                limit, cut = squares[0], exact * squares[0]
    return found
