"""What SBON compares with (section 4.1): the optimum, producer, consumer, random, IP multicast.

Each is a function of any operator graph, and a strategy for a problem's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from nova_core.errors import ProblemError
from nova_core.evaluation.assignment import AssignmentCosts
from nova_core.model.expansion import graph_of
from nova_core.model.graph import SOURCE, groups
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.strategies.base import Strategy, able_workers, check_range
from nova_core.strategies.baselines import Sink
from nova_core.strategies.trees import (
    RootedTree,
    meeting_hosts,
    minimum_spanning_tree,
    shortest_ways,
)
from nova_research.operators import OperatorGraph
from nova_research.sbon.mapping import require_hosts

# Towards a sink: the tree all routes to it form.
RoutesTo = Callable[[int], RootedTree]
# Operators on cycles of a graph are tried on every node, this many combinations at most.
MOST_TRIED = 100_000


def optimal(graph: OperatorGraph, latency: Floats, hosts: Bools | None = None) -> Ints:
    """Nodes of all operators with the least network usage; what nodes have room for is ignored.

    The text searches all placements exhaustively. Links between operators that can be placed
    mostly form trees, over which dynamic programming finds the same: an operator with one such
    neighbour left is folded into a table of what it costs at best for every node of that neighbour.
    Of operators on cycles, one is tried on every node, which cuts them open.

    Takes O(n) for each link of a pinned operator and O(n^2) for each between two others, times n
    for every cycle that is cut.

    Args:
        graph: queries of any operators.
        latency: (n, n) ms between nodes.
        hosts: (n,) nodes that may run operators; None for all.

    Returns:
        (o,) nodes; of equally good placements one.

    Raises:
        InfeasibleError: when no node may run an operator.
        ProblemError: when there are too many cycles to cut.
    """
    host = np.arange(len(latency)) if hosts is None else np.flatnonzero(hosts)
    nodes = graph.pinned()
    if len(graph.movable) == 0:
        return nodes
    require_hosts(host)
    own, links = _costs(graph, latency, host)
    for one, choice in _cheapest_of_all(own, links, latency[np.ix_(host, host)]).items():
        nodes[one] = host[choice]
    return nodes


# Of every operator that can be placed: what it costs on each host by itself, and its links (rates
# of both directions, tuples/s) to others of them.
_Own = dict[int, Floats]
_Links = dict[int, dict[int, tuple[float, float]]]


def _costs(graph: OperatorGraph, latency: Floats, host: Ints) -> tuple[_Own, _Links]:
    own: _Own = {one: np.zeros(len(host)) for one in graph.movable.tolist()}
    links: _Links = {one: {} for one in own}
    fixed = graph.pinned()
    for producer, consumer, rate in zip(*(part.tolist() for part in graph.edges), strict=True):
        if producer in own and consumer in own:
            forth, back = links[producer].get(consumer, (0.0, 0.0))
            links[producer][consumer] = (forth + rate, back)
            links[consumer][producer] = (back, forth + rate)
        elif producer in own:
            own[producer] += rate * latency[host, fixed[consumer]]
        elif consumer in own:
            own[consumer] += rate * latency[fixed[producer], host]
    return own, links


def _cheapest_of_all(own: _Own, links: _Links, apart: Floats) -> dict[int, int]:
    """Each operator's host (its number among hosts) in the cheapest placement of all."""
    choices: dict[int, int] = {}
    for group in _groups(list(own), links):
        parts = {one: own[one] for one in group}
        choices |= _solve(parts, {one: links[one] for one in group}, apart, MOST_TRIED)[1]
    return choices


def _groups(operators: list[int], links: _Links) -> Iterator[list[int]]:
    """Operators that are linked with each other; one group does not concern another."""
    seen: set[int] = set()
    for first in operators:
        if first in seen:
            continue
        group, waiting = [], [first]
        seen.add(first)
        while waiting:
            one = waiting.pop()
            group.append(one)
            for other in links[one]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        yield group


