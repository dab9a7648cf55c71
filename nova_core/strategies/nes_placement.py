"""From a problem to NebulaStream's terms and back: queries on a hierarchy, and the plan of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from nova_core.model.plan import Instances, Partitions, Plan, Routes
from nova_core.model.problem import Ints, Problem
from nova_core.strategies.base import parameter_dict
from nova_core.strategies.nes_assignment import Resources
from nova_core.strategies.nes_operators import Operator, Query
from nova_core.strategies.nes_paths import merge, select_paths
from nova_core.strategies.nes_topology import Hierarchy, HierarchyParameters, derive_hierarchy

Assign = Callable[[Hierarchy, Query, Resources], list[int]]


@dataclass(frozen=True, eq=False)
class PairQuery:
    """A logical join after the expansion of its sources: one operator per pair of the join matrix.

    Attributes:
        join: index of the logical join.
        pairs: (k,) rows of the join matrix.
        query: its sources, then the pairs' joins in the order of ``pairs``, then the sink. Joins
            take their required capacity; producing and consuming is free.
        first: where the pairs' joins begin.
        streams: nodes of every logical source's physical sources.
    """

    join: int
    pairs: Ints
    query: Query
    first: int
    streams: list[list[int]]


def pair_queries(problem: Problem) -> Iterator[PairQuery]:
    """Every logical join of a problem that joins anything."""
    matrix, sources = problem.matrix, problem.sources
    for join in np.unique(matrix.join).tolist():
        pairs = np.flatnonzero(matrix.join == join)
        used, number = np.unique(
            np.stack([matrix.left[pairs], matrix.right[pairs]]), return_inverse=True
        )
        left, right = number.reshape(2, -1)
        operators = [
            Operator(
                f"source {sources.ids[s]}", 0.0, (), int(sources.node[s]), float(sources.rate[s])
            )
            for s in used.tolist()
        ]
        first, need = len(operators), problem.required_capacity
        operators += [
            Operator(
                problem.pair_name(pair),
                float(need[pair]),
                (a, b),
                None,
                float(matrix.output_rate[pair]),
            )
            for pair, a, b in zip(pairs.tolist(), left.tolist(), right.tolist(), strict=True)
        ]
        results = tuple(range(first, len(operators)))
        sink = int(problem.joins.sink[join])
        operators.append(Operator(f"sink of {problem.joins.ids[join]}", 0.0, results, sink))
        nodes, stream = sources.node[used], sources.stream[used]
        streams = [nodes[stream == name].tolist() for name in np.unique(stream)]
        yield PairQuery(join, pairs, Query(operators), first, streams)


def hierarchies(problem: Problem, parameters: HierarchyParameters) -> dict[int, Hierarchy]:
    """A hierarchy for every sink."""
    sinks = {int(sink) for sink in problem.sink_node}
    return {sink: derive_hierarchy(problem, sink, parameters) for sink in sinks}


def assigned_plan(
    problem: Problem, strategy: str, parameters: HierarchyParameters, assign: Assign
) -> Plan:
    """Path selection, then operator assignment, one logical join after the other.

    Raises:
        InfeasibleError: when an operator finds no room.
    """
    topologies = hierarchies(problem, parameters)
    room = problem.nodes.capacity.tolist()
    result = PlacedPairs(problem)
    for one in pair_queries(problem):
        topology = topologies[int(problem.joins.sink[one.join])]
        part = merge([select_paths(topology, nodes) for nodes in one.streams])
        resources = Resources(room, _may_host(problem, one))
        result.add(one, assign(part, one.query, resources), part)
    # Relays are not asked whether they have room for what they forward.
    return result.plan(strategy, parameters, ("capacity", "worker", "link"))


def _may_host(problem: Problem, one: PairQuery) -> Callable[[int, int], bool]:
    """Workers that meet the join's requirement; the root of a topology always is a worker."""
    requirement = int(problem.requirements.of_join[one.join])
    hosts = problem.nodes.worker.copy()
    hosts[problem.joins.sink[one.join]] = True
    if requirement >= 0:
        hosts = hosts & problem.requirements.met[requirement]
    return lambda operator, node: bool(hosts[node])


class PlacedPairs:
    """Gathers where pairs run and how tuples get there, and makes a plan of it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._node = np.zeros(len(problem.matrix), np.int64)
        self._routes: list[list[int]] = [[] for _ in range(3 * len(problem.matrix))]

    def add(self, one: PairQuery, nodes: list[int], topology: Hierarchy) -> None:
        """Take the nodes of a query's operators, in a topology that joins them."""
        problem = self._problem
        hosts = nodes[one.first : one.first + len(one.pairs)]
        for pair, host in zip(one.pairs.tolist(), hosts, strict=True):
            self._node[pair] = host
            self._routes[3 * pair : 3 * pair + 3] = [
                topology.way(int(problem.left_node[pair]), host),
                topology.way(int(problem.right_node[pair]), host),
                topology.way(host, int(problem.sink_node[pair])),
            ]

    def plan(
        self,
        strategy: str,
        parameters: object,
        breaks: tuple[str, ...],
        notes: dict[str, float] | None = None,
    ) -> Plan:
        """The plan of all pairs; tuples travel along the hierarchy."""
        length = [len(route) for route in self._routes]
        return Plan(
            problem=self._problem,
            strategy=strategy,
            objective="latency",
            partitions=Partitions.whole(self._problem),
            instances=Instances.whole(self._node),
            parameters=parameter_dict(parameters),
            routes=Routes(
                np.concatenate(([0], np.cumsum(length))).astype(np.int64),
                np.array([node for route in self._routes for node in route], np.int64),
            ),
            breaks=breaks,
            notes=notes or {},
        )


__all__ = ["PairQuery", "PlacedPairs", "assigned_plan", "hierarchies", "pair_queries"]
