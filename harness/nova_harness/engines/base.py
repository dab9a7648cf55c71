"""What Nova asks of an engine on hosts: to run plans, and to say where and how they run.

An engine is found through the entry points ``nova.runners``; docs/new-engine.md adds one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from pathlib import Path

    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_core.model.query_plan import QueryPlan
    from nova_engines.dataflow import Dataflow
    from nova_engines.handover import Jobs
    from nova_engines.query_flow import QueryFlow, Readings
    from nova_engines.results import ResultRecords
    from nova_engines.source_orders import ControlledJob
    from nova_engines.verification import Verification
    from nova_engines.workload import Workload
    from nova_harness.engines.deployment import EngineDeployment, Tell
    from nova_harness.results.schema import OperatorCounts
    from nova_testbed.hosts import Hosts

GROUP = "nova.runners"
DIRECT, KAFKA = "direct", "kafka"
# How an operator is to come to run, before a run is given up.
RUNNING_SECONDS = 90.0
# From submitting the first job to its first tuple: time to deploy it on hosts without limits, with
# classes that are loaded for the first time. Later jobs get what the last one took, and some more.
LEAST_LEAD_SECONDS = 5.0


class RunError(NovaError):
    """A run that was ended by a fault; says by which."""


class Job(Protocol):
    """A plan that an engine runs."""

    @property
    def name(self) -> str:
        """What the engine knows it by."""
        ...

    @property
    def workload(self) -> Workload | Readings:
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

    def verify(self) -> Verification:
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


@dataclass(frozen=True)
class JobState:
    """A job that an engine knows.

    Attributes:
        job: its id.
        name: what it is called.
        state: in the engine's words.
        own: whether Nova started it.
        runs: whether it has not ended.
    """

    job: str
    name: str
    state: str
    own: bool
    runs: bool


class Cluster(Protocol):
    """A running engine, as far as its coordinator tells of it; who started it does not matter."""

    @property
    def address(self) -> str:
        """Where its coordinator answers: a URL, or HOST:PORT."""
        ...

    def document(self, plan: Plan) -> str:
        """What a plan becomes, as JSON: `Job.document` of a job that runs it."""
        ...

    def verify(self, job: str, document: str) -> Verification:
        """Where a job runs, beside where it should.

        Args:
            job: its id.
            document: what it is held against.

        Raises:
            NovaError: for a job that it does not know, or where it does not answer.
        """
        ...

    def hosts(self) -> dict[str, bool]:
        """Hosts, and whether their worker process has registered with the coordinator.

        Raises:
            NovaError: where it does not answer.
        """
        ...

    def jobs(self) -> list[JobState]:
        """The jobs it knows.

        Raises:
            NovaError: where it does not answer.
        """
        ...

    def stop(self, job: str) -> str:
        """End a job, whoever started it; its state afterwards.

        Raises:
            NovaError: for a job that it does not know.
        """
        ...


class Engine(Cluster, Protocol):
    """An engine on the hosts of a test bed."""

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

    def up(self, tell: Tell) -> None:
        """Bring it up, or use the one that runs with the same configuration.

        Raises:
            NovaError: naming the host that cannot run it, or what does not answer.
        """
        ...

    def close(self) -> None:
        """Let go of what `up` opened on this machine; the engine goes on running."""
        ...

    def down(self) -> list[str]:
        """End its processes; the hosts that had any."""
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


@dataclass(frozen=True)
class JobSeen:
    """A controlled job at a moment.

    Attributes:
        state: as of `nova_engines.handover`.
        workers: nodes whose workers the coordinator has; None where it was not asked.
        silence_s: then, a host that tells nothing for so long counts as lost.
        saturated: nodes whose joins work all the time, and the tuples/s that these received.
    """

    state: str
    workers: Collection[str] | None = None
    silence_s: float = 0.0
    saturated: Mapping[str, float] = field(default_factory=dict)


class JobWatch(Protocol):
    """Looks at one controlled job, again and again."""

    def look(self, now: float) -> JobSeen:
        """How it is.

        Args:
            now: `time.monotonic`.

        Raises:
            NovaError: where the engine does not answer.
        """
        ...


class SubmittedJob(Protocol):
    """A job whose sources wait to be told when to begin."""

    @property
    def name(self) -> str:
        """What the engine knows it by."""
        ...

    @property
    def dataflow(self) -> Dataflow:
        """Its operators."""
        ...

    def await_running(self) -> None:
        """See `Job.await_running`."""
        ...


@runtime_checkable
class ControlledEngine(Engine, Protocol):
    """An engine whose jobs can follow the live optimizer (`nova_harness.control`)."""

    @property
    def controlled_jobs(self) -> Jobs:
        """For hand-overs."""
        ...

    @property
    def lead(self) -> Lead:
        """How long before its first tuple a job is submitted."""
        ...

    def submit(self, plan: Plan, workload: Workload, name: str, results: str) -> SubmittedJob:
        """Submit a job of joins with a file of results of its own.

        Args:
            plan: what runs.
            workload: what flows.
            name: of the job.
            results: name of the file.

        Raises:
            NovaError: when the engine refuses it.
        """
        ...

    def miss_after(self, seconds: float) -> None:
        """Have hosts that hang or are cut off count as lost after so long; before `up`."""
        ...

    def job(self, name: str, dataflow: Dataflow, workload: Workload) -> Job:
        """One that runs already."""
        ...

    def watch(self, job: ControlledJob, dataflow: Dataflow) -> JobWatch:
        """Of a job that runs."""
        ...

    def processes(self, job: ControlledJob, nodes: Sequence[str]) -> Mapping[str, set[int]]:
        """Ids of a job's own processes on its nodes; none where workers outlive jobs."""
        ...

    def misses(self, node: str) -> bool:
        """Whether a worker that is started again on a node is taken for a new one."""
        ...

    def why(self, job: ControlledJob) -> str:
        """Why a job has failed, as far as the engine says."""
        ...


