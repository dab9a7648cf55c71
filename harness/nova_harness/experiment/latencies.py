"""Percentiles of latencies, from HDR histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.problem import Ints

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "p9999": 99.99}
MOST_US = 24 * 3_600_000_000
DIGITS = 3  # within 0.1 %


def percentiles(latency_us: Ints) -> dict[str, float | None]:
    """Mean, percentiles and maximum of some latencies, ms; None of nothing.

    Percentiles come from an HDR histogram of three digits, so they are at most 0.1 % too high; mean
    and maximum are exact.

    Args:
        latency_us: (k,) us. Below 1 us, which only clocks that are apart can tell, counts as 1 us
            in the percentiles.
    """
    from hdrh.histogram import HdrHistogram

    if len(latency_us) == 0:
        return dict.fromkeys(("mean", *PERCENTILES, "max"))
    histogram = HdrHistogram(1, MOST_US, DIGITS)
    # The histogram keeps no more than three digits; counting what falls together first is much
    # quicker than recording values one by one.
    values, counts = np.unique(np.clip(latency_us, 1, MOST_US), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        histogram.record_value(value, count)
    found: dict[str, float | None] = {"mean": float(np.mean(latency_us)) / 1000}
    for name, percentile in PERCENTILES.items():
        found[name] = histogram.get_value_at_percentile(percentile) / 1000
    found["max"] = float(latency_us.max()) / 1000
    return found


__all__ = ["PERCENTILES", "percentiles"]
