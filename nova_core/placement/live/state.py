"""The state of a live placement: which nodes run which operators, free capacities, and undo.

Every change goes through a method that records the previous value, so that a refused event leaves
the state unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from nova_core.errors import PlanError, ProblemError
from nova_core.model.objectives import link_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.model.requirements import ANY_NODE, MET, Rule, met_by, met_of
from nova_core.model.verify import TOLERANCE
from nova_core.placement.host_index import HostIndex
from nova_core.placement.kernels import tuning
from nova_core.placement.kernels.capacity_tree import MOST_REQUIREMENTS
from nova_core.placement.kernels.ranking import busiest_sinks
from nova_core.placement.kernels.state import hosts as kernels
from nova_core.placement.kernels.state.host_tree import offered
from nova_core.placement.kernels.state.points import relax_points
from nova_core.placement.kernels.state.settle import settle
from nova_core.placement.kernels.state.tables import (
    HOST,
    LEFT,
    LEG,
    LEGS,
    LINKED,
    OUTPUT,
    RIGHT,
    SINK,
    Legs,
    Loads,
    Narrow,
    Operators,
    Places,
    Tables,
    shared,
)
from nova_core.placement.kernels.state.trees import improve_trees, place_tree
from nova_core.placement.live.demand import Demand, LogicalLink
from nova_core.placement.live.pieces import Piece, Pieces, Share
from nova_core.placement.live.tables import (
    IN_PIECES,
    NOWHERE,
    ChangedOperators,
    Incidence,
    JoinRows,
    LegRows,
    NodeRows,
    OperatorRows,
    Residents,
    SourceRows,
)
from nova_core.placement.live.undo import Undoable
from nova_core.placement.partitioning import finer_sigmas
from nova_core.placement.queries.virtual import virtual_positions

Link = tuple[int, int]
# A leg: the node it ends at, what is there (`kernels.state.tables.Legs.other`), and its weight.
Leg = tuple[int, int, float]
# Weights that stand for those of a whole operator's legs.
WHOLE: Floats = np.empty(0)


class LiveState(Undoable):
    """The state of a live placement; see the tables for the columns."""

    def __init__(
        self, problem: Problem, plan: Plan, demand_of: Callable[[LiveState, Problem], Demand]
    ) -> None:
        """Take over a plan.

        Args:
            problem: the placed problem.
            plan: of it.
            demand_of: makes what there is to run.

        Raises:
            PlanError: for a plan that relays or leaves operators without instances.
        """
        if plan.routes is not None:
            raise PlanError(
                f"live: the plan of {plan.strategy!r} relays through other nodes; live placement "
                "follows plans whose flows are direct"
            )
        super().__init__()
        graph = plan.graph
        self.base = problem
        self.strategy, self.objective = plan.strategy, plan.objective
        self.parameters, self.rewriting = dict(plan.parameters), plan.rewriting
        # Budgets of links are kept by pairs alone; plans of queries say that they may break them.
        self.keeps_links = not problem.queries
        follows = _OVERLOADS if self.keeps_links else _OVERLOADS[:2]
        self.given_breaks = tuple(b for b in plan.breaks if b not in follows)
        self.version = 0
        self.nodes, self.sources = NodeRows.of(problem), SourceRows.of(problem)
        self.legs, first = LegRows.of(graph, self.objective)
        self.operators = OperatorRows.of(graph, _points(plan), self.legs, first)
        self.joins = JoinRows.of(problem)
        self.names = graph.names.tolist()
        self.node_index = {name: row for row, name in enumerate(self.nodes.ids)}
        self.source_index = {name: row for row, name in enumerate(self.sources.ids)}
        self.requirements = list(graph.requirements.rules)
        self._stream_rules = problem.stream_rules
        self.sources_on = Incidence(problem.sources.node, np.arange(len(problem.sources)))

        links = problem.links
        ends = zip(links.source.tolist(), links.target.tolist(), strict=True)
        self.budget: dict[Link, float] = dict(zip(ends, links.budget.tolist(), strict=True))
        self.link_free = dict(self.budget) if self.keeps_links else {}
        self.links_at: dict[int, dict[Link, None]] = {}
        for link in self.budget:
            for node in link:
                self.links_at.setdefault(node, {})[link] = None

        # Nodes whose measured latencies no longer hold.
        self.strayed: dict[int, None] = {}
        # Rate of pairs' results at each sink, tuples/s, and sinks to check at the end of an event.
        self.arriving: dict[int, float] = {}
        self.sinks_changed: set[int] = set()
        # Joins and queries whose results go to another node, and where they went before.
        self.rerouted: dict[int, int] = {}
        # Operators that are called otherwise, and what they were called before.
        self.renamed: dict[int, str] = {}
        # Tuples/s of both inputs, before they changed.
        self.old_rates: dict[int, tuple[float, float]] = {}
        # Nodes beyond their capacity; nodes that lack C_min; links beyond their budget.
        self.overloaded: dict[int, None] = {}
        self.short: dict[int, None] = {}
        self.overfull: dict[Link, None] = {}
        self.cuts: dict[int, Pieces] = {}
        c_min = self.parameters.get("c_min")
        self.c_min = float(c_min) if c_min else 0.0
        self.demand = demand_of(self, problem)
        self.residents = self._take_over(plan)
        free = self.nodes.free
        for node in np.flatnonzero(free < self.c_min).tolist() if self.c_min else ():
            if self._is_short(node, free.item(node)):
                self.short[node] = None
        self.changed = ChangedOperators(self.operators)
        # Cuts before the event, of operators that it cuts differently.
        self.old_cuts: dict[int, Pieces | None] = {}
        threshold = self.parameters.get("bandwidth")
        self.largest = np.inf if threshold is None else float(threshold)
        sigma = self.parameters.get("sigma")
        self.sigma = None if sigma is None else float(sigma)
        self.finer_sigmas = finer_sigmas(self.sigma, threshold)
        self.index = self._index(graph.requirements.met)
        self._tables: Tables | None = None
        self._tree, self._kept = self.index.tree, self.changed.kept

    # --- taking over a plan -----------------------------------------------------------------------

    def _take_over(self, plan: Plan) -> Residents:
        i, operators = plan.instances, self.operators
        replicas = plan.replica_count
        if (replicas == 0).any():
            name = self.names[int(np.argmin(replicas))]
            raise PlanError(f"live: the plan runs no instance of {name}")
        count = plan.partitions.count
        whole = (replicas == 1) & (count[0::2] == 1) & (count[1::2] == 1)
        rows = np.flatnonzero(whole[i.pair])
        operators.host[i.pair[rows]] = i.node[rows]
        pieces_of: dict[int, list[Piece]] = {}
        bounds = i.left_begin, i.left_end, i.right_begin, i.right_end
        for k in np.flatnonzero(~whole[i.pair]).tolist():
            piece = Piece(int(i.node[k]), *(int(bound[k]) for bound in bounds))
            pieces_of.setdefault(int(i.pair[k]), []).append(piece)
        residents = Residents(self.nodes, operators, i.node[rows], i.pair[rows])
        free = self.nodes.free
        size = operators.rate[:, LEFT] + operators.rate[:, RIGHT]
        np.subtract.at(free, i.node[rows], size[i.pair[rows]])
        by_key, graph = plan.partitions.by_key, plan.graph
        for one, pieces in pieces_of.items():
            left, right = (tuple(plan.partitions.rates(one, side).tolist()) for side in (0, 1))
            keyed = by_key is not None and bool(by_key[one])
            join = graph.joins[int(graph.bodies[one])] if keyed else None
            ordered = sorted(pieces, key=lambda p: (p.left, p.left_end > p.left, p.right))
            operators.host[one] = IN_PIECES
            self.cuts[one] = Pieces(left, right, tuple(ordered), join)
            for node, share in self.shares(one).items():
                free[node] -= share.size
                residents.add(node, one)
        legs, used = self.legs, self.legs.used
        linked = np.flatnonzero(legs.other[:used] >= 0)
        legs.end[linked] = np.maximum(operators.host[legs.other[linked]], NOWHERE)
        for one in self.cuts:
            self.link(self.neighbours(one))
        for node in np.flatnonzero(free < -TOLERANCE * self.nodes.capacity).tolist():
            self.overloaded[node] = None
        if self.link_free:
            for one in range(operators.used):
                for node, share in self.shares(one).items():
                    for link, rate in self.traffic(one, node, share):
                        self.link_free[link] -= rate
            for link, left_over in self.link_free.items():
                if left_over < -TOLERANCE * self.budget[link]:
                    self.overfull[link] = None
        super().commit()
        return residents

    def _index(self, met: Bools) -> HostIndex:
        n = self.nodes
        node = np.flatnonzero(n.worker & (n.capacity > 0) & (n.capacity >= self.c_min))
        rows = np.column_stack([n.position[node], n.extra[node].sum(axis=1), n.free[node]])
        last = self.operators.row[:, LEG] + self.operators.row[:, LEGS] - 1
        sink = self.legs.end[last].astype(np.int64)
        at_sink = self.legs.other[last] == SINK
        points = self.operators.point[at_sink]
        hubs = busiest_sinks(points, sink[at_sink], n.position, tuning.HUBS)
        offer = offered(met) if len(met) else np.zeros(len(n.position), np.int64)
        return HostIndex(rows, node, hubs, offer, len(met))

    # --- changing ---------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make all changes permanent."""
        super().commit()
        self._end()

    def roll_back(self) -> None:
        """Undo all changes since the last commit."""
        super().roll_back()
        self.changed.put_back()
        self._end()

    def _end(self) -> None:
        self.changed.clear()
        self.old_cuts.clear()
        self.rerouted.clear()
        self.renamed.clear()
        self.old_rates.clear()
        self.sinks_changed.clear()

    def next_node(self) -> int:
        """The row of one more node."""
        if self.nodes.reserve(1):
            self.index.reserve(len(self.nodes.position))
            self._tables = None
        return self.nodes.next()

    @property
    def tables(self) -> Tables:
        """All tables, by reference, for kernels."""
        tables, kept = self._tables, self.changed.kept
        if tables is None or self._tree is not self.index.tree or self._kept is not kept:
            self._tree, self._kept = self.index.tree, kept
            tables = self._tables = shared(self.unshared())
        return tables

    def unshared(self) -> Tables:
        """All tables, for Python."""
        n, o, legs = self.nodes, self.operators, self.legs
        return Tables(
            self.index.tree,
            Places(n.position, n.extra),
            Loads(n.capacity, n.free, n.first, n.pieces),
            Operators(o.row, o.rate, o.point, o.chain),
            Legs(legs.end, legs.other, legs.weight),
            self.changed.kept,
        )

    # --- reading ----------------------------------------------------------------------------------

    def size(self, operator: int) -> float:
        """C_r of a whole operator, tuples/s."""
        rate = self.operators.rate
        return rate.item(operator, LEFT) + rate.item(operator, RIGHT)

    def neighbours(self, operator: int) -> list[int]:
        """Operators that feed one, or that it feeds."""
        begin, count = self.operators.row[operator, LEG], self.operators.row[operator, LEGS]
        others = self.legs.other[begin : begin + count].tolist()
        return list(dict.fromkeys(other for other in others if other >= 0))

    def offer(self, node: int) -> int:
        """Bits of the requirements that a node meets."""
        if not self.requirements:
            return 0
        known = self.nodes.known(node)
        return sum(1 << row for row, rule in enumerate(self.requirements) if met_by(rule, known))

    def stream_rule(self, *streams: str) -> Rule:
        """What tuples of streams require of every node where they are."""
        rule = ANY_NODE
        for stream in streams if self._stream_rules else ():
            rule &= self._stream_rules.get(stream, ANY_NODE)
        return rule

    def meets(self, node: int, rule: Rule) -> bool:
        """Whether a node has what a rule requires."""
        return rule == ANY_NODE or met_by(rule, self.nodes.known(node))

    def require_zone(self, node: int, rule: Rule, where: str) -> None:
        """Refuse a source or a sink where tuples may not be.

        Raises:
            ProblemError: naming the node, its zone, and what would be accepted.
        """
        if rule is not ANY_NODE and not self.meets(node, rule):
            zone = self.nodes.known(node)["zone"]
            here = f"in zone {zone}" if zone else "in no zone"
            raise ProblemError(
                f"{where}: {self.nodes.ids[node]!r} is {here}, but tuples are there that need a "
                f"node {rule}"
            )

    def number_of(self, rule: Rule) -> int:
        """The number of a requirement, counted from 1; 0 for none.

        A new requirement is indexed, in time proportional to the number of nodes.

        Raises:
            ProblemError: for more requirements than there are bits.
        """
        if rule == ANY_NODE:
            return 0
        if rule not in self.requirements:
            if len(self.requirements) == MOST_REQUIREMENTS:
                raise ProblemError(
                    f"operators have {MOST_REQUIREMENTS} different requirements already; no more "
                    "are supported"
                )
            self.requirements.append(rule)
            self.on_undo(self.requirements.pop)
            old, n = self.index, self.nodes
            offer = np.zeros(len(n.position), np.int64)
            columns = {name: n.column(name, np.arange(n.used)) for name in MET}
            offer[: n.used] = offered(met_of(self.requirements, columns, n.used))
            node, row = old.hosts()
            self.on_undo(setattr, self, "index", old)
            self.index = HostIndex(row, node, old.tree.hub, offer, len(self.requirements))
        return self.requirements.index(rule) + 1

    def requirement(self, operator: int) -> int:
        """The number of an operator's requirement, counted from 1; 0 for none."""
        return self.demand.requirement(operator) if self.requirements else 0

    def whole_share(self, operator: int) -> Share:
        """What the host of a whole operator receives and emits."""
        rate = self.operators.rate
        left, right = rate.item(operator, LEFT), rate.item(operator, RIGHT)
        return Share(left, right, rate.item(operator, OUTPUT))

    def shares(self, operator: int) -> dict[int, Share]:
        """What each node that runs an operator receives and emits for it."""
        host, whole = self.operators.row.item(operator, HOST), self.whole_share(operator)
        if host == IN_PIECES:
            return self.cuts[operator].shares(whole)
        return {} if host == NOWHERE else {host: whole}

    def piece_weights(self, operator: int, cut: Pieces, piece: Piece, whole: Share) -> Floats:
        """Weights of a piece's legs; `WHOLE` stands for those of the whole operator."""
        row = self.operators.row
        begin, count = row.item(operator, LEG), row.item(operator, LEGS)
        by_rate = self.objective == "network-usage"
        if not by_rate and cut.join is None and not cut.combined:
            return self.legs.weight[begin : begin + count] * cut.share_of_cells(piece)
        inputs, outputs = self.demand.links(operator)
        sides = [side for *_, side in self._expanded([*inputs, *outputs])]
        shares = cut.weights(piece, whole, sides, by_rate)
        return self.legs.weight[begin : begin + count] * shares

    def traffic(self, pair: int, node: int, share: Share) -> Iterator[tuple[Link, float]]:
        """Links with a budget that a share of a pair uses, and how much of each, tuples/s."""
        begin = self.operators.row.item(pair, LEG)
        left, right, sink = self.legs.end[begin : begin + 3].tolist()
        for link, rate in (
            ((left, node), share.left),
            ((right, node), share.right),
            ((node, sink), share.output),
        ):
            if link[0] != link[1] and link in self.link_free:
                yield link, rate

    # --- placing ----------------------------------------------------------------------------------

    def set_free(self, node: int, free: float) -> None:
        """Set the free capacity of a node."""
        n = self.nodes
        self.on_undo(self._restore_free, node, n.free.item(node))
        self._restore_free(node, free)
        self.note_load(node)

    def note_load(self, node: int) -> None:
        """Note whether a node is overloaded, and whether it lacks C_min."""
        free = self.nodes.free.item(node)
        over = free < 0 and free < -TOLERANCE * self.nodes.capacity.item(node)
        self._note(self.overloaded, node, over)
        if self.c_min:
            self._note(self.short, node, self._is_short(node, free))

    def _note(self, table: dict[int, None], node: int, holds: bool) -> None:
        if not holds:
            self.drop(table, node)
        elif node not in table:
            self.put(table, node, None)

    def _is_short(self, node: int, free: float) -> bool:
        least = self.c_min - free - TOLERANCE * self.nodes.capacity.item(node)
        if least <= 0 or not self.residents.any_on(node):
            return False
        return all(self.instance(pair, node) < least for pair in self.residents.of(node))

    def instance(self, operator: int, node: int) -> float:
        """C_r of the greatest instance of an operator on a node, tuples/s."""
        if self.operators.row.item(operator, HOST) != IN_PIECES:
            return self.size(operator)
        cut, whole = self.cuts[operator], self.whole_share(operator)
        return max(cut.share(piece, whole).size for piece in cut.pieces if piece.node == node)

    def greatest(self, node: int) -> float:
        """C_r of the greatest instance on a node, tuples/s; 0 without any."""
        return max((self.instance(pair, node) for pair in self.residents.of(node)), default=0.0)

    def lack(self, node: int, size: float = 0.0, instance: float = 0.0) -> float:
        """Capacity that a node lacks for its instances, tuples/s; 0 or less if none.

        That is its load beyond its capacity (paper, Eq. 2), or what its free capacity lacks of
        C_min (Eq. 3) even if the greatest instance was placed last, as in `nova_core.model.verify`.

        Args:
            node: the node.
            size: additional load, tuples/s.
            instance: the greatest instance of the additional load, tuples/s.
        """
        free = self.nodes.free.item(node) - size
        if not self.c_min or free >= self.c_min:
            return -free
        if not (instance or self.residents.any_on(node)):
            return -free
        return max(self.c_min - max(instance, self.greatest(node)), 0.0) - free

    def _restore_free(self, node: int, free: float) -> None:
        self.nodes.free[node] = free
        self.index.set_free(node, free)

    def use_links(self, pair: int, node: int, share: Share, sign: int) -> None:
        """Reserve (1) or release (-1) the budgets of the links that a share uses."""
        if not self.link_free:
            return
        for link, rate in list(self.traffic(pair, node, share)):
            self.put(self.link_free, link, self.link_free[link] - sign * rate)
            if self.link_free[link] < -TOLERANCE * self.budget[link]:
                self.put(self.overfull, link, None)
            elif self.overfull:
                self.drop(self.overfull, link)

    def links_fit(self, pair: int, node: int, share: Share) -> bool:
        """Whether the links a share would use have room for it."""
        if not self.link_free:
            return True
        needed: dict[Link, float] = {}
        for link, rate in self.traffic(pair, node, share):
            needed[link] = needed.get(link, 0.0) + rate
        return all(
            rate <= self.link_free[link] + TOLERANCE * self.budget[link]
            for link, rate in needed.items()
        )

    def attach(self, operator: int, placed: int | Pieces, whole: Share | None = None) -> None:
        """Place an unplaced operator: whole on a node, or in pieces.

        Args:
            operator: what is placed.
            placed: the node, or the pieces.
            whole: its `whole_share`, if known.
        """
        whole = whole or self.whole_share(operator)
        if not isinstance(placed, Pieces):
            self._move(operator, NOWHERE, placed, whole)
            return
        self.changed.keep_one(operator)
        self.old_cuts.setdefault(operator, None)
        self.assign(self.operators, "row", (operator, HOST), IN_PIECES)
        self.put(self.cuts, operator, placed)
        for node, share in placed.shares(whole).items():
            self.bind(self.residents, node, operator)
            self.set_free(node, self.nodes.free.item(node) - share.size)
            self.use_links(operator, node, share, 1)
        self._link_neighbours(operator)

    def detach(self, operator: int) -> int | Pieces | None:
        """Remove an operator from its nodes; returns its placement, None for an unplaced one."""
        host = self.operators.row.item(operator, HOST)
        if host == NOWHERE:
            return None
        whole = self.whole_share(operator)
        if host != IN_PIECES:
            self._move(operator, host, NOWHERE, whole)
            return host
        self.changed.keep_one(operator)
        self.assign(self.operators, "row", (operator, HOST), NOWHERE)
        pieces, n = self.cuts[operator], self.nodes
        self.old_cuts.setdefault(operator, pieces)
        for node, share in pieces.shares(whole).items():
            self.unbind(self.residents, node, operator)
            # See `kernels.state.hosts.move_operator`.
            some = self.residents.any_on(node)
            self.set_free(node, n.free.item(node) + share.size if some else n.capacity.item(node))
            self.use_links(operator, node, share, -1)
        self.drop(self.cuts, operator)
        self._link_neighbours(operator)
        return pieces

    def _move(self, operator: int, old: int, new: int, share: Share) -> None:
        """Take a whole operator off a node or put it on one, recorded before; one is `NOWHERE`."""
        self.changed.reserve(1)
        before = kernels.move(self.tables, operator, new)
        self.on_undo(self._move_back, operator, old, new, *before)
        node, sign = (old, -1) if new == NOWHERE else (new, 1)
        if self.overloaded or self.short or self.nodes.free.item(node) < self.c_min:
            self.note_load(node)
        if self.link_free:
            self.use_links(operator, node, share, sign)

    def _move_back(
        self, operator: int, old: int, new: int, free_old: float, free_new: float
    ) -> None:
        if new != NOWHERE:
            self.residents.leave(new, operator)
            self._restore_free(new, free_new)
        if old != NOWHERE:
            self.residents.enter(old, operator)
            self._restore_free(old, free_old)
        self.operators.row[operator, HOST] = old
        if self.operators.row.item(operator, LINKED):
            kernels.point_at(self.tables, operator, old)

    def point(self, operator: int, node: int) -> None:
        """Have the links of an operator's neighbours end at a node, while that is tried."""
        if self.operators.row.item(operator, LINKED):
            kernels.point_at(self.tables, operator, node)

    def settle(
        self, some: list[int], limits: Floats, recompute: bool = False, leave: bool = False
    ) -> int:
        """Place or improve whole operators, see `kernels.state.settle`; returns how many, in order.

        For problems without links' budgets or requirements, where no node is overloaded or short of
        C_min; and for operators that are not linked with others.
        """
        rows, result = np.array(some), np.empty((len(some), 4))
        self.changed.reserve(len(some))
        count: int = settle(self.tables, rows, recompute, leave, limits, result)
        self.on_undo(self._unsettle, rows, result, count)
        return count

    def _unsettle(self, some: Ints, result: Floats, count: int) -> None:
        changes = zip(some[:count].tolist(), result[:count].tolist(), strict=True)
        for one, (old, new, free_old, free_new) in reversed(list(changes)):
            if old != new:
                self._move_back(one, int(old), int(new), free_old, free_new)

    def resize(self, some: list[int], rates: Floats, limits: Floats) -> set[int]:
        """Give whole operators other rates where they run, and say which of them fit there.

        The others stay as they are. For states without C_min, in which no node is overloaded.

        Args:
            some: operators.
            rates: (k, 3) tuples/s of both inputs and the output.
            limits: see `kernels.state.tables.Limits`.
        """
        if not some:
            return set()
        rows = np.array(some)
        old, hosts = self.operators.rate[rows], self.operators.host[rows]
        fits, before = np.empty(len(rows), bool), np.empty(len(rows))
        kernels.resize(self.tables, rows, rates, limits, fits, before)
        self.on_undo(self._unresize, rows, old, hosts, before)
        return set(rows[fits].tolist())

    def _unresize(self, some: Ints, rates: Floats, hosts: Ints, before: Floats) -> None:
        self.operators.rate[some] = rates
        for host, free in zip(hosts[::-1].tolist(), before[::-1].tolist(), strict=True):
            self._restore_free(host, free)

    def place_tree(self, some: list[int], limits: Floats) -> int:
        """Place or improve operators of a query together, see `kernels.state.trees`.

        Returns:
            How many have a host now.
        """
        rows, result = np.array(some), np.empty((len(some), 4))
        self.changed.reserve(len(some))
        placed: int = place_tree(self.tables, rows, self._needed(some), limits, result)
        self._settled(rows, result)
        return placed

    def improve_trees(self, groups: Sequence[list[int]], limits: Floats) -> None:
        """Move whole operators of queries where that gains enough, see `kernels.state.trees`.

        Args:
            groups: operators of each query, producers before consumers.
            limits: see `kernels.state.tables.Limits`.
        """
        if not groups:
            return
        rows, bounds = _in_a_row(groups)
        moved, result = np.empty(2 * len(rows), np.int64), np.empty((2 * len(rows), 4))
        self.changed.reserve(len(rows))
        needed = self._needed(rows.tolist())
        improve_trees(self.tables, rows, bounds, needed, limits, moved, result)
        self._settled(moved, result)

    def _needed(self, some: list[int]) -> Ints:
        """(k,) the numbers of operators' requirements."""
        if not self.requirements:
            return np.zeros(len(some), np.int64)
        return np.array([self.requirement(one) for one in some], np.int64)

    def _settled(self, some: Ints, result: Floats) -> None:
        """Note what kernels moved, see `kernels.state.trees.place_tree`."""
        self.on_undo(self._unsettle, some, result, len(some))
        if self.overloaded or self.short or self.c_min:
            for old, new, _, _ in result.tolist():
                if old != new:
                    for node in (int(old), int(new)):
                        if node >= 0:
                            self.note_load(node)

    def add_operator(
        self,
        name: str,
        logical: int,
        rates: tuple[float, float, float],
        legs: tuple[Leg, ...] = (),
    ) -> int:
        """The row of a new operator, not placed yet.

        Args:
            name: what it is called.
            logical: its join or query.
            rates: tuples/s of its left and right input and of its output.
            legs: of a pair, to its sources and its sink; others are linked later.
        """
        table, ends = self.operators, self.legs
        row, begin, count = table.used, ends.used, len(legs)
        if row == len(table.alive) or begin + count > len(ends.alive):
            table.reserve(1)
            ends.reserve(count)
            self._tables = None
        self.on_undo(self._forget_operator, row, begin)
        table.used, ends.used = row + 1, begin + count
        table.alive[row] = True
        del self.names[row:]
        self.names.append(name)
        self.changed.reserve(1)
        kernels.add_operator(self.tables, row, logical, begin, count, rates, legs or _NO_LEGS)
        return row

    def _forget_operator(self, row: int, leg: int) -> None:
        self.operators.used, self.legs.used = row, leg

    # --- links ------------------------------------------------------------------------------------

    def link(self, some: Iterable[int]) -> None:
        """Make legs of operators anew: what they are linked with has changed, or is cut otherwise.

        An operator that has more legs than before gets new ones, after all others.
        """
        table, row = self.legs, self.operators.row
        rows, places = list[tuple[int, int, int, bool]](), list[int]()
        legs: list[tuple[int, int, float, int]] = []
        used, operators = table.used, list(some)
        for one in operators:
            inputs, outputs = self.demand.links(one)
            begin, had, start = row.item(one, LEG), row.item(one, LEGS), len(legs)
            legs += self._expanded(inputs)
            received = len(legs) - start
            legs += self._expanded(outputs)
            count = len(legs) - start
            if count > had:
                begin, used = used, used + count
            places += range(begin, begin + count)
            rows.append((begin, received, count, any(leg[1] >= 0 for leg in legs[start:])))
        if not operators:
            return
        if used > table.used:
            self.on_undo(setattr, table, "used", table.used)
            if table.reserve(used - table.used):
                self._tables = None
            table.used = used
        at, which = np.array(places, np.int64), np.array(operators)
        old = table.end[at], table.other[at], table.weight[at], row[which, : LINKED + 1]
        self.on_undo(self._put_legs, at, which, *old)
        end, other, weight, _ = zip(*legs, strict=True) if legs else ((), (), (), ())
        self._put_legs(at, which, end, other, weight, rows)

    def _put_legs(
        self,
        at: Ints,
        which: Ints,
        end: Sequence[int] | Narrow,
        other: Sequence[int] | Narrow,
        weight: Sequence[float] | Floats,
        rows: Sequence[tuple[int, int, int, bool]] | Ints,
    ) -> None:
        table = self.legs
        table.end[at], table.other[at], table.weight[at] = end, other, weight
        self.operators.row[which, : LINKED + 1] = rows

    def _expanded(self, links: Iterable[LogicalLink]) -> Iterator[tuple[int, int, float, int]]:
        """Legs of links, and the side of each; an operator in pieces has one for each of them."""
        for other, node, weight, side, far_side in links:
            host = node if other < 0 else self.operators.row.item(other, HOST)
            if host != IN_PIECES:
                yield host, other, weight, side
                continue
            cut, whole = self.cuts[other], self.whole_share(other)
            for piece in cut.pieces:
                (share,) = cut.weights(piece, whole, [far_side], self.objective == "network-usage")
                if share:
                    yield piece.node, other, weight * share, side

    def _link_neighbours(self, operator: int) -> None:
        """Have the legs of an operator's neighbours end where its pieces are, or nowhere."""
        if self.operators.row.item(operator, LINKED):
            # Legs may still end at what an event has ended.
            alive = self.operators.alive.item
            self.link(other for other in self.neighbours(operator) if alive(other))

    def emit(self, sink: int, rate: float) -> None:
        """Add to the rate that arrives at a sink, tuples/s; below 0 to reduce it."""
        self.put(self.arriving, sink, self.arriving.get(sink, 0.0) + rate)
        self.sinks_changed.add(sink)

    def recompute_points(self, some: Sequence[int]) -> None:
        """Recompute virtual positions, after an end or a weight has changed.

        Args:
            some: operators; of those of one query, producers before consumers.
        """
        if not some:
            return
        rows = np.array(some)
        self.changed.keep(rows)
        if not self.demand.links_operators:
            kernels.recompute_points(self.tables, rows)
            return
        row = self.operators.row.item
        linked = {one for one in some if row(one, LINKED) or row(one, LEGS) > 3}
        alone = [one for one in some if one not in linked]
        if alone:
            kernels.recompute_points(self.tables, np.array(alone))
        if linked:
            relax_points(self.tables, *_in_a_row(self.demand.groups(linked)))

    @property
    def breaks(self) -> tuple[str, ...]:
        """Constraints the plan ignores: those of the plan taken over, and present overloads."""
        if not (self.overloaded or self.short or self.overfull):
            return self.given_breaks
        full = (self.overloaded, self.short, self.overfull)
        return (*self.given_breaks, *(n for n, over in zip(_OVERLOADS, full, strict=True) if over))


def _in_a_row(groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """(m,) operators of all groups, and (g + 1,) where each begins."""
    bounds = np.array([0, *accumulate(map(len, groups))], np.int64)
    return np.array([one for group in groups for one in group], np.int64), bounds


# Stands for legs where there are none: kernels take as many as a pair has.
_NO_LEGS: tuple[Leg, ...] = ((NOWHERE, SINK, 0.0),) * 3

# Constraints that events break and restore: of `overloaded`, `short` and `overfull`.
_OVERLOADS = ("capacity", "minimum-capacity", "link")


def _points(plan: Plan) -> Floats:
    """(o, d) the plan's virtual positions; computed where it has none."""
    position = plan.virtual_position
    if position is not None and not np.isnan(position).any():
        return position.copy()
    graph, nodes = plan.graph, plan.problem.nodes.position
    found = virtual_positions(graph, nodes, link_weights(graph, plan.objective)).point[graph.bodies]
    return found if position is None else np.where(np.isnan(position), found, position)
