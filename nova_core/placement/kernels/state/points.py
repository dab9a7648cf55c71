"""Virtual positions of operators that feed each other: all of a query relax together."""

from __future__ import annotations

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Ints
from nova_core.placement.kernels.median import fermat_points
from nova_core.placement.kernels.state.tables import INPUTS, LEG, LEGS, Tables
from nova_core.placement.queries.kernels.springs import contract, relax


@njit(cache=True, nogil=True)
def relax_points(tables: Tables, some: Ints, bounds: Ints) -> None:
    """Recompute the virtual positions of operators; those of others stay.

    See `nova_core.placement.queries.virtual.virtual_positions`.

    Args:
        tables: virtual positions are changed.
        some: (m,) the operators, by query, producers before consumers.
        bounds: (q + 1,) where each query begins.
    """
    for q in range(len(bounds) - 1):
        _relax(tables, some[bounds[q] : bounds[q + 1]])


@njit(cache=True, nogil=True)
def _relax(tables: Tables, some: Ints) -> None:
    operators, legs, position = tables.operators, tables.legs, tables.places.position
    row, many, d = operators.row, len(some), position.shape[1]
    order, most = np.argsort(some), 0
    for one in some:
        most += row[one, LEGS]
    point = np.empty((many + most, d))
    ends, weight = np.empty((most, 2), np.int64), np.empty(most)
    vertices, links = many, 0
    sorted_ones = some[order]
    for n in range(many):
        one = some[n]
        begin = row[one, LEG]
        for i in range(row[one, LEGS]):
            leg = begin + i
            other, far = legs.other[leg], -1
            if other >= 0:
                at = np.searchsorted(sorted_ones, other)
                if at < many and sorted_ones[at] == other:
                    far = order[at]
                    if i >= row[one, INPUTS]:
                        continue  # its consumer has the same link
            if far < 0:
                far = vertices
                vertices += 1
                if other >= 0:
                    point[far] = operators.point[other]
                else:
                    point[far] = position[legs.end[leg]]
            weight[links] = legs.weight[leg]
            ends[links, 0], ends[links, 1] = (far, n) if i < row[one, INPUTS] else (n, far)
            links += 1
    point, ends, weight = point[:vertices], ends[:links], weight[:links]
    free, alive = np.zeros(vertices, np.int64), np.ones(links, np.int64)
    free[:many] = 1
    bound = contract(ends, weight, alive, free)
    place, moving = np.full(vertices, -1), np.empty(many, np.int64)
    count = 0
    for n in range(many):
        if bound[n] == n:
            place[n] = count
            moving[count] = n
            count += 1
    pulls, pulling = np.empty(links, np.int64), 0
    for e in range(links):
        if alive[e] and (place[ends[e, 0]] >= 0 or place[ends[e, 1]] >= 0):
            pulls[pulling] = e
            pulling += 1
    if count == 1 and pulling == 3:
        anchors, heavy = np.empty((1, 3, d)), np.empty((1, 3))
        for k in range(3):
            e = pulls[k]
            far = ends[e, 1] if ends[e, 0] == moving[0] else ends[e, 0]
            anchors[0, k], heavy[0, k] = point[far], weight[e]
        point[moving[0]] = fermat_points(anchors, heavy)[0]
    elif count:
        bounds, all_links = np.array([0, count]), np.array([0, pulling])
        relax(point, ends, weight, moving[:count], bounds, pulls[:pulling], all_links, place)
    for n in range(many):
        far = bound[n]
        while bound[far] != far:
            far = bound[far]
        operators.point[some[n]] = point[far]
