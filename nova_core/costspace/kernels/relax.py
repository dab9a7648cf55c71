"""One sweep of the batch solver: every node moves to where its measurements want it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.kernels.graph import Entries
from nova_core.kernel_cache import njit

Floats32 = NDArray[np.float32]
Axes = tuple[int, ...]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def relax(
    begin: int, end: int, entries: Entries, old: Floats32, new: Floats32, axes: Axes,
    smoothing: np.float32, floor: np.float32, part: int, parts: int,
) -> None:  # fmt: skip
    """Move every node in ``begin:end`` to the least of a quadratic that majorizes its loss.

    With r = d_ij - |x_i - x_j| - h_i - h_j and the pull a_ij = w_ij / max(|r|, smoothing), a node
    steps by sum a_ij r (x_i - x_j) / |x_i - x_j| / sum a_ij, and its height by sum a_ij r / sum
    a_ij. Old and new arrays may be the same: then nodes see each other's steps.

    Args:
        begin: first row.
        end: row after the last.
        entries: what nodes have measured.
        old: (n, d) positions, ms, or (n, d + 1) with heights last.
        new: where to put the new ones.
        axes: d zeros; their number is known when compiling, which unrolls the loops over it.
        smoothing: ms below which an error counts as a square.
        floor: c of the weights 1 / sqrt(d_ij + c), ms.
        part: which part of each row's entries counts this time.
        parts: of how many; 1 takes all.
    """
    start, neighbour, latency = entries.start, entries.neighbour, entries.latency
    d = len(axes)
    high = old.shape[1] > d
    step = np.empty(d)
    for i in range(begin, end):
        for k in range(d):
            step[k] = 0.0
        height_pull = 0.0
        total = 1e-30
        degree = start[i + 1] - start[i]
        for entry in range(
            start[i] + degree * part // parts, start[i] + degree * (part + 1) // parts
        ):
            j = neighbour[entry]
            square = np.float32(1e-18)
            for k in range(d):
                square += (old[i, k] - old[j, k]) ** 2
            apart = np.sqrt(square)
            missing = latency[entry] - apart
            if high:
                missing -= old[i, d] + old[j, d]
            off = max(abs(missing), smoothing) * np.sqrt(latency[entry] + floor)
            inverse = np.float32(1.0) / (off * apart)
            pull = inverse * apart
            total += pull
            height_pull += pull * missing
            inverse *= missing
            for k in range(d):
                step[k] += inverse * (old[i, k] - old[j, k])
        for k in range(d):
            new[i, k] = old[i, k] + np.float32(step[k] / total)
        if high:
            new[i, d] = max(old[i, d] + np.float32(height_pull / total), np.float32(0.0))


@njit(cache=True, nogil=True)
def relative_errors(
    begin: int, end: int, entries: Entries, state: Floats32, axes: Axes,
    relative: NDArray[np.float64],
) -> None:  # fmt: skip
    """Per row, sum |r_ij| over sum d_ij, as in `CostSpace.error`."""
    start, neighbour, latency = entries.start, entries.neighbour, entries.latency
    d = len(axes)
    high = state.shape[1] > d
    for i in range(begin, end):
        off = 0.0
        total = 0.0
        for entry in range(start[i], start[i + 1]):
            j = neighbour[entry]
            square = np.float32(0.0)
            for k in range(d):
                square += (state[i, k] - state[j, k]) ** 2
            missing = latency[entry] - np.sqrt(square)
            if high:
                missing -= state[i, d] + state[j, d]
            off += abs(missing)
            total += latency[entry]
        # Measurements that are all 0 have no scale; what is off then counts in ms.
        relative[i] = off / total if total > 0 else off
