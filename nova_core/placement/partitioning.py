"""Bandwidth-aware stream partitioning (paper, section 3.4, Eqs. 7 and 8)."""

from __future__ import annotations

import numpy as np

from nova_core.model.problem import Floats, Ints

# The paper's sigma: how coarsely inputs may be cut.
DEFAULT_SIGMA = 0.4
# Finer cuts give more pieces, so more copies of tuples.
FINER_SIGMAS = 0.2, 0.1
# A rate that is a multiple of p_max up to rounding must not get a sliver of a partition.
_ROUNDING = 1e-9


def maximum_partition_rate(
    left_rate: Floats, right_rate: Floats, sigma: float | None, bandwidth: float | None = None
) -> Floats:
    """p_max(s, t) = max(1, sigma * (dr(s) + dr(t)) / 2), tuples/s (Eq. 7), per pair.

    Args:
        left_rate: dr(s), tuples/s.
        right_rate: dr(t), tuples/s.
        sigma: None derives it from t_b (Eq. 8); without t_b, the paper's value.
        bandwidth: t_b, tuples/s; None for no limit.
    """
    factor: Floats | float = DEFAULT_SIGMA if sigma is None else sigma
    if sigma is None and bandwidth is not None:
        factor = sigma_for_bandwidth(left_rate, right_rate, bandwidth)
    total = np.asarray(left_rate, np.float64) + np.asarray(right_rate, np.float64)
    return np.maximum(1.0, np.asarray(factor) * 0.5 * total)


def finer_sigmas(sigma: float | None, bandwidth: float | None) -> tuple[float, ...]:
    """Sigmas to try in turn where joins find no room; none where it is chosen, or from t_b."""
    return FINER_SIGMAS if sigma is None and bandwidth is None else ()


def sigma_for_bandwidth(left_rate: Floats, right_rate: Floats, bandwidth: float) -> Floats:
    """The sigma in [0, 1] that minimizes (sigma * 2 dr(s) dr(t) - t_b)^2 (Eq. 8), per pair.

    Args:
        left_rate: dr(s), tuples/s.
        right_rate: dr(t), tuples/s.
        bandwidth: t_b, tuples/s.
    """
    product = 2.0 * np.asarray(left_rate, np.float64) * np.asarray(right_rate, np.float64)
    return np.clip(bandwidth / product, 0.0, 1.0)


def partition_count(rate: Floats, maximum: Floats) -> Ints:
    """Partitions a stream needs so that none exceeds ``maximum`` (both tuples/s)."""
    return np.maximum(1, np.ceil(rate / maximum * (1.0 - _ROUNDING))).astype(np.int64)


def partition_rates(rate: float, maximum: float) -> Floats:
    """Rates of a stream's partitions: ``maximum`` each, the remainder last, as in the paper.

    10 tuples/s under a maximum of 3 become 3, 3, 3 and 1.
    """
    count = int(partition_count(np.asarray(rate), np.asarray(maximum)))
    rates = np.full(count, float(maximum))
    rates[-1] = rate - maximum * (count - 1)
    return rates
