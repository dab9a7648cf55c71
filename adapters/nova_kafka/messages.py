"""Reads back what sensors have sent to Kafka in a time, to compare results with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_kafka.produce import MESSAGE
from nova_kafka.topics import ASK_MS, consumer, kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nova_engines.sources import Source

SILENT_S = 30.0


def read_back(
    source: Source, begin_ms: int, end_ms: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The tuples of a source in a time, in their order; other messages are skipped, as by Flink.

    Args:
        source: of kind ``kafka``.
        begin_ms: event time of the first ones, ms since the epoch.
        end_ms: all are before that. A message behind it has come, or comes soon.

    Returns:
        (k,) sequence number, event time in ms since the epoch, value.

    Raises:
        NovaError: when the broker does not answer, or no message behind the end comes.
    """
    rows = [
        (time_ms, *MESSAGE.unpack(message))
        for time_ms, message in _messages(source, begin_ms, end_ms)
        if len(message) == MESSAGE.size
    ]
    rows = [row for row in rows if row[1] >= 0]
    return (
        np.array([sequence for _, sequence, _, _ in rows], np.int64),
        np.array([time_ms for time_ms, _, _, _ in rows], np.int64),
        np.array([value for _, _, _, value in rows], np.float64),
    )


def _messages(source: Source, begin_ms: int, end_ms: int) -> Iterator[tuple[int, bytes]]:
    """Event time and bytes of messages."""
    what = f"topic {source.topic}, partition {source.partition}"
    where = f"Kafka at {source.address}: {what}"
    partition = kafka().TopicPartition(source.topic, source.partition)
    with consumer(source.address, what) as client:
        client.assign([partition])
        first = client.offsets_for_times({partition: begin_ms})[partition]
        if first is None:
            raise NovaError(f"{where}: no message at {begin_ms} ms or later")
        client.seek(partition, first.offset)
        heard = time.monotonic()
        while time.monotonic() < heard + SILENT_S:
            for one in client.poll(ASK_MS).get(partition, ()):
                heard = time.monotonic()
                if one.timestamp >= end_ms:
                    return
                yield one.timestamp, one.value or b""
    raise NovaError(f"{where}: no message at {end_ms} ms or later came for {SILENT_S:g} s")
