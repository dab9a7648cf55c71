"""Source-based placement: every join where most of its data is produced (paper, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Problem


@dataclass(frozen=True)
class SourceParameters:
    """Nothing to choose."""


class Source:
    """Run every join on its source with the highest data rate; of equal ones, the left."""

    name: ClassVar[str] = "source"
    Parameters: ClassVar[type[SourceParameters]] = SourceParameters

    def __init__(self, parameters: SourceParameters | None = None) -> None:
        self.parameters = parameters or SourceParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the source's node may host."""
        left = problem.left_rate >= problem.right_rate
        return Plan(
            problem=problem,
            strategy=self.name,
            objective="latency",
            partitions=Partitions.whole(problem),
            instances=Instances.whole(np.where(left, problem.left_node, problem.right_node)),
            breaks=("capacity", "worker", "requirement", "minimum-capacity", "link"),
        )
