"""Running queries: local re-optimization, and reuse of operators across queries (SBON, 3.2).

With re-optimization, operators follow the network.

With reuse, one operator serves all that want the same data. Queries are added one after the other.
Where an operator that emits the same tuples runs near the place a new one wishes for, the new query
takes its output instead, and what lies upstream of the new one is not needed either. Shared output
can travel once and be handed out near the consumers, by a multicast operator (section 4.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.strategies.base import check_range
from nova_research.operators import Operator, OperatorGraph
from nova_research.sbon.mapping import Mapper
from nova_research.sbon.relaxation import Damping, Placement, Springs, at_rest, needs


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of a migration; the text leaves both to the costs of a system.

    Attributes:
        displacement: an operator looks for a node only when its virtual position moved farther
            than this, ms.
        migration: it migrates only when that saves more network usage than this, tuples/s * ms.
    """

    displacement: float = 1.0
    migration: float = 0.0

    def __post_init__(self) -> None:
        check_range("re-optimizer:", self, "displacement migration", 0)


@dataclass(frozen=True)
class Migration:
    """An operator that moved.

    Attributes:
        operator: its number in the graph.
        source: node it left.
        target: node it runs on now.
        saving: network usage saved, tuples/s * ms.
    """

    operator: int
    source: int
    target: int
    saving: float


def reoptimize(
    graph: OperatorGraph,
    placement: Placement,
    mapper: Mapper,
    latency: Floats | None = None,
    thresholds: Thresholds | None = None,
    damping: Damping | None = None,
    allowed: list[Bools | None] | None = None,
) -> tuple[Placement, list[Migration]]:
    """Let every operator's node re-evaluate its placement once, one after the other.

    Each operator relaxes while its neighbours stay. If its virtual position moved far enough, it is
    mapped again, and migrates if that saves enough. Migrations are atomic: those that follow see
    its new place.

    Args:
        graph: queries as they are now, e.g. with rates as measured.
        placement: where operators are.
        mapper: the cost space as it is now; what the running operators take is off its room.
        latency: (n, n) ms, symmetric, by which savings are measured; None takes distances in the
            latency space.
        thresholds: of a lookup and of a migration.
        damping: of the springs.
        allowed: of every movable operator, (n,) nodes that meet its requirements, or None.

    Returns:
        The new placement, and what moved, in order. Positions of operators that stayed within the
        displacement threshold are the old ones.
    """
    limits, damping = thresholds or Thresholds(), damping or Damping()
    springs, need = Springs(graph), needs(graph)
    nodes, virtual = placement.nodes.copy(), placement.virtual.copy()
    fixed = graph.pinned()
    nodes[fixed >= 0] = fixed[fixed >= 0]
    virtual[fixed >= 0] = mapper.position[fixed[fixed >= 0]]
    migrations = []
    for row, operator in enumerate(graph.movable.tolist()):
        links = springs.links[row]
        neighbours, rate = links
        point = at_rest(virtual[operator], virtual[neighbours], rate, damping)
        if np.linalg.norm(point - virtual[operator]) <= limits.displacement:
            continue
        virtual[operator] = point
        current = int(nodes[operator])
        mapper.release(current, need[operator])
        target = mapper.find(point, need[operator], None if allowed is None else allowed[row])
        if target is not None:
            saving = _usage(current, nodes, links, mapper, latency)
            saving -= _usage(target, nodes, links, mapper, latency)
            if target != current and saving > limits.migration:
                nodes[operator] = target
                migrations.append(Migration(operator, current, target, saving))
        mapper.take(int(nodes[operator]), need[operator])
    return Placement(nodes, virtual), migrations


def _usage(
    node: int, nodes: Ints, links: tuple[Ints, Floats], mapper: Mapper, latency: Floats | None
) -> float:
    """Network usage of an operator's links were it on a node, tuples/s * ms."""
    neighbours, rate = links
    ends = nodes[neighbours]
    if latency is not None:
        return float(rate @ latency[node, ends])
    return float(rate @ np.linalg.norm(mapper.position[ends] - mapper.position[node], axis=1))


