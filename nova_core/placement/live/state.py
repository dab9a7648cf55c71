"""The state of a live placement: which nodes run which pairs, free capacities, and undo.

Every change goes through a method that records the previous value, so that a refused event leaves
the state unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nova_core.errors import PlanError, ProblemError
from nova_core.model.objectives import leg_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem, pair_name
from nova_core.model.requirements import ANY_NODE, met_by, requirements_of, rule_of, rules_of
from nova_core.model.verify import TOLERANCE
from nova_core.placement.geometric_median import geometric_median, pair_anchors
from nova_core.placement.kernels import tuning
from nova_core.placement.kernels.capacity_tree import MOST_REQUIREMENTS
from nova_core.placement.kernels.live import hosts as kernels
from nova_core.placement.kernels.live.host_tree import offered
from nova_core.placement.kernels.live.settle import settle
from nova_core.placement.kernels.live.tables import HOST, LEFT, RIGHT
from nova_core.placement.kernels.ranking import busiest_sinks
from nova_core.placement.live.index import HostIndex
from nova_core.placement.live.pieces import Piece, Pieces, Share, piece_size
from nova_core.placement.live.tables import (
    IN_PIECES,
    NOWHERE,
    ChangedPairs,
    Incidence,
    JoinRows,
    NodeRows,
    PairRows,
    Residents,
    SourceRows,
)
from nova_core.placement.live.undo import Undoable
from nova_core.placement.partitioning import finer_sigmas

Link = tuple[int, int]


class LiveState(Undoable):
    """The state of a live placement; see the tables for the columns."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        """Take over a plan.

        Raises:
            PlanError: for a plan that relays or leaves pairs without instances.
        """
        if plan.routes is not None:
            raise PlanError(
                f"live: the plan of {plan.strategy!r} relays through other nodes; live placement "
                "follows plans whose flows are direct"
            )
        super().__init__()
        self.base = problem
        self.strategy, self.objective = plan.strategy, plan.objective
        self.parameters = dict(plan.parameters)
        self.given_breaks = tuple(b for b in plan.breaks if b not in _OVERLOADS)
        self.version = 0
        self.nodes, self.sources = NodeRows.of(problem), SourceRows.of(problem)
        self.pairs = PairRows.of(problem, _points(problem, plan))
        self.joins = JoinRows.of(problem)
        self.pair_names = problem.pair_names().tolist()
        self.node_index = {name: row for row, name in enumerate(self.nodes.ids)}
        self.source_index = {name: row for row, name in enumerate(self.sources.ids)}
        self.join_index = {name: row for row, name in enumerate(self.joins.ids)}
        required = requirements_of(rules_of(problem), problem.nodes)[0]
        self.requirements = list(required.rules)
        self.stream_sources: dict[str, int] = {}
        for stream in self.sources.stream:
            self.stream_sources[stream] = self.stream_sources.get(stream, 0) + 1
        # How many operators join a stream.
        self.joined_streams: dict[str, int] = {}
        for streams in zip(self.joins.left, self.joins.right, strict=True):
            for stream in set(streams):
                self.joined_streams[stream] = self.joined_streams.get(stream, 0) + 1
        self.emptied: dict[str, None] = {}
        self.alive_pairs = {0: len(problem.matrix)}

        rows = np.arange(len(problem.matrix))
        m = problem.matrix
        self.pairs_of_source = Incidence(
            np.concatenate([m.left, m.right]), np.concatenate([rows, rows])
        )
        self.pairs_of_join = Incidence(m.join, rows)
        self.sources_on = Incidence(problem.sources.node, np.arange(len(problem.sources)))
        self.sinks_on = Incidence(problem.joins.sink, np.arange(len(problem.joins)))

        links = problem.links
        ends = zip(links.source.tolist(), links.target.tolist(), strict=True)
        self.budget: dict[Link, float] = dict(zip(ends, links.budget.tolist(), strict=True))
        self.link_free = dict(self.budget)
        self.links_at: dict[int, dict[Link, None]] = {}
        for link in self.budget:
            for node in link:
                self.links_at.setdefault(node, {})[link] = None

        # Nodes whose measured latencies no longer hold.
        self.strayed: dict[int, None] = {}
        # Rate that arrives at each sink, tuples/s, and sinks to check at the end of an event.
        self.arriving: dict[int, float] = {}
        output = np.bincount(problem.sink_node, m.output_rate)
        for node in np.flatnonzero(output).tolist():
            self.arriving[node] = float(output[node])
        self.sinks_changed: set[int] = set()
        # Nodes beyond their capacity; nodes that lack C_min; links beyond their budget.
        self.overloaded: dict[int, None] = {}
        self.short: dict[int, None] = {}
        self.overfull: dict[Link, None] = {}
        self.cuts: dict[int, Pieces] = {}
        c_min = self.parameters.get("c_min")
        self.c_min = float(c_min) if c_min else 0.0
        self.residents = self._take_over(plan)
        free = self.nodes.free
        for node in np.flatnonzero(free < self.c_min).tolist() if self.c_min else ():
            if self._is_short(node, free.item(node)):
                self.short[node] = None
        self.changed = ChangedPairs(self.pairs)
        # Cuts before the event, of pairs that it cuts differently.
        self.old_cuts: dict[int, Pieces | None] = {}
        threshold = self.parameters.get("bandwidth")
        self.largest = np.inf if threshold is None else float(threshold)
        sigma = self.parameters.get("sigma")
        self.sigma = None if sigma is None else float(sigma)
        self.finer_sigmas = finer_sigmas(self.sigma, threshold)
        self.index = self._index(required.met)

    # --- taking over a plan -----------------------------------------------------------------------

    def _take_over(self, plan: Plan) -> Residents:
        i, pairs = plan.instances, self.pairs
        replicas = plan.replica_count
        if (replicas == 0).any():
            pair = int(np.argmin(replicas))
            raise PlanError(f"live: the plan runs no instance of {plan.problem.pair_name(pair)}")
        count = plan.partitions.count
        whole = (replicas == 1) & (count[0::2] == 1) & (count[1::2] == 1)
        rows = np.flatnonzero(whole[i.pair])
        pairs.host[i.pair[rows]] = i.node[rows]
        rest = np.flatnonzero(~whole[i.pair])
        pieces_of: dict[int, list[Piece]] = {}
        for k in rest.tolist():
            piece = Piece(
                int(i.node[k]),
                int(i.left_begin[k]),
                int(i.left_end[k]),
                int(i.right_begin[k]),
                int(i.right_end[k]),
            )
            pieces_of.setdefault(int(i.pair[k]), []).append(piece)
        residents = Residents(self.nodes, pairs, i.node[rows], i.pair[rows])
        free = self.nodes.free
        size = plan.problem.required_capacity
        np.subtract.at(free, i.node[rows], size[i.pair[rows]])
        for pair, pieces in pieces_of.items():
            left, right = (tuple(plan.partitions.rates(pair, side).tolist()) for side in (0, 1))
            cut = Pieces(left, right, tuple(sorted(pieces, key=lambda p: (p.left, p.right))))
            pairs.host[pair] = IN_PIECES
            self.cuts[pair] = cut
            for node, share in self.shares(pair).items():
                free[node] -= share.size
                residents.add(node, pair)
        for node in np.flatnonzero(free < -TOLERANCE * self.nodes.capacity).tolist():
            self.overloaded[node] = None
        if self.budget:
            for pair in range(pairs.used):
                for node, share in self.shares(pair).items():
                    for link, rate in self.legs(pair, node, share):
                        self.link_free[link] -= rate
            for link, left_over in self.link_free.items():
                if left_over < -TOLERANCE * self.budget[link]:
                    self.overfull[link] = None
        return residents

    def _index(self, met: Bools) -> HostIndex:
        n, p = self.nodes, self.pairs
        node = np.flatnonzero(n.worker & (n.capacity > 0) & (n.capacity >= self.c_min))
        rows = np.column_stack([n.position[node], n.extra[node].sum(axis=1), n.free[node]])
        hubs = busiest_sinks(p.point, p.ends[:, 2], n.position, tuning.HUBS)
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
        self.sinks_changed.clear()

    def reserve(self, nodes: int, sources: int, pairs: int) -> None:
        """Make room for rows; only between events, as undo needs the same columns."""
        if nodes and self.nodes.reserve(nodes):
            self.index.reserve(len(self.nodes.position))
        if sources:
            self.sources.reserve(sources)
        if pairs:
            self.pairs.reserve(pairs)

    # --- reading ----------------------------------------------------------------------------------

    def name_pair(self, pair: int) -> None:
        """Name a pair whose row is new, or reused after an undo."""
        p, ids = self.pairs, self.sources.ids
        left, right = p.row.item(pair, LEFT), p.row.item(pair, RIGHT)
        del self.pair_names[pair:]
        self.pair_names.append(pair_name(self.joins.ids[p.join.item(pair)], ids[left], ids[right]))

    def size(self, pair: int) -> float:
        """C_r of a whole join, tuples/s."""
        row, rate = self.pairs.row, self.sources.rate
        return rate.item(row.item(pair, LEFT)) + rate.item(row.item(pair, RIGHT))

    def weights(self, pair: int) -> Floats:
        """(3,) weights of a whole join's legs, see `leg_weights`."""
        if self.objective == "network-usage":
            p, rate = self.pairs, self.sources.rate
            return np.array([rate[p.left[pair]], rate[p.right[pair]], p.output[pair]])
        return _FIXED_WEIGHTS[self.objective]

    def offer(self, node: int) -> int:
        """Bits of the requirements whose tags and memory a node has."""
        if not self.requirements:
            return 0
        has = self.nodes.tags[node], self.nodes.memory.item(node)
        return sum(1 << row for row, rule in enumerate(self.requirements) if met_by(rule, *has))

    def number_of(self, tags: str, memory: float) -> int:
        """The number of a requirement, counted from 1; 0 for none.

        A new requirement is indexed, in time proportional to the number of nodes.

        Raises:
            ProblemError: for more requirements than there are bits.
        """
        rule = rule_of(tags, memory)
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
            offer[: n.used] = [self.offer(node) for node in range(n.used)]
            node, row = old.hosts()
            self.on_undo(setattr, self, "index", old)
            self.index = HostIndex(row, node, old.tree.hub, offer, len(self.requirements))
        return self.requirements.index(rule) + 1

    def requirement(self, pair: int) -> int:
        """The number of a join's requirement, counted from 1; 0 for none."""
        return self.joins.requirement[self.pairs.join.item(pair)] if self.requirements else 0

    def whole_share(self, pair: int) -> Share:
        """What the host of a whole join receives and emits."""
        p, rate = self.pairs, self.sources.rate
        left, right = p.row.item(pair, LEFT), p.row.item(pair, RIGHT)
        return Share(rate.item(left), rate.item(right), p.output.item(pair))

    def shares(self, pair: int) -> dict[int, Share]:
        """What each node that runs a pair receives and emits for it."""
        host, whole = self.pairs.row.item(pair, HOST), self.whole_share(pair)
        if host == IN_PIECES:
            return self.cuts[pair].shares(*whole)
        return {} if host == NOWHERE else {host: whole}

    def legs(self, pair: int, node: int, share: Share) -> Iterator[tuple[Link, float]]:
        """Links with a budget that a share uses, and how much of each, tuples/s."""
        left, right, sink = self.pairs.ends[pair].tolist()
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

    def instance(self, pair: int, node: int) -> float:
        """C_r of the greatest instance of a pair on a node, tuples/s."""
        if self.pairs.row.item(pair, HOST) != IN_PIECES:
            return self.size(pair)
        cut, whole = self.cuts[pair], self.whole_share(pair)
        return max(piece_size(cut, piece, whole) for piece in cut.pieces if piece.node == node)

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
        for link, rate in list(self.legs(pair, node, share)):
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
        for link, rate in self.legs(pair, node, share):
            needed[link] = needed.get(link, 0.0) + rate
        return all(
            rate <= self.link_free[link] + TOLERANCE * self.budget[link]
            for link, rate in needed.items()
        )

    def attach(self, pair: int, placed: int | Pieces, whole: Share | None = None) -> None:
        """Place an unplaced pair: whole on a node, or in pieces.

        Args:
            pair: the pair.
            placed: the node, or the pieces.
            whole: its `whole_share`, if known.
        """
        self.changed.keep_one(pair)
        whole = whole or self.whole_share(pair)
        if not isinstance(placed, Pieces):
            self._move(pair, NOWHERE, placed, whole)
            return
        self.old_cuts.setdefault(pair, None)
        self.set(self.pairs.row, (pair, HOST), IN_PIECES)
        self.put(self.cuts, pair, placed)
        for node, share in placed.shares(*whole).items():
            self.bind(self.residents, node, pair)
            self.set_free(node, self.nodes.free.item(node) - share.size)
            self.use_links(pair, node, share, 1)

    def detach(self, pair: int) -> int | Pieces | None:
        """Remove a pair from its nodes; returns its placement, None for an unplaced one."""
        self.changed.keep_one(pair)
        host = self.pairs.row.item(pair, HOST)
        if host == NOWHERE:
            return None
        whole = self.whole_share(pair)
        if host != IN_PIECES:
            self._move(pair, host, NOWHERE, whole)
            return host
        self.set(self.pairs.row, (pair, HOST), NOWHERE)
        pieces, n = self.cuts[pair], self.nodes
        self.old_cuts.setdefault(pair, pieces)
        for node, share in pieces.shares(*whole).items():
            self.unbind(self.residents, node, pair)
            # See `kernels.live.hosts.move_join`.
            some = self.residents.any_on(node)
            self.set_free(node, n.free.item(node) + share.size if some else n.capacity.item(node))
            self.use_links(pair, node, share, -1)
        self.drop(self.cuts, pair)
        return pieces

    def _move(self, pair: int, old: int, new: int, share: Share) -> None:
        """Remove a whole join from a node or place it on one, recorded before; one is `NOWHERE`."""
        n, p = self.nodes, self.pairs
        loads = n.capacity, n.free, n.first, n.pieces
        before = kernels.move(*self.index.tree, *loads, p.row, p.chain, pair, share.size, new)
        self.on_undo(self._move_back, pair, old, new, *before)
        node, sign = (old, -1) if new == NOWHERE else (new, 1)
        if self.overloaded or self.short or n.free.item(node) < self.c_min:
            self.note_load(node)
        if self.link_free:
            self.use_links(pair, node, share, sign)

    def _move_back(self, pair: int, old: int, new: int, free_old: float, free_new: float) -> None:
        if new != NOWHERE:
            self.residents.leave(new, pair)
            self._restore_free(new, free_new)
        if old != NOWHERE:
            self.residents.enter(old, pair)
            self._restore_free(old, free_old)
        self.pairs.row[pair, HOST] = old

    def settle(
        self, pairs: list[int], limits: Floats, recompute: bool = False, leave: bool = False
    ) -> int:
        """Place or improve whole joins, see `kernels.live.settle`; returns how many, in order.

        For problems without links' budgets or requirements, where no node is overloaded or short of
        C_min.
        """
        n, p = self.nodes, self.pairs
        rows, result = np.array(pairs), np.empty((len(pairs), 4))
        count: int = settle(
            *self.index.tree,
            n.position,
            n.extra,
            n.capacity,
            n.free,
            n.first,
            n.pieces,
            p.row,
            p.chain,
            p.point,
            *self.changed.reserve(len(pairs)),
            self.sources.rate,
            rows,
            self.weights(0)[None],
            recompute,
            leave,
            limits,
            result,
        )
        self.on_undo(self._unsettle, rows, result, count)
        return count

    def _unsettle(self, pairs: Ints, result: Floats, count: int) -> None:
        changes = zip(pairs[:count].tolist(), result[:count].tolist(), strict=True)
        for pair, (old, new, free_old, free_new) in reversed(list(changes)):
            if old != new:
                self._move_back(pair, int(old), int(new), free_old, free_new)

    def emit(self, sink: int, rate: float) -> None:
        """Add to the rate that arrives at a sink, tuples/s; below 0 to reduce it."""
        self.put(self.arriving, sink, self.arriving.get(sink, 0.0) + rate)
        self.sinks_changed.add(sink)

    def recompute_points(self, pairs: list[int]) -> None:
        """Recompute the virtual positions of pairs, after an end or a weight has changed."""
        if not pairs:
            return
        rows = np.array(pairs)
        self.changed.keep(rows)
        if self.objective == "network-usage":
            weights = np.stack([self.weights(pair) for pair in pairs])
        else:
            weights = _FIXED_WEIGHTS[self.objective][None]
        p = self.pairs
        kernels.recompute_points(self.nodes.position, p.row, p.point, rows, weights)

    @property
    def breaks(self) -> tuple[str, ...]:
        """Constraints the plan ignores: those of the plan taken over, and present overloads."""
        if not (self.overloaded or self.short or self.overfull):
            return self.given_breaks
        full = (self.overloaded, self.short, self.overfull)
        return (*self.given_breaks, *(n for n, over in zip(_OVERLOADS, full, strict=True) if over))


# Constraints that events break and restore: of `overloaded`, `short` and `overfull`.
_OVERLOADS = ("capacity", "minimum-capacity", "link")
_FIXED_WEIGHTS = {"latency": np.ones(3), "source-latency": np.array([1.0, 1.0, 2.0])}


def _points(problem: Problem, plan: Plan) -> Floats:
    """(p, d) the plan's virtual positions; computed where it has none."""
    position = plan.virtual_position
    if position is None:
        return geometric_median(pair_anchors(problem), leg_weights(problem, plan.objective))
    missing = np.flatnonzero(np.isnan(position).any(axis=1))
    points = position.copy()
    if len(missing):
        weights = leg_weights(problem, plan.objective)[missing]
        points[missing] = geometric_median(pair_anchors(problem)[missing], weights)
    return points
