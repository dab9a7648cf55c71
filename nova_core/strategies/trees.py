"""Operators along trees: spanning trees of a topology, and plans whose tuples travel along them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nova_core.errors import ProblemError
from nova_core.model.expansion import graph_of
from nova_core.model.plan import Plan, Routes
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.strategies.base import Strategy

# Routes of more hops than this in total would not fit in memory (8 bytes each).
MOST_HOPS = 200_000_000
# Below this many nodes, Prim's quadratic algorithm is as fast as a triangulation.
_TRIANGULATE_FROM = 200


@dataclass(frozen=True, eq=False)
class RootedTree:
    """A spanning tree seen from its root.

    Attributes:
        parent: (n,) next node towards the root; the root's own is itself.
        depth: (n,) hops to the root.
    """

    parent: Ints
    depth: Ints

    def meeting_point(self, first: Ints, second: Ints) -> Ints:
        """(p,) node where the ways of two nodes to the root meet: the lowest common ancestor."""
        a, b = first.copy(), second.copy()
        open_ = np.flatnonzero(a != b)
        while len(open_):
            x, y = a[open_], b[open_]
            up_x, up_y = self.depth[x] >= self.depth[y], self.depth[y] >= self.depth[x]
            a[open_] = np.where(up_x, self.parent[x], x)
            b[open_] = np.where(up_y, self.parent[y], y)
            open_ = open_[a[open_] != b[open_]]
        return a

    def climb(self, start: Ints, end: Ints, offset: Ints, out: Ints) -> None:
        """Write the way from each node up to an ancestor of it, both included.

        Args:
            start: (w,) where ways begin.
            end: (w,) ancestors of these where they end.
            offset: (w,) where in ``out`` each way goes.
            out: receives ``depth[start] - depth[end] + 1`` nodes from every offset on.
        """
        hops = self.depth[start] - self.depth[end]
        order = np.argsort(-hops, kind="stable")
        current, position, hops = start[order], offset[order], hops[order]
        out[position] = current
        for step in range(1, int(hops.max(initial=0)) + 1):
            longer = np.searchsorted(-hops, -step, side="right")
            current, position = self.parent[current[:longer]], position[:longer]
            out[position + step] = current


class Tree(Strategy):
    """Run every operator where its sources' ways to the sink meet in the minimum spanning tree.

    Tuples travel along the tree's edges, so every node between receives them to pass them on
    (paper, section 4.1, WSN style). Those of whole queries, whose plans have no routes, go straight
    from one operator to the next.
    """

    name = "tree"

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether a node may host.

        Raises:
            ProblemError: when the routes would be too long to write down.
        """
        edges = minimum_spanning_tree(problem.latency_position, problem.nodes.height)
        return relayed_plan(self, problem, lambda sink: rooted(edges, len(problem.nodes), sink))


def relayed_plan(
    strategy: Strategy,
    problem: Problem,
    tree_of: Callable[[int], RootedTree],
    entry: Ints | None = None,
) -> Plan:
    """Run every operator where its inputs meet in the tree of its sink; tuples travel along it.

    Args:
        strategy: whose plan it is.
        problem: what is placed.
        tree_of: gives the tree over all nodes that is rooted at a sink.
        entry: (n,) first node on each node's way that may join, itself or an ancestor of it in all
            trees but the one it is the root of; None where every node may.

    Raises:
        ProblemError: when the routes would be too long to write down.
    """
    graph, trees = graph_of(problem), cache(tree_of)
    host = meeting_hosts(problem, trees, entry)
    if problem.queries:
        return strategy.whole_plan(problem, host[graph.bodies])
    # Links in the order of `Plan.links`; they end where they begin, or at an ancestor.
    link = graph.at_body[1]
    start, end = host[graph.links.producer[link]], host[graph.links.consumer[link]]
    sink = problem.sinks[graph.query[graph.links.consumer[link]]]
    length = np.empty_like(start)
    rows = [(trees(node), np.flatnonzero(sink == node)) for node in np.unique(sink).tolist()]
    for tree, mine in rows:
        length[mine] = tree.depth[start[mine]] - tree.depth[end[mine]] + 1
    hops = int(length.sum())
    if hops > MOST_HOPS:
        raise ProblemError(
            f"strategy {strategy.name}: routes along the tree have {hops} hops in total, at most "
            f"{MOST_HOPS} can be kept; use a smaller topology or another strategy"
        )
    offset = np.concatenate(([0], np.cumsum(length)))
    node = np.empty(hops, np.int64)
    for tree, mine in rows:
        tree.climb(start[mine], end[mine], offset[mine], node)
    return strategy.whole_plan(problem, host[graph.bodies], routes=Routes(offset, node))


