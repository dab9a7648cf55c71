"""Fermat points against a numerical optimum, with every degenerate case."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles.geometric_median import iterative_median

from nova_core.placement.geometric_median import geometric_median, weighted_distance

coordinate = st.one_of(st.floats(-1000, 1000), st.integers(-3, 3).map(float))
weight = st.one_of(st.just(1.0), st.floats(0.01, 100))


@st.composite
def anchor_sets(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    anchors = draw(arrays(np.float64, (3, draw(st.integers(1, 4))), elements=coordinate))
    return anchors, np.array(draw(st.lists(weight, min_size=3, max_size=3)))


def dual_bound(anchors: np.ndarray, weights: np.ndarray, point: np.ndarray) -> float:
    """A lower bound of the least cost from any point: the tangent there, over the anchors' box.

    The optimum lies in the anchors' convex hull, so in their bounding box.
    """
    difference = point - anchors
    distance = np.linalg.norm(difference, axis=1)
    cost = float(weights @ distance)
    apart = distance > 1e-9 * (1 + np.abs(anchors).max())
    slope = (weights[apart, None] * difference[apart] / distance[apart, None]).sum(axis=0)
    # Anchors at the point may pull anywhere with up to their weight: take what flattens the slope.
    here, norm = float(weights[~apart].sum()), float(np.linalg.norm(slope))
    if norm > 0:
        slope = slope * max(0.0, 1 - here / norm)
    low, high = anchors.min(axis=0), anchors.max(axis=0)
    return cost + float(np.minimum(slope * (low - point), slope * (high - point)).sum())


@settings(max_examples=300)
@given(anchor_sets())
def test_closed_form_is_no_worse_than_a_numerical_search(
    case: tuple[np.ndarray, np.ndarray],
) -> None:
    anchors, weights = case
    point = geometric_median(anchors[None], weights[None])[0]
    cost = weighted_distance(anchors[None], weights[None], point[None])[0]
    # Weiszfeld's iteration from the closed form's point and from the weighted mean must not win.
    for start in (point, (weights @ anchors) / weights.sum()):
        y = start.copy()
        for _ in range(300):
            distance = np.linalg.norm(anchors - y, axis=1)
            if (distance < 1e-12).any():
                break
            pull = weights / distance
            y = (pull @ anchors) / pull.sum()
        reached = weighted_distance(anchors[None], weights[None], y[None])[0]
        assert cost <= reached + 1e-9 * max(1.0, reached)


@settings(max_examples=100)
@given(anchor_sets())
def test_three_anchors_meet_their_lower_bound(case: tuple[np.ndarray, np.ndarray]) -> None:
    anchors, weights = case
    point = geometric_median(anchors[None], weights[None])[0]
    cost = weighted_distance(anchors[None], weights[None], point[None])[0]
    assert np.isfinite(point).all()
    best_anchor = min(weighted_distance(anchors[None], weights[None], x[None])[0] for x in anchors)
    assert cost <= best_anchor * (1 + 1e-12) + 1e-12
    assert cost >= dual_bound(anchors, weights, point) - 1e-6 * max(1.0, cost)
    for shift in np.eye(anchors.shape[1]) * 1e-3:
        for sign in (1, -1):
            moved = weighted_distance(anchors[None], weights[None], (point + sign * shift)[None])[0]
            assert cost <= moved + 1e-9 * max(1.0, cost)


def test_three_and_general_solvers_agree_to_1e_9_where_well_conditioned() -> None:
    rng = np.random.default_rng(1)
    anchors, weights = rng.normal(size=(2000, 3, 2)), rng.uniform(0.5, 2, (2000, 3))
    closed = geometric_median(anchors, weights)
    iterative = iterative_median(anchors, weights)
    a = weighted_distance(anchors, weights, closed)
    b = weighted_distance(anchors, weights, iterative)
    assert np.abs(a - b).max() <= 1e-9
    assert np.abs(closed - iterative).max() <= 1e-5


@pytest.mark.parametrize(
    ("anchors", "weights", "expected"),
    [
        ([[0, 0], [0, 0], [5, 5]], [1, 1, 1], [0, 0]),  # two anchors at one place
        ([[1, 2], [1, 2], [1, 2]], [1, 1, 1], [1, 2]),  # all three
        ([[0, 0], [1, 0], [3, 0]], [1, 1, 1], [1, 0]),  # collinear: the middle one
        ([[0, 0], [1, 0], [3, 0]], [1, 1, 5], [3, 0]),  # collinear with a dominant weight
        ([[-9, 1], [0, 0], [9, 1]], [1, 1, 1], [0, 0]),  # an angle beyond 120 degrees
        ([[0, 0], [4, 0], [0, 3]], [1, 9, 1], [4, 0]),  # a weight that outweighs the others
        ([[0, 0], [2, 0], [1, math.sqrt(3)]], [1, 1, 1], [1, 1 / math.sqrt(3)]),  # equilateral
        ([[0, 0], [4, 0], [0, 3]], [0, 0, 2], [0, 3]),  # weights of zero
    ],
)
def test_known_points(
    anchors: list[list[float]], weights: list[float], expected: list[float]
) -> None:
    point = geometric_median(np.array([anchors], float), np.array([weights], float))[0]
    assert point == pytest.approx(expected, abs=1e-12)
