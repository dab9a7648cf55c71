"""The interface of an engine on hosts: run plans, and report where and how they run.

An engine is found through the entry points ``nova.runners``; docs/new-engine.md adds one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nova_core.errors import NovaError
from nova_core.extensions import Extensions
from nova_engines.flow import CUT, JOIN, KINDS, RELAY, SELECT, SINK, SOURCE, Flow
from nova_engines.sources import REPLAY, Sources

if TYPE_CHECKING:
    from pathlib import Path

    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.handover import Jobs
    from nova_engines.results import ResultRecords
    from nova_engines.source_orders import ControlledJob
    from nova_engines.verification import Verification
    from nova_harness.engines.deployment import EngineDeployment, Tell
    from nova_harness.results.schema import OperatorCounts
    from nova_testbed.hosts import Hosts

_INSTALLED = Extensions("nova.runners", "engine")
# Starts a flow, with its sources by their start time, under a name; see `Engine.start`.
Starter = Callable[[Flow, Callable[[int], Sources], str], "Job"]
# Kinds of operators that are joins of pairs, and all.
PAIRS, ALL = (SOURCE, CUT, SELECT, RELAY, JOIN, SINK), KINDS
# Time for all operators to run, before a run is given up, s.
RUNNING_SECONDS = 90.0
# From submitting the first job to its first tuple: time to deploy it on hosts without limits, with
# classes that are loaded for the first time. Later jobs get the last one's time, and some more.
LEAST_LEAD_SECONDS = 5.0
POLL_S = 0.5


class RunError(NovaError):
    """A run that a fault ended; the message names the fault."""


class Job(Protocol):
    """A flow that an engine runs."""

    @property
    def name(self) -> str:
        """Its name or id in the engine."""
        ...

    @property
    def sources(self) -> Sources:
        """Its sources, with their start time."""
        ...

    @property
    def document(self) -> str:
        """The flow as the engine runs it, as JSON."""
        ...

    def await_running(self) -> None:
        """Wait until every operator runs.

        Raises:
            NovaError: when one does not run in time.
        """
        ...

    def verify(self) -> Verification:
        """Ask the engine where operators run, or last ran."""
        ...

    def look(self) -> bool:
        """Whether the job has ended by itself.

        Raises:
            RunError: for a job that failed.
            NovaError: where the engine does not answer.
        """
        ...

    def counters(self) -> Any:
        """Counts of operators so far, for `operators`."""
        ...

    def operators(self, before: Any, after: Any) -> list[OperatorCounts]:
        """Counts of each operator between two results of `counters`."""
        ...

    def end(self) -> None:
        """End it unless it has ended; nothing of it runs afterwards."""
        ...

    def results(self, scratch: Path) -> ResultRecords:
        """Results that have arrived at its sinks: of pairs records, of queries rows.

        Args:
            scratch: directory for a temporary copy.
        """
        ...


@runtime_checkable
class ReadingJob(Job, Protocol):
    """A job of an engine that can read Kafka."""

    def read_offsets(self) -> Mapping[tuple[str, int], int]:
        """Messages read per topic and partition.

        Raises:
            NovaError: where the engine does not answer.
        """
        ...


@dataclass(frozen=True)
class JobState:
    """A job that an engine knows.

    Attributes:
        job: its id.
        name: its name.
        state: as the engine calls it.
        own: whether Nova started it.
        runs: whether it has not ended.
    """

    job: str
    name: str
    state: str
    own: bool
    runs: bool


class Cluster(Protocol):
    """A running engine, as its coordinator reports it; anybody may have started it."""

    @property
    def address(self) -> str:
        """Where its coordinator answers: a URL, or HOST:PORT."""
        ...

    def document(self, plan: Plan) -> str:
        """A plan as the engine runs it, as JSON: the `Job.document` of its job."""
        ...

    def verify(self, job: str, document: str) -> Verification:
        """Compare where a job runs with where it should.

        Args:
            job: its id.
            document: the expected operators, see `document`.

        Raises:
            NovaError: for an unknown job, or without an answer.
        """
        ...

    def hosts(self) -> dict[str, bool]:
        """Hosts, and whether their worker process has registered with the coordinator.

        Raises:
            NovaError: without an answer.
        """
        ...

    def jobs(self) -> list[JobState]:
        """The jobs it knows.

        Raises:
            NovaError: without an answer.
        """
        ...

    def stop(self, job: str) -> str:
        """End a job, whoever started it; returns its state afterwards.

        Raises:
            NovaError: for an unknown job.
        """
        ...


class Engine(Cluster, Protocol):
    """An engine on the hosts of a test bed."""

    @property
    def name(self) -> str:
        """Its name in experiments."""
        ...

    @property
    def deployment(self) -> EngineDeployment:
        """Its processes on the hosts."""
        ...

    @property
    def engine_bytes(self) -> int:
        """Memory that its processes need on a host at most, bytes."""
        ...

    @property
    def stays_warm(self) -> bool:
        """Whether processes outlive a job, so that they can be warmed up for the next one."""
        ...

    def up(self, tell: Tell) -> None:
        """Start it, or use one that already runs with the same configuration.

        Raises:
            NovaError: naming the host that cannot run it, or what does not answer.
        """
        ...

    def close(self) -> None:
        """Close what `up` opened on this machine; the engine keeps running."""
        ...

    def down(self) -> list[str]:
        """End its processes; returns the hosts that had any."""
        ...

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> Job:
        """Run a flow.

        Args:
            flow: what runs where.
            sources: where its tuples come from, for the sources' start time, ms since the epoch.
            name: of the job.

        Raises:
            NovaError: when the engine refuses it; then nothing of it runs.
        """
        ...


@dataclass(frozen=True)
class JobsSeen:
    """Controlled jobs at a moment.

    Attributes:
        states: of each job by its id, as in `nova_engines.handover`.
        workers: nodes whose workers the coordinator has; None where unknown.
        silence_s: where ``workers`` is None, a host that is silent for so long counts as lost.
        saturated: nodes whose joins are too slow, and the tuples/s that these received.
    """

    states: Mapping[str, str]
    workers: Collection[str] | None = None
    silence_s: float = 0.0
    saturated: Mapping[str, float] = field(default_factory=dict)


class JobsWatch(Protocol):
    """Observes the controlled jobs that run."""

    def look(self, now: float) -> JobsSeen:
        """Their current state.

        Args:
            now: `time.monotonic`.

        Raises:
            NovaError: where the engine does not answer.
        """
        ...


class SubmittedJob(Protocol):
    """A job whose sources wait for the order to begin."""

    @property
    def name(self) -> str:
        """Its name or id in the engine."""
        ...

    @property
    def flow(self) -> Flow:
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

    def submit(self, flow: Flow, sources: Sources, name: str, results: str) -> SubmittedJob:
        """Submit a job of joins with its own result file.

        Args:
            flow: what runs where.
            sources: where its tuples come from.
            name: of the job.
            results: name of the file.

        Raises:
            NovaError: when the engine refuses it.
        """
        ...

    def miss_after(self, seconds: float) -> None:
        """Set when hosts that hang or are cut off count as lost; call it before `up`."""
        ...

    def job(self, name: str, flow: Flow, sources: Sources) -> Job:
        """A job that already runs."""
        ...

    def watch(self, running: Sequence[tuple[ControlledJob, Flow]]) -> JobsWatch:
        """A watch of running jobs, and what runs where in each."""
        ...

    def processes(self, job: ControlledJob, nodes: Sequence[str]) -> Mapping[str, set[int]]:
        """Ids of a job's own processes on its nodes; none where workers outlive jobs."""
        ...

    def misses(self, node: str) -> bool:
        """Whether the engine accepts a restarted worker on a node as a new one."""
        ...

    def why(self, job: ControlledJob) -> str:
        """Why a job has failed, as far as the engine reports it."""
        ...

    def blames(self, job: ControlledJob) -> set[str]:
        """Nodes that the cause of a job's failure names; the engine may still count them as up."""
        ...


