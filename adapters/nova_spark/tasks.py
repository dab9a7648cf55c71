"""What runs in Spark's tasks. It travels by value: hosts need numpy and pyarrow, but not Nova."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.accumulators import AccumulatorParam

from nova_core.model.partitioner import partition_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

Batches = Iterator["pa.RecordBatch"]
Step = Callable[[Batches], Batches]
# Spark's page on an application keeps as many stages.
KEPT = 1000
SECOND_US = 1_000_000
TUPLE = "ts timestamp, sequence long, emit_us long, waited_us long, value double, part int"
# Of Kafka, as `nova_kafka.produce` writes them.
MESSAGE = (("sequence", "<i8"), ("emit_us", "<i8"), ("value", "<f8"))
MESSAGE_BYTES = 24
# For a tuple that is due; its producer may have begun late.
ARRIVE_S = 120.0
# When the first tuple is due, ms since the epoch; begin and end of the span, us after that.
SPAN = "{start_ms} {begin_us} {end_us}"


class StagesSeen(AccumulatorParam[dict[str, set[int]]]):
    """Which of Spark's stages a named step has run in: the last `KEPT` of each."""

    def zero(self, value: dict[str, set[int]]) -> dict[str, set[int]]:
        """Nothing seen."""
        return {}

    def addInPlace(  # noqa: N802  (Spark's name)
        self, value1: dict[str, set[int]], value2: dict[str, set[int]]
    ) -> dict[str, set[int]]:
        """The union, in the first."""
        for name, stages in value2.items():
            known = value1.setdefault(name, set())
            known |= stages
            if len(known) > KEPT:
                known -= set(sorted(known)[:-KEPT])
        return value1


def seen_in(step: Step, name: str, seen: Accumulator[dict[str, set[int]]]) -> Step:
    """A step that also tells in which stages it runs."""

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None:
            seen.add({name: {context.stageId()}})
        return step(batches)

    return run


def same(batches: Batches) -> Batches:
    """What comes, unchanged."""
    yield from batches


def due_us(sequence: Any, rate: float) -> Any:
    """When tuples are due, us after the first."""
    return np.floor(np.asarray(sequence) * float(SECOND_US) / rate).astype(np.int64)


def due_before(until_us: int, rate: float, count: int | None) -> int:
    """How many tuples are due earlier than that."""
    found = max(0, int(until_us * rate / SECOND_US) + 2)
    while found and due_us(found - 1, rate) >= until_us:
        found -= 1
    return found if count is None else min(found, count)


