"""What the kernel benchmark measures, and on what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

MEDIAN = "geometric median"
TREE = "capacity tree"
PLACE = "optimize"
REFINE = "optimize, refined"
VERIFY = "verify"
EVALUATE = "evaluate"
STEPS = (MEDIAN, TREE, PLACE, REFINE, VERIFY, EVALUATE)


@dataclass(frozen=True)
class Case:
    """A problem to measure on.

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
        """What people are told it is."""
        if self.path is None:
            return f"synthetic {self.nodes}"
        return " ".join(filter(None, (Path(self.path).name, self.capacity)))

    def problem(self) -> Problem:
        """Generate or read it.

        Raises:
            NovaError: when it cannot be read.
        """
        if self.path is not None:
            from nova_core.model.files import read_problem

            return read_problem(self.path, self.capacity)
        if self.nodes is None:
            raise NovaError("bench: a case needs a number of nodes or a path")
        import numpy as np

        from nova_workloads.topology import generate

        made = generate(self.nodes, heterogeneity=self.heterogeneity, seed=self.seed)
        return made if self.capacity is None else made.with_capacity(np.full(self.nodes, np.inf))


@dataclass(frozen=True)
class Measurement:
    """One step on one problem.

    Attributes:
        problem: the case's label.
        synthetic: whether it was generated; only such sizes scale alike.
        nodes: size of the topology.
        joins: pairs of sources to join.
        step: name of the step, one of `STEPS`.
        median: seconds, median of the runs.
        best: seconds of the fastest run.
        cpu: seconds of processor time, median; less than ``median`` on a busy machine.
        runs: how often it ran.
        peak_bytes: greatest memory in use beyond what the inputs take, or None where the system
            does not tell. Of ``verify`` and ``evaluate`` it includes the plan.
        objective: sum over joins of d(left, node) + d(right, node) + d(node, sink), ms; of a cut
            join the mean over its replicas. None for a step that yields no plan, as the following.
        p90: 90th percentile of the sources' latency, ms.
        overloaded: nodes above their capacity.
        joins_cut: joins that run in more than one piece.
    """

    problem: str
    synthetic: bool
    nodes: int
    joins: int
    step: str
    median: float
    best: float
    cpu: float
    runs: int
    peak_bytes: int | None
    objective: float | None = None
    p90: float | None = None
    overloaded: int | None = None
    joins_cut: int | None = None
