"""Whole series of measurements through the filter that follows them one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nova_core.costspace.percentile_filter import PERCENTILE, WINDOW, PercentileFilter
from nova_core.model.problem import Floats


def filtered_series(
    samples: ArrayLike, window: int = WINDOW, percentile: float = PERCENTILE
) -> Floats:
    """(..., t) filtered latencies of (..., t) samples, ms; NaN until a first sample came."""
    series = np.atleast_1d(np.asarray(samples, np.float64))
    flat = series.reshape(-1, series.shape[-1])
    links, latency = PercentileFilter(len(flat), window, percentile), np.empty_like(flat)
    for time in range(flat.shape[1]):
        latency[:, time] = links.add(np.arange(len(flat)), flat[:, time])
    return latency.reshape(series.shape)
