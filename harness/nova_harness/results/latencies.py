"""Latencies of results, and their percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_harness.results.schema import Percentiles

if TYPE_CHECKING:
    from nova_core.model.problem import Ints

SAMPLE_COLUMNS = [
    "arrive_us",
    "left_due_us",
    "right_due_us",
    "left_emit_us",
    "right_emit_us",
    "measured",
]
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "p9999": 99.99}


def latencies_us(samples: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Latencies of the measured results by arrival, us.

    That from the later *due* time is the age of a reading, even when its source is behind its
    schedule.

    Args:
        samples: columns `SAMPLE_COLUMNS` of those of `nova_workloads.base.Streams.samples`.

    Returns:
        (k,) arrival, (k,) latency from the later due time, (k,) from the later emission.
    """
    c = samples
    chosen = np.flatnonzero(c["measured"])
    chosen = chosen[np.argsort(c["arrive_us"][chosen], kind="stable")]
    arrive = c["arrive_us"][chosen]
    due = np.maximum(c["left_due_us"], c["right_due_us"])[chosen]
    emit = np.maximum(c["left_emit_us"], c["right_emit_us"])[chosen]
    return arrive, arrive - due, arrive - emit


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
