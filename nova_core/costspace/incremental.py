"""A cost space that nodes join, leave and drift in, each in constant time (paper, section 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.embedding import packed
from nova_core.costspace.measurements import check_latencies
from nova_core.costspace.percentile_filter import filtered
from nova_core.costspace.vivaldi import TUNING
from nova_core.errors import ProblemError
from nova_core.io.latencies import MOST_LIKELY
from nova_core.model.problem import Bools, Floats, Ints

# Places a new node tries besides the middle of its neighbours; a known one seldom needs another.
_TRIES_NEW, _TRIES_KNOWN = 12, 2
_STEPS = 40


@dataclass(frozen=True, eq=False)
class Location:
    """Where measurements put one node.

    Attributes:
        position: (d,) ms.
        height: ms, or None in a space without heights.
        error: sum |estimate - measured| over sum of measured, of its own measurements.
    """

    position: Floats
    height: float | None
    error: float


# A measurement that the place misses by at least this share of the greater of both fits nothing.
_MISSED = 0.9


@dataclass(frozen=True, eq=False)
class Fit:
    """What was measured to others, and what a location makes of it.

    Attributes:
        measured: (m,) ms, one for each of the others: a low percentile of what was measured.
        estimate: (m,) ms.
    """

    measured: Floats
    estimate: Floats

    @property
    def absurd(self) -> Bools:
        """(m,) which measurements fit nothing: hardly any of the estimate, or no network's."""
        apart = np.abs(self.estimate - self.measured)
        greater = np.maximum(self.estimate, self.measured)
        missed = (apart > _MISSED * greater) & (apart > np.median(self.measured))
        return missed | (self.measured > MOST_LIKELY)


