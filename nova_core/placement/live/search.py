"""Finding near hosts with room for a join, and what it costs there."""

from __future__ import annotations

import math

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live import hosts as kernels
from nova_core.placement.kernels.live.columns import HOST
from nova_core.placement.live.pieces import Piece, Pieces, Share, piece_share
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import IN_PIECES

# A join goes to the host nearest to its virtual position, here and in `kernels.live.settle`.
# After 10,000 random events on 10,000 nodes the objective is 1.0226 times that of a full
# optimization; the cheapest of the two nearest gave 1.0211, of four 1.0210, but a sink's move took
# 6 % and 30 % longer.
#
# The most that are looked at when links decide.
MOST_NEARBY = 4096
# A host with this much less than is needed still has room: rounding, far below the tolerance.
SLACK = 1e-10


class HostSearch:
    """Looks for hosts in a state, and changes nothing."""

    def __init__(self, state: LiveState) -> None:
        self.state = state
        self._node = np.empty(1, np.int64)
        self._cost = np.empty(1)
        self._stack = np.empty(kernels.SEARCH_STACK, np.int64), np.empty(kernels.SEARCH_STACK)

    def near(
        self, pair: int, weights: Floats, need: float, count: int = 1
    ) -> list[tuple[int, float]]:
        """Hosts with room near a pair's virtual position and what it costs there, cheapest first.

        Args:
            pair: whose virtual position and requirement count.
            weights: (3,) of the legs of what is to be placed.
            need: tuples/s a host must have free; minus infinity for any host.
            count: how many of the nearest are compared.
        """
        node, cost = self._node, self._cost
        if count != 1:
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
            *self._stack,
        )
        return found

    def need(self, size: float) -> float:
        """What a host must have free for an instance, tuples/s (paper, Eqs. 2 and 3)."""
        return max(size, self.state.c_min) * (1 - SLACK)

    def cheapest(self, pair: int, weights: Floats, share: Share) -> tuple[int, float] | None:
        """The cheapest near host with room for a share of a pair, and its cost there."""
        if not self.state.link_free:
            node, cost = self._node, self._cost
            if self._search(pair, weights, self.need(share.size), node, cost) == 0:
                return None
            return node.item(0), cost.item(0)
        count = 1
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
        for host, cost in self.near(pair, weights, self.need(share.size), 2):
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
            self.cost_on(pair, self.piece_weights(pair, weights, pieces, p, whole), p.node)
            for p in pieces.pieces
        )

    def piece_weights(
        self, pair: int, weights: Floats, cut: Pieces, piece: Piece, whole: Share
    ) -> Floats:
        """(3,) weights of a piece's legs, see `LiveState.weights` for those of the whole."""
        if self.state.objective != "network-usage":
            return weights * (piece.cells / (len(cut.left) * len(cut.right)))
        return np.array(piece_share(cut, piece, whole))
