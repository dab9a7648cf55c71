"""Operator assignment, bottom-up and top-down, and both as strategies.

Both walk an expanded query and the sub-graph of the topology that path selection left. An operator
goes to a node with room for it, or the placement fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from nova_core.errors import InfeasibleError
from nova_core.model.expansion import graph_of
from nova_core.model.graph import Graph
from nova_core.model.plan import Plan, Routes
from nova_core.model.problem import Ints, Problem
from nova_core.strategies.base import Strategy
from nova_research.nebulastream.hierarchy import (
    Hierarchy,
    HierarchyParameters,
    derive_hierarchy,
    merge,
    select_paths,
)
from nova_research.operators import Operator, OperatorGraph

# --- operators on a topology ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Resources:
    """What nodes offer; assigning takes from it.

    Attributes:
        room: resources left on each node.
        may_host: whether a node may run an operator that is not pinned, given operator and node.
    """

    room: list[float]
    may_host: Callable[[int, int], bool] = lambda operator, node: True


class _Assignment:
    """The state of an assignment."""

    def __init__(self, topology: Hierarchy, graph: OperatorGraph, resources: Resources) -> None:
        self.topology, self.graph, self.resources = topology, graph, resources
        self.need: list[float] = graph.demand.tolist()
        self.node: dict[int, int] = {}

    def walk(
        self,
        ends: Iterable[int],
        before: Callable[[int], Iterable[int]],
        after: Callable[[int], Iterable[int]],
        candidates: Callable[[int], Iterable[int]],
    ) -> list[int]:
        """Nodes of all operators, from some ends of the query on.

        Args:
            ends: operators to begin at.
            before: operators that must be placed before one that is not pinned.
            after: operators to go on with after one.
            candidates: nodes for an operator, the preferred first.

        Raises:
            InfeasibleError: when an operator finds no room.
        """
        for end in ends:
            open_ = [end]
            while open_:
                operator = open_.pop()
                if operator in self.node:
                    continue
                pinned = self.graph[operator].node
                waiting = operator
                while further := [n for n in before(waiting) if n not in self.node]:
                    waiting = further[0]
                if waiting != operator and pinned is None:
                    # The walk from that end returns to this operator.
                    open_.append(waiting)
                    continue
                self.assign(operator, candidates(operator) if pinned is None else [pinned])
                open_ += reversed(list(after(operator)))
        return [self.node[operator] for operator in range(len(self.graph))]

    def assign(self, operator: int, candidates: Iterable[int]) -> None:
        """Give an operator to the first candidate with room.

        Raises:
            InfeasibleError: when there is none.
        """
        need, pinned, most = self.need[operator], self.graph[operator].node is not None, 0.0
        for node in candidates:
            if not pinned and not self.resources.may_host(operator, node):
                continue
            if self.resources.room[node] >= need:
                self.resources.room[node] -= need
                self.node[operator] = node
                return
            most = max(most, self.resources.room[node])
        place = "the node it is pinned to" if pinned else "its way to the sink"
        raise InfeasibleError(
            f"query placement fails: {self.graph[operator].id} takes {need:g}, but on {place} "
            f"there is no more than {most:g} left on a node; {need - most:g} more are needed",
            need - most,
        )


def bottom_up(topology: Hierarchy, graph: OperatorGraph, resources: Resources) -> list[int]:
    """Nodes of all operators, each as near to its inputs as possible.

    A source is placed where it is pinned, then all that follows it: an operator on the node of its
    input if there is room, else on the next parent of that node with room. One with several inputs
    waits until all of them are placed; meanwhile the next source it waits for is. It then goes to
    the first node with room that can be reached from the nodes of all its inputs.

    Raises:
        InfeasibleError: when an operator finds no room.
    """
    state = _Assignment(topology, graph, resources)

    def above(operator: int) -> Iterable[int]:
        """The first node all inputs of an operator can reach, then everything above it."""
        inputs = [state.node[i] for i in graph[operator].inputs]
        return topology.hops(topology.common(inputs)[0])

    return state.walk(graph.sources, lambda n: graph[n].inputs, graph.consumers.__getitem__, above)


def top_down(topology: Hierarchy, graph: OperatorGraph, resources: Resources) -> list[int]:
    """Nodes of all operators, each as near to what consumes its output as possible.

    The rules of `bottom_up`, mirrored: it begins at the sinks; an operator goes to the node of its
    consumer if there is room, else to the next child of that node with room, as long as all sources
    it needs can reach that. One with several consumers waits for all of them, and goes to the first
    node with room from which they all can be reached.

    Raises:
        InfeasibleError: when an operator finds no room.
    """
    state = _Assignment(topology, graph, resources)

    def below(operator: int) -> list[int]:
        """Nodes that its sources can reach and that lead to its consumers, nearest to these."""
        # An operator without consumers, such as a source with a unique key, may run anywhere.
        consumers = [state.node[c] for c in graph.consumers[operator]] or [topology.sink]

        def distance(node: int) -> tuple[int, int]:
            hops = [topology.hops(node)[above] for above in consumers]
            return max(hops), sum(hops)

        reached = topology.common(source_nodes(graph, operator))
        leading = [n for n in reached if all(above in topology.hops(n) for above in consumers)]
        return sorted(leading, key=distance)

    ends = [n for n, consumers in enumerate(graph.consumers) if not consumers]
    return state.walk(ends, graph.consumers.__getitem__, lambda n: graph[n].inputs, below)


def source_nodes(graph: OperatorGraph, operator: int) -> list[int]:
    """Nodes of all sources whose tuples reach an operator, each once."""
    nodes = (graph[source].node for source in graph.upstream_sources(operator))
    return list(dict.fromkeys(node for node in nodes if node is not None))


# --- what a problem asks for ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Expanded:
    """A unit of placement, after the expansion of its sources.

    Attributes:
        sink: node of its sink.
        graph: its sources, then its operators, then the sink.
        streams: nodes of every logical source's physical sources.
    """

    sink: int
    graph: OperatorGraph
    streams: list[list[int]]


@dataclass(frozen=True, eq=False, kw_only=True)
class LogicalJoin(Expanded):
    """A logical join: one operator per pair of the join matrix, in the order of ``pairs``.

    Attributes:
        join: index of the logical join.
        pairs: (k,) rows of the join matrix.
        first: where the pairs' joins begin.
    """

    join: int
    pairs: Ints
    first: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpandedQuery(Expanded):
    """A whole query. Filters and projections that run with what they read from take nothing.

    Attributes:
        numbers: (o,) its operators' numbers in the graph of all queries.
        runs_with: the operator each of these runs with, by their numbers in ``graph``.
    """

    numbers: Ints
    runs_with: Mapping[int, int]


def logical_joins(problem: Problem) -> Iterator[LogicalJoin]:
    """Every logical join of a problem that joins anything."""
    matrix, sources = problem.matrix, problem.sources
    for join in np.unique(matrix.join).tolist():
        pairs = np.flatnonzero(matrix.join == join)
        ends = np.stack([matrix.left[pairs], matrix.right[pairs]])
        used, number = np.unique(ends, return_inverse=True)
        nodes, stream, sink = (
            sources.node[used],
            sources.stream[used],
            int(problem.joins.sink[join]),
        )
        operators = [
            Operator(f"source {row}", "source", (), rate, node)
            for row, (rate, node) in enumerate(
                zip(sources.rate[used].tolist(), nodes.tolist(), strict=True)
            )
        ]
        first, rates = len(operators), matrix.output_rate[pairs].tolist()
        operators += [
            Operator(problem.pair_name(pair), "join", (a, b), rate)
            for pair, rate, (a, b) in zip(
                pairs.tolist(), rates, number.reshape(2, -1).T.tolist(), strict=True
            )
        ]
        operators.append(Operator("sink", "sink", tuple(range(first, len(operators))), node=sink))
        streams = [nodes[stream == name].tolist() for name in np.unique(stream)]
        yield LogicalJoin(
            join=join,
            sink=sink,
            pairs=pairs,
            graph=OperatorGraph(operators),
            first=first,
            streams=streams,
        )


def expanded_queries(problem: Problem, queries: Graph) -> Iterator[ExpandedQuery]:
    """Every query of a problem, with the sources that it reads from."""
    operators, root = OperatorGraph.of_graph(queries).operators, queries.root.tolist()
    s = problem.sources
    stream_of = dict(zip(s.ids.tolist(), s.stream.tolist(), strict=True))
    for query, written in enumerate(problem.queries):
        mine = [n for n, one in enumerate(operators) if one.query == query]
        read = {i for n in mine for i in operators[n].inputs if operators[i].kind == "source"}
        numbers = [*sorted(read), *mine]
        place = {number: row for row, number in enumerate(numbers)}
        streams: dict[str, list[int]] = defaultdict(list)
        for number in sorted(read):
            streams[stream_of[operators[number].id]].append(operators[number].node or 0)
        yield ExpandedQuery(
            sink=problem.node_index[written.sink],
            graph=OperatorGraph(
                [
                    replace(
                        operators[n],
                        inputs=tuple(place[i] for i in operators[n].inputs),
                        need=None if root[n] == n else 0.0,
                    )
                    for n in numbers
                ]
            ),
            streams=list(streams.values()),
            numbers=np.array(numbers, np.int64),
            runs_with={place[n]: place[root[n]] for n in mine if root[n] != n},
        )


class HierarchyStrategy(Strategy):
    """What NebulaStream's strategies share: a hierarchy for each sink, and routes along it."""

    Parameters: ClassVar[type[HierarchyParameters]] = HierarchyParameters
    parameters: HierarchyParameters

    def hierarchies(self, problem: Problem) -> dict[int, Hierarchy]:
        """A hierarchy for every sink."""
        sinks = np.unique(problem.sinks).tolist()
        return {sink: derive_hierarchy(problem, sink, self.parameters) for sink in sinks}

    def routed_plan(
        self,
        problem: Problem,
        placed: Iterable[tuple[LogicalJoin, list[int], Hierarchy]],
        **more: Any,
    ) -> Plan:
        """The plan of all logical joins; tuples travel along the hierarchy.

        Args:
            problem: what is placed.
            placed: every logical join, the nodes of its operators, and the topology they are in.
            more: of the plan, as in `whole_plan`.
        """
        hosts = np.zeros(len(problem.matrix), np.int64)
        routes: list[list[int]] = [[] for _ in range(3 * len(hosts))]
        for one, nodes, topology in placed:
            hosts[one.pairs] = nodes[one.first : one.first + len(one.pairs)]
            for pair in one.pairs.tolist():
                host = int(hosts[pair])
                routes[3 * pair : 3 * pair + 3] = [
                    topology.way(int(problem.left_node[pair]), host),
                    topology.way(int(problem.right_node[pair]), host),
                    topology.way(host, one.sink),
                ]
        offset = np.cumsum([0, *map(len, routes)], dtype=np.int64)
        node = np.array([node for route in routes for node in route], np.int64)
        return self.whole_plan(problem, hosts, routes=Routes(offset, node), **more)

    def plan_of(
        self, problem: Problem, place: Callable[[Expanded], tuple[list[int], Hierarchy]]
    ) -> Plan:
        """The plan of all logical joins or queries, one after the other.

        Plans of queries have no routes: tuples go straight from one operator to the next.

        Args:
            problem: what is placed.
            place: nodes of the operators of what is placed next, and the topology they are in.
        """
        if not problem.queries:
            return self.routed_plan(problem, [(one, *place(one)) for one in logical_joins(problem)])
        graph = graph_of(problem)
        nodes = graph.node.copy()
        for one in expanded_queries(problem, graph):
            nodes[one.numbers] = place(one)[0]
        return self.whole_plan(problem, nodes[graph.bodies])


