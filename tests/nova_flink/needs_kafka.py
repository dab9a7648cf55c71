"""Tests that read Kafka from Flink, where both are installed; in CI they install them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from needs import skip_or_fail

from nova_kafka.broker import Broker, local_broker
from nova_kafka.home import broker_home, connectors_home


@contextmanager
def kafka(directory: Path) -> Iterator[Broker]:
    """A broker, which leaves nothing; skips, loudly, where Kafka is not installed."""
    for home in (broker_home(), connectors_home()):
        if not home.installed and not os.environ.get("CI"):
            skip_or_fail(f"needs Kafka: run `nova engines install {home.name}`")
        home.install()
    with local_broker(directory / "broker") as running:
        yield running
    assert not (directory / "broker").exists()
