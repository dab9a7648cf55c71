"""Rounds of Vivaldi (Dabek et al. 2004, figure 3): nodes as springs, one sample at a time."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nova_core.costspace.kernels.graph import mix

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def round_of(
    begin: int, end: int, start: Ints, neighbour: NDArray[np.int32], latency: NDArray[np.float32],
    position: Floats, height: Floats, error: Floats,
    new_position: Floats, new_height: Floats, new_error: Floats,
    samples: int, step: float, tuning: float, least: float, seed: int,
) -> None:  # fmt: skip
    """Every node in ``begin:end`` measures some neighbours and moves after each.

    Others are seen where they were before the round, so nodes may be split among threads in any
    way. delta = step * w with the confidence weight w = e_i / (e_i + e_j); heights move as the last
    component of the vector [x_i - x_j, h_i + h_j] (section 5.4).

    Args:
        begin: first row.
        end: row after the last.
        start: (n + 1,) first entry of each row.
        neighbour: (2m,) rows at the other end.
        latency: (2m,) ms.
        position: (n, d) ms; read only.
        height: (n,) ms, or (0,) for none; read only.
        error: (n,) relative error each node believes in; read only.
        new_position: (n, d) where to put the new ones.
        new_height: likewise.
        new_error: likewise.
        samples: how many neighbours each node measures.
        step: c_c of the paper.
        tuning: c_e of the paper.
        least: ms below which a latency does not lessen when it divides an error.
        seed: of which neighbours are measured.
    """
    d = position.shape[1]
    high = len(height) > 0
    own = np.empty(d)
    apart = np.empty(d)
    for i in range(begin, end):
        degree = start[i + 1] - start[i]
        for k in range(d):
            own[k] = position[i, k]
        own_height = height[i] if high else 0.0
        own_error = error[i]
        chosen = mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(i + 1))
        at = np.int64(chosen % np.uint64(max(degree, 1)))
        for _ in range(min(samples, degree)):
            entry = start[i] + at
            at = (at + 1) % degree
            j = neighbour[entry]
            square = 1e-18
            for k in range(d):
                apart[k] = own[k] - position[j, k]
                square += apart[k] ** 2
            both = own_height + height[j] if high else 0.0
            distance = np.sqrt(square) + both
            missing = np.float64(latency[entry]) - distance
            weight = own_error / max(own_error + error[j], 1e-12)
            relative = min(abs(missing) / max(np.float64(latency[entry]), least), 1.0)
            own_error += tuning * weight * (relative - own_error)
            move = step * weight * missing / distance
            for k in range(d):
                own[k] += move * apart[k]
            if high:
                own_height = max(own_height + move * both, 0.0)
        for k in range(d):
            new_position[i, k] = own[k]
        if high:
            new_height[i] = own_height
        new_error[i] = own_error