def _solve(own: _Own, links: _Links, apart: Floats, budget: int) -> tuple[float, dict[int, int]]:
    """Least cost of linked operators, and each one's host (its number among hosts)."""
    own, links = dict(own), {one: dict(others) for one, others in links.items()}
    folded: list[tuple[int, int, Ints]] = []
    waiting = [one for one in own if len(links[one]) == 1]
    while waiting:
        one = waiting.pop()
        if len(links[one]) != 1:
            continue
        [(other, (out, back))] = links.pop(one).items()
        # [host of the neighbour, host of the operator]
        table = out * apart.T + back * apart + own.pop(one)[None, :]
        best = table.argmin(axis=1)
        own[other] = own[other] + table[np.arange(len(table)), best]
        del links[other][one]
        folded.append((one, other, best))
        if len(links[other]) == 1:
            waiting.append(other)
    if all(not others for others in links.values()):
        choice = {one: int(cost.argmin()) for one, cost in own.items()}
        cost = sum(float(own[one][at]) for one, at in choice.items())
    else:
        cost, choice = _cut_open(own, links, apart, budget)
    for one, other, best in reversed(folded):
        choice[one] = int(best[choice[other]])
    return cost, choice


def _cut_open(own: _Own, links: _Links, apart: Floats, budget: int) -> tuple[float, dict[int, int]]:
    """The same for operators on cycles: the one with most links is tried on every host."""
    count = len(apart)
    if count > budget:
        raise ProblemError(
            f"optimal: operators are linked in too many cycles to try them on {count} nodes; "
            "take a smaller topology or another strategy"
        )
    one = max(links, key=lambda each: (len(links[each]), -each))
    rest = {o: {p: rates for p, rates in others.items() if p != one} for o, others in links.items()}
    del rest[one]
    groups = list(_groups(list(rest), rest))
    least, best = np.inf, dict[int, int]()
    for at in range(count):
        costs = {other: cost for other, cost in own.items() if other != one}
        for other, (out, back) in links[one].items():
            costs[other] = costs[other] + out * apart[at, :] + back * apart[:, at]
        cost, choice = float(own[one][at]), {one: at}
        for group in groups:
            part, chosen = _solve(
                {o: costs[o] for o in group}, {o: rest[o] for o in group}, apart, budget // count
            )
            cost += part
            choice |= chosen
        if cost < least:
            least, best = cost, choice
    return least, best


def producer(graph: OperatorGraph, seed: int = 0) -> Ints:
    """(o,) nodes: every operator on that of one of its sources, drawn at random."""
    random = np.random.default_rng(seed)
    nodes = graph.pinned()
    for operator in graph.movable.tolist():
        nodes[operator] = nodes[random.choice(sorted(graph.upstream_sources(operator)))]
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
    if len(graph.movable):
        require_hosts(host)
        nodes[graph.movable] = random.choice(host, len(graph.movable))
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
    known: dict[int, RootedTree] = {}
    for operator in graph.movable.tolist():
        sink = int(sinks[operator])
        if sink not in known:
            known[sink] = routes(sink)
        first, *others = (int(nodes[one]) for one in sorted(graph.upstream_sources(operator)))
        for other in others:
            met = known[sink].meeting_point(np.array([first]), np.array([other]))
            first = int(met[0])
        nodes[operator] = first
    return nodes


def _sinks(graph: OperatorGraph) -> Ints:
    """(o,) node of the first sink downstream of each operator."""
    sinks = np.full(len(graph), -1)
    for number in reversed(range(len(graph))):
        operator = graph[number]
        if operator.kind == "sink" and operator.node is not None:
            sinks[number] = operator.node
        else:
            below = [int(sinks[one]) for one in graph.consumers[number] if sinks[one] >= 0]
            sinks[number] = below[0] if below else -1
        if sinks[number] < 0 and operator.node is None:
            raise ProblemError(f"operator {operator.id!r}: its output reaches no sink")
    return sinks


