"""What joins cost on hosts, the hosts near a virtual position, and joins that move between them."""

from __future__ import annotations

import math

import numpy as np

from nova_core.borrowing import borrowing, inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live.host_tree import (
    NONE,
    HostTree,
    insert,
    nearest,
    remove,
    search_for,
    set_free,
)
from nova_core.placement.kernels.live.tables import HOST, LEFT_NODE, Joins, Loads
from nova_core.placement.kernels.median import fermat_points
from nova_core.placement.kernels.residents import enter, leave


@borrowing
def host_cost(
    position: Floats, extra: Floats, table: Ints, pair: int, weights: Floats, host: int
) -> float:
    """Objective of a piece of a join on a host, see `nova_core.model.objectives.leg_cost`.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        table: (p, 8) rows of pairs, see `tables.Joins`.
        pair: row of ``table``.
        weights: (3,) of the legs.
        host: node index.
    """
    cost = 0.0
    for i in range(3):
        end = table[pair, LEFT_NODE + i]
        square = 0.0
        for k in range(position.shape[1]):
            away = position[end, k] - position[host, k]
            square += away * away
        leg = math.sqrt(square) + extra[host, 1]
        if end != host:
            leg += extra[end, 0] + extra[host, 0]
        cost += weights[i] * leg
    return cost


@borrowing
def ideal(position: Floats, table: Ints, pair: int, point: Floats, weights: Floats) -> float:
    """Objective of a join at its virtual position, heights left out."""
    cost = 0.0
    for i in range(3):
        end = table[pair, LEFT_NODE + i]
        square = 0.0
        for k in range(len(point)):
            away = position[end, k] - point[k]
            square += away * away
        cost += weights[i] * math.sqrt(square)
    return cost


@njit(cache=True, nogil=True)
def losses(
    position: Floats,
    extra: Floats,
    table: Ints,
    points: Floats,
    weights: Floats,
    pair: Ints,
    host: Ints,
) -> Floats:
    """What each pair costs on its host beyond its virtual position, heights left out there.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        table: (p, 8) rows of pairs, see `tables.Joins`.
        points: (p, d) virtual positions, ms.
        weights: (k, 3) of the legs of each pair to look at.
        pair: (k,) those pairs.
        host: (k,) where they run.
    """
    result = np.empty(len(pair))
    for row in range(len(pair)):
        least = ideal(position, table, pair[row], points[pair[row]], weights[row])
        result[row] = host_cost(position, extra, table, pair[row], weights[row], host[row]) - least
    return result


@njit(cache=True, nogil=True)
def recompute_points(
    position: Floats, table: Ints, points: Floats, pairs: Ints, weights: Floats
) -> None:
    """Recompute virtual positions.

    Args:
        position: (n, d) coordinates of all nodes, ms.
        table: (p, 8) rows of pairs, see `tables.Joins`.
        points: (p, d) virtual positions, ms; changed.
        pairs: (k,) those to recompute.
        weights: (k, 3) of their legs, or (1, 3) of all.
    """
    anchors, weight = np.empty((len(pairs), 3, position.shape[1])), np.empty((len(pairs), 3))
    for k in range(len(pairs)):
        weight[k] = weights[min(k, len(weights) - 1)]
        for i in range(3):
            anchors[k, i] = position[table[pairs[k], LEFT_NODE + i]]
    found = fermat_points(anchors, weight)
    for k in range(len(pairs)):
        points[pairs[k]] = found[k]


