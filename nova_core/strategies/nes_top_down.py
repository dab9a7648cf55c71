"""NebulaStream's top-down placement: every join as near its sink as room allows."""

from __future__ import annotations

from typing import ClassVar

from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.nes_assignment import top_down
from nova_core.strategies.nes_placement import assigned_plan
from nova_core.strategies.nes_topology import HierarchyParameters


class TopDown:
    """Run every join as near its sink as room allows, on the ways its sources share to the sink.

    The ways are those of a hierarchy derived from the cost space, pruned by path selection. Tuples
    travel along them; only joins take room on a node, not what it forwards.
    """

    name: ClassVar[str] = "nes-top-down"
    Parameters: ClassVar[type[HierarchyParameters]] = HierarchyParameters

    def __init__(self, parameters: HierarchyParameters | None = None) -> None:
        self.parameters = parameters or HierarchyParameters()

    def place(self, problem: Problem) -> Plan:
        """Place, keeping capacity, as far as joins take it, and what joins require of hosts.

        Raises:
            InfeasibleError: when a join finds no room on the ways its sources share.
        """
        return assigned_plan(problem, self.name, self.parameters, top_down)
