"""Physical operator mapping: from a point of the cost space to a node with room (SBON, 3.1.3)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model.problem import Bools, Floats, Ints, Problem

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

NEAREST = 10
"""k of the text: nodes that are asked what they have room for."""

_UNLIMITED = 1e300


def require_hosts(hosts: Ints) -> None:
    """Refuse operators that no node may run.

    Raises:
        InfeasibleError: when there are no hosts.
    """
    if len(hosts) == 0:
        raise InfeasibleError("no node may run operators; make one a worker", 1.0)


class Mapper:
    """Nodes of a cost space, and what each still has room for.

    Args:
        position: (n, d) coordinates in the latency dimensions, ms.
        axes: (n, a) further dimensions such as weighted load, or heights, in all of which an
            operator wishes for 0, ms; None for a pure latency space.
        hosts: (n,) nodes that may run operators; None for all.
        room: (n, r) what each node has of each of r resources, e.g. tuples/s and bytes of memory;
            None where resources do not matter.
        k: nodes that are tried first; twice as many whenever none of them has room.

    Attributes:
        room: (n, r) what is left, or None.
        overloaded: how often no node had room, so that the one with most left was taken.

    Raises:
        ProblemError: for columns of different lengths, or k below 1.
    """

    def __init__(
        self,
        position: Floats,
        *,
        axes: Floats | None = None,
        hosts: Bools | None = None,
        room: Floats | None = None,
        k: int = NEAREST,
    ) -> None:
        count = len(position)
        for name, column in (("axes", axes), ("hosts", hosts), ("room", room)):
            if column is not None and len(column) != count:
                raise ProblemError(
                    f"mapping: {name} has {len(column)} rows; expected {count}, one a node"
                )
        if k < 1:
            raise ProblemError(f"mapping: k is {k}; expected 1 or more")
        extra = np.empty((count, 0)) if axes is None else axes
        self.position = position
        self._place = np.concatenate([position, extra], axis=1)
        self._host = np.arange(count) if hosts is None else np.flatnonzero(hosts)
        self.room = None if room is None else room.astype(np.float64)
        self._k = k
        self.overloaded = 0

    @classmethod
    def of(cls, problem: Problem, k: int = NEAREST) -> Mapper:
        """A problem's workers and their capacity; heights and penalties are further dimensions."""
        nodes = problem.nodes
        extra = [column for column in (nodes.height, nodes.penalty) if column is not None]
        return cls(
            nodes.position,
            axes=np.stack(extra, axis=1) if extra else None,
            hosts=nodes.worker,
            room=np.stack([nodes.capacity, np.full(len(nodes), np.inf)], axis=1),
            k=k,
        )

    @cached_property
    def _tree(self) -> cKDTree:
        from scipy.spatial import cKDTree

        return cKDTree(self._place[self._host])

    def _target(self, points: Floats) -> Floats:
        """(m, d + a) points with 0 in the further dimensions."""
        target = np.zeros((len(points), self._place.shape[1]))
        target[:, : points.shape[1]] = points
        return target

    def nearest(self, points: Floats, k: int | None = None) -> Ints:
        """(m, k) nodes near (m, d) points, the nearest first.

        Raises:
            InfeasibleError: when no node may run operators.
        """
        require_hosts(self._host)
        k = min(k or self._k, len(self._host))
        rows = self._tree.query(self._target(points), k=k)[1]
        return np.asarray(self._host[rows].reshape(-1, k), np.int64)

    def away(self, point: Floats, nodes: Ints) -> Floats:
        """(k,) distance of nodes from a (d,) point in the whole cost space, ms."""
        target = self._target(point[None, :])
        return np.asarray(np.linalg.norm(self._place[nodes] - target, axis=1))

    def take(self, node: int, need: Floats) -> None:
        """Charge a node."""
        if self.room is not None:
            self.room[node] -= need

    def release(self, node: int, need: Floats) -> None:
        """Give back what was taken."""
        if self.room is not None:
            self.room[node] += need

    def place(
        self, point: Floats, need: Floats, allowed: Bools | None = None, near: Ints | None = None
    ) -> int:
        """The node that `find` finds, charged with what is needed.

        Where none has room, it is the one with most of the first resource left.

        Raises:
            InfeasibleError: when no node may run the operator.
        """
        node = self.find(point, need, allowed, near)
        if node is None:
            node = self._roomiest(need, allowed)
            self.overloaded += 1
        self.take(node, need)
        return node

    def find(
        self, point: Floats, need: Floats, allowed: Bools | None = None, near: Ints | None = None
    ) -> int | None:
        """The nearest node to a point that has room, None where none has.

        Args:
            point: (d,) target, ms.
            need: (r,) of each resource.
            allowed: (n,) nodes that meet the operator's requirements; None for all.
            near: nodes near the point, nearest first, where they are known already.

        Raises:
            InfeasibleError: when no node may run operators.
        """
        candidates = near if near is not None else self.nearest(point[None, :])[0]
        while True:
            fits = np.ones(len(candidates), bool) if allowed is None else allowed[candidates]
            if self.room is not None:
                fits = fits & (self.room[candidates] >= need).all(axis=1)
            if fits.any():
                return int(candidates[np.argmax(fits)])
            if len(candidates) == len(self._host):
                return None
            candidates = self.nearest(point[None, :], 2 * len(candidates))[0]

    def place_all(self, points: Floats, needs: Floats, allowed: list[Bools | None]) -> Ints:
        """(m,) nodes of operators, one after the other, see `place`.

        Args:
            points: (m, d) targets, ms.
            needs: (m, r) of each resource.
            allowed: of every operator, (n,) nodes that meet its requirements, or None.
        """
        if len(points) == 0:
            return np.empty(0, np.int64)
        limited = self.room is not None or any(one is not None for one in allowed)
        if limited and self._one_resource and all(one is None for one in allowed):
            return self._in_turn(points, needs[:, 0])
        near = self.nearest(points, self._k if limited else 1)
        if not limited:
            return near[:, 0]
        rows = zip(points, needs, allowed, near, strict=True)
        return np.array([self.place(*row) for row in rows], np.int64)

    @property
    def _one_resource(self) -> bool:
        """Whether only the first resource is limited."""
        return self.room is not None and bool(np.isinf(self.room[:, 1:]).all())

    def _in_turn(self, points: Floats, required: Floats) -> Ints:
        """`place` of one point after the other, with a tree of the nodes' free capacity.

        Doubling k finds the same nodes, but examines all full ones on the way.

        Raises:
            InfeasibleError: when no node may run operators.
        """
        from nova_core.placement.kernels.capacity_tree import build
        from nova_research.sbon.kernels.hosts import map_in_turn

        assert self.room is not None
        require_hosts(self._host)
        tree = build(self._place, np.minimum(self.room[:, 0], _UNLIMITED), self._host)
        nodes, overloaded = map_in_turn(tree, self._target(points), required)
        np.subtract.at(self.room[:, 0], nodes, required)
        self.overloaded += overloaded
        return np.asarray(nodes)

    def _roomiest(self, need: Floats, allowed: Bools | None) -> int:
        nodes = self._host if allowed is None else self._host[allowed[self._host]]
        if len(nodes) == 0:
            raise InfeasibleError(
                "no node that may run operators meets the requirements of one of them",
                float(need[0]) if len(need) and need[0] > 0 else 1.0,
            )
        assert self.room is not None  # without limits, the first allowed node has room
        return int(nodes[np.argmax(self.room[nodes, 0])])
