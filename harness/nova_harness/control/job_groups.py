"""Groups of operators that are jobs of their own: they share no source, none waits for another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nova_engines.handover import Ledger

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_engines.flow import Flow
    from nova_engines.handover import Handover
    from nova_engines.source_orders import ControlledJob

# In the directory of a controller: the ledger of each group.
LEDGERS = "ledgers"


@dataclass(frozen=True)
class Target:
    """What a job runs, or should run.

    Attributes:
        plan: of all operators.
        flow: of the group's.
    """

    plan: Plan
    flow: Flow


@dataclass(frozen=True)
class Running:
    """A job that runs."""

    job: ControlledJob
    target: Target


@dataclass(eq=False)
class Group:
    """Operators that are one job, and its state.

    Attributes:
        sources: that feed them.
        handover: of its jobs.
        due: what should run instead; None while the right thing runs.
        failed_at: `time.monotonic` of the failure that is not recovered from.
        logged: whether that failure is in the log.
        next_try: `time.monotonic` of the next try, after one that failed.
        unsure: whether the ledger and the engine have to be asked what runs.
    """

    sources: frozenset[str]
    handover: Handover
    due: Target | None = None
    failed_at: float | None = None
    logged: bool = False
    next_try: float = -math.inf
    unsure: bool = True
    _running: Running | None = None

    @property
    def running(self) -> Running:
        """Its last job; there is none before the first plan is deployed."""
        assert self._running is not None
        return self._running

    def runs(self, flow: Flow) -> bool:
        """Whether its last job has exactly these operators."""
        own = self._running
        return own is not None and own.target.flow.operators == flow.operators

    def adopt(self, new: Running) -> None:
        """A new job runs; something else may be due already."""
        self._running = new
        if self.due is not None and self.runs(self.due.flow):
            self.due = None
        self.failed_at, self.logged, self.next_try = None, False, -math.inf

    @property
    def name(self) -> str:
        """Of its running job, for people; also of its files."""
        return name_of(self.running.job)


def name_of(job: ControlledJob) -> str:
    """The name of a job's files."""
    return Path(job.results[0][1]).name


def sources_of_groups(flow: Flow, most: int) -> list[frozenset[str]]:
    """Names of the sources of each group: two whose tuples meet are in the same one.

    Args:
        flow: of all operators.
        most: groups; with more independent ones, several become one, of similar sizes.
    """
    components = flow.components()
    filled: list[set[str]] = [set() for _ in range(min(most, len(components)))]
    # The largest first.
    for component in sorted(components, key=len, reverse=True):
        min(filled, key=len).update(component)
    return [frozenset(one) for one in filled]


def ledgers_of(directory: Path) -> list[Path]:
    """The files of ledgers in a controller's directory, group by group; none before it began."""
    return sorted((directory / LEDGERS).glob("*.json"), key=lambda path: int(path.stem))


def read_ledgers(directory: Path) -> list[Ledger]:
    """All ledgers of a controller's directory, group by group.

    Raises:
        NovaError: where one is damaged.
    """
    return [Ledger.read(path) for path in ledgers_of(directory)]
