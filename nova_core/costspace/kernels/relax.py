"""One step of the batch solver: every node moves to where its measurements want it."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def relax(
    begin: int, end: int, start: Ints, neighbour: NDArray[np.int32], latency: NDArray[np.float32],
    position: Floats, height: Floats, new_position: Floats, new_height: Floats,
    smoothing: float, floor: float, stride_x: float, stride_h: float
) -> None:  # fmt: skip
    """Move every node in ``begin:end`` to the least of a quadratic that majorizes its loss.

    With r = d_ij - |x_i - x_j| - h_i - h_j and the pull a_ij = w_ij / max(|r|, smoothing), a node
    steps by sum a_ij r (x_i - x_j) / |x_i - x_j| / sum a_ij, and its height by sum a_ij r / sum
    a_ij. Old and new arrays may be the same ones: then nodes see each other's steps.

    Args:
        begin: first row.
        end: row after the last.
        start: (n + 1,) first entry of each row.
        neighbour: (2m,) rows at the other end.
        latency: (2m,) ms.
        position: (n, d) ms.
        height: (n,) ms, or (0,) for none.
        new_position: (n, d) where to put the new ones.
        new_height: likewise.
        smoothing: ms below which an error counts as a square.
        floor: c of the weights 1 / sqrt(d_ij + c), ms.
        stride_x: share of the step that positions take.
        stride_h: share of the step that heights take.
    """
    d = position.shape[1]
    high = len(height) > 0
    step = np.empty(d)
    for i in range(begin, end):
        for k in range(d):
            step[k] = 0.0
        rise = 0.0
        total = 1e-300
        for entry in range(start[i], start[i + 1]):
            j = neighbour[entry]
            square = 1e-18
            for k in range(d):
                square += (position[i, k] - position[j, k]) ** 2
            apart = np.sqrt(square)
            missing = np.float64(latency[entry]) - apart
            if high:
                missing -= height[i] + height[j]
            pull = 1.0 / max(abs(missing), smoothing)
            if floor > 0:
                pull /= np.sqrt(latency[entry] + floor)
            total += pull
            pull *= missing
            rise += pull
            pull /= apart
            for k in range(d):
                step[k] += pull * (position[i, k] - position[j, k])
        for k in range(d):
            new_position[i, k] = position[i, k] + stride_x * step[k] / total
        if high:
            new_height[i] = max(height[i] + stride_h * rise / total, 0.0)


@njit(cache=True, nogil=True)
def relative_errors(
    start: Ints, neighbour: NDArray[np.int32], latency: NDArray[np.float32],
    position: Floats, height: Floats,
) -> Floats:  # fmt: skip
    """(n,) sum |estimate - measured| over sum of measured, of every row."""
    error = np.zeros(len(start) - 1)
    for i in range(len(error)):
        off = 0.0
        total = 0.0
        for entry in range(start[i], start[i + 1]):
            j = neighbour[entry]
            square = 0.0
            for k in range(position.shape[1]):
                square += (position[i, k] - position[j, k]) ** 2
            estimate = np.sqrt(square)
            if len(height) > 0:
                estimate += height[i] + height[j]
            off += abs(estimate - latency[entry])
            total += latency[entry]
        # Measurements that are all 0 have no scale; what is off then counts in ms.
        error[i] = off / total if total > 0 else off
    return error
