from __future__ import annotations

from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_engines.workload import SourceStream, Workload
from nova_flink.builder import settings, tick_us

SOCKET = SourceStream("s1", 1.0, kind="socket", address="here.x:9000")
READ = SourceStream("k1", 1.0, kind="kafka", address="here.x:9092", topic="pressure")
SOURCE = SourceStream("p1", 1000.0, "p1", "pressure", "r1", (1.0, -2.5e-300, 3.0))


def workload(**fields: Any) -> Workload:
    return Workload(**({"sources": (SOURCE,), "window_ms": 10, "start_ms": 0} | fields))


def test_round_trip() -> None:
    made = workload(count=7, keys=3, sources=(SOURCE, SourceStream("h", 0.5, path="/x/values")))
    assert Workload.from_json(made.to_json()) == made


def test_only_kafka_is_read_from_a_time_on() -> None:
    made = workload(sources=(SOURCE, READ)).read_from(1234)
    assert [one.begin for one in made.sources] == ["earliest", "1234"]
    assert Workload.from_json(made.to_json()) == made


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
    made = workload(window_ms=window_ms, watermark_ms=watermark_ms)
    # A source looks when watermarks are due; those send tuples off, or else the timeout does.
    assert tick_us(made) == tick
    assert settings(made)["execution.buffer-timeout.enabled"] == str(flushed).lower()
    assert settings(made)["execution.buffer-timeout.interval"] == "100 ms"


def test_where_a_socket_is() -> None:
    for address, endpoint in {
        "here.x:9000": ("here.x", 9000),
        "[::1]:65535": ("::1", 65535),
    }.items():
        assert SourceStream("p1", 1.0, kind="socket", address=address).endpoint == endpoint


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"window_ms": 0}, "window_ms 0: expected 1 to "),
        ({"keys": 0}, "keys 0"),
        ({"count": -1}, "count -1"),
        ({"sources": ()}, "there are no sources"),
        ({"sources": (SOURCE, SOURCE)}, "source 'p1' is there twice"),
        ({"control": "orders"}, "control 'orders': expected an absolute path"),
        ({"control": "/o", "checkpoint_ms": 1}, "jobs under control are not started again"),
        ({"control": "/o", "sources": (SOCKET,)}, "sources of sockets cannot be told"),
        ({"control": "/o", "sources": (SOURCE, READ)}, "expected only replays, or only"),
    ],
)
def test_bad_workloads_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(NovaError, match=complaint):
        workload(**fields)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"rate": 0.0}, "rate 0: expected more than 0"),
        ({"rate": float("nan")}, "rate nan"),
        ({"values": ()}, "nothing to replay"),
        ({"values": (1.0, float("inf"))}, "values: expected finite"),
        ({"kind": "file"}, "expected one of replay, socket, kafka"),
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
def test_bad_sources_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(NovaError, match=complaint):
        SourceStream(**({"source": "p1", "rate": 1.0, "values": (1.0,)} | fields))


def test_a_source_without_values_sends_nothing_through_a_broker() -> None:
    one = SourceStream(source="p1", rate=1.0, kind="kafka", address="a:1", topic="t")
    with pytest.raises(NovaError, match="source 'p1': no values to send"):
        one.replayed_values()
