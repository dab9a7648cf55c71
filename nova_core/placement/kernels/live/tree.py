"""K-d trees of hosts that come, go and move, whose nodes carry the greatest room below them.

The static tree (`capacity_tree`) fixes its hosts when it is built. This one keeps them in leaves
with spare slots: an insertion goes down one path and now and then splits a leaf, a removal empties
a slot, so every change costs about log n. Boxes never shrink; the caller builds the tree anew once
many hosts have changed, which makes a constant share of each change.

In a large topology an event finds little of the tree in the processor's caches, and waits for
memory. So what a search looks at lies together: both children of a tree node side by side, in two
dimensions each a cache line. Kernels that events call take the arrays one by one, which numba
passes on in half the time of a tuple, and change all trees of a `Forest` in one call.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints

# Slots of a leaf, and how many are filled at most when the tree is built.
LEAF = 16
FILL = 12
# What an insertion may answer.
DONE, NO_ROOM, TOO_DEEP = range(3)
# A typed -1, as in `kernels.items`.
NONE = cast("int", np.int64(-1))
_CACHE_LINE = 64


class LiveTree(NamedTuple):
    """Hosts in leaves of a binary tree; node 0 is the root, and siblings are neighbours.

    Attributes:
        row: (slots, d + 2) coordinates, ms, rise (height and penalty, ms) and free capacity,
            tuples/s; leaf l owns slots `LEAF` l up to `LEAF` (l + 1), filled from the first.
        node: (slots,) index of the host in each slot.
        slot: (n,) slot of each node of the topology, or -1.
        box: (t, 2 d + 4) least and greatest coordinates, least rise and greatest free capacity
            below each tree node; the other two columns belong to ``link``.
        link: the memory of ``box`` as integers: in the column before the last the first child, or
            -1 - l in leaf l; in the last the hosts below.
        parent: (t,) of each tree node, -1 for the root.
        owner: (l,) tree node of each leaf.
        used: (2,) tree nodes and leaves in use.
    """

    row: Floats
    node: Ints
    slot: Ints
    box: Floats
    link: Ints
    parent: Ints
    owner: Ints
    used: Ints


class Forest(NamedTuple):
    """Trees of the same hosts: the arrays of a `LiveTree` with one more axis in front.

    The first has hosts by place; any other by their distance from a hub, as first coordinate, the
    others being zero.

    Attributes:
        row: (k, slots, d + 2).
        node: (k, slots).
        slot: (k, n).
        box: (k, t, 2 d + 4).
        link: the memory of ``box``.
        parent: (k, t).
        owner: (k, l).
        used: (k, 2).
        hub: (k - 1, d) coordinates of the hubs, ms.
    """

    row: Floats
    node: Ints
    slot: Ints
    box: Floats
    link: Ints
    parent: Ints
    owner: Ints
    used: Ints
    hub: Floats


def empty_forest(nodes: int, hosts: int, hub: Floats) -> Forest:
    """Room for a topology of ``nodes`` of which ``hosts``, and some more, are in the trees."""
    # Halving down to FILL leaves more than FILL / 2 hosts in each leaf.
    leaves = max(4, 2 * hosts // FILL + 2) * 5 // 4 + 16
    trees, dimensions = len(hub) + 1, hub.shape[1]
    box = _aligned(trees, 2 * leaves, 2 * dimensions + 4)
    return Forest(
        row=_aligned(trees, leaves * LEAF, dimensions + 2),
        node=np.full((trees, leaves * LEAF), -1, np.int64),
        slot=np.full((trees, nodes), -1, np.int64),
        box=box,
        link=box.view(np.int64),
        parent=np.full((trees, 2 * leaves), -1, np.int64),
        owner=np.full((trees, leaves), -1, np.int64),
        used=np.zeros((trees, 2), np.int64),
        hub=hub,
    )


def _aligned(*shape: int) -> Floats:
    """An array of anything, beginning with a cache line."""
    size = math.prod(shape)
    raw = np.empty(size + _CACHE_LINE // 8)
    first = -raw.ctypes.data % _CACHE_LINE // 8
    return raw[first : first + size].reshape(shape)


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
def _build(tree: LiveTree, rows: Floats, node: Ints) -> None:
    """Fill an empty tree.

    Args:
        tree: large enough.
        rows: (n, d + 2) rows of the hosts, see `LiveTree.row`; reordered.
        node: (n,) their node indices; reordered.
    """
    d = rows.shape[1] - 2
    link, below, hosts = tree.link, 2 * d + 2, 2 * d + 3
    stack = np.empty((64, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, len(node), 0
    top = count = 1
    leaves = 0
    tree.parent[0] = NONE
    while top > 0:
        top -= 1
        begin, end, t = stack[top, 0], stack[top, 1], stack[top, 2]
        link[t, hosts] = end - begin
        if end - begin <= FILL:
            leaf = leaves
            leaves += 1
            link[t, below] = NONE - leaf
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
        link[t, below] = count
        for first, last in ((begin, middle), (middle, end)):
            stack[top, 0], stack[top, 1], stack[top, 2] = first, last, count
            tree.parent[count] = t
            top += 1
            count += 1
    tree.used[0], tree.used[1] = count, leaves
    for t in range(count - 1, -1, -1):  # children come after their parent
        _bound(tree, t)


@njit(cache=True, nogil=True)
def _bound(tree: LiveTree, t: int) -> None:
    """Recompute a tree node's box from what is directly below it."""
    box, link, row = tree.box, tree.link, tree.row
    d = row.shape[1] - 2
    rise, room, a = 2 * d, 2 * d + 1, link[t, 2 * d + 2]
    if a >= 0:
        b = a + 1
        for k in range(d):
            box[t, k] = min(box[a, k], box[b, k])
            box[t, d + k] = max(box[a, d + k], box[b, d + k])
        box[t, rise] = min(box[a, rise], box[b, rise])
        box[t, room] = max(box[a, room], box[b, room])
        return
    box[t, :d], box[t, d : 2 * d] = math.inf, -math.inf
    box[t, rise], box[t, room] = math.inf, -math.inf
    first = (NONE - a) * LEAF
    for slot in range(first, first + link[t, 2 * d + 3]):
        for k in range(d):
            box[t, k] = min(box[t, k], row[slot, k])
            box[t, d + k] = max(box[t, d + k], row[slot, k])
        box[t, rise] = min(box[t, rise], row[slot, d])
        box[t, room] = max(box[t, room], row[slot, d + 1])


