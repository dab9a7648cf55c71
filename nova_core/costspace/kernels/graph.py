"""Measured pairs into rows per node, in an order that nodes' names do not change."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


@njit(cache=True, inline="always")
def mix(value: np.uint64) -> np.uint64:
    """Scatter 64 bits (the finalizer of SplitMix64, Steele et al. 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def digests(source: Ints, target: Ints, latency: NDArray[np.float32], key: Keys) -> Keys:
    """Per node a digest of its latencies and its neighbours' keys; sums, so no order matters."""
    bits = latency.view(np.uint32)
    found = np.zeros(len(key), np.uint64)
    for pair in range(len(source)):
        a, b = source[pair], target[pair]
        value = mix(np.uint64(bits[pair]) + np.uint64(0x9E3779B97F4A7C15))
        found[a] += mix(value + key[b])
        found[b] += mix(value + key[a])
    for node in range(len(key)):
        found[node] = mix(found[node] + key[node])
    return found


@njit(cache=True, nogil=True)
def rows(
    source: Ints, target: Ints, latency: NDArray[np.float32], row: NDArray[np.int32]
) -> tuple[Ints, NDArray[np.int32], NDArray[np.float32]]:
    """Entries of each row from both ends of every pair, sorted by neighbour within the row.

    Args:
        source: (m,) node at one end.
        target: (m,) node at the other.
        latency: (m,) ms.
        row: (n,) row of each node.

    Returns:
        (n + 1,) first entry of each row, (2m,) neighbours' rows, (2m,) latencies.
    """
    n = len(row)
    start = np.zeros(n + 1, np.int64)
    for pair in range(len(source)):
        start[row[source[pair]] + 1] += 1
        start[row[target[pair]] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    neighbour = np.empty(2 * len(source), np.int32)
    measured = np.empty(2 * len(source), np.float32)
    # Counts up to the next row's start, and is shifted back afterwards.
    for pair in range(len(source)):
        a, b = row[source[pair]], row[target[pair]]
        at, back = start[a], start[b]
        neighbour[at], measured[at] = b, latency[pair]
        start[a] += 1
        back = start[b]
        neighbour[back], measured[back] = a, latency[pair]
        start[b] += 1
    for i in range(n, 0, -1):
        start[i] = start[i - 1]
    start[0] = 0
    for i in range(n):
        _sort(neighbour, measured, start[i], start[i + 1])
    return start, neighbour, measured


@njit(cache=True, nogil=True)
def _sort(neighbour: NDArray[np.int32], latency: NDArray[np.float32], begin: int, end: int) -> None:
    """Sort entries by neighbour, then latency: Shell's sort, in place, good for 40 and for 10^6."""
    gap = 1
    while gap < (end - begin) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, end):
            key, value = neighbour[i], latency[i]
            j = i
            while j >= begin + gap and (
                neighbour[j - gap] > key or (neighbour[j - gap] == key and latency[j - gap] > value)
            ):
                neighbour[j], latency[j] = neighbour[j - gap], latency[j - gap]
                j -= gap
            neighbour[j], latency[j] = key, value
        gap //= 3
