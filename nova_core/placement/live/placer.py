"""Placing operators: whole if possible, else in pieces, else by moving another one.

Phase III of the paper (section 3.4) for what an event concerns; the rest of the state stays.
An operator goes to the host nearest to its virtual position, here and in
`nova_core.placement.kernels.state.settle`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nova_core.borrowing import plain
from nova_core.model import key_ranges
from nova_core.model.problem import Floats
from nova_core.placement.cutting import Cut
from nova_core.placement.kernels import rules, tuning
from nova_core.placement.kernels.spread import evenly
from nova_core.placement.kernels.state import hosts as kernels
from nova_core.placement.kernels.state.tables import HOST, LEGS, LINKED, MOVED, Limits
from nova_core.placement.kernels.tuning import SLACK
from nova_core.placement.live.pieces import Piece, Pieces, Share, merged
from nova_core.placement.live.policy import Policy
from nova_core.placement.live.state import WHOLE, LiveState
from nova_core.placement.live.tables import IN_PIECES, NOWHERE
from nova_core.placement.partitioning import maximum_partition_rate, partition_rates

# The rules, for single operators.
_needed, _cut_step = plain(rules.needed), plain(rules.cut_step)
_halved_side = plain(rules.halved_side)
# A host and the objective of a join there.
Choice = tuple[int, float]


class NoRoomError(Exception):
    """A join fits nowhere.

    Attributes:
        text: which one, and why.
        missing: required capacity that found no room, tuples/s.
    """

    def __init__(self, text: str, missing: float) -> None:
        super().__init__(text)
        self.text = text
        self.missing = missing


class Placer:
    """Places unplaced joins of a state, and moves those that would gain by it."""

    def __init__(self, state: LiveState, policy: Policy) -> None:
        self.state = state
        self.policy = policy
        # Of present operators.
        self.pinned = dict.fromkeys(policy.pinned, True)
        self.state_bytes = dict(policy.state_bytes)
        self._largest = float(state.largest * (1 + SLACK))
        self.limits = np.array(
            Limits(policy.gain, policy.gain_share, state.c_min, self._largest, 1 - SLACK)
        )
        self._node, self._cost = np.empty(1, np.int64), np.empty(1)

    # --- searching --------------------------------------------------------------------------------

    def near(self, operator: int, weights: Floats, need: float, count: int) -> list[Choice]:
        """Hosts with room near an operator's virtual position and its cost there, cheapest first.

        Args:
            operator: decides virtual position and requirement.
            weights: of the legs of the piece to place, or `WHOLE`.
            need: tuples/s a host must have free; minus infinity for any host.
            count: how many of the nearest are compared.
        """
        s = self.state
        node, cost = self._node, self._cost
        if count != 1:
            node, cost = np.empty(count, np.int64), np.empty(count)
        filled = kernels.cheapest(
            s.tables, operator, weights, need, s.requirement(operator), node, cost
        )
        return list(zip(node[:filled].tolist(), cost[:filled].tolist(), strict=True))

    def need(self, size: float) -> float:
        """What a host must have free for an instance, tuples/s (paper, Eqs. 2 and 3)."""
        return _needed(size, self.state.c_min, 1 - SLACK)

    def cheapest(self, operator: int, weights: Floats, share: Share) -> Choice | None:
        """The cheapest near host with room for a share of an operator, and its cost there."""
        need, count = self.need(share.size), 1
        while True:
            choices = self.near(operator, weights, need, count)
            for host, cost in choices:
                if self.state.links_fit(operator, host, share):
                    return host, cost
            if len(choices) < count or count >= tuning.MOST_NEARBY:
                return None
            count *= 4

    def elsewhere(self, operator: int, node: int) -> Choice | None:
        """Cheapest near host with room for a whole join, except ``node``, and its cost there."""
        share = self.state.whole_share(operator)
        for host, cost in self.near(operator, WHOLE, self.need(share.size), 2):
            if host != node and self.state.links_fit(operator, host, share):
                return host, cost
        return None

    def cost_on(self, operator: int, weights: Floats, node: int) -> float:
        """Objective of a piece of an operator on a node."""
        return float(kernels.cost_on(self.state.tables, operator, weights, node))

    def cost(self, operator: int) -> float:
        """Objective of an operator where it runs."""
        s = self.state
        host = s.operators.row.item(operator, HOST)
        if host != IN_PIECES:
            return self.cost_on(operator, WHOLE, host)
        cut, whole = s.cuts[operator], s.whole_share(operator)
        return math.fsum(
            self.cost_on(operator, s.piece_weights(operator, cut, piece, whole), piece.node)
            for piece in cut.pieces
        )

    # --- placing ----------------------------------------------------------------------------------

    def place(self, operator: int, overload: bool) -> None:
        """Place an unplaced operator.

        Args:
            operator: what is placed.
            overload: whether to overload nodes near by when nothing else is left.

        Raises:
            NoRoomError: when it fits nowhere.
        """
        s = self.state
        share = s.whole_share(operator)
        if share.size <= self._largest:
            choice = self.cheapest(operator, WHOLE, share)
            if choice is not None:
                s.attach(operator, choice[0], share)
                return
        pieces, missing = self._cut(operator, s.sigma)
        if pieces is None:
            if share.size <= s.largest and self._make_room(operator, share):
                return
            for sigma in s.finer_sigmas:
                pieces, missing = self._cut(operator, sigma)
                if pieces is not None:
                    break
        if pieces is not None:
            s.attach(operator, pieces)
            return
        if not overload or not self._spread(operator, share):
            required = s.requirement(operator)
            worker = f"worker {s.requirements[required - 1]}" if required else "worker"
            raise NoRoomError(
                f"{s.names[operator]}: its {share.size:g} tuples/s fit on no {worker}, nor in "
                f"pieces (most room of one: {s.index.most_room(required):g})",
                missing,
            )

    def stay(self, operator: int, placed: int | Pieces, overload: bool) -> None:
        """Put an operator back where it was, if it fits there at its present rates; else place it.

        Raises:
            NoRoomError: when it fits nowhere, or is pinned and its node has no room.
        """
        s = self.state
        whole = s.whole_share(operator)
        resized = self._resized(operator, placed, whole)
        if resized is not None and self._fits_there(operator, resized, whole):
            s.attach(operator, resized, whole)
            return
        if self.is_pinned(operator) and not overload:
            lacks = 0.0 if resized is None else self._lacks(operator, resized, whole)
            raise NoRoomError(
                f"{s.names[operator]}: pinned where its {whole.size:g} tuples/s no longer fit",
                lacks or whole.size,
            )
        self.place(operator, overload)

    def _resized(self, operator: int, placed: int | Pieces, whole: Share) -> int | Pieces | None:
        """The same placement under present rates; None where it would be cut otherwise."""
        if not isinstance(placed, Pieces):
            return placed
        s, grid = self.state, (len(placed.left), len(placed.right))
        for sigma in (s.sigma, *s.finer_sigmas):
            left, right = self._partitions(operator, whole, sigma, placed)
            if (len(left), len(right)) == grid:
                return replace(placed, left=left, right=right)
        return None

    def _parts(self, placed: int | Pieces, whole: Share) -> Iterator[tuple[int, Share, float]]:
        """What nodes take of an operator, and the greatest instance there, tuples/s."""
        if not isinstance(placed, Pieces):
            yield placed, whole, whole.size
            return
        greatest: dict[int, float] = {}
        for piece in placed.pieces:
            size = placed.share(piece, whole).size
            greatest[piece.node] = max(size, greatest.get(piece.node, 0.0))
        for node, share in placed.shares(whole).items():
            yield node, share, greatest[node]

    def _fits_there(self, operator: int, placed: int | Pieces, whole: Share) -> bool:
        """Whether an operator has room where it is to be placed."""
        if not isinstance(placed, Pieces):
            return whole.size <= self._largest and self._fits(operator, placed, whole, whole.size)
        return all(
            greatest <= self._largest and self._fits(operator, node, share, greatest)
            for node, share, greatest in self._parts(placed, whole)
        )

    def _lacks(self, operator: int, placed: int | Pieces, whole: Share) -> float:
        """Tuples/s that nodes lack for an operator, and its instances have too many."""
        s = self.state
        return math.fsum(
            max(0.0, s.lack(node, share.size, greatest), greatest - s.largest)
            for node, share, greatest in self._parts(placed, whole)
        )

    def _fits(self, operator: int, node: int, share: Share, greatest: float) -> bool:
        """Whether a node has room for a share, of which one instance is the greatest, tuples/s."""
        s, size = self.state, share.size
        lacks = s.lack(node, size, greatest) > SLACK * max(size, s.c_min)
        return not lacks and s.links_fit(operator, node, share)

    # --- cutting ----------------------------------------------------------------------------------

    def _partitions(
        self, operator: int, whole: Share, sigma: float | None, like: Pieces | None = None
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Rates of both inputs' partitions (paper, Eqs. 7 and 8), or of as many as another cut has.

        Args:
            operator: the operator.
            whole: what its host receives.
            sigma: how coarsely a grid is cut.
            like: a cut of it.
        """
        s = self.state
        if like is not None and like.join is not None:
            cut = key_ranges.cut(like.join, whole.left, whole.right, len(like.left))
            return tuple(cut.tolist()), (whole.right,)
        if like is not None and like.combined:
            return tuple(s.demand.input_rates(operator)), (0.0,)
        if not whole.right:
            count = 1 if like is None else len(like.left)
            return (whole.left / count,) * count, (0.0,)
        rates = np.array(whole.left), np.array(whole.right)
        limit = s.largest if math.isfinite(s.largest) else None
        maximum = float(maximum_partition_rate(*rates, sigma, limit))
        left, right = (partition_rates(rate, maximum) for rate in (whole.left, whole.right))
        return tuple(left.tolist()), tuple(right.tolist())

    def _cut(self, operator: int, sigma: float | None) -> tuple[Pieces | None, float]:
        """Pieces of an operator that fit somewhere; or None, and the missing capacity, tuples/s.

        The state does not change.
        """
        s, whole = self.state, self.state.whole_share(operator)
        with _Trial(self, operator) as hosts:
            cut = s.demand.cut(operator, hosts, sigma, s.largest)
        if cut is not None:
            return (None, cut.missing) if cut.missing else (_pieces(cut), 0.0)
        if not whole.right:
            return None, whole.size
        left, right = self._partitions(operator, whole, sigma)
        if len(left) * len(right) == 1:
            return None, whole.size
        grid = Pieces(left, right, ())
        placed: list[Piece] = []
        missing = 0.0
        waiting = [Piece(NOWHERE, 0, len(left), 0, len(right))]
        with _Trial(self, operator) as hosts:
            while waiting:
                piece = waiting.pop()
                share = grid.share(piece, whole)
                choice = self._host_of(operator, grid, piece, whole, share)
                if choice is not None:
                    hosts.charge(choice[0], share.size)
                    s.use_links(operator, choice[0], share, 1)
                    placed.append(piece._replace(node=choice[0]))
                elif parts := self._in_two(operator, grid, piece, whole):
                    waiting.extend(parts)
                else:
                    missing += share.size
            for piece in placed:
                s.use_links(operator, piece.node, grid.share(piece, whole), -1)
        return (None, missing) if missing else (merged(grid, placed, whole, self._largest), 0.0)

    def _host_of(
        self, operator: int, cut: Pieces, piece: Piece, whole: Share, share: Share
    ) -> Choice | None:
        """The cheapest near host with room for a share of a cut operator, and its cost there."""
        if share.size > self._largest:
            return None
        weights = self.state.piece_weights(operator, cut, piece, whole)
        return self.cheapest(operator, weights, share)

    def _in_two(self, operator: int, cut: Pieces, piece: Piece, whole: Share) -> Sequence[Piece]:
        """Two pieces of one that has no host: the one that is placed next comes last.

        The larger part that a host takes at the least cost is split off; where no host takes any,
        the input with more partitions is halved. A single replica cannot be cut.
        """
        s, best = self.state, None
        for side, count in enumerate(piece.shape):
            step = _cut_step(count, tuning.LIVE_CUT_POSITIONS)
            for at in range(step, count, step):
                first, second = piece.split(side, at)
                share, rest = cut.share(first, whole), cut.share(second, whole)
                if share.size < rest.size:
                    first, second, share = second, first, rest
                choice = self._host_of(operator, cut, first, whole, share)
                if choice is not None:
                    # Per cell, so that the smallest part is not always the cheapest.
                    value = choice[1] / first.cells
                    if best is None or value < best[0]:
                        best = value, second, first
        if best is not None:
            return best[1:]
        # Without room for the smallest replica, halving is pointless.
        smallest = self.need(min(cut.left) + min(cut.right))
        if piece.cells == 1 or s.index.most_room(s.requirement(operator)) < smallest:
            return ()
        side = _halved_side(*piece.shape)
        return piece.split(side, piece.shape[side] // 2)

    # --- when nothing fits ------------------------------------------------------------------------

    def _make_room(self, operator: int, share: Share) -> bool:
        """Place a whole join on a host whose resident moves to another host with room."""
        s = self.state
        need = self.need(share.size)
        for node, _ in self.near(operator, WHOLE, -math.inf, tuning.SPREAD_NEARBY):
            if s.nodes.capacity[node] < need or not s.links_fit(operator, node, share):
                continue
            for other in self.movable(node):
                if s.operators.host[other] == IN_PIECES:
                    continue
                if s.nodes.free[node] + s.size(other) < need:
                    continue
                choice = self.elsewhere(other, node)
                if choice is not None:
                    s.detach(other)
                    s.attach(other, choice[0])
                    s.attach(operator, node)
                    return True
        return False

    def _spread(self, operator: int, share: Share) -> bool:
        """Overload near nodes evenly; false when there is no host at all."""
        n = self.state.nodes
        near = self.near(operator, WHOLE, -math.inf, tuning.SPREAD_NEARBY)
        if not near:
            return False
        hosts = np.array([node for node, _ in near])
        capacity = n.capacity[hosts]
        left, right = self._partitions(operator, share, self.state.sigma)
        with np.errstate(invalid="ignore"):  # of hosts without a limit
            used = capacity - n.free[hosts]
        rows = evenly(np.array(left), np.array(right), used, capacity, 0).tolist()
        if len(rows) == 1:
            self.state.attach(operator, int(hosts[rows[0][0]]))
            return True
        pieces = [Piece(int(hosts[host]), *rectangle) for host, *rectangle in rows]
        self.state.attach(operator, merged(Pieces(left, right, ()), pieces, share, math.inf))
        return True

    def movable(self, node: int) -> list[int]:
        """Operators that run on a node and are not pinned, the largest there first."""
        s = self.state
        some = [one for one in s.residents.of(node) if not self.is_pinned(one)]
        return sorted(s.demand.order(some), key=lambda one: -s.shares(one)[node].size)

    # --- moving by choice -------------------------------------------------------------------------

    def is_pinned(self, operator: int) -> bool:
        """Whether an operator stays where it is."""
        return bool(self.pinned) and any(
            name in self.pinned for name in self.state.demand.called(operator)
        )

    def threshold(self, operator: int, cost: float) -> float:
        """Gain a move must exceed, in the objective's unit."""
        policy = self.policy
        threshold = policy.gain + policy.gain_share * cost
        if self.state_bytes:
            held = (self.state_bytes.get(name, 0.0) for name in self.state.demand.called(operator))
            threshold += policy.gain_per_byte * max(held)
        return threshold

    def rests(self, operator: int) -> bool:
        """Whether an operator moved so recently that it stays."""
        if self.policy.cooldown == 0:
            return False
        moved = self.state.operators.row.item(operator, MOVED)
        return moved >= 0 and self.state.version - moved < self.policy.cooldown

    def improve(self, operator: int) -> bool:
        """Move an operator to a cheaper host if that gains enough; returns whether it moved."""
        s = self.state
        if self.is_pinned(operator) or self.rests(operator):
            return False
        share = s.whole_share(operator)
        if share.size > self._largest:
            return False
        choice = self.cheapest(operator, WHOLE, share)
        if choice is None:
            return False
        now = self.cost(operator)
        if now - choice[1] <= max(self.threshold(operator, now), 1e-9 * now):
            return False
        s.detach(operator)
        s.attach(operator, choice[0], share)
        return True

    def largest_first(self, some: Collection[int]) -> list[int]:
        """Operators in the order in which they are placed."""
        if len(some) < 2:
            return list(some)
        return sorted(self.state.demand.order(some), key=lambda one: -self.state.size(one))

    def put_back(self, placed: Mapping[int, int | Pieces | None], overload: bool) -> None:
        """Place operators where they were if they still fit, the largest first."""
        for one in self.largest_first(placed):
            before = placed[one]
            if before is None:
                self.place(one, overload)
            else:
                self.stay(one, before, overload)

    # --- many at once -----------------------------------------------------------------------------

    def improve_all(self, some: Sequence[int]) -> None:
        """`improve` operators one after the other, in batches where room and gain alone decide."""
        some, linked = self._apart(some)
        if linked:
            self._improve_linked(self.state.demand.groups(linked))
        if not self._room_and_gain_decide:
            for one in some:
                self.improve(one)
            return
        for run, other in self._runs(some):
            if run:
                self.state.settle(run, self.limits)
            if other is not None:
                self.improve(other)

    def _improve_linked(self, groups: Sequence[list[int]]) -> None:
        """Improve operators of queries, in one step as long as all of them may move."""
        s, policy, waiting = self.state, self.policy, list[list[int]]()
        restricted = bool(self.pinned or policy.cooldown or self.state_bytes)
        limited = math.isfinite(self._largest)
        for group in groups:
            apart = restricted or not s.cuts.keys().isdisjoint(group)
            if apart or (limited and any(s.size(one) > self._largest for one in group)):
                s.improve_trees(waiting, self.limits)
                waiting = []
                self._improve_together(group)
            else:
                waiting.append(group)
        s.improve_trees(waiting, self.limits)

    def _improve_together(self, group: list[int]) -> None:
        """`improve` operators of a query, all at once and then one by one."""
        s = self.state
        if not self.state_bytes:
            free = [one for one in group if self._may_go(one)]
            if len(free) > 1:
                s.place_tree(free, self.limits)
        for one in group:
            self.improve(one)

    def _may_go(self, one: int) -> bool:
        """Whether an operator runs whole and is neither pinned nor at rest."""
        s = self.state
        whole = s.operators.row.item(one, HOST) >= 0 and s.size(one) <= self._largest
        return whole and not self.is_pinned(one) and not self.rests(one)

    def recompute_all(self, some: list[int]) -> None:
        """Recompute virtual positions and `improve` each operator, in one batch if possible."""
        alone, linked = self._apart(some)
        if alone and not linked and self._room_and_gain_decide and self._run_whole(alone):
            self.state.settle(list(alone), self.limits, recompute=True)
        else:
            self.state.recompute_points(some)
            self.improve_all(some)

    def place_all(
        self, some: Sequence[int], overload: bool, recompute: bool = False, leave: bool = False
    ) -> None:
        """`place` operators one after the other, in batches where all fit whole.

        Args:
            some: the operators.
            overload: as for `place`.
            recompute: whether to compute their virtual positions first.
            leave: whether they are still on nodes that may no longer host them.

        Raises:
            NoRoomError: as `place`.
        """
        alone, linked = self._apart(some)
        together = self._room_decides
        if recompute and (linked or not (together and self._run_whole(alone))):
            self.state.recompute_points(list(some))
            recompute = False
        if leave:
            for one in some:
                if not together or one in self.state.cuts:
                    self.state.detach(one)
        if linked:
            self._place_linked(linked, overload)
        if not together:
            for one in alone:
                self.place(one, overload)
            return
        for run, other in self._runs(alone):
            rest = run
            while rest:
                settled = self.state.settle(rest, self.limits, recompute, leave)
                if settled < len(rest):
                    self.state.detach(rest[settled])
                    self.place(rest[settled], overload)
                rest, recompute = rest[settled + 1 :], False
            if other is not None:
                self.place(other, overload)

    def _place_linked(self, some: Sequence[int], overload: bool) -> None:
        """Place operators that feed each other, those of a query together."""
        s = self.state
        for one in some:
            s.detach(one)
        for group in s.demand.groups(some):
            whole = [one for one in group if s.size(one) <= self._largest]
            if whole:
                s.place_tree(whole, self.limits)
            left = [one for one in group if s.operators.row.item(one, HOST) == NOWHERE]
            for one in self.largest_first(left):
                self.place(one, overload)

    def _apart(self, some: Sequence[int]) -> tuple[Sequence[int], list[int]]:
        """Operators that are linked with none, and the others."""
        row, demand = self.state.operators.row, self.state.demand
        if not demand.links_operators:
            return some, []
        linked = [one for one in some if row.item(one, LINKED)]
        return [one for one in some if not row.item(one, LINKED)], linked

    @property
    def _room_and_gain_decide(self) -> bool:
        """Whether room and gain alone decide which whole operators move."""
        policy = self.policy
        restricted = self.pinned or policy.cooldown or self.state_bytes
        s = self.state
        return self._room_decides and not (s.overloaded or s.short or restricted)

    @property
    def _room_decides(self) -> bool:
        """Whether room and distance alone decide where a whole operator may run."""
        return not (self.state.link_free or self.state.requirements)

    def _run_whole(self, some: Sequence[int]) -> bool:
        """Whether all of these operators run whole, with a leg to at most three nodes each."""
        s = self.state
        whole = s.cuts.keys().isdisjoint(some)
        few = not s.demand.many_legs or bool((s.operators.row[list(some), LEGS] <= 3).all())
        return whole and few

    def _runs(self, some: Sequence[int]) -> Iterator[tuple[list[int], int | None]]:
        """Operators in order: a run of whole ones, and the one in pieces that follows, if any."""
        cuts = self.state.cuts
        if not cuts:
            yield list(some), None
            return
        run: list[int] = []
        for one in some:
            if one in cuts:
                yield run, one
                run = []
            else:
                run.append(one)
        yield run, None


class _Trial:
    """Hosts that pieces of an operator are tried on; afterwards they are as before."""

    def __init__(self, placer: Placer, operator: int) -> None:
        self._placer, self._operator = placer, operator
        self._before: dict[int, float] = {}

    def __enter__(self) -> _Trial:
        return self

    def __exit__(self, *_: object) -> None:
        for node, free in self._before.items():
            self._placer.state.set_free(node, free)

    def take(self, required: float) -> int:
        """The nearest host with room, or -1."""
        found = self._placer.near(self._operator, WHOLE, self._placer.need(required), 1)
        return found[0][0] if found else NOWHERE

    def room(self, node: int) -> float:
        """What a host has free, tuples/s."""
        return self._placer.state.nodes.free.item(node)

    def most_room(self) -> float:
        """What the host with most room has free, tuples/s."""
        s = self._placer.state
        return s.index.most_room(s.requirement(self._operator))

    def charge(self, node: int, required: float) -> None:
        """Take room of a host, tuples/s."""
        s = self._placer.state
        free = s.nodes.free.item(node)
        self._before.setdefault(node, free)
        s.set_free(node, free - required)


def _pieces(cut: Cut) -> Pieces:
    runs = [Piece(run.node, run.begin, run.end, 0, 1) for run in cut.runs]
    if cut.root is not None:
        runs.insert(0, Piece(cut.root.node, 0, 0, 0, 1))
    return Pieces(tuple(cut.left.tolist()), tuple(cut.right.tolist()), tuple(runs), cut.join)
