"""What an experiment asks of an engine: to run a plan on hosts, and to say where and how it ran."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from pathlib import Path

    from nova_core.model.plan import Plan
    from nova_flink.results import ResultRecords
    from nova_flink.workload import Workload
    from nova_harness.deployment import EngineDeployment, Tell
    from nova_harness.results.schema import OperatorCounts
    from nova_testbed.hosts import Hosts

# How an operator is to come to run, before a run is given up.
RUNNING_SECONDS = 90.0
# From submitting the first job to its first tuple: time to deploy it on hosts without limits, with
# classes that are loaded for the first time. Later jobs get what the last one took, and some more.
LEAST_LEAD_SECONDS = 5.0


class RunError(NovaError):
    """A run that was ended by a fault; says by which."""


class Verified(Protocol):
    """Where operators ran, beside where they were to."""

    @property
    def ok(self) -> bool:
        """Whether everything, and nothing else, ran where it should."""
        ...

    def to_plain(self) -> dict[str, Any]:
        """As a JSON document: ``ok`` and ``rows`` of ``operator``, ``node`` and ``actual``."""
        ...


class Job(Protocol):
    """A plan that an engine runs."""

    @property
    def name(self) -> str:
        """What the engine knows it by."""
        ...

    @property
    def workload(self) -> Workload:
        """What flows, from when on."""
        ...

    @property
    def document(self) -> str:
        """What the plan has become, as JSON."""
        ...

    def await_running(self) -> None:
        """Wait until every operator runs.

        Raises:
            NovaError: when one does not in time.
        """
        ...

    def verify(self) -> Verified:
        """Ask the engine where operators run, or ran last."""
        ...

    def look(self) -> bool:
        """Whether the job has come to its end by itself.

        Raises:
            RunError: for a job that failed.
            NovaError: where the engine does not answer.
        """
        ...

    def counters(self) -> Any:
        """What operators have done so far, for `operators`."""
        ...

    def operators(self, before: Any, after: Any) -> list[OperatorCounts]:
        """What each operator did between two answers of `counters`."""
        ...

    def end(self) -> None:
        """End it, where it has not ended; nothing of it runs afterwards."""
        ...

    def results(self, scratch: Path) -> ResultRecords:
        """What has arrived at the sink.

        Args:
            scratch: directory for a copy on the way.
        """
        ...


class Engine(Protocol):
    """An engine that runs on hosts."""

    @property
    def name(self) -> str:
        """As experiments call it."""
        ...

    @property
    def deployment(self) -> EngineDeployment:
        """Its processes on the hosts."""
        ...

    @property
    def engine_bytes(self) -> int:
        """What its processes take on a host at most."""
        ...

    @property
    def stays_warm(self) -> bool:
        """Whether the processes of a job go on with the next one, so that they can be warmed up."""
        ...

    def start(self, plan: Plan, workload: Callable[[int], Workload], name: str) -> Job:
        """Have a plan run.

        Args:
            plan: what runs where.
            workload: what flows, of sources that begin at that time, ms since the epoch.
            name: of the job.

        Raises:
            NovaError: when the engine refuses it; nothing of it runs then.
        """
        ...


# Brings an engine up on connected hosts; it is ended with the block, unless it is to be kept.
Opener = Callable[["Hosts", "Tell", bool], AbstractContextManager[Engine]]


def prepare(name: str, tell: Tell) -> Opener:
    """Have everything of an engine ready on this machine, with Nova's own classes as they are now.

    To be asked for before virtual hosts come up, which do not see what changes later.

    Args:
        name: ``flink``, ``spark``, ``spark-realtime`` or ``storm``.
        tell: is told what is being done, one line at a time.

    Raises:
        NovaError: when the engine is not installed, or its classes cannot be compiled.
    """
    module = import_module(f"nova_harness.experiment.on_{name.replace('-', '_')}")
    opener: Opener = module.prepare(tell)
    return opener


class Lead:
    """How long before its first tuple a job is submitted: what the last one took, and some more.

    Args:
        first_s: of the first job.
        second_s: of the second, whose classes are loaded already; None where that is no reason to
            take less than the first has taken.
    """

    def __init__(self, first_s: float, second_s: float | None = None) -> None:
        self.seconds = first_s
        self._second = second_s
        self._submitted = 0.0

    def start_ms(self) -> int:
        """When the sources of a job that is submitted now begin, ms since the epoch."""
        self._submitted = time.time()
        return 1000 * math.ceil(self._submitted + self.seconds)

    def runs(self) -> None:
        """That job runs."""
        took = time.time() - self._submitted
        found = max(LEAST_LEAD_SECONDS, 1.3 * took + 1)
        self.seconds = self._second if self._second and took <= self.seconds else found
        self._second = None
