"""Path selection: which part of a topology a query is placed on (NebulaStream, query placement).

For each logical source, the ways of its physical sources are made to share nodes: an occurrence
matrix tells how many of them can pass a node, and of several parents the one is kept above which
nodes occur most on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nova_core.strategies.nes_topology import Hierarchy


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
    kept: dict[int, Sequence[int]] = {}
    for source in sources:
        node = source
        while node != topology.sink and node not in kept:
            parents = topology.parents[node]
            best = max(parents, key=lambda parent: parent_weight(topology, counts, parent))
            kept[node] = (best,)
            node = best
    return Hierarchy(topology.sink, kept)


def merge(selected: Sequence[Hierarchy]) -> Hierarchy:
    """One sub-graph out of those of several logical sources; nodes may have several parents."""
    merged: dict[int, dict[int, None]] = {}
    for part in selected:
        for node, parents in part.parents.items():
            merged.setdefault(node, {}).update(dict.fromkeys(parents))
    return Hierarchy(selected[0].sink, {node: tuple(up) for node, up in merged.items()})


__all__ = ["merge", "occurrences", "parent_weight", "select_paths"]
