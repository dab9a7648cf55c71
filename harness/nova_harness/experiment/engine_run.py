"""One job on the cluster: submitted, verified, watched, ended, and what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_flink import results
from nova_flink.dataflow import Dataflow, from_plan
from nova_flink.verification import Verification, await_running, verify
from nova_flink.workload import SourceStream, Workload
from nova_harness.experiment.document import EnginePart
from nova_harness.experiment.stress import stressed
from nova_harness.experiment.usage import RackUsage, Series

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_flink.client import Client
    from nova_harness.experiment.limits import Limits
    from nova_harness.experiment.usage import UsageRecorder
    from nova_harness.flink_deployment import FlinkDeployment
    from nova_workloads.streams import Stream

# From submitting a job to its first tuple: time to deploy it, which is what the last one took, and
# some more.
LEAST_LEAD_SECONDS = 5.0
RUNNING_SECONDS = 60.0
# A job's state is asked for so often; each time costs the coordinator a few ms of CPU.
LOOK_SECONDS = 5.0
# Values a source repeats; they travel with the job.
MOST_VALUES = 8192
BUSY = "accumulated-busy-time"
# What a TaskManager takes on a host at most.
ENGINE_BYTES = 320 << 20

Tell = Callable[[str], None]


class RunError(NovaError):
    """A run that was ended by a fault; says by which."""


@dataclass(frozen=True)
class Timing:
    """How long a run takes.

    Attributes:
        warm_up_s: before it is measured; limits and load are in force in its second half.
        duration_s: measured.
        drain_s: what is on its way may still arrive.
    """

    warm_up_s: float
    duration_s: float
    drain_s: float


@dataclass
class Bed:
    """What lasts over many runs.

    Attributes:
        deployment: Flink on connected hosts.
        client: that submits jobs.
        limits: the hosts' CPU limits.
        settings: of the engine.
        lead_s: from submitting a job to its first tuple.
    """

    deployment: FlinkDeployment
    client: Client
    limits: Limits
    settings: EnginePart
    lead_s: float = LEAST_LEAD_SECONDS

    def took(self, seconds: float) -> None:
        """Learn from how long a job took to be running."""
        self.lead_s = max(LEAST_LEAD_SECONDS, 1.3 * seconds + 1)

    def recorder(self) -> UsageRecorder:
        """What notes the hosts' use of CPU."""
        from nova_harness.experiment.usage import NotedUsage

        hosts = self.deployment.hosts
        return RackUsage(hosts.inventory) if hosts.inventory.virtual else NotedUsage(hosts)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a run.

    Attributes:
        dataflow: what ran.
        workload: what flowed.
        job: its id.
        verification: where operators ran.
        records: results that arrived (`nova_flink.results`).
        truncated_bytes: of a record that was not written in full.
        series: what hosts used.
        operators: counters per operator.
        start_ms: when sources began, ms since the epoch.
        measured_us: begin and end of the measured time, us since the epoch.
        finished: whether the job came to its end by itself.
        late_s: how long after the sources' start the job was running; 0 when it was in time.
    """

    dataflow: Dataflow
    workload: Workload
    job: str
    verification: Verification
    records: Any
    truncated_bytes: int
    series: Series
    operators: list[dict[str, Any]]
    start_ms: int
    measured_us: tuple[int, int]
    finished: bool
    late_s: float


def workload_of(
    streams: Sequence[Stream],
    *,
    rate: float,
    window_ms: int,
    keys: int,
    every: int = 1,
    start_ms: int,
    count: int | None,
    settings: EnginePart,
) -> Workload:
    """The workload for the engine.

    Args:
        streams: what each of the problem's sources measures, in their order.
        rate: of each, tuples/s.
        window_ms: tumbling windows, ms.
        keys: sequence numbers have to be equal modulo this.
        every: and that key a multiple of this.
        start_ms: when sources begin, ms since the epoch.
        count: tuples per source; None is without end.
        settings: of the engine.
    """
    return Workload(
        sources=tuple(
            SourceStream(
                source=stream.sensor,
                rate=rate,
                sensor=stream.sensor,
                stream=stream.stream,
                region=stream.region,
                values=tuple(stream.value[:MOST_VALUES].tolist()),
            )
            for stream in streams
        ),
        window_ms=window_ms,
        start_ms=start_ms,
        count=count,
        keys=keys,
        every=every,
        watermark_ms=settings.watermark_ms,
        buffer_timeout_ms=settings.buffer_timeout_ms,
    )


def warm_up(
    bed: Bed,
    plan: Plan,
    streams: Sequence[Stream],
    seconds: float,
    *,
    rate: float,
    window_ms: int,
    keys: int,
    tell: Tell,
) -> None:
    """Run a plan that nothing is asked of, with limits lifted: Java loads and compiles meanwhile.

    Args:
        bed: what it runs on.
        plan: what is run.
        streams: what each source measures.
        seconds: how long it runs.
        rate: of each source, tuples/s.
        window_ms: tumbling windows, ms.
        keys: sequence numbers have to be equal modulo this.
        tell: is told what is being done.

    Raises:
        NovaError: naming what failed; the job is cancelled then.
    """
    deployment, rest = bed.deployment, bed.deployment.rest
    deployment.prepare_results()
    workload = workload_of(
        streams,
        rate=rate,
        window_ms=window_ms,
        keys=keys,
        start_ms=1000 * math.ceil(time.time() + LEAST_LEAD_SECONDS),
        count=None,
        settings=bed.settings,
    )
    dataflow = from_plan(plan, plan.problem, workload)
    bed.limits.lift(dataflow.nodes)
    tell("warming the engine up: deploying")
    file, submitted = deployment.result_file("results"), time.time()
    job = bed.client.submit(dataflow, workload, file, "nova warming up")
    watch = _Watch(bed, job)
    try:
        await_running(rest, job, dataflow, RUNNING_SECONDS)
        bed.took(time.time() - submitted)
        tell("warming the engine up")
        watch.until(max(time.time(), workload.start_ms / 1000) + seconds)
        rest.cancel(job)
        watch.over = True
    finally:
        if not watch.over:
            _cancel(bed, job)


def run_plan(
    bed: Bed,
    plan: Plan,
    streams: Sequence[Stream],
    timing: Timing,
    *,
    rate: float,
    window_ms: int,
    keys: int,
    every: int = 1,
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
        streams: what each source measures.
        timing: for how long.
        rate: of each source, tuples/s.
        window_ms: tumbling windows, ms.
        keys: sequence numbers have to be equal modulo this.
        every: and that key a multiple of this.
        stress: whether hosts are put under the inventory's load.
        limited: whether the hosts' CPU limits are in force while it is measured.
        name: of the job.
        scratch: directory for the file of results.
        tell: is told what is being done.

    Raises:
        NovaError: naming what failed; the job is cancelled then, and load ended.
    """
    deployment, rest = bed.deployment, bed.deployment.rest
    deployment.prepare_results()
    count = math.ceil((timing.warm_up_s + timing.duration_s) * rate)
    start_ms = 1000 * math.ceil(time.time() + bed.lead_s)
    workload = workload_of(
        streams,
        rate=rate,
        window_ms=window_ms,
        keys=keys,
        every=every,
        start_ms=start_ms,
        count=count,
        settings=bed.settings,
    )
    dataflow = from_plan(plan, plan.problem, workload)
    bed.limits.lift(dataflow.nodes)
    tell("deploying")
    submitted = time.time()
    job = bed.client.submit(dataflow, workload, deployment.result_file("results"), name)
    begin = start_ms / 1000 + timing.warm_up_s
    end = begin + timing.duration_s
    recorder = bed.recorder()
    watch = _Watch(bed, job)
    try:
        await_running(rest, job, dataflow, RUNNING_SECONDS)
        running = time.time()
        late = max(0.0, running - start_ms / 1000)
        bed.took(running - submitted)
        verification = verify(rest, job, dataflow)
        tell("warming up")
        watch.until(start_ms / 1000 + timing.warm_up_s / 2)
        before = rest.job(job)
        with stressed(deployment.hosts, ENGINE_BYTES, on=stress):
            if limited:
                bed.limits.impose()
            recorder.start()
            try:
                watch.until(begin)
                tell("measuring")
                watch.until(end)
                tell("draining")
                finished = watch.ended_by(end + timing.drain_s)
            finally:
                recorder.stop()
        bed.limits.lift(dataflow.nodes)
        after = rest.job(job)
    finally:
        if not watch.over:
            _cancel(bed, job)
    tell("collecting")
    local = scratch / "results.bin"
    deployment.fetch_results("results", local)
    found = results.read(local)
    local.unlink()
    return Outcome(
        dataflow=dataflow,
        workload=workload,
        job=job,
        verification=verification,
        records=found.records,
        truncated_bytes=found.truncated_bytes,
        series=recorder.series,
        operators=operators(verification, before, after),
        start_ms=start_ms,
        measured_us=(round(begin * 1e6), round(end * 1e6)),
        finished=finished,
        late_s=late,
    )


