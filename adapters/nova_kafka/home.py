"""Kafka's jars, pinned in ``artifacts.txt``: the broker's, and what Flink reads it with."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from nova_engines.installing import engines_directory
from nova_engines.jars import JarsHome
from nova_engines.maven import Artifact, read_artifacts

VERSION = "4.3.0"
# Of Flink's connector; behind the hyphen the Flink it was made for. Flink 2.3 runs it, too.
CONNECTOR_VERSION = "5.0.0-2.2"


@cache
def artifacts(use: str) -> tuple[Artifact, ...]:
    """Jars of one use: ``broker`` or ``flink``."""
    listed = read_artifacts((files("nova_kafka") / "artifacts.txt").read_text("utf-8"))
    return tuple(artifact for artifact, its_use in listed if its_use == use)


def broker_home() -> JarsHome:
    """The broker; `nova engines install kafka` makes it."""
    path = engines_directory() / f"kafka-{VERSION}"
    return JarsHome(path, "kafka", "Kafka", VERSION, artifacts("broker"), 44)


def connectors_home() -> JarsHome:
    """What Flink reads Kafka with; `nova engines install kafka` makes it, too."""
    title = "Flink's connector for Kafka"
    path = engines_directory() / f"kafka-connector-{CONNECTOR_VERSION}"
    return JarsHome(path, "kafka", title, CONNECTOR_VERSION, artifacts("flink"), 11)
