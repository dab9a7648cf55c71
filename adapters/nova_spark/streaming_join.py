"""A plan as a Structured Streaming job: windowed, watermarked, partitioned, each stage on its node.

The query is the one of `nova_engines.workload.Workload`: tuples of a pair match when their event
times lie in the same tumbling window and their sequence numbers are equal modulo ``keys``, to a
multiple of ``every``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.results import FIELDS
from nova_spark.clock import Clock
from nova_spark.flow import Flow, Input, Join, Piece, Stage
from nova_spark.place import Placement
from nova_spark.tasks import due_us

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from nova_engines.workload import SourceStream, Workload

# What a session needs beside `nova_spark.place.SETTINGS`.
SETTINGS = {
    # An instance of a plan is one task.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.session.timeZone": "UTC",
}
POLL_S = 0.1
# How often sources are told the time; a tuple waits half of that, and then for its micro-batch.
TICK_S = 0.01
PREPARE_S = 180.0


class StreamingJoin:
    """The queries of a flow: one for every sink.

    Args:
        placement: of a session with `SETTINGS`.
        flow: what runs where.
        workload: what the sources emit and how it is joined.
        results: directory that sinks write to on their nodes: one within it for each, in the order
            of the flow (`nova_spark.results`).
        checkpoints: directory for offsets and state, on the driver and on every node; must be new.
            State is read and written where its join runs, and nowhere else.
    """

    def __init__(
        self,
        placement: Placement,
        flow: Flow,
        workload: Workload,
        results: str,
        checkpoints: str,
    ) -> None:
        self.placement, self.flow, self.workload = placement, flow, workload
        self.results, self.checkpoints = results, checkpoints
        self.queries: list[StreamingQuery] = []
        for name, value in SETTINGS.items():
            placement.spark.conf.set(name, value)
        self._clocks: list[Clock] = []
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def prepare(self, timeout_s: float = PREPARE_S) -> None:
        """Start all queries and have each run a micro-batch without tuples: the first takes long.

        Raises:
            NovaError: for sources of a kind that is not there, when a query fails, or after so
                many seconds.
        """
        for number, sink in enumerate(self.flow.sinks):
            clock = Clock(self.placement.spark)
            joined = [self.join(one, clock) for one in self.flow.joins if one.sink == sink.name]
            query = (
                self.placement.union(joined)
                .writeStream.foreachBatch(self._write(sink, f"{self.results}/{number}"))
                .option("checkpointLocation", f"{self.checkpoints}/{number}")
                .trigger(processingTime="0 seconds")
                .start()
            )
            self._clocks.append(clock)
            self.queries.append(query)
            clock.tell(0, 0, 0)
        self.wait(timeout_s)

    def begin(self, start_ms: int | None = None) -> None:
        """Have tuples flow.

        Args:
            start_ms: when the first tuple is due; the workload's, if not given.
        """
        start = self.workload.start_ms if start_ms is None else start_ms
        self._ticker = threading.Thread(target=self._tick, args=(start,), daemon=True)
        self._ticker.start()

    def _tick(self, start_ms: int) -> None:
        told, last = 0, self._last_us()
        while told < last and not self._ended.wait(TICK_S):
            now = min(time.time_ns() // 1000 - start_ms * 1000, last)
            if now > told:
                for clock in self._clocks:
                    clock.tell(start_ms, told, int(now))
                told = int(now)

    def _last_us(self) -> float:
        """After which nothing is due any more, us after the first tuple."""
        count = self.workload.count
        if count is None:
            return math.inf
        used = {side.source for join in self.flow.joins for side in (join.left, join.right)}
        slowest = min(self.workload.sources[self.workload.index(one)].rate for one in used)
        return int(due_us(count - 1, slowest)) + 1 if count else 0

    def wait(self, timeout_s: float) -> None:
        """Wait until everything that is due, of a workload that ends, is through.

        Raises:
            NovaError: with Spark's reason when a query fails, or after so many seconds.
        """
        wait_while(lambda: self.flowing, self.check, timeout_s)

    @property
    def flowing(self) -> bool:
        """Whether something is still to come, or due and not through."""
        ticking = self._ticker is not None and self._ticker.is_alive()
        return ticking or not all(map(Clock.heard, self._clocks, self.queries))

    def run(self, timeout_s: float = PREPARE_S) -> None:
        """Run a workload that ends to its end, then stop.

        Raises:
            NovaError: for a workload without end, and as `prepare` and `wait`.
        """
        if self.workload.count is None:
            raise NovaError("workload: count is missing: this job would run without end")
        try:
            self.prepare(timeout_s)
            self.begin()
            self.wait(timeout_s)
        finally:
            self.stop()

    def check(self) -> None:
        """Whether all queries run.

        Raises:
            NovaError: with Spark's reason for one that has failed.
        """
        for sink, query in zip(self.flow.sinks, self.queries, strict=False):
            error = query.exception()
            if error is not None:
                lines = str(error).strip().splitlines()
                raise NovaError(f"Spark: query of {sink.name}: {next(filter(None, lines), error)}")

    def stop(self) -> None:
        """End all queries."""
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        for query in self.queries:
            query.stop()

    def input(self, one: Input, side: str, clock: Clock) -> DataFrame:
        """What one side of a join receives, with the window and the key it is joined by."""
        from pyspark.sql import functions as F  # noqa: N812  (as everyone calls it)

        from nova_spark import tasks

        p, w, first = self.placement, self.workload, one.stages[0]
        number = w.index(one.source)
        stream = w.sources[number]
        if stream.kind == "kafka":
            of = stream.address, stream.topic, stream.partition
            step = tasks.fetch(*of, stream.rate, w.count, one.rates, one.ranges, w.strict)
        elif stream.kind == "replay":
            step = tasks.emit(stream.rate, w.count, values_of(stream), one.rates, one.ranges)
        else:
            raise NovaError(f"source {stream.source!r}: kind {stream.kind!r} is not there yet")
        frame = p.map(clock.frame, step, tasks.TUPLE, first.node, first.name)
        for stage in one.stages[1:]:
            frame = p.move(frame, stage.node, stage.name)
        # Sources emit in order, and Spark takes the least of all inputs' watermarks: none of the
        # tuples it has not read yet is older.
        frame = frame.withWatermark("ts", "0 seconds")
        return frame.select(
            F.window("ts", f"{w.window_ms} milliseconds").alias("window"),
            (F.col("sequence") % w.keys).alias("key"),
            F.lit(number).alias(f"{side}_source"),
            *(
                F.col(name).alias(f"{side}_{name}")
                for name in ("sequence", "emit_us", "waited_us", "value", "part")
            ),
        )

    def join(self, one: Join, clock: Clock) -> DataFrame:
        """Results of a stage that joins, on the last node of their way to the sink."""
        from pyspark.sql import functions as F  # noqa: N812

        left, right = (
            self.input(part, side, clock)
            for part, side in ((one.left, "left"), (one.right, "right"))
        )
        # Not in a filter of its own, which Spark would move before the shuffle: all that the plan
        # sends has to travel.
        wanted = F.col("key") % self.workload.every == 0
        instance = F.coalesce(*(_within(piece, wanted) for piece in one.pieces))
        emitted = [F.col(f"{side}_emit_us") for side in ("left", "right")]
        taken = [
            F.col(f"{side}_emit_us") + F.col(f"{side}_waited_us") for side in ("left", "right")
        ]
        frame = left.join(right, ["window", "key"]).select(
            instance.alias("instance"),
            (F.least(*taken) - F.least(*emitted)).cast("int").alias("waited_us"),
            F.unix_millis("window.start").alias("window_ms"),
            *(
                f"{side}_{name}"
                for side in ("left", "right")
                for name in ("source", "sequence", "emit_us", "value")
            ),
        )
        frame = frame.where(F.col("instance").isNotNull())
        frame = self.placement.place(frame, one.stages[0].node, one.stages[0].name)
        for stage in one.stages[1:]:
            frame = self.placement.move(frame, stage.node, stage.name)
        return frame

    def _write(self, sink: Stage, directory: str) -> Any:
        from nova_spark import tasks

        def write(frame: DataFrame, number: int) -> None:
            step = tasks.write(directory, number, FIELDS)
            self.placement.map(frame, step, "results long", sink.node, sink.name).collect()

        return write


def wait_while(going: Callable[[], bool], check: Callable[[], None], timeout_s: float) -> None:
    """Wait until something ends.

    Args:
        going: whether it goes on.
        check: raises what is wrong with it.
        timeout_s: how long at the most.

    Raises:
        NovaError: after so many seconds.
    """
    until = time.monotonic() + timeout_s
    while going():
        check()
        if time.monotonic() > until:
            raise NovaError(f"Spark: not done after {timeout_s:g} s")
        time.sleep(POLL_S)


def values_of(stream: SourceStream) -> tuple[float, ...]:
    """What a replay emits.

    Raises:
        NovaError: naming the file where it is no sequence of 64-bit floats.
    """
    import numpy as np

    if stream.path is None:
        return stream.values
    try:
        values = np.fromfile(stream.path, "<f8")
    except OSError as error:
        raise NovaError(f"{stream.path}: {error.strerror}") from error
    if not len(values):
        raise NovaError(f"{stream.path}: holds no 64-bit floats")
    return tuple(values.tolist())


def _within(piece: Piece, wanted: Column) -> Column:
    """The instance's index where a match is wanted and its partitions are its, else null."""
    from pyspark.sql import functions as F  # noqa: N812

    conditions = [
        (F.col(f"{side}_part") >= begin) & (F.col(f"{side}_part") < end)
        for side, (begin, end) in (("left", piece.left), ("right", piece.right))
    ]
    return F.when(conditions[0] & conditions[1] & wanted, F.lit(piece.instance))
