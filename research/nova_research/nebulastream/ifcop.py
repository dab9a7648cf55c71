"""IFCOP: NebulaStream's placement by random candidates and a cost function (query placement).

*Infrastructure-aware Fog-Cloud Operator Placement.*
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.base import WHOLE, check_range
from nova_research.nebulastream.hierarchy import Hierarchy, HierarchyParameters
from nova_research.nebulastream.placing import (
    Expanded,
    ExpandedQuery,
    HierarchyStrategy,
    source_nodes,
)
from nova_research.operators import OperatorGraph


@dataclass(frozen=True)
class IfcopParameters(HierarchyParameters):
    """Parameters of IFCOP.

    Attributes:
        iterations: candidates generated for each logical join.
        network_weight: w1, of the network cost.
        overload_weight: w2, of the over-utilization cost.
        seed: of the candidates.
    """

    iterations: int = 100
    network_weight: float = 1.0
    overload_weight: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("ifcop:", self, "iterations", 1, expected=WHOLE)
        check_range("ifcop:", self, "network_weight overload_weight", 0)


class Ifcop(HierarchyStrategy):
    """Run operators as the cheapest of a number of random candidates has them.

    Capacity is a cost here, not a limit; the sink takes what found no other node.
    """

    name = "ifcop"
    Parameters = IfcopParameters
    parameters: IfcopParameters

    def place(self, problem: Problem) -> Plan:
        """Place; the plan's note ``cost`` is the sum of the logical joins' or queries' costs."""
        run, topologies = _Run(problem, self.parameters), self.hierarchies(problem)

        def place(one: Expanded) -> tuple[list[int], Hierarchy]:
            runs_with = one.runs_with if isinstance(one, ExpandedQuery) else None
            return run.place(one, topologies[one.sink], runs_with), topologies[one.sink]

        return replace(self.plan_of(problem, place), notes={"cost": run.cost})


class _Run:
    """A problem that is placed, one logical join or query after the other.

    Attributes:
        cost: of what is placed so far.
    """

    def __init__(self, problem: Problem, parameters: IfcopParameters) -> None:
        self._problem, self._parameters = problem, parameters
        self._capacity, self._random = problem.nodes.capacity.tolist(), Random(parameters.seed)
        self.cost = 0.0

    def place(
        self, one: Expanded, topology: Hierarchy, runs_with: Mapping[int, int] | None = None
    ) -> list[int]:
        """Nodes of what is placed next; takes its needs from capacities."""
        candidates = Candidates(
            topology, one.graph, self._capacity, self._parameters, self._latency, runs_with
        )
        nodes, cost = candidates.cheapest(self._random)
        self.cost += cost
        for node, need in zip(nodes, one.graph.demand.tolist(), strict=True):
            self._capacity[node] -= need
        return nodes

    def _latency(self, a: int, b: int) -> float:
        return float(self._problem.distance(np.array([a]), np.array([b]))[0])


