"""Placing operators that feed each other, all of a query at once, where they cost least together.

Operators of a query form a tree, mostly. Dynamic programming finds the best hosts among the
candidates of each: the one it has, those near its virtual position, those that its links end at,
and those of its neighbours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nova_core.borrowing import inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live.changed import keep
from nova_core.placement.kernels.live.host_tree import (
    FREE,
    NONE,
    HostTree,
    meets,
    nearest,
    search_for,
    set_free,
)
from nova_core.placement.kernels.live.hosts import host_cost, move_operator
from nova_core.placement.kernels.live.tables import (
    HOST,
    INPUTS,
    LEFT,
    LEG,
    LEGS,
    RIGHT,
    Legs,
    Limits,
    Loads,
    Operators,
    Places,
    Tables,
)
from nova_core.placement.kernels.tuning import TREE_CANDIDATES, TREE_NEARBY


class _Members(NamedTuple):
    """Work space for operators that are placed together.

    Attributes:
        some: (m,) the operators, producers first.
        order: (m,) their places in the order of their rows.
        parent: (m,) place of the consumer in the tree, or -1.
        up: (m,) what each ms of the way there counts.
        host: (m,) where they run, or are to run; -1 for nowhere.
        before: (m,) what was free on the host that each chose, before it did, tuples/s.
        need: (m,) tuples/s a host must have free.
        requirement: (m,) what a host must meet, counted from 1; 0 for nothing.
        listed: (m, c) candidates.
        filled: (m,) how many there are.
        value: (m, c) least cost of an operator and of all below it, on each candidate.
    """

    some: Ints
    order: Ints
    parent: Ints
    up: Floats
    host: Ints
    before: Floats
    need: Floats
    requirement: Ints
    listed: Ints
    filled: Ints
    value: Floats


@njit(cache=True, nogil=True)
def place_tree(
    tables: Tables, some: Ints, requirement: Ints, limits: Floats, result: Floats
) -> int:
    """Place operators of a query together, or move them where that gains enough.

    Args:
        tables: all of them; changed.
        some: (m,) operators that run whole or nowhere, producers before consumers.
        requirement: (m,) what hosts must meet, counted from 1; 0 for nothing.
        limits: (5,) see `settle.Limits`; a move of several must gain for each, and a share of what
            all cost now.
        result: (m, 4) filled with the old and the new host of each, and with what was free on them
            before, tuples/s.

    Returns:
        How many have a host now, or had one and stay.
    """
    tree, places, loads = tables.tree, tables.places, tables.loads
    operators, legs, kept = tables.operators, tables.legs, tables.kept
    row, many = operators.row, len(some)
    bounds = Limits(limits[0], limits[1], limits[2], limits[3], limits[4])
    members = _work_space(many, some, requirement)
    free_before, complete = np.empty(many), True
    for n in range(many):
        one = some[n]
        size = operators.rate[one, LEFT] + operators.rate[one, RIGHT]
        members.need[n] = max(size, bounds.minimum) * bounds.enough
        members.host[n] = row[one, HOST]
        complete &= row[one, HOST] != NONE
    _find_parents(operators, legs, members)
    before = _cost(places, operators, legs, members) if complete else math.inf
    # Together they give their room back, before they choose.
    for n in range(many):
        old = row[some[n], HOST]
        if old != NONE:
            free_before[n] = loads.free[old]
            _charge(tree, loads, old, -_size(operators, some[n]))
    _list_candidates(tree, operators, legs, members)
    _weigh(places, operators, legs, members)
    _choose(tree, places, loads, operators, members)
    # What is free is as it was, to the last bit: the last one to choose was the first.
    for n in range(many):
        if members.host[n] != NONE:
            _restore(tree, loads, members.host[n], members.before[n])
    for n in range(many - 1, -1, -1):
        if row[some[n], HOST] != NONE:
            _restore(tree, loads, row[some[n], HOST], free_before[n])
    moves = 0
    for n in range(many):
        moves += members.host[n] != row[some[n], HOST]
        result[n, 0] = result[n, 1] = row[some[n], HOST]
    if complete:
        after = _cost(places, operators, legs, members)
        least = max(moves * bounds.gain + bounds.gain_share * before, 1e-9 * before)
        if not after < before - least:
            return many
    keep(row, operators.point, kept.row, kept.point, kept.counts, some)
    placed = 0
    for n in range(many):
        new = members.host[n]
        if new != NONE and new != row[some[n], HOST]:
            result[n, 1] = new
            result[n, 2], result[n, 3] = move_operator(tree, loads, operators, legs, some[n], new)
        placed += row[some[n], HOST] != NONE
    return placed


@njit(cache=True, nogil=True)
def improve_trees(
    tables: Tables,
    some: Ints,
    bounds: Ints,
    requirement: Ints,
    limits: Floats,
    moved: Ints,
    result: Floats,
) -> None:
    """Move operators where that gains enough: those of a query together, then one by one.

    Args:
        tables: all of them; changed.
        some: (m,) operators that run whole, by query, producers before consumers.
        bounds: (q + 1,) where each query begins.
        requirement: (m,) what hosts must meet, counted from 1; 0 for nothing.
        limits: (5,) see `settle.Limits`.
        moved: (2 m,) filled with operators in the order in which they move, or could.
        result: (2 m, 4) filled as that of `place_tree`, in this order.
    """
    for q in range(len(bounds) - 1):
        begin, end = bounds[q], bounds[q + 1]
        group, needed = some[begin:end], requirement[begin:end]
        moved[2 * begin : begin + end] = moved[begin + end : 2 * end] = group
        if len(group) > 1:
            place_tree(tables, group, needed, limits, result[2 * begin : begin + end])
        else:
            result[2 * begin, :2] = NONE
        _improve_each(tables, group, needed, limits, result[begin + end : 2 * end])


@njit(cache=True, nogil=True)
def _improve_each(
    tables: Tables, some: Ints, requirement: Ints, limits: Floats, result: Floats
) -> None:
    """Move each operator to the host nearest to its virtual position, if that gains enough."""
    tree, places, loads = tables.tree, tables.places, tables.loads
    operators, legs, kept = tables.operators, tables.legs, tables.kept
    row, points = operators.row, operators.point
    bounds = Limits(limits[0], limits[1], limits[2], limits[3], limits[4])
    search = search_for(1, points.shape[1])
    for n in range(len(some)):
        one = some[n]
        old, begin = row[one, HOST], row[one, LEG]
        result[n, 0] = result[n, 1] = old
        need = max(_size(operators, one), bounds.minimum) * bounds.enough
        if not nearest(tree, points[one], need, requirement[n], search):
            continue
        new = tree.node[0, search.slot[0]]
        now = host_cost(places, operators, legs, one, legs.weight, begin, old)
        then = host_cost(places, operators, legs, one, legs.weight, begin, new)
        if now - then <= max(bounds.gain + bounds.gain_share * now, 1e-9 * now):
            continue
        keep(row, points, kept.row, kept.point, kept.counts, some[n : n + 1])
        result[n, 1] = new
        result[n, 2], result[n, 3] = move_operator(tree, loads, operators, legs, one, new)


@njit(cache=True, nogil=True)
def _work_space(many: int, some: Ints, requirement: Ints) -> _Members:
    return _Members(
        some,
        np.argsort(some),
        np.empty(many, np.int64),
        np.zeros(many),
        np.empty(many, np.int64),
        np.empty(many),
        np.empty(many),
        requirement,
        np.empty((many, TREE_CANDIDATES), np.int64),
        np.empty(many, np.int64),
        np.empty((many, TREE_CANDIDATES)),
    )


@inlined
def _size(operators: Operators, one: int) -> float:
    size: float = operators.rate[one, LEFT] + operators.rate[one, RIGHT]
    return size


@inlined
def _charge(tree: HostTree, loads: Loads, node: int, size: float) -> None:
    """Take capacity of a node, or give it back."""
    _restore(tree, loads, node, loads.free[node] - size)


@inlined
def _restore(tree: HostTree, loads: Loads, node: int, free: float) -> None:
    """Set what a node has free."""
    loads.free[node] = free
    if tree.slot[0, node] != NONE:
        set_free(tree, tree.slot[0, node], free)


@inlined
def _place_of(members: _Members, operator: int) -> int:
    """The place of an operator among the members, or -1."""
    some, order = members.some, members.order
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if some[order[middle]] < operator:
            low = middle + 1
        else:
            high = middle
    if low < len(order) and some[order[low]] == operator:
        return order[low]
    return -1


@inlined
def _find_parents(operators: Operators, legs: Legs, members: _Members) -> None:
    """A member's first consumer among them is its parent; other links end as if at nodes."""
    row = operators.row
    for n in range(len(members.some)):
        one = members.some[n]
        members.parent[n] = -1
        begin = row[one, LEG]
        for i in range(begin + row[one, INPUTS], begin + row[one, LEGS]):
            place = _place_of(members, legs.other[i]) if legs.other[i] >= 0 else -1
            if place >= 0 and members.parent[n] in (-1, place):
                members.parent[n] = place
                members.up[n] += legs.weight[i]


