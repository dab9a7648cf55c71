"""The geometric median of any number of anchors by iteration, for the closed form to agree with."""

from __future__ import annotations

import numpy as np

from nova_core.model.problem import Bools, Floats
from nova_core.placement.geometric_median import weighted_distance

_NEWTON_STEPS = 200
_TOLERANCE = 1e-14
# Anchors closer than this share of a set's extent count as one place: no step between them is real.
_SAME_PLACE = 1e-12


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


def iterative_median(x: Floats, w: Floats) -> Floats:
    """(p, d) points that minimize the weighted distance to (p, k, d) anchors of (p, k) weights.

    By Newton's method, after testing every anchor for optimality exactly, so that landing on one
    cannot stall the search.
    """
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
