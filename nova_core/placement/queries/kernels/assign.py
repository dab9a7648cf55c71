"""Phase III of operator graphs: whole queries onto nodes with room, one query after the other.

The operators of a query that feed each other form a tree, for which dynamic programming finds the
best nodes among the candidates of each all at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import (
    CapacityTree,
    Search,
    meets,
    nearest,
    search_for,
    set_free,
)

NONE = -1


class Bodies(NamedTuple):
    """What is placed, and its links.

    Attributes:
        required: (b,) tuples/s each takes of its node.
        room: (b,) tuples/s a node must have free to be chosen: no less, and no less than C_min.
        needs: (b,) requirement a node must meet, counted from 1; 0 for none.
        point: (b, d) virtual positions, ms.
        parent: (b,) the body it feeds, of the tree, or -1.
        weight: (b,) of the link to the parent.
        child: bodies by parent.
        child_at: (b + 1,) where each one's children begin.
        end: at the far end of other links: a body, or -1 - node of a source or sink.
        end_weight: of those links.
        end_at: (b + 1,) where each body's begin.
        member: bodies by tree, producers first.
        member_at: (c + 1,) where each tree begins.
    """

    required: Floats
    room: Floats
    needs: Ints
    point: Floats
    parent: Ints
    weight: Floats
    child: Ints
    child_at: Ints
    end: Ints
    end_weight: Floats
    end_at: Ints
    member: Ints
    member_at: Ints


class Space(NamedTuple):
    """The nodes.

    Attributes:
        position: (n, d) ms.
        height: (n,) ms, of every way from or to the node.
        penalty: (n,) ms per link of what runs there.
        slot: (n,) place in the tree, -1 of nodes that host nothing.
    """

    position: Floats
    height: Floats
    penalty: Floats
    slot: Ints


@njit(cache=True, nogil=True)
def apart(space: Space, one: int, other: int) -> float:
    """What a link between two nodes costs, ms."""
    if one == other:
        return 0.0
    square = 0.0
    for k in range(space.position.shape[1]):
        away = space.position[one, k] - space.position[other, k]
        square += away * away
    return float(math.sqrt(square) + space.height[one] + space.height[other])


@njit(cache=True, nogil=True)
def _to_point(space: Space, node: int, point: Floats) -> float:
    square = 0.0
    for k in range(len(point)):
        away = space.position[node, k] - point[k]
        square += away * away
    return float(math.sqrt(square) + space.height[node])


@njit(cache=True, nogil=True)
def _own(space: Space, bodies: Bodies, host: Ints, body: int, node: int) -> float:
    """Cost of a body's links outside its tree, and of hosting all its links."""
    total, weight = 0.0, bodies.weight[body]
    for n in range(bodies.end_at[body], bodies.end_at[body + 1]):
        end = bodies.end[n]
        weight += bodies.end_weight[n]
        if end < 0:
            total += bodies.end_weight[n] * apart(space, node, -1 - end)
        elif host[end] != NONE:
            total += bodies.end_weight[n] * apart(space, node, host[end])
        else:
            total += bodies.end_weight[n] * _to_point(space, node, bodies.point[end])
    for n in range(bodies.child_at[body], bodies.child_at[body + 1]):
        weight += bodies.weight[bodies.child[n]]
    return float(total + weight * space.penalty[node])


@njit(cache=True, nogil=True)
def _room(tree: CapacityTree, space: Space, node: int) -> float:
    if space.slot[node] < 0:
        return -1.0
    room: float = tree.slot[space.slot[node], tree.slot.shape[1] - 1]
    return room


@njit(cache=True, nogil=True)
def _may(tree: CapacityTree, space: Space, bodies: Bodies, body: int, node: int) -> bool:
    """Whether a node may host at all, and meets a body's requirement."""
    slot, needs = space.slot[node], bodies.needs[body]
    return slot >= 0 and (needs == 0 or meets(tree, slot, needs))


@njit(cache=True, nogil=True)
def _add(
    listed: Ints,
    count: int,
    node: int,
    tree: CapacityTree,
    space: Space,
    bodies: Bodies,
    body: int,
) -> int:
    if count == len(listed) or _room(tree, space, node) < bodies.room[body]:
        return count
    if not _may(tree, space, bodies, body, node):
        return count
    for n in range(count):
        if listed[n] == node:
            return count
    listed[count] = node
    return count + 1


class _Work(NamedTuple):
    """Work space for the bodies of a tree, in the tree's order.

    Attributes:
        listed: (m, most) candidates of each.
        filled: (m,) how many there are.
        base: (m,) how many there are without those of its relatives.
        value: (m, most) least cost of a body and all below it, for each candidate.
        old: (m,) node before, -1 for none.
        here: (b,) place of a body in its tree.
    """

    listed: Ints
    filled: Ints
    base: Ints
    value: Floats
    old: Ints
    here: Ints


