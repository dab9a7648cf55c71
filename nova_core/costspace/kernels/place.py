"""One node's place among others that stay where they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.kernels.graph import Entries, mix
from nova_core.kernel_cache import njit

Rows = NDArray[np.int32]
Floats32 = NDArray[np.float32]
Floats64 = NDArray[np.float64]

# Steps from each start.
_SHORT = 6
# How `_settle` steps: as `relax.relax`, safe from anywhere, or as Gauss and Newton with a little
# damping, quick once near, where a height and a distance are hard to tell apart; with damping that
# falls, a node far out, whose height and distance are nearly one, does not creep.
_SAFE, _NEWTON, _FALLING = 0, 1, 2
# What is added to the curvature, as a share of its trace.
_DAMPING = 0.02


class Effort(NamedTuple):
    """How a node is placed.

    Attributes:
        tries: how many other places it tries.
        steps: how many steps it takes in the end, from the best of them.
        settle: whether it stays where it ends, rather than being moved on with all others.
    """

    tries: int
    steps: int
    settle: bool


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def _settle(
    kind: int, steps: int, neighbour: Rows, latency: Floats32, others: Floats32,
    own: Floats64, d: int, floor: float, scale: float, best: Floats64,
) -> float:  # fmt: skip
    """Move ``own`` downhill; put where it was lowest into ``best`` and return that loss.

    Smoothing falls from step to step: to a tenth with safe steps, far further with the others.
    """
    newton = kind != _SAFE
    rough, fine = 0.3 * scale, 0.03 * scale
    if newton:
        rough, fine = 0.03 * scale, 1e-4 * scale
    width = others.shape[1]
    pulls = np.empty(width)
    unit = np.empty(width)
    curvature = np.empty((width, width))
    least = np.inf
    smoothing = rough
    shrink = (fine / rough) ** (1.0 / max(steps - 1, 1))
    for turn in range(steps + 1):
        for k in range(width):
            pulls[k] = 0.0
            for other in range(k + 1):
                curvature[k, other] = 0.0
        total = 1e-300
        loss = 0.0
        for entry in range(len(neighbour)):
            j = neighbour[entry]
            square = 1e-18
            for k in range(d):
                unit[k] = own[k] - others[j, k]
                square += unit[k] ** 2
            apart = np.sqrt(square)
            missing = latency[entry] - apart
            for k in range(d):
                unit[k] /= apart
            for k in range(d, width):
                missing -= own[k] + others[j, k]
                unit[k] = 1.0
            weight = 1.0 / np.sqrt(latency[entry] + floor)
            loss += weight * abs(missing)
            pull = weight / max(abs(missing), smoothing)
            total += pull
            for k in range(width):
                pulls[k] += pull * missing * unit[k]
                if newton:
                    for other in range(k + 1):
                        curvature[k, other] += pull * unit[k] * unit[other]
        if loss < least:
            least = loss
            for k in range(width):
                best[k] = own[k]
        if turn == steps:
            break
        if newton:
            damping = _DAMPING * total
            if kind == _FALLING:
                damping *= smoothing / rough
            for k in range(width):
                curvature[k, k] += damping
            _solve(curvature, pulls)
        else:
            for k in range(width):
                pulls[k] /= total
        for k in range(width):
            own[k] += pulls[k]
        for k in range(d, width):
            own[k] = max(own[k], 0.0)
        smoothing *= shrink
    return least


@njit(cache=True, nogil=True)
def _solve(matrix: Floats64, vector: Floats64) -> None:
    """Solve for a positive definite matrix given by its lower half; both are overwritten."""
    n = len(vector)
    for k in range(n):  # the factors of Cholesky's decomposition
        for i in range(k):
            for j in range(i):
                matrix[k, i] -= matrix[k, j] * matrix[i, j]
            matrix[k, i] /= matrix[i, i]
            matrix[k, k] -= matrix[k, i] ** 2
            vector[k] -= matrix[k, i] * vector[i]
        matrix[k, k] = np.sqrt(matrix[k, k])
        vector[k] /= matrix[k, k]
    for k in range(n - 1, -1, -1):
        for i in range(k + 1, n):
            vector[k] -= matrix[i, k] * vector[i]
        vector[k] /= matrix[k, k]


@njit(cache=True, nogil=True)
def place(
    begin: int, end: int, entries: Entries, others: Floats32, own: Floats32, d: int,
    effort: Effort, floor: float, scale: float, seed: int,
) -> None:  # fmt: skip
    """Put each node in ``begin:end`` where its measurements fit best, alone and for itself.

    It settles from where it is and from some places at the measured distance from a neighbour; the
    best wins. A node without measurements stays.

    Args:
        begin: first row.
        end: row after the last.
        entries: what nodes have measured; their neighbours are rows of ``others``.
        others: (n, d) positions, ms, or (n, d + 1) with heights last.
        own: a row for each node to place, likewise; changed. May be the same array.
        d: dimensions of the space.
        effort: how much each node tries.
        floor: c of the weights 1 / sqrt(d_ij + c), ms.
        scale: a typical latency, ms.
        seed: of the places tried.
    """
    start, neighbour, latency = entries.start, entries.neighbour, entries.latency
    tries, steps = effort.tries, effort.steps
    width = others.shape[1]
    trial = np.empty(width)
    settled = np.empty(width)
    best = np.empty(width)
    for i in range(begin, end):
        first, last = start[i], start[i + 1]
        if first == last:
            continue
        mine, measured = neighbour[first:last], latency[first:last]
        least = np.inf
        state = mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(i + 1))
        for attempt in range(tries + 1):
            for k in range(width):
                trial[k] = own[i, k]
            if attempt > 0:
                state = mix(state + np.uint64(0x9E3779B97F4A7C15))
                entry = first + np.int64(state % np.uint64(last - first))
                square = 1e-18
                for k in range(d):
                    state = mix(state + np.uint64(0x9E3779B97F4A7C15))
                    trial[k] = np.float64(state >> np.uint64(11)) / 2.0**52 - 1.0
                    square += trial[k] ** 2
                reach = latency[entry] / np.sqrt(square)
                for k in range(d):
                    trial[k] = others[neighbour[entry], k] + reach * trial[k]
            loss = _settle(_SAFE, _SHORT, mine, measured, others, trial, d, floor, scale, settled)
            if loss < least:
                least = loss
                for k in range(width):
                    best[k] = settled[k]
        kind = _FALLING if effort.settle else _NEWTON
        _settle(kind, steps, mine, measured, others, best, d, floor, scale, settled)
        for k in range(width):
            own[i, k] = settled[k]
