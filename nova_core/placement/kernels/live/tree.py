"""A k-d tree of hosts that come, go and move, whose nodes carry the greatest room below them.

The static tree (`capacity_tree`) fixes its hosts when it is built. This one keeps them in leaves
with spare slots: an insertion goes down one path and now and then splits a leaf, a removal empties
a slot, so every change costs about log n. Boxes never shrink; the caller builds the tree anew once
many hosts have changed, which makes a constant share of each change.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints

# Slots of a leaf, and how many are filled at most when the tree is built.
LEAF = 32
FILL = 24
# Columns of `LiveTree.link`, and what an insertion may answer.
NEAR, FAR, PARENT, CELL, COUNT = range(5)
DONE, NO_ROOM, TOO_DEEP = range(3)
# A typed -1, as in `kernels.items`.
NONE = cast("int", np.int64(-1))


class LiveTree(NamedTuple):
    """Hosts in leaves of a binary tree; node 0 is the root.

    Attributes:
        row: (slots, d + 2) coordinates, ms, rise (height and penalty, ms) and free capacity,
            tuples/s; leaf l owns slots 32 l up to 32 (l + 1), filled from the first.
        node: (slots,) index of the host in each slot.
        slot: (n,) slot of each node of the topology, or -1.
        box: (t, 2 d + 2) least and greatest coordinates, least rise and greatest free capacity
            below each tree node.
        link: (t, 5) both children (-1 in a leaf), parent, leaf number and hosts below.
        owner: (l,) tree node of each leaf.
        used: (2,) tree nodes and leaves in use.
    """

    row: Floats
    node: Ints
    slot: Ints
    box: Floats
    link: Ints
    owner: Ints
    used: Ints


def empty_tree(nodes: int, hosts: int, dimensions: int) -> LiveTree:
    """Room for a topology of ``nodes`` of which ``hosts``, and some more, are in the tree."""
    # Halving down to FILL leaves more than FILL / 2 hosts in each leaf.
    leaves = max(4, 2 * hosts // FILL + 2) * 5 // 4 + 16
    return LiveTree(
        row=np.empty((leaves * LEAF, dimensions + 2)),
        node=np.full(leaves * LEAF, -1, np.int64),
        slot=np.full(nodes, -1, np.int64),
        box=np.empty((2 * leaves, 2 * dimensions + 2)),
        link=np.full((2 * leaves, 5), -1, np.int64),
        owner=np.full(leaves, -1, np.int64),
        used=np.zeros(2, np.int64),
    )


@njit(cache=True, nogil=True)
def _select(rows: Floats, node: Ints, begin: int, end: int, middle: int, axis: int) -> None:
    """Reorder rows begin..end so that row ``middle`` splits them along an axis."""
    width = rows.shape[1]
    while end - begin > 1:
        a, b, c = rows[begin, axis], rows[(begin + end) // 2, axis], rows[end - 1, axis]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = begin, end - 1
        while i <= j:
            while rows[i, axis] < pivot:
                i += 1
            while rows[j, axis] > pivot:
                j -= 1
            if i <= j:
                for k in range(width):
                    rows[i, k], rows[j, k] = rows[j, k], rows[i, k]
                node[i], node[j] = node[j], node[i]
                i += 1
                j -= 1
        if middle <= j:
            end = j + 1
        elif middle >= i:
            begin = i
        else:
            return


@njit(cache=True, nogil=True)
def build(tree: LiveTree, rows: Floats, node: Ints) -> None:
    """Fill an empty tree.

    Args:
        tree: from `empty_tree`, large enough.
        rows: (n, d + 2) rows of the hosts, see `LiveTree.row`; reordered.
        node: (n,) their node indices; reordered.
    """
    d = rows.shape[1] - 2
    link = tree.link
    stack = np.empty((64, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, len(node), NONE
    top = 1
    count = leaves = 0
    while top > 0:
        top -= 1
        begin, end, parent = stack[top, 0], stack[top, 1], stack[top, 2]
        t = count
        count += 1
        link[t, NEAR] = link[t, FAR] = link[t, CELL] = NONE
        link[t, PARENT], link[t, COUNT] = parent, end - begin
        if parent != NONE:
            if link[parent, NEAR] == NONE:
                link[parent, NEAR] = t
            else:
                link[parent, FAR] = t
        if end - begin <= FILL:
            leaf = leaves
            leaves += 1
            link[t, CELL] = leaf
            tree.owner[leaf] = t
            for i in range(begin, end):
                slot = leaf * LEAF + i - begin
                tree.row[slot] = rows[i]
                tree.node[slot] = node[i]
                tree.slot[node[i]] = slot
            continue
        axis, widest = 0, -1.0
        for k in range(d):
            low, high = math.inf, -math.inf
            for i in range(begin, end):
                low, high = min(low, rows[i, k]), max(high, rows[i, k])
            if high - low > widest:
                axis, widest = k, high - low
        middle = (begin + end) // 2
        _select(rows, node, begin, end, middle, axis)
        for first, last in ((begin, middle), (middle, end)):
            stack[top, 0], stack[top, 1], stack[top, 2] = first, last, t
            top += 1
    tree.used[0], tree.used[1] = count, leaves
    for t in range(count - 1, -1, -1):  # children come after their parent
        _bound(tree, t)


@njit(cache=True, nogil=True)
def _bound(tree: LiveTree, t: int) -> None:
    """Recompute a tree node's box from what is directly below it."""
    box, link, row = tree.box, tree.link, tree.row
    d = row.shape[1] - 2
    if link[t, CELL] == NONE:
        a, b = link[t, NEAR], link[t, FAR]
        for k in range(d):
            box[t, k] = min(box[a, k], box[b, k])
            box[t, d + k] = max(box[a, d + k], box[b, d + k])
        box[t, 2 * d] = min(box[a, 2 * d], box[b, 2 * d])
        box[t, 2 * d + 1] = max(box[a, 2 * d + 1], box[b, 2 * d + 1])
        return
    box[t, :d], box[t, d : 2 * d] = math.inf, -math.inf
    box[t, 2 * d], box[t, 2 * d + 1] = math.inf, -math.inf
    first = link[t, CELL] * LEAF
    for slot in range(first, first + link[t, COUNT]):
        for k in range(d):
            box[t, k] = min(box[t, k], row[slot, k])
            box[t, d + k] = max(box[t, d + k], row[slot, k])
        box[t, 2 * d] = min(box[t, 2 * d], row[slot, d])
        box[t, 2 * d + 1] = max(box[t, 2 * d + 1], row[slot, d + 1])


