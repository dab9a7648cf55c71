"""Sink-based placement: every join at its sink, NebulaStream's default (paper, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Problem


@dataclass(frozen=True)
class SinkParameters:
    """Nothing to choose."""


class Sink:
    """Run every join at the sink that wants its result."""

    name: ClassVar[str] = "sink"
    Parameters: ClassVar[type[SinkParameters]] = SinkParameters

    def __init__(self, parameters: SinkParameters | None = None) -> None:
        self.parameters = parameters or SinkParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the sink may host."""
        return Plan(
            problem=problem,
            strategy=self.name,
            objective="latency",
            partitions=Partitions.whole(problem),
            instances=Instances.whole(problem.sink_node),
            breaks=("capacity", "worker", "requirement", "minimum-capacity", "link"),
        )
