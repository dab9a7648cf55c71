"""Percentiles of latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nova_harness.results.schema import Percentiles

if TYPE_CHECKING:
    from nova_core.model.problem import Ints

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "p9999": 99.99}


def percentiles(latency_us: Ints) -> Percentiles:
    """Mean, percentiles and maximum of latencies, ms; None for empty input.

    A percentile is the least latency that so many percent of all latencies do not exceed.

    Args:
        latency_us: (k,) us.
    """
    if len(latency_us) == 0:
        return Percentiles()
    values = np.percentile(latency_us, list(PERCENTILES.values()), method="inverted_cdf") / 1000
    return Percentiles(
        mean=float(np.mean(latency_us)) / 1000,
        max=float(latency_us.max()) / 1000,
        **dict(zip(PERCENTILES, values.tolist(), strict=True)),
    )
