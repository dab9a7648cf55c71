"""Triangle inequalities that measured latencies violate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nova_core.kernel_cache import njit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(cache=True, nogil=True)
def detours(
    begin: int, end: int, source: Ints, target: Ints, latency: Floats, shorter: Ints, known: Ints,
    excess: Floats, best: Floats,
) -> None:  # fmt: skip
    """For each pair in ``begin:end``, the ways over a third node.

    Args:
        begin: first pair.
        end: pair after the last.
        source: (p,) node at one end.
        target: (p,) node at the other.
        latency: (n, n) ms, symmetric; NaN where not measured.
        shorter: (p,) set to how many ways are shorter than the direct one.
        known: (p,) set to how many ways were measured.
        excess: (p,) set to the sum over the shorter ways of direct / way - 1.
        best: (p,) set to the shortest way, ms; infinite without any.
    """
    n = len(latency)
    for pair in range(begin, end):
        a, b = source[pair], target[pair]
        direct = latency[a, b]
        count = 0
        ways = 0
        total = 0.0
        least = np.inf
        for k in range(n):
            if k in (a, b):
                continue
            way = latency[a, k] + latency[b, k]
            if way != way:
                continue
            ways += 1
            least = min(least, way)
            # Rounding alone is no violation; two zeros are no way.
            if way > 0 and direct > way * (1 + 1e-9):
                count += 1
                total += direct / way - 1
        shorter[pair], known[pair], excess[pair], best[pair] = count, ways, total, least
