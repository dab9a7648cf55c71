"""Cl-SF placement: joins at cluster heads of LEACH-SF, else at the sink (paper, section 4.1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Ints, Problem
from nova_core.strategies.base import parameter_dict
from nova_core.strategies.leach_sf import ClusterParameters, cluster_heads
from nova_core.strategies.relaying import relayed_plan
from nova_core.strategies.spanning_tree import RootedTree


class ClusterSugenoFuzzy:
    """Run every join at the head of its sources' cluster, or at the sink where they have two.

    Every source sends to its head, every head to the sink.
    """

    name: ClassVar[str] = "cl-sf"
    Parameters: ClassVar[type[ClusterParameters]] = ClusterParameters

    def __init__(self, parameters: ClusterParameters | None = None) -> None:
        self.parameters = parameters or ClusterParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; capacity only helps to choose heads, and is not kept."""
        head = cluster_heads(problem, self.parameters)
        trees = {sink: _star(head, sink) for sink in {int(sink) for sink in problem.sink_node}}
        return relayed_plan(problem, self.name, trees, head, parameter_dict(self.parameters))


def _star(head: Ints, sink: int) -> RootedTree:
    every = np.arange(len(head))
    is_head = head == every
    parent, depth = np.where(is_head, sink, head), np.where(is_head, 1, 2)
    parent[sink], depth[sink] = sink, 0
    return RootedTree(parent, depth)
