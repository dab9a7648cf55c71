"""Placing joins one at a time: whole if possible, else in pieces, else by moving another join.

Phase III of the paper (section 3.4) for one join at a time; the rest of the state does not change.
A join goes to the host nearest to its virtual position, here and in
`nova_core.placement.kernels.live.settle`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nova_core.model.problem import Floats
from nova_core.placement.kernels import tuning
from nova_core.placement.kernels.live import hosts as kernels
from nova_core.placement.kernels.live.settle import Limits
from nova_core.placement.kernels.live.tables import HOST, MOVED
from nova_core.placement.kernels.spread import evenly
from nova_core.placement.kernels.tuning import SLACK
from nova_core.placement.live.pieces import Piece, Pieces, Share, merged, piece_share, piece_size
from nova_core.placement.live.policy import Policy
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import IN_PIECES, NOWHERE
from nova_core.placement.partitioning import maximum_partition_rate, partition_rates

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
        self._limits = np.array(
            Limits(policy.gain, policy.gain_share, state.c_min, self._largest, 1 - SLACK)
        )
        self._node, self._cost = np.empty(1, np.int64), np.empty(1)

    # --- searching --------------------------------------------------------------------------------

    def near(self, pair: int, weights: Floats, need: float, count: int) -> list[Choice]:
        """Hosts with room near a pair's virtual position and its cost there, cheapest first.

        Args:
            pair: decides virtual position and requirement.
            weights: (3,) of the legs of the share to place.
            need: tuples/s a host must have free; minus infinity for any host.
            count: how many of the nearest are compared.
        """
        s, n = self.state, self.state.nodes
        node, cost = self._node, self._cost
        if count != 1:
            node, cost = np.empty(count, np.int64), np.empty(count)
        filled = kernels.cheapest(
            *s.index.tree,
            n.position,
            n.extra,
            s.pairs.row,
            s.pairs.point,
            pair,
            weights,
            need,
            s.requirement(pair),
            node,
            cost,
        )
        return list(zip(node[:filled].tolist(), cost[:filled].tolist(), strict=True))

    def need(self, size: float) -> float:
        """What a host must have free for an instance, tuples/s (paper, Eqs. 2 and 3)."""
        return max(size, self.state.c_min) * (1 - SLACK)

    def cheapest(self, pair: int, weights: Floats, share: Share) -> Choice | None:
        """The cheapest near host with room for a share of a pair, and its cost there."""
        need, count = self.need(share.size), 1
        while True:
            choices = self.near(pair, weights, need, count)
            for host, cost in choices:
                if self.state.links_fit(pair, host, share):
                    return host, cost
            if len(choices) < count or count >= tuning.MOST_NEARBY:
                return None
            count *= 4

    def elsewhere(self, pair: int, node: int) -> Choice | None:
        """Cheapest near host with room for a whole join, except ``node``, and its cost there."""
        share, weights = self.state.whole_share(pair), self.state.weights(pair)
        for host, cost in self.near(pair, weights, self.need(share.size), 2):
            if host != node and self.state.links_fit(pair, host, share):
                return host, cost
        return None

    def cost_on(self, pair: int, weights: Floats, node: int) -> float:
        """Objective of a share of a pair on a node."""
        n, table = self.state.nodes, self.state.pairs.row
        return float(kernels.host_cost(n.position, n.extra, table, pair, weights, node))

    def cost(self, pair: int) -> float:
        """Objective of a pair where it runs."""
        s, weights = self.state, self.state.weights(pair)
        host = s.pairs.row.item(pair, HOST)
        if host != IN_PIECES:
            return self.cost_on(pair, weights, host)
        cut, whole = s.cuts[pair], s.whole_share(pair)
        return math.fsum(
            self.cost_on(pair, self._piece_weights(weights, cut, piece, whole), piece.node)
            for piece in cut.pieces
        )

    def _piece_weights(self, weights: Floats, cut: Pieces, piece: Piece, whole: Share) -> Floats:
        """(3,) weights of a piece's legs, see `LiveState.weights` for those of the whole."""
        if self.state.objective != "network-usage":
            return weights * (piece.cells / (len(cut.left) * len(cut.right)))
        return np.array(piece_share(cut, piece, whole))

    # --- placing ----------------------------------------------------------------------------------

    def place(self, pair: int, overload: bool) -> None:
        """Place an unplaced pair.

        Args:
            pair: the pair.
            overload: whether to overload nodes near by when nothing else is left.

        Raises:
            NoRoomError: when it fits nowhere.
        """
        s = self.state
        weights, share = s.weights(pair), s.whole_share(pair)
        if share.size <= self._largest:
            choice = self.cheapest(pair, weights, share)
            if choice is not None:
                s.attach(pair, choice[0], share)
                return
        pieces, missing = self._cut(pair, s.sigma)
        if pieces is None:
            if share.size <= s.largest and self._make_room(pair, weights, share):
                return
            for sigma in s.finer_sigmas:
                pieces, missing = self._cut(pair, sigma)
                if pieces is not None:
                    break
        if pieces is not None:
            s.attach(pair, pieces)
            return
        if not overload or not self._spread(pair, weights, share):
            most = s.index.most_room(s.requirement(pair))
            raise NoRoomError(
                f"{s.pair_names[pair]}: its {share.size:g} tuples/s fit on no worker, nor in "
                f"pieces (most room of one: {most:g})",
                missing,
            )

    def stay(self, pair: int, placed: int | Pieces, overload: bool) -> None:
        """Put a pair back where it was, if it fits there under its present rates; else place it.

        Raises:
            NoRoomError: when it fits nowhere, or is pinned and its node has no room.
        """
        s = self.state
        whole = s.whole_share(pair)
        fitted = self._refit(pair, placed, whole)
        if fitted is not None:
            s.attach(pair, fitted, whole)
            return
        if self.is_pinned(pair) and not overload:
            size = s.size(pair)
            nodes = placed.nodes if isinstance(placed, Pieces) else (placed,)
            free = math.fsum(max(0.0, s.nodes.free[node]) for node in nodes)
            raise NoRoomError(
                f"{s.pair_names[pair]}: pinned where its {size:g} tuples/s no longer fit",
                max(0.0, size - free),
            )
        self.place(pair, overload)

    def _refit(self, pair: int, placed: int | Pieces, whole: Share) -> int | Pieces | None:
        """The same placement under present rates; None where it does not fit."""
        s = self.state
        if not isinstance(placed, Pieces):
            size = whole.size
            fits = size <= self._largest and self._fits(pair, placed, whole, size)
            return placed if fits else None
        grid = len(placed.left), len(placed.right)
        for sigma in (s.sigma, *s.finer_sigmas):
            left, right = self._partitions(whole, sigma)
            if (len(left), len(right)) == grid:
                break
        else:
            return None
        placed = Pieces(left, right, placed.pieces)
        greatest: dict[int, float] = {}
        for piece in placed.pieces:
            size = piece_size(placed, piece, whole)
            greatest[piece.node] = max(size, greatest.get(piece.node, 0.0))
        if max(greatest.values()) > s.largest:
            return None
        for node, share in placed.shares(*whole).items():
            if not self._fits(pair, node, share, greatest[node]):
                return None
        return placed

    def _fits(self, pair: int, node: int, share: Share, greatest: float) -> bool:
        """Whether a node has room for a share, of which one instance is the greatest, tuples/s."""
        s, size = self.state, share.size
        lacks = s.lack(node, size, greatest) > SLACK * max(size, s.c_min)
        return not lacks and s.links_fit(pair, node, share)

    # --- cutting ----------------------------------------------------------------------------------

    def _partitions(
        self, whole: Share, sigma: float | None
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Rates of both inputs' partitions (paper, Eqs. 7 and 8)."""
        s, rates = self.state, (np.array(whole.left), np.array(whole.right))
        limit = s.largest if math.isfinite(s.largest) else None
        maximum = float(maximum_partition_rate(*rates, sigma, limit))
        left, right = (partition_rates(rate, maximum) for rate in (whole.left, whole.right))
        return tuple(left.tolist()), tuple(right.tolist())

    def _cut(self, pair: int, sigma: float | None) -> tuple[Pieces | None, float]:
        """Pieces of a pair that fit somewhere; or None, and the capacity that is missing, tuples/s.

        The state does not change.
        """
        s, whole = self.state, self.state.whole_share(pair)
        left, right = self._partitions(whole, sigma)
        if len(left) * len(right) == 1:
            return None, whole.size
        cut = Pieces(left, right, ())
        free_before: dict[int, float] = {}
        placed: list[Piece] = []
        missing = 0.0
        waiting = [Piece(NOWHERE, 0, len(left), 0, len(right))]
        while waiting:
            piece = waiting.pop()
            choice = self._host_of(pair, cut, piece, whole)
            if choice is not None:
                node = choice[0]
                free = float(s.nodes.free[node])
                free_before.setdefault(node, free)
                share = piece_share(cut, piece, whole)
                s.set_free(node, free - share.size)
                s.use_links(pair, node, share, 1)
                placed.append(piece._replace(node=node))
            elif parts := self._in_two(pair, cut, piece, whole):
                waiting.extend(parts)
            else:
                missing += piece_size(cut, piece, whole)
        for piece in placed:
            s.use_links(pair, piece.node, piece_share(cut, piece, whole), -1)
        for node, free in free_before.items():
            s.set_free(node, free)
        return (None, missing) if missing else (merged(cut, placed, whole, self._largest), 0.0)

    def _host_of(self, pair: int, cut: Pieces, piece: Piece, whole: Share) -> Choice | None:
        """The cheapest near host with room for a piece of a cut, and its cost there."""
        share = piece_share(cut, piece, whole)
        if share.size > self._largest:
            return None
        weights = self._piece_weights(self.state.weights(pair), cut, piece, whole)
        return self.cheapest(pair, weights, share)

    def _in_two(self, pair: int, cut: Pieces, piece: Piece, whole: Share) -> Sequence[Piece]:
        """Two pieces of one that has no host: the one that is placed next comes last.

        The larger part that a host takes at the least cost is split off; where no host takes any,
        the input with more partitions is halved. A single replica cannot be cut.
        """
        s, best = self.state, None
        for side, count in enumerate(piece.shape):
            step = max(1, -(-count // tuning.LIVE_CUT_POSITIONS))
            for at in range(step, count, step):
                parts = piece.split(side, at)
                first, second = sorted(
                    parts, key=lambda part: piece_size(cut, part, whole), reverse=True
                )
                choice = self._host_of(pair, cut, first, whole)
                if choice is not None:
                    # Per cell, so that the smallest part is not always the cheapest.
                    value = choice[1] / first.cells
                    if best is None or value < best[0]:
                        best = value, second, first
        if best is not None:
            return best[1:]
        # Without room for the smallest replica, halving is pointless.
        smallest = self.need(min(cut.left) + min(cut.right))
        if piece.cells == 1 or s.index.most_room(s.requirement(pair)) < smallest:
            return ()
        side = 0 if piece.shape[0] >= piece.shape[1] else 1
        return piece.split(side, piece.shape[side] // 2)

    # --- when nothing fits ------------------------------------------------------------------------

    def _make_room(self, pair: int, weights: Floats, share: Share) -> bool:
        """Place a whole join on a host whose resident moves to another host with room."""
        s = self.state
        need = self.need(share.size)
        for node, _ in self.near(pair, weights, -math.inf, tuning.SPREAD_NEARBY):
            if s.nodes.capacity[node] < need or not s.links_fit(pair, node, share):
                continue
            for other in self.movable(node):
                if s.pairs.host[other] == IN_PIECES:
                    continue
                if s.nodes.free[node] + s.size(other) < need:
                    continue
                choice = self.elsewhere(other, node)
                if choice is not None:
                    s.detach(other)
                    s.attach(other, choice[0])
                    s.attach(pair, node)
                    return True
        return False

    def _spread(self, pair: int, weights: Floats, share: Share) -> bool:
        """Overload near nodes evenly; false when there is no host at all."""
        n = self.state.nodes
        near = self.near(pair, weights, -math.inf, tuning.SPREAD_NEARBY)
        if not near:
            return False
        hosts = np.array([node for node, _ in near])
        capacity = n.capacity[hosts]
        left, right = self._partitions(share, self.state.sigma)
        with np.errstate(invalid="ignore"):  # of hosts without a limit
            used = capacity - n.free[hosts]
        rows = evenly(np.array(left), np.array(right), used, capacity, 0).tolist()
        if len(rows) == 1:
            self.state.attach(pair, int(hosts[rows[0][0]]))
            return True
        pieces = [Piece(int(hosts[host]), *rectangle) for host, *rectangle in rows]
        self.state.attach(pair, merged(Pieces(left, right, ()), pieces, share, math.inf))
        return True

    def movable(self, node: int) -> list[int]:
        """Pairs that run on a node and are not pinned, the largest there first."""
        pairs = [pair for pair in self.state.residents.of(node) if not self.is_pinned(pair)]
        return sorted(pairs, key=lambda pair: (-self.state.shares(pair)[node].size, pair))

    # --- moving by choice -------------------------------------------------------------------------

    def is_pinned(self, pair: int) -> bool:
        """Whether a pair's operator stays where it is."""
        s = self.state
        return bool(self.pinned) and s.joins.ids[s.pairs.join.item(pair)] in self.pinned

    def threshold(self, pair: int, cost: float) -> float:
        """Gain a move must exceed, in the objective's unit."""
        policy, s = self.policy, self.state
        threshold = policy.gain + policy.gain_share * cost
        if self.state_bytes:
            state = self.state_bytes.get(s.joins.ids[s.pairs.join.item(pair)], 0.0)
            threshold += policy.gain_per_byte * state
        return threshold

    def rests(self, pair: int) -> bool:
        """Whether a pair moved so recently that it stays."""
        if self.policy.cooldown == 0:
            return False
        moved = self.state.pairs.row.item(pair, MOVED)
        return moved >= 0 and self.state.version - moved < self.policy.cooldown

    def improve(self, pair: int) -> bool:
        """Move a pair to a cheaper host if that gains enough; returns whether it moved."""
        s = self.state
        if self.is_pinned(pair) or self.rests(pair):
            return False
        share = s.whole_share(pair)
        if share.size > self._largest:
            return False
        choice = self.cheapest(pair, s.weights(pair), share)
        if choice is None:
            return False
        now = self.cost(pair)
        if now - choice[1] <= max(self.threshold(pair, now), 1e-9 * now):
            return False
        s.detach(pair)
        s.attach(pair, choice[0], share)
        return True

    # --- many at once -----------------------------------------------------------------------------

    def improve_all(self, pairs: Sequence[int]) -> None:
        """`improve` pairs one after the other, in batches where room and gain alone decide."""
        if not self._room_and_gain_decide:
            for pair in pairs:
                self.improve(pair)
            return
        for run, other in self._runs(pairs):
            if run:
                self.state.settle(run, self._limits)
            if other is not None:
                self.improve(other)

    def recompute_all(self, pairs: list[int]) -> None:
        """Recompute the virtual positions of pairs and `improve` each, in one batch if possible."""
        if pairs and self._room_and_gain_decide and self._run_whole(pairs):
            self.state.settle(pairs, self._limits, recompute=True)
        else:
            self.state.recompute_points(pairs)
            self.improve_all(pairs)

    def place_all(
        self, pairs: Sequence[int], overload: bool, recompute: bool = False, leave: bool = False
    ) -> None:
        """`place` pairs one after the other, in batches where all fit whole.

        Args:
            pairs: the pairs.
            overload: as for `place`.
            recompute: whether to compute their virtual positions first.
            leave: whether they are still on nodes that may no longer host them.

        Raises:
            NoRoomError: as `place`.
        """
        together = self._room_decides
        if recompute and not (together and self._run_whole(pairs)):
            self.state.recompute_points(list(pairs))
            recompute = False
        if leave:
            for pair in pairs:
                if not together or pair in self.state.cuts:
                    self.state.detach(pair)
        if not together:
            for pair in pairs:
                self.place(pair, overload)
            return
        for run, other in self._runs(pairs):
            rest = run
            while rest:
                settled = self.state.settle(rest, self._limits, recompute, leave)
                if settled < len(rest):
                    self.state.detach(rest[settled])
                    self.place(rest[settled], overload)
                rest, recompute = rest[settled + 1 :], False
            if other is not None:
                self.place(other, overload)

    @property
    def _room_and_gain_decide(self) -> bool:
        """Whether room and gain alone decide which whole joins move."""
        policy = self.policy
        restricted = self.pinned or policy.cooldown or self.state_bytes
        s = self.state
        return self._room_decides and not (s.overloaded or s.short or restricted)

    @property
    def _room_decides(self) -> bool:
        """Whether room and distance alone decide where a whole join may run."""
        s = self.state
        # Network usage weighs the legs of each join by its own rates.
        return not (s.link_free or s.requirements or s.objective == "network-usage")

    def _run_whole(self, pairs: Sequence[int]) -> bool:
        """Whether all of these pairs run whole."""
        return self.state.cuts.keys().isdisjoint(pairs)

    def _runs(self, pairs: Sequence[int]) -> Iterator[tuple[list[int], int | None]]:
        """Pairs in order: a run of whole ones, and the one in pieces that follows, if any."""
        cuts = self.state.cuts
        if not cuts:
            yield list(pairs), None
            return
        run: list[int] = []
        for pair in pairs:
            if pair in cuts:
                yield run, pair
                run = []
            else:
                run.append(pair)
        yield run, None
