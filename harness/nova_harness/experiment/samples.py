"""What arrived at the sink, as a table, and what it says in a few figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nova_harness.results.latencies import percentiles
from nova_harness.results.schema import Summary

if TYPE_CHECKING:
    import pyarrow as pa

    from nova_core.model.plan import Plan

# Columns of results that samples keep.
KEPT = ("instance", "window_ms", "left_sequence", "right_sequence", "left_emit_us",
        "right_emit_us", "arrive_us")  # fmt: skip


def due_us(sequence: Any, rate: float, start_ms: int) -> Any:
    """(k,) when tuples were due, us since the epoch (`nova_workloads.schedule.Schedule`)."""
    return start_ms * 1000 + np.floor(sequence * 1e6 / rate).astype(np.int64)


def samples_table(
    results: Any, plan: Plan, *, rate: float, start_ms: int, measured_us: tuple[int, int]
) -> pa.Table:
    """Result records as the samples of a cell.

    Args:
        results: records of `nova_engines.results`.
        plan: that was run.
        rate: of each source, tuples/s.
        start_ms: when the sources began, ms since the epoch.
        measured_us: begin and end of the measured time, us since the epoch; a result belongs to it
            when the later of its tuples was due in it.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {name: results[name] for name in KEPT}
    inside = np.clip(columns["instance"], 0, max(len(plan.instances) - 1, 0))
    columns["pair"] = plan.instances.pair[inside].astype(np.int32)
    for side in ("left", "right"):
        columns[f"{side}_due_us"] = due_us(columns[f"{side}_sequence"], rate, start_ms)
    later = np.maximum(columns["left_due_us"], columns["right_due_us"])
    columns["measured"] = (later >= measured_us[0]) & (later < measured_us[1])
    order = ("instance", "pair", "window_ms", "left_sequence", "right_sequence", "left_emit_us",
             "right_emit_us", "left_due_us", "right_due_us", "arrive_us", "measured")  # fmt: skip
    return pa.table({name: pa.array(columns[name]) for name in order})


def summary(samples: pa.Table, measured_us: tuple[int, int]) -> Summary:
    """Latency and throughput of a cell.

    Latency is arrival minus the later *due* time: what a reading's age is, also when its source
    could not keep to its schedule. ``from_emit_ms`` starts at the later real emission. Both are of
    the results whose tuples were due in the measured time; throughput counts what arrived in it.

    Args:
        samples: of `samples_table`.
        measured_us: begin and end of the measured time, us since the epoch.
    """
    c = {name: samples.column(name).to_numpy() for name in samples.column_names}
    chosen = c["measured"]
    later_due = np.maximum(c["left_due_us"], c["right_due_us"])
    later_emit = np.maximum(c["left_emit_us"], c["right_emit_us"])
    arrived = (c["arrive_us"] >= measured_us[0]) & (c["arrive_us"] < measured_us[1])
    seconds = (measured_us[1] - measured_us[0]) / 1e6
    joined = sum(
        len(np.unique(np.stack([c["pair"][arrived], c[f"{side}_sequence"][arrived]]), axis=1).T)
        for side in ("left", "right")
    )
    lateness = np.concatenate(
        [(c[f"{side}_emit_us"] - c[f"{side}_due_us"])[chosen] for side in ("left", "right")]
    )
    return Summary(
        latency_ms=percentiles((c["arrive_us"] - later_due)[chosen]),
        from_emit_ms=percentiles((c["arrive_us"] - later_emit)[chosen]),
        source_lateness_ms=percentiles(lateness),
        throughput_results_per_s=float(arrived.sum() / seconds),
        throughput_tuples_per_s=float(joined / seconds),
        results=int(chosen.sum()),
    )
