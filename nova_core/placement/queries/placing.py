"""Placing queries: Nova's phases II and III for operator graphs (paper, section 3.6)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.graph import JOIN
from nova_core.model.objectives import link_cost, link_weights
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import assemble_partitions
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.placement import cutting
from nova_core.placement.able_hosts import able_hosts
from nova_core.placement.partitioning import (
    DEFAULT_SIGMA,
    maximum_partition_rate,
    partition_rates,
)
from nova_core.placement.queries.virtual import virtual_positions

if TYPE_CHECKING:
    from nova_core.placement.kernels.state.tables import Tables
    from nova_core.placement.queries.instance_rows import InstanceRows
    from nova_core.strategies.nova_parameters import NovaParameters

# Small inputs afford more: candidates, orders, and aggregates both split and whole.
FEW_BODIES = 300
BODIES_AFFORDED = 400
MOST_STARTS = 16
MOST_SWEEPS = 8
# Sweeps continue while they save at least this share of the cost.
WORTHWHILE = 1e-3
_MOST_PASSES = 50
# Weight of traffic, as a share of the mean link weight, that breaks ties between placements.
_TIE = 1e-8
# Costs this close, relatively, are the same: sums in another order differ by less.
_ROUNDING = 1e-12


def place_queries(
    problem: Problem, parameters: NovaParameters, rewriting: Rewriting | None = None
) -> Plan:
    """Decide where each operator of each query runs, and into how many pieces it is cut.

    Args:
        problem: with the queries.
        parameters: without those of the indexes for joins of pairs.
        rewriting: how queries are rewritten; None for what the parameters allow and costs least.

    Raises:
        ProblemError: for queries that do not fit the problem, and for such a parameter.
        InfeasibleError: when ``on_full`` is ``expand`` and something fits nowhere.
    """
    p = parameters
    if p.index != "capacity-tree" or p.k is not None or p.neighbours is not None:
        raise ProblemError("nova: index, k and neighbours are for joins of pairs, not for queries")
    rewritings = list(_rewritings(problem, p)) if rewriting is None else [rewriting]
    best = _best_attempt(problem, p, p.sigma, rewritings)
    for sigma in p.finer_sigmas:
        if best.missing == 0 or best.hopeless:
            break
        best = min(best, _best_attempt(problem, p, sigma, rewritings), key=lambda one: one.score)
    if best.missing > 0 and p.on_full == "expand":
        who = best.without_room()
        raise InfeasibleError(
            f"{problem.name}: operators find no room even when cut: {best.missing:g} tuples/s are "
            f"missing{who}; add capacity, lower sigma to cut finer, or accept overload with "
            "on_full=spread",
            best.missing,
        )
    return best.plan()


def _best_attempt(
    problem: Problem, p: NovaParameters, sigma: float | None, rewritings: Sequence[Rewriting]
) -> _Attempt:
    refine = p.refine is not False
    best: _Attempt | None = None
    for rewriting in rewritings:
        graph = graph_of(problem, rewriting)
        starts = BODIES_AFFORDED // max(1, len(graph.bodies)) if refine else 1
        for start in range(max(1, min(MOST_STARTS, starts))):
            attempt = _Attempt(problem, rewriting, p, sigma, start)
            if best is None or attempt.better_than(best):
                best = attempt
    assert best is not None  # there is at least one
    return best


def _rewritings(problem: Problem, p: NovaParameters) -> Iterator[Rewriting]:
    """How queries are rewritten: all that is allowed, and less where that may cost less.

    What is placed once serves several queries from one place. Where every source's way to every
    sink counts, each query may do better with an operator of its own.
    """
    all_of_it = Rewriting(p.push_filters, p.split_aggregates, p.share_operators)
    apart = all_of_it._replace(share_operators=False)
    some = [all_of_it]
    if p.share_operators and p.objective == "source-latency":
        operators = [len(graph_of(problem, one)) for one in (all_of_it, apart)]
        if operators[0] < operators[1]:
            some.append(apart)
    for one in some:
        yield one
        graph = graph_of(problem, one)
        if len(graph.bodies) <= FEW_BODIES and graph.partial.any():
            yield one._replace(split_aggregates=False)


class _Instance(NamedTuple):
    """An instance of an operator while it is placed.

    Attributes:
        operator: number in the graph.
        node: it runs on, -1 for none yet.
        left: begin and end of the partitions it takes.
        right: begin and end.
        feeds: instance of the same aggregate that combines its results, -1 for none.
    """

    operator: int
    node: int
    left: tuple[int, int] = (0, 1)
    right: tuple[int, int] = (0, 1)
    feeds: int = -1


class _Attempt:
    """Phases II and III once, in one order."""

    def __init__(
        self,
        problem: Problem,
        rewriting: Rewriting,
        p: NovaParameters,
        sigma: float | None,
        start: int,
    ) -> None:
        from nova_core.placement.host_index import HostIndex
        from nova_core.placement.kernels.state.host_tree import offered
        from nova_core.placement.kernels.state.tables import Limits, Places

        self._problem, self._p, self._sigma = problem, p, sigma
        self._rewriting = rewriting
        self._graph = graph = graph_of(problem, rewriting)
        nodes = problem.nodes
        self._virtual = virtual_positions(
            graph, nodes.position, link_weights(graph, p.objective)
        ).point
        count = len(nodes)
        # A chosen node must have C_min free, however small the operator is.
        hosts = nodes.worker & (nodes.capacity >= p.c_min) & (nodes.capacity > 0)
        if not hosts.any():
            raise InfeasibleError(f"{problem.name}: no node may run operators", 1.0)
        able = able_hosts(graph, hosts, problem.name)
        self.hosts: Bools = able.hosts
        self._needs = np.zeros(len(graph), np.int64)
        if len(able.needs):
            self._needs[graph.bodies] = able.needs
        height = np.zeros(count) if nodes.height is None else nodes.height
        penalty = np.zeros(count) if nodes.penalty is None else nodes.penalty
        self._places = Places(
            np.ascontiguousarray(nodes.position), np.stack([height, penalty], axis=1)
        )
        self._capacity = np.minimum(nodes.capacity, 1e300)
        self._free = self._capacity.copy()
        node = np.flatnonzero(self.hosts)
        rise = (height + penalty)[node]
        requirements = 0 if able.meets is None else len(able.meets)
        self._index = HostIndex(
            np.column_stack([nodes.position[node], rise, self._free[node]]),
            node,
            np.empty((0, nodes.position.shape[1])),
            np.zeros(count, np.int64) if able.meets is None else offered(able.meets),
            requirements,
        )
        self._limit = math.inf if p.bandwidth is None else p.bandwidth
        # What is larger than an instance may be finds no room, and is cut.
        self._largest = self._limit * cutting.ROUNDING
        self._limits = np.array(Limits(0.0, 0.0, p.c_min, self._largest, 1.0))
        self._cuts: dict[int, list[Floats]] = {}
        self._by_key: list[int] = []
        self.missing = 0.0
        self._homeless: set[int] = set()
        self._breaks = False
        small = len(graph.bodies) <= FEW_BODIES
        self._nearby, self._most = (16, 96) if small else (6, 24)
        self._random = np.random.default_rng([p.seed, start]) if start else None
        self.instances = [_Instance(one, -1) for one in graph.bodies.tolist()]
        self._sweep()
        self._cut_what_is_left()
        if p.refine is not False:
            self._refine()
        self.score = (self.missing, self._cost())

    def without_room(self) -> str:
        """Which nodes have no room for what found none, where only some may run it."""
        graph = self._graph
        return graph.requirements.without_room(graph.requirement[sorted(self._homeless)])

    def better_than(self, other: _Attempt) -> bool:
        """Whether less is missing, or it costs less beyond rounding."""
        (missing, cost), (theirs, least) = self.score, other.score
        return missing < theirs or (missing == theirs and cost < least * (1 - _ROUNDING))

    # --- whole queries --------------------------------------------------------------------------

    def _sweep(self) -> float:
        """Place all trees of instances, or place them again where that is better."""
        from nova_core.placement.kernels.state.trees import place_trees

        if not self.instances:
            return 0.0
        rows = self._rows()
        order = np.arange(len(rows.first) - 1)
        if self._random is None:
            total = np.add.reduceat(rows.operators.rate[rows.some, 0], rows.first[:-1])
            order = np.argsort(-total, kind="stable")
        else:
            self._random.shuffle(order)
            self._take_one_by_one(self._random)
            rows = self._rows()
        tables, needs = self._tables(rows), self._needs[[one.operator for one in self.instances]]
        saved, host = 0.0, rows.host
        may_run = rows.operators.rate[:, :2].sum(axis=1) <= self._largest
        for _ in range(MOST_SWEEPS if self._p.refine is not False else 1):
            gained = place_trees(
                tables,
                rows.some,
                rows.first,
                order,
                needs,
                self._limits,
                self._nearby,
                self._most,
            )
            saved += gained
            if gained <= WORTHWHILE * saved and (host >= 0)[may_run].all():
                break
        self._run_on(host)
        return saved

    def _take_one_by_one(self, random: np.random.Generator) -> None:
        """Place instances apart, unlike the first attempt, which lets queries choose as a whole."""
        waiting = [row for row, one in enumerate(self.instances) if one.node < 0]
        for row in random.permutation(waiting).tolist():
            one = self.instances[row]
            required = float(self._graph.required[one.operator])
            node = self.take(one.operator, required) if required <= self._largest else -1
            if node >= 0:
                self.instances[row] = one._replace(node=node)
                self.charge(node, required)

    def _rows(self) -> InstanceRows:
        """Instances as rows of tables."""
        from nova_core.placement.queries.instance_rows import instance_rows

        plan = self.plan()
        links = plan.links
        # Before they are placed, instances share nothing on a node.
        usage = self._p.objective == "network-usage"
        weight = links.rate if usage else plan.link_weight(self._p.objective)
        if len(weight):
            weight = weight + _TIE * weight.mean() * links.rate / max(links.rate.max(), 1e-300)
        point = self._virtual[[one.operator for one in self.instances]]
        return instance_rows(plan, weight, point)

    def _tables(self, rows: InstanceRows) -> Tables:
        """All tables; what is free stays as it is."""
        from nova_core.placement.kernels.residents import enter_all
        from nova_core.placement.kernels.state.tables import Loads, Tables

        nodes = len(self._free)
        loads = Loads(self._capacity, self._free, np.full(nodes, -1), np.zeros(nodes, np.int64))
        host = rows.host
        placed = np.flatnonzero(host >= 0)
        enter_all(loads.first, rows.operators.chain, host[placed], placed)
        return Tables(self._index.tree, self._places, loads, rows.operators, rows.legs, rows.kept)

    def _refine(self) -> None:
        """Place queries with pieces again, then move and swap single instances of small inputs."""
        from nova_core.placement.kernels.state.swaps import improve

        if self._breaks or not self.instances:
            return
        if self._cuts:
            self._sweep()
        if len(self.instances) <= FEW_BODIES:
            rows = self._rows()
            tables = self._tables(rows)
            needs = self._needs[[one.operator for one in self.instances]]
            for _ in range(_MOST_PASSES):
                if improve(tables, needs, self._limits, self._most) <= 0:
                    break
            self._run_on(rows.host)
            self._sweep()

    def _run_on(self, host: Ints) -> None:
        self.instances = [
            one._replace(node=node) for one, node in zip(self.instances, host.tolist(), strict=True)
        ]

    # --- pieces ---------------------------------------------------------------------------------

    def _cut_what_is_left(self) -> None:
        """Cut operators that no node takes whole."""
        left = [one.operator for one in self.instances if one.node < 0]
        if not left:
            return
        self.instances = [one for one in self.instances if one.node >= 0]
        for operator in sorted(left, key=lambda one: -self._graph.required[one]):
            if self._graph.kind[operator] == JOIN:
                self._cut_join(operator)
            elif self._graph.parts[operator] > 1:
                self._cut_shares(operator)
            else:
                self._combine(operator)
        self._sort()

    def _sort(self) -> None:
        """Put instances in the order of operators."""
        order = sorted(range(len(self.instances)), key=lambda one: self.instances[one].operator)
        rank = {one: place for place, one in enumerate(order)} | {-1: -1}
        instances = [self.instances[one] for one in order]
        self.instances = [one._replace(feeds=rank[one.feeds]) for one in instances]

    def take(self, operator: int, required: float) -> int:
        """The nearest node with room, or -1."""
        need, needs = max(required, self._p.c_min), int(self._needs[operator])
        return self._index.nearest(self._virtual[operator], need, needs)

    @property
    def hopeless(self) -> bool:
        """Whether more is missing than all nodes have left."""
        return bool(self.missing > np.maximum(self._free[self.hosts], 0.0).sum())

    def most_room(self, operator: int) -> float:
        """The greatest free capacity of the nodes that may run an operator, tuples/s."""
        return self._index.most_room(int(self._needs[operator]))

    def room(self, node: int) -> float:
        return float(self._free[node])

    def charge(self, node: int, required: float) -> None:
        self._free[node] -= required
        self._index.set_free(node, self._free[node])

    def _nowhere(self, operator: int, required: float) -> int:
        """The node for a piece that fits nowhere: of the nearest nodes, the one with most left."""
        self.missing += required
        self._breaks = True
        self._homeless.add(operator)
        hosts = np.flatnonzero(self.hosts & self._graph.allowed(self._graph.body_of[operator]))
        away = np.linalg.norm(self._problem.nodes.position[hosts] - self._virtual[operator], axis=1)
        near = hosts[np.argsort(away, kind="stable")[:8]]
        node = int(max(near.tolist(), key=self.room))
        self.charge(node, required)
        return node

    def _inputs(self, operator: int) -> list[float]:
        """Tuples/s of each of an operator's inputs."""
        rates: list[float] = self._graph.rate[self._graph.inputs(operator)].tolist()
        return rates

    def _cut_join(self, operator: int) -> None:
        """Cut by key where there are enough keys, which sends less; else as a grid."""
        join, (left, right) = self._graph.joins[operator], self._inputs(operator)
        cut = cutting.by_key(_Hosts(self, operator), join, left, right, self._limit)
        if cut is None:
            self._cut_grid(operator)
        else:
            self._run_in_pieces(operator, cut)

    def _run_in_pieces(self, operator: int, cut: cutting.Cut) -> None:
        self._cuts[operator] = [cut.left, cut.right]
        if cut.join is not None:
            self._by_key.append(operator)
        feeds = len(self.instances) if cut.root is not None else -1
        for one in cut.runs if cut.root is None else (cut.root, *cut.runs):
            node = one.node if one.node >= 0 else self._nowhere(operator, one.required)
            left = one.begin, one.end
            combines = one is cut.root
            self.instances.append(_Instance(operator, node, left, feeds=-1 if combines else feeds))

    def _cut_grid(self, operator: int) -> None:
        rates = self._inputs(operator)
        inputs = np.array(rates[0]), np.array(rates[1])
        maximum = float(maximum_partition_rate(*inputs, self._sigma, self._p.bandwidth))
        if self._limit < math.inf:
            maximum = min(maximum, self._limit / 2)
        left, right = (partition_rates(rate, maximum) for rate in rates)
        self._cuts[operator] = [left, right]
        rest = [(0, len(left), 0, len(right))]
        while rest:
            a, b, c, d = rest.pop()
            node = self.take(operator, float(left[a] + right[c]))
            if node < 0:
                i, j = b - a, d - c
                required = float(left[a:b].sum() + right[c:d].sum())
                node = self._nowhere(operator, required)
            else:
                room = min(self.room(node), self._limit) * cutting.ROUNDING
                i, j = _largest(np.cumsum(left[a:b]), np.cumsum(right[c:d]), room)
                required = float(left[a : a + i].sum() + right[c : c + j].sum())
                self.charge(node, required)
            self.instances.append(_Instance(operator, node, (a, a + i), (c, c + j)))
            if a + i < b:
                rest.append((a + i, b, c, d))
            if c + j < d:
                rest.append((a, a + i, c + j, d))

    def _cut_shares(self, operator: int) -> None:
        required, parts = float(self._graph.required[operator]), int(self._graph.parts[operator])
        sigma = DEFAULT_SIGMA if self._sigma is None else self._sigma
        hosts = _Hosts(self, operator)
        cut = cutting.into_shares(hosts, required, parts, sigma, self._limit)
        self._run_in_pieces(operator, cut)

    def _combine(self, operator: int) -> None:
        """Partial instances over ranges of the inputs, and one that combines them."""
        inputs, most = np.array(self._inputs(operator)), float(self._graph.rate[operator])
        if not self._graph.combines[operator] or len(inputs) < 2:
            node = self._nowhere(operator, float(inputs.sum()))
            self.instances.append(_Instance(operator, node))
            return
        cut = cutting.into_parts(_Hosts(self, operator), inputs, most, self._limit)
        self._run_in_pieces(operator, cut)

    # --- result ---------------------------------------------------------------------------------

    def _cost(self) -> float:
        """The objective, with all metrics and penalties of nodes."""
        plan, nodes = self.plan(), self._problem.nodes
        links, (start, stop) = plan.links, plan.ends
        way = link_cost(self._problem, start, stop)
        if nodes.penalty is not None:
            way = way + np.where(links.producer >= 0, nodes.penalty[start], 0.0)
            way = way + np.where(links.consumer >= 0, nodes.penalty[stop], 0.0)
        return float(plan.link_weight(self._p.objective) @ way)

    def plan(self) -> Plan:
        """The plan so far; instances that have no node yet are on -1."""
        p, graph = self._p, self._graph
        row_of = graph.body_of
        rows = [(o, node, *left, *right, f) for o, node, left, right, f in self.instances]
        operator, node, a, b, c, d, feeds = np.array(rows, np.int64).reshape(-1, 7).T.copy()
        cuts = {int(row_of[one]): cut for one, cut in self._cuts.items()}
        by_key = [int(row_of[one]) for one in self._by_key]
        return Plan(
            problem=self._problem,
            rewriting=self._rewriting,
            partitions=assemble_partitions(Partitions.uncut(graph.input_rate), cuts, by_key),
            instances=Instances(
                row_of[operator], node, a, b, c, d, feeds if (feeds >= 0).any() else None
            ),
            strategy="nova",
            objective=p.objective,
            parameters=asdict(p),
            virtual_position=self._virtual[graph.bodies],
            breaks=("link", "capacity", "replica-bandwidth") if self._breaks else ("link",),
            notes={"cut": len(self._cuts)}
            | ({} if self._sigma == p.sigma else {"finest_sigma": self._sigma}),
        )


class _Hosts:
    """Nodes that take pieces of an operator."""

    def __init__(self, attempt: _Attempt, operator: int) -> None:
        self._attempt, self._operator = attempt, operator
        self.room, self.charge = attempt.room, attempt.charge

    def take(self, required: float) -> int:
        """The nearest node with room, or -1."""
        return self._attempt.take(self._operator, required)

    def most_room(self) -> float:
        """The greatest free capacity of the nodes that may run it, tuples/s."""
        return self._attempt.most_room(self._operator)


def _largest(left: Floats, right: Floats, room: float) -> tuple[int, int]:
    """Rows and columns of the largest corner of a grid that fits, by sums of their rates."""
    best = (1, 1)
    for i in range(1, len(left) + 1):
        j = int(np.searchsorted(right, room - left[i - 1], side="right"))
        if j and i * j > best[0] * best[1]:
            best = (i, j)
    return best
