"""Rates that must hold, and a real broker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nova_kafka import topics
from nova_kafka.broker import local_broker
from nova_kafka.home import broker_home

pytestmark = pytest.mark.e2e

HOST = "127.0.0.1"


def replay(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", "from nova_core.cli import main; main()", "workload", "replay",
         *arguments, "--json"],
        check=False,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


class Drain(threading.Thread):
    """Counts the lines that come to a port."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server((HOST, 0))
        self.port = self.server.getsockname()[1]
        self.lines = 0
        self.start()

    def run(self) -> None:
        connection, _ = self.server.accept()
        with connection, self.server:
            while got := connection.recv(1 << 20):
                self.lines += got.count(b"\n")


def test_eight_sensors_at_one_kilohertz_for_a_minute() -> None:
    drain = Drain()
    summary = replay(
        "--synthetic", "8", "--rate", "1000", "--duration", "60", "--to", f"tcp://{HOST}:{drain.port}"
    )  # fmt: skip
    drain.join(10)
    total = summary["total"]
    assert drain.lines == total["tuples"] == 480_000
    assert total["achieved"] == pytest.approx(8000, rel=0.01)
    assert summary["cpu_share"] < 0.5


def test_fifty_thousand_a_second_to_one_socket() -> None:
    drain = Drain()
    summary = replay(
        "--synthetic", "50", "--rate", "1000", "--duration", "10", "--to",
        f"tcp://{HOST}:{drain.port}",
    )  # fmt: skip
    drain.join(10)
    assert drain.lines == summary["total"]["tuples"] == 500_000
    assert summary["total"]["achieved"] == pytest.approx(50_000, rel=0.01)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Kafka broker of its own."""
    home = broker_home()
    if not home.installed and not os.environ.get("CI"):
        pytest.skip("needs Kafka: run `nova engines install kafka`")
    home.install()
    with local_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        topics.create(running.servers, {"readings": 4, "debs-pressure": 4, "debs-humidity": 4})
        yield running.port


def messages(port: int, *topics: str) -> list[Any]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=f"{HOST}:{port}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=4000,
    )
    found = list(consumer)
    consumer.close()
    return found


def test_kafka_gets_every_tuple_in_order(broker: int) -> None:
    summary = replay(
        "--synthetic", "8", "--rate", "500", "--duration", "4", "--to",
        f"kafka://{HOST}:{broker}/readings",
    )  # fmt: skip
    assert summary["total"]["tuples"] == 16_000
    next_of: dict[str, int] = {}
    for message in messages(broker, "readings"):
        sensor, _, _, sequence, *_ = message.value.decode().split(",")
        assert message.key.decode() == sensor
        assert int(sequence) == next_of.get(sensor, 0)
        next_of[sensor] = int(sequence) + 1
    assert next_of == {f"{s}-{n}": 2000 for s in ("pressure", "humidity") for n in range(1, 5)}


def test_kafka_with_a_topic_per_stream(broker: int) -> None:
    replay(
        "--synthetic", "4", "--rate", "1000", "--count", "100", "--split", "stream", "--format",
        "json", "--to", f"kafka://{HOST}:{broker}/debs",
    )  # fmt: skip
    for stream in ("pressure", "humidity"):
        rows = [json.loads(m.value) for m in messages(broker, f"debs-{stream}")]
        assert len(rows) == 200 and {row["stream"] for row in rows} == {stream}
