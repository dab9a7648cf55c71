"""The cost space: where every node lies, so that distances estimate latencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints


@dataclass(frozen=True, eq=False)
class CostSpace:
    """Coordinates of n nodes.

    The latency between two nodes is estimated as |x_a - x_b| + h_a + h_b; without heights the
    last two are not there. A height is what a node's own access link adds to every path
    (Dabek et al. 2004, section 5.4).

    Attributes:
        position: (n, d) coordinates, ms; centred, principal axes first.
        height: (n,) ms >= 0, or None for a space without heights.
        error: (n,) how far a node's measurements are off: sum |estimate - measured| over sum of
            measured; 0 is perfect. None where it is not known.
    """

    position: Floats
    height: Floats | None = None
    error: Floats | None = None

    def __post_init__(self) -> None:
        n = len(self.position)
        if self.position.ndim != 2:
            raise ProblemError(
                f"cost space: positions of shape {self.position.shape}; "
                "expected (nodes, dimensions)"
            )
        for name, column in (("heights", self.height), ("errors", self.error)):
            if column is not None and column.shape != (n,):
                raise ProblemError(
                    f"cost space: {name} of shape {column.shape}; expected ({n},), one a node"
                )

    def __len__(self) -> int:
        return len(self.position)

    @property
    def dimensions(self) -> int:
        """Number of coordinates of a node, heights not counted."""
        return int(self.position.shape[1])

    def distance(self, a: Ints, b: Ints) -> Floats:
        """Estimated latencies, ms, between nodes a and b (arrays that broadcast); 0 to itself."""
        a, b = np.asarray(a), np.asarray(b)
        square = np.zeros(np.broadcast_shapes(a.shape, b.shape))
        for k in range(self.dimensions):
            square += (self.position[a, k] - self.position[b, k]) ** 2
        estimate = np.sqrt(square)
        if self.height is not None:
            estimate = np.where(a == b, 0.0, estimate + self.height[a] + self.height[b])
        return np.asarray(estimate)

    def matrix(self) -> Floats:
        """(n, n) estimated latencies between all nodes, ms."""
        node = np.arange(len(self))
        return self.distance(node[:, None], node[None, :])

    def take(self, nodes: Ints) -> CostSpace:
        """The space of some of the nodes, in the order given."""
        height = None if self.height is None else self.height[nodes]
        error = None if self.error is None else self.error[nodes]
        return CostSpace(self.position[nodes], height, error)