@njit(cache=True, nogil=True)
def cheapest(
    row: Floats,
    node: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    used: Ints,
    hub: Floats,
    offer: Ints,
    position: Floats,
    extra: Floats,
    table: Ints,
    points: Floats,
    pair: int,
    weights: Floats,
    need: float,
    requirement: int,
    hosts: Ints,
    cost: Floats,
) -> int:
    """Of the nearest hosts with room for a piece of a join the cheapest first; how many.

    Args:
        row: of a `HostTree`, as the next eight.
        node: its hosts.
        slot: their slots.
        box: its boxes.
        link: its links.
        parent: its parents.
        used: what is in use.
        hub: its hubs.
        offer: what nodes offer.
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        table: (p, 8) rows of pairs, see `tables.Joins`.
        points: (p, d) virtual positions, ms.
        pair: whose piece it is.
        weights: (3,) of the piece's legs.
        need: tuples/s a host must have free.
        requirement: what a host must meet, counted from 1; 0 for nothing.
        hosts: (k,) filled with nodes.
        cost: (k,) filled with the objective on each.
    """
    tree = HostTree(row, node, slot, box, link, parent, used, hub, offer)
    search = search_for(len(hosts), position.shape[1])
    found = nearest(tree, points[pair], need, requirement, search)
    for i in range(found):
        host = node[0, search.slot[i]]
        value = host_cost(position, extra, table, pair, weights, host)
        at = i
        while at > 0 and (cost[at - 1] > value or (cost[at - 1] == value and hosts[at - 1] > host)):
            cost[at], hosts[at] = cost[at - 1], hosts[at - 1]
            at -= 1
        cost[at], hosts[at] = value, host
    return found


@njit(cache=True, nogil=True)
def set_host_free(
    row: Floats,
    node: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    used: Ints,
    hub: Floats,
    offer: Ints,
    host: int,
    free: float,
) -> None:
    """`set_free` of a host in the arrays of a `HostTree`; nothing for a node that is none."""
    tree = HostTree(row, node, slot, box, link, parent, used, hub, offer)
    if slot[0, host] != NONE:
        set_free(tree, slot[0, host], free)


@njit(cache=True, nogil=True)
def replace_host(
    row: Floats,
    node: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    used: Ints,
    hub: Floats,
    offer: Ints,
    host: int,
    values: Floats,
    deepest: int,
) -> int:
    """Take a host out of the arrays of a `HostTree`, and `insert` it if it has values."""
    tree = HostTree(row, node, slot, box, link, parent, used, hub, offer)
    remove(tree, host)
    return insert(tree, host, values, deepest) if len(values) else 0


@inlined
def move_join(
    tree: HostTree, loads: Loads, joins: Joins, pair: int, size: float, new: int
) -> tuple[float, float]:
    """Take a whole join off its host, if it has one, and put it on another, or nowhere.

    Args:
        tree: the hosts; free capacities are changed.
        loads: what nodes run; changed.
        joins: hosts are changed.
        pair: the join.
        size: what it takes of a host, tuples/s.
        new: the other host, or `NONE`.

    Returns:
        What was free on the old and on the new host, tuples/s; 0 for none.
    """
    free, first, slot = loads.free, loads.first, tree.slot
    old = joins.row[pair, HOST]
    before_old = before_new = 0.0
    if old != NONE:
        before_old = free[old]
        leave(first, joins.chain, old, pair)
        # An empty node has its capacity to the last bit: rounding does not add up for ever.
        empty = first[old] == NONE and loads.pieces[old] == 0
        free[old] = loads.capacity[old] if empty else before_old + size
        if slot[0, old] != NONE:
            set_free(tree, slot[0, old], free[old])
    if new != NONE:
        before_new = free[new]
        enter(first, joins.chain, new, pair)
        free[new] = before_new - size
        if slot[0, new] != NONE:
            set_free(tree, slot[0, new], free[new])
    joins.row[pair, HOST] = new
    return before_old, before_new


@njit(cache=True, nogil=True)
def move(
    row: Floats,
    node: Ints,
    slot: Ints,
    box: Floats,
    link: Ints,
    parent: Ints,
    used: Ints,
    hub: Floats,
    offer: Ints,
    capacity: Floats,
    free: Floats,
    first: Ints,
    pieces: Ints,
    table: Ints,
    chain: Ints,
    pair: int,
    size: float,
    new: int,
) -> tuple[float, float]:
    """`move_join` in the arrays of a `HostTree`, `Loads` and `Joins`."""
    return move_join(
        HostTree(row, node, slot, box, link, parent, used, hub, offer),
        Loads(capacity, free, first, pieces),
        Joins(table, chain),
        pair,
        size,
        new,
    )
