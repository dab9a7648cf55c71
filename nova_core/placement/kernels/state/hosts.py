"""What operators cost on hosts, the hosts near a virtual position, and moves between them."""

from __future__ import annotations

import numpy as np

from nova_core.borrowing import inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels.median import fermat_points
from nova_core.placement.kernels.residents import charge, discharge
from nova_core.placement.kernels.rules import distance, fits, leg_cost
from nova_core.placement.kernels.state.changed import ABSENT, keep_one
from nova_core.placement.kernels.state.host_tree import (
    NONE,
    HostTree,
    insert,
    nearest,
    remove,
    search_for,
    set_free,
)
from nova_core.placement.kernels.state.tables import (
    CHANGED,
    ENOUGH,
    HOST,
    INPUTS,
    LARGEST,
    LEFT,
    LEG,
    LEGS,
    LINKED,
    LOGICAL,
    MOVED,
    OUTPUT,
    RIGHT,
    Legs,
    Loads,
    Operators,
    Places,
    SharedTree,
    Tables,
)


@inlined
def host_cost(
    places: Places,
    operators: Operators,
    legs: Legs,
    operator: int,
    weight: Floats,
    first: int,
    host: int,
) -> float:
    """Objective of an operator, or a piece of one, on a host, see `model.objectives.leg_cost`.

    A leg to an operator that has no host yet is as long as to its virtual position.

    Args:
        places: the nodes.
        operators: what is placed.
        legs: what it is linked with.
        operator: row of ``operators``.
        weight: of its legs.
        first: where they begin in ``weight``.
        host: node index.
    """
    position, extra, end = places.position, places.extra, legs.end
    begin, cost = operators.row[operator, LEG], 0.0
    for i in range(operators.row[operator, LEGS]):
        node, far = end[begin + i], 0.0
        if node >= 0:
            far, away = extra[node, 0], distance(position[node], position[host])
        else:
            away = distance(operators.point[legs.other[begin + i]], position[host])
        leg = leg_cost(away, far, extra[host, 0], extra[host, 1], node == host)
        cost += weight[first + i] * leg
    return cost


@inlined
def ideal(places: Places, operators: Operators, legs: Legs, operator: int) -> float:
    """Objective of an operator at its virtual position, heights left out."""
    position, end = places.position, legs.end
    begin, cost = operators.row[operator, LEG], 0.0
    for i in range(begin, begin + operators.row[operator, LEGS]):
        if end[i] >= 0:
            cost += legs.weight[i] * distance(position[end[i]], operators.point[operator])
    return cost


@njit(cache=True, nogil=True)
def losses(tables: Tables, some: Ints) -> Floats:
    """(k,) what some whole operators cost on their hosts beyond their virtual positions.

    Heights count on hosts only.
    """
    places, operators, legs = tables.places, tables.operators, tables.legs
    result = np.empty(len(some))
    for k in range(len(some)):
        one = some[k]
        begin, host = operators.row[one, LEG], operators.row[one, HOST]
        cost = host_cost(places, operators, legs, one, legs.weight, begin, host)
        result[k] = cost - ideal(places, operators, legs, one)
    return result


@njit(cache=True, nogil=True)
def cost_on(tables: Tables, operator: int, weight: Floats, host: int) -> float:
    """`host_cost` of a piece whose legs weigh ``weight``; of the whole if that is empty."""
    places, operators, legs = tables.places, tables.operators, tables.legs
    if len(weight):
        return host_cost(places, operators, legs, operator, weight, 0, host)
    begin = operators.row[operator, LEG]
    return host_cost(places, operators, legs, operator, legs.weight, begin, host)


@njit(cache=True, nogil=True)
def recompute_points(tables: Tables, some: Ints) -> None:
    """Recompute the virtual positions of operators with up to three legs, all to nodes."""
    position, operators, legs = tables.places.position, tables.operators, tables.legs
    row = operators.row
    anchors, weight = np.empty((len(some), 3, position.shape[1])), np.zeros((len(some), 3))
    for k in range(len(some)):
        begin, count = row[some[k], LEG], row[some[k], LEGS]
        for i in range(3):
            # What an operator has less than three of weighs nothing.
            leg = begin + min(i, count - 1)
            if i < count:
                weight[k, i] = legs.weight[leg]
            anchors[k, i] = position[legs.end[leg]]
    found = fermat_points(anchors, weight)
    for k in range(len(some)):
        operators.point[some[k]] = found[k]


