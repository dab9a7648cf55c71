"""The hosts that may run some joins, searchable by place and room, as they come, go and move."""

from __future__ import annotations

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live import tree as kernels

# A forest with this many hosts, more than half of which have changed, is built anew.
_FEW = 1024


class HostIndex:
    """Hosts by place, and around hubs by distance.

    Where many joins have one virtual position (a sink's, mostly), the hosts around it are full up
    to a rim that a search by place walks along, host by host. By their distance from such a hub
    hosts lie on a line, and the nearest with room is found in log n. Both find the same ones.

    It grows: building it anew now and then costs each change a constant share.

    Attributes:
        forest: to be searched by `nova_core.placement.kernels.live.hosts`.
        searched: those of its arrays that a search takes.
        told: those that a host's room is written to.
    """

    def __init__(self, rows: Floats, node: Ints, nodes: int, hubs: Floats | None = None) -> None:
        """Index hosts.

        Args:
            rows: (h, d + 2) coordinates, ms, rise, ms, and free capacity, tuples/s.
            node: (h,) their node indices.
            nodes: rows of the table of nodes.
            hubs: (k, d) points that many searches start from, ms; of no use in one dimension.
        """
        d = rows.shape[1] - 2
        self._hubs = np.empty((0, d)) if hubs is None or d < 2 else hubs.reshape(-1, d)
        self._build(rows, node, nodes)

    def _build(self, rows: Floats, node: Ints, nodes: int) -> None:
        self._set(kernels.empty_forest(nodes, len(node), self._hubs))
        kernels.build(self.forest, rows, node)
        self._patience = len(node) // 2 + _FEW
        self._deepest = 2 * max(1, len(node) // kernels.FILL).bit_length() + 12

    def _set(self, forest: kernels.Forest) -> None:
        f = self.forest = forest
        self.searched = (f.row, f.node, f.box, f.link, f.hub)
        self.told = (f.row, f.slot, f.box, f.link, f.parent, f.owner)
        self._removed_from = (f.row, f.node, f.slot, f.box, f.link, f.parent, f.owner)

    def _build_anew(self) -> None:
        node, row = self.hosts()
        self._build(row, node, self.forest.slot.shape[1])

    def hosts(self) -> tuple[Ints, Floats]:
        """(h,) node indices of all hosts, and their (h, d + 2) rows."""
        node, row = self.forest.node[0], self.forest.row[0]
        slots = np.flatnonzero(node >= 0)
        return node[slots], row[slots]

    @property
    def hubs(self) -> int:
        """How many hubs there are."""
        return len(self._hubs)

    def reserve(self, nodes: int) -> None:
        """Make room for a table of ``nodes`` nodes."""
        slot = self.forest.slot
        if slot.shape[1] < nodes:
            grown = np.full((len(slot), nodes), -1, np.int64)
            grown[:, : slot.shape[1]] = slot
            self._set(self.forest._replace(slot=grown))

    def __contains__(self, node: int) -> bool:
        return self.forest.slot.item(0, node) >= 0

    def row_of(self, node: int) -> Floats | None:
        """(d + 2,) copy of a host's row; None for a node that is not there."""
        slot = self.forest.slot.item(0, node)
        return None if slot < 0 else self.forest.row[0, slot].copy()

    def insert(self, node: int, row: Floats) -> None:
        """Add a host that is not there: its node index and (d + 2,) row."""
        answer = kernels.insert(*self.forest, node, row, self._deepest)
        if answer == kernels.NO_ROOM:
            self._build_anew()
            kernels.insert(*self.forest, node, row, self._deepest)
        elif answer == kernels.TOO_DEEP:
            self._build_anew()
        self._count_change()

    def remove(self, node: int) -> None:
        """Take a host out, if it is there."""
        kernels.remove(*self._removed_from, node)
        self._count_change()

    def set_free(self, node: int, free: float) -> None:
        """Tell the free capacity of a host, if it is there."""
        kernels.set_free(*self.told, node, free)

    def most_room(self) -> float:
        """Greatest free capacity of a host, tuples/s; 0 without hosts."""
        return max(0.0, float(self.forest.box[0, 0, -3]))

    def _count_change(self) -> None:
        self._patience -= 1
        if self._patience < 0:
            self._build_anew()
