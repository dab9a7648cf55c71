"""What the wait in a broker costs a cell: L_p, L_e, back-pressure (Costream, Definitions 2-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nova_harness.results.latencies import percentiles
from nova_harness.results.schema import BackPressureFigures, KafkaFigures
from nova_kafka.measures import Sample, back_pressure, latencies

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_SAMPLES = 2


def kafka_figures(
    records: NDArray[np.void], samples: Sequence[Sample], measured_us: tuple[int, int]
) -> KafkaFigures:
    """Figures of a cell whose streams came through Kafka.

    Args:
        records: (k,) results whose tuples were due in the measured time.
        samples: looks at the broker.
        measured_us: begin and end of the measured time, us since the epoch.
    """
    begin, end = (moment / 1e6 for moment in measured_us)
    inside = [one for one in samples if begin <= one.time_s < end]
    latency = latencies(records)
    pressure = None
    if len(inside) >= LEAST_SAMPLES:
        backlog = back_pressure(inside)
        pressure = BackPressureFigures(
            rate=backlog.rate,
            occurred=backlog.occurred,
            backlog=backlog.backlog,
            most=backlog.most,
            samples=len(inside),
        )
    return KafkaFigures(
        processing_ms=percentiles(latency.processing),
        end_to_end_ms=percentiles(latency.end_to_end),
        back_pressure=pressure,
    )
