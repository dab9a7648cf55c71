"""Kafka among Nova's engines (entry point ``nova.engines``): installed alike, but runs no plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_kafka.home import CONNECTOR_VERSION, VERSION, broker_home, connectors_home

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.jars import JarsHome


@dataclass(frozen=True)
class Carrier:
    """See `nova_core.engines.Engine`.

    Attributes:
        name: what people select it by.
        home: the jars.
        description: in a line.
    """

    name: str
    home: Callable[[], JarsHome]
    description: str

    @property
    def path(self) -> Path:
        """Of the jars."""
        return self.home().path

    def describe(self) -> str:
        """What it is, in a line."""
        return self.description

    def installed(self) -> bool:
        """Whether all jars are there."""
        return self.home().installed

    def install(self, progress: Callable[[str], None]) -> None:
        """Get the jars."""
        self.home().install(progress)

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Refuse.

        Raises:
            NovaError: always.
        """
        raise NovaError(f"{self.name}: carries streams to engines and runs no plan itself")


KAFKA = Carrier(
    "kafka", broker_home, f"Apache Kafka {VERSION}: a broker between sensors and engines"
)
CONNECTORS = Carrier(
    "connectors", connectors_home, f"what Flink reads Kafka with: its connector {CONNECTOR_VERSION}"
)

__all__ = ["CONNECTORS", "KAFKA", "Carrier"]