@dataclass(frozen=True)
class RandomParameters:
    """Parameters of random placements.

    Attributes:
        seed: of the draw.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        check_range("sbon:", self, "seed", 0)


@dataclass(frozen=True)
class RoutingParameters:
    """Parameters of the network of routers that stands for a problem's nodes.

    Attributes:
        degree: nearest nodes each node has a link to, besides those that keep all connected.
    """

    degree: int = 4

    def __post_init__(self) -> None:
        check_range("sbon-ip-multicast:", self, "degree", 0)


class _Comparator(Strategy):
    objective = "network-usage"


class SbonOptimal(_Comparator):
    """Run operators on the workers with the least network usage, however much runs there already.

    Measured latencies count where a problem has them for all pairs, and coordinates otherwise: it
    is what complete knowledge of the network is worth.
    """

    name = "sbon-optimal"
    ignores = ("capacity", "link")

    def place(self, problem: Problem) -> Plan:
        """Place every operator whole; ignores capacity.

        An operator that is linked with sources and sinks only takes O(n) with measured latencies,
        and little more than O(log n) without; for others see `optimal`.

        Raises:
            InfeasibleError: when no node may run an operator.
            ProblemError: when there are too many cycles of operators to cut.
        """
        graph = graph_of(problem)
        chosen = np.empty(len(graph.bodies), np.int64)
        ends = graph.body_of[np.stack([column[graph.inner] for column in graph.links[:2]])]
        linked = np.zeros(len(chosen), bool)
        linked[ends] = True
        able = list(able_workers(problem, self.name))
        for bodies, fit in able:
            costs = AssignmentCosts(problem, self.objective, fit, problem.latency)
            alone = bodies[~linked[bodies]]
            if problem.latency is None:
                chosen[alone] = _cheapest(problem, costs, alone)
                continue
            for some in costs.chunks(alone):
                chosen[some] = fit[costs.rows(some).argmin(axis=1)]
        if linked.any():
            host = np.unique(np.concatenate([fit for _, fit in able]))
            costs = AssignmentCosts(problem, self.objective, host, problem.latency)
            own: _Own = {}
            for bodies, fit in able:
                mine = bodies[linked[bodies]]
                alone_cost = np.where(np.isin(host, fit), costs.rows(mine), np.inf)
                own |= zip(mine.tolist(), alone_cost, strict=True)
            links: _Links = {one: {} for one in own}
            for producer, consumer, rate in zip(*(c.tolist() for c in costs.inner), strict=True):
                links[producer][consumer], links[consumer][producer] = (rate, 0.0), (0.0, rate)
            for one, choice in _cheapest_of_all(own, links, costs.apart).items():
                chosen[one] = host[choice]
        return self.whole_plan(problem, chosen)


def _cheapest(problem: Problem, costs: AssignmentCosts, bodies: Ints) -> Ints:
    """(k,) the host with the least sum of weighted distances, without trying them all.

    Costs may differ from those of trying all in their last digits.
    """
    from nova_core.placement.kernels.capacity_tree import build
    from nova_research.sbon.kernels.hosts import cheapest

    position, height = problem.latency_position, problem.nodes.height
    count = len(position)
    access = None if height is None else np.stack([height, height], axis=1)
    tree = build(position, np.ones(count), costs.hosts, rise=access)
    slot = np.full(count, -1)
    slot[tree.node] = np.arange(len(costs.hosts))
    heights = np.zeros(count) if height is None else height
    return np.asarray(cheapest(tree, position, heights, slot, *costs.ends(bodies)))


class SbonProducer(_Comparator):
    """Run every operator on the node of one of its sources, drawn at random.

    Where its input comes from another operator, that is the source drawn for that one.
    """

    name = "sbon-producer"
    Parameters = RandomParameters
    parameters: RandomParameters

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the source's node may host."""
        graph = graph_of(problem)
        producer, consumer, _, _ = graph.links
        draw = np.zeros(len(graph))
        random = np.random.default_rng(self.parameters.seed)
        draw[graph.bodies] = random.random(len(graph.bodies))
        node, sources = graph.node.copy(), (graph.kind == SOURCE).astype(np.int64)
        for rows in groups(graph.depth[consumer]):
            # How many sources, counted once per way, each input comes from: its chances.
            receiver, first = np.unique(consumer[rows], return_index=True)
            chances = np.cumsum(sources[producer[rows]])
            before = chances[first] - sources[producer[rows[first]]]
            sources[receiver] = np.append(before[1:], chances[-1]) - before
            drawn = before + (draw[receiver] * sources[receiver]).astype(np.int64)
            chosen = producer[rows[np.searchsorted(chances, drawn, side="right")]]
            free = graph.node[receiver] < 0
            node[receiver[free]] = node[chosen[free]]
        return self.whole_plan(problem, node[graph.bodies])