@inlined
def _in_tree(members: _Members, n: int, place: int, is_input: bool) -> bool:
    """Whether a leg of a member to another one is part of the tree."""
    if place < 0:
        return False
    return members.parent[place] == n if is_input else members.parent[n] == place


@inlined
def _apart(places: Places, one: int, other: int) -> float:
    """What a link between two nodes costs, ms."""
    if one == other:
        return 0.0
    square = 0.0
    for k in range(places.position.shape[1]):
        away = places.position[one, k] - places.position[other, k]
        square += away * away
    return math.sqrt(square) + places.extra[one, 0] + places.extra[other, 0]


@inlined
def _to_point(places: Places, node: int, point: Floats) -> float:
    square = 0.0
    for k in range(len(point)):
        away = places.position[node, k] - point[k]
        square += away * away
    return math.sqrt(square) + places.extra[node, 0]


@njit(cache=True, nogil=True)
def _own(
    places: Places, operators: Operators, legs: Legs, members: _Members, n: int, node: int
) -> float:
    """Cost of a member's legs outside the tree, and of hosting all its legs."""
    row, one = operators.row, members.some[n]
    begin, total, weight = row[one, LEG], 0.0, 0.0
    for i in range(row[one, LEGS]):
        leg = begin + i
        weight += legs.weight[leg]
        end, other = legs.end[leg], legs.other[leg]
        place = _place_of(members, other) if other >= 0 else -1
        if _in_tree(members, n, place, i < row[one, INPUTS]):
            continue
        if place >= 0:
            end = members.host[place]
        if end >= 0:
            total += legs.weight[leg] * _apart(places, node, end)
        else:
            total += legs.weight[leg] * _to_point(places, node, operators.point[other])
    return float(total + weight * places.extra[node, 1])


