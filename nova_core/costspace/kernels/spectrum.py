"""Products with the doubly centred latencies, of which only a sample is known."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
def centred_product(
    begin: int, end: int, start: Ints, neighbour: NDArray[np.int32], latency: Floats32,
    mean_and_vector: Floats32, overall: np.float32, clip: np.float32, product: Floats32,
) -> None:  # fmt: skip
    """product_i = -1/2 sum over measured j of (d_ij - mean_i - mean_j + overall) v_j.

    Args:
        begin: first row.
        end: row after the last.
        start: (n + 1,) first entry of each row.
        neighbour: (2m,) rows at the other end.
        latency: (2m,) ms.
        mean_and_vector: (n, 2) mean latency of each row, ms, and the vector v; side by side, for
            they are read at random.
        overall: mean of the means, ms.
        clip: ms that a centred latency is cut to, either side of 0.
        product: (n,) where to put the product.
    """
    for i in range(begin, end):
        total = np.float32(0.0)
        own = overall - mean_and_vector[i, 0]
        for entry in range(start[i], start[i + 1]):
            j = neighbour[entry]
            centred = latency[entry] + own - mean_and_vector[j, 0]
            total += min(max(centred, -clip), clip) * mean_and_vector[j, 1]
        product[i] = np.float32(-0.5) * total