class SbonConsumer(Sink):
    """Run every operator at the sink of its results."""

    name = "sbon-consumer"
    objective = "network-usage"


class SbonRandom(_Comparator):
    """Run every operator on a worker drawn at random from those that meet its requirement."""

    name = "sbon-random"
    ignores = ("capacity", "link")
    Parameters = RandomParameters
    parameters: RandomParameters

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity.

        Raises:
            InfeasibleError: when no node may run an operator.
        """
        random = np.random.default_rng(self.parameters.seed)
        fit: dict[int, Ints] = {}
        for bodies, hosts in able_workers(problem, self.name):
            fit |= dict.fromkeys(bodies.tolist(), hosts)
        chosen = [fit[body][random.integers(len(fit[body]))] for body in range(len(fit))]
        return self.whole_plan(problem, np.array(chosen, np.int64))


class SbonIpMulticast(_Comparator):
    """Run every operator on the router where its sources' routes to the sink have all met.

    A problem does not say how packets are routed, so its nodes are taken for routers: each is
    linked with its nearest ones and along the minimum spanning tree, and routes have as few hops as
    can be, of those the shortest. Forwarding packets is no load of theirs.
    """

    name = "sbon-ip-multicast"
    Parameters = RoutingParameters
    parameters: RoutingParameters

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether a router may host."""
        routes = neighbour_routes(
            problem.latency_position, problem.nodes.height, self.parameters.degree
        )
        graph = graph_of(problem)
        return self.whole_plan(problem, meeting_hosts(problem, cache(routes))[graph.bodies])


def neighbour_routes(position: Floats, height: Floats | None, degree: int) -> RoutesTo:
    """Routes over links between near nodes: fewest hops, of those the shortest.

    Args:
        position: (n, d) coordinates, ms.
        height: (n,) what every link of a node adds, ms, or None.
        degree: links to the nearest nodes that each node has besides the minimum spanning tree.
    """
    from scipy.sparse import csr_array
    from scipy.spatial import cKDTree

    count = len(position)
    near = np.arange(2, min(degree + 1, count) + 1)
    target = np.asarray(cKDTree(position).query(position, k=near)[1]) if len(near) else near
    every = np.repeat(np.arange(count), len(near))
    links = np.stack([every, target.ravel()], axis=1) if len(near) else np.empty((0, 2), np.int64)
    edges = np.concatenate([links, minimum_spanning_tree(position, height)])
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    length = np.linalg.norm(position[edges[:, 0]] - position[edges[:, 1]], axis=1)
    if height is not None:
        length += height[edges].sum(axis=1)
    # A route has less than n hops, so all their lengths together weigh less than one hop.
    weight = 1.0 + length / max(float(length.max(initial=0.0)) * count, 1e-300)
    graph = csr_array((weight, (edges[:, 0], edges[:, 1])), shape=(count, count))
    return lambda sink: shortest_ways(graph, sink)
