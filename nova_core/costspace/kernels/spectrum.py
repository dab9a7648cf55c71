"""Products with the doubly centred latencies, of which only a sample is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nova_core.kernel_cache import njit

Ints = NDArray[np.int64]
Floats32 = NDArray[np.float32]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def row_means(begin: int, end: int, start: Ints, latency: Floats32, mean: Floats32) -> None:
    """Mean measured latency of every row in ``begin:end``, ms; 0 without any."""
    for i in range(begin, end):
        total = 0.0
        for entry in range(start[i], start[i + 1]):
            total += latency[entry]
        mean[i] = total / max(start[i + 1] - start[i], 1)


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def centre(
    begin: int, end: int, start: Ints, neighbour: NDArray[np.int32], latency: Floats32,
    mean: Floats32, overall: np.float32, clip: np.float32, centred: NDArray[np.int8],
) -> None:  # fmt: skip
    """Doubly centre the entries of rows ``begin:end``: d_ij - mean_i - mean_j + overall.

    Args:
        begin: first row.
        end: row after the last.
        start: (n + 1,) first entry of each row.
        neighbour: (2m,) rows at the other end.
        latency: (2m,) ms.
        mean: (n,) mean latency of each row, ms.
        overall: mean of the means, ms.
        clip: ms that results are cut to, either side of 0.
        centred: (2m,) where to put them, in 127ths of ``clip``; finer steps would drown in noise.
    """
    scale = np.float32(127.0) / clip
    for i in range(begin, end):
        for entry in range(start[i], start[i + 1]):
            value = latency[entry] - mean[i] - mean[neighbour[entry]] + overall
            centred[entry] = np.int8(min(max(value, -clip), clip) * scale)


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "arcp", "nsz"})
def product(
    begin: int, end: int, start: Ints, neighbour: NDArray[np.int32], centred: NDArray[np.int8],
    vector: Floats32, result: Floats32,
) -> None:  # fmt: skip
    """result_i = -1/2 sum over measured j of c_ij v_j, for the rows ``begin:end``."""
    for i in range(begin, end):
        total = np.float32(0.0)
        for entry in range(start[i], start[i + 1]):
            total += np.float32(centred[entry]) * vector[neighbour[entry]]
        result[i] = np.float32(-0.5) * total