class _Watch:
    """Looks after a job while time passes."""

    def __init__(self, bed: Bed, job: str) -> None:
        self.bed, self.job = bed, job
        self.over = False
        self._next = 0.0

    def look(self) -> str:
        """The job's state.

        Raises:
            RunError: for a job that failed.
            NovaError: where the coordinator does not answer.
        """
        rest = self.bed.deployment.rest
        state = str(rest.job(self.job)["state"])
        if state in ("FINISHED", "CANCELED", "FAILED"):
            self.over = True
        if state in ("FAILED", "FAILING", "RESTARTING", "CANCELED", "CANCELLING"):
            raise RunError(f"the job {state.lower()}: {self._why()}")
        return state

    def _why(self) -> str:
        told = self.bed.deployment.rest.exceptions(self.job)
        # The first line says what Flink did about it, the last cause what happened.
        return told[-1] if told else "Flink does not say why"

    def until(self, moment: float) -> None:
        """Let time pass."""
        while (rest := moment - time.time()) > 0:
            if time.monotonic() >= self._next:
                self.look()
                self._next = time.monotonic() + LOOK_SECONDS
            time.sleep(min(rest, 0.25))

    def ended_by(self, moment: float) -> bool:
        """Whether the job comes to its end by itself before a time."""
        while True:
            if self.look() == "FINISHED":
                return True
            rest = moment - time.time()
            if rest <= 0:
                return False
            time.sleep(min(rest, 1.0))