@dataclass(frozen=True)
class ReuseParameters:
    """Parameters of reuse.

    Attributes:
        radius: how far from an operator's virtual position one that is reused may run, ms in the
            cost space; 0 shares only what runs exactly there, inf whatever pays.
        k: nodes nearest to that position that are searched; the nearest that runs the operator
            serves (steps 1 to 4 of section 3.1.3, where k is 10). None searches all in the radius,
            and takes the one that adds least.
        multicast: whether shared output may be handed out by multicast operators.
    """

    radius: float = 100.0
    k: int | None = None
    multicast: bool = True

    def __post_init__(self) -> None:
        check_range("reuse:", self, "radius", 0, np.inf)
        check_range("reuse:", self, "k", 1)


@dataclass(frozen=True, eq=False)
class Shared:
    """Queries that share operators.

    Attributes:
        graph: what runs: operators of all queries without those that others replace, and multicast
            operators.
        placement: where.
        instead: (o,) for every operator of the queries as given, the one in ``graph`` whose output
            serves in its place; -1 where nothing needs it any more.
        reused: operators of the queries that do not run: replaced or no longer needed.
    """

    graph: OperatorGraph
    placement: Placement
    instead: Ints
    reused: int


def share(
    graph: OperatorGraph,
    mapper: Mapper,
    parameters: ReuseParameters | None = None,
    damping: Damping | None = None,
) -> Shared:
    """Place queries by RELAXATION, each reusing what earlier ones run where that pays.

    Of the operators in the region (`ReuseParameters`), the one is taken that adds the least network
    usage by the latency space, and only if that is less than a new instance adds with its
    own inputs; a query for which reuse would not save as a whole gets instances of its own. So
    without limits of resources reuse never adds network usage, by the latency space.

    Args:
        graph: queries; physical streams they have in common are one source. Operators with an
            ``expression`` can be shared (see `nova_research.operators.Operator`).
        mapper: the cost space and what its nodes have room for, (n, 2) tuples/s and bytes.
        parameters: region, and whether to multicast.
        damping: of the springs.

    Raises:
        InfeasibleError: when no node may run an operator.
        ProblemError: for an operator that receives from one of a later query.
    """
    p, damping = parameters or ReuseParameters(), damping or Damping()
    for operator in graph.operators:
        for producer in (graph[one] for one in operator.inputs):
            if producer.node is None and producer.query > operator.query:
                raise ProblemError(
                    f"operator {operator.id!r}: receives from {producer.id!r} of a later query"
                )
    work = _Sharing(graph, mapper, p, Springs(graph).relax(mapper.position, damping))
    queries: dict[int, list[int]] = {}
    for number, operator in enumerate(graph.operators):
        queries.setdefault(operator.query, []).append(number)
    for _, operators in sorted(queries.items()):
        work.add(operators)
    shared, instead, placement = work.result()
    reused = len(graph) - len(shared)
    if p.multicast:
        shared, placement, instead = _with_multicast(shared, placement, instead, mapper, damping)
    return Shared(shared, placement, instead, reused)


