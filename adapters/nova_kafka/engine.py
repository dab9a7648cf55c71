"""Kafka among Nova's engines (entry point ``nova.engines``): installed alike, but runs no plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_kafka.home import CONNECTOR_VERSION, VERSION, broker_home, connectors_home

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem


class Kafka:
    """See `nova_core.engines.Engine`: a broker, and the connector that Flink reads it with."""

    name = "kafka"

    @property
    def path(self) -> Path:
        """Of the broker's jars."""
        return broker_home().path

    def describe(self) -> str:
        """What it is, in a line."""
        return (
            f"Apache Kafka {VERSION}: a broker between sensors and engines, and Flink's connector "
            f"{CONNECTOR_VERSION}"
        )

    def installed(self) -> bool:
        """Whether all jars are there."""
        return broker_home().installed and connectors_home().installed

    def install(self, progress: Callable[[str], None]) -> None:
        """Get the jars."""
        broker_home().install(progress)
        connectors_home().install(progress)

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Refuse.

        Raises:
            NovaError: always.
        """
        raise NovaError("kafka: carries streams to engines and runs no plan itself")


KAFKA = Kafka()
