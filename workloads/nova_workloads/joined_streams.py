"""Streams whose sources are joined in pairs: what they emit, and the expected results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.model.partitioner import partition_of
from nova_workloads.base import Traffic
from nova_workloads.reference import Reference, Results
from nova_workloads.schedule import Tuples

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from nova_core.model.plan import Plan
    from nova_core.model.problem import Ints, Problem
    from nova_engines.flow import Match
    from nova_engines.sources import Pace, Sources
    from nova_workloads.comparison import Comparison
    from nova_workloads.streams import Stream

# Values that a source repeats; they travel with the job.
MOST_VALUES = 8192
# Columns of results that samples keep.
KEPT = ("instance", "left_sequence", "right_sequence", "left_emit_us", "right_emit_us",
        "arrive_us")  # fmt: skip


@dataclass(frozen=True, eq=False)
class JoinedStreams:
    """See `nova_workloads.base.Streams`; results are records of `nova_engines.results`.

    Attributes:
        problem: whose pairs are joined.
        streams: what each of its sources measures, in their order.
        traffic: how much of it, and what matches.
    """

    problem: Problem
    streams: Sequence[Stream]
    traffic: Traffic

    @property
    def expected_rate(self) -> float:
        """Results/s of all pairs."""
        return len(self.problem.matrix) * self.traffic.rate * self.traffic.matches

    @property
    def match(self) -> Match:
        """Which tuples match."""
        return self.traffic.match

    def sources(
        self,
        start_ms: int,
        seconds: float | None,
        *,
        watermark_ms: int = 10,
        buffer_timeout_ms: int = 100,
    ) -> Sources:
        """Replays for the engine."""
        from nova_engines.sources import Source, Sources

        rate = self.traffic.rate
        return Sources(
            tuple(
                Source(
                    source=stream.sensor,
                    rate=rate,
                    sensor=stream.sensor,
                    stream=stream.stream,
                    region=stream.region,
                    values=tuple(stream.value[:MOST_VALUES].tolist()),
                )
                for stream in self.streams
            ),
            start_ms,
            count=None if seconds is None else math.ceil(seconds * rate),
            watermark_ms=watermark_ms,
            buffer_timeout_ms=buffer_timeout_ms,
        )

    def reference(self, sources: Sources) -> Reference:
        """The join of what the sources emit, which have to end."""
        matrix = self.problem.matrix
        return Reference(
            self.streams,
            emitted(sources, self.streams),
            self.traffic.window_ms,
            keys=self.traffic.keys,
            every=self.traffic.every,
            pairs=list(zip(matrix.left.tolist(), matrix.right.tolist(), strict=True)),
        )

    def compare(self, plan: Plan, sources: Sources, records: Any, *, finished: bool) -> Comparison:
        """Results compared with the reference join; also checks the instance of each."""
        return compare(plan, self.reference(sources), records, finished=finished)

    def samples(
        self, plan: Plan, sources: Sources, records: Any, measured_us: tuple[int, int]
    ) -> pa.Table:
        """Results with the times at which their tuples were due."""
        import pyarrow as pa

        columns: dict[str, Any] = {name: records[name] for name in KEPT}
        columns["window_ms"] = records["time_ms"]
        inside = np.clip(columns["instance"], 0, max(len(plan.instances) - 1, 0))
        columns["pair"] = plan.instances.pair[inside].astype(np.int32)
        for side in ("left", "right"):
            due = _due_of(sources, records, side)
            columns[f"{side}_due_us"] = sources.start_ms * 1000 + due
        later = np.maximum(columns["left_due_us"], columns["right_due_us"])
        columns["measured"] = (later >= measured_us[0]) & (later < measured_us[1])
        order = ("instance", "pair", "window_ms", "left_sequence", "right_sequence", "left_emit_us",
                 "right_emit_us", "left_due_us", "right_due_us", "arrive_us",
                 "measured")  # fmt: skip
        return pa.table({name: pa.array(columns[name]) for name in order})

    def tuples_per_s(self, samples: pa.Table, measured_us: tuple[int, int]) -> float:
        """Tuples that were joined with any, each counted once per pair."""
        c = {
            name: samples.column(name).to_numpy()
            for name in ("arrive_us", "pair", "left_sequence", "right_sequence")
        }
        arrived = (c["arrive_us"] >= measured_us[0]) & (c["arrive_us"] < measured_us[1])
        joined = sum(
            len(np.unique(np.stack([c["pair"][arrived], c[f"{side}_sequence"][arrived]]), axis=1).T)
            for side in ("left", "right")
        )
        return float(joined / ((measured_us[1] - measured_us[0]) / 1e6))

    def delivered(self, plan: Plan, records: Any, inside: NDArray[np.bool_]) -> Ints:
        """Results of each instance."""
        return np.bincount(records["instance"][inside], minlength=len(plan.instances))


def due_us(pace: Pace, sequence: Ints) -> Ints:
    """(k,) when tuples are due, us after the start; see `Pace.due`."""
    part = np.searchsorted(pace.first, sequence, "right") - 1
    # A quotient of whole numbers is exact where it is whole: 1 kHz has no rounding.
    since = (sequence - np.array(pace.first)[part]) * 1e6 / np.array(pace.rate)[part]
    due: Ints = np.array(pace.due_us)[part] + np.floor(since).astype(np.int64)
    return due


def _due_of(sources: Sources, records: Any, side: str) -> Ints:
    """(k,) when the tuples of one side of results are due, us after the start."""
    sequence = records[f"{side}_sequence"]
    paces = {one.pace for one in sources.sources}
    if len(paces) == 1:
        return due_us(paces.pop(), sequence)
    due = np.empty(len(sequence), np.int64)
    for number, one in enumerate(sources.sources):
        mine = records[f"{side}_source"] == number
        due[mine] = due_us(one.pace, sequence[mine])
    return due


def emitted(
    sources: Sources, streams: Sequence[Stream], begin_ms: int = 0, end_ms: int | None = None
) -> Tuples:
    """What replays emit, source by source.

    Args:
        sources: replays.
        streams: what each of them measures.
        begin_ms: event time of the first tuples, ms since the epoch.
        end_ms: all are before that; None for all that sources emit before they end.
    """
    parts = []
    for number, (one, stream) in enumerate(zip(sources.sources, streams, strict=True)):
        first = one.pace.before((begin_ms - sources.start_ms) * 1000)
        last = sources.count_of(number)
        if end_ms is not None:
            until = one.pace.before((end_ms - sources.start_ms) * 1000)
            last = until if last is None else min(last, until)
        assert last is not None
        sequence = np.arange(first, max(first, last))
        due = due_us(one.pace, sequence)
        value = stream.value[sequence % len(stream)]
        of = np.full(len(sequence), number)
        parts.append((of, sequence, sources.start_ms + due // 1000, value, due))
    return Tuples(*map(np.concatenate, zip(*parts, strict=True)))


def instances_of(plan: Plan, pair: int, left_sequence: Ints, right_sequence: Ints) -> Ints:
    """(k,) instance of a pair that must join given tuples."""
    mine = np.flatnonzero(plan.instances.pair == pair)
    left = partition_of(left_sequence, plan.partitions.rates(pair, 0))
    right = partition_of(right_sequence, plan.partitions.rates(pair, 1))
    instances = np.full(len(left), -1, np.int64)
    i = plan.instances
    for instance in mine.tolist():
        inside = (left >= i.left_begin[instance]) & (left < i.left_end[instance])
        inside &= (right >= i.right_begin[instance]) & (right < i.right_end[instance])
        instances[inside] = instance
    return instances


def compare(plan: Plan, reference: Reference, table: Any, *, finished: bool) -> Comparison:
    """Compare a plan's results with the reference join.

    Args:
        plan: that was run.
        reference: of the run's sources; its pairs are those of the plan.
        table: columns ``instance``, ``left_source``, ``right_source``, ``left_sequence``,
            ``right_sequence``, ``time_ms`` (arrays) of the delivered results.
        finished: whether the job ended by itself; then nothing is cut off.
    """
    results = Results(
        left=table["left_source"].astype(np.int64),
        left_sequence=table["left_sequence"],
        right=table["right_source"].astype(np.int64),
        right_sequence=table["right_sequence"],
        window_ms=table["time_ms"],
        instance=table["instance"].astype(np.int64),
    )
    due = np.full(reference.total, -1, np.int64)
    ends = np.concatenate(([0], np.cumsum(reference.per_pair)))
    sequence = reference.tuples.sequence
    for pair in range(len(ends) - 1):
        left, right = reference.rows(np.arange(ends[pair], ends[pair + 1]))
        due[ends[pair] : ends[pair + 1]] = instances_of(plan, pair, sequence[left], sequence[right])
    return reference.compare([results], due=due, finished=finished)