@njit(cache=True, nogil=True)
def _find_room(row: Floats, box: Floats, link: Ints, parent: Ints, t: int) -> None:
    """Work out the room of a leaf's tree node and of those above it, as far as it changes."""
    free, column = row.shape[1] - 1, box.shape[1] - 3
    first = (NONE - link[t, column + 1]) * LEAF
    room = -math.inf
    for slot in range(first, first + link[t, column + 2]):
        room = max(room, row[slot, free])
    while room != box[t, column]:
        box[t, column] = room
        t = parent[t]
        if t == NONE:
            return
        child = link[t, column + 1]
        room = max(box[child, column], box[child + 1, column])


@njit(cache=True, nogil=True)
def _tree(forest: Forest, number: int) -> LiveTree:
    return LiveTree(
        forest.row[number],
        forest.node[number],
        forest.slot[number],
        forest.box[number],
        forest.link[number],
        forest.parent[number],
        forest.owner[number],
        forest.used[number],
    )


@njit(cache=True, nogil=True)
def _values(hub: Floats, number: int, values: Floats) -> Floats:
    """A host's row in a tree, from that in the tree by place."""
    if number == 0:
        return values
    d = hub.shape[1]
    found = np.zeros(d + 2)
    square = 0.0
    for k in range(d):
        square += (values[k] - hub[number - 1, k]) ** 2
    found[0] = math.sqrt(square)
    found[d], found[d + 1] = values[d], values[d + 1]
    return found


@njit(cache=True, nogil=True)
def build(forest: Forest, rows: Floats, node: Ints) -> None:
    """Fill an empty forest.

    Args:
        forest: from `empty_forest`, large enough.
        rows: (n, d + 2) rows of the hosts, see `LiveTree.row`.
        node: (n,) their node indices.
    """
    for number in range(len(forest.row)):
        values = np.empty_like(rows)
        for i in range(len(rows)):
            values[i] = _values(forest.hub, number, rows[i])
        _build(_tree(forest, number), values, node.copy())


@njit(cache=True, nogil=True)
def same_place(points: Floats, row: int, point: Floats) -> bool:
    """Whether a row of (k, d) points is the (d,) point."""
    same = True
    for k in range(len(point)):
        same &= points[row, k] == point[k]
    return same


@njit(cache=True, nogil=True)
def tree_at(hub: Floats, point: Floats) -> int:
    """Number of the tree to search from a (d,) point: that of the hub it is, else the first."""
    for number in range(len(hub)):
        if same_place(hub, number, point):
            return number + 1
    return 0


