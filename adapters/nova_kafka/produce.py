"""Replays sensors into Kafka, each tuple when it is due: what runs on a source's host.

A message is a tuple as `nova.flink.TupleMessage` reads it: 24 bytes, little endian: long sequence
number, long us since the epoch when it was produced, double value; its timestamp is the event time.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.sources import KAFKA, Sources
from nova_kafka.topics import kafka

MESSAGE = struct.Struct("<qqd")
# How often to check the clock, as the sources of Flink's own transport do.
TICK_US = 5000
SECOND_US = 1_000_000
DELIVERY_S = 30.0
BATCH = 1000  # tuples overdue that one source sends before the next one's turn


def produce(sources: Sources, ids: Sequence[str]) -> int:
    """Send all tuples of some sources; how many they were.

    Args:
        sources: of kind ``kafka``, with the values they send, and the start.
        ids: of those that send from here.

    Raises:
        NovaError: for sources without values, or when the broker refuses messages.
    """
    module = kafka()
    streams = [sources.sources[sources.index(one)] for one in ids]
    for one in streams:
        if one.kind != KAFKA:
            raise NovaError(f"source {one.source!r}: kind {one.kind!r}: not for Kafka")
    values = [one.replayed_values() for one in streams]
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
        sent = [0] * len(streams)
        count = sys.maxsize if sources.count is None else sources.count
        while not failures and min(sent) < count:
            now_us = time.time_ns() // 1000 - sources.start_ms * 1000
            behind = False
            for number, one in enumerate(streams):
                producer, repeated = producers[one.address], values[number]
                first = sent[number]
                for sequence in range(first, min(first + BATCH, count)):
                    due_us = int(sequence * float(SECOND_US) / one.rate)
                    if due_us > now_us:
                        break
                    value = repeated[sequence % len(repeated)]
                    producer.send(
                        one.topic,
                        MESSAGE.pack(sequence, time.time_ns() // 1000, value),
                        partition=one.partition,
                        timestamp_ms=sources.start_ms + due_us // 1000,
                    ).add_errback(failures.append)
                    sent[number] = sequence + 1
                behind |= sent[number] == first + BATCH
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
    return sum(sent)


def main() -> int:
    """What a source's host runs."""
    parser = argparse.ArgumentParser(description="Replay sensors into Kafka.")
    parser.add_argument("sources", type=Path, help="file of all sources")
    parser.add_argument("ids", nargs="+", metavar="SOURCE", help="that sends from here")
    arguments = parser.parse_args()
    try:
        sys.stdout.write(f"{produce(Sources.read(arguments.sources), arguments.ids)}\n")
    except (NovaError, OSError) as error:
        sys.stderr.write(f"nova_kafka.produce: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
