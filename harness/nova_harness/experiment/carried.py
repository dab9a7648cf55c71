"""What the wait in a broker costs a cell: L_p, L_e, back-pressure (Costream, Definitions 2-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nova_harness.experiment.latencies import percentiles
from nova_kafka.measures import Sample, back_pressure, latencies

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_SAMPLES = 2


def carried_figures(
    records: NDArray[np.void], samples: Sequence[Sample], measured_us: tuple[int, int]
) -> dict[str, Any]:
    """Figures of a cell whose streams came through Kafka.

    Args:
        records: (k,) results whose tuples were due in the measured time.
        samples: looks at the broker.
        measured_us: begin and end of the measured time, us since the epoch.

    Returns:
        ``processing_ms`` (L_p) and ``end_to_end_ms`` (L_e) as percentiles; ``back_pressure``: None
        for fewer than two looks in the measured time, else its rate R (tuples/s), whether it
        occurred, the backlog at the end and at most (tuples), and the number of looks.
    """
    begin, end = (moment / 1e6 for moment in measured_us)
    inside = [one for one in samples if begin <= one.time_s < end]
    found = latencies(records)
    pressure = None
    if len(inside) >= LEAST_SAMPLES:
        told = back_pressure(inside)
        pressure = {
            "rate": told.rate,
            "occurred": told.occurred,
            "backlog": told.backlog,
            "most": told.most,
            "samples": len(inside),
        }
    return {
        "processing_ms": percentiles(found.processing),
        "end_to_end_ms": percentiles(found.end_to_end),
        "back_pressure": pressure,
    }


__all__ = ["carried_figures"]
