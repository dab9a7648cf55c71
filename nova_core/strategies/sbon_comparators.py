"""What SBON compares with besides the optimum: producer, consumer, random, IP multicast (4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model.operator_graph import OperatorGraph
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.strategies.base import parameter_dict
from nova_core.strategies.relaying import BREAKS
from nova_core.strategies.sbon_relaxation import allowed_of
from nova_core.strategies.spanning_tree import RootedTree, minimum_spanning_tree

# Towards a sink: the tree all routes to it form.
RoutesTo = Callable[[int], RootedTree]


def producer(graph: OperatorGraph, seed: int = 0) -> Ints:
    """(o,) nodes: every operator on that of one of its sources, drawn at random."""
    random = np.random.default_rng(seed)
    nodes = graph.pinned()
    sources = upstream_sources(graph)
    for operator in graph.movable.tolist():
        nodes[operator] = nodes[random.choice(sources[operator])]
    return nodes


def consumer(graph: OperatorGraph) -> Ints:
    """(o,) nodes: every operator on that of the sink its output reaches; the first of several.

    Raises:
        ProblemError: for an operator whose output reaches no sink.
    """
    nodes = graph.pinned()
    nodes[graph.movable] = _sinks(graph)[graph.movable]
    return nodes


def random_nodes(
    graph: OperatorGraph, count: int, seed: int = 0, hosts: Bools | None = None
) -> Ints:
    """(o,) nodes: every operator on one drawn at random.

    Args:
        graph: queries of any operators.
        count: n.
        seed: of the draw.
        hosts: (n,) nodes that may run operators; None for all.

    Raises:
        InfeasibleError: when no node may run operators.
    """
    host = np.arange(count) if hosts is None else np.flatnonzero(hosts)
    nodes, random = graph.pinned(), np.random.default_rng(seed)
    if len(graph.movable) and len(host) == 0:
        raise InfeasibleError("no node may run operators; make one a worker", 1.0)
    nodes[graph.movable] = random.choice(host, len(graph.movable)) if len(host) else -1
    return nodes


def ip_multicast(graph: OperatorGraph, routes: RoutesTo) -> Ints:
    """(o,) nodes: every operator where the routes of its sources to its sink have all met.

    These are the branches of the tree that all unicast routes to the sink form. An operator of one
    source stays with it.

    Args:
        graph: queries of any operators.
        routes: the tree of routes to each sink.

    Raises:
        ProblemError: for an operator whose output reaches no sink.
    """
    nodes, sinks = graph.pinned(), _sinks(graph)
    sources = upstream_sources(graph)
    known: dict[int, RootedTree] = {}
    for operator in graph.movable.tolist():
        sink = int(sinks[operator])
        if sink not in known:
            known[sink] = routes(sink)
        first, *others = (int(nodes[source]) for source in sources[operator])
        for other in others:
            met = known[sink].meeting_point(np.array([first]), np.array([other]))
            first = int(met[0])
        nodes[operator] = first
    return nodes


def upstream_sources(graph: OperatorGraph) -> list[list[int]]:
    """Sources each operator's input comes from, in order; a source's own is itself."""
    found: list[list[int]] = []
    for number, operator in enumerate(graph.operators):
        above = {number} if operator.kind == "source" else set[int]()
        for one in operator.inputs:
            above.update(found[one])
        found.append(sorted(above))
    return found


def _sinks(graph: OperatorGraph) -> Ints:
    """(o,) node of the first sink downstream of each operator."""
    found = np.full(len(graph), -1)
    for number in reversed(range(len(graph))):
        operator = graph[number]
        if operator.kind == "sink" and operator.node is not None:
            found[number] = operator.node
        else:
            below = [int(found[one]) for one in graph.consumers[number] if found[one] >= 0]
            found[number] = below[0] if below else -1
        if found[number] < 0 and operator.node is None:
            raise ProblemError(f"operator {operator.id!r}: its output reaches no sink")
    return found


@dataclass(frozen=True)
class NoParameters:
    """Nothing to choose."""


@dataclass(frozen=True)
class RandomParameters:
    """Parameters of what is drawn at random.

    Attributes:
        seed: of the draw.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ProblemError(f"sbon: seed is {self.seed}; expected 0 or more")


@dataclass(frozen=True)
class RoutingParameters:
    """Parameters of the routers a problem's nodes are taken for.

    Attributes:
        degree: nearest nodes each node has a link to, besides those that keep all connected.
    """

    degree: int = 4

    def __post_init__(self) -> None:
        if self.degree < 0:
            raise ProblemError(f"sbon-ip-multicast: degree is {self.degree}; expected 0 or more")


class SbonProducer:
    """Run every join on the node of one of its two sources, drawn at random."""

    name: ClassVar[str] = "sbon-producer"
    Parameters: ClassVar[type[RandomParameters]] = RandomParameters

    def __init__(self, parameters: RandomParameters | None = None) -> None:
        self.parameters = parameters or RandomParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the source's node may host."""
        left = np.random.default_rng(self.parameters.seed).random(len(problem.matrix)) < 0.5
        host = np.where(left, problem.left_node, problem.right_node)
        return _plan(problem, self.name, self.parameters, host)