@njit(cache=True, nogil=True)
def cheapest(
    tables: Tables,
    operator: int,
    weight: Floats,
    need: float,
    requirement: int,
    hosts: Ints,
    cost: Floats,
) -> int:
    """Of the nearest hosts with room for an operator the cheapest first; how many.

    Args:
        tables: all of them.
        operator: what is placed, or a piece of it.
        weight: of the piece's legs; empty for the whole.
        need: tuples/s a host must have free.
        requirement: what a host must meet, counted from 1; 0 for nothing.
        hosts: (k,) filled with nodes.
        cost: (k,) filled with the objective on each.
    """
    tree, places, operators, legs = tables.tree, tables.places, tables.operators, tables.legs
    point = operators.point[operator]
    weights, first = legs.weight, operators.row[operator, LEG]
    if len(weight):
        weights, first = weight, 0
    search = search_for(len(hosts), len(point))
    found = nearest(tree, point, need, requirement, search)
    for i in range(found):
        host = tree.node[0, search.slot[i]]
        value = host_cost(places, operators, legs, operator, weights, first, host)
        at = i
        while at > 0 and (cost[at - 1] > value or (cost[at - 1] == value and hosts[at - 1] > host)):
            cost[at], hosts[at] = cost[at - 1], hosts[at - 1]
            at -= 1
        cost[at], hosts[at] = value, host
    return found


@njit(cache=True, nogil=True)
def nearest_host(shared: SharedTree, point: Floats, need: float, requirement: int) -> int:
    """The nearest host with room, or `NONE`; see `host_tree.nearest`."""
    search = search_for(1, len(point))
    if nearest(shared.tree, point, need, requirement, search):
        return shared.tree.node[0, search.slot[0]]
    return NONE


@njit(cache=True, nogil=True)
def set_host_free(shared: SharedTree, host: int, free: float) -> None:
    """`set_free` of a host; nothing for a node that is none."""
    tree = shared.tree
    if tree.slot[0, host] != NONE:
        set_free(tree, tree.slot[0, host], free)


@njit(cache=True, nogil=True)
def replace_host(shared: SharedTree, host: int, values: Floats, deepest: int) -> int:
    """Take a host out of the tree, and `insert` it if it has values."""
    tree = shared.tree
    remove(tree, host)
    return insert(tree, host, values, deepest) if len(values) else 0


@inlined
def move_operator(
    tree: HostTree, loads: Loads, operators: Operators, legs: Legs, operator: int, new: int
) -> tuple[float, float]:
    """Take a whole operator off its host, if it has one, and put it on another, or nowhere.

    Args:
        tree: the hosts; free capacities are changed.
        loads: what nodes run; changed.
        operators: hosts are changed.
        legs: those that end at the operator are changed.
        operator: what moves.
        new: the other host, or `NONE`.

    Returns:
        What was free on the old and on the new host, tuples/s; 0 for none.
    """
    free, first, slot, row = loads.free, loads.first, tree.slot, operators.row
    old, size = row[operator, HOST], operators.rate[operator, 0] + operators.rate[operator, 1]
    before_old = before_new = 0.0
    if old != NONE:
        before_old = free[old]
        discharge(free, first, operators.chain, old, operator, size)
        # An empty node has its capacity to the last bit: rounding does not add up for ever.
        if first[old] == NONE and loads.pieces[old] == 0:
            free[old] = loads.capacity[old]
        if slot[0, old] != NONE:
            set_free(tree, slot[0, old], free[old])
    if new != NONE:
        before_new = free[new]
        charge(free, first, operators.chain, new, operator, size)
        if slot[0, new] != NONE:
            set_free(tree, slot[0, new], free[new])
    row[operator, HOST] = new
    if row[operator, LINKED]:
        point_legs(operators, legs, operator, new)
    return before_old, before_new


