"""K-d trees of hosts that come, go and move, whose nodes carry the greatest free capacity below.

First plans of pairs have a tree of their own (`nova_core.placement.kernels.capacity_tree`), which
fixes its hosts when it is built, and is packed. At a million hosts it is built in 0.18 s, this one
in 0.44 s of processor time, which would be an eighth of a placement's 2.0 s; it finds the 32
nearest in 11.6 us, this one in 14.5 us. At 10,000 hosts both search alike (8.6 and 8.5 us), and
this one takes a new free capacity in 2.3 us, the other in 3.1 us: first plans of whole queries use
this one. What splits and bounds them is the same.

Many joins may have one virtual position (a sink's, mostly). The hosts around it are full up to a
rim that a search by place walks along, host by host. By their distance from such a hub, hosts lie
on a line, and the nearest with room is found in log n. So there is one more tree for each hub.

Leaves have spare slots: an insertion goes down one path and now and then splits a leaf, a removal
empties a slot, so every change costs about log n. Boxes never shrink; the caller builds the trees
anew once many hosts have changed.

In a large topology a search waits for memory. So what it looks at lies together: both children of a
tree node side by side, in two dimensions each a cache line.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nova_core.borrowing import borrowing, inlined
from nova_core.errors import ProblemError
from nova_core.kernel_cache import njit
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels.capacity_tree import (
    MOST_REQUIREMENTS,
    NONE,
    box_distance,
    flat_distance,
    select,
)

# Slots of a leaf, and how many are filled at most when the tree is built.
LEAF = 16
FILL = 8
# What an insertion may answer.
DONE, NO_ROOM, TOO_DEEP = range(3)
# Last columns of a host's row, and of a tree node's box.
ACCESS, FREE = -2, -1
LEAST_ACCESS, CHILD, COUNT = -3, -2, -1
# Tree nodes that wait in a search at most; the caller keeps trees far flatter.
_STACK = 256
# Distances are compared by their squares; what may be near enough but for rounding is looked at.
_ROUNDING = 1 + 1e-12
_CACHE_LINE = 64


class HostTree(NamedTuple):
    """Trees of the same hosts: the first by place, the others by distance from a hub.

    Each has hosts in slots, 16 to a leaf; tree node 0 is the root, and siblings are
    neighbours. In the tree of a hub the first coordinate is the distance, ms, the others are zero.

    Attributes:
        row: (k, slots, d + 2) coordinates, access cost (height and penalty), ms, and free capacity,
            tuples/s; leaf l owns slots `LEAF` l up to `LEAF` (l + 1), filled from the first.
        node: (k, slots) index of the host in each slot, -1 for none.
        slot: (k, n) slot of each node of the topology, or -1.
        box: (k, t, 2 d + 4 + r) of each tree node the least and greatest coordinates below; the
            greatest free capacity of any host, and of those that meet each of r requirements; the
            least access cost; the other two columns belong to ``link``.
        link: the memory of ``box`` as integers: in column `CHILD` the first child, or -1 - i in
            a leaf whose first slot is i; in column `COUNT` the hosts below.
        parent: (k, t + l) of each tree node, -1 for the root; then the tree node of each leaf.
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
        origin: (d,) zeros, where the hub is in its tree.
    """

    slot: Ints
    distance: Floats
    stack: Ints
    bound: Floats
    origin: Floats


@njit(cache=True, nogil=True)
def search_for(k: int, d: int) -> Search:
    """Work space for the k nearest in d dimensions."""
    waiting = np.empty(_STACK, np.int64), np.empty(_STACK)
    return Search(np.empty(k, np.int64), np.empty(k), waiting[0], waiting[1], np.zeros(d))


# --- building -------------------------------------------------------------------------------------


def offered(meets: Bools) -> Ints:
    """(n,) bits of the requirements that nodes meet, from (r, n).

    Raises:
        ProblemError: for more requirements than there are bits.
    """
    if len(meets) > MOST_REQUIREMENTS:
        raise ProblemError(
            f"joins have {len(meets)} different requirements; at most {MOST_REQUIREMENTS} can be "
            "told apart"
        )
    return np.asarray((np.int64(1) << np.arange(len(meets))) @ meets)


def empty_tree(nodes: int, hosts: int, hub: Floats, requirements: int) -> HostTree:
    """Room for trees of a topology.

    Args:
        nodes: of the topology.
        hosts: of these; there is room for some more.
        hub: (k, d) points that many searches will start from, ms; of no use in one dimension.
        requirements: how many joins have.
    """
    dimensions = hub.shape[1]
    if dimensions < 2:
        hub = hub[:0]
    leaves, trees = -(-hosts // FILL) * 5 // 4 + 16, len(hub) + 1
    box = _aligned(trees, 2 * leaves, 2 * dimensions + 4 + requirements)
    return HostTree(
        row=_aligned(trees, leaves * LEAF, dimensions + 2),
        node=np.full((trees, leaves * LEAF), -1, np.int64),
        slot=np.full((trees, nodes), -1, np.int64),
        box=box,
        link=box.view(np.int64),
        parent=np.full((trees, 3 * leaves), -1, np.int64),
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


def fill(tree: HostTree, rows: Floats, node: Ints) -> None:
    """Fill empty trees.

    Args:
        tree: from `empty_tree`.
        rows: (h, d + 2) rows of the hosts, see `HostTree.row`; reordered.
        node: (h,) their node indices; reordered.
    """
    for number, hub in enumerate(tree.hub):
        distance = np.sqrt(sum((rows[:, k] - hub[k]) ** 2 for k in range(len(hub))))
        order = np.argsort(distance)
        around = np.zeros_like(rows)
        around[:, 0], around[:, ACCESS], around[:, FREE] = (
            column[order] for column in (distance, rows[:, ACCESS], rows[:, FREE])
        )
        _build(tree, number + 1, around, node[order])
    _build(tree, 0, rows, node)


@njit(cache=True, nogil=True)
def _build(tree: HostTree, h: int, rows: Floats, node: Ints) -> None:
    """Fill one empty tree.

    Access costs split it like one more coordinate: where low hosts are apart from tall ones, the
    least access cost below a tree node tells more.

    Args:
        tree: large enough.
        h: number of the tree; that of a hub has its rows sorted.
        rows: (h, d + 2) rows of the hosts; reordered.
        node: (h,) their node indices; reordered.
    """
    row, nodes, slot, box, link = tree.row[h], tree.node[h], tree.slot[h], tree.box[h], tree.link[h]
    parent, axes, above_leaves = tree.parent[h], rows.shape[1] - 1, len(link)
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
        if end - begin <= FILL:
            leaf = begin // FILL
            link[t, CHILD] = NONE - leaf * LEAF
            parent[above_leaves + leaf] = t
            for i in range(begin, end):
                at = leaf * LEAF + i - begin
                for k in range(axes + 1):
                    row[at, k] = rows[i, k]
                nodes[at] = node[i]
                slot[node[i]] = at
            continue
        middle = begin + (end - begin + FILL - 1) // FILL // 2 * FILL
        axis = 0
        if h == 0:
            for k in range(1, axes):
                if wide[top, 1, k] - wide[top, 0, k] > wide[top, 1, axis] - wide[top, 0, axis]:
                    axis = k
            select(rows, node, begin, end, middle, axis)
        link[t, CHILD] = count
        wide[top + 1] = wide[top]
        wide[top, 1, axis] = wide[top + 1, 0, axis] = rows[middle, axis]
        for first, last in ((begin, middle), (middle, end)):
            stack[top, 0], stack[top, 1], stack[top, 2] = first, last, count
            parent[count] = t
            top += 1
            count += 1
    tree.used[h, 0], tree.used[h, 1] = count, max(1, (len(node) + FILL - 1) // FILL)
    for t in range(count - 1, -1, -1):  # children come after their parent
        _bound(row, nodes, box, link, tree.offer, t)


@njit(cache=True, nogil=True)
def _bound(row: Floats, node: Ints, box: Floats, link: Ints, offer: Ints, t: int) -> None:
    """Recompute a tree node's box from what is directly below it."""
    d = row.shape[1] - 2
    a = link[t, CHILD]
    if a >= 0:
        for k in range(d):
            box[t, k] = min(box[a, k], box[a + 1, k])
            box[t, d + k] = max(box[a, d + k], box[a + 1, d + k])
        box[t, LEAST_ACCESS] = min(box[a, LEAST_ACCESS], box[a + 1, LEAST_ACCESS])
    else:
        for k in range(d):
            box[t, k], box[t, d + k] = math.inf, -math.inf
        box[t, LEAST_ACCESS] = math.inf
        first = NONE - a
        for slot in range(first, first + link[t, COUNT]):
            for k in range(d):
                box[t, k] = min(box[t, k], row[slot, k])
                box[t, d + k] = max(box[t, d + k], row[slot, k])
            box[t, LEAST_ACCESS] = min(box[t, LEAST_ACCESS], row[slot, ACCESS])
    for column in range(2 * d, box.shape[1] + LEAST_ACCESS):
        box[t, column] = _room(row, node, box, link, offer, t, column)


