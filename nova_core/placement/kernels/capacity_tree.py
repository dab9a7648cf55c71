"""K-d trees of hosts whose inner nodes carry the greatest free capacity below them.

They answer "nearest host with room for c" exactly, in about log n, and take updates in log n; they
need no k and never overlook a host (DESIGN, Phase III). Distances include what every leg to a host
costs by its height and penalty; where joins require tags or memory, tree nodes carry the greatest
free capacity of the hosts that meet each requirement, too.

Many joins may have one virtual position (a sink's, mostly). The hosts around it are full up to a
rim that a search by place walks along, host by host. By their distance from such a hub, hosts lie
on a line, and the nearest with room is found in log n. So there is one more tree for each hub.

Live placement leaves spare slots in the leaves: an insertion goes down one path and now and then
splits a leaf, a removal empties a slot, so every change costs about log n. Boxes never shrink; the
caller builds the trees anew once many hosts have changed.

In a large topology a search waits for memory. So what it looks at lies together: both children of a
tree node side by side, in two dimensions each a cache line.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from numba import njit

from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels import tuning

# Slots of a leaf, and how many are filled when hosts may come.
LEAF = 16
FILL = 12
# What an insertion may answer.
DONE, NO_ROOM, TOO_DEEP = range(3)
# A typed -1: a plain one is a literal to numba, which compiles callees anew for each literal.
NONE = cast("int", np.int64(-1))
# Last columns of a host's row, and of a tree node's box.
ACCESS, FREE = -2, -1
LEAST_ACCESS, CHILD, COUNT = -3, -2, -1
# Tree nodes that wait in a search at most; the caller keeps trees far flatter.
_STACK = 256
# Distances are compared by their squares; what may be near enough but for rounding is looked at.
_ROUNDING = 1 + 1e-12
_CACHE_LINE = 64


class CapacityTree(NamedTuple):
    """Trees of the same hosts: the first by place, the others by distance from a hub.

    Each has hosts in slots, 16 to a leaf; tree node 0 is the root, and siblings are neighbours. In
    the tree of a hub the first coordinate is the distance, ms, and the others are zero.

    Attributes:
        row: (k, slots, d + 2) coordinates, access cost (height and penalty), ms, and free capacity,
            tuples/s; leaf l owns slots `LEAF` l up to `LEAF` (l + 1), filled from the first.
        node: (k, slots) index of the host in each slot, -1 for none.
        slot: (k, n) slot of each node of the topology, or -1.
        box: (k, t, 2 d + 4 + r) of each tree node the least and greatest coordinates below; the
            greatest free capacity of any host, and of those that meet each of r requirements; the
            least access cost; the other two columns belong to ``link``.
        link: the memory of ``box`` as integers: in column `CHILD` the first child, or -1 - l in
            leaf l; in column `COUNT` the hosts below.
        parent: (k, t) of each tree node, -1 for the root.
        owner: (k, l) tree node of each leaf.
        used: (k, 2) tree nodes and leaves in use.
        hub: (k - 1, d) coordinates of the hubs, ms.
        offer: (n,) bits of the requirements each node meets; empty where there are none.
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
    offer: Ints


class Search(NamedTuple):
    """Work space and answer of `nearest`.

    Attributes:
        slot: (k,) slots found, of the first tree.
        distance: (k,) their distances and access costs, ms.
        stack: tree nodes still to visit.
        bound: squared distances to their boxes.
        exact: 1 finds the nearest; less passes over what may be nearer by no more than this factor,
            which saves visits where much around a point is full.
    """

    slot: Ints
    distance: Floats
    stack: Ints
    bound: Floats
    exact: float


@njit(cache=True, nogil=True)
def search_for(k: int, exact: float) -> Search:
    """Work space for the k nearest."""
    return Search(
        np.empty(k, np.int64), np.empty(k), np.empty(_STACK, np.int64), np.empty(_STACK), exact
    )


# --- building -------------------------------------------------------------------------------------