class _Sharing:
    """The state while queries are added."""

    def __init__(
        self, graph: OperatorGraph, mapper: Mapper, parameters: ReuseParameters, virtual: Floats
    ) -> None:
        self._graph, self._mapper, self._parameters = graph, mapper, parameters
        self._virtual, self._needs = virtual, needs(graph)
        self._nodes = graph.pinned()
        self._same = _same_data(graph)
        # Operators that run, by the data they emit.
        self._running: dict[int, list[int]] = {}
        self._instead = np.full(len(graph), -1)

    def add(self, mine: list[int]) -> None:
        """Place a query's operators, or reuse."""
        mapper = self._mapper
        placed = [n for n in mine if self._graph[n].node is None]
        self._nodes[placed] = mapper.place_all(
            self._virtual[placed], self._needs[placed], [None] * len(placed)
        )
        everything = {one: one for one in mine}
        chosen = self._choose(mine)
        if self._added(chosen) > self._added(everything):
            chosen = everything
        for one in mine:
            if one not in chosen or chosen[one] != one:
                mapper.release(int(self._nodes[one]), self._needs[one])
            else:
                self._running.setdefault(int(self._same[one]), []).append(one)
        for one, other in chosen.items():
            self._instead[one] = other

    def _distance(self, first: int, second: int) -> float:
        """Between the nodes of two operators in the latency space, ms."""
        position, nodes = self._mapper.position, self._nodes
        return float(np.linalg.norm(position[nodes[first]] - position[nodes[second]]))

    def _region(self, operator: int) -> list[int]:
        """Running operators that emit the same, near this one's virtual position."""
        running = self._running.get(int(self._same[operator]), [])
        if not running or self._graph[operator].node is not None:
            return []
        point, k = self._virtual[operator], self._parameters.k
        away = self._mapper.away(point, self._nodes[running])
        near = away <= self._parameters.radius
        if k is not None:
            near &= np.isin(self._nodes[running], self._mapper.nearest(point[None, :], k))
        rows = np.flatnonzero(near)
        if k is not None:
            rows = rows[np.argsort(away[rows], kind="stable")[:1]]
        return [running[one] for one in rows.tolist()]

    def _choose(self, mine: list[int]) -> dict[int, int]:
        """The operator that serves in place of each needed operator of a query."""
        graph = self._graph
        within = set(mine)
        region = {one: self._region(one) for one in mine}
        # Least cost of an operator's own instance with everything upstream of it. An input with
        # several consumers in the query counts for each, so reuse is chosen slightly too often.
        own: dict[int, float] = {}
        for one in mine:
            own[one] = sum(
                self._supply(producer, [one], region, own) if producer in within
                else self._way(self._serving(producer), [one])
                for producer in graph[one].inputs
            )  # fmt: skip
        chosen: dict[int, int] = {}
        for one in reversed(mine):
            users = [user for user in graph.consumers[one] if chosen.get(user) == user]
            # An operator that another query names as its input must run itself.
            named = any(user not in within for user in graph.consumers[one])
            if named or graph[one].node is not None:
                chosen[one] = one
            elif users or not graph.consumers[one]:
                fresh = own[one] + self._way(one, users)
                best = min(region[one], key=lambda r: self._way(r, users), default=one)
                chosen[one] = best if self._way(best, users) <= fresh else one
        return chosen

    def _way(self, producer: int, users: list[int]) -> float:
        """Network usage of sending an operator's output to some others."""
        rate = self._graph[producer].output_rate
        return rate * sum(self._distance(producer, user) for user in users)

    def _supply(
        self, producer: int, users: list[int], region: dict[int, list[int]], own: dict[int, float]
    ) -> float:
        fresh = own[producer] + self._way(producer, users)
        return min([fresh, *(self._way(other, users) for other in region[producer])])

    def _added(self, chosen: dict[int, int]) -> float:
        """Network usage a query adds."""
        return sum(
            self._way(chosen.get(producer, self._serving(producer)), [one])
            for one, other in chosen.items()
            if one == other
            for producer in self._graph[one].inputs
        )

    def _serving(self, producer: int) -> int:
        """What runs in place of an operator of an earlier query; a source is always there."""
        other = int(self._instead[producer])
        return producer if other < 0 else other

    def result(self) -> tuple[OperatorGraph, Ints, Placement]:
        """What runs, producers first; what serves for each operator; and where it runs."""
        graph = self._graph
        running = [n for n in range(len(graph)) if self._instead[n] == n]
        order: list[int] = []
        number: dict[int, int] = {}
        # An operator may take its input from one that comes after it in the queries as given.
        stack = [(one, False) for one in reversed(running)]
        while stack:
            one, ready = stack.pop()
            if one in number:
                continue
            if ready:
                number[one] = len(order)
                order.append(one)
                continue
            stack.append((one, True))
            above = [int(self._instead[p]) for p in graph[one].inputs]
            stack += [(p, False) for p in reversed(above) if p not in number]
        operators = [
            replace(graph[n], inputs=tuple(number[int(self._instead[p])] for p in graph[n].inputs))
            for n in order
        ]
        instead = np.array([number.get(int(n), -1) for n in self._instead], np.int64)
        return (
            OperatorGraph(operators),
            instead,
            Placement(self._nodes[order], self._virtual[order]),
        )


