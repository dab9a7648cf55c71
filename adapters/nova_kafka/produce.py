"""Replays sensors into Kafka, each tuple when it is due: what runs on a source's host.

A message is a tuple as `nova.flink.TupleMessage` reads it: 24 bytes, little endian: long sequence
number, long us since the epoch when it was produced, double value; its timestamp is the event time.
Or it is a reading as `nova.flink.query.RowMessage` reads it: long us since the epoch when it was
produced, little endian, and the reading as in `nova_engines.readings`, with its event time. Its
timestamp is when it was due: a broker drops messages by their age.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.flow import SOURCE, Flow
from nova_engines.readings import readings_in
from nova_engines.sources import KAFKA, Source, Sources
from nova_kafka.topics import kafka

MESSAGE = struct.Struct("<qqd")
LONG, DOUBLE = struct.Struct("<q"), struct.Struct("<d")
# How often to check the clock, as the sources of Flink's own transport do.
TICK_US = 5000
SECOND_US = 1_000_000
DELIVERY_S = 30.0
BATCH = 1000  # tuples overdue that one source sends before the next one's turn


# When it is due, us after the start, and what a message has before and after the time when it was
# produced.
Due = tuple[int, bytes, bytes]


def due_of(sources: Sources, one: Source, flow: Flow | None) -> Iterator[Due]:
    """All tuples of a source; arguments and errors as of `produce`."""
    if one.kind != KAFKA:
        raise NovaError(f"source {one.source!r}: kind {one.kind!r}: not for Kafka")
    return _readings(sources, one, flow) if one.of_readings else _replayed(sources, one)


def _replayed(sources: Sources, one: Source) -> Iterator[Due]:
    values = one.replayed_values()
    for sequence in count() if sources.count is None else range(sources.count):
        value = values[sequence % len(values)]
        due_us = int(sequence * float(SECOND_US) / one.rate)
        yield due_us, LONG.pack(sequence), DOUBLE.pack(value)


def _readings(sources: Sources, one: Source, flow: Flow | None) -> Iterator[Due]:
    operators = () if flow is None else flow.of_kind(SOURCE)
    types = next((made.types for made in operators if made.source == one.source), None)
    if types is None or one.path is None:
        lacks = "no path" if one.path is None else "no flow that says their columns"
        raise NovaError(f"source {one.source!r}: readings to send: {lacks}")
    for time_ms, reading in readings_in(one.encoded(), types, one.path):
        yield int(sources.due_us(time_ms)), b"", reading


def produce(sources: Sources, ids: Sequence[str], flow: Flow | None = None) -> int:
    """Send all tuples of some sources; how many they were.

    Args:
        sources: of kind ``kafka``, with what they send, and the start.
        ids: of those that send from here.
        flow: says the columns of readings; not needed for others.

    Raises:
        NovaError: for sources that have nothing to send, or when the broker refuses messages.
    """
    module = kafka()
    streams = [sources.sources[sources.index(one)] for one in ids]
    tuples = [due_of(sources, one, flow) for one in streams]
    following = [next(one, None) for one in tuples]
    failures: list[BaseException] = []
    try:
        producers = {
            address: module.KafkaProducer(
                bootstrap_servers=address, acks=1, linger_ms=1, max_block_ms=DELIVERY_S * 1000
            )
            for address in sorted({one.address for one in streams})
        }
        for one in streams:
            # Asking now keeps the first message from waiting for the answer.
            producers[one.address].partitions_for(one.topic)
        sent = 0
        while not failures and any(following):
            now_us = time.time_ns() // 1000 - sources.start_ms * 1000
            behind = False
            for number, one in enumerate(streams):
                producer = producers[one.address]
                for _ in range(BATCH):
                    due = following[number]
                    if due is None or due[0] > now_us:
                        break
                    due_us, before, after = due
                    producer.send(
                        one.topic,
                        before + LONG.pack(time.time_ns() // 1000) + after,
                        partition=one.partition,
                        timestamp_ms=sources.start_ms + due_us // 1000,
                    ).add_errback(failures.append)
                    sent += 1
                    following[number] = next(tuples[number], None)
                else:
                    behind = True
            if not behind:
                now_us = time.time_ns() // 1000 - sources.start_ms * 1000
                time.sleep((TICK_US - now_us % TICK_US) / SECOND_US)
        for producer in producers.values():
            producer.flush(timeout=DELIVERY_S)
            producer.close(timeout=DELIVERY_S)
    except module.errors.KafkaError as error:
        raise NovaError(f"Kafka: {', '.join(ids)}: cannot be sent: {error}") from error
    if failures:
        raise NovaError(f"Kafka: {len(failures)} messages not delivered: {failures[0]}")
    return sent


def main() -> int:
    """What a source's host runs."""
    parser = argparse.ArgumentParser(description="Replay sensors into Kafka.")
    parser.add_argument("sources", type=Path, help="file of all sources")
    parser.add_argument("ids", nargs="+", metavar="SOURCE", help="that sends from here")
    parser.add_argument("--flow", type=Path, help="file of the flow, for readings with columns")
    arguments = parser.parse_args()
    try:
        flow = None if arguments.flow is None else Flow.read(arguments.flow)
        sent = produce(Sources.read(arguments.sources), arguments.ids, flow)
        sys.stdout.write(f"{sent}\n")
    except (NovaError, OSError) as error:
        sys.stderr.write(f"nova_kafka.produce: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
