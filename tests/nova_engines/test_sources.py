from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_engines.flow import Flow, Match, Operator
from nova_engines.sources import Source, Sources
from nova_flink.builder import settings, tick_us

SOCKET = Source("s1", 1.0, kind="socket", address="here.x:9000")
READ = Source("k1", 1.0, kind="kafka", address="here.x:9092", topic="pressure")
READINGS_OF = Source("a", kind="readings", path="/a")
SOURCE = Source("p1", 1000.0, "p1", "pressure", "r1", (1.0, -2.5e-300, 3.0))


def sources(**fields: Any) -> Sources:
    return Sources(**({"sources": (SOURCE,)} | fields))


def test_round_trip() -> None:
    made = sources(count=7, sources=(SOURCE, Source("h", 0.5, path="/x/values")))
    assert Sources.from_json(made.to_json()) == made


def test_only_kafka_is_read_from_a_time_on() -> None:
    made = sources(sources=(SOURCE, READ)).read_from(1234)
    assert [one.begin for one in made.sources] == ["earliest", "1234"]
    assert Sources.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("window_ms", "watermark_ms", "tick", "flushed"),
    [
        (1, 10, 10_000, False),
        (100, 10, 10_000, False),
        (25, 10, 5_000, False),
        (101, 1, 5_000, True),
    ],
)
def test_what_is_due_leaves_in_time(
    window_ms: int, watermark_ms: int, tick: int, flushed: bool
) -> None:
    made = sources(watermark_ms=watermark_ms)
    join = Operator("join", "n", "join", ("source p1",), window=(window_ms, window_ms))
    flow = Flow((Operator("source p1", "n", "source", source="p1"), join))
    assert flow.boundary_ms == window_ms
    # A source looks when watermarks are due; those send tuples off, or else the timeout does.
    assert tick_us(flow, made) == tick
    assert settings(flow, made)["execution.buffer-timeout.enabled"] == str(flushed).lower()
    assert settings(flow, made)["execution.buffer-timeout.interval"] == "100 ms"


def test_where_a_socket_is() -> None:
    for address, endpoint in {
        "here.x:9000": ("here.x", 9000),
        "[::1]:65535": ("::1", 65535),
    }.items():
        assert Source("p1", 1.0, kind="socket", address=address).endpoint == endpoint


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"speed": -1.0}, "speed -1.0: expected 0 to"),
        ({"speed": 2.0}, "last_ms, speed: only readings have their own time"),
        ({"first_ms": 5}, "last_ms, speed: only readings have their own time"),
        ({"sources": (SOURCE, READINGS_OF)}, "expected only readings, or none"),
        ({"sources": (READINGS_OF,), "checkpoint_ms": 1}, "jobs of readings are not started again"),
        ({"sources": (READINGS_OF,), "control": "/o"}, "need last_ms, and a speed"),
        ({"count": -1}, "count -1"),
        ({"sources": ()}, "sources: there are none"),
        ({"sources": (SOURCE, SOURCE)}, "sources: 'p1' is there twice"),
        ({"control": "orders"}, "control 'orders': expected an absolute path"),
        ({"control": "/o", "checkpoint_ms": 1}, "jobs under control are not started again"),
        ({"control": "/o", "sources": (SOCKET,)}, "those of sockets cannot be told"),
        ({"control": "/o", "sources": (SOURCE, READ)}, "expected only replays, or only"),
    ],
)
def test_bad_sources_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(NovaError, match=complaint):
        sources(**fields)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"rate": 0.0}, "rate 0: expected more than 0"),
        ({"rate": float("nan")}, "rate nan"),
        ({"values": ()}, "nothing to replay"),
        ({"values": (1.0, float("inf"))}, "values: expected finite"),
        ({"kind": "readings"}, "path is missing: where are its readings"),
        ({"kind": "file"}, "expected one of replay, readings, socket, kafka"),
        ({"kind": "socket", "address": "here"}, "address 'here': expected host:port"),
        ({"kind": "socket", "address": ":9000"}, "address ':9000': expected host:port"),
        ({"kind": "socket", "address": "here:x"}, "address 'here:x': expected host:port"),
        ({"kind": "socket", "address": "here:65536"}, "address 'here:65536': expected host:port"),
        ({"kind": "socket", "address": "a:1", "connect_s": 0.0}, "connect_s 0: expected 0 to"),
        ({"kind": "kafka", "address": "a:1"}, "topic is missing"),
        ({"begin": "now"}, "expected earliest, latest, committed, or a time in ms"),
        ({"begin": "-1"}, "begin '-1'"),
        ({"begin": "9" * 20}, "a time in ms"),
        ({"begin": "committed"}, "give a group"),
    ],
)
def test_a_bad_source_is_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(NovaError, match=complaint):
        Source(**({"source": "p1", "rate": 1.0, "values": (1.0,)} | fields))


def test_a_source_without_values_sends_nothing_through_a_broker() -> None:
    one = Source(source="p1", rate=1.0, kind="kafka", address="a:1", topic="t")
    with pytest.raises(NovaError, match="source 'p1': no values to send"):
        one.replayed_values()


def test_readings_have_their_own_clock() -> None:
    read = Sources((READINGS_OF,), start_ms=50_000, first_ms=1_000, speed=2.0)
    assert Sources.from_json(read.to_json()) == read
    assert read.begin_ms == 1_000 and read.due_us(1_004) == 2_000
    assert replace(read, speed=0.0).due_us(9_000) == 0
    assert read.clock.event_ms(50_002) == 1_004 and read.clock.time_ms(1_004) == 50_002
    # Those of event time that begin within a ms are there after it.
    assert read.clock.time_ms(1_005) == 50_003 and read.clock.event_span_ms(3) == 6
    # That of others is the time of day.
    assert sources(start_ms=7_000).begin_ms == 7_000
    assert sources(start_ms=7_000).due_us(7_001) == 1_000
    clock = sources(start_ms=7_000).clock
    assert clock.event_ms(9_123) == clock.time_ms(9_123) == 9_123


def test_readings_take_orders() -> None:
    """They come to their end together."""
    read = Sources((READINGS_OF,), first_ms=0, last_ms=9_000, control="/orders")
    assert read.control and Sources.from_json(read.to_json()) == read
    for wrong in ({"last_ms": None}, {"speed": 0.0}):
        with pytest.raises(NovaError, match="need last_ms, and a speed above 0"):
            replace(read, **wrong)
    with pytest.raises(NovaError, match="gathered is in memory only"):
        replace(read, control="", checkpoint_ms=1000)
    with pytest.raises(NovaError, match="others have their own times"):
        replace(READINGS_OF, surges=((0.0, 1.0, 2.0),))


@pytest.mark.parametrize("field", ["window_ms", "keys", "every"])
def test_what_cannot_match_is_refused(field: str) -> None:
    with pytest.raises(NovaError, match=f"match: {field} 0: expected 1 to"):
        Match(**{"window_ms": 10, field: 0})
