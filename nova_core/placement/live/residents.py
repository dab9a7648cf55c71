"""Who runs on each node: whole joins in lists that kernels change too, those in pieces beside."""

from __future__ import annotations

from nova_core.model.problem import Ints
from nova_core.placement.kernels.live import residents as kernels
from nova_core.placement.live.tables import NodeRows, PairRows


class Residents:
    """Pairs by the nodes they run on.

    Kernels bring in and take out pairs that run whole; `add` and `discard` are for those in pieces.
    """

    def __init__(self, nodes: NodeRows, pairs: PairRows, node: Ints, pair: Ints) -> None:
        """Take over pairs that run whole.

        Args:
            nodes: the nodes.
            pairs: the pairs.
            node: (k,) where they run.
            pair: (k,) those pairs.
        """
        self._nodes = nodes
        self._pairs = pairs
        self._in_pieces: dict[int, dict[int, None]] = {}
        kernels.enter_all(nodes.hosted, pairs.chain, node, pair)

    def of(self, node: int) -> list[int]:
        """Pairs that run on a node."""
        found = list(self._in_pieces.get(node, ()))
        after = self._pairs.chain
        pair = self._nodes.hosted.item(node, kernels.FIRST)
        while pair >= 0:
            found.append(pair)
            pair = after.item(pair, kernels.AFTER)
        return found

    def any_on(self, node: int) -> bool:
        """Whether a pair runs on a node."""
        hosted = self._nodes.hosted
        return hosted.item(node, kernels.FIRST) >= 0 or hosted.item(node, kernels.PIECES) > 0

    def add(self, node: int, pair: int) -> None:
        """A pair runs on a node with some of its pieces."""
        self._in_pieces.setdefault(node, {})[pair] = None
        self._nodes.hosted[node, kernels.PIECES] += 1

    def discard(self, node: int, pair: int) -> None:
        """The opposite of `add`."""
        del self._in_pieces[node][pair]
        self._nodes.hosted[node, kernels.PIECES] -= 1

    def enter(self, node: int, pair: int) -> None:
        """A pair runs whole on a node; capacities are none of this."""
        kernels.enter(self._nodes.hosted, self._pairs.chain, node, pair)

    def leave(self, node: int, pair: int) -> None:
        """The opposite of `enter`."""
        kernels.leave(self._nodes.hosted, self._pairs.chain, node, pair)
