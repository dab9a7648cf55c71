"""Hierarchical topologies as in NebulaStream, nodes with parents up to the sink, and their paths.

A problem has no such hierarchy, only latencies between any two nodes, so one is derived from them.
Path selection finds the part of it that a query is placed on: the paths of a logical source's
physical sources are made to share nodes. An occurrence matrix counts how many of them can pass a
node; of several parents, the one above which nodes occur most on average is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nova_core.model.problem import Bools, Ints, Problem
from nova_core.strategies.base import WHOLE, check_range


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Nodes with their parents; every way up ends at the sink.

    Attributes:
        sink: the node without parents.
        parents: of each node, the preferred one first; there are no cycles.
    """

    sink: int
    parents: Mapping[int, Sequence[int]]
    _hops: dict[int, dict[int, int]] = field(default_factory=dict, init=False, repr=False)

    def hops(self, node: int) -> Mapping[int, int]:
        """Hops to every node on any way from a node to the sink, both included, nearest first."""
        if node not in self._hops:
            hops: dict[int, int] = {}
            level, count = [node], 0
            while level:
                hops.update(dict.fromkeys(level, count))
                upper = dict.fromkeys(p for n in level for p in self.parents.get(n, ()))
                level, count = [p for p in upper if p not in hops], count + 1
            self._hops[node] = hops
        return self._hops[node]

    def way(self, node: int, target: int) -> list[int]:
        """Nodes from one up to another above it, both included, by the fewest hops."""
        way = [node]
        while way[-1] != target:
            leading = (p for p in self.parents[way[-1]] if target in self.hops(p))
            way.append(min(leading, key=lambda parent: self.hops(parent)[target]))
        return way

    def common(self, nodes: Iterable[int]) -> list[int]:
        """Nodes that can be reached from all the given ones, those with the fewest hops first.

        What counts is the longest of the ways, then their sum.
        """
        hops = [self.hops(node) for node in nodes]
        shared = [n for n in hops[0] if all(n in other for other in hops[1:])]
        return sorted(shared, key=lambda n: (max(h[n] for h in hops), sum(h[n] for h in hops)))


@dataclass(frozen=True)
class HierarchyParameters:
    """How a hierarchy is derived from a cost space.

    Attributes:
        parents: most parents of a node.
        levels: most hops from any node to the sink.
    """

    parents: int = 2
    levels: int = 4

    def __post_init__(self) -> None:
        check_range("hierarchy:", self, "parents levels", 1, expected=WHOLE)


def derive_hierarchy(problem: Problem, sink: int, parameters: HierarchyParameters) -> Hierarchy:
    """Rings around a sink, from edge over fog to cloud.

    The outermost ring is everything more than half as far from the sink as the farthest node, the
    next one everything more than a quarter as far, and so on; the innermost holds the rest. The
    parents of a node are those nearest to it, by coordinates, among the sink and all *relays* in
    rings within its own; a relay is a worker that produces nothing. The innermost ring sends
    straight to the sink. Budgets of links do not make a hierarchy: pairs without one are unlimited.

    Takes O(n log n) time.
    """
    producing = np.zeros(len(problem.nodes), bool)
    if problem.queries:
        producing[problem.sources.node] = True
    else:
        producing[problem.left_node] = producing[problem.right_node] = True
    member = producing | problem.nodes.worker
    relay = problem.nodes.worker & ~producing
    member[sink] = relay[sink] = False
    ring = _rings(problem, sink, member, parameters.levels)
    parents: dict[int, Sequence[int]] = {}
    for number in range(parameters.levels):
        members = np.flatnonzero(member & (ring == number))
        inner = np.append(np.flatnonzero(relay & (ring > number)), sink)
        nearest = _nearest(problem, members, inner, min(parameters.parents, len(inner)))
        parents.update(zip(members.tolist(), nearest.tolist(), strict=True))
    return Hierarchy(sink, parents)


def _rings(problem: Problem, sink: int, member: Bools, levels: int) -> Ints:
    """(n,) ring of every node; 0 is the outermost."""
    every = np.arange(len(member))
    distance = problem.distance(every, np.full(len(every), sink))
    farthest = float(distance[member].max(initial=0.0))
    ring = np.full(len(every), levels - 1)
    apart = member & (distance > 0)
    halvings = np.floor(np.log2(farthest / distance[apart]))
    ring[apart] = np.minimum(halvings, levels - 1).astype(np.int64)
    return ring


def _nearest(problem: Problem, members: Ints, candidates: Ints, count: int) -> Ints:
    """(m, count) the candidates nearest to every member, the nearest first."""
    from scipy.spatial import cKDTree

    position = problem.latency_position
    if len(members) == 0:
        return np.empty((0, count), np.int64)
    rows = cKDTree(position[candidates]).query(position[members], k=[*range(1, count + 1)])[1]
    return np.asarray(candidates[rows])


def occurrences(topology: Hierarchy, sources: Iterable[int]) -> Counter[int]:
    """How many physical sources' sub-graphs hold each node: row sums of the occurrence matrix.

    A physical source's sub-graph is everything on any way from it to the sink.

    Args:
        topology: where the sources are.
        sources: nodes of one logical source's physical sources, one for each of them.
    """
    counts: Counter[int] = Counter()
    for source in sources:
        counts.update(topology.hops(source).keys())
    return counts


def parent_weight(topology: Hierarchy, counts: Mapping[int, int], parent: int) -> float:
    """W of a parent: mean occurrence over all nodes from it to the sink, both included."""
    above = topology.hops(parent)
    return sum(counts[node] for node in above) / len(above)


def select_paths(topology: Hierarchy, sources: Sequence[int]) -> Hierarchy:
    """The pruned and merged sub-graphs of one logical source: each node keeps one parent.

    Of parents with the same weight, the first one stays.

    Args:
        topology: where the sources are.
        sources: nodes of the logical source's physical sources.
    """
    counts = occurrences(topology, sources)
    selected: dict[int, Sequence[int]] = {}
    for source in sources:
        node = source
        while node != topology.sink and node not in selected:
            parents = topology.parents[node]
            best = max(parents, key=lambda parent: parent_weight(topology, counts, parent))
            selected[node] = (best,)
            node = best
    return Hierarchy(topology.sink, selected)


def merge(selected: Sequence[Hierarchy]) -> Hierarchy:
    """One sub-graph out of those of several logical sources; nodes may have several parents."""
    merged: dict[int, dict[int, None]] = {}
    for part in selected:
        for node, parents in part.parents.items():
            merged.setdefault(node, {}).update(dict.fromkeys(parents))
    return Hierarchy(selected[0].sink, {node: tuple(up) for node, up in merged.items()})