def build(
    position: Floats,
    free: Floats,
    node: Ints,
    hub: Floats | None = None,
    *,
    access: Floats | None = None,
    meets: Bools | None = None,
) -> CapacityTree:
    """Trees over hosts that stay as they are, without spare slots.

    Host i of the first tree's order is in slot i.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        free: (n,) their free capacity, tuples/s.
        node: (h,) indices of the nodes that may host.
        hub: (k, d) points that many searches will start from, or None.
        access: (n,) what every leg to a node adds to its distance, ms; None for nothing.
        meets: (r, n) whether nodes meet each requirement; None where no join has any.
    """
    count, d = position.shape
    rows = np.zeros((len(node), d + 2))
    rows[:, :d], rows[:, FREE] = position[node], free[node]
    if access is not None:
        rows[:, ACCESS] = access[node]
    hubs = np.empty((0, d)) if hub is None else hub
    tree = empty_tree(count, len(node), hubs, 0 if meets is None else len(meets), LEAF)
    if meets is not None:
        tree.offer[:] = offered(meets)
    fill(tree, rows, node, LEAF)
    return tree


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


def offered(meets: Bools) -> Ints:
    """(n,) bits of the requirements that nodes meet, from (r, n)."""
    return np.asarray((np.int64(1) << np.arange(len(meets))) @ meets)