@njit(cache=True, nogil=True)
def set_free(
    row: Floats,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    owner: Ints,
    node: int,
    free: float,
) -> None:
    """Change the free capacity of a host in all trees; nothing for a node that is not there."""
    last, column = row.shape[2] - 1, box.shape[2] - 3
    for h in range(len(row)):
        at = slot[h, node]
        if at == NONE:
            return
        old = row[h, at, last]
        row[h, at, last] = free
        t = owner[h, at // LEAF]
        if old == box[h, t, column] and free < old:
            _find_room(row[h], box[h], link[h], parent[h], t)
        while t != NONE and box[h, t, column] < free:
            box[h, t, column] = free
            t = parent[h, t]


@njit(cache=True, nogil=True)
def remove(
    row: Floats,
    hosts: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    owner: Ints,
    node: int,
) -> None:
    """Take a host out of all trees; nothing for a node that is not there."""
    free, room, count = row.shape[2] - 1, box.shape[2] - 3, link.shape[2] - 1
    for h in range(len(row)):
        at = slot[h, node]
        if at == NONE:
            return
        slot[h, node] = NONE
        leaf = at // LEAF
        t = owner[h, leaf]
        last = leaf * LEAF + link[h, t, count] - 1
        had = row[h, at, free]
        if at != last:
            row[h, at] = row[h, last]
            hosts[h, at] = hosts[h, last]
            slot[h, hosts[h, at]] = at
        hosts[h, last] = NONE
        above = t
        while above != NONE:
            link[h, above, count] -= 1
            above = parent[h, above]
        if had == box[h, t, room]:
            _find_room(row[h], box[h], link[h], parent[h], t)


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
    below, hosts = 2 * d + 2, 2 * d + 3
    leaf = NONE - link[t, below]
    first = leaf * LEAF
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
    child = tree.used[0]
    tree.used[0] = child + 2
    link[t, below] = child
    for here in (leaf, other):
        link[child, below], link[child, hosts] = NONE - here, half
        tree.parent[child] = t
        tree.owner[here] = child
        _bound(tree, child)
        child += 1


@njit(cache=True, nogil=True)
def _insert(tree: LiveTree, node: int, values: Floats) -> int:
    """Put a host into one tree that has a leaf to split into; its depth."""
    row, box, link = tree.row, tree.box, tree.link
    d = row.shape[1] - 2
    rise, room, below, count = 2 * d, 2 * d + 1, 2 * d + 2, 2 * d + 3
    t = 0
    depth = 0
    while True:
        for k in range(d):
            box[t, k], box[t, d + k] = min(box[t, k], values[k]), max(box[t, d + k], values[k])
        box[t, rise], box[t, room] = min(box[t, rise], values[d]), max(box[t, room], values[d + 1])
        if link[t, below] < 0:
            if link[t, count] < LEAF:
                break
            _split(tree, t)
        link[t, count] += 1
        near = link[t, below]
        to_near, to_far = _gap(box, near, values, d), _gap(box, near + 1, values, d)
        # Equal hosts go where fewer are, lest they all end up in one branch.
        if to_far < to_near or (to_far == to_near and link[near + 1, count] < link[near, count]):
            near += 1
        t = near
        depth += 1
    at = (NONE - link[t, below]) * LEAF + link[t, count]
    link[t, count] += 1
    row[at] = values
    tree.node[at] = node
    tree.slot[node] = at
    return depth


@njit(cache=True, nogil=True)
def insert(
    row: Floats,
    hosts: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    owner: Ints,
    used: Ints,
    hub: Floats,
    node: int,
    values: Floats,
    deepest: int,
) -> int:
    """Put a host into all trees.

    Args:
        row: of a `Forest`, as all arrays but ``values``.
        hosts: its ``node``.
        slot: has a row for the node.
        box: its boxes.
        link: its links.
        parent: its parents.
        owner: its owners.
        used: what is in use.
        hub: its hubs.
        node: one that is not there.
        values: (d + 2,) its row, see `LiveTree.row`.
        deepest: levels beyond which a tree counts as unbalanced.

    Returns:
        ``DONE``; ``TOO_DEEP`` when done but the forest should be built anew; ``NO_ROOM`` when
        there is no leaf left to split into somewhere, and nothing was done.
    """
    forest = Forest(row, hosts, slot, box, link, parent, owner, used, hub)
    for h in range(len(row)):
        if used[h, 1] + 1 >= owner.shape[1]:
            return NO_ROOM
    answer = DONE
    for h in range(len(row)):
        if _insert(_tree(forest, h), node, _values(hub, h, values)) > deepest:
            answer = TOO_DEEP
    return answer
