"""The hosts that may run some joins, searchable by place and room, as they come, go and move."""

from __future__ import annotations

import math

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live import tree as kernels
from nova_core.placement.kernels.live.tree import LiveTree

# A tree with this many hosts, more than half of which have changed, is built anew.
_FEW = 1024


class HostTree:
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


class HostIndex:
    """Hosts by place, and around hubs by distance.

    Where many joins have one virtual position (a sink's, mostly), the hosts around it are full up
    to a rim that a search by place walks along, host by host. By their distance from such a hub
    hosts lie on a line, and the nearest with room is found in log n. Both find the same ones.

    Attributes:
        place: every host at its coordinates.
        hubs: every host at its distance, ms, from each hub.
    """

    def __init__(self, rows: Floats, node: Ints, nodes: int, hubs: Floats | None = None) -> None:
        """Index hosts.

        Args:
            rows: (h, d + 2) coordinates, ms, rise, ms, and free capacity, tuples/s.
            node: (h,) their node indices.
            nodes: rows of the table of nodes.
            hubs: (k, d) points that many searches start from, ms.
        """
        self.hubs: dict[tuple[float, ...], HostTree] = {}
        d = rows.shape[1] - 2
        for hub in [] if hubs is None or d < 2 else hubs:
            square = np.zeros(len(rows))
            for k in range(d):
                square += (rows[:, k] - hub[k]) ** 2
            line = np.column_stack([np.sqrt(square), rows[:, d:]])
            self.hubs[tuple(hub.tolist())] = HostTree(line, node.copy(), nodes)
        self.place = HostTree(rows, node, nodes)

    @property
    def tree(self) -> LiveTree:
        """Every host at its coordinates, to be searched."""
        return self.place.tree

    def tree_at(self, point: Floats) -> LiveTree:
        """The tree to search from a (d,) point: one of one dimension if that is a hub."""
        if self.hubs:
            around = self.hubs.get(tuple(point.tolist()))
            if around is not None:
                return around.tree
        return self.place.tree

    def reserve(self, nodes: int) -> None:
        """Make room for a table of ``nodes`` nodes."""
        self.place.reserve(nodes)
        for around in self.hubs.values():
            around.reserve(nodes)

    def __contains__(self, node: int) -> bool:
        return node in self.place

    def row_of(self, node: int) -> Floats | None:
        """(d + 2,) copy of a host's row; None for a node that is not there."""
        return self.place.row_of(node)

    def insert(self, node: int, row: Floats) -> None:
        """Add a host that is not there: its node index and (d + 2,) row."""
        self.place.insert(node, row)
        for hub, around in self.hubs.items():
            around.insert(node, _around(hub, row))

    def remove(self, node: int) -> None:
        """Take a host out, if it is there."""
        self.place.remove(node)
        for around in self.hubs.values():
            around.remove(node)

    def set_free(self, node: int, free: float) -> None:
        """Tell the free capacity of a host, if it is there."""
        self.place.set_free(node, free)
        for around in self.hubs.values():
            around.set_free(node, free)

    def tell_hubs(self, nodes: list[int], free: Floats) -> None:
        """Tell the trees around hubs alone the free capacities of some hosts, out of all."""
        for around in self.hubs.values():
            row, _, slot, box, link, parent, owner, _ = around.tree
            kernels.set_some_free(row, slot, box, link, parent, owner, np.array(nodes), free)

    def most_room(self) -> float:
        """Greatest free capacity of a host, tuples/s; 0 without hosts."""
        return self.place.most_room()


def _around(hub: tuple[float, ...], row: Floats) -> Floats:
    """A host's row on the line of distances from a hub, rounded as a search by place rounds."""
    values = row.tolist()
    square = 0.0
    for x, y in zip(values, hub, strict=False):
        square += (x - y) * (x - y)
    return np.array([math.sqrt(square), *values[-2:]])


__all__ = ["HostIndex", "HostTree"]
