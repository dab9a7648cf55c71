"""The hosts that may run some joins, searchable by place and room, as they come, go and move."""

from __future__ import annotations

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live import tree as kernels

# A tree with this many hosts, more than half of which have changed, is built anew.
_FEW = 1024


class HostIndex:
    """A `LiveTree` that grows: building it anew now and then costs each change a constant share.

    Attributes:
        tree: to be searched by `nova_core.placement.kernels.live.hosts`.
    """

    def __init__(self, rows: Floats, node: Ints, nodes: int) -> None:
        """Index hosts.

        Args:
            rows: (h, d + 2) coordinates, ms, rise, ms, and free capacity, tuples/s.
            node: (h,) their node indices.
            nodes: rows of the table of nodes.
        """
        self._build(rows, node, nodes)

    def _build(self, rows: Floats, node: Ints, nodes: int) -> None:
        self.tree = kernels.empty_tree(nodes, len(node), rows.shape[1] - 2)
        kernels.build(self.tree, rows, node)
        self._patience = len(node) // 2 + _FEW
        self._deepest = 2 * max(1, len(node) // kernels.FILL).bit_length() + 12

    def _build_anew(self) -> None:
        old = self.tree
        slots = np.flatnonzero(old.node >= 0)
        self._build(old.row[slots], old.node[slots], len(old.slot))

    def reserve(self, nodes: int) -> None:
        """Make room for a table of ``nodes`` nodes."""
        slot = self.tree.slot
        if len(slot) < nodes:
            grown = np.full(nodes, -1, np.int64)
            grown[: len(slot)] = slot
            self.tree = self.tree._replace(slot=grown)

    def __contains__(self, node: int) -> bool:
        return self.tree.slot.item(node) >= 0

    def row_of(self, node: int) -> Floats | None:
        """(d + 2,) copy of a host's row; None for a node that is not there."""
        slot = self.tree.slot.item(node)
        return None if slot < 0 else self.tree.row[slot].copy()

    def insert(self, node: int, row: Floats) -> None:
        """Add a host that is not there: its node index and (d + 2,) row."""
        answer = kernels.insert(*self.tree, node, row, self._deepest)
        if answer == kernels.NO_ROOM:
            self._build_anew()
            kernels.insert(*self.tree, node, row, self._deepest)
        elif answer == kernels.TOO_DEEP:
            self._build_anew()
        self._count_change()

    def remove(self, node: int) -> None:
        """Take a host out, if it is there."""
        kernels.remove(*self.tree[:-1], node)
        self._count_change()

    def set_free(self, node: int, free: float) -> None:
        """Tell the free capacity of a host, if it is there."""
        row, _, slot, box, link, parent, owner, _ = self.tree
        kernels.set_free(row, slot, box, link, parent, owner, node, free)

    def most_room(self) -> float:
        """Greatest free capacity of a host, tuples/s; 0 without hosts."""
        return max(0.0, float(self.tree.box[0, -3]))

    def _count_change(self) -> None:
        self._patience -= 1
        if self._patience < 0:
            self._build_anew()


__all__ = ["HostIndex"]