class SbonConsumer:
    """Run every join at the sink that wants its result."""

    name: ClassVar[str] = "sbon-consumer"
    Parameters: ClassVar[type[NoParameters]] = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self.parameters = parameters or NoParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the sink may host."""
        return _plan(problem, self.name, self.parameters, problem.sink_node)


class SbonRandom:
    """Run every join on a worker drawn at random from those that meet its requirement."""

    name: ClassVar[str] = "sbon-random"
    Parameters: ClassVar[type[RandomParameters]] = RandomParameters

    def __init__(self, parameters: RandomParameters | None = None) -> None:
        self.parameters = parameters or RandomParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity.

        Raises:
            InfeasibleError: when no node may run a join.
        """
        random, hosts = np.random.default_rng(self.parameters.seed), problem.nodes.worker
        chosen = []
        workers = np.flatnonzero(hosts)
        for pair, allowed in enumerate(allowed_of(problem)):
            fit = workers if allowed is None else np.flatnonzero(hosts & allowed)
            if len(fit) == 0:
                need = float(problem.required_capacity[pair])
                name = problem.pair_name(pair)
                raise InfeasibleError(f"sbon-random: no worker may run {name}", need)
            chosen.append(fit[random.integers(len(fit))])
        host = np.array(chosen, np.int64)
        return _plan(problem, self.name, self.parameters, host, ("capacity", "link"))


class SbonIpMulticast:
    """Run every join on the router where its sources' routes to the sink meet.

    A problem does not say how packets are routed, so its nodes are taken for routers: each is
    linked with its nearest ones and along the minimum spanning tree, and routes have as few hops as
    can be, of those the shortest. Forwarding packets is no load of theirs.
    """

    name: ClassVar[str] = "sbon-ip-multicast"
    Parameters: ClassVar[type[RoutingParameters]] = RoutingParameters

    def __init__(self, parameters: RoutingParameters | None = None) -> None:
        self.parameters = parameters or RoutingParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether a router may host."""
        routes = neighbour_routes(
            problem.latency_position, problem.nodes.height, self.parameters.degree
        )
        host = np.empty(len(problem.matrix), np.int64)
        for sink in np.unique(problem.sink_node).tolist():
            rows = np.flatnonzero(problem.sink_node == sink)
            tree = routes(sink)
            host[rows] = tree.meeting_point(problem.left_node[rows], problem.right_node[rows])
        return _plan(problem, self.name, self.parameters, host)


def neighbour_routes(position: Floats, height: Floats | None, degree: int) -> RoutesTo:
    """Routes over links between near nodes: fewest hops, of those the shortest.

    Args:
        position: (n, d) coordinates, ms.
        height: (n,) what every link of a node adds, ms, or None.
        degree: links to the nearest nodes that each node has besides the minimum spanning tree.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra
    from scipy.spatial import cKDTree

    count = len(position)
    near = np.arange(2, min(degree + 1, count) + 1)
    target = np.asarray(cKDTree(position).query(position, k=near)[1]) if len(near) else near
    every = np.repeat(np.arange(count), len(near))
    found = np.stack([every, target.ravel()], axis=1) if len(near) else np.empty((0, 2), np.int64)
    edges = np.concatenate([found, minimum_spanning_tree(position, height)])
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    length = np.linalg.norm(position[edges[:, 0]] - position[edges[:, 1]], axis=1)
    if height is not None:
        length += height[edges].sum(axis=1)
    # A route has less than n hops, so all their lengths together weigh less than one hop.
    weight = 1.0 + length / max(float(length.max(initial=0.0)) * count, 1e-300)
    graph = csr_array((weight, (edges[:, 0], edges[:, 1])), shape=(count, count))

    def routes(sink: int) -> RootedTree:
        way, towards = dijkstra(graph, directed=False, indices=[sink], return_predecessors=True)
        parent = towards[0].astype(np.int64)
        parent[sink] = sink
        return RootedTree(parent, np.floor(way[0]).astype(np.int64))

    return routes


def _plan(
    problem: Problem, name: str, parameters: object, host: Ints, breaks: tuple[str, ...] = BREAKS
) -> Plan:
    return Plan(
        problem=problem,
        strategy=name,
        objective="network-usage",
        partitions=Partitions.whole(problem),
        instances=Instances.whole(host),
        parameters=parameter_dict(parameters),
        breaks=breaks,
    )


__all__ = [
    "NoParameters",
    "RandomParameters",
    "RoutesTo",
    "RoutingParameters",
    "SbonConsumer",
    "SbonIpMulticast",
    "SbonProducer",
    "SbonRandom",
    "consumer",
    "ip_multicast",
    "neighbour_routes",
    "producer",
    "random_nodes",
    "upstream_sources",
]
