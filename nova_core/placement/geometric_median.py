"""Phase II: the point that minimizes the weighted sum of distances to anchors (paper, Eq. 6)."""

from __future__ import annotations

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Bools, Floats, Ints, Problem

_NEWTON_STEPS = 200
_TOLERANCE = 1e-14
# Anchors closer than this share of a set's extent count as one place: no step between them is real.
_SAME_PLACE = 1e-12


def geometric_median(anchors: Floats, weights: Floats | None = None) -> Floats:
    """Minimize sum_i w_i |x_i - y| over y, for many anchor sets at once.

    Three anchors have a closed form (`kernels.median`); other numbers are solved by Newton's method
    after testing every anchor for optimality exactly, so landing on one cannot stall the search.

    Args:
        anchors: (p, k, d) coordinates.
        weights: (p, k) non-negative, at least one positive per row; None weighs all alike.

    Returns:
        (p, d) optimal points; where many are optimal, one of them.

    Raises:
        ProblemError: for shapes that do not fit or negative weights.
    """
    anchors = np.ascontiguousarray(anchors, np.float64)
    if anchors.ndim != 3 or anchors.shape[1] == 0:
        raise ProblemError(f"anchors: shape {anchors.shape}; expected (sets, anchors, dimensions)")
    if weights is None:
        weights = np.ones(anchors.shape[:2])
    weights = np.ascontiguousarray(weights, np.float64)
    if weights.shape != anchors.shape[:2] or (weights < 0).any() or (weights.sum(1) <= 0).any():
        raise ProblemError("weights: expected one non-negative weight per anchor, some positive")
    if anchors.shape[1] == 3:
        from nova_core.placement.kernels.median import fermat_points

        points: Floats = fermat_points(anchors, weights)
        return points
    return _iterative_median(anchors, weights)


def weighted_distance(anchors: Floats, weights: Floats, points: Floats) -> Floats:
    """(p,) objective sum_i w_i |x_i - y| of (p, d) points for (p, k, d) anchors."""
    distance = np.linalg.norm(anchors - points[:, None, :], axis=2)
    return np.asarray((weights * distance).sum(axis=1))


def pair_anchors(problem: Problem) -> Floats:
    """(p, 3, d) anchors of every pair: left source, right source, sink."""
    return problem.nodes.position[pair_nodes(problem)]


def pair_nodes(problem: Problem) -> Ints:
    """(p, 3) nodes of every pair: left source, right source, sink."""
    nodes = np.empty((len(problem.matrix), 3), np.int64)
    nodes[:, 0], nodes[:, 1], nodes[:, 2] = (
        problem.left_node,
        problem.right_node,
        problem.sink_node,
    )
    return nodes


def _optimal_anchor(x: Floats, w: Floats) -> tuple[Bools, Floats]:
    """Which sets have an optimal anchor, and the best anchor of each set.

    Anchor i is optimal when the pull of all others, sum_j w_j (x_j - x_i) / |x_j - x_i|, does not
    exceed the weight gathered at x_i (Kuhn 1973; duplicates add up).
    """
    difference = x[:, None, :, :] - x[:, :, None, :]  # [p, i, j] = x_j - x_i
    distance = np.linalg.norm(difference, axis=3)
    best = np.argmin((w[:, None, :] * distance).sum(axis=2), axis=1)
    rows = np.arange(len(x))
    difference, distance = difference[rows, best], distance[rows, best]
    here = distance <= _SAME_PLACE * distance.max(axis=1, keepdims=True)
    unit = difference / np.where(here, 1.0, distance)[..., None]
    pull = np.linalg.norm((w[..., None] * unit).sum(axis=1), axis=1)
    weight = (w * here).sum(axis=1)
    return pull <= weight * (1 + 1e-12), x[rows, best]


def _iterative_median(x: Floats, w: Floats) -> Floats:
    settled, y = _optimal_anchor(x, w)
    y = y.copy()
    open_sets = np.flatnonzero(~settled)
    if not len(open_sets):
        return y
    x, w = x[open_sets], w[open_sets]
    # The optimum is strictly better than the best anchor, hence not at any: step off it downhill.
    point = _leave_anchor(x, w, y[open_sets])
    cost = weighted_distance(x, w, point)
    eye = np.eye(x.shape[2])
    for _ in range(_NEWTON_STEPS):
        difference = point[:, None, :] - x
        distance = np.maximum(np.linalg.norm(difference, axis=2), 1e-300)
        unit = difference / distance[..., None]
        pull = w / distance
        gradient = (w[..., None] * unit).sum(axis=1)
        hessian = pull.sum(axis=1)[:, None, None] * eye - np.einsum(
            "pk,pki,pkj->pij", pull, unit, unit
        )
        # Collinear anchors leave no curvature along their line; a trace of Weiszfeld's metric does.
        hessian += (1e-12 * pull.sum(axis=1))[:, None, None] * eye
        newton = np.linalg.solve(hessian, -gradient[..., None])[..., 0]
        weiszfeld = -gradient / pull.sum(axis=1)[:, None]
        step, improved = _line_search(x, w, point, cost, newton)
        fallback, fallback_improved = _line_search(x, w, point, cost, weiszfeld)
        step = np.where(improved[:, None], step, np.where(fallback_improved[:, None], fallback, 0))
        point = point + step
        new_cost = weighted_distance(x, w, point)
        converged = cost - new_cost <= _TOLERANCE * cost
        cost = new_cost
        if converged.all():
            break
    y[open_sets] = point
    return y


def _leave_anchor(x: Floats, w: Floats, anchor: Floats) -> Floats:
    """A point strictly better than a non-optimal anchor, along the steepest descent from it."""
    difference = x - anchor[:, None, :]
    distance = np.linalg.norm(difference, axis=2)
    apart = distance > _SAME_PLACE * distance.max(axis=1, keepdims=True)
    unit = difference / np.where(apart, distance, 1.0)[..., None]
    direction = (w[..., None] * unit).sum(axis=1)
    norm = np.linalg.norm(direction, axis=1, keepdims=True)
    nearest = np.where(apart, distance, np.inf).min(axis=1)[:, None]
    direction = direction / norm * nearest
    cost = weighted_distance(x, w, anchor)
    step, _ = _line_search(x, w, anchor, cost, direction)
    return anchor + step


def _line_search(
    x: Floats, w: Floats, point: Floats, cost: Floats, direction: Floats
) -> tuple[Floats, Bools]:
    """Halve a direction until the cost falls; steps of sets that never improve are zero."""
    scale = np.ones(len(point))
    done = np.zeros(len(point), bool)
    for _ in range(50):
        better = weighted_distance(x, w, point + scale[:, None] * direction) < cost
        done |= better
        if done.all():
            break
        scale = np.where(done, scale, scale * 0.5)
    return np.where(done[:, None], scale[:, None] * direction, 0.0), done
