"""Cutting a join that fits nowhere as a whole into pieces that do (paper, section 3.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nova_core.model.problem import Floats
from nova_core.placement.live.pieces import Piece, Pieces, Share, merged, piece_share, piece_size
from nova_core.placement.live.search import SLACK, HostSearch
from nova_core.placement.live.tables import NOWHERE
from nova_core.placement.partitioning import (
    maximum_partition_rate,
    partition_rates,
    sigma_for_bandwidth,
)
from nova_core.strategies.nova import DEFAULT_SIGMA

# Positions tried along each input when a join is cut in two.
POSITIONS = 8


class Cutting:
    """Cuts joins of a state, which it leaves as it was."""

    def __init__(self, search: HostSearch) -> None:
        self.search = search
        self.state = search.state

    def partitions(self, pair: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Rates of both inputs' partitions (paper, Eqs. 7 and 8)."""
        s, whole = self.state, self.state.whole_share(pair)
        rates = np.array([whole.left]), np.array([whole.right])
        sigma: Floats | float = DEFAULT_SIGMA if s.sigma is None else s.sigma
        if s.sigma is None and math.isfinite(s.largest):
            sigma = sigma_for_bandwidth(*rates, s.largest)
        maximum = float(maximum_partition_rate(*rates, sigma)[0])
        left, right = (partition_rates(rate, maximum) for rate in (whole.left, whole.right))
        return tuple(left.tolist()), tuple(right.tolist())

    def cut(self, pair: int) -> tuple[Pieces | None, float]:
        """Pieces of a pair that fit somewhere, or none and what found no room, tuples/s."""
        s, whole = self.state, self.state.whole_share(pair)
        left, right = self.partitions(pair)
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
                share = piece_share(cut, piece, whole)
                s.set_free(found, float(s.nodes.free[found]) - share.size)
                s.use_links(pair, found, share, 1)
                used.append((found, share))
                placed.append(piece._replace(node=found))
            elif parts:
                waiting.extend(parts)
            else:
                missing += piece_size(cut, piece, whole)
        for node, share in used:
            s.use_links(pair, node, share, -1)
        for node, free in free_before.items():
            s.set_free(node, free)
        if missing:
            return None, missing
        limit = s.largest * (1 + SLACK)
        pieces = merged(placed, lambda piece: piece_size(cut, piece, whole) <= limit)
        return Pieces(left, right, pieces), 0.0

    def _host_for(
        self, pair: int, weights: Floats, cut: Pieces, piece: Piece, whole: Share
    ) -> int | None:
        share = piece_share(cut, piece, whole)
        if share.size > self.state.largest * (1 + SLACK):
            return None
        of_piece = self.search.piece_weights(pair, weights, cut, piece, whole)
        found = self.search.cheapest(pair, of_piece, share)
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
                    parts, key=lambda part: piece_size(cut, part, whole), reverse=True
                )
                share = piece_share(cut, first, whole)
                if share.size > self.state.largest * (1 + SLACK):
                    continue
                of_piece = self.search.piece_weights(pair, weights, cut, first, whole)
                found = self.search.cheapest(pair, of_piece, share)
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
        return self.state.index_for(pair).most_room() >= self.search.need(smallest)


def _halves(piece: Piece, side: int, at: int) -> tuple[Piece, Piece]:
    if side == 0:
        return piece._replace(left_end=at), piece._replace(left=at)
    return piece._replace(right_end=at), piece._replace(right=at)