class LiveCostSpace:
    """A cost space that changes; nodes keep their indices while others come and go."""

    def __init__(self, space: CostSpace, seed: int = 0) -> None:
        """Take over a space; it is copied.

        Args:
            space: the nodes so far, 0 to n - 1.
            seed: of the places new nodes try.
        """
        self._dimensions = space.dimensions
        self._high = space.height is not None
        self._state = packed(space)
        self._error = np.zeros(len(space)) if space.error is None else space.error.copy()
        self._present = np.ones(len(space), bool)
        self._count = len(space)
        self._seed = seed

    def __len__(self) -> int:
        """Nodes present and removed; indices are below."""
        return self._count

    @property
    def present(self) -> Bools:
        """(n,) False for removed nodes."""
        return self._present[: self._count].copy()

    def space(self) -> CostSpace:
        """All nodes as they are now, removed ones included: take those that are ``present``."""
        state = self._state[: self._count].astype(np.float64)
        position = state[:, : self._dimensions].copy()
        height = state[:, self._dimensions].copy() if self._high else None
        return CostSpace(position, height, self._error[: self._count].copy())

    def location(self, node: int) -> Location:
        """A node's location."""
        return self._location(self._state[self._known(node)], float(self._error[node]))

    def locate(self, neighbours: ArrayLike, latency: ArrayLike) -> Location:
        """Where a node with these measurements belongs; nothing changes.

        Args:
            neighbours: (m,) nodes it measured.
            latency: (m,) ms.

        Raises:
            ProblemError: for no measurements, nodes that are not there, latencies that cannot be.
        """
        nodes, measured = self._measurements(neighbours, latency, None)
        return self._location(*self._solve(nodes, measured, None))

    def add(self, neighbours: ArrayLike, latency: ArrayLike) -> int:
        """Add a node where its measurements put it; no other node moves.

        Args:
            neighbours: (m,) nodes it measured; d + 1 or more determine its position.
            latency: (m,) ms.

        Returns:
            Its index.

        Raises:
            ProblemError: as `locate`.
        """
        nodes, measured = self._measurements(neighbours, latency, None)
        state, error = self._solve(nodes, measured, None)
        if self._count == len(self._state):
            self._grow()
        node = self._count
        self._state[node], self._error[node], self._present[node] = state, error, True
        self._count += 1
        return node

    def update(self, node: int, neighbours: ArrayLike, latency: ArrayLike) -> float:
        """Move a node to where its latest measurements put it.

        Args:
            node: its index.
            neighbours: (m,) others it measured.
            latency: (m,) ms, best filtered (`percentile_filter`).

        Returns:
            How far it moved, ms; a change of height counts as one more dimension.

        Raises:
            ProblemError: as `locate`, or when the node is not there.
        """
        self._known(node)
        nodes, measured = self._measurements(neighbours, latency, node)
        before = self._state[node].copy()
        self._state[node], self._error[node] = self._solve(nodes, measured, before)
        return float(np.linalg.norm(self._state[node].astype(np.float64) - before))

    def observe(self, node: int, neighbour: int, latency: float) -> float:
        """Move a node by one measurement, as in Vivaldi: by its confidence against the other's.

        Args:
            node: who measured.
            neighbour: whom.
            latency: ms.

        Returns:
            How far it moved, ms.

        Raises:
            ProblemError: for nodes that are not there, or a latency that cannot be.
        """
        self._known(node)
        nodes, measured = self._measurements([neighbour], [latency], node)
        d = self._dimensions
        own, other = self._state[node].astype(np.float64), self._state[nodes[0]].astype(np.float64)
        vector = own - other
        both = 0.0
        if self._high:
            vector[d] = both = own[d] + other[d]
        apart = float(np.linalg.norm(vector[:d]))
        if apart == 0:
            # At the same position: separate in a direction that differs from pair to pair.
            vector[:d] = np.random.default_rng((self._seed, node, nodes[0])).normal(size=d) * 1e-6
            apart = float(np.linalg.norm(vector[:d]))
        missing = float(measured[0]) - apart - both
        own_error, other_error = min(self._error[node], 1.0), min(self._error[nodes[0]], 1.0)
        weight = own_error / (own_error + other_error) if own_error else 0.0
        relative = min(abs(missing) / max(float(measured[0]), 1e-3), 1.0)
        moved = own + TUNING.step * weight * missing / (apart + both) * vector
        if self._high:
            moved[d] = max(moved[d], 0.0)
        # The error of a node that fits perfectly must still be able to grow.
        self._error[node] = own_error + TUNING.trust * max(weight, 0.1) * (relative - own_error)
        self._state[node] = moved
        return float(np.linalg.norm(moved - own))

    def remove(self, node: int) -> None:
        """Take a node out; its index is not used again.

        Raises:
            ProblemError: when it is not there.
        """
        self._present[self._known(node)] = False

    def _known(self, node: int) -> int:
        if not 0 <= node < self._count or not self._present[node]:
            raise ProblemError(f"cost space: node {node} is not there")
        return node

    def _measurements(
        self, neighbours: ArrayLike, latency: ArrayLike, node: int | None
    ) -> tuple[Ints, NDArray[np.float32]]:
        nodes = np.atleast_1d(np.asarray(neighbours, np.int64))
        measured = np.atleast_1d(np.asarray(latency, np.float64))
        if nodes.shape != measured.shape or nodes.ndim != 1:
            raise ProblemError(
                f"measurements: {nodes.size} neighbours and {measured.size} latencies; expected "
                "one latency for each neighbour"
            )
        valid = ~np.isnan(measured)
        if node is not None:
            valid &= nodes != node
        nodes, measured = nodes[valid], measured[valid]
        if not len(nodes):
            raise ProblemError("measurements: none; a node is placed by latencies to others")
        for other in nodes.tolist():
            self._known(other)
        check_latencies(measured, lambda i: f"measurements: to node {nodes[i]}")
        return nodes, measured.astype(np.float32)

    def _solve(
        self, nodes: Ints, latency: NDArray[np.float32], before: NDArray[np.float32] | None
    ) -> tuple[NDArray[np.float32], float]:
        """A state that fits measurements to fixed others, and its relative error."""
        from nova_core.costspace.kernels import place
        from nova_core.costspace.kernels.graph import Entries

        others = self._state[nodes]
        d, m = self._dimensions, len(nodes)
        middle = np.median(others, axis=0)
        own = np.array([middle if before is None else before], np.float32)
        entries = Entries(np.array([0, m]), np.arange(m, dtype=np.int32), latency)
        effort = place.Effort(_TRIES_NEW if before is None else _TRIES_KNOWN, _STEPS, True)
        place.place(
            0, 1, entries, others, own, d, effort,
            float(latency.mean()) or 1.0, float(np.median(latency)) or 1.0, self._seed,
        )  # fmt: skip
        state = own[0]
        estimate = np.linalg.norm(others[:, :d] - state[:d], axis=1)
        if self._high:
            estimate += others[:, d] + state[d]
        off, total = float(np.abs(estimate - latency).sum()), float(latency.sum())
        return state, off / total if total else off

    def _location(self, state: NDArray[np.float32], error: float) -> Location:
        d = self._dimensions
        height = float(state[d]) if self._high else None
        return Location(state[:d].astype(np.float64), height, error)

    def _grow(self) -> None:
        """Double the arrays, so that adding a node takes constant time on average."""
        room = max(2 * self._count, 16)
        state = np.empty((room, self._state.shape[1]), np.float32)
        error, present = np.zeros(room), np.zeros(room, bool)
        state[: self._count] = self._state
        error[: self._count] = self._error
        present[: self._count] = self._present
        self._state, self._error, self._present = state, error, present


def located(
    position: Floats, height: Floats | None, latency: Sequence[Floats]
) -> tuple[Location, Fit]:
    """The location of a node from its measurements to others, which stay in place.

    Args:
        position: (m, d) of the others, ms.
        height: (m,) of the others, ms, or None in a space without heights.
        latency: what was measured to each of them, ms, in order of time; a low percentile of the
            last measurements counts (`percentile_filter`).

    Raises:
        ProblemError: as `LiveCostSpace.locate`.
    """
    others = np.arange(len(position))
    key = np.repeat(others, [len(one) for one in latency])
    ms = filtered(key, np.concatenate(latency))[1] if len(others) else np.empty(0)
    location = LiveCostSpace(CostSpace(position, height)).locate(others, ms)
    estimate = np.linalg.norm(position - location.position, axis=1)
    if height is not None and location.height is not None:
        estimate += height + location.height
    return location, Fit(ms, estimate)