def meeting_hosts(
    problem: Problem, tree_of: Callable[[int], RootedTree], entry: Ints | None = None
) -> Ints:
    """(o,) nodes: every body where the ways of its inputs to its sink meet.

    What has one input runs where that comes from.

    Args:
        problem: what is placed.
        tree_of: gives the tree over all nodes that is rooted at a sink.
        entry: as of `relayed_plan`.
    """
    graph = graph_of(problem)
    host, (producer, consumer, _, _) = graph.node.copy(), graph.links
    sink = problem.sinks[graph.query]  # of sources without meaning
    # Bodies of one depth and sink at a time; what they receive from comes before.
    body = graph.bodies[np.lexsort((sink[graph.bodies], graph.depth[graph.bodies]))]
    ends = np.flatnonzero(np.diff(graph.depth[body]) | np.diff(sink[body])) + 1
    for some in np.split(body, ends) if len(body) else []:
        root = int(sink[some[0]])
        tree = tree_of(root)
        first = np.searchsorted(consumer, some)
        count = np.searchsorted(consumer, some, side="right") - first

        def begins(link: Ints, root: int = root) -> Ints:
            at = host[producer[link]]
            return at if entry is None else np.where(at == root, root, entry[at])

        met = begins(first)
        for nth in range(1, int(count.max())):
            more = np.flatnonzero(count > nth)
            met[more] = tree.meeting_point(met[more], begins(first[more] + nth))
        host[some] = met
    return host


def rooted(edges: Ints, count: int, root: int) -> RootedTree:
    """The tree of the given (count - 1, 2) edges seen from a root."""
    from scipy.sparse import csr_array

    graph = csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    return shortest_ways(graph, root)


def shortest_ways(graph: Any, root: int) -> RootedTree:
    """The tree of the shortest ways to a root.

    Args:
        graph: (n, n) sparse array of edges' lengths, 1 or more; ways are less than 1 longer than
            they have hops.
        root: where they lead to.
    """
    from scipy.sparse.csgraph import dijkstra

    way, towards = dijkstra(graph, directed=False, indices=[root], return_predecessors=True)
    parent = towards[0].astype(np.int64)
    parent[root] = root
    return RootedTree(parent, np.floor(way[0]).astype(np.int64))


def minimum_spanning_tree(position: Floats, height: Floats | None = None) -> Ints:
    """Edges of the minimum spanning tree by latency.

    Takes O(n log n) in up to three dimensions without heights, where the tree is part of the
    Delaunay triangulation, and O(n^2) time with O(n) memory otherwise.

    Args:
        position: (n, d) coordinates, ms.
        height: (n,) what every edge of a node adds to its length, ms; None for nothing.

    Returns:
        (n - 1, 2) node indices.
    """
    if height is not None:
        return _prim(position, height)
    distinct, first, place = np.unique(position, axis=0, return_index=True, return_inverse=True)
    # Nodes at the same place hang on the first of them.
    twins = np.setdiff1d(np.arange(len(position)), first, assume_unique=True)
    at_zero = np.stack([first[place[twins]], twins], axis=1)
    spanning = first[_tree_of_distinct(distinct)]
    return np.concatenate([spanning, at_zero]).astype(np.int64)


def _tree_of_distinct(position: Floats) -> Ints:
    flat = _without_empty_dimensions(position)
    count, dimensions = flat.shape
    if dimensions <= 1:
        # Distinct points may be so close that their distance rounds to 0.
        order = np.argsort(flat[:, 0], kind="stable") if dimensions else np.arange(count)
        return np.stack([order[:-1], order[1:]], axis=1)
    candidates = None
    if dimensions <= 3 and count >= _TRIANGULATE_FROM:
        candidates = _triangulation(flat)
    return _prim(flat) if candidates is None else _shortest(flat, candidates)


def _without_empty_dimensions(position: Floats) -> Floats:
    """The same points around the origin, in as many coordinates as they span."""
    centred = position - position.mean(axis=0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    rank = int((spread > 1e-12 * max(float(spread.max(initial=0.0)), 1e-300)).sum())
    if rank == position.shape[1]:
        return np.asarray(centred, np.float64)
    return np.asarray(centred @ axes[:rank].T)


def _triangulation(position: Floats) -> NDArray[np.int64] | None:
    """Edges of the Delaunay triangulation, or None where it fails."""
    from scipy.spatial import Delaunay, QhullError

    try:
        mesh = Delaunay(position)
    except QhullError:
        return None
    start, neighbour = mesh.vertex_neighbor_vertices
    edges = np.stack([np.repeat(np.arange(len(position)), np.diff(start)), neighbour], axis=1)
    # Points too close to others to be in the mesh come with the vertex nearest to them.
    return np.concatenate([edges[edges[:, 0] < edges[:, 1]], mesh.coplanar[:, [0, 2]]])


def _shortest(position: Floats, edges: Ints) -> Ints:
    """Spanning edges among the candidates."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import minimum_spanning_tree as spanning

    count = len(position)
    length = np.linalg.norm(position[edges[:, 0]] - position[edges[:, 1]], axis=1)
    # scipy takes an edge of length 0 for none.
    length = np.maximum(length, np.finfo(np.float64).tiny)
    tree = spanning(csr_array((length, (edges[:, 0], edges[:, 1])), shape=(count, count))).tocoo()
    return np.stack([tree.row, tree.col], axis=1)


def _prim(position: Floats, height: Floats | None = None) -> Ints:
    """Prim's algorithm over all pairs without keeping them."""
    count = len(position)
    edges = np.empty((count - 1, 2), np.int64)
    nearest = np.zeros(count, np.int64)
    distance = np.full(count, np.inf)
    outside = np.ones(count, bool)
    last = 0
    for row in range(count - 1):
        outside[last] = False
        to_last = np.linalg.norm(position - position[last], axis=1)
        if height is not None:
            to_last += height + height[last]
        closer = to_last < distance
        nearest[closer], distance[closer] = last, to_last[closer]
        last = int(np.argmin(np.where(outside, distance, np.inf)))
        edges[row] = nearest[last], last
    return edges