class _Assigning(HierarchyStrategy):
    # Relays may lack room for what they forward.
    ignores = ("capacity", "worker", "link")
    assign: ClassVar[staticmethod[[Hierarchy, OperatorGraph, Resources], list[int]]]

    def place(self, problem: Problem) -> Plan:
        """Place by path selection, then operator assignment, one logical join or query by another.

        Keeps capacity, as far as operators take it, and what joins require of hosts.

        Raises:
            InfeasibleError: when an operator finds no room on the ways its sources share.
        """
        topologies, room = self.hierarchies(problem), problem.nodes.capacity.tolist()

        def place(one: Expanded) -> tuple[list[int], Hierarchy]:
            part, resources = (
                _paths(topologies[one.sink], one),
                Resources(room, _may_host(problem, one)),
            )
            return type(self).assign(part, one.graph, resources), part

        return self.plan_of(problem, place)


def _paths(topology: Hierarchy, one: Expanded) -> Hierarchy:
    """The part of a topology that path selection leaves for a join or query."""
    return merge([select_paths(topology, nodes) for nodes in one.streams])


def _may_host(problem: Problem, one: Expanded) -> Callable[[int, int], bool]:
    """Workers that meet the join's requirement; the root of a topology always is a worker.

    An operator that runs with another one may be on any node: it follows that one.
    """
    hosts = problem.nodes.worker.copy()
    hosts[one.sink] = True
    graph = graph_of(problem)
    if isinstance(one, ExpandedQuery):
        numbers, runs_with = one.numbers, one.runs_with
    elif isinstance(one, LogicalJoin):
        numbers = np.repeat(graph.bodies[one.pairs[:1]], len(one.graph.operators))
        runs_with = {}
    else:
        return lambda _, node: bool(hosts[node])
    requirement, fits = graph.requirement[numbers], graph.requirements.fits
    return lambda operator, node: (
        operator in runs_with or bool(hosts[node] and fits(requirement[operator], node))
    )


class BottomUp(_Assigning):
    """Run operators as near their sources as room allows, on the ways these share to the sink.

    The ways are those of a hierarchy derived from the cost space, pruned by path selection. Tuples
    of joins travel along them; only joins take room on a node, not what it forwards.
    """

    name = "nes-bottom-up"
    assign = staticmethod(bottom_up)


class TopDown(_Assigning):
    """Run every operator as near its sink as room allows; all else is as in `BottomUp`."""

    name = "nes-top-down"
    assign = staticmethod(top_down)
