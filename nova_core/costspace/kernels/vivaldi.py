"""Rounds of Vivaldi (Dabek et al. 2004, figure 3): nodes as springs, one sample at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.kernels.graph import Entries, mix
from nova_core.kernel_cache import njit

Floats32 = NDArray[np.float32]


class Springs(NamedTuple):
    """How far nodes move.

    Attributes:
        step: c_c of the paper.
        tuning: c_e of the paper.
        least: ms below which a latency does not lessen when it divides an error.
    """

    step: np.float32
    tuning: np.float32
    least: np.float32


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def round_of(
    begin: int, end: int, entries: Entries, old: Floats32, new: Floats32, axes: tuple[int, ...],
    samples: int, springs: Springs, seed: int,
) -> None:  # fmt: skip
    """Every node in ``begin:end`` measures some neighbours and moves after each.

    Others are seen where they were before the round, so nodes may be split among threads in any
    way. delta = step * w with the confidence weight w = e_i / (e_i + e_j); heights move as the last
    component of the vector [x_i - x_j, h_i + h_j] (section 5.4).

    Args:
        begin: first row.
        end: row after the last.
        entries: what nodes can measure.
        old: (n, d + 1) the relative error each node believes in, then its position, ms; or
            (n, d + 2) with heights last.
        new: where to put the new ones.
        axes: d zeros; their number is known when compiling, which unrolls the loops over it.
        samples: how many neighbours each node measures.
        springs: how far nodes move.
        seed: of which neighbours are measured.
    """
    start, neighbour, latency = entries.start, entries.neighbour, entries.latency
    step, tuning, least = springs.step, springs.tuning, springs.least
    d = len(axes)
    one = np.float32(1.0)
    high = old.shape[1] > d + 1
    own = np.empty(d, np.float32)
    apart = np.empty(d, np.float32)
    for i in range(begin, end):
        degree = start[i + 1] - start[i]
        own_error = old[i, 0]
        for k in range(d):
            own[k] = old[i, k + 1]
        height = old[i, d + 1] if high else np.float32(0.0)
        chosen = mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(i + 1))
        at = np.int64(chosen % np.uint64(max(degree, 1)))
        for _ in range(min(samples, degree)):
            entry = start[i] + at
            at = (at + 1) % degree
            j = neighbour[entry]
            square = np.float32(1e-18)
            for k in range(d):
                apart[k] = own[k] - old[j, k + 1]
                square += apart[k] ** 2
            both = height + old[j, d + 1] if high else np.float32(0.0)
            distance = np.sqrt(square) + both
            missing = latency[entry] - distance
            weight = own_error / max(own_error + old[j, 0], np.float32(1e-9))
            relative = min(abs(missing) / max(latency[entry], least), one)
            own_error += tuning * weight * (relative - own_error)
            move = step * weight * missing / distance
            for k in range(d):
                own[k] += move * apart[k]
            if high:
                height = max(height + move * both, np.float32(0.0))
        new[i, 0] = own_error
        for k in range(d):
            new[i, k + 1] = own[k]
        if high:
            new[i, d + 1] = height
