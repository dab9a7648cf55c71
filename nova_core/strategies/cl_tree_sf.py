"""Cl-Tree-SF placement: relaying along a spanning tree of cluster heads (paper, section 4.1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Ints, Problem
from nova_core.strategies.base import parameter_dict
from nova_core.strategies.leach_sf import ClusterParameters, cluster_heads
from nova_core.strategies.relaying import relayed_plan
from nova_core.strategies.spanning_tree import RootedTree, minimum_spanning_tree, rooted


class ClusterTreeSugenoFuzzy:
    """Run every join where its sources' ways meet in the spanning tree of heads and sink.

    Every source sends to the head of its cluster, from where tuples travel along the tree.
    """

    name: ClassVar[str] = "cl-tree-sf"
    Parameters: ClassVar[type[ClusterParameters]] = ClusterParameters

    def __init__(self, parameters: ClusterParameters | None = None) -> None:
        self.parameters = parameters or ClusterParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; capacity only helps to choose heads, and is not kept.

        Raises:
            ProblemError: when the routes would be too long to write down.
        """
        head = cluster_heads(problem, self.parameters)
        sinks = {int(sink) for sink in problem.sink_node}
        trees = {sink: _tree(problem, head, sink) for sink in sinks}
        return relayed_plan(problem, self.name, trees, head, parameter_dict(self.parameters))


def _tree(problem: Problem, head: Ints, sink: int) -> RootedTree:
    member, height = np.union1d(head, [sink]), problem.nodes.height
    heights = None if height is None else height[member]
    edges = minimum_spanning_tree(problem.latency_position[member], heights)
    tree = rooted(edges, len(member), int(np.searchsorted(member, sink)))
    parent, depth = head.copy(), np.zeros(len(head), np.int64)
    depth[member] = tree.depth
    parent[member] = member[tree.parent]
    others = np.ones(len(head), bool)
    others[member] = False
    depth[others] = depth[head[others]] + 1
    return RootedTree(parent, depth)