@njit(cache=True, nogil=True)
def place_trees(
    tree: CapacityTree,
    space: Space,
    bodies: Bodies,
    host: Ints,
    order: Ints,
    nearby: int,
    most: int,
) -> float:
    """Place the bodies of each tree anew where that is better.

    Args:
        tree: slots with their free capacity, kept up to date.
        space: the nodes.
        bodies: what to place.
        host: (b,) node of each body, -1 for none yet; changed in place.
        order: trees, in the order they choose.
        nearby: candidates near each virtual position.
        most: candidates of each body in all.

    Returns:
        Cost saved over trees that were placed before.
    """
    saved, largest = 0.0, 0
    for t in order:
        largest = max(largest, bodies.member_at[t + 1] - bodies.member_at[t])
    work = _Work(
        np.empty((largest, most), np.int64),
        np.empty(largest, np.int64),
        np.empty(largest, np.int64),
        np.empty((largest, most)),
        np.empty(largest, np.int64),
        np.empty(len(bodies.required), np.int64),
    )
    search = search_for(nearby, 1.0)
    for t in order:
        members = bodies.member[bodies.member_at[t] : bodies.member_at[t + 1]]
        old, complete = work.old[: len(members)], True
        for n in range(len(members)):
            work.here[members[n]] = n
            old[n] = host[members[n]]
            complete &= old[n] != NONE
        before = _cost(space, bodies, host, members) if complete else math.inf
        for n in range(len(members)):
            _take(tree, space, old[n], -bodies.required[members[n]])
        _list_candidates(tree, space, bodies, host, members, work, search)
        _weigh(space, bodies, host, members, work)
        _choose(tree, space, bodies, host, members, work, search)
        if not complete:
            continue
        after = _cost(space, bodies, host, members)
        if after < before - 1e-12 * before:
            saved += before - after
            continue
        for n in range(len(members)):
            _take(tree, space, host[members[n]], -bodies.required[members[n]])
        for n in range(len(members)):
            host[members[n]] = old[n]
            _take(tree, space, old[n], bodies.required[members[n]])
    return saved


@njit(cache=True, nogil=True)
def _take(tree: CapacityTree, space: Space, node: int, required: float) -> None:
    """Take capacity of a node, or give it back."""
    if node != NONE:
        set_free(tree, space.slot[node], _room(tree, space, node) - required)


@njit(cache=True, nogil=True)
def _cost(space: Space, bodies: Bodies, host: Ints, members: Ints) -> float:
    """Cost of a tree's links where its bodies are; infinite if one is nowhere."""
    total = 0.0
    for body in members:
        if host[body] == NONE:
            return math.inf
        total += _own(space, bodies, host, body, host[body])
        up = bodies.parent[body]
        if up != NONE and host[up] != NONE:
            total += bodies.weight[body] * apart(space, host[body], host[up])
    return total


@njit(cache=True, nogil=True)
def _list_candidates(
    tree: CapacityTree,
    space: Space,
    bodies: Bodies,
    host: Ints,
    members: Ints,
    work: _Work,
    search: Search,
) -> None:
    """Where each body may go: where it is, its links' ends, near its position; its relatives'."""
    listed, count, base = work.listed, work.filled, work.base
    for n in range(len(members)):
        body, c = members[n], 0
        room, needs = bodies.room[body], bodies.needs[body]
        if work.old[n] != NONE:
            c = _add(listed[n], c, work.old[n], tree, space, bodies, body)
        found = nearest(tree, bodies.point[body], room, needs, search)
        for f in range(found):
            c = _add(listed[n], c, tree.node[search.slot[f]], tree, space, bodies, body)
        for m in range(bodies.end_at[body], bodies.end_at[body + 1]):
            end = bodies.end[m]
            node = -1 - end if end < 0 else host[end]
            if node != NONE and c < listed.shape[1] // 2:
                c = _add(listed[n], c, node, tree, space, bodies, body)
        count[n] = base[n] = c
    for n in range(len(members)):
        body = members[n]
        up = bodies.parent[body]
        if up == NONE:
            continue
        u = work.here[up]
        for m in range(base[u]):
            count[n] = _add(listed[n], count[n], listed[u, m], tree, space, bodies, body)
        for m in range(base[n]):
            count[u] = _add(listed[u], count[u], listed[n, m], tree, space, bodies, up)


