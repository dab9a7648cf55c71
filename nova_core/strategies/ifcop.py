"""IFCOP: NebulaStream's placement by random candidates and a cost function (query placement).

*Infrastructure-aware Fog-Cloud Operator Placement.*
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import ClassVar

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Problem
from nova_core.strategies.nes_operators import Query
from nova_core.strategies.nes_placement import PlacedPairs, hierarchies, pair_queries
from nova_core.strategies.nes_topology import Hierarchy, HierarchyParameters
from nova_core.strategies.relaying import BREAKS


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
        if self.iterations < 1:
            raise ProblemError(
                f"ifcop: iterations is {self.iterations}; expected a whole number >= 1"
            )
        for name in ("network_weight", "overload_weight"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ProblemError(f"ifcop: {name} is {getattr(self, name):g}; expected 0 or more")


class Ifcop:
    """Run joins as the cheapest of a number of random candidates has them.

    Capacity is a cost here, not a limit; the sink takes what found no other node.
    """

    name: ClassVar[str] = "ifcop"
    Parameters: ClassVar[type[IfcopParameters]] = IfcopParameters

    def __init__(self, parameters: IfcopParameters | None = None) -> None:
        self.parameters = parameters or IfcopParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; the plan's note ``cost`` is the sum of the logical joins' costs."""
        p = self.parameters
        topologies = hierarchies(problem, p)
        capacity = problem.nodes.capacity.tolist()
        random, result, cost = Random(p.seed), PlacedPairs(problem), 0.0

        def latency(a: int, b: int) -> float:
            return float(problem.distance(np.array([a]), np.array([b]))[0])

        for one in pair_queries(problem):
            topology = topologies[int(problem.joins.sink[one.join])]
            search = Search(topology, one.query, capacity, p, latency)
            nodes, best = search.run(random)
            cost += best
            for operator, node in zip(one.query.operators, nodes, strict=True):
                capacity[node] -= operator.need
            result.add(one, nodes, topology)
        return result.plan(self.name, p, BREAKS, {"cost": cost})


class Search:
    """Candidates of one query on a topology.

    Args:
        topology: nodes may have several parents.
        query: operators after the expansion of sources.
        capacity: what each node has room for.
        parameters: iterations and weights.
        hop_cost: what sending one tuple from a node to a parent of it costs.
    """

    def __init__(
        self,
        topology: Hierarchy,
        query: Query,
        capacity: Sequence[float],
        parameters: IfcopParameters,
        hop_cost: Callable[[int, int], float] = lambda node, parent: 1.0,
    ) -> None:
        self._topology, self._query, self._capacity = topology, query, capacity
        self._parameters, self._hop_cost = parameters, hop_cost
        self._way_costs: dict[tuple[int, int], float] = {}
        self._shared = [
            frozenset(topology.common(query.upstream_nodes(number))) if operator.inputs else None
            for number, operator in enumerate(query.operators)
        ]
        direct = sum(
            query[s].output_rate * self._way_cost(pinned, topology.sink)
            for s in query.sources
            if (pinned := query[s].pinned) is not None
        )
        self._all_traffic = direct or 1.0
        self._all_need = sum(operator.need for operator in query.operators) or 1.0

    def run(self, random: Random) -> tuple[list[int], float]:
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
        for source in self._query.sources:
            pinned = self._query[source].pinned
            assert pinned is not None  # sources are
            node[source] = pinned
            for follower in self._query.consumers[source]:
                self._walk(source, follower, node, random)
        return [node[operator] for operator in range(len(self._query))]

    def _walk(self, operator: int, follower: int, node: dict[int, int], random: Random) -> None:
        """Place what follows an operator, up to the next one that is placed already."""
        query, sink = self._query, self._topology.sink
        here = node[operator]
        # More consumers than one are walked to one after the other.
        branches = [(follower, here)]
        while branches:
            operator, here = branches.pop()
            if operator in node:
                continue
            end = self._end(operator, node)
            shared = self._shared[operator]
            while here != end:
                offered = query.consumers[operator] and (shared is None or here in shared)
                if offered and random.random() < 0.5:
                    break
                parents = self._topology.parents[here]
                leading = [p for p in parents if end == sink or end in self._topology.hops(p)]
                here = leading[random.randrange(len(leading))] if len(leading) > 1 else leading[0]
            node[operator] = here
            branches += [(after, here) for after in reversed(query.consumers[operator])]

    def _end(self, operator: int, node: dict[int, int]) -> int:
        """The node a way from an operator must end at: of what is placed next, else the sink."""
        while True:
            consumers = self._query.consumers[operator]
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
            self._query[below].output_rate * self._way_cost(nodes[below], nodes[number])
            for number, operator in enumerate(self._query.operators)
            for below in operator.inputs
        )
        return total / self._all_traffic

    def overload_cost(self, nodes: Sequence[int]) -> float:
        """What operators take beyond the capacity of nodes, relative to all they take.

        The document has min(0, capacity - load) here, which is never positive and would reward
        overload; this is its absolute value.
        """
        load: dict[int, float] = {}
        for operator, node in zip(self._query.operators, nodes, strict=True):
            load[node] = load.get(node, 0.0) + operator.need
        over = sum(max(0.0, taken - max(0.0, self._capacity[node])) for node, taken in load.items())
        return over / self._all_need

    def matrix(self, nodes: Sequence[int], count: int) -> Bools:
        """(count, operators) a candidate as the document writes it: which node has which operator.

        Args:
            nodes: of all operators.
            count: nodes of the topology.
        """
        placed = np.zeros((count, len(nodes)), bool)
        placed[list(nodes), np.arange(len(nodes))] = True
        return placed

    def _way_cost(self, node: int, target: int) -> float:
        if (node, target) not in self._way_costs:
            way = self._topology.way(node, target)
            self._way_costs[node, target] = sum(self._hop_cost(a, b) for a, b in pairwise(way))
        return self._way_costs[node, target]


__all__ = ["Ifcop", "IfcopParameters", "Search"]