class Candidates:
    """Candidates of one query on a topology.

    Args:
        topology: nodes may have several parents.
        graph: operators after the expansion of sources.
        capacity: what each node has room for.
        parameters: iterations and weights.
        hop_cost: what sending one tuple from a node to a parent of it costs.
        runs_with: operators that are where another one is, and take nothing.
    """

    def __init__(
        self,
        topology: Hierarchy,
        graph: OperatorGraph,
        capacity: Sequence[float],
        parameters: IfcopParameters,
        hop_cost: Callable[[int, int], float] = lambda node, parent: 1.0,
        runs_with: Mapping[int, int] | None = None,
    ) -> None:
        self._runs_with = runs_with or {}
        self._topology, self._graph, self._capacity = topology, graph, capacity
        self._parameters, self._hop_cost = parameters, hop_cost
        self._way_costs: dict[tuple[int, int], float] = {}
        # Nodes that all sources of an operator can reach; a source is where it is.
        self._shared = [
            frozenset(topology.common(source_nodes(graph, number)) if operator.inputs else ())
            for number, operator in enumerate(graph.operators)
        ]
        self._pinned, self._need = graph.pinned().tolist(), graph.demand.tolist()
        self._all_need = sum(self._need) or 1.0
        direct = sum(
            graph[s].output_rate * self._way_cost(self._pinned[s], topology.sink)
            for s in graph.sources
        )
        self._all_traffic = direct or 1.0

    def cheapest(self, random: Random) -> tuple[list[int], float]:
        """Nodes of all operators in the cheapest of all candidates, and its cost."""
        best = self.candidate(random)
        least = self.cost(best)
        for _ in range(self._parameters.iterations - 1):
            other = self.candidate(random)
            cost = self.cost(other)
            if cost < least:
                best, least = other, cost
        return best, least

    def candidate(self, random: Random) -> list[int]:
        """Nodes of all operators of one random candidate.

        From every source on, a coin decides for each node on a random way up whether it takes the
        next operator or passes on to a parent. An operator with several inputs is only offered to
        nodes that all its sources can reach; once it is placed, the other ways lead to it. The sink
        takes what is left.
        """
        node: dict[int, int] = {}
        for source in self._graph.sources:
            node[source] = self._pinned[source]
            for follower in self._graph.consumers[source]:
                self._walk(source, follower, node, random)
        for operator, other in self._runs_with.items():
            node[operator] = node[other]
        return [node[operator] for operator in range(len(self._graph))]

    def _walk(self, operator: int, follower: int, node: dict[int, int], random: Random) -> None:
        """Place what follows an operator, up to the next one that is placed already."""
        consumers, sink = self._graph.consumers, self._topology.sink
        here = node[operator]
        # Several consumers are handled one after the other.
        branches = [(follower, here)]
        while branches:
            operator, here = branches.pop()
            if operator in node:
                continue
            end = self._end(operator, node)
            if end not in self._topology.hops(here):
                end = sink  # the operator's next reader is on another branch
            while here != end:
                offered = consumers[operator] and here in self._shared[operator]
                if offered and random.random() < 0.5:
                    break
                parents = self._topology.parents[here]
                leading = [p for p in parents if end == sink or end in self._topology.hops(p)]
                here = leading[random.randrange(len(leading))] if len(leading) > 1 else leading[0]
            node[operator] = here
            branches += [(after, here) for after in reversed(consumers[operator])]

    def _end(self, operator: int, node: dict[int, int]) -> int:
        """The node where an operator's way must end: of the next placed operator, else the sink."""
        while True:
            consumers = self._graph.consumers[operator]
            if not consumers:
                return self._topology.sink
            placed = [c for c in consumers if c in node]
            if placed:
                return node[placed[0]]
            operator = consumers[0]

    def cost(self, nodes: Sequence[int]) -> float:
        """w1 times network cost plus w2 times over-utilization cost."""
        p = self._parameters
        return p.network_weight * self.network_cost(nodes) + p.overload_weight * self.overload_cost(
            nodes
        )

    def network_cost(self, nodes: Sequence[int]) -> float:
        """Data transferred, relative to sending every source straight to the sink.

        What a node transfers is what its own operators emit and what comes from below.
        """
        total = sum(
            self._graph[below].output_rate * self._way_cost(nodes[below], nodes[number])
            for number, operator in enumerate(self._graph.operators)
            for below in operator.inputs
        )
        return total / self._all_traffic

    def overload_cost(self, nodes: Sequence[int]) -> float:
        """What operators take beyond the capacity of nodes, relative to all they take.

        The document has min(0, capacity - load) here, which is never positive and would reward
        overload; this is its absolute value.
        """
        load: dict[int, float] = {}
        for need, node in zip(self._need, nodes, strict=True):
            load[node] = load.get(node, 0.0) + need
        over = sum(max(0.0, taken - max(0.0, self._capacity[node])) for node, taken in load.items())
        return over / self._all_need

    def _way_cost(self, node: int, target: int) -> float:
        """Cost of the way up, or straight to a node that is not above, as with separate readers."""
        if (node, target) not in self._way_costs:
            above = target in self._topology.hops(node)
            way = self._topology.way(node, target) if above else [node, target]
            self._way_costs[node, target] = sum(self._hop_cost(a, b) for a, b in pairwise(way))
        return self._way_costs[node, target]
