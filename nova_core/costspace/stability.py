"""How far nodes move from one cost space to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nova_core.costspace.cost_space import CostSpace
from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints


@dataclass(frozen=True, eq=False)
class Drift:
    """What changed between two spaces of the same nodes.

    Attributes:
        moved: (n,) how far each node moved after the best rigid motion, ms; a change of its height
            counts as one more dimension.
        mean: ms.
        median: ms.
        p90: ms.
        distance_change: median relative change of estimated latencies, over a sample of pairs.
    """

    moved: Floats
    mean: float
    median: float
    p90: float
    distance_change: float

    def farthest(self, count: int = 10) -> Ints:
        """The nodes that moved farthest, farthest first."""
        return np.asarray(np.argsort(-self.moved, kind="stable")[:count])


def aligned(space: CostSpace, reference: CostSpace) -> CostSpace:
    """The space turned, mirrored and shifted onto another of the same nodes (Procrustes).

    Raises:
        ProblemError: for spaces of other sizes.
    """
    from scipy.linalg import orthogonal_procrustes

    _same_shape(space, reference)
    centre, onto = space.position.mean(axis=0), reference.position.mean(axis=0)
    rotation, _ = orthogonal_procrustes(space.position - centre, reference.position - onto)
    return CostSpace((space.position - centre) @ rotation + onto, space.height, space.error)


def drift(before: CostSpace, after: CostSpace, *, seed: int = 0) -> Drift:
    """How far nodes moved between two spaces, once one is aligned with the other.

    Args:
        before: n nodes.
        after: the same nodes, later.
        seed: of the sample of pairs.

    Raises:
        ProblemError: for spaces of other sizes.
    """
    turned = aligned(after, before)
    square = ((turned.position - before.position) ** 2).sum(axis=1)
    if before.height is not None and after.height is not None:
        square += (after.height - before.height) ** 2
    moved = np.sqrt(square)
    n = len(before)
    random = np.random.default_rng(seed)
    a, b = random.integers(0, n, (2, min(100_000, 50 * n)))
    a, b = a[a != b], b[a != b]
    old, new = before.distance(a, b), after.distance(a, b)
    change = np.abs(new - old)[old > 0] / old[old > 0]
    return Drift(
        moved=moved,
        mean=float(moved.mean()),
        median=float(np.median(moved)),
        p90=float(np.quantile(moved, 0.9)),
        distance_change=float(np.median(change)) if len(change) else 0.0,
    )


def drifts(spaces: Sequence[CostSpace]) -> list[Drift]:
    """The drift from each space to the next, such as from hour to hour."""
    return [drift(before, after) for before, after in pairwise(spaces)]


def _same_shape(one: CostSpace, other: CostSpace) -> None:
    if one.position.shape != other.position.shape or (one.height is None) != (other.height is None):
        raise ProblemError(
            f"spaces of {len(one)} nodes in {one.dimensions}-d and {len(other)} nodes in "
            f"{other.dimensions}-d, or one with heights and one without, cannot be compared"
        )


__all__ = ["Drift", "aligned", "drift", "drifts"]
