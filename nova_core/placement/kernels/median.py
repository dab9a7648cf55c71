"""The weighted Fermat point of three anchors in closed form, for many triples at once."""

from __future__ import annotations

import math

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats


@njit(cache=True, nogil=True, error_model="numpy")
def fermat_points(anchors: Floats, weights: Floats) -> Floats:
    """Points that minimize sum_i w_i |x_i - y| for three anchors each.

    Where no anchor is the optimum, the point sees the anchors under the angles of the triangle
    whose sides are the weights, so its barycentric coordinates are 1 / (cot A_i + cot alpha_i),
    with A_i the anchors' angles and alpha_i the weight triangle's (Uteshev, "Analytical solution
    for the generalized Fermat-Torricelli problem", 2014). Collinear or equal anchors, an angle too
    wide or a weight that outweighs the others make an anchor the optimum.

    Args:
        anchors: (p, 3, d) coordinates, ms.
        weights: (p, 3) non-negative.

    Returns:
        (p, d) optimal points.
    """
    count, _, d = anchors.shape
    result = np.empty((count, d))
    point = np.empty(d)
    side = np.empty(3)  # squared length opposite to each anchor
    for p in range(count):
        x, w = anchors[p], weights[p]
        # The best anchor is the answer in every degenerate case.
        best, best_cost = 0, math.inf
        for i in range(3):
            cost = 0.0
            for j in range(3):
                square = 0.0
                for k in range(d):
                    away = x[i, k] - x[j, k]
                    square += away * away
                cost += w[j] * math.sqrt(square)
                if (i + 1) % 3 == j:
                    side[3 - i - j] = square
            if cost < best_cost:
                best, best_cost = i, cost
        result[p] = x[best]
        if min(side[0], side[1], side[2]) == 0.0:
            continue
        # Four times the area of the weight triangle; not positive when one weight dominates.
        a, b, c = w[0], w[1], w[2]
        heron = (a + b + c) * (-a + b + c) * (a - b + c) * (a + b - c)
        if heron <= 0.0:
            continue
        weight_area = math.sqrt(heron)
        # Twice the area of the anchors' triangle, by the height over the side 0-1: no cancellation.
        dot = 0.0
        for k in range(d):
            dot += (x[1, k] - x[0, k]) * (x[2, k] - x[0, k])
        ratio = dot / side[2]
        height = 0.0
        for k in range(d):
            away = x[2, k] - x[0, k] - ratio * (x[1, k] - x[0, k])
            height += away * away
        area = math.sqrt(side[2] * height)
        if area == 0.0:
            continue
        total = 0.0
        interior = True
        for k in range(d):
            point[k] = 0.0
        for i in range(3):
            j, m = (i + 1) % 3, (i + 2) % 3
            # 2 (cot A_i + cot alpha_i), each cotangent from its triangle's sides and area.
            cotangents = (side[j] + side[m] - side[i]) / area + 2.0 * (
                w[j] * w[j] + w[m] * w[m] - w[i] * w[i]
            ) / weight_area
            if cotangents <= 0.0:
                interior = False
                break
            total += 1.0 / cotangents
            for k in range(d):
                point[k] += x[i, k] / cotangents
        if not interior:
            continue
        cost = 0.0
        for i in range(3):
            square = 0.0
            for k in range(d):
                away = point[k] / total - x[i, k]
                square += away * away
            cost += w[i] * math.sqrt(square)
        if cost < best_cost:
            for k in range(d):
                result[p, k] = point[k] / total
    return result
