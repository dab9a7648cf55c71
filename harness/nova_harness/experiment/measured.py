"""Summary figures of a cell: latency, throughput, and the wait in a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nova_harness.results.latencies import latencies_us, percentiles
from nova_harness.results.schema import BackPressureFigures, KafkaFigures, Summary

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from nova_kafka.measures import Sample

LEAST_SAMPLES = 2


def summary(samples: pa.Table, tuples_per_s: float, measured_us: tuple[int, int]) -> Summary:
    """Latency and throughput of a cell.

    Latencies are those of `latencies_us`, of results whose tuples were due in the measured time;
    throughput counts results that arrived in it.

    Args:
        samples: as of `nova_workloads.base.Streams.samples`.
        tuples_per_s: that took part in results.
        measured_us: begin and end of the measured time, us since the epoch.
    """
    c = {name: samples.column(name).to_numpy() for name in samples.column_names}
    chosen = c["measured"]
    _, from_due, from_emit = latencies_us(c)
    arrived = (c["arrive_us"] >= measured_us[0]) & (c["arrive_us"] < measured_us[1])
    sides = [(c[f"{side}_emit_us"] - c[f"{side}_due_us"])[chosen] for side in ("left", "right")]
    return Summary(
        latency_ms=percentiles(from_due),
        from_emit_ms=percentiles(from_emit),
        source_lateness_ms=percentiles(np.concatenate(sides)),
        throughput_results_per_s=float(arrived.sum() / ((measured_us[1] - measured_us[0]) / 1e6)),
        throughput_tuples_per_s=tuples_per_s,
        results=int(chosen.sum()),
    )


def kafka_figures(
    samples: pa.Table,
    waited_us: NDArray[np.int32] | None,
    looks: Sequence[Sample],
    measured_us: tuple[int, int],
) -> KafkaFigures:
    """L_p, L_e and back-pressure of a cell whose streams pass through Kafka.

    See Costream, Definitions 2 to 4.

    Args:
        samples: (k,) as of `nova_workloads.base.Streams.samples`.
        waited_us: (k,) as of `nova_kafka.measures.latencies`.
        looks: at the broker.
        measured_us: begin and end of the measured time, us since the epoch.
    """
    from nova_kafka.measures import back_pressure, latencies

    begin, end = (moment / 1e6 for moment in measured_us)
    inside = [one for one in looks if begin <= one.time_s < end]
    c = {name: samples.column(name).to_numpy() for name in samples.column_names}
    chosen = c["measured"]
    latency = latencies(
        np.minimum(c["left_emit_us"], c["right_emit_us"])[chosen],
        c["arrive_us"][chosen],
        None if waited_us is None else waited_us[chosen].astype(np.int64),
    )
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