def _same_data(graph: OperatorGraph) -> Ints:
    """(o,) a number for the tuples each operator emits; the same for the same tuples."""
    data = np.empty(len(graph), np.int64)
    number: dict[tuple[object, ...], int] = {}
    for one, operator in enumerate(graph.operators):
        key: tuple[object, ...] = (one,)
        if operator.inputs and operator.expression:
            inputs = tuple(data[list(operator.inputs)].tolist())
            what = (operator.kind, operator.expression)
            key = (*what, inputs, operator.output_rate, operator.tuple_bytes)
        data[one] = number.setdefault(key, len(number))
    return data


def _with_multicast(
    graph: OperatorGraph, placement: Placement, instead: Ints, mapper: Mapper, damping: Damping
) -> tuple[OperatorGraph, Placement, Ints]:
    """Add a multicast operator behind each operator with several consumers, where it saves."""
    operators: list[Operator] = []
    nodes: list[int] = []
    virtual: list[Floats] = []
    number: dict[int, int] = {}
    # (producer, consumer) to the number of the multicast operator between them.
    handed: dict[tuple[int, int], int] = {}
    for one, operator in enumerate(graph.operators):
        inputs = tuple(handed.get((p, one), number[p]) for p in operator.inputs)
        number[one] = len(operators)
        operators.append(replace(operator, inputs=inputs))
        nodes.append(int(placement.nodes[one]))
        virtual.append(placement.virtual[one])
        users = sorted(set(graph.consumers[one]))
        multicast = _multicast(one, users, graph, placement, mapper, damping)
        if multicast is None:
            continue
        node, point, served = multicast
        handed |= {(one, user): len(operators) for user in served}
        operators.append(
            Operator(
                f"{operator.id} multicast",
                "multicast",
                (number[one],),
                operator.output_rate,
                tuple_bytes=operator.tuple_bytes,
                query=operator.query,
            )
        )
        nodes.append(node)
        virtual.append(point)
    where = Placement(np.array(nodes, np.int64), np.array(virtual).reshape(len(nodes), -1))
    moved = np.array([number.get(one, -1) for one in instead.tolist()], np.int64)
    return OperatorGraph(operators), where, moved


def _multicast(
    producer: int,
    users: list[int],
    graph: OperatorGraph,
    placement: Placement,
    mapper: Mapper,
    damping: Damping,
) -> tuple[int, Floats, list[int]] | None:
    """Node, virtual position and consumers of a multicast operator; None where it saves nothing."""
    rate, position = graph[producer].output_rate, mapper.position
    if len(users) < 2 or rate <= 0:
        return None
    ends = [*users, producer]
    at = position[placement.nodes[ends]]
    point = at_rest(at.mean(axis=0), at, np.full(len(ends), rate), damping)
    need = np.array([rate, 0.0])
    node = mapper.find(point, need)
    if node is None:
        return None
    direct = np.linalg.norm(at[:-1] - at[-1], axis=1)
    handed = np.linalg.norm(at[:-1] - position[node], axis=1)
    nearer = handed < direct
    saving = (direct - handed)[nearer].sum() - np.linalg.norm(position[node] - at[-1])
    if nearer.sum() < 2 or saving <= 0:
        return None
    mapper.take(node, need)
    return node, point, [user for user, one in zip(users, nearer.tolist(), strict=True) if one]
