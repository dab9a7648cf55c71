"""One job on the cluster: submitted, verified, watched and ended, and its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nova_core.errors import NovaError
from nova_engines.flow_of_plan import flow_of
from nova_harness.control.disturbances import (
    Disturbing,
    added_hosts,
    await_workers,
    touched_hosts,
    with_surges,
    without_workers,
)
from nova_harness.engines.base import ControlledEngine, RunError
from nova_harness.experiment.document import EnginePart
from nova_harness.experiment.feed import Feed
from nova_harness.experiment.problem import busy_hosts
from nova_harness.experiment.stress import stressed
from nova_harness.experiment.usage import RackUsage, Series
from nova_harness.results.schema import CellEvent

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_engines.flow import Flow
    from nova_engines.sources import Sources
    from nova_engines.verification import Verification
    from nova_harness.control.disturbances import Disturbance
    from nova_harness.engines.base import Engine, Job, Starter
    from nova_harness.engines.deployment import EngineDeployment
    from nova_harness.experiment.limits import Limits
    from nova_harness.experiment.usage import UsageRecorder
    from nova_harness.results.schema import OperatorCounts
    from nova_kafka.measures import Sample
    from nova_workloads.base import Streams

# Time between two looks at a job; each costs the coordinator a few ms of CPU.
LOOK_SECONDS = 5.0
# Flink counts up to the request before: there is one so long before its counts begin, as there is
# before they end.
FRESH_SECONDS = 1.0
# Limits and load may take effect up to this share of the measured time after its begin.
SHARE_OVERDUE = 0.05
# How often a job is deployed that is not ready in time.
ATTEMPTS = 3

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Timing:
    """How long a run takes.

    Attributes:
        warm_up_s: before it is measured; limits and load are in force in its second half.
        duration_s: measured.
        drain_s: after it, for late results.
    """

    warm_up_s: float
    duration_s: float
    drain_s: float


@dataclass
class Bed:
    """The hosts and engine of many runs.

    Attributes:
        engine: on connected hosts.
        limits: the hosts' CPU limits.
        settings: of the engine.
        feed: what gives sources their tuples.
        disturbances: of hosts in the measured time.
        starter: starts a flow, instead of `Engine.start`.
        events: since the job was started.
    """

    engine: Engine
    limits: Limits
    settings: EnginePart
    feed: Feed = field(default_factory=Feed)
    disturbances: Sequence[Disturbance] = ()
    starter: Starter | None = None
    events: list[CellEvent] = field(default_factory=list)

    @property
    def deployment(self) -> EngineDeployment:
        """The engine's processes on the hosts."""
        return self.engine.deployment

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> Job:
        """Run a flow, with what its sources need; see `Engine.start`."""
        self.events.clear()
        return self.feed.start(self.starter or self.engine.start, flow, sources, name)

    def end(self, job: Job) -> None:
        """End a job, whatever the state of hosts."""
        for end in (self.limits.lift, job.end, self.feed.end):
            with suppress(NovaError):
                end()

    def sources(self, streams: Streams, seconds: float | None) -> Callable[[int], Sources]:
        """The engine's sources of streams by their start time, for so many seconds."""
        settings = msgspec.structs.asdict(self.settings)
        del settings["miss_after_s"]
        checkpoint_ms = round(1000 * settings.pop("checkpoint_s"))

        def starting(start_ms: int) -> Sources:
            sources = streams.sources(start_ms, seconds, **settings)
            return replace(sources, checkpoint_ms=checkpoint_ms)

        return starting

    def disturbed(self, plan: Plan, streams: Streams, timing: Timing) -> Callable[[int], Sources]:
        """The same for a run, with the rates of its disturbances.

        Raises:
            ScriptError: for a host without sources.
        """
        sources = self.sources(streams, timing.warm_up_s + timing.duration_s)
        events, begin_s = self.disturbances, timing.warm_up_s
        return lambda start_ms: with_surges(sources(start_ms), plan.problem, events, begin_s)

    def note(self, kind: str, text: str) -> None:
        """Log an event."""
        self.events.append(CellEvent(time.time(), kind, text))

    def disturbing(self, begin: float) -> Disturbing:
        """The disturbances, whose times count from a time, s since the epoch.

        Closing the result ends them.
        """
        begun = Disturbing(self.disturbances, self.deployment, self.note)
        begun.start(begin)
        return begun

    def absent(self) -> AbstractContextManager[None]:
        """Have no worker, inside the block, on hosts that the disturbances add; before, on all.

        The disturbances of the run before may have left a host without one.

        Raises:
            ScriptError: naming hosts whose worker does not come or go.
        """
        if not self.disturbances:
            return nullcontext()
        miss_after_s = self.settings.miss_after_s or 0.0
        await_workers(self.engine, touched_hosts(self.disturbances), miss_after_s)
        names = added_hosts(self.disturbances)
        if not names:
            return nullcontext()
        assert isinstance(self.engine, ControlledEngine)
        return without_workers(self.engine, names)

    def recorder(self, *, stress: bool) -> UsageRecorder:
        """A recorder of the hosts' CPU use, with the part of the inventory's load."""
        from nova_harness.experiment.usage import NotedUsage

        hosts = self.deployment.hosts
        if not hosts.inventory.virtual:
            return NotedUsage(hosts)
        return RackUsage(hosts.inventory, hosts.inventory.stress.hosts if stress else ())


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of a run.

    Attributes:
        flow: what ran, as JSON.
        sources: where its tuples came from.
        job: its id.
        verification: where operators ran.
        records: results that arrived (`nova_engines.results`).
        truncated_bytes: of an incomplete record.
        series: resources that hosts used.
        operators: counters per operator.
        start_ms: when sources began, ms since the epoch.
        measured_us: begin and end of the measured time, us since the epoch.
        finished: whether the job ended by itself.
        counted_s: time that operators' counters cover.
        late_s: how long after the sources' start the job was running; 0 when it was in time.
        samples: looks at the streams' broker; None without one.
        restarts: how often the engine restarted the sink.
        dead_letters: invalid tuples at the sources.
        events: during the run.
    """

    flow: str
    sources: Sources
    job: str
    verification: Verification
    records: Any
    truncated_bytes: int
    series: Series
    operators: list[OperatorCounts]
    start_ms: int
    measured_us: tuple[int, int]
    finished: bool
    counted_s: float
    late_s: float
    samples: Sequence[Sample] | None = None
    restarts: int = 0
    dead_letters: int = 0
    events: Sequence[CellEvent] = ()


def warm_up(bed: Bed, plan: Plan, streams: Streams, seconds: float, tell: Tell) -> None:
    """Run a plan without a measurement, with limits lifted: Java loads and compiles meanwhile.

    Args:
        bed: what it runs on.
        plan: what is run.
        streams: what its sources emit.
        seconds: how long it runs.
        tell: progress callback.

    Raises:
        NovaError: naming what failed; then the job is cancelled.
    """
    bed.limits.lift(busy_hosts(plan))
    bed.deployment.prepare_results()
    tell("warming the engine up: deploying")
    flow, sources = flow_of(plan, streams.match), bed.sources(streams, None)
    job = bed.start(flow, sources, "nova warming up")
    try:
        job.await_running()
        tell("warming the engine up")
        _Watch(job).until(max(time.time(), job.sources.start_ms / 1000) + seconds)
    finally:
        bed.end(job)


def run_plan(
    bed: Bed,
    plan: Plan,
    streams: Streams,
    timing: Timing,
    *,
    stress: bool,
    limited: bool,
    name: str,
    scratch: Path,
    tell: Tell,
) -> Outcome:
    """Run a plan on the cluster for a while.

    Args:
        bed: what it runs on.
        plan: what is run.
        streams: what its sources emit.
        timing: for how long.
        stress: whether hosts are under the inventory's load.
        limited: whether the hosts' CPU limits are in force while it is measured.
        name: of the job.
        scratch: directory for the result file.
        tell: progress callback.

    Raises:
        NovaError: naming what failed; then the job is cancelled, and load ends.
    """
    busy, flow = busy_hosts(plan), flow_of(plan, streams.match)
    for attempt in range(ATTEMPTS):
        bed.limits.lift(busy)
        bed.deployment.prepare_results()
        sources = bed.disturbed(plan, streams, timing)
        with bed.absent():
            job, late = _running(bed, flow, sources, name, timing.warm_up_s / 2, tell)
            try:
                run = _measured(bed, job, timing, busy, stress=stress, limited=limited, tell=tell)
                break
            except _OverdueError as error:
                if attempt == ATTEMPTS - 1:
                    raise
                timing = replace(timing, warm_up_s=2 * timing.warm_up_s + 1)
                tell(f"{error}; once more, with a warm-up of {timing.warm_up_s:g} s")
            finally:
                bed.end(job)
    tell("collecting")
    bed.feed.check_sent()
    arrived = job.results(scratch)
    if (loss := arrived.loss(finished=run.finished)) is not None:
        raise RunError(loss)
    start_ms = job.sources.start_ms
    begin_us = start_ms * 1000 + round(timing.warm_up_s * 1e6)
    return Outcome(
        flow=job.document,
        sources=job.sources,
        job=job.name,
        verification=run.verification,
        records=arrived.records,
        truncated_bytes=arrived.truncated_bytes,
        series=run.series,
        operators=job.operators(run.before, run.after),
        start_ms=start_ms,
        measured_us=(begin_us, begin_us + round(timing.duration_s * 1e6)),
        finished=run.finished,
        counted_s=run.counted_s,
        late_s=late,
        samples=bed.feed.samples,
        restarts=arrived.starts - 1,
        dead_letters=arrived.dead_letters,
        events=tuple(bed.events),
    )


class _OverdueError(RunError):
    """The measured time began before everything was ready."""


@dataclass(frozen=True)
class _Run:
    """Observations of a running job; the names are those of `Outcome`."""

    verification: Verification
    before: Any
    after: Any
    counted_s: float
    series: Series
    finished: bool


def _measured(
    bed: Bed,
    job: Job,
    timing: Timing,
    busy: set[str],
    *,
    stress: bool,
    limited: bool,
    tell: Tell,
) -> _Run:
    """Watch a running job during its warm-up, measured time and drain."""
    start = job.sources.start_ms / 1000
    tightened, begin = start + timing.warm_up_s / 2, start + timing.warm_up_s
    end = begin + timing.duration_s
    recorder = bed.recorder(stress=stress)
    watch = _Watch(job)
    verification = job.verify()
    tell("warming up")
    hosts, taken = bed.deployment.hosts, bed.engine.engine_bytes
    with stressed(hosts, taken, on=stress, at=tightened):
        watch.until(tightened - FRESH_SECONDS)
        job.look()
        watch.until(tightened)
        before, counting = job.counters(), time.time()
        if limited:
            bed.limits.impose()
        overdue = time.time() - begin
        if overdue > max(1.0, SHARE_OVERDUE * timing.duration_s):
            raise _OverdueError(
                f"limits and load were in force {overdue:.1f} s after the measured time began; "
                "is the machine busy with something else? Try again, or with a longer warm_up_s"
            )
        recorder.start()
        try:
            with closing(bed.disturbing(begin)):
                watch.until(begin)
                tell("measuring")
                watch.until(end)
                tell("draining")
                finished = watch.ended_by(end + timing.drain_s)
        finally:
            recorder.stop()
    bed.limits.lift(busy)
    after, counted_s = job.counters(), time.time() - counting
    # Operators may have moved since.
    verification = job.verify() if verification.ok else verification
    return _Run(verification, before, after, counted_s, recorder.series, finished)


def _running(
    bed: Bed,
    flow: Flow,
    sources: Callable[[int], Sources],
    name: str,
    most_late_s: float,
    tell: Tell,
) -> tuple[Job, float]:
    """Start a job; returns how late it ran after its sources' start, s. Late jobs are repeated.

    A busy machine takes longer to deploy a job; the next job gets that time.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            tell("it took too long; once more")
            bed.deployment.prepare_results()
        tell("deploying")
        job = bed.start(flow, sources, name)
        try:
            job.await_running()
        except BaseException:
            bed.end(job)
            raise
        late = max(0.0, time.time() - job.sources.start_ms / 1000)
        if late <= most_late_s or attempt == ATTEMPTS - 1:
            break
        bed.end(job)
    return job, late


class _Watch:
    """Watches a job while time passes."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._next = 0.0

    def until(self, moment: float) -> None:
        """Wait until a time."""
        while (rest := moment - time.time()) > 0:
            if time.monotonic() >= self._next:
                self.job.look()
                self._next = time.monotonic() + LOOK_SECONDS
            time.sleep(min(rest, 0.25))

    def ended_by(self, moment: float) -> bool:
        """Whether the job ends by itself before a time."""
        while True:
            if self.job.look():
                return True
            rest = moment - time.time()
            if rest <= 0:
                return False
            time.sleep(min(rest, 1.0))