@dataclass(frozen=True)
class Abilities:
    """What an engine can do; by default what every engine can.

    Attributes:
        operators: kinds of operators that it runs, of `nova_engines.flow.KINDS`.
        sources: kinds of sources that it runs, of `nova_engines.sources.KINDS`. With ``kafka``, its
            jobs are a `ReadingJob`.
        query_sources: the same, of jobs with other operators than those of pairs.
        controlled: whether its jobs can be controlled: its engine is a `ControlledEngine`. Then its
            sources can change their rates, and scripts can end its workers.
        places: whether it finds places for operators without a node (`Flow.unpinned`).
        checkpoints: whether it restarts failed jobs of replays from checkpoints
            (`Sources.checkpoint_ms`). Without them, such an engine's job ends with a worker.
    """

    operators: Collection[str] = PAIRS
    sources: Collection[str] = (REPLAY,)
    query_sources: Collection[str] = ()
    controlled: bool = False
    places: bool = False
    checkpoints: bool = False


class Runner(Protocol):
    """An engine that can run flows, named by an entry point of ``nova.runners``."""

    @property
    def name(self) -> str:
        """Its name in commands."""
        ...

    @property
    def can(self) -> Abilities:
        """What it can do."""
        ...

    def prepare(self, tell: Tell, source: str) -> None:
        """Install it on this machine, with the current classes of Nova.

        To be called before virtual hosts start, which do not see later changes.

        Args:
            tell: progress callback.
            source: kind of sources that jobs will have, one of `can`.

        Raises:
            NovaError: when something is not installed, or classes cannot be compiled.
        """
        ...

    def cluster(self, address: str, problem: Problem | None) -> Cluster:
        """A cluster that already runs, on any hosts.

        Args:
            address: of its coordinator.
            problem: has the nodes' addresses, for engines that know hosts by address alone.
        """
        ...

    def engine(self, hosts: Hosts, source: str) -> Engine:
        """The engine on connected hosts; nothing is started yet.

        Args:
            hosts: connected; the inventory's with addresses.
            source: as of `prepare`.
        """
        ...


