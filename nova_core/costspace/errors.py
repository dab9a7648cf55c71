"""How well a cost space estimates measured latencies."""

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


__all__ = ["ErrorReport", "errors"]