@njit(cache=True, nogil=True)
def _cost(places: Places, operators: Operators, legs: Legs, members: _Members) -> float:
    """Cost of all members' links on their hosts; infinite if one is nowhere."""
    total = 0.0
    for n in range(len(members.some)):
        if members.host[n] == NONE:
            return math.inf
        total += _own(places, operators, legs, members, n, members.host[n])
        up = members.parent[n]
        if up >= 0:
            if members.host[up] == NONE:
                return math.inf
            total += members.up[n] * _apart(places, members.host[n], members.host[up])
    return total


@inlined
def _add(tree: HostTree, members: _Members, n: int, node: int) -> None:
    """One more candidate of a member, if it is a host with room and not listed yet."""
    count = members.filled[n]
    if count == members.listed.shape[1] or tree.slot[0, node] == NONE:
        return
    if tree.row[0, tree.slot[0, node], FREE] < members.need[n]:
        return
    if members.requirement[n] and not meets(tree, node, members.requirement[n]):
        return
    for k in range(count):
        if members.listed[n, k] == node:
            return
    members.listed[n, count] = node
    members.filled[n] = count + 1


@njit(cache=True, nogil=True)
def _list_candidates(tree: HostTree, operators: Operators, legs: Legs, members: _Members) -> None:
    """Where each may go: where it is, near its virtual position, its legs' ends; its relatives'."""
    row, many = operators.row, len(members.some)
    search = search_for(TREE_NEARBY, operators.point.shape[1])
    for n in range(many):
        one = members.some[n]
        members.filled[n] = 0
        if members.host[n] != NONE:
            _add(tree, members, n, members.host[n])
        point = operators.point[one]
        for k in range(nearest(tree, point, members.need[n], members.requirement[n], search)):
            _add(tree, members, n, tree.node[0, search.slot[k]])
        begin = row[one, LEG]
        for i in range(begin, begin + row[one, LEGS]):
            if legs.end[i] >= 0 and members.filled[n] < TREE_CANDIDATES // 2:
                _add(tree, members, n, legs.end[i])
    base = members.filled.copy()
    for n in range(many):
        up = members.parent[n]
        if up >= 0:
            for k in range(base[up]):
                _add(tree, members, n, members.listed[up, k])
            for k in range(base[n]):
                _add(tree, members, up, members.listed[n, k])


@njit(cache=True, nogil=True)
def _weigh(places: Places, operators: Operators, legs: Legs, members: _Members) -> None:
    """Upwards: the least cost of all below, for each candidate."""
    listed, value = members.listed, members.value
    for n in range(len(members.some)):
        for k in range(members.filled[n]):
            value[n, k] = _own(places, operators, legs, members, n, listed[n, k])
    for n in range(len(members.some)):
        up, weight = members.parent[n], members.up[n]
        if up < 0:
            continue
        point = operators.point[members.some[n]]
        for k in range(members.filled[up]):
            node, best = listed[up, k], math.inf
            for j in range(members.filled[n]):
                best = min(best, value[n, j] + weight * _apart(places, listed[n, j], node))
            if members.filled[n] == 0:
                best = weight * _to_point(places, node, point)
            value[up, k] += best


@njit(cache=True, nogil=True)
def _choose(
    tree: HostTree, places: Places, loads: Loads, operators: Operators, members: _Members
) -> None:
    """Downwards: consumers choose first, as long as there is room."""
    search = search_for(1, operators.point.shape[1])
    for n in range(len(members.some) - 1, -1, -1):
        up, least = members.parent[n], math.inf
        members.host[n] = NONE
        for k in range(members.filled[n]):
            node = members.listed[n, k]
            if loads.free[node] < members.need[n]:
                continue
            cost = members.value[n, k]
            if up >= 0 and members.host[up] != NONE:
                cost += members.up[n] * _apart(places, node, members.host[up])
            if cost < least:
                members.host[n], least = node, cost
        if members.host[n] == NONE:
            point = operators.point[members.some[n]]
            if nearest(tree, point, members.need[n], members.requirement[n], search):
                members.host[n] = tree.node[0, search.slot[0]]
        if members.host[n] != NONE:
            members.before[n] = loads.free[members.host[n]]
            _charge(tree, loads, members.host[n], _size(operators, members.some[n]))