def names() -> list[str]:
    """Names of all engines that can run plans, sorted."""
    return _INSTALLED.names()


def runner(name: str) -> Runner:
    """The engine of that name.

    Raises:
        NovaError: for an unknown name, or a package that cannot be loaded.
    """
    loaded: Runner = _INSTALLED.load(name)
    return loaded


def require(name: str, operators: Collection[str], sources: Collection[str]) -> None:
    """Refuse what an engine cannot run.

    Args:
        name: of the engine.
        operators: kinds of operators that it is to run.
        sources: kinds of their sources.

    Raises:
        NovaError: naming the first kind that it does not run, and engines that do.
    """
    of = "query_sources" if set(operators) - set(PAIRS) else "sources"
    for called, can, wanted in (
        ("operators", "operators", operators),
        ("sources of queries" if of == "query_sources" else "sources", of, sources),
    ):
        for kind in sorted(set(wanted) - set(getattr(runner(name).can, can))):
            others = [one for one in names() if kind in getattr(runner(one).can, can)]
            raise NovaError(
                f"engine {name}: runs no {called} of kind {kind!r}; "
                f"{', '.join(others) or 'none'} can"
            )


@contextmanager
def running(engine: Engine, tell: Tell, *, keep: bool) -> Iterator[Engine]:
    """Run the engine inside the block; end it afterwards unless ``keep``.

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


def await_end(job: Job) -> None:
    """Wait for the end of a job whose sources end.

    Raises:
        RunError: for a job that failed.
    """
    while not job.look():
        time.sleep(POLL_S)


class Lead:
    """How long before its first tuple a job is submitted: the last job's time, and some more.

    Args:
        first_s: of the first job.
        second_s: of the second, whose classes are already loaded; None to use the first job's time.
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
        """Adapt to the time until that job runs."""
        took = time.time() - self._submitted
        usual = max(LEAST_LEAD_SECONDS, 1.3 * took + 1)
        self.seconds = self._second if self._second and took <= self.seconds else usual
        self._second = None