@njit(cache=True, nogil=True)
def _weigh(space: Space, bodies: Bodies, host: Ints, members: Ints, work: _Work) -> None:
    """Upwards: the least cost of all below, for each candidate."""
    listed, count, value = work.listed, work.filled, work.value
    for n in range(len(members)):
        body = members[n]
        for m in range(count[n]):
            value[n, m] = _own(space, bodies, host, body, listed[n, m])
        for x in range(bodies.child_at[body], bodies.child_at[body + 1]):
            child = bodies.child[x]
            k = work.here[child]
            for m in range(count[n]):
                best = math.inf
                for j in range(count[k]):
                    cost = value[k, j] + bodies.weight[child] * apart(
                        space, listed[k, j], listed[n, m]
                    )
                    best = min(best, cost)
                if count[k] == 0:
                    best = bodies.weight[child] * _to_point(
                        space, listed[n, m], bodies.point[child]
                    )
                value[n, m] += best


@njit(cache=True, nogil=True)
def _choose(
    tree: CapacityTree,
    space: Space,
    bodies: Bodies,
    host: Ints,
    members: Ints,
    work: _Work,
    search: Search,
) -> None:
    """Downwards: consumers choose first, as long as there is room."""
    for n in range(len(members) - 1, -1, -1):
        body = members[n]
        up = bodies.parent[body]
        chosen, least = NONE, math.inf
        for m in range(work.filled[n]):
            node = work.listed[n, m]
            if _room(tree, space, node) < bodies.room[body]:
                continue
            cost = work.value[n, m]
            if up != NONE and host[up] != NONE:
                cost += bodies.weight[body] * apart(space, node, host[up])
            if cost < least:
                chosen, least = node, cost
        if chosen == NONE:
            room, needs = bodies.room[body], bodies.needs[body]
            if nearest(tree, bodies.point[body], room, needs, search):
                chosen = tree.node[search.slot[0]]
        host[body] = chosen
        _take(tree, space, chosen, bodies.required[body])


@njit(cache=True, nogil=True)
def _all(space: Space, bodies: Bodies, host: Ints, body: int, node: int) -> float:
    """Cost of all links of a body if it ran on a node."""
    total = _own(space, bodies, host, body, node)
    up = bodies.parent[body]
    if up != NONE:
        total += bodies.weight[body] * apart(space, node, host[up])
    for n in range(bodies.child_at[body], bodies.child_at[body + 1]):
        child = bodies.child[n]
        total += bodies.weight[child] * apart(space, node, host[child])
    return total


@njit(cache=True, nogil=True)
def improve(tree: CapacityTree, space: Space, bodies: Bodies, host: Ints, nearby: int) -> float:
    """Move single bodies to better nodes near them, and swap pairs, where that fits and pays.

    Args:
        tree: slots with their free capacity, kept up to date.
        space: the nodes.
        bodies: what is placed; all have a node.
        host: (b,) their nodes, changed in place.
        nearby: nodes looked at for each.

    Returns:
        Cost saved.
    """
    saved = 0.0
    search = search_for(nearby, 1.0)
    count = len(host)
    for a in range(count):
        need = bodies.required[a]
        now = _all(space, bodies, host, a, host[a])
        found = nearest(tree, bodies.point[a], bodies.room[a], bodies.needs[a], search)
        best, least = NONE, now * (1.0 - 1e-12)
        for f in range(found):
            node = tree.node[search.slot[f]]
            if node != host[a]:
                cost = _all(space, bodies, host, a, node)
                if cost < least:
                    best, least = node, cost
        if best != NONE:
            set_free(tree, space.slot[host[a]], _room(tree, space, host[a]) + need)
            set_free(tree, space.slot[best], _room(tree, space, best) - need)
            host[a] = best
            saved += now - least
            now = least
        for b in range(count):
            here, there = host[a], host[b]
            more = bodies.required[b] - bodies.required[a]
            if (
                here == there
                or _room(tree, space, here) + bodies.required[a] < bodies.room[b]
                or _room(tree, space, there) + bodies.required[b] < bodies.room[a]
                or not _may(tree, space, bodies, a, there)
                or not _may(tree, space, bodies, b, here)
            ):
                continue
            before = _all(space, bodies, host, a, here) + _all(space, bodies, host, b, there)
            host[a], host[b] = there, here
            after = _all(space, bodies, host, a, there) + _all(space, bodies, host, b, here)
            if after < before * (1.0 - 1e-12):
                set_free(tree, space.slot[here], _room(tree, space, here) - more)
                set_free(tree, space.slot[there], _room(tree, space, there) + more)
                saved += before - after
            else:
                host[a], host[b] = here, there
    return saved
