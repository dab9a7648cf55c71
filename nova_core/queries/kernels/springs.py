"""Sums of distances over graphs, minimized exactly: Newton's method on primal and dual at once."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints

# Distances are rounded off near zero by this share of a component's extent, at the last.
_SHARPEST = 1e-7
_STEPS = 60


@njit(cache=True, nogil=True)
def contract(ends: Ints, weight: Floats, alive: Ints, free: Ints) -> Ints:
    """Bind every operator with one input and one consumer to the heavier side; exact.

    On its way from one to the other it loses nothing by staying where the weight is (the triangle
    inequality); at equal weights it stays with its input.

    Args:
        ends: (e, 2) producer and consumer of every link, changed in place.
        weight: (e,) of every link.
        alive: (e,) 1 for every link; 0 afterwards for those within a place.
        free: (v,) 1 for vertices that can move, in an order with producers first.

    Returns:
        (v,) vertex each was bound to, or itself; may be bound in turn.
    """
    count = len(free)
    bound = np.arange(count)
    degree = np.zeros(count, np.int64)
    inbound = np.full(count, -1)
    outbound = np.full(count, -1)
    for e in range(len(ends)):
        degree[ends[e, 0]] += 1
        degree[ends[e, 1]] += 1
        outbound[ends[e, 0]] = e
        inbound[ends[e, 1]] = e
    for v in range(count):
        if not free[v] or degree[v] != 2 or inbound[v] < 0 or outbound[v] < 0:
            continue
        up, down = inbound[v], outbound[v]
        if weight[down] <= weight[up]:
            other = ends[up, 0]
            alive[up] = 0
            ends[down, 0] = other
            if outbound[other] == up:
                outbound[other] = down
        else:
            other = ends[down, 1]
            alive[down] = 0
            ends[up, 1] = other
            if inbound[other] == down:
                inbound[other] = up
        bound[v] = other
    return bound


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(row: Floats, start: Ints, first: Ints, size: int) -> bool:
    """Cholesky of an envelope matrix in place; row i holds columns first[i] to i."""
    for i in range(size):
        for j in range(first[i], i + 1):
            total = row[start[i] + j - first[i]]
            for k in range(max(first[i], first[j]), j):
                total -= row[start[i] + k - first[i]] * row[start[j] + k - first[j]]
            if j < i:
                row[start[i] + j - first[i]] = total / row[start[j] + j - first[j]]
            else:
                if not total > 0.0:
                    return False
                row[start[i] + j - first[i]] = math.sqrt(total)
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _substitute(row: Floats, start: Ints, first: Ints, value: Floats, size: int) -> None:
    """Solve with the factor, in place."""
    for i in range(size):
        total = value[i]
        for k in range(first[i], i):
            total -= row[start[i] + k - first[i]] * value[k]
        value[i] = total / row[start[i] + i - first[i]]
    for i in range(size - 1, -1, -1):
        value[i] /= row[start[i] + i - first[i]]
        for k in range(first[i], i):
            value[k] -= row[start[i] + k - first[i]] * value[i]


@njit(cache=True, nogil=True)
def _smooth(point: Floats, ends: Ints, weight: Floats, links: Ints, soft: float) -> float:
    total = 0.0
    for e in links:
        square = soft * soft
        for k in range(point.shape[1]):
            square += (point[ends[e, 0], k] - point[ends[e, 1], k]) ** 2
        total += weight[e] * math.sqrt(square)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def relax(
    point: Floats,
    ends: Ints,
    weight: Floats,
    member: Ints,
    member_at: Ints,
    link: Ints,
    link_at: Ints,
    place: Ints,
) -> Floats:
    """Move the free vertices of every component to where its sum of distances is least.

    Distances |d| are rounded to sqrt(|d|^2 + s^2), s falling from step to step, and minimized by
    Newton's method with the pulls along links as variables of their own, which keeps its pace as
    corners get sharp (Chan, Golub, Mulet 1999; Andersen et al. 2000). Pulls that balance at every
    free vertex bound the optimum from below, so the gap is known at the end.

    Args:
        point: (v, d) where vertices are, ms; free ones are moved in place.
        ends: (e, 2) of links.
        weight: (e,) of links.
        member: free vertices by component, producers first.
        member_at: (c + 1,) where each component begins.
        link: links by component.
        link_at: (c + 1,) where each component begins.
        place: (v,) a free vertex's place in its component, -1 of others.

    Returns:
        (c,) gap between each component's sum and its lower bound, relative to the sum.
    """
    components, d = len(member_at) - 1, point.shape[1]
    gap = np.zeros(components)
    for c in range(components):
        free = member[member_at[c] : member_at[c + 1]]
        links = link[link_at[c] : link_at[c + 1]]
        size, many = len(free) * d, len(links)
        low = np.full(d, math.inf)
        high = np.full(d, -math.inf)
        centre = np.zeros(d)
        heavy = 0.0
        for e in links:
            for v in ends[e]:
                if place[v] < 0:
                    heavy += weight[e]
                    for k in range(d):
                        low[k] = min(low[k], point[v, k])
                        high[k] = max(high[k], point[v, k])
                        centre[k] += weight[e] * point[v, k]
        extent = 0.0
        for k in range(d):
            extent = max(extent, high[k] - low[k])
        if heavy == 0.0:
            continue
        for v in free:
            point[v] = centre / heavy
        if extent == 0.0:
            continue
        # The envelope: row of a coordinate begins at the first vertex its vertex is linked with.
        begin = np.arange(len(free))
        for e in links:
            a, b = place[ends[e, 0]], place[ends[e, 1]]
            if a >= 0 and b >= 0:
                begin[max(a, b)] = min(begin[max(a, b)], a, b)
        first = np.empty(size, np.int64)
        start = np.empty(size + 1, np.int64)
        start[0] = 0
        for i in range(size):
            first[i] = begin[i // d] * d
            start[i + 1] = start[i] + i - first[i] + 1
        row = np.empty(start[size])
        pull = np.zeros((many, d))
        step = np.empty(size)
        difference = np.empty(d)
        soft = 0.1 * extent
        cost = _smooth(point, ends, weight, links, soft)
        for _ in range(_STEPS):
            row[:] = 0.0
            step[:] = 0.0
            for n in range(many):
                e = links[n]
                u, v = ends[e, 0], ends[e, 1]
                a, b = place[u], place[v]
                square = soft * soft
                for k in range(d):
                    difference[k] = point[u, k] - point[v, k]
                    square += difference[k] ** 2
                length = math.sqrt(square)
                stiff = weight[e] / length
                for k in range(d):
                    force = stiff * difference[k]
                    if a >= 0:
                        step[a * d + k] -= force
                    if b >= 0:
                        step[b * d + k] += force
                    for m in range(d):
                        value = (
                            -0.5
                            * (pull[n, k] * difference[m] + pull[n, m] * difference[k])
                            / (length)
                        )
                        value /= length
                        if k == m:
                            value += stiff
                        if a >= 0 and m <= k:
                            i = a * d + k
                            row[start[i] + a * d + m - first[i]] += value
                        if b >= 0 and m <= k:
                            i = b * d + k
                            row[start[i] + b * d + m - first[i]] += value
                        if a >= 0 and b >= 0 and a != b:
                            i = max(a, b) * d + k
                            row[start[i] + min(a, b) * d + m - first[i]] -= value
            residual = 0.0
            for i in range(size):
                residual = max(residual, abs(step[i]))
                row[start[i] + i - first[i]] *= 1.0 + 1e-13
                row[start[i] + i - first[i]] += 1e-14 * heavy / extent
            if residual <= 1e-8 * heavy and soft <= _SHARPEST * extent:
                break
            if not _factor(row, start, first, size):
                break
            slope = step.copy()
            _substitute(row, start, first, step, size)
            descent = 0.0
            for i in range(size):
                descent += slope[i] * step[i]
            scale = 1.0
            for _halving in range(30):
                for n in range(len(free)):
                    for k in range(d):
                        point[free[n], k] += scale * step[n * d + k]
                now = _smooth(point, ends, weight, links, soft)
                if now <= cost - 1e-4 * scale * descent or now <= cost * (1.0 + 1e-15):
                    break
                for n in range(len(free)):
                    for k in range(d):
                        point[free[n], k] -= scale * step[n * d + k]
                scale *= 0.5
            # Pulls follow their linearization at the old place, then stay within their weights.
            for n in range(many):
                e = links[n]
                u, v = ends[e, 0], ends[e, 1]
                a, b = place[u], place[v]
                square, along = soft * soft, 0.0
                for k in range(d):
                    moved = 0.0
                    if a >= 0:
                        moved += scale * step[a * d + k]
                    if b >= 0:
                        moved -= scale * step[b * d + k]
                    difference[k] = point[u, k] - point[v, k] - moved
                    square += difference[k] ** 2
                    along += difference[k] * moved
                length = math.sqrt(square)
                norm = 0.0
                for k in range(d):
                    now_k = weight[e] * (point[u, k] - point[v, k]) / length
                    pull[n, k] = now_k - pull[n, k] * along / (length * length)
                    norm += pull[n, k] ** 2
                norm = math.sqrt(norm)
                if norm > weight[e]:
                    for k in range(d):
                        pull[n, k] *= weight[e] / norm
            if descent <= 0.3 * soft * heavy:
                soft = max(0.2 * soft, _SHARPEST * extent)
            cost = _smooth(point, ends, weight, links, soft)
        # What pulls say of the optimum: sum of pull times difference, less what does not balance.
        total, bound = 0.0, 0.0
        left_over = np.zeros(size)
        for n in range(many):
            e = links[n]
            u, v = ends[e, 0], ends[e, 1]
            a, b = place[u], place[v]
            square = 0.0
            for k in range(d):
                apart = point[u, k] - point[v, k]
                square += apart * apart
                bound += pull[n, k] * apart
                if a >= 0:
                    left_over[a * d + k] += pull[n, k]
                if b >= 0:
                    left_over[b * d + k] -= pull[n, k]
            total += weight[e] * math.sqrt(square)
        for i in range(size):
            # The optimum lies within the anchors' box, so no vertex can be further off than it.
            bound -= abs(left_over[i]) * extent
        gap[c] = (total - bound) / total if total > 0.0 else 0.0
    return gap
