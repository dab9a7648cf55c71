"""One node's place among others that stay where they are."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nova_core.costspace.kernels.graph import mix

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]
Floats32 = NDArray[np.float32]
Axes = tuple[int, ...]

# Steps from each start, and in the end from the best one.
_SHORT = 6
_LONG = 40


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def _settle(
    steps: int, begin: int, end: int, neighbour: Rows, latency: Floats32, others: Floats32,
    own: Floats32, axes: Axes, floor: np.float32, rough: np.float32, fine: np.float32,
) -> float:  # fmt: skip
    """Move ``own`` downhill by steps like `relax.relax`'s; return the loss it ends up with."""
    d = len(axes)
    high = others.shape[1] > d
    step = np.empty(d)
    loss = 0.0
    smoothing = rough
    shrink = (fine / rough) ** np.float32(1.0 / max(steps - 1, 1))
    for turn in range(steps + 1):
        for k in range(d):
            step[k] = 0.0
        rise = 0.0
        total = 1e-30
        loss = 0.0
        for entry in range(begin, end):
            j = neighbour[entry]
            square = np.float32(1e-18)
            for k in range(d):
                square += (own[k] - others[j, k]) ** 2
            apart = np.sqrt(square)
            missing = latency[entry] - apart
            if high:
                missing -= own[d] + others[j, d]
            root = np.sqrt(latency[entry] + floor)
            loss += abs(missing) / root
            pull = np.float32(1.0) / (max(abs(missing), smoothing) * root)
            total += pull
            pull *= missing
            rise += pull
            pull /= apart
            for k in range(d):
                step[k] += pull * (own[k] - others[j, k])
        if turn == steps:
            break
        for k in range(d):
            own[k] += np.float32(step[k] / total)
        if high:
            own[d] = max(own[d] + np.float32(rise / total), np.float32(0.0))
        smoothing *= shrink
    return loss


@njit(cache=True, nogil=True)
def place(
    begin: int, end: int, start: Ints, neighbour: Rows, latency: Floats32,
    others: Floats32, own: Floats32, axes: Axes,
    tries: int, floor: np.float32, scale: np.float32, seed: int,
) -> None:  # fmt: skip
    """Put each node in ``begin:end`` where its measurements fit best, alone and for itself.

    It settles from where it is and from some places at the measured distance from a neighbour; the
    best wins. A node without measurements stays.

    Args:
        begin: first row.
        end: row after the last.
        start: first entry of each row.
        neighbour: for each entry, a row of ``others``.
        latency: for each entry, ms.
        others: (n, d) positions, ms, or (n, d + 1) with heights last.
        own: a row for each node to place, likewise; changed. May be the same array.
        axes: d zeros.
        tries: how many other places each node tries.
        floor: c of the weights 1 / sqrt(d_ij + c), ms.
        scale: a typical latency, ms.
        seed: of the places tried.
    """
    d = len(axes)
    width = others.shape[1]
    trial = np.empty(width, np.float32)
    best = np.empty(width, np.float32)
    for i in range(begin, end):
        first, last = start[i], start[i + 1]
        if first == last:
            continue
        least = np.inf
        state = mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(i + 1))
        for attempt in range(tries + 1):
            for k in range(width):
                trial[k] = own[i, k]
            if attempt > 0:
                state = mix(state + np.uint64(0x9E3779B97F4A7C15))
                entry = first + np.int64(state % np.uint64(last - first))
                square = np.float32(1e-18)
                for k in range(d):
                    state = mix(state + np.uint64(0x9E3779B97F4A7C15))
                    trial[k] = np.float64(state >> np.uint64(11)) / 2.0**52 - 1.0
                    square += trial[k] ** 2
                reach = latency[entry] / np.sqrt(square)
                for k in range(d):
                    trial[k] = others[neighbour[entry], k] + reach * trial[k]
            loss = _settle(
                _SHORT, first, last, neighbour, latency, others, trial, axes, floor,
                np.float32(0.3) * scale, np.float32(0.03) * scale,
            )  # fmt: skip
            if loss < least:
                least = loss
                best[:] = trial
        _settle(
            _LONG, first, last, neighbour, latency, others, best, axes, floor,
            np.float32(0.03) * scale, np.float32(0.001) * scale,
        )  # fmt: skip
        for k in range(width):
            own[i, k] = best[k]
