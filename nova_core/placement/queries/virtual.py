"""Phase II of operator graphs: all operators of a query relax together in the cost space.

Links are springs whose pull is their weight however long they are (paper, section 3.6, after Rizou
et al. 2010): the least sum of weight times distance, which is convex, to a relative gap that is
reported. An operator alone between three ends has the closed form of a two-way join.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.model.graph import Graph
from nova_core.model.problem import Floats, Ints


@dataclass(frozen=True, eq=False)
class Virtual:
    """Where operators would be if every point were a node.

    Attributes:
        point: (o, d) of all operators, ms; sources and sinks are at their nodes.
        gap: how far the sums of distances may be above the least, relative to them, at worst.
        cost: sum of weight times distance.
    """

    point: Floats
    gap: float
    cost: float


def virtual_positions(graph: Graph, position: Floats, weight: Floats) -> Virtual:
    """Positions that minimize the sum over links of weight times distance.

    Args:
        graph: what to place.
        position: (n, d) nodes' coordinates, ms.
        weight: (e,) of `Graph.links`.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    from nova_core.placement.kernels.median import fermat_points
    from nova_core.placement.queries.kernels.springs import contract, relax

    producer, consumer, _, _ = graph.links
    many = len(graph.root)
    pinned = graph.node
    free = np.zeros(many, np.int64)
    free[graph.bodies] = 1
    point = np.zeros((many, position.shape[1]))
    point[pinned >= 0] = position[pinned[pinned >= 0]]
    ends = np.stack([producer, consumer], axis=1)
    alive = np.ones(len(ends), np.int64)
    bound = contract(ends, weight, alive, free)
    moves = (free == 1) & (bound == np.arange(many))
    ends, heavy = ends[alive == 1], weight[alive == 1]
    between = moves[ends].all(axis=1)
    between_of = coo_array((np.ones(between.sum()), ends[between].T), shape=(many, many))
    component = connected_components(between_of, directed=False)[1]
    # Components are named by the free vertices; sources and sinks belong to none.
    here = np.where(moves[ends[:, 0]], component[ends[:, 0]], component[ends[:, 1]])
    outer = moves[ends].any(axis=1)
    links = np.flatnonzero(outer)
    links = links[np.argsort(here[links], kind="stable")]
    members = np.flatnonzero(moves)
    # What several queries share comes last: Cholesky's rows then reach back for it alone, and not
    # for all that reads it.
    shared = np.zeros(many, bool)
    shared[producer[graph.query[producer] != graph.query[consumer]]] = True
    members = members[np.lexsort((shared[members], component[members]))]
    names, first, count = np.unique(component[members], return_index=True, return_counts=True)
    link_first = np.searchsorted(here[links], names)
    link_count = np.searchsorted(here[links], names, side="right") - link_first
    single = (count == 1) & (link_count == 3)
    if single.any():
        rows = links[link_first[single][:, None] + np.arange(3)]
        mine = members[first[single]][:, None]
        others = np.where(ends[rows][..., 0] == mine, ends[rows][..., 1], ends[rows][..., 0])
        point[mine[:, 0]] = fermat_points(point[others], heavy[rows])
    gap = 0.0
    rest = np.flatnonzero(~single)
    if len(rest):
        place = np.full(many, -1)
        place[members] = np.arange(len(members)) - np.repeat(first, count)
        place[members[first[single]]] = -1
        gaps = relax(
            point,
            ends,
            heavy,
            _runs(members, first[rest], count[rest]),
            np.append(0, np.cumsum(count[rest])),
            _runs(links, link_first[rest], link_count[rest]),
            np.append(0, np.cumsum(link_count[rest])),
            place,
        )
        gap = float(gaps.max())
    while True:  # follow chains of bound operators
        further = bound[bound]
        if np.array_equal(further, bound):
            break
        bound = further
    point = point[bound[graph.root]]
    distance = np.linalg.norm(point[producer] - point[consumer], axis=1)
    return Virtual(point, gap, float(weight @ distance))


def medians(position: Floats, at: Ints, node: Ints, weight: Floats) -> tuple[Floats, Floats]:
    """Points that minimize the weighted sum of distances to nodes, for many runs of nodes.

    Args:
        position: (n, d) nodes' coordinates, ms.
        at: (c + 1,) where each run begins in the next two.
        node: (e,) nodes.
        weight: (e,) non-negative.

    Returns:
        (c, d) points, ms, and (c,) sums there.
    """
    from nova_core.placement.geometric_median import geometric_median, weighted_distance
    from nova_core.placement.queries.kernels.springs import relax

    count, three = np.diff(at), np.arange(3)
    few, many = np.flatnonzero(count <= 3), np.flatnonzero(count > 3)
    # What a run has less than three of weighs nothing.
    rows = np.minimum(at[few][:, None] + three, len(node) - 1)
    anchors, heavy = position[node[rows]], weight[rows] * (three < count[few][:, None])
    point, total = np.empty((len(count), position.shape[1])), np.empty(len(count))
    point[few] = geometric_median(anchors, heavy)
    total[few] = weighted_distance(anchors, heavy, point[few])
    if len(many):
        link = _runs(np.arange(len(node)), at[many], count[many])
        anchors, each = position[node[link]], np.arange(len(link))
        centre, which = np.arange(len(many)), np.repeat(np.arange(len(many)), count[many])
        vertex = np.append(anchors, np.zeros((len(many), anchors.shape[1])), axis=0)
        ends = np.stack([each, which + len(each)], axis=1)
        link_at = np.append(0, count[many].cumsum())
        place = np.append(each * 0 - 1, centre * 0)
        one_each = np.append(centre, len(many))
        relax(vertex, ends, weight[link], centre + len(each), one_each, each, link_at, place)
        point[many] = vertex[len(each) :]
        way = np.linalg.norm(anchors - point[many][which], axis=1)
        total[many] = np.bincount(which, weight[link] * way)
    return point, total


def _runs(values: Ints, first: Ints, count: Ints) -> Ints:
    """Stretches of an array, one after the other."""
    offset = np.append(0, np.cumsum(count))
    runs: Ints = values[np.repeat(first - offset[:-1], count) + np.arange(offset[-1])]
    return runs
