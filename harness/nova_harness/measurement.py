"""A problem for measurements: generated, or from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_core.model.problem import Problem


@dataclass(frozen=True)
class Case:
    """A problem for measurements.

    Attributes:
        nodes: size of a synthetic topology, or None.
        heterogeneity: of its capacities.
        seed: of its random numbers.
        path: a problem's file or directory instead, or None.
        capacity: column of capacities of an instance directory; or ``unlimited``.
        repeat: how often each step runs, at least.
    """

    nodes: int | None = None
    heterogeneity: float = 1.0
    seed: int = 0
    path: str | None = None
    capacity: str | None = None
    repeat: int = 5

    @property
    def label(self) -> str:
        """Its name in output."""
        if self.path is None:
            return f"synthetic {self.nodes}"
        return " ".join(filter(None, (Path(self.path).name, self.capacity)))

    def problem(self) -> Problem:
        """Generate or read it.

        Raises:
            NovaError: when it cannot be read.
        """
        if self.path is not None:
            from nova_core.io.files import read_problem

            return read_problem(self.path, self.capacity)
        if self.nodes is None:
            raise NovaError("bench: a case needs a number of nodes or a path")
        import numpy as np

        from nova_workloads.topology import generate

        problem = generate(self.nodes, heterogeneity=self.heterogeneity, seed=self.seed)
        if self.capacity is None:
            return problem
        return problem.with_capacity(np.full(self.nodes, np.inf))
