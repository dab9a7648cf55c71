"""Moving single operators to better hosts near them, and swapping pairs of them."""

from __future__ import annotations

import numpy as np

from nova_core.borrowing import inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.rules import needed
from nova_core.placement.kernels.state.host_tree import meets, nearest, search_for
from nova_core.placement.kernels.state.hosts import host_cost, move_operator, point_legs
from nova_core.placement.kernels.state.tables import (
    ENOUGH,
    HOST,
    LEFT,
    LEG,
    LEGS,
    MINIMUM,
    RIGHT,
    Legs,
    Operators,
    Tables,
)

# Gains below this share of a cost are rounding.
_ROUNDING = 1e-12


@njit(cache=True, nogil=True)
def improve(tables: Tables, requirement: Ints, limits: Floats, nearby: int) -> float:
    """Move each operator to a better host near it, or swap it with another, where that fits.

    Args:
        tables: all of them; changed. All operators are whole and have a host.
        requirement: (o,) what the hosts of each must meet, counted from 1; 0 for nothing.
        limits: (5,) see `Limits`.
        nearby: hosts looked at for each.

    Returns:
        What that saves.
    """
    tree, places, loads = tables.tree, tables.places, tables.loads
    operators, legs = tables.operators, tables.legs
    row, rate, weight, free = operators.row, operators.rate, legs.weight, loads.free
    minimum, enough, limited = limits[MINIMUM], limits[ENOUGH], len(tree.offer) > 0
    search, saved, count = search_for(nearby, places.position.shape[1]), 0.0, len(row)
    size, need = np.empty(count), np.empty(count)
    for a in range(count):
        size[a] = rate[a, LEFT] + rate[a, RIGHT]
        need[a] = needed(size[a], minimum, enough)
    for a in range(count):
        here = row[a, HOST]
        now = host_cost(places, operators, legs, a, weight, row[a, LEG], here)
        best, least = here, now * (1 - _ROUNDING)
        for k in range(nearest(tree, operators.point[a], need[a], requirement[a], search)):
            host = tree.node[0, search.slot[k]]
            cost = host_cost(places, operators, legs, a, weight, row[a, LEG], host)
            if host != here and cost < least:
                best, least = host, cost
        if best != here:
            move_operator(tree, loads, operators, legs, a, best)
            saved += now - least
        for b in range(count):
            here, there = row[a, HOST], row[b, HOST]
            if here == there or free[here] + size[a] < need[b] or free[there] + size[b] < need[a]:
                continue
            if limited and not (
                (requirement[a] == 0 or meets(tree, there, requirement[a]))
                and (requirement[b] == 0 or meets(tree, here, requirement[b]))
            ):
                continue
            before = host_cost(places, operators, legs, a, weight, row[a, LEG], here)
            before += host_cost(places, operators, legs, b, weight, row[b, LEG], there)
            linked = _are_linked(operators, legs, a, b)
            if linked:
                point_legs(operators, legs, a, there)
                point_legs(operators, legs, b, here)
            after = host_cost(places, operators, legs, a, weight, row[a, LEG], there)
            after += host_cost(places, operators, legs, b, weight, row[b, LEG], here)
            if linked:
                point_legs(operators, legs, a, here)
                point_legs(operators, legs, b, there)
            if after < before * (1 - _ROUNDING):
                move_operator(tree, loads, operators, legs, a, there)
                move_operator(tree, loads, operators, legs, b, here)
                saved += before - after
    return saved


@inlined
def _are_linked(operators: Operators, legs: Legs, one: int, other: int) -> bool:
    begin, linked = operators.row[one, LEG], False
    for leg in range(begin, begin + operators.row[one, LEGS]):
        linked |= legs.other[leg] == other
    return linked
