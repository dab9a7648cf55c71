"""Tree placement: relaying along the minimum spanning tree (paper, section 4.1, WSN style)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.relaying import relayed_plan
from nova_core.strategies.spanning_tree import minimum_spanning_tree, rooted


@dataclass(frozen=True)
class TreeParameters:
    """Nothing to choose."""


class Tree:
    """Run every join where its sources' ways to the sink meet in the minimum spanning tree.

    Tuples travel along the tree's edges, so every node between receives them to pass them on.
    """

    name: ClassVar[str] = "tree"
    Parameters: ClassVar[type[TreeParameters]] = TreeParameters

    def __init__(self, parameters: TreeParameters | None = None) -> None:
        self.parameters = parameters or TreeParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether a node may host.

        Raises:
            ProblemError: when the routes would be too long to write down.
        """
        edges = minimum_spanning_tree(problem.latency_position, problem.nodes.height)
        sinks = {int(sink) for sink in problem.sink_node}
        trees = {sink: rooted(edges, len(problem.nodes), sink) for sink in sinks}
        return relayed_plan(problem, self.name, trees)
