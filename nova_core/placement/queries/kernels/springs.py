"""Sums of distances over graphs, minimized exactly: Newton's method on primal and dual at once."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints

# Distances are rounded off near zero by this share of a component's extent, at the last.
_SHARPEST = 1e-7
_STEPS = 60


class _Component(NamedTuple):
    """What is moved together, and its links.

    Attributes:
        free: (f,) vertices that can move: producers first, what queries share last.
        links: (l,) of them.
        ends: (e, 2) of all links.
        weight: (e,) of all links.
        place: (v,) a free vertex's place in ``free``, -1 of others.
    """

    free: Ints
    links: Ints
    ends: Ints
    weight: Floats
    place: Ints


class _Matrix(NamedTuple):
    """A symmetric matrix; of each row what lies between its first entry and the diagonal.

    Attributes:
        entry: row by row; row i holds columns ``first[i]`` to i.
        start: (s + 1,) where each row begins.
        first: (s,) its first column.
    """

    entry: Floats
    start: Ints
    first: Ints


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
def _factor(matrix: _Matrix) -> bool:
    """Cholesky in place."""
    row, start, first = matrix.entry, matrix.start, matrix.first
    for i in range(len(first)):
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
def _substitute(matrix: _Matrix, value: Floats) -> None:
    """Solve with the factor, in place."""
    row, start, first = matrix.entry, matrix.start, matrix.first
    size = len(first)
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
def _smooth(point: Floats, one: _Component, soft: float) -> float:
    """Sum of rounded distances, weighted."""
    ends, weight, total = one.ends, one.weight, 0.0
    for e in one.links:
        square = soft * soft
        for k in range(point.shape[1]):
            away = point[ends[e, 0], k] - point[ends[e, 1], k]
            square += away * away
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
        member: free vertices by component: producers first, what queries share last.
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
        one = _Component(free, links, ends, weight, place)
        extent, heavy = _gather(point, one)
        if extent == 0.0:
            continue
        size, pull = len(free) * d, np.zeros((len(links), d))
        matrix, step = _empty(one, d), np.empty(size)
        soft = 0.1 * extent
        cost = _smooth(point, one, soft)
        for _ in range(_STEPS):
            _fill(point, one, pull, soft, matrix, step)
            residual = _steady(matrix, step, 1e-14 * heavy / extent)
            if residual <= 1e-8 * heavy and soft <= _SHARPEST * extent:
                break
            if not _factor(matrix):
                break
            slope = step.copy()
            _substitute(matrix, step)
            descent = 0.0
            for i in range(size):
                descent += slope[i] * step[i]
            scale = _walk(point, one, step, soft, cost, descent)
            _follow(point, one, pull, soft, scale, step)
            if descent <= 0.3 * soft * heavy:
                soft = max(0.2 * soft, _SHARPEST * extent)
            cost = _smooth(point, one, soft)
        gap[c] = _gap(point, one, pull, extent)
    return gap


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(point: Floats, one: _Component) -> tuple[float, float]:
    """Put free vertices in the middle of what they are linked with that is fixed.

    Returns:
        The longest side of the fixed ends' box, ms, and the weight of links to them; 0 for both if
        there are none.
    """
    d = point.shape[1]
    low, high = np.full(d, math.inf), np.full(d, -math.inf)
    centre, heavy = np.zeros(d), 0.0
    for e in one.links:
        for v in one.ends[e]:
            if one.place[v] < 0:
                heavy += one.weight[e]
                for k in range(d):
                    low[k] = min(low[k], point[v, k])
                    high[k] = max(high[k], point[v, k])
                    centre[k] += one.weight[e] * point[v, k]
    if heavy == 0.0:
        return 0.0, 0.0
    extent = 0.0
    for k in range(d):
        extent = max(extent, high[k] - low[k])
    for v in one.free:
        point[v] = centre / heavy
    return extent, heavy


@njit(cache=True, nogil=True, error_model="numpy")
def _empty(one: _Component, d: int) -> _Matrix:
    """A matrix for a component: a coordinate's row begins at its vertex's first neighbour."""
    begin = np.arange(len(one.free))
    for e in one.links:
        a, b = one.place[one.ends[e, 0]], one.place[one.ends[e, 1]]
        if a >= 0 and b >= 0:
            begin[max(a, b)] = min(begin[max(a, b)], a, b)
    size = len(one.free) * d
    first, start = np.empty(size, np.int64), np.empty(size + 1, np.int64)
    start[0] = 0
    for i in range(size):
        first[i] = begin[i // d] * d
        start[i + 1] = start[i] + i - first[i] + 1
    return _Matrix(np.empty(start[size]), start, first)


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(
    point: Floats, one: _Component, pull: Floats, soft: float, matrix: _Matrix, step: Floats
) -> None:
    """The forces on free coordinates, in ``step``, and how they change with them."""
    row, start, first = matrix.entry, matrix.start, matrix.first
    ends, weight, links, place = one.ends, one.weight, one.links, one.place
    d = point.shape[1]
    difference = np.empty(d)
    row[:] = 0.0
    step[:] = 0.0
    for n in range(len(links)):
        e = links[n]
        u, v = ends[e, 0], ends[e, 1]
        a, b = place[u], place[v]
        square = soft * soft
        for k in range(d):
            difference[k] = point[u, k] - point[v, k]
            away = difference[k]
            square += away * away
        length = math.sqrt(square)
        stiff = weight[e] / length
        for k in range(d):
            force = stiff * difference[k]
            if a >= 0:
                step[a * d + k] -= force
            if b >= 0:
                step[b * d + k] += force
            for m in range(d):
                both = pull[n, k] * difference[m] + pull[n, m] * difference[k]
                value = -0.5 * both / length
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


@njit(cache=True, nogil=True, error_model="numpy")
def _steady(matrix: _Matrix, step: Floats, least: float) -> float:
    """Make the diagonal a little larger, so that rounding leaves it positive; the largest force."""
    residual = 0.0
    for i in range(len(step)):
        residual = max(residual, abs(step[i]))
        diagonal = matrix.start[i] + i - matrix.first[i]
        matrix.entry[diagonal] *= 1.0 + 1e-13
        matrix.entry[diagonal] += least
    return residual


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(
    point: Floats, one: _Component, step: Floats, soft: float, cost: float, descent: float
) -> float:
    """Move by a step, halved until the cost falls; the share of it that was gone."""
    free, d, scale = one.free, point.shape[1], 1.0
    for _ in range(30):
        for n in range(len(free)):
            for k in range(d):
                point[free[n], k] += scale * step[n * d + k]
        now = _smooth(point, one, soft)
        if now <= cost - 1e-4 * scale * descent or now <= cost * (1.0 + 1e-15):
            break
        for n in range(len(free)):
            for k in range(d):
                point[free[n], k] -= scale * step[n * d + k]
        scale *= 0.5
    return scale


@njit(cache=True, nogil=True, error_model="numpy")
def _follow(
    point: Floats, one: _Component, pull: Floats, soft: float, scale: float, step: Floats
) -> None:
    """Pulls follow their linearization at the old place, then stay within their weights."""
    ends, weight, links, place = one.ends, one.weight, one.links, one.place
    d = point.shape[1]
    difference = np.empty(d)
    for n in range(len(links)):
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
            away = difference[k]
            square += away * away
            along += difference[k] * moved
        length = math.sqrt(square)
        norm = 0.0
        for k in range(d):
            now = weight[e] * (point[u, k] - point[v, k]) / length
            pull[n, k] = now - pull[n, k] * along / (length * length)
            away = pull[n, k]
            norm += away * away
        norm = math.sqrt(norm)
        if norm > weight[e]:
            for k in range(d):
                pull[n, k] *= weight[e] / norm


@njit(cache=True, nogil=True, error_model="numpy")
def _gap(point: Floats, one: _Component, pull: Floats, extent: float) -> float:
    """How far a sum may be from the optimum, relative to it.

    Pulls bound the optimum from below: sum of pull times difference, less what does not balance.
    """
    ends, weight, links, place = one.ends, one.weight, one.links, one.place
    d, total, bound = point.shape[1], 0.0, 0.0
    unbalanced = np.zeros(len(one.free) * d)
    for n in range(len(links)):
        e = links[n]
        u, v = ends[e, 0], ends[e, 1]
        a, b = place[u], place[v]
        square = 0.0
        for k in range(d):
            apart = point[u, k] - point[v, k]
            square += apart * apart
            bound += pull[n, k] * apart
            if a >= 0:
                unbalanced[a * d + k] += pull[n, k]
            if b >= 0:
                unbalanced[b * d + k] -= pull[n, k]
        total += weight[e] * math.sqrt(square)
    for i in range(len(unbalanced)):
        # The optimum lies within the anchors' box, so no vertex can be further off than it.
        bound -= abs(unbalanced[i]) * extent
    return (total - bound) / total if total > 0.0 else 0.0