@njit(cache=True, nogil=True)
def _raise_room(tree: LiveTree, t: int) -> None:
    """Recompute the room of a leaf's tree node and of those above it, as far as it changes."""
    box, link, row = tree.box, tree.link, tree.row
    column, free = box.shape[1] - 1, row.shape[1] - 1
    first = link[t, CELL] * LEAF
    room = -math.inf
    for slot in range(first, first + link[t, COUNT]):
        room = max(room, row[slot, free])
    box[t, column] = room
    t = link[t, PARENT]
    while t != NONE:
        room = max(box[link[t, NEAR], column], box[link[t, FAR], column])
        if room == box[t, column]:
            return
        box[t, column] = room
        t = link[t, PARENT]


@njit(cache=True, nogil=True)
def set_free(tree: LiveTree, node: int, free: float) -> None:
    """Change the free capacity of a host in the tree; nothing for a node that is not in it."""
    slot = tree.slot[node]
    if slot != NONE:
        tree.row[slot, tree.row.shape[1] - 1] = free
        _raise_room(tree, tree.owner[slot // LEAF])


@njit(cache=True, nogil=True)
def remove(tree: LiveTree, node: int) -> None:
    """Take a host out; nothing for a node that is not in the tree."""
    slot = tree.slot[node]
    if slot == NONE:
        return
    tree.slot[node] = NONE
    leaf = slot // LEAF
    t = tree.owner[leaf]
    last = leaf * LEAF + tree.link[t, COUNT] - 1
    if slot != last:
        tree.row[slot] = tree.row[last]
        tree.node[slot] = tree.node[last]
        tree.slot[tree.node[slot]] = slot
    tree.node[last] = NONE
    above = t
    while above != NONE:
        tree.link[above, COUNT] -= 1
        above = tree.link[above, PARENT]
    _raise_room(tree, t)


@njit(cache=True, nogil=True)
def _gap(box: Floats, t: int, point: Floats, d: int) -> float:
    """Squared distance from a point to a tree node's box."""
    square = 0.0
    for k in range(d):
        gap = max(box[t, k] - point[k], point[k] - box[t, d + k])
        if gap > 0.0:
            square += gap * gap
    return square


@njit(cache=True, nogil=True)
def _split(tree: LiveTree, t: int) -> None:
    """Make a full leaf's tree node an inner one with two half-full leaves below."""
    link, row, node = tree.link, tree.row, tree.node
    d = row.shape[1] - 2
    leaf, first = link[t, CELL], link[t, CELL] * LEAF
    axis, widest = 0, -1.0
    for k in range(d):
        if tree.box[t, d + k] - tree.box[t, k] > widest:
            axis, widest = k, tree.box[t, d + k] - tree.box[t, k]
    half = LEAF // 2
    _select(row, node, first, first + LEAF, first + half, axis)
    other = tree.used[1]
    tree.used[1] = other + 1
    for i in range(half):
        tree.slot[node[first + i]] = first + i
        source, target = first + half + i, other * LEAF + i
        row[target] = row[source]
        node[target] = node[source]
        node[source] = NONE
        tree.slot[node[target]] = target
    link[t, CELL] = NONE
    for side, below in ((NEAR, leaf), (FAR, other)):
        child = tree.used[0]
        tree.used[0] = child + 1
        link[t, side] = child
        link[child, NEAR] = link[child, FAR] = NONE
        link[child, PARENT], link[child, CELL], link[child, COUNT] = t, below, half
        tree.owner[below] = child
        _bound(tree, child)


@njit(cache=True, nogil=True)
def insert(tree: LiveTree, node: int, values: Floats, deepest: int) -> int:
    """Put a host in.

    Args:
        tree: where; its ``slot`` has a row for the node.
        node: one that is not in the tree.
        values: (d + 2,) its row, see `LiveTree.row`.
        deepest: levels beyond which the tree counts as unbalanced.

    Returns:
        ``DONE``; ``TOO_DEEP`` when done but the tree should be built anew; ``NO_ROOM`` when there
        is no leaf left to split into, and nothing was done.
    """
    box, link = tree.box, tree.link
    d = tree.row.shape[1] - 2
    if tree.used[1] + 1 >= len(tree.owner):
        return NO_ROOM
    t = 0
    depth = 0
    while True:
        for k in range(d):
            box[t, k], box[t, d + k] = min(box[t, k], values[k]), max(box[t, d + k], values[k])
        box[t, 2 * d] = min(box[t, 2 * d], values[d])
        box[t, 2 * d + 1] = max(box[t, 2 * d + 1], values[d + 1])
        if link[t, CELL] != NONE:
            if link[t, COUNT] < LEAF:
                break
            _split(tree, t)
        link[t, COUNT] += 1
        near, far = link[t, NEAR], link[t, FAR]
        to_near, to_far = _gap(box, near, values, d), _gap(box, far, values, d)
        # Equal hosts go where fewer are, lest they all end up in one branch.
        if to_far < to_near or (to_far == to_near and link[far, COUNT] < link[near, COUNT]):
            near = far
        t = near
        depth += 1
    slot = link[t, CELL] * LEAF + link[t, COUNT]
    link[t, COUNT] += 1
    tree.row[slot] = values
    tree.node[slot] = node
    tree.slot[node] = slot
    return TOO_DEEP if depth > deepest else DONE
