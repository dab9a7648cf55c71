"""Measured pairs into rows per node, in an order that nodes' names do not change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nova_core.kernel_cache import njit

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


class Entries(NamedTuple):
    """What nodes have measured, row by row.

    Attributes:
        start: (n + 1,) first entry of each row.
        neighbour: (2m,) for each entry, the row at the other end.
        latency: (2m,) ms.
    """

    start: Ints
    neighbour: NDArray[np.int32]
    latency: NDArray[np.float32]


@njit(cache=True, inline="always")
def mix(value: np.uint64) -> np.uint64:
    """Scatter 64 bits (the finalizer of SplitMix64, Steele et al. 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def digests(
    source: Ints, target: Ints, latency: NDArray[np.float32], nodes: int, seed: int
) -> tuple[Keys, NDArray[np.int32]]:
    """Per node a digest of its latencies, a sum, so that their order does not matter; its degree.

    Args:
        source: (m,) node at one end.
        target: (m,) node at the other.
        latency: (m,) ms.
        nodes: n.
        seed: another seed, other digests.

    Returns:
        (n,) digests and (n,) degrees.
    """
    bits = latency.view(np.uint32)
    salt = mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15))
    key = np.zeros(nodes, np.uint64)
    degree = np.zeros(nodes, np.int32)
    for pair in range(len(source)):
        value = mix(np.uint64(bits[pair]) + salt)
        for node in (source[pair], target[pair]):
            key[node] += value
            degree[node] += 1
    return key, degree


@njit(cache=True, nogil=True)
def refined_digests(source: Ints, target: Ints, latency: NDArray[np.float32], key: Keys) -> Keys:
    """Digests that also take in the neighbours' (colour refinement, Weisfeiler and Leman 1968)."""
    bits = latency.view(np.uint32)
    refined = np.zeros(len(key), np.uint64)
    for pair in range(len(source)):
        a, b = source[pair], target[pair]
        value = mix(np.uint64(bits[pair]) + np.uint64(0x9E3779B97F4A7C15))
        refined[a] += mix(value + mix(key[b]))
        refined[b] += mix(value + mix(key[a]))
    for node in range(len(key)):
        refined[node] = mix(refined[node] + mix(key[node]))
    return refined


@njit(cache=True, nogil=True)
def rows(
    source: Ints,
    target: Ints,
    latency: NDArray[np.float32],
    row: NDArray[np.int32],
    degree: NDArray[np.int32],
) -> tuple[Ints, NDArray[np.int32], NDArray[np.float32]]:
    """Entries of each row from both ends of every pair.

    Args:
        source: (m,) node at one end.
        target: (m,) node at the other.
        latency: (m,) ms.
        row: (n,) row of each node.
        degree: (n,) how many ends of pairs each node is.

    Returns:
        (n + 1,) first entry of each row, (2m,) neighbours' rows, (2m,) latencies.
    """
    n = len(row)
    start = np.zeros(n + 1, np.int64)
    for node in range(n):
        start[row[node] + 1] = degree[node]
    for i in range(n):
        start[i + 1] += start[i]
    free = np.empty(n, np.int64)
    for node in range(n):
        free[node] = start[row[node]]
    neighbour = np.empty(2 * len(source), np.int32)
    measured = np.empty(2 * len(source), np.float32)
    for pair in range(len(source)):
        a, b = source[pair], target[pair]
        at = free[a]
        free[a] = at + 1
        neighbour[at], measured[at] = row[b], latency[pair]
        at = free[b]
        free[b] = at + 1
        neighbour[at], measured[at] = row[a], latency[pair]
    return start, neighbour, measured


@njit(cache=True, nogil=True)
def sort_rows(
    begin: int, end: int, start: Ints, neighbour: NDArray[np.int32], latency: NDArray[np.float32]
) -> None:
    """Sort the entries of rows ``begin:end`` by neighbour, then latency.

    Shell's sort: in place, and good for 40 entries as for a million.
    """
    for i in range(begin, end):
        first, last = start[i], start[i + 1]
        gap = 1
        while gap < (last - first) // 9:
            gap = 3 * gap + 1
        while gap > 0:
            for k in range(first + gap, last):
                key, value = neighbour[k], latency[k]
                at = k
                while at >= first + gap and (
                    neighbour[at - gap] > key
                    or (neighbour[at - gap] == key and latency[at - gap] > value)
                ):
                    neighbour[at], latency[at] = neighbour[at - gap], latency[at - gap]
                    at -= gap
                neighbour[at], latency[at] = key, value
            gap //= 3