@inlined
def point_legs(operators: Operators, legs: Legs, operator: int, node: int) -> None:
    """Have the legs of an operator's neighbours end at a node."""
    row, begin = operators.row, operators.row[operator, LEG]
    for i in range(begin, begin + row[operator, LEGS]):
        other = legs.other[i]
        if other < 0:
            continue
        for k in range(row[other, LEG], row[other, LEG] + row[other, LEGS]):
            if legs.other[k] == operator:
                legs.end[k] = node


@njit(cache=True, nogil=True)
def move(tables: Tables, operator: int, new: int) -> tuple[float, float]:
    """`move_operator` in all tables, after what it was is kept."""
    row, host = tables.operators.row, tables.operators.row[operator, HOST]
    kept = tables.kept
    keep_one(row, tables.operators.point, kept.row, kept.point, kept.counts, operator, host)
    return move_operator(tables.tree, tables.loads, tables.operators, tables.legs, operator, new)


@njit(cache=True, nogil=True)
def resize(
    tables: Tables, some: Ints, rates: Floats, limits: Floats, fitting: Bools, before: Floats
) -> None:
    """Give whole operators other rates where they run, if they fit there.

    Args:
        tables: all of them; changed.
        some: (k,) operators.
        rates: (k, 3) tuples/s of both inputs and the output.
        limits: see `tables.Limits`: the largest operator, and what counts as room.
        fitting: (k,) filled with whether each has its new rates; else it keeps the old ones.
        before: (k,) filled with what was free on its host, tuples/s, one after the other.
    """
    tree, loads, operators = tables.tree, tables.loads, tables.operators
    largest, enough = limits[LARGEST], limits[ENOUGH]
    for k in range(len(some)):
        host = operators.row[some[k], HOST]
        before[k] = loads.free[host]
        loads.free[host] += operators.rate[some[k], 0] + operators.rate[some[k], 1]
    for k in range(len(some)):
        host, size = operators.row[some[k], HOST], rates[k, 0] + rates[k, 1]
        fitting[k] = fits(loads.free[host], size, size * enough, largest)
        if fitting[k]:
            operators.rate[some[k]] = rates[k]
        else:
            size = operators.rate[some[k], 0] + operators.rate[some[k], 1]
        loads.free[host] -= size
    for k in range(len(some)):
        host = operators.row[some[k], HOST]
        if tree.slot[0, host] != NONE:
            set_free(tree, tree.slot[0, host], loads.free[host])


@njit(cache=True, nogil=True)
def add_operator(
    tables: Tables,
    operator: int,
    logical: int,
    begin: int,
    count: int,
    rates: tuple[float, float, float],
    legs: tuple[tuple[int, int, float], ...],
) -> None:
    """Fill the row of a new operator that is not placed yet.

    Args:
        tables: all of them; changed.
        operator: its row.
        logical: its join or query.
        begin: its first leg.
        count: how many legs it has now.
        rates: tuples/s of its inputs and its output.
        legs: three, of which the first ``count`` count: end, other and weight of each.
    """
    operators, table = tables.operators, tables.legs
    for i in range(count):
        leg = begin + i
        table.end[leg], table.other[leg], table.weight[leg] = legs[i]
    row, rate = operators.row, operators.rate
    row[operator, LEG], row[operator, INPUTS], row[operator, LEGS] = begin, max(count - 1, 0), count
    row[operator, LINKED], row[operator, LOGICAL], row[operator, HOST] = 0, logical, NONE
    row[operator, MOVED] = row[operator, CHANGED] = -1
    rate[operator, LEFT], rate[operator, RIGHT], rate[operator, OUTPUT] = rates
    kept = tables.kept
    keep_one(row, operators.point, kept.row, kept.point, kept.counts, operator, ABSENT)


@njit(cache=True, nogil=True)
def point_at(tables: Tables, operator: int, node: int) -> None:
    """`point_legs` of an operator."""
    point_legs(tables.operators, tables.legs, operator, node)
