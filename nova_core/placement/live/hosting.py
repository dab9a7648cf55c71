"""Finding hosts for joins: whole if possible, else in pieces, else by moving another join.

Phase III of the paper (section 3.4) for one join at a time, on a state that stays as it is
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nova_core.model.problem import Floats
from nova_core.placement.kernels.live.columns import MOVED
from nova_core.placement.live.cutting import Cutting
from nova_core.placement.live.pieces import Pieces, Share, piece_size
from nova_core.placement.live.policy import Policy
from nova_core.placement.live.search import SLACK, HostSearch
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import IN_PIECES, NOWHERE

# The most hosts that are looked at when overload decides.
SPREAD_NEARBY = 16


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
        self.search = HostSearch(state)
        self.cutting = Cutting(self.search)
        largest = state.largest * (1 + SLACK)
        self._limits = np.array([policy.gain, policy.gain_share, state.c_min, largest, 1 - SLACK])

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
        if share.size <= s.largest * (1 + SLACK):
            found = self.search.cheapest(pair, weights, share)
            if found is not None:
                s.attach(pair, found[0], share)
                return
        pieces, missing = self.cutting.cut(pair)
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
            left, right = self.cutting.partitions(pair)
            if (len(left), len(right)) != (len(placed.left), len(placed.right)):
                return None
            placed = Pieces(left, right, placed.pieces)
            shares = placed.shares(*whole)
            if any(piece_size(placed, piece, whole) > s.largest for piece in placed.pieces):
                return None
        else:
            shares = {placed: whole}
            if whole.size > s.largest * (1 + SLACK):
                return None
        for node, share in shares.items():
            if s.nodes.free.item(node) < share.size * (1 - SLACK):
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
        return bool(self.pinned) and s.join_ids[s.pairs.join.item(pair)] in self.pinned

    # --- when nothing fits ------------------------------------------------------------------------

    def _make_room(self, pair: int, weights: Floats, share: Share) -> bool:
        """Place a whole join where one resident makes way to another host with room."""
        s = self.state
        need = self.search.need(share.size)
        for node, _ in self.search.near(pair, weights, -math.inf, SPREAD_NEARBY):
            if s.nodes.capacity[node] < need or not s.links_fit(pair, node, share):
                continue
            for other in self.movable(node):
                if s.pairs.host[other] == IN_PIECES:
                    continue
                if s.nodes.free[node] + s.size(other) < need:
                    continue
                found = self.search.elsewhere(other, node)
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
        for node, _ in self.search.near(pair, weights, -math.inf, SPREAD_NEARBY):
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
            state = policy.state_bytes.get(s.join_ids[s.pairs.join.item(pair)], 0.0)
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
        s = self.state
        if not self._free_to_move:
            for pair in pairs:
                self.improve(pair)
            return
        for run, other in self._runs(pairs):
            if run:
                s.settle(run, False, self._limits)
            if other is not None:
                self.improve(other)

    def renew_all(self, pairs: list[int]) -> None:
        """Work out the virtual positions of pairs anew and `improve` each, in one step at best."""
        s = self.state
        if pairs and self._free_to_move and self._run_whole(pairs):
            s.settle(pairs, True, self._limits)
        else:
            s.renew_points(pairs)
            self.improve_all(pairs)

    def place_all(self, pairs: Sequence[int], overload: bool, anew: bool = False) -> None:
        """`place` pairs one after the other, in few steps where all fit whole.

        Args:
            pairs: those pairs.
            overload: as for `place`.
            anew: whether their virtual positions are to be worked out first.

        Raises:
            NoRoomError: as `place`.
        """
        s = self.state
        if anew and not (self._plain and self._run_whole(pairs)):
            s.renew_points(list(pairs))
            anew = False
        if not self._plain:
            for pair in pairs:
                self.place(pair, overload)
            return
        for run, other in self._runs(pairs):
            rest = run
            while rest:
                done = s.settle(rest, anew, self._limits)
                if done < len(rest):
                    self.place(rest[done], overload)
                rest, anew = rest[done + 1 :], False
            if other is not None:
                self.place(other, overload)

    @property
    def _free_to_move(self) -> bool:
        """Whether room and gain alone decide which whole joins move."""
        policy = self.policy
        kept = self.pinned or policy.cooldown or policy.state_bytes
        return self._plain and not self.state.overloaded and not kept

    @property
    def _plain(self) -> bool:
        """Whether room and distance alone decide where a whole join may run."""
        s = self.state
        # Network usage weighs the legs of each join by its own rates.
        return not s.link_free and len(s.indexes) == 1 and s.objective != "network-usage"

    def _run_whole(self, pairs: Sequence[int]) -> bool:
        """Whether none of some pairs is in pieces."""
        return self.state.cuts.keys().isdisjoint(pairs)

    def _runs(self, pairs: Sequence[int]) -> Iterator[tuple[list[int], int | None]]:
        """Pairs in order: those in a row that run whole, and one after them that is in pieces."""
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

    def improve(self, pair: int) -> bool:
        """Move a pair to a cheaper host if that gains enough; whether it moved."""
        s = self.state
        if self.is_pinned(pair) or self.rests(pair):
            return False
        share = s.whole_share(pair)
        if share.size > s.largest * (1 + SLACK):
            return False
        weights = s.weights(pair)
        found = self.search.cheapest(pair, weights, share)
        if found is None:
            return False
        now = self.search.cost(pair)
        if now - found[1] <= max(self.threshold(pair, now), 1e-9 * now):
            return False
        s.detach(pair)
        s.attach(pair, found[0], share)
        return True