@borrowing
def _room(
    row: Floats, node: Ints, box: Floats, link: Ints, offer: Ints, t: int, column: int
) -> float:
    """Greatest free capacity directly below a tree node, of a column of ``box``."""
    a, requirement = link[t, CHILD], column - 2 * (row.shape[1] - 2)
    if a >= 0:
        return max(box[a, column], box[a + 1, column])
    room = -math.inf
    first = NONE - a
    for slot in range(first, first + link[t, COUNT]):
        if requirement == 0 or (offer[node[slot]] >> (requirement - 1)) & 1:
            room = max(room, row[slot, FREE])
    return room


@borrowing
def meets(tree: HostTree, node: int, requirement: int) -> bool:
    """Whether a node meets a requirement, counted from 1."""
    return (tree.offer[node] >> (requirement - 1)) & 1 == 1


# --- changing -------------------------------------------------------------------------------------


@inlined
def set_free(tree: HostTree, slot: int, free: float) -> None:
    """Change the free capacity of the host in a slot of the first tree, in log n."""
    row, box, parent, rooms = tree.row, tree.box, tree.parent, 2 * tree.hub.shape[1]
    node, old = tree.node[0, slot], row[0, slot, FREE]
    for h in range(len(row)):
        at = slot if h == 0 else tree.slot[h, node]
        row[h, at, FREE] = free
        leaf = parent[h, box.shape[1] + at // LEAF]
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


@borrowing
def _lower_room(tree: HostTree, h: int, t: int, column: int) -> None:
    """Recompute the room of a leaf's tree node and of those above it, as far as it changes."""
    row, node, box, link = tree.row[h], tree.node[h], tree.box[h], tree.link[h]
    while t != NONE:
        room = _room(row, node, box, link, tree.offer, t, column)
        if room == box[t, column]:
            return
        box[t, column] = room
        t = tree.parent[h, t]


@njit(cache=True, nogil=True)
def remove(tree: HostTree, node: int) -> None:
    """Take a host out of all trees; nothing for a node that is in none."""
    row, slot, link = tree.row, tree.slot, tree.link
    if slot[0, node] == NONE:
        return
    for h in range(len(row)):
        at = slot[h, node]
        slot[h, node] = NONE
        leaf = at // LEAF
        t = tree.parent[h, tree.box.shape[1] + leaf]
        last = leaf * LEAF + link[h, t, COUNT] - 1
        row[h, at] = row[h, last]
        moved = tree.node[h, at] = tree.node[h, last]
        if at != last:
            slot[h, moved] = at
        tree.node[h, last] = NONE
        above = t
        while above != NONE:
            link[h, above, COUNT] -= 1
            above = tree.parent[h, above]
        for column in range(2 * tree.hub.shape[1], tree.box.shape[2] + LEAST_ACCESS):
            _lower_room(tree, h, t, column)


@njit(cache=True, nogil=True)
def insert(tree: HostTree, node: int, values: Floats, deepest: int) -> int:
    """Put a host into all trees.

    Args:
        tree: has a column of ``slot`` for the node.
        node: one that is in none of them.
        values: (d + 2,) its row, see `HostTree.row`.
        deepest: levels beyond which a tree counts as unbalanced.

    Returns:
        ``DONE``; ``TOO_DEEP`` when done but the trees should be built anew; ``NO_ROOM`` when there
        is no leaf left to split into somewhere, and nothing was done.
    """
    for h in range(len(tree.row)):
        if 2 * tree.used[h, 1] + 2 >= tree.box.shape[1]:
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
        away = row[k] - point[k]
        square += away * away
    return square


@njit(cache=True, nogil=True)
def _insert(tree: HostTree, h: int, node: int, values: Floats) -> int:
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
    at = NONE - link[t, CHILD] + link[t, COUNT]
    link[t, COUNT] += 1
    tree.row[h, at] = values
    tree.node[h, at] = node
    tree.slot[h, node] = at
    return depth


@njit(cache=True, nogil=True)
def _split(tree: HostTree, h: int, t: int) -> None:
    """Make a full leaf's tree node an inner one with two half-full leaves below."""
    link, row, node, slot, box = tree.link[h], tree.row[h], tree.node[h], tree.slot[h], tree.box[h]
    d, first = row.shape[1] - 2, NONE - link[t, CHILD]
    axis, widest = 0, -1.0
    for k in range(d):
        if box[t, d + k] - box[t, k] > widest:
            axis, widest = k, box[t, d + k] - box[t, k]
    half = LEAF // 2
    select(row, node, first, first + LEAF, first + half, axis)
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
    for here in (first // LEAF, other):
        link[child, CHILD], link[child, COUNT] = NONE - here * LEAF, half
        tree.parent[h, child] = t
        tree.parent[h, len(box) + here] = child
        _bound(row, node, box, link, tree.offer, child)
        child += 1


# --- searching ------------------------------------------------------------------------------------


@borrowing
def same_place(points: Floats, row: int, point: Floats) -> bool:
    """Whether a row of (k, d) points is the (d,) point."""
    same = True
    for k in range(len(point)):
        same &= points[row, k] == point[k]
    return same


@borrowing
def _tree_at(hub: Floats, point: Floats) -> int:
    """Number of the tree to search from a (d,) point: that of the hub it is, else the first."""
    for number in range(len(hub)):
        if same_place(hub, number, point):
            return number + 1
    return 0


@borrowing
def nearest(
    tree: HostTree, point: Floats, required: float, requirement: int, search: Search
) -> int:
    """The nearest hosts with room for ``required``, nearest first.

    Of hosts equally near, those with the smaller node index come first.

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
    rows, nodes, box, link, offer = tree.row[h], tree.node[h], tree.box[h], tree.link[h], tree.offer
    slots, distances, stack, bounds = search.slot, search.distance, search.stack, search.bound
    k, d = len(slots), len(point)
    room = 2 * d + requirement
    if box[0, room] < required:
        return 0
    if h > 0:
        point = search.origin
    flat, x, y = d == 2, point[0], point[d - 1]
    found = 0
    stack[0], bounds[0] = 0, 0.0
    top = 1
    limit = reach = math.inf  # the farthest of the k found, and beyond what nothing is looked at
    while top > 0:
        top -= 1
        t = stack[top]
        left = reach - box[t, LEAST_ACCESS]
        if bounds[top] > left * left or left < 0.0:
            continue
        if link[t, CHILD] >= 0:
            near = link[t, CHILD]
            far = near + 1
            near_bound = far_bound = math.inf
            if box[near, room] >= required:
                near_bound = (
                    flat_distance(box, near, x, y) if flat else box_distance(box, near, point)
                )
            if box[far, room] >= required:
                far_bound = flat_distance(box, far, x, y) if flat else box_distance(box, far, point)
            if far_bound < near_bound:
                near, far = far, near
                near_bound, far_bound = far_bound, near_bound
            if far_bound < math.inf:
                left = reach - box[far, LEAST_ACCESS]
                if far_bound <= left * left and left >= 0.0:
                    stack[top], bounds[top] = far, far_bound
                    top += 1
            if near_bound < math.inf:
                stack[top], bounds[top] = near, near_bound
                top += 1
            continue
        first = NONE - link[t, CHILD]
        for slot in range(first, first + link[t, COUNT]):
            if rows[slot, FREE] < required:
                continue
            if requirement and not (offer[nodes[slot]] >> (requirement - 1)) & 1:
                continue
            if flat:
                away, aside = rows[slot, 0] - x, rows[slot, 1] - y
                square = away * away + aside * aside
            else:
                square = 0.0
                for m in range(d):
                    away = rows[slot, m] - point[m]
                    square += away * away
            left = reach - rows[slot, ACCESS]
            if square > left * left or left < 0.0:
                continue
            distance = math.sqrt(square) + rows[slot, ACCESS]
            if distance > limit:
                continue
            at = found if found < k else k - 1
            if found == k and distance == limit and nodes[slot] > nodes[slots[at]]:
                continue
            while at > 0 and (
                distances[at - 1] > distance
                or (distances[at - 1] == distance and nodes[slots[at - 1]] > nodes[slot])
            ):
                distances[at], slots[at] = distances[at - 1], slots[at - 1]
                at -= 1
            distances[at], slots[at] = distance, slot
            if found < k:
                found += 1
            if found == k:
                limit = distances[k - 1]
                reach = limit * _ROUNDING
    if h > 0:
        for i in range(found):
            slots[i] = tree.slot[0, nodes[slots[i]]]
    return found
