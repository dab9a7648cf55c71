"""A cost space compared with measured latencies, and with another of the same nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.measurements import pairs_of, usable
from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints, PairLatencies


@dataclass(frozen=True, eq=False)
class ErrorReport:
    """Errors of the estimates of measured pairs, each pair once.

    Attributes:
        pairs: how many.
        mae: mean |estimate - measured|, ms.
        median_error: median |estimate - measured|, ms.
        p90_error: its 90th percentile, ms.
        median_relative: median |estimate - measured| / measured; pairs measured as 0 do not count.
        p90_relative: its 90th percentile.
        bias: mean of estimate - measured, ms; above 0 where estimates are too long.
        stress: Kruskal's stress-1, sqrt(sum (estimate - measured)^2 / sum measured^2).
        node_mae: (n,) mean |estimate - measured| of each node's pairs, ms; NaN without any.
    """

    pairs: int
    mae: float
    median_error: float
    p90_error: float
    median_relative: float
    p90_relative: float
    bias: float
    stress: float
    node_mae: Floats

    def worst_nodes(self, count: int = 10) -> Ints:
        """The nodes whose pairs are off most on average, worst first."""
        measured = np.flatnonzero(~np.isnan(self.node_mae))
        order = np.argsort(-self.node_mae[measured], kind="stable")
        return np.asarray(measured[order[:count]])


def errors(space: CostSpace, measured: Floats | PairLatencies) -> ErrorReport:
    """Compare a space with measurements.

    Args:
        space: n nodes.
        measured: (n, n) ms with NaN where nothing was measured (directions are averaged), or pairs.

    Raises:
        ProblemError: for measurements of other nodes, or none.
    """
    n = len(space)
    if isinstance(measured, PairLatencies):
        pairs = usable(measured, n)
    elif np.shape(measured) == (n, n):
        pairs = pairs_of(measured)
    else:
        raise ProblemError(f"latencies: shape {np.shape(measured)}; the space has {n} nodes")
    if not len(pairs):
        raise ProblemError("latencies: no pair was measured, so there are no errors to report")
    latency = np.asarray(pairs.latency, np.float64)
    difference = space.distance(pairs.source, pairs.target) - latency
    error = np.abs(difference)
    positive = latency > 0
    relative = error[positive] / latency[positive]
    median_relative, p90_relative = (
        np.quantile(relative, (0.5, 0.9)) if len(relative) else (np.nan, np.nan)
    )
    median_error, p90_error = np.quantile(error, (0.5, 0.9))
    square = float((latency**2).sum())
    count = np.bincount(pairs.source, minlength=n) + np.bincount(pairs.target, minlength=n)
    total = np.bincount(pairs.source, error, n) + np.bincount(pairs.target, error, n)
    return ErrorReport(
        pairs=len(pairs),
        mae=float(error.mean()),
        median_error=float(median_error),
        p90_error=float(p90_error),
        median_relative=float(median_relative),
        p90_relative=float(p90_relative),
        bias=float(difference.mean()),
        stress=float(np.sqrt((difference**2).sum() / square)) if square else np.nan,
        node_mae=np.where(count > 0, total / np.maximum(count, 1), np.nan),
    )


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


def _same_shape(one: CostSpace, other: CostSpace) -> None:
    if one.position.shape != other.position.shape or (one.height is None) != (other.height is None):
        raise ProblemError(
            f"spaces of {len(one)} nodes in {one.dimensions}-d and {len(other)} nodes in "
            f"{other.dimensions}-d, or one with heights and one without, cannot be compared"
        )