class QueryEngine(Engine, Protocol):
    """An engine that also runs queries with columns."""

    def start_queries(self, plan: QueryPlan, readings: Callable[[int], Readings], name: str) -> Job:
        """Have a plan of queries run.

        Args:
            plan: what runs where.
            readings: what sources replay, that begin at that time, ms since the epoch.
            name: of the job.

        Raises:
            NovaError: when the engine refuses it; nothing of it runs then.
        """
        ...

    def query_results(self, flow: QueryFlow, scratch: Path) -> dict[str, Path]:
        """What the sinks of a job have written, by query (`nova_engines.query_results`).

        Args:
            flow: what it runs.
            scratch: directory for the copies.
        """
        ...


class Runner(Protocol):
    """An engine that plans can be run with: what an entry point of ``nova.runners`` names."""

    @property
    def name(self) -> str:
        """As people choose it."""
        ...

    @property
    def transports(self) -> Sequence[str]:
        """How readings may come to it: ``direct``, from its own sources, and others."""
        ...

    @property
    def queries(self) -> bool:
        """Whether it runs plans of whole queries, with `nova_engines.query_flow.Readings`."""
        ...

    @property
    def controlled(self) -> bool:
        """Whether its jobs can be controlled: its engine is a `ControlledEngine`.

        Its sources can change their rates then, and scripts can end its workers.
        """
        ...

    def prepare(self, tell: Tell, transport: str) -> None:
        """Have everything of it ready on this machine, with Nova's own classes as they are now.

        To be asked for before virtual hosts come up, which do not see what changes later.

        Raises:
            NovaError: when something is not installed, or classes cannot be compiled.
        """
        ...

    def cluster(self, address: str, problem: Problem | None) -> Cluster:
        """A cluster that runs already, on whatever hosts.

        Args:
            address: of its coordinator.
            problem: has the nodes' addresses, for engines that know hosts by address alone.
        """
        ...

    def engine(self, hosts: Hosts, transport: str, broker: str) -> Engine:
        """The engine on connected hosts; nothing is started yet.

        Args:
            hosts: connected; the inventory's with addresses.
            transport: one of `transports`.
            broker: name of the host of the transport's broker; empty for the sink's.
        """
        ...


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """Names of all engines that plans can be run with, sorted."""
    return sorted(_entry_points())


def runner(name: str) -> Runner:
    """The engine of that name.

    Raises:
        NovaError: for a name that no package brings, or a package that cannot be loaded.
    """
    found = _entry_points().get(name)
    if found is None:
        raise NovaError(f"engine: unknown {name!r}; there are {', '.join(names())}")
    try:
        loaded: Runner = found.load()
    except (ImportError, AttributeError) as error:
        raise NovaError(f"engine {name}: cannot load {found.value}: {error}") from error
    return loaded


@contextmanager
def running(engine: Engine, tell: Tell, *, keep: bool) -> Iterator[Engine]:
    """The engine, up; it is ended with the block, unless it is to be kept.

    Raises:
        NovaError: as `Engine.up`.
    """
    try:
        engine.up(tell)
        yield engine
    finally:
        try:
            engine.close()
        finally:
            if not keep:
                tell(f"ending {engine.deployment.ENGINE}")
                engine.down()


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
