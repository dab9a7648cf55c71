"""What jobs on Spark delivered, beside what they must."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nova_core.model import Plan
from nova_engines.flow import Flow
from nova_engines.sources import Sources
from nova_spark import results
from nova_workloads.reference import Comparison, Reference, Results
from nova_workloads.schedule import Schedule, Tuples, all_tuples
from nova_workloads.streams import Stream


def tuples_of(sources: Sources, start_ms: int) -> tuple[list[Stream], Tuples]:
    """What the sources must emit, by the reference's own schedule."""
    streams, blocks = [], []
    for number, one in enumerate(sources.sources):
        value = np.array(one.values)
        stream = Stream(one.sensor, one.region, one.stream, np.arange(len(value)), value)
        schedule = Schedule(rate=one.rate, start_ms=start_ms, count=sources.count)
        emitted = all_tuples(schedule, [stream])
        streams.append(stream)
        blocks.append((np.full(len(emitted), number), emitted))
    return streams, Tuples(
        np.concatenate([number for number, _ in blocks]),
        *(
            np.concatenate([getattr(emitted, name) for _, emitted in blocks])
            for name in ("sequence", "time_ms", "value", "due")
        ),
    )


def compare(
    plan: Plan,
    flow: Flow,
    sources: Sources,
    start_ms: int,
    directory: Path,
) -> Comparison:
    """All that was delivered against the reference; every field of a result is looked at."""
    p = plan.problem
    streams, tuples = tuples_of(sources, start_ms)
    pairs = list(zip(p.matrix.left.tolist(), p.matrix.right.tolist(), strict=True))
    keys, every = flow.joins[0].match
    reference = Reference(
        streams,
        tuples,
        flow.boundary_ms,
        keys=keys,
        every=every,
        pairs=pairs,
    )
    delivered = []
    for number, sink in enumerate(flow.sinks):
        r = results.read(directory / str(number))
        pair = plan.instances.pair[r["instance"]]
        assert set(p.nodes.ids[p.sink_node[pair]].tolist()) <= {sink.node}
        assert (r["left_source"] == p.matrix.left[pair]).all()
        assert (r["right_source"] == p.matrix.right[pair]).all()
        if sources.sources[0].kind == "replay":
            assert (r["waited_us"] == 0).all()
        else:
            assert (r["waited_us"] > 0).all()
        for side in ("left", "right"):
            source, sequence = r[f"{side}_source"], r[f"{side}_sequence"]
            assert (r[f"{side}_value"] == 1000 * source + sequence % 7).all()
            rate = np.array([one.rate for one in sources.sources])[source]
            due = start_ms * 1000 + np.floor(sequence * 1e6 / rate)
            # Sources emit as soon as they can.
            assert (r[f"{side}_emit_us"] >= due).all()
            assert (r[f"{side}_emit_us"] <= r["arrive_us"]).all()
        delivered.append(
            Results(
                r["left_source"].astype(np.int64),
                r["left_sequence"],
                r["right_source"].astype(np.int64),
                r["right_sequence"],
                r["time_ms"],
            )
        )
    return reference.compare(delivered)
