"""An index of hosts by position and free capacity, for hosts that come, go and move."""

from __future__ import annotations

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.state import host_tree as trees
from nova_core.placement.kernels.state import hosts as kernels
from nova_core.placement.kernels.state.tables import shared_tree

# A tree is rebuilt after this many changes plus half of its hosts.
_FEW = 1024


class HostIndex:
    """A `HostTree` of hosts that come, go and move.

    Rebuilding it from time to time costs each change a constant share.

    Attributes:
        tree: to be searched and changed by kernels; another one once it was built anew.
    """

    def __init__(
        self, rows: Floats, node: Ints, hubs: Floats, offer: Ints, requirements: int = 0
    ) -> None:
        """Index hosts.

        Args:
            rows: (h, d + 2) coordinates and access cost, ms, and free capacity, tuples/s.
            node: (h,) their node indices.
            hubs: (k, d) points that many searches start from, ms; of no use in one dimension.
            offer: (n,) bits of the requirements that each row of the table of nodes meets.
            requirements: how many there are.
        """
        self._build(rows, node, hubs, offer, requirements)

    def _build(
        self, rows: Floats, node: Ints, hubs: Floats, offer: Ints, requirements: int
    ) -> None:
        tree = trees.empty_tree(len(offer), len(node), hubs, requirements)
        self.tree = tree._replace(offer=offer[: len(tree.offer)])
        trees.fill(self.tree, rows, node)
        self._shared = shared_tree(self.tree)
        self._offer, self._requirements = offer, requirements
        self._changes_left = len(node) // 2 + _FEW
        self._deepest = 2 * max(1, len(node) // trees.FILL).bit_length() + 12

    def _build_anew(self) -> None:
        node, row = self.hosts()
        self._build(row, node, self.tree.hub, self._offer, self._requirements)

    def hosts(self) -> tuple[Ints, Floats]:
        """(h,) node indices of all hosts, and their (h, d + 2) rows."""
        node, row = self.tree.node[0], self.tree.row[0]
        slots = np.flatnonzero(node >= 0)
        return node[slots], row[slots]

    def reserve(self, nodes: int) -> None:
        """Make room for a table of ``nodes`` nodes."""
        tree, known = self.tree, len(self._offer)
        self._offer = np.concatenate([self._offer, np.zeros(nodes - known, np.int64)])
        slot = np.full((len(tree.slot), nodes), -1, np.int64)
        slot[:, :known] = tree.slot
        offer = self._offer[: nodes if self._requirements else 0]
        self.tree = tree._replace(slot=slot, offer=offer)
        self._shared = shared_tree(self.tree)

    def meets(self, node: int, requirement: int) -> bool:
        """Whether a node is a host that meets a requirement, counted from 1; 0 for none."""
        if self.tree.slot.item(0, node) < 0:
            return False
        return requirement == 0 or bool(self._offer.item(node) >> (requirement - 1) & 1)

    def row_of(self, node: int) -> Floats | None:
        """(d + 2,) copy of a host's row; None for a node that is not a host."""
        slot = self.tree.slot.item(0, node)
        return None if slot < 0 else self.tree.row[0, slot].copy()

    def replace(self, node: int, row: Floats | None, offer: int = 0) -> None:
        """Remove a host, if the node is one, and add it with another row, if one is given.

        Args:
            node: its node index.
            row: (d + 2,) its new row.
            offer: bits of the requirements it meets; they never change.
        """
        if row is not None:
            self._offer[node] = offer
        values = _NO_ROW if row is None else row
        answer = kernels.replace_host(self._shared, node, values, self._deepest)
        if answer == trees.NO_ROOM:
            self._build_anew()
            kernels.replace_host(self._shared, node, values, self._deepest)
        self._changes_left -= 1
        if answer == trees.TOO_DEEP or self._changes_left < 0:
            self._build_anew()

    def nearest(self, point: Floats, need: float, requirement: int) -> int:
        """The nearest host with room, or -1.

        Args:
            point: (d,) a virtual position, ms.
            need: tuples/s a host must have free.
            requirement: what it must meet, counted from 1; 0 for nothing.
        """
        return int(kernels.nearest_host(self._shared, point, need, requirement))

    def set_free(self, node: int, free: float) -> None:
        """Set the free capacity of a node, if it is a host."""
        kernels.set_host_free(self._shared, node, free)

    def most_room(self, requirement: int) -> float:
        """Greatest free capacity of a host that meets a requirement, tuples/s; 0 without hosts."""
        d = self.tree.hub.shape[1]
        return max(0.0, float(self.tree.box[0, 0, 2 * d + requirement]))


_NO_ROW = np.empty(0)
