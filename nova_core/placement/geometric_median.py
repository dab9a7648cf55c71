"""Phase II: the point that minimizes the weighted sum of distances to anchors (paper, Eq. 6)."""

from __future__ import annotations

import numpy as np

from nova_core.model.problem import Floats, Problem


def geometric_median(anchors: Floats, weights: Floats) -> Floats:
    """Minimize sum_i w_i |x_i - y| over y for many sets of three anchors, see `kernels.median`.

    Args:
        anchors: (p, 3, d) coordinates, ms.
        weights: (p, 3) non-negative, at least one positive per row.

    Returns:
        (p, d) optimal points, one per row even where several are optimal.
    """
    from nova_core.placement.kernels.median import fermat_points

    points: Floats = fermat_points(np.ascontiguousarray(anchors), np.ascontiguousarray(weights))
    return points


def weighted_distance(anchors: Floats, weights: Floats, points: Floats) -> Floats:
    """(p,) objective sum_i w_i |x_i - y| of (p, d) points for (p, k, d) anchors."""
    distance = np.linalg.norm(anchors - points[:, None, :], axis=2)
    return np.asarray((weights * distance).sum(axis=1))


def pair_anchors(problem: Problem) -> Floats:
    """(p, 3, d) anchors of every pair: left source, right source, sink."""
    return problem.nodes.position[problem.pair_ends]