def emit(
    rate: float,
    count: int | None,
    values: Sequence[float],
    weights: Sequence[float],
    ranges: Sequence[tuple[int, int]],
) -> Step:
    """A step that makes of spans of time (`SPAN`) the tuples due in them, as `TUPLE`.

    A tuple counts as emitted when it is due: a sensor would have sent it then, and it waits for
    Spark from then on.

    Args:
        rate: tuples/s.
        count: tuples, None for no end.
        values: that are repeated.
        weights: of the source's partitions (`nova_core.model.partitioner`).
        ranges: partitions that pass, as first and one past the last.
    """
    repeated, shares = np.array(values), np.array(weights)
    passes = np.zeros(len(weights), np.bool_)
    for begin, end in ranges:
        passes[begin:end] = True

    def run(batches: Batches) -> Batches:
        import pyarrow as pa

        for batch in batches:
            for span in batch.column(0).to_pylist():
                start_ms, begin_us, end_us = map(int, span.split())
                first, last = (due_before(at, rate, count) for at in (begin_us, end_us))
                sequence = np.arange(first, last, dtype=np.int64)
                part = partition_of(sequence, shares)
                sequence, part = sequence[passes[part]], part[passes[part]]
                due = due_us(sequence, rate)
                event_us = (start_ms + due // 1000) * 1000
                yield pa.RecordBatch.from_pydict(
                    {
                        "ts": pa.array(event_us).cast(pa.timestamp("us", tz="UTC")),
                        "sequence": pa.array(sequence),
                        "emit_us": pa.array(start_ms * 1000 + due),
                        "waited_us": pa.array(np.zeros(len(due), np.int64)),
                        "value": pa.array(repeated[sequence % len(repeated)]),
                        "part": pa.array(part, pa.int32()),
                    }
                )

    return run


def fetch(
    servers: str,
    topic: str,
    partition: int,
    rate: float,
    count: int | None,
    weights: Sequence[float],
    ranges: Sequence[tuple[int, int]],
    strict: bool = False,
) -> Step:
    """A step that reads the tuples due in spans of time (`SPAN`) from Kafka, as `TUPLE`.

    The partition holds the tuples of one source from its first on, so that a tuple's number is its
    offset: a span that is read again gives the same. What is due and has not come is waited for.
    Hosts need kafka-python. A message that is no tuple stands for the one that is due: it is left
    out, stays in its topic, and the task's log says where.

    Args:
        servers: Kafka's bootstrap servers.
        topic: that is read.
        partition: of it.
        rate: tuples/s.
        count: tuples, None for no end.
        weights: of the source's partitions in the plan (`nova_core.model.partitioner`).
        ranges: those that pass, as first and one past the last.
        strict: whether a message that is no tuple ends the query.
    """
    shares = np.array(weights)
    passes = np.zeros(len(weights), np.bool_)
    for begin, end in ranges:
        passes[begin:end] = True

    def is_tuple(message: Any) -> bool:
        value = message.value or b""
        if len(value) == MESSAGE_BYTES and int.from_bytes(value[:8], "little", signed=True) >= 0:
            return True
        reason = f"{topic} {partition}: offset {message.offset}: {len(value)} bytes are no tuple"
        if strict:
            raise ValueError(reason)
        sys.stderr.write(f"dead letter: {reason}\n")
        return False

    def run(batches: Batches) -> Batches:
        import pyarrow as pa
        from kafka import KafkaConsumer, TopicPartition

        where = TopicPartition(topic, partition)
        consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        try:
            consumer.assign([where])
            for batch in batches:
                for span in batch.column(0).to_pylist():
                    begin_us, end_us = map(int, span.split()[1:])
                    first, last = (due_before(at, rate, count) for at in (begin_us, end_us))
                    got: list[Any] = []
                    if last > first:
                        consumer.seek(where, first)
                    until = time.monotonic() + ARRIVE_S
                    while len(got) < last - first:
                        if time.monotonic() > until:
                            raise TimeoutError(f"{topic} {partition}: no tuple {first + len(got)}")
                        for messages in consumer.poll(timeout_ms=100).values():
                            got += messages
                    got = [message for message in got[: last - first] if is_tuple(message)]
                    now = time.time_ns() // 1000
                    found = np.frombuffer(b"".join(m.value for m in got), np.dtype(list(MESSAGE)))
                    event_us = np.array([m.timestamp * 1000 for m in got], np.int64)
                    part = partition_of(found["sequence"], shares)
                    passed = passes[part]
                    event_us, found, part = event_us[passed], found[passed], part[passed]
                    yield pa.RecordBatch.from_pydict(
                        {
                            "ts": pa.array(event_us).cast(pa.timestamp("us", tz="UTC")),
                            "sequence": pa.array(np.ascontiguousarray(found["sequence"])),
                            "emit_us": pa.array(np.ascontiguousarray(found["emit_us"])),
                            "waited_us": pa.array(now - found["emit_us"]),
                            "value": pa.array(np.ascontiguousarray(found["value"])),
                            "part": pa.array(part, pa.int32()),
                        }
                    )
        finally:
            consumer.close()

    return run


def write(directory: str, number: int, fields: Sequence[tuple[str, str]]) -> Step:
    """A step that writes results as records and tells how many.

    A micro-batch that is repeated writes its file again, so that no result is there twice.

    Args:
        directory: on the host where it runs; made if need be.
        number: of the micro-batch, which names the file.
        fields: of a record (`nova_engines.results.FIELDS`).
    """

    def run(batches: Batches) -> Batches:
        import pyarrow as pa

        path = Path(directory) / f"{number:09}"
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        count = 0
        with unfinished.open("wb") as file:
            for batch in batches:
                records = np.zeros(batch.num_rows, np.dtype(list(fields)))
                records["arrive_us"] = time.time_ns() // 1000
                for name in batch.schema.names:
                    records[name] = batch.column(name).to_numpy()
                file.write(records.tobytes())
                count += len(records)
        if count:
            unfinished.replace(path)
        else:
            unfinished.unlink()
        yield pa.RecordBatch.from_pydict({"results": pa.array([count], pa.int64())})

    return run
