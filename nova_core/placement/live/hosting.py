"""Finding hosts for joins: whole if possible, else in pieces, else by moving another join.

Phase III of the paper (section 3.4) for one join at a time, on a state that stays as it is
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live import hosts as kernels
from nova_core.placement.kernels.live.columns import HOST, JOIN, MOVED
from nova_core.placement.live.pieces import Piece, Pieces, Share, merged, part_rate
from nova_core.placement.live.policy import Policy
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import IN_PIECES, NOWHERE
from nova_core.placement.partitioning import (
    maximum_partition_rate,
    partition_rates,
    sigma_for_bandwidth,
)
from nova_core.strategies.nova import DEFAULT_SIGMA

# Hosts whose costs are compared; the most that are looked at when links or overload decide.
NEARBY = 4
SPREAD_NEARBY = 16
MOST_NEARBY = 4096
# Positions tried along each input when a join is cut in two.
POSITIONS = 8
# A host with this much less than is needed still has room: rounding, far below the tolerance.
_SLACK = 1e-10


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


class Hosting:
    """Places joins of a state that have no place, and moves those that would gain by it."""

    def __init__(self, state: LiveState, policy: Policy) -> None:
        self.state = state
        self.policy = policy
        self.pinned = dict.fromkeys(policy.pinned, True)
        self._node = np.empty(NEARBY, np.int64)
        self._cost = np.empty(NEARBY)
        largest = state.largest * (1 + _SLACK)
        self._limits = np.array([policy.gain, policy.gain_share, state.c_min, largest, 1 - _SLACK])

    # --- searching --------------------------------------------------------------------------------

    def near(
        self, pair: int, weights: Floats, need: float, count: int = NEARBY
    ) -> list[tuple[int, float]]:
        """Hosts with room near a pair's virtual position and what it costs there, cheapest first.

        Args:
            pair: whose virtual position and requirement count.
            weights: (3,) of the legs of what is to be placed.
            need: tuples/s a host must have free; minus infinity for any host.
            count: how many of the nearest are compared.
        """
        node, cost = self._node, self._cost
        if count != NEARBY:
            node, cost = np.empty(count, np.int64), np.empty(count)
        found = self._search(pair, weights, need, node, cost)
        return list(zip(node[:found].tolist(), cost[:found].tolist(), strict=True))

    def _search(self, pair: int, weights: Floats, need: float, node: Ints, cost: Floats) -> int:
        s = self.state
        found: int = kernels.cheapest(
            *s.index_for(pair).searched,
            s.nodes.position,
            s.nodes.extra,
            s.pairs.row,
            s.pairs.point,
            pair,
            weights,
            need,
            node,
            cost,
        )
        return found

    def need(self, size: float) -> float:
        """What a host must have free for an instance, tuples/s (paper, Eqs. 2 and 3)."""
        return max(size, self.state.c_min) * (1 - _SLACK)

    def cheapest(self, pair: int, weights: Floats, share: Share) -> tuple[int, float] | None:
        """The cheapest near host with room for a share of a pair, and its cost there."""
        if not self.state.link_free:
            node, cost = self._node, self._cost
            if self._search(pair, weights, self.need(share.size), node, cost) == 0:
                return None
            return node.item(0), cost.item(0)
        count = NEARBY
        while True:
            found = self.near(pair, weights, self.need(share.size), count)
            for host, price in found:
                if self.state.links_fit(pair, host, share):
                    return host, price
            if len(found) < count or count >= MOST_NEARBY:
                return None
            count *= 4

    def elsewhere(self, pair: int, node: int) -> tuple[int, float] | None:
        """The cheapest near host with room for a whole join but one node, and its cost there."""
        share, weights = self.state.whole_share(pair), self.state.weights(pair)
        for host, cost in self.near(pair, weights, self.need(share.size)):
            if host != node and self.state.links_fit(pair, host, share):
                return host, cost
        return None

    def cost_on(self, pair: int, weights: Floats, node: int) -> float:
        """Objective of a share of a pair on a node."""
        s = self.state
        cost: float = kernels.host_cost(
            s.nodes.position, s.nodes.extra, s.pairs.row, pair, weights, node
        )
        return cost

    def cost(self, pair: int) -> float:
        """Objective of a pair where it runs."""
        s, weights = self.state, self.state.weights(pair)
        host = s.pairs.row.item(pair, HOST)
        if host != IN_PIECES:
            return self.cost_on(pair, weights, host)
        pieces = s.cuts[pair]
        whole = s.whole_share(pair)
        return math.fsum(
            self.cost_on(pair, self._piece_weights(pair, weights, pieces, p, whole), p.node)
            for p in pieces.pieces
        )

    def _piece_weights(
        self, pair: int, weights: Floats, cut: Pieces, piece: Piece, whole: Share
    ) -> Floats:
        if self.state.objective != "network-usage":
            return weights * (piece.cells / (len(cut.left) * len(cut.right)))
        left = part_rate(cut.left, piece.left, piece.left_end, whole.left)
        right = part_rate(cut.right, piece.right, piece.right_end, whole.right)
        return np.array([left, right, whole.output * (left / whole.left) * (right / whole.right)])

    # --- placing ----------------------------------------------------------------------------------

    def place(self, pair: int, overload: bool) -> None:
        """Give a pair without a place one.

        Args:
            pair: the pair.
            overload: whether to overload nodes near by when nothing else is left.

        Raises:
            NoRoomError: when it fits nowhere.
        """
        s = self.state
        weights, share = s.weights(pair), s.whole_share(pair)
        if share.size <= s.largest * (1 + _SLACK):
            found = self.cheapest(pair, weights, share)
            if found is not None:
                s.attach(pair, found[0], share)
                return
        pieces, missing = self.cut(pair)
        if pieces is not None:
            s.attach(pair, pieces)
            return
        if share.size <= s.largest and self._make_room(pair, weights, share):
            return
        if not overload or not self._spread(pair, weights, share):
            name = s.pair_name(pair)
            raise NoRoomError(
                f"{name}: its {share.size:g} tuples/s fit on no worker, nor in pieces "
                f"(most room of one: {s.index_for(pair).most_room():g})",
                missing,
            )

    def stay(self, pair: int, placed: int | Pieces, overload: bool) -> None:
        """Put a pair back where it was, if it fits there under its present rates; else place it.

        Raises:
            NoRoomError: when it fits nowhere, or is pinned and its node has no room.
        """
        s = self.state
        fitted = self._refit(pair, placed)
        if fitted is not None:
            s.attach(pair, fitted)
            return
        if self.is_pinned(pair) and not overload:
            name, size = s.pair_name(pair), s.size(pair)
            raise NoRoomError(
                f"{name}: pinned where its {size:g} tuples/s no longer fit",
                self._short(placed, size),
            )
        self.place(pair, overload)

    def _refit(self, pair: int, placed: int | Pieces) -> int | Pieces | None:
        """The same placement under present rates; None where it does not fit."""
        s = self.state
        whole = s.whole_share(pair)
        if isinstance(placed, Pieces):
            left, right = self._partitions(pair)
            if (len(left), len(right)) != (len(placed.left), len(placed.right)):
                return None
            placed = Pieces(left, right, placed.pieces)
            shares = placed.shares(*whole)
            if any(self._piece_size(placed, piece, whole) > s.largest for piece in placed.pieces):
                return None
        else:
            shares = {placed: whole}
            if whole.size > s.largest * (1 + _SLACK):
                return None
        for node, share in shares.items():
            if s.nodes.free.item(node) < share.size * (1 - _SLACK):
                return None
            if s.link_free and not s.links_fit(pair, node, share):
                return None
        return placed

    def _short(self, placed: int | Pieces, size: float) -> float:
        """What the nodes a pair is pinned to lack, tuples/s."""
        nodes = placed.nodes if isinstance(placed, Pieces) else (placed,)
        return max(0.0, size - math.fsum(max(0.0, self.state.nodes.free[n]) for n in nodes))

    def is_pinned(self, pair: int) -> bool:
        """Whether a pair's operator stays where it is."""
        s = self.state
        return bool(self.pinned) and s.join_ids[s.pairs.row.item(pair, JOIN)] in self.pinned

    # --- cutting ----------------------------------------------------------------------------------

    def _partitions(self, pair: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Rates of both inputs' partitions (paper, Eqs. 7 and 8)."""
        s, whole = self.state, self.state.whole_share(pair)
        rates = np.array([whole.left]), np.array([whole.right])
        sigma: Floats | float = DEFAULT_SIGMA if s.sigma is None else s.sigma
        if s.sigma is None and math.isfinite(s.largest):
            sigma = sigma_for_bandwidth(*rates, s.largest)
        maximum = float(maximum_partition_rate(*rates, sigma)[0])
        left, right = (partition_rates(rate, maximum) for rate in (whole.left, whole.right))
        return tuple(left.tolist()), tuple(right.tolist())

    @staticmethod
    def _piece_size(cut: Pieces, piece: Piece, whole: Share) -> float:
        return part_rate(cut.left, piece.left, piece.left_end, whole.left) + part_rate(
            cut.right, piece.right, piece.right_end, whole.right
        )

    def cut(self, pair: int) -> tuple[Pieces | None, float]:
        """Pieces of a pair that fit somewhere, or none and what found no room, tuples/s."""
        s, whole = self.state, self.state.whole_share(pair)
        left, right = self._partitions(pair)
        if len(left) * len(right) == 1:
            return None, whole.size
        cut = Pieces(left, right, ())
        weights = s.weights(pair)
        free_before: dict[int, float] = {}
        placed: list[Piece] = []
        missing = 0.0
        waiting = [Piece(NOWHERE, 0, len(left), 0, len(right))]
        used: list[tuple[int, Share]] = []
        while waiting:
            piece = waiting.pop()
            found = self._host_for(pair, weights, cut, piece, whole)
            parts: Sequence[Piece] = (
                () if found is not None else self._in_two(pair, weights, cut, piece, whole)
            )
            if found is not None:
                free_before.setdefault(found, float(s.nodes.free[found]))
                share = self._piece_share(cut, piece, whole)
                s.set_free(found, float(s.nodes.free[found]) - share.size)
                s.use_links(pair, found, share, 1)
                used.append((found, share))
                placed.append(piece._replace(node=found))
            elif parts:
                waiting.extend(parts)
            else:
                missing += self._piece_size(cut, piece, whole)
        for node, share in used:
            s.use_links(pair, node, share, -1)
        for node, free in free_before.items():
            s.set_free(node, free)
        if missing:
            return None, missing
        limit = s.largest * (1 + _SLACK)
        pieces = merged(placed, lambda piece: self._piece_size(cut, piece, whole) <= limit)
        return Pieces(left, right, pieces), 0.0

    def _piece_share(self, cut: Pieces, piece: Piece, whole: Share) -> Share:
        left = part_rate(cut.left, piece.left, piece.left_end, whole.left)
        right = part_rate(cut.right, piece.right, piece.right_end, whole.right)
        return Share(left, right, whole.output * (left / whole.left) * (right / whole.right))

    def _host_for(
        self, pair: int, weights: Floats, cut: Pieces, piece: Piece, whole: Share
    ) -> int | None:
        share = self._piece_share(cut, piece, whole)
        if share.size > self.state.largest * (1 + _SLACK):
            return None
        of_piece = self._piece_weights(pair, weights, cut, piece, whole)
        found = self.cheapest(pair, of_piece, share)
        return None if found is None else found[0]

    def _in_two(
        self, pair: int, weights: Floats, cut: Pieces, piece: Piece, whole: Share
    ) -> Sequence[Piece]:
        """Two pieces of one that has no host: the one that is placed next comes last.

        The larger part that a host takes at the least cost is split off; where no host takes any,
        the input with more partitions is halved. A single replica cannot be cut.
        """
        best: tuple[float, Piece, Piece] | None = None
        for side in (0, 1):
            begin, end = (piece.left, piece.left_end) if side == 0 else (
                piece.right, piece.right_end
            )  # fmt: skip
            step = max(1, (end - begin + POSITIONS - 1) // POSITIONS)
            for at in range(begin + step, end, step):
                parts = _halves(piece, side, at)
                first, second = sorted(
                    parts, key=lambda part: self._piece_size(cut, part, whole), reverse=True
                )
                share = self._piece_share(cut, first, whole)
                if share.size > self.state.largest * (1 + _SLACK):
                    continue
                of_piece = self._piece_weights(pair, weights, cut, first, whole)
                found = self.cheapest(pair, of_piece, share)
                if found is not None:
                    # Per cell, so that taking little off is not the cheapest way.
                    value = found[1] / first.cells
                    if best is None or value < best[0]:
                        best = value, second, first
        if best is not None:
            return best[1:]
        if piece.cells == 1 or not self._room_for_a_replica(pair, cut):
            return ()
        if piece.left_end - piece.left >= piece.right_end - piece.right:
            return _halves(piece, 0, (piece.left + piece.left_end) // 2)
        return _halves(piece, 1, (piece.right + piece.right_end) // 2)

    def _room_for_a_replica(self, pair: int, cut: Pieces) -> bool:
        """Whether any host could take the smallest replica; false ends pointless halving."""
        smallest = min(cut.left) + min(cut.right)
        return self.state.index_for(pair).most_room() >= self.need(smallest)

    # --- when nothing fits ------------------------------------------------------------------------

    def _make_room(self, pair: int, weights: Floats, share: Share) -> bool:
        """Place a whole join where one resident makes way to another host with room."""
        s = self.state
        need = self.need(share.size)
        for node, _ in self.near(pair, weights, -math.inf, SPREAD_NEARBY):
            if s.nodes.capacity[node] < need or not s.links_fit(pair, node, share):
                continue
            for other in self.movable(node):
                if s.pairs.host[other] == IN_PIECES:
                    continue
                if s.nodes.free[node] + s.size(other) < need:
                    continue
                found = self.elsewhere(other, node)
                if found is not None:
                    s.detach(other)
                    s.attach(other, found[0])
                    s.attach(pair, node)
                    return True
        return False

    def _spread(self, pair: int, weights: Floats, share: Share) -> bool:
        """Overload the near node that gets least full; false when there is no host at all."""
        s = self.state
        best, least = NOWHERE, math.inf
        for node, _ in self.near(pair, weights, -math.inf, SPREAD_NEARBY):
            capacity = s.nodes.capacity[node]
            fill = (capacity - s.nodes.free[node] + share.size) / capacity
            if fill < least:
                best, least = node, fill
        if best == NOWHERE:
            return False
        s.attach(pair, best)
        return True

    def movable(self, node: int) -> list[int]:
        """Pairs that run on a node and are not pinned, the largest there first."""
        found = [pair for pair in self.state.residents.of(node) if not self.is_pinned(pair)]
        return sorted(found, key=lambda pair: (-self.state.shares(pair)[node].size, pair))

    # --- moving by choice -------------------------------------------------------------------------

    def threshold(self, pair: int, cost: float) -> float:
        """Gain a move must exceed, in the objective's unit."""
        policy, s = self.policy, self.state
        threshold = policy.gain + policy.gain_share * cost
        if policy.state_bytes:
            state = policy.state_bytes.get(s.join_ids[s.pairs.row.item(pair, JOIN)], 0.0)
            threshold += policy.gain_per_byte * state
        return threshold

    def rests(self, pair: int) -> bool:
        """Whether a pair moved so recently that it stays."""
        if self.policy.cooldown == 0:
            return False
        moved = self.state.pairs.row.item(pair, MOVED)
        return moved >= 0 and self.state.version - moved < self.policy.cooldown

    def improve_all(self, pairs: Sequence[int]) -> None:
        """`improve` pairs one after the other, in few steps where none needs a closer look."""
        s, policy = self.state, self.policy
        if not self._plain or s.overloaded or self.pinned or policy.cooldown or policy.state_bytes:
            for pair in pairs:
                self.improve(pair)
            return
        for run, other in self._runs(pairs):
            if run:
                s.settle(run, self._limits, NEARBY)
            if other is not None:
                self.improve(other)

    def place_all(self, pairs: Sequence[int], overload: bool) -> None:
        """`place` pairs one after the other, in few steps where all fit whole.

        Raises:
            NoRoomError: as `place`.
        """
        if not self._plain:
            for pair in pairs:
                self.place(pair, overload)
            return
        for run, other in self._runs(pairs):
            rest = run
            while rest:
                done = self.state.settle(rest, self._limits, NEARBY)
                if done < len(rest):
                    self.place(rest[done], overload)
                rest = rest[done + 1 :]
            if other is not None:
                self.place(other, overload)

    @property
    def _plain(self) -> bool:
        """Whether room and distance alone decide where a whole join may run."""
        s = self.state
        # Network usage weighs the legs of each join by its own rates.
        return not s.link_free and len(s.indexes) == 1 and s.objective != "network-usage"

    def _runs(self, pairs: Sequence[int]) -> Iterator[tuple[list[int], int | None]]:
        """Pairs in order: those in a row that run whole, and one after them that is in pieces."""
        cuts = self.state.cuts
        run: list[int] = []
        for pair in pairs:
            if pair in cuts:
                yield run, pair
                run = []
            else:
                run.append(pair)
        yield run, None

    def improve(self, pair: int) -> bool:
        """Move a pair to a cheaper host if that gains enough; whether it moved."""
        s = self.state
        if self.is_pinned(pair) or self.rests(pair):
            return False
        share = s.whole_share(pair)
        if share.size > s.largest * (1 + _SLACK):
            return False
        weights = s.weights(pair)
        found = self.cheapest(pair, weights, share)
        if found is None:
            return False
        now = self.cost(pair)
        if now - found[1] <= max(self.threshold(pair, now), 1e-9 * now):
            return False
        s.detach(pair)
        s.attach(pair, found[0], share)
        return True


def _halves(piece: Piece, side: int, at: int) -> tuple[Piece, Piece]:
    if side == 0:
        return piece._replace(left_end=at), piece._replace(left=at)
    return piece._replace(right_end=at), piece._replace(right=at)


__all__ = ["Hosting", "NoRoomError"]
