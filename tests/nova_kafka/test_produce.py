"""What producers send, and when, on a broker that only keeps it."""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_engines.flow import Flow, Operator
from nova_engines.readings import readings_in
from nova_engines.sources import Source, Sources, through
from nova_kafka import produce as producing
from nova_kafka.produce import MESSAGE, due_of, produce

TYPES = ("text", "int", "float")
FLOW = Flow((Operator("source heat", "n", "source", source="heat", types=TYPES),))


def reading(time_ms: int, text: str, number: int, value: float) -> bytes:
    """As `nova_workloads.queries.readings.encode` has it."""
    word = text.encode()
    return struct.pack("<qi", time_ms, len(word)) + word + struct.pack("<qd", number, value)


ROWS = [reading(10_000, "ä", 1, 0.5), reading(10_000, "", -2, 1.5), reading(10_040, "c", 3, -1)]


@pytest.fixture
def readings(tmp_path: Path) -> Sources:
    """Three of a source, through a broker, twice as fast as they were recorded."""
    file = tmp_path / "heat.readings"
    file.write_bytes(b"".join(ROWS))
    read = Sources((Source("heat", kind="readings", path=str(file)),), first_ms=10_000, speed=2.0)
    return through(read, "broker:9092")


class Broker:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, int, bytes, int]] = []

    def module(self) -> Any:
        """As kafka-python."""
        return SimpleNamespace(
            KafkaProducer=lambda **_: self, errors=SimpleNamespace(KafkaError=ZeroDivisionError)
        )

    def partitions_for(self, topic: str) -> set[int]:
        return {0}

    def send(self, topic: str, message: bytes, partition: int, timestamp_ms: int) -> Any:
        self.messages.append((topic, partition, message, timestamp_ms))
        return SimpleNamespace(add_errback=lambda failed: None)

    def flush(self, timeout: float) -> None:
        pass

    def close(self, timeout: float) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(producing, "kafka", made.module)
    return made


def test_readings_are_found_in_a_file() -> None:
    found = list(readings_in(b"".join(ROWS), TYPES, "heat"))
    assert found == [(10_000, ROWS[0]), (10_000, ROWS[1]), (10_040, ROWS[2])]
    assert list(readings_in(b"", TYPES, "heat")) == []
    for cut in range(1, len(ROWS[0])):
        with pytest.raises(NovaError, match="heat: the reading at byte 0 is cut off"):
            list(readings_in(ROWS[0][:cut], TYPES, "heat"))


def test_readings_through_a_broker_keep_file_and_clock(readings: Sources) -> None:
    (one,) = readings.sources
    assert (one.kind, one.rate, one.topic) == ("kafka", 0, "heat") and one.of_readings
    assert (readings.first_ms, readings.speed) == (10_000, 2.0) and readings.of_readings
    assert Sources.from_json(readings.to_json()) == readings
    with pytest.raises(NovaError, match="of readings"):
        replace(readings, control="/orders")
    with pytest.raises(NovaError, match="of readings"):
        replace(readings, checkpoint_ms=5)
    values = Source("p", 1.0, kind="kafka", address="a:1", topic="t", values=(1.0,))
    with pytest.raises(NovaError, match="expected only readings, or none"):
        replace(readings, sources=(one, values))


def test_readings_are_sent_when_they_are_due(readings: Sources, broker: Broker) -> None:
    (one,) = readings.sources
    assert [due for due, _, _ in due_of(readings, one, FLOW)] == [0, 0, 20_000]
    start_ms = time.time_ns() // 1_000_000
    assert produce(replace(readings, start_ms=start_ms), ["heat"], FLOW) == 3
    assert [message[8:] for _, _, message, _ in broker.messages] == ROWS
    # A broker looks at the age of messages: theirs is that of the run, not of the readings.
    assert [sent_ms - start_ms for *_, sent_ms in broker.messages] == [0, 0, 20]
    produced = [struct.unpack_from("<q", message)[0] for _, _, message, _ in broker.messages]
    assert produced == sorted(produced) and produced[0] >= start_ms * 1000
    assert produced[2] >= (start_ms + 20) * 1000


def test_values_are_sent_over_and_over(broker: Broker) -> None:
    start_ms = time.time_ns() // 1_000_000 - 1000
    replays = tuple(
        Source(name, rate, stream=name, values=values)
        for name, rate, values in (("a", 1000.0, (1.0, 2.0)), ("b", 500.0, (7.0,)))
    )
    sources = through(Sources(replays, start_ms=start_ms, count=3), "broker:9092")
    assert produce(sources, ["a", "b"]) == 6
    sent = {
        topic: [
            (*MESSAGE.unpack(m)[::2], ms - start_ms)
            for t, _, m, ms in broker.messages
            if t == topic
        ]
        for topic in ("a", "b")
    }
    assert sent == {
        "a": [(0, 1.0, 0), (1, 2.0, 1), (2, 1.0, 2)],
        "b": [(0, 7.0, 0), (1, 7.0, 2), (2, 7.0, 4)],
    }


def test_what_cannot_be_sent_is_refused(readings: Sources, broker: Broker) -> None:
    with pytest.raises(NovaError, match="source 'heat': readings to send: no flow"):
        produce(readings, ["heat"])
    (one,) = readings.sources
    with pytest.raises(NovaError, match="source 'heat': readings to send: no path"):
        produce(replace(readings, sources=(replace(one, path=None),)), ["heat"], FLOW)
    direct = Sources((Source("a", 1.0, values=(1.0,)),))
    with pytest.raises(NovaError, match="source 'a': kind 'replay': not for Kafka"):
        produce(direct, ["a"])
    assert broker.messages == []