def empty_tree(nodes: int, hosts: int, hub: Floats, requirements: int, filled: int) -> CapacityTree:
    """Room for trees of a topology.

    Args:
        nodes: of the topology.
        hosts: of these; there is room for some more if leaves are not filled.
        hub: (k, d) points that many searches will start from, ms; of no use in one dimension.
        requirements: how many joins have.
        filled: slots of a leaf to be filled, at most `LEAF`.
    """
    dimensions = hub.shape[1]
    if dimensions < 2:
        hub = hub[:0]
    leaves = max(1, -(-hosts // filled))
    if filled < LEAF:
        leaves = leaves * 5 // 4 + 16
    trees = len(hub) + 1
    box = _aligned(trees, 2 * leaves, 2 * dimensions + 4 + requirements)
    return CapacityTree(
        row=_aligned(trees, leaves * LEAF, dimensions + 2),
        node=np.full((trees, leaves * LEAF), -1, np.int64),
        slot=np.full((trees, nodes), -1, np.int64),
        box=box,
        link=box.view(np.int64),
        parent=np.full((trees, 2 * leaves), -1, np.int64),
        owner=np.full((trees, leaves), -1, np.int64),
        used=np.zeros((trees, 2), np.int64),
        hub=np.ascontiguousarray(hub),
        offer=np.zeros(nodes if requirements else 0, np.int64),
    )


def _aligned(*shape: int) -> Floats:
    """An array of zeros, beginning with a cache line."""
    size = math.prod(shape)
    raw = np.zeros(size + _CACHE_LINE // 8)
    first = -raw.ctypes.data % _CACHE_LINE // 8
    return raw[first : first + size].reshape(shape)


def fill(tree: CapacityTree, rows: Floats, node: Ints, filled: int) -> None:
    """Fill empty trees.

    Args:
        tree: from `empty_tree`.
        rows: (h, d + 2) rows of the hosts, see `CapacityTree.row`.
        node: (h,) their node indices.
        filled: slots of each leaf to be filled.
    """
    _build(tree, 0, rows.copy(), node.copy(), filled)
    for number, hub in enumerate(tree.hub):
        around = np.zeros_like(rows)
        around[:, 0] = np.sqrt(sum((rows[:, k] - hub[k]) ** 2 for k in range(len(hub))))
        around[:, ACCESS:] = rows[:, ACCESS:]
        order = np.argsort(around[:, 0], kind="stable")
        _build(tree, number + 1, around[order], node[order], filled)


@njit(cache=True, nogil=True)
def _build(tree: CapacityTree, h: int, rows: Floats, node: Ints, filled: int) -> None:
    """Fill one empty tree.

    Access costs split it like one more coordinate: where low hosts are apart from tall ones, the
    least access cost below a tree node tells more.

    Args:
        tree: large enough.
        h: number of the tree; that of a hub has its rows sorted.
        rows: (h, d + 2) rows of the hosts; reordered.
        node: (h,) their node indices; reordered.
        filled: slots of each leaf to be filled.
    """
    row, nodes, slot, link = tree.row[h], tree.node[h], tree.slot[h], tree.link[h]
    parent, owner = tree.parent[h], tree.owner[h]
    axes = rows.shape[1] - 1
    stack = np.empty((64, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, len(node), 0
    # Downwards, boxes are only halved at the splits, which suffices to choose the widest axis.
    wide = np.zeros((64, 2, axes))
    for k in range(axes):
        if len(node):
            wide[0, 0, k], wide[0, 1, k] = rows[:, k].min(), rows[:, k].max()
    top = count = 1
    parent[0] = NONE
    while top > 0:
        top -= 1
        begin, end, t = stack[top, 0], stack[top, 1], stack[top, 2]
        link[t, COUNT] = end - begin
        if end - begin <= filled:
            leaf = begin // filled
            link[t, CHILD] = NONE - leaf
            owner[leaf] = t
            for i in range(begin, end):
                at = leaf * LEAF + i - begin
                row[at] = rows[i]
                nodes[at] = node[i]
                slot[node[i]] = at
            continue
        middle = begin + (end - begin + filled - 1) // filled // 2 * filled
        axis = 0
        if h == 0:
            for k in range(1, axes):
                if wide[top, 1, k] - wide[top, 0, k] > wide[top, 1, axis] - wide[top, 0, axis]:
                    axis = k
            _select(rows, node, begin, end, middle, axis)
        link[t, CHILD] = count
        wide[top + 1] = wide[top]
        wide[top, 1, axis] = wide[top + 1, 0, axis] = rows[middle, axis]
        for first, last in ((begin, middle), (middle, end)):
            stack[top, 0], stack[top, 1], stack[top, 2] = first, last, count
            parent[count] = t
            top += 1
            count += 1
    tree.used[h, 0], tree.used[h, 1] = count, max(1, (len(node) + filled - 1) // filled)
    for t in range(count - 1, -1, -1):  # children come after their parent
        _bound(tree, h, t)


@njit(cache=True, nogil=True)
def _gather(rows: Floats, node: Ints, begin: int, end: int, axis: int, bound: float) -> int:
    """Move those of the rows begin..end that lie below a bound to their front; where others begin.

    Every row is moved, whether it need be or not: that costs less than the processor's wrong
    guesses of which need be.
    """
    middle, width = begin, rows.shape[1]
    for row in range(begin, end):
        below = rows[row, axis] < bound
        if width == 4:  # two coordinates: a fifth less time than by the loop
            rows[row, 0], rows[middle, 0] = rows[middle, 0], rows[row, 0]
            rows[row, 1], rows[middle, 1] = rows[middle, 1], rows[row, 1]
            rows[row, 2], rows[middle, 2] = rows[middle, 2], rows[row, 2]
            rows[row, 3], rows[middle, 3] = rows[middle, 3], rows[row, 3]
        else:
            for k in range(width):
                rows[row, k], rows[middle, k] = rows[middle, k], rows[row, k]
        node[row], node[middle] = node[middle], node[row]
        middle += below
    return middle


@njit(cache=True, nogil=True)
def _select(rows: Floats, node: Ints, begin: int, end: int, middle: int, axis: int) -> None:
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


@njit(cache=True, nogil=True)
def _bound(tree: CapacityTree, h: int, t: int) -> None:
    """Recompute a tree node's box from what is directly below it."""
    box, link, row = tree.box[h], tree.link[h], tree.row[h]
    d = row.shape[1] - 2
    a = link[t, CHILD]
    if a >= 0:
        for k in range(d):
            box[t, k] = min(box[a, k], box[a + 1, k])
            box[t, d + k] = max(box[a, d + k], box[a + 1, d + k])
        box[t, LEAST_ACCESS] = min(box[a, LEAST_ACCESS], box[a + 1, LEAST_ACCESS])
    else:
        box[t, :d], box[t, d : 2 * d], box[t, LEAST_ACCESS] = math.inf, -math.inf, math.inf
        first = (NONE - a) * LEAF
        for slot in range(first, first + link[t, COUNT]):
            for k in range(d):
                box[t, k] = min(box[t, k], row[slot, k])
                box[t, d + k] = max(box[t, d + k], row[slot, k])
            box[t, LEAST_ACCESS] = min(box[t, LEAST_ACCESS], row[slot, ACCESS])
    for column in range(2 * d, box.shape[1] + LEAST_ACCESS):
        box[t, column] = _room(tree, h, t, column)


@njit(cache=True, nogil=True)
def _room(tree: CapacityTree, h: int, t: int, column: int) -> float:
    """Greatest free capacity directly below a tree node, of a column of ``box``."""
    box, link, row = tree.box[h], tree.link[h], tree.row[h]
    a, requirement = link[t, CHILD], column - 2 * (row.shape[1] - 2)
    if a >= 0:
        return max(box[a, column], box[a + 1, column])
    room = -math.inf
    first = (NONE - a) * LEAF
    for slot in range(first, first + link[t, COUNT]):
        if requirement == 0 or meets(tree, tree.node[h, slot], requirement):
            room = max(room, row[slot, FREE])
    return room


@njit(cache=True, nogil=True)
def meets(tree: CapacityTree, node: int, requirement: int) -> bool:
    """Whether a node meets a requirement, counted from 1."""
    return (tree.offer[node] >> (requirement - 1)) & 1 == 1


# --- changing -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def write_free(tree: CapacityTree, free: Floats) -> None:
    """Change the free capacity of all hosts, given by slot of the first tree, tuples/s."""
    for h in range(len(tree.row)):
        for t in range(tree.used[h, 0] - 1, -1, -1):
            if tree.link[h, t, CHILD] < 0:
                first = (NONE - tree.link[h, t, CHILD]) * LEAF
                for slot in range(first, first + tree.link[h, t, COUNT]):
                    tree.row[h, slot, FREE] = free[tree.slot[0, tree.node[h, slot]]]
            for column in range(2 * tree.hub.shape[1], tree.box.shape[2] + LEAST_ACCESS):
                tree.box[h, t, column] = _room(tree, h, t, column)


@njit(cache=True, nogil=True)
def set_free(tree: CapacityTree, slot: int, free: float) -> None:
    """Change the free capacity of the host in a slot of the first tree, in log n."""
    row, box, parent, rooms = tree.row, tree.box, tree.parent, 2 * tree.hub.shape[1]
    node = tree.node[0, slot]
    for h in range(len(row)):
        at = slot if h == 0 else tree.slot[h, node]
        old = row[h, at, FREE]
        row[h, at, FREE] = free
        leaf = tree.owner[h, at // LEAF]
        for column in range(rooms, box.shape[2] + LEAST_ACCESS):
            if column > rooms and not meets(tree, node, column - rooms):
                continue
            if free < old and old == box[h, leaf, column]:
                _lower_room(tree, h, leaf, column)
                continue
            t = leaf
            while t != NONE and box[h, t, column] < free:
                box[h, t, column] = free
                t = parent[h, t]


@njit(cache=True, nogil=True)
def _lower_room(tree: CapacityTree, h: int, t: int, column: int) -> None:
    """Recompute the room of a leaf's tree node and of those above it, as far as it changes."""
    while t != NONE:
        room = _room(tree, h, t, column)
        if room == tree.box[h, t, column]:
            return
        tree.box[h, t, column] = room
        t = tree.parent[h, t]


@njit(cache=True, nogil=True)
def remove(tree: CapacityTree, node: int) -> None:
    """Take a host out of all trees; nothing for a node that is in none."""
    row, slots, link = tree.row, tree.slot, tree.link
    if slots[0, node] == NONE:
        return
    for h in range(len(row)):
        at = slots[h, node]
        slots[h, node] = NONE
        leaf = at // LEAF
        t = tree.owner[h, leaf]
        last = leaf * LEAF + link[h, t, COUNT] - 1
        row[h, at] = row[h, last]
        moved = tree.node[h, at] = tree.node[h, last]
        if at != last:
            slots[h, moved] = at
        tree.node[h, last] = NONE
        above = t
        while above != NONE:
            link[h, above, COUNT] -= 1
            above = tree.parent[h, above]
        for column in range(2 * tree.hub.shape[1], tree.box.shape[2] + LEAST_ACCESS):
            _lower_room(tree, h, t, column)


@njit(cache=True, nogil=True)
def insert(tree: CapacityTree, node: int, values: Floats, deepest: int) -> int:
    """Put a host into all trees.

    Args:
        tree: has a column of ``slot`` for the node.
        node: one that is in none of them.
        values: (d + 2,) its row, see `CapacityTree.row`.
        deepest: levels beyond which a tree counts as unbalanced.

    Returns:
        ``DONE``; ``TOO_DEEP`` when done but the trees should be built anew; ``NO_ROOM`` when there
        is no leaf left to split into somewhere, and nothing was done.
    """
    for h in range(len(tree.row)):
        if tree.used[h, 1] + 1 >= tree.owner.shape[1]:
            return NO_ROOM
    answer = DONE
    for h in range(len(tree.row)):
        own = values
        if h > 0:
            own = np.zeros(len(values))
            own[0] = math.sqrt(_square(values, tree.hub[h - 1]))
            own[ACCESS], own[FREE] = values[ACCESS], values[FREE]
        if _insert(tree, h, node, own) > deepest:
            answer = TOO_DEEP
    return answer


@njit(cache=True, nogil=True)
def _square(row: Floats, point: Floats) -> float:
    square = 0.0
    for k in range(len(point)):
        square += (row[k] - point[k]) ** 2
    return square


@njit(cache=True, nogil=True)
def _insert(tree: CapacityTree, h: int, node: int, values: Floats) -> int:
    """Put a host into one tree that has a leaf to split into; its depth."""
    box, link = tree.box[h], tree.link[h]
    d, rooms = len(values) - 2, 2 * (len(values) - 2)
    point = values[:d]
    t = 0
    depth = 0
    while True:
        for k in range(d):
            box[t, k], box[t, d + k] = min(box[t, k], values[k]), max(box[t, d + k], values[k])
        box[t, LEAST_ACCESS] = min(box[t, LEAST_ACCESS], values[ACCESS])
        for column in range(rooms, box.shape[1] + LEAST_ACCESS):
            if column == rooms or meets(tree, node, column - rooms):
                box[t, column] = max(box[t, column], values[FREE])
        if link[t, CHILD] < 0:
            if link[t, COUNT] < LEAF:
                break
            _split(tree, h, t)
        link[t, COUNT] += 1
        near = link[t, CHILD]
        to_near, to_far = box_distance(box, near, point), box_distance(box, near + 1, point)
        # Equal hosts go where fewer are: else they all end up in one branch.
        if to_far < to_near or (to_far == to_near and link[near + 1, COUNT] < link[near, COUNT]):
            near += 1
        t = near
        depth += 1
    at = (NONE - link[t, CHILD]) * LEAF + link[t, COUNT]
    link[t, COUNT] += 1
    tree.row[h, at] = values
    tree.node[h, at] = node
    tree.slot[h, node] = at
    return depth


@njit(cache=True, nogil=True)
def _split(tree: CapacityTree, h: int, t: int) -> None:
    """Make a full leaf's tree node an inner one with two half-full leaves below."""
    link, row, node, slot, box = tree.link[h], tree.row[h], tree.node[h], tree.slot[h], tree.box[h]
    d = row.shape[1] - 2
    leaf = NONE - link[t, CHILD]
    first = leaf * LEAF
    axis, widest = 0, -1.0
    for k in range(d):
        if box[t, d + k] - box[t, k] > widest:
            axis, widest = k, box[t, d + k] - box[t, k]
    half = LEAF // 2
    _select(row, node, first, first + LEAF, first + half, axis)
    other = tree.used[h, 1]
    tree.used[h, 1] = other + 1
    for i in range(half):
        slot[node[first + i]] = first + i
        source, target = first + half + i, other * LEAF + i
        row[target] = row[source]
        node[target] = node[source]
        node[source] = NONE
        slot[node[target]] = target
    child = tree.used[h, 0]
    tree.used[h, 0] = child + 2
    link[t, CHILD] = child
    for here in (leaf, other):
        link[child, CHILD], link[child, COUNT] = NONE - here, half
        tree.parent[h, child] = t
        tree.owner[h, here] = child
        _bound(tree, h, child)
        child += 1


# --- searching ------------------------------------------------------------------------------------


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


@njit(cache=True, nogil=True, inline="always")
def _flat_distance(box: Floats, t: int, x: float, y: float) -> float:
    """The same in two dimensions; a call with arrays takes a fifth of a search."""
    across = max(box[t, 0] - x, x - box[t, 2], 0.0)
    along = max(box[t, 1] - y, y - box[t, 3], 0.0)
    return across * across + along * along


@njit(cache=True, nogil=True)
def same_place(points: Floats, row: int, point: Floats) -> bool:
    """Whether a row of (k, d) points is the (d,) point."""
    same = True
    for k in range(len(point)):
        same &= points[row, k] == point[k]
    return same


@njit(cache=True, nogil=True)
def _tree_at(hub: Floats, point: Floats) -> int:
    """Number of the tree to search from a (d,) point: that of the hub it is, else the first."""
    for number in range(len(hub)):
        if same_place(hub, number, point):
            return number + 1
    return 0


@njit(cache=True, nogil=True, inline="always")
def _farther(distance_a: float, node_a: int, distance_b: float, node_b: int) -> bool:
    """Whether a is farther than b; equally far nodes are ordered by index, for determinism."""
    return distance_a > distance_b or (distance_a == distance_b and node_a > node_b)


@njit(cache=True, nogil=True)
def _sift(nodes: Ints, slots: Ints, distances: Floats, count: int, i: int) -> None:
    """Restore the heap (farthest on top) below entry i."""
    slot, distance, node = slots[i], distances[i], nodes[slots[i]]
    while True:
        child = 2 * i + 1
        if child >= count:
            break
        if child + 1 < count and _farther(
            distances[child + 1],
            nodes[slots[child + 1]],
            distances[child],
            nodes[slots[child]],
        ):
            child += 1
        if not _farther(distances[child], nodes[slots[child]], distance, node):
            break
        slots[i], distances[i] = slots[child], distances[child]
        i = child
    slots[i], distances[i] = slot, distance


@njit(cache=True, nogil=True)
def nearest(
    tree: CapacityTree, point: Floats, required: float, requirement: int, search: Search
) -> int:
    """The nearest hosts with room for ``required``, in no particular order.

    Of hosts equally near, those with the smaller node index are taken.

    Args:
        tree: where to look.
        point: (d,) a virtual position, ms.
        required: tuples/s a host must have free.
        requirement: what a host must meet, counted from 1; 0 for nothing.
        search: filled with the slots found and their distances.

    Returns:
        How many were found, at most k.
    """
    h = _tree_at(tree.hub, point)
    # Columns named once: reading them out of the tuple in the loop costs a reference count each.
    rows, nodes, box, link, offer = tree.row[h], tree.node[h], tree.box[h], tree.link[h], tree.offer
    slots, distances, stack, bounds = search.slot, search.distance, search.stack, search.bound
    k, d = len(slots), len(point)
    room = 2 * d + requirement
    if box[0, room] < required:
        return 0
    if h > 0:
        point = np.zeros(d)
    flat, x, y = d == 2, point[0], point[d - 1]
    found = 0
    stack[0], bounds[0] = 0, 0.0
    top = 1
    # The farthest of the k found; beyond ``reach`` no host and beyond ``cut`` no box is looked at.
    limit = reach = cut = math.inf
    while top > 0:
        top -= 1
        t = stack[top]
        left = cut - box[t, LEAST_ACCESS]
        if bounds[top] > left * left or left < 0.0:
            continue
        if link[t, CHILD] >= 0:
            near = link[t, CHILD]
            far = near + 1
            near_bound = far_bound = math.inf
            if box[near, room] >= required:
                near_bound = (
                    _flat_distance(box, near, x, y) if flat else box_distance(box, near, point)
                )
            if box[far, room] >= required:
                far_bound = (
                    _flat_distance(box, far, x, y) if flat else box_distance(box, far, point)
                )
            if far_bound < near_bound:
                near, far = far, near
                near_bound, far_bound = far_bound, near_bound
            if far_bound < math.inf:
                left = cut - box[far, LEAST_ACCESS]
                if far_bound <= left * left and left >= 0.0:
                    stack[top], bounds[top] = far, far_bound
                    top += 1
            if near_bound < math.inf:
                stack[top], bounds[top] = near, near_bound
                top += 1
            continue
        first = (NONE - link[t, CHILD]) * LEAF
        for slot in range(first, first + link[t, COUNT]):
            if rows[slot, FREE] < required:
                continue
            if requirement and not (offer[nodes[slot]] >> (requirement - 1)) & 1:
                continue
            if flat:
                square = (rows[slot, 0] - x) ** 2 + (rows[slot, 1] - y) ** 2
            else:
                square = 0.0
                for m in range(d):
                    square += (rows[slot, m] - point[m]) ** 2
            left = reach - rows[slot, ACCESS]
            if square > left * left or left < 0.0:
                continue
            distance = math.sqrt(square) + rows[slot, ACCESS]
            if found < k:
                slots[found], distances[found] = slot, distance
                found += 1
                if found < k:
                    continue
                for i in range(k // 2 - 1, -1, -1):
                    _sift(nodes, slots, distances, k, i)
            elif _farther(limit, nodes[slots[0]], distance, nodes[slot]):
                slots[0], distances[0] = slot, distance
                _sift(nodes, slots, distances, k, 0)
            else:
                continue
            limit = distances[0]
            reach = limit * _ROUNDING
            cut = search.exact * reach
    if h > 0:
        for i in range(found):
            slots[i] = tree.slot[0, nodes[slots[i]]]
    return found