def _cancel(bed: Bed, job: str) -> None:
    """End a job; a coordinator that is gone has no job any more."""
    rest = bed.deployment.rest
    try:
        bed.limits.lift()
        rest.cancel(job)
    except NovaError:
        return


def operators(
    verification: Verification, before: dict[str, Any], after: dict[str, Any]
) -> list[dict[str, Any]]:
    """What each vertex did between two answers of REST about a job.

    Args:
        verification: that knows where vertices run.
        before: the job, some time ago.
        after: the job, running or ended.
    """
    nodes = {row.operator: row.actual for row in verification.rows}
    was = {vertex["id"]: vertex["metrics"] for vertex in before["vertices"]}
    found = []
    for vertex in after["vertices"]:
        old, new = was[vertex["id"]], vertex["metrics"]
        first = next((n for name, n in nodes.items() if name in vertex["name"]), None)
        found.append(
            {
                "name": vertex["name"],
                "node": first,
                "records_in": new["read-records"] - old["read-records"],
                "records_out": new["write-records"] - old["write-records"],
                # Flink does not measure it of legacy sources.
                "busy_ms": None
                if "NaN" in (str(new[BUSY]), str(old[BUSY]))
                else new[BUSY] - old[BUSY],
                "back_pressured_ms": new["accumulated-backpressured-time"]
                - old["accumulated-backpressured-time"],
            }
        )
    return found


__all__ = [
    "Bed",
    "Outcome",
    "RunError",
    "Timing",
    "operators",
    "run_plan",
    "warm_up",
    "workload_of",
]
