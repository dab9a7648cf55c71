"""The controller of a running job: looks, decides, hands over, and logs what it did."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError
from nova_core.model.files import make_directory, read_plan, read_problem, write_plan, write_text
from nova_core.model.files import write_problem as write_problem_file
from nova_engines.dataflow import Dataflow, from_plan
from nova_engines.handover import FAILED, FINISHED, Handover, HandoverError, Ledger, only_one
from nova_engines.names import OWN_JOBS
from nova_engines.source_orders import ControlledJob
from nova_engines.workload import Workload
from nova_harness.control.arrivals import Arrival, ArrivalsWatch
from nova_harness.control.deciding import Decider, Decision, Seen, Tuning, moves_of
from nova_harness.control.disturbances import Disturbing, Script
from nova_harness.control.sensing import STALE_S, HostSensor, HostView
from nova_harness.engines.host_files import HostFiles

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.handover import Share
    from nova_harness.engines.base import ControlledEngine, JobSeen, JobState, JobWatch

TICK_S = 0.5
# After a failure, wait so long to learn which host was lost.
LEARN_S = 8.0
# Prefix of the names of controlled jobs, after the prefix of all of Nova's jobs.
JOB_NAME = "control-"
# Sources of the first job begin so long after their order.
BEGIN_MS = 1500
# A failed hand-over is tried again after so long.
AGAIN_S = 5.0
# A lost worker process is started again after so long; each time, the wait doubles.
REVIVE_S = 2.0
LEDGER, DECISIONS, WORKLOAD, PROBLEM, JOBS, PAUSED = (
    "ledger.json",
    "decisions.jsonl",
    "workload.json",
    "problem.json",
    "jobs",
    "paused",
)


@dataclass(frozen=True)
class Entry:
    """A line of the log.

    Attributes:
        at: when, s since the epoch.
        kind: ``deployed``, ``resumed``, ``disturbed``, ``noticed``, ``refused``, ``would``,
            ``handed-over``, ``failed``, ``waiting``, ``restarted``, ``recovered``, ``ended``.
        text: what happened, for people.
        figures: the same for programs.
    """

    at: float
    kind: str
    text: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As a line."""
        when = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"at": when, "kind": self.kind, "text": self.text, **self.figures})


@dataclass
class _Running:
    """The job that runs."""

    job: ControlledJob
    plan: Plan
    dataflow: Dataflow
    watch: JobWatch


@dataclass
class _Trial:
    """When to try again."""

    at: float = -math.inf
    times: int = 0


class Controller:
    """Keeps a job on the plan of the live optimizer, as hosts change.

    Its directory has the problem, the workload, the ledger of hand-overs, the plan of every job
    and the log; another controller can resume from it.

    Args:
        engine: running, on connected hosts.
        directory: of its state; one controller at a time uses it.
        tuning: when to act.
        note: callback with every line of the log.
        dry_run: decide and log, but change nothing.

    Attributes:
        running: the job that runs, and its plan.
        workload: what flows.
        finished: whether the job has ended by itself.
        positions: of hosts in the cost space: the first two coordinates, ms.
    """

    def __init__(
        self,
        engine: ControlledEngine,
        directory: Path,
        tuning: Tuning,
        note: Callable[[Entry], None],
        *,
        dry_run: bool = False,
    ) -> None:
        self.engine, self.directory, self.tuning = engine, directory, tuning
        self.dry_run, self._note = dry_run, note
        self.deployment = engine.deployment
        self.hosts = engine.deployment.hosts
        self.files = HostFiles(self.hosts)
        self.handover = Handover(engine.controlled_jobs, self.files, directory / LEDGER)
        self.decider: Decider
        self.running: _Running
        self.workload: Workload
        self.positions: dict[str, tuple[float, float]] = {}
        self._sensor: HostSensor | None = None
        self._arrivals: ArrivalsWatch | None = None
        self._next_plan: Plan | None = None
        self._reasons: list[str] = []
        self._noticed_at = 0.0
        self._moved_at = -math.inf
        self._failed_at: float | None = None
        self._next_try = -math.inf
        self._revivals: dict[str, _Trial] = {}
        # Hosts without an engine's process when the controller began.
        self._absent: set[str] = set()
        self._failure_logged = False
        self._unsure = True
        self._looked_at = -math.inf
        self._awake_at = -math.inf
        self._followed = False
        self._last_text = ""
        self.finished = False

    # --- begin ----------------------------------------------------------------------------------

    def begin(self, problem: Problem, plan: Plan, workload: Workload) -> None:
        """Deploy the first plan, or resume where another controller ended; first `rehearse`.

        Args:
            problem: with the hosts' own capacities; nodes are called like hosts.
            plan: to begin with.
            workload: replays, or what is read from Kafka. Without a time of start, it begins when
                the job runs.

        Raises:
            NovaError: for a directory of another problem, or when the plan cannot be deployed.
        """
        if (self.directory / LEDGER).exists():
            self._resume(problem)
        else:
            self._first(problem, plan, workload)
        flat = np.pad(problem.nodes.position, ((0, 0), (0, 2)))[:, :2].tolist()
        self.positions = {
            name: (x, y) for name, (x, y) in zip(problem.nodes.ids.tolist(), flat, strict=True)
        }
        sessions = self.hosts.map(lambda host: self._sessions(host.name))
        self._absent = {name for name, pids in sessions.items() if not pids}
        self._sensor = HostSensor(self.hosts, sessions, self.workload.control)
        self._arrivals = ArrivalsWatch(self.hosts)
        self._follow_job()

    def _first(self, problem: Problem, plan: Plan, workload: Workload) -> None:
        make_directory(self.directory / JOBS)
        works = {self.deployment.work(host.name) for host in self.hosts}
        if len(works) > 1:
            raise NovaError("hosts: log in as the same user everywhere; sources take orders there")
        window = workload.window_ms
        start = workload.start_ms or _up(_now_ms(), window)
        self.workload = replace(
            workload, start_ms=start, control=f"{works.pop()}/orders", checkpoint_ms=0
        )
        write_text(self.directory / WORKLOAD, self.workload.to_json())
        write_problem_file(problem, self.directory / PROBLEM)
        begun = time.monotonic()
        for job in self.engine.jobs():
            if job.runs and _controlled(job):
                raise NovaError(
                    f"{job.name} ({job.job}) runs already: go on with the --state of its "
                    "controller, or end it with `nova cluster stop`"
                )
            if job.runs and job.own:
                self.engine.stop(job.job)
        self.deployment.prepare_results()
        self.running = self._deploy(plan, _now_ms())
        begin = start // window * window
        if not workload.start_ms:
            begin = _up(_now_ms() + BEGIN_MS, window)
        self.handover.first(self.running.job, window, begin)
        self.decider = Decider(problem, plan, self.tuning)
        took = time.monotonic() - begun
        self._say("deployed", f"{self.running.job.job} runs after {took:.1f} s", seconds=took)

    def _resume(self, problem: Problem) -> None:
        known = read_problem(self.directory / PROBLEM)
        if known.digest != problem.digest:
            raise NovaError(f"{self.directory}: is of another problem; use another --state")
        self.workload = Workload.read(self.directory / WORKLOAD)
        last = Ledger.read(self.directory / LEDGER).shares[-1].job.job
        # Other engines forget killed jobs.
        keeps = self.handover.jobs.ends_failed_jobs
        if keeps and all(job.job != last for job in self.engine.jobs()):
            raise NovaError(
                f"{self.directory}: its job {last} no longer exists: "
                f"{self.deployment.ENGINE} was stopped; start again with another --state"
            )
        settled = True
        try:
            settled = self.handover.settle()
        except HandoverError as error:
            # Settled, but without a running job: the controller deploys another one.
            if Ledger.read(self.directory / LEDGER).handing is not None:
                raise
            self._say("failed", str(error))
        ledger = Ledger.read(self.directory / LEDGER)
        share = ledger.shares[-1]
        if ledger.end_ms is not None:
            self.finished = True
        else:
            # The last controller may not have ordered its begin, or may have begun to end it.
            self.handover.tell_again(share)
        self._end_strays()
        self.running = self._known(share)
        self.decider = Decider(problem, self.running.plan, self.tuning)
        note = "; a hand-over that was begun is settled" if settled else ""
        self._say("resumed", f"goes on with {share.job.job}{note}")

    def _end_strays(self) -> None:
        """End controlled jobs that the ledger does not name.

        Their controller was killed, or failed, after it had submitted them.
        """
        known = Ledger.read(self.directory / LEDGER).jobs
        for job in self.engine.jobs():
            if job.runs and _controlled(job) and job.job not in known:
                self.engine.stop(job.job)

    def _known(self, share: Share) -> _Running:
        """A job of the ledger that another controller may have deployed."""
        plan = self.plan_of(share)
        return self._running(share.job, plan, from_plan(plan, plan.problem, self.workload))

    def _running(self, job: ControlledJob, plan: Plan, dataflow: Dataflow) -> _Running:
        return _Running(job, plan, dataflow, self.engine.watch(job, dataflow))

    def plan_of(self, share: Share) -> Plan:
        """The plan of a job of the ledger, with the problem it was made for."""
        name, at = _name(share.job), self.directory / JOBS
        return read_plan(at / f"{name}.json", read_problem(at / f"{name}.problem.json"))

    # --- the loop -------------------------------------------------------------------------------

    def run(self, seconds: float | None, show: Callable[[Controller], None]) -> None:
        """Control until the time is over, or for ever.

        Args:
            seconds: how long; None has no end.
            show: is called after every look.

        Raises:
            NovaError: only for errors of the directory; all others are logged and tried again.
        """
        until = math.inf if seconds is None else time.monotonic() + seconds
        while time.monotonic() < until and not self.finished:
            begun = time.monotonic()
            try:
                self.look()
            except NovaError as error:
                self._unsure = True
                self._once("failed", str(error))
            show(self)
            time.sleep(max(0.0, min(begun + TICK_S, until) - time.monotonic()))

    def end(self) -> int:
        """End the job at a window's end, with complete results; returns that time, ms."""
        boundary = self.handover.end()
        self._say("ended", f"the job ended at {_clock(boundary)}", boundary_ms=boundary)
        return boundary

    def close(self) -> None:
        """Stop watching; the job keeps running."""
        for one in (self._sensor, self._arrivals):
            if one is not None:
                one.close()

    def disturbed(self, script: Script) -> Disturbing:
        """Start a script's disturbances, and log them."""
        begun = Disturbing(script.events, self.deployment, self._say)
        begun.start()
        return begun

    def views(self) -> dict[str, HostView]:
        """The latest readings of hosts."""
        return {} if self._sensor is None else self._sensor.view()

    def arrivals(self) -> list[Arrival]:
        """What the sinks have received over time."""
        return [] if self._arrivals is None else self._arrivals.history()

    def look(self) -> None:
        """Look once, and act on it."""
        self._settle()
        if self._unsure:
            self._catch_up()
        if not self._followed:
            self._follow_processes()
        now = time.monotonic()
        if now - self._looked_at > STALE_S:
            # The controller was suspended or busy: first, read what has arrived since.
            self._awake_at = now + STALE_S
        self._looked_at = now
        status = self.running.watch.look(now)
        seen = self._seen(status, now)
        for decision in self.decider.decide(seen, now, self._rates()):
            self._follow(decision)
        self._revive(seen, now)
        self._welcome(seen)
        nodes, views = self.running.dataflow.nodes, self.views()
        ends = self.handover.jobs.ends_failed_jobs
        # An engine's coordinator may be lost while the job runs.
        lost = any(not (seen[n].up if ends else self._works(n, views[n], status)) for n in nodes)
        if status.state == FAILED or self._failed_at is not None:
            self._recover(seen, now)
        elif status.state == FINISHED:
            self.finished = True
        elif lost and ends:
            self._once("waiting", f"for {self.deployment.ENGINE} to notice what it has lost")
        elif lost:
            self._recover(seen, now)
        elif self._next_plan is not None and (self.directory / PAUSED).exists():
            self._once("waiting", "paused: joins that should move stay until `nova control resume`")
        elif self._next_plan is not None and self._may_move(now):
            self._move(now)

    def _may_move(self, now: float) -> bool:
        """Whether it is time for a hand-over by choice.

        Changes of several hosts at once are noticed one by one: one hand-over covers them all.
        """
        waited = time.monotonic() - self._noticed_at >= self.tuning.lasting_s
        calm = now - self._moved_at > self.tuning.cooldown_s
        return calm and (waited or not self.decider.confirming)

    def _works(self, name: str, view: HostView, job: JobSeen) -> bool:
        """Whether a host's part of the job, if any, works."""
        if job.workers is not None:
            present = name in job.workers
        else:
            # This engine does not notice lost hosts: silence decides.
            now, patience = time.monotonic(), max(STALE_S, job.silence_s)
            present = now < self._awake_at or now - view.read_at < patience
        return present and view.works is not False

    def _seen(self, job: JobSeen, now: float) -> dict[str, Seen]:
        return {
            name: Seen(
                up=self._works(name, view, job) and view.alive is not False,
                share=None if view.silent(now) or view.taken is None else view.share,
                saturated=job.saturated.get(name),
            )
            for name, view in self.views().items()
        }

    def _rates(self) -> dict[str, float]:
        """Tuples/s of sources."""
        sources = self.workload.sources
        return {
            sources[number].source: rate
            for view in self.views().values()
            if not view.silent(time.monotonic())
            for number, rate in view.rates.items()
        }

    def _follow(self, decision: Decision) -> None:
        if decision.delta is None:
            self._say("refused", f"{decision.what}: {decision.refused}")
            return
        moves = moves_of(decision.delta)
        self._say("noticed", f"{decision.what}: {'; '.join(moves) or 'nothing has to move'}")
        if not decision.delta.empty:
            if self._next_plan is None:
                self._noticed_at = time.monotonic()
            self._next_plan = self.decider.plan()
            self._reasons.append(decision.what)
            if self.dry_run:
                self._say("would", f"{decision.what}: would hand over now")
                self._next_plan, self._reasons = None, []

    # --- acting ---------------------------------------------------------------------------------

    def _deploy(self, plan: Plan, from_ms: int) -> _Running:
        """Submit a plan's job; it runs and waits for its orders.

        Args:
            plan: of the job.
            from_ms: Kafka's messages are read from then on, ms since the epoch; its sources are
                ordered to begin then or later.
        """
        at = self.directory / JOBS
        number = sum(1 for _ in at.glob("*.problem.json")) + 1
        name = f"{JOB_NAME}{number}"
        write_problem_file(plan.problem, at / f"{name}.problem.json")
        write_plan(plan, at / f"{name}.json")
        workload = self.workload.read_from(from_ms)
        job = self.engine.submit(plan, workload, f"{OWN_JOBS}{name}", name)
        file = self.deployment.result_file(name)
        controlled = ControlledJob.of(job.name, job.dataflow, self.workload, file)
        try:
            job.await_running()
        except BaseException:
            with suppress(NovaError):
                self.handover.jobs.cancel(controlled)
            raise
        return self._running(controlled, plan, job.dataflow)

    def _settle(self) -> None:
        """Finish or take back a hand-over that was interrupted."""
        if not self.handover.settle():
            return
        share = Ledger.read(self.directory / LEDGER).shares[-1]
        if share.job.job == self.running.job.job:
            self._say("failed", f"the hand-over is taken back: {share.job.job} goes on")
            return
        self._handed_over(share)

    def _handed_over(self, share: Share) -> None:
        """Adopt a hand-over that the ledger has, although something did not answer."""
        self._adopt(self._known(share))
        text = f"handed over at {_clock(share.from_ms)}, after something had not answered"
        self._say("handed-over", text, job=share.job.job, boundary_ms=share.from_ms)

    def _catch_up(self) -> None:
        """After another controller, or an error: find the job, and whether it has failed.

        Not every engine's watch reports failed jobs.
        """
        share = Ledger.read(self.directory / LEDGER).shares[-1]
        if share.job.job != self.running.job.job:
            self._handed_over(share)
        if self._failed_at is None and self.handover.jobs.state(share.job) == FAILED:
            self._failed_at = time.monotonic()
            self._log_failure()
        self._unsure = False

    def _log_failure(self) -> None:
        if not self._failure_logged:
            self._say("failed", f"the job has failed: {self.engine.why(self.running.job)}")
        self._failure_logged = True

    def _move(self, now: float) -> None:
        if self._next_plan is None or now < self._next_try:
            return
        self.hand_over(self._next_plan, "; ".join(dict.fromkeys(self._reasons)))

    def hand_over(self, plan: Plan, why: str) -> None:
        """Replace the job by a plan's, at a window's end; logged, also if it is not possible.

        Args:
            plan: on the same hosts.
            why: for the log.
        """
        begun = time.monotonic()
        try:
            new = self._deploy(plan, _now_ms())
            boundary = self.handover.plan(new.job)
        except NovaError as error:
            self._next_try = time.monotonic() + AGAIN_S
            self._unsure = True
            self._say("failed", f"{why}: not handed over: {error}")
            self._end_strays()
            return
        self._adopt(new)
        # The previous job had to work off what it was behind: that is no time of rest.
        self._moved_at -= max(0, _now_ms() - boundary) / 1000
        took = time.monotonic() - begun
        self._say(
            "handed-over",
            f"{why}: handed over at {_clock(boundary)}, {took:.1f} s after it was begun",
            job=new.job.job,
            boundary_ms=boundary,
            seconds=took,
            told_s=self.handover.told_s,
            waited_s=max(0.0, begun - self._noticed_at),
        )

    def _recover(self, seen: Mapping[str, Seen], now: float) -> None:
        if self._failed_at is None:
            # The engine may have taken seconds to answer since the look began.
            failed_at = time.monotonic()
            self._log_failure()
            if not self.dry_run and not self.handover.jobs.ends_failed_jobs:
                self.handover.jobs.cancel(self.running.job)
                if self._sensor is not None:
                    self._sensor.follow("", {})
            self._failed_at = failed_at
        waiting = self.decider.waiting(seen)
        if waiting:
            self._once("waiting", f"for {', '.join(waiting)}, without which nothing runs")
            return
        known = any(not seen[name].up for name in self.running.dataflow.nodes)
        # An engine that ends failed jobs may do so before it says which host it has lost.
        known = known or not self.handover.jobs.ends_failed_jobs
        if now < self._next_try or (not known and now - self._failed_at < LEARN_S):
            return
        if self.dry_run:
            self._once("would", "would deploy the job anew")
            return
        try:
            new = self._deploy(self.decider.plan(), self.handover.incomplete())
            begin = self.handover.after_failure(new.job)
        except NovaError as error:
            self._next_try = time.monotonic() + 1.0
            self._unsure = True
            self._once("failed", f"not deployed anew: {error}")
            self._end_strays()
            return
        took = time.monotonic() - self._failed_at
        self._adopt(new)
        self._say(
            "recovered",
            f"joins anew from {_clock(begin)} on, {took:.1f} s after the failure was seen",
            job=new.job.job,
            begin_ms=begin,
            seconds=took,
        )

    def _adopt(self, new: _Running) -> None:
        self.running, self._next_plan, self._reasons = new, None, []
        self._failed_at, self._moved_at, self._next_try = None, time.monotonic(), -math.inf
        self._failure_logged, self._last_text = False, ""
        self._follow_job()

    def _follow_job(self) -> None:
        """Point the watches of hosts at the running job."""
        running = self.running
        if self._arrivals is not None:
            self._arrivals.follow(running.job.results)
        if self._sensor is not None:
            # Not the processes of the previous job, which end.
            self._sensor.follow(running.job.job, {})
            self._followed = False
            with suppress(NovaError):  # another look asks again
                self._follow_processes()

    def _follow_processes(self) -> None:
        """Point the sensor at the job's own processes."""
        running = self.running
        if self._sensor is not None:
            workers = self.engine.processes(running.job, running.dataflow.nodes)
            self._sensor.follow(running.job.job, workers)
            self._followed = True

    def _revive(self, seen: Mapping[str, Seen], now: float) -> None:
        """Restart worker processes that have ended, once the engine has noticed their loss.

        A worker that returns at the same address earlier would stay unused for minutes.
        """
        if self.dry_run:
            return
        for name, view in self.views().items():
            trial = self._revivals.setdefault(name, _Trial())
            if view.alive is not False or seen[name].up or view.silent(now) or now < trial.at:
                continue
            if not self.engine.misses(name):
                continue
            trial.at, trial.times = now + REVIVE_S * 2 ** (trial.times + 1), trial.times + 1
            with suppress(NovaError):
                self.deployment.start_worker(name)
                assert self._sensor is not None
                self._sensor.expect(name, self._sessions(name))
                self._say("restarted", f"{self.deployment.ENGINE} on {name} was started again")

    def _welcome(self, seen: Mapping[str, Seen]) -> None:
        """From now on, count the processes of an engine that has been started by others as its."""
        for name in [name for name in self._absent if seen[name].up]:
            if self._sensor is not None and (sessions := self._sessions(name)):
                self._sensor.expect(name, sessions)
                self._absent.discard(name)

    def _sessions(self, name: str) -> set[int]:
        """Sessions of the engine's processes on a host."""
        processes = self.deployment.PROCESSES
        return {job.pid for job in self.hosts[name].jobs() if job.name in processes}

    # --- the log --------------------------------------------------------------------------------

    def _say(self, kind: str, text: str, **figures: Any) -> None:
        entry = Entry(time.time(), kind, text, figures)
        with (self.directory / DECISIONS).open("a", encoding="utf-8") as file:
            file.write(entry.to_json() + "\n")
        self._last_text = text
        self._note(entry)

    def _once(self, kind: str, text: str) -> None:
        """Log an entry unless it equals the last one."""
        if text != self._last_text:
            self._say(kind, text)


def pause(directory: Path, *, paused: bool) -> None:
    """Pause or resume hand-overs by choice of a directory's controller; failures are handled.

    Raises:
        NovaError: for a directory without a controller's state.
    """
    if not (directory / LEDGER).is_file():
        raise NovaError(f"{directory}: holds no state of `nova control run`")
    if paused:
        write_text(directory / PAUSED, "")
    else:
        (directory / PAUSED).unlink(missing_ok=True)


def controlled(directory: Path) -> Any:
    """Keep other controllers from a directory; see `nova_engines.handover.only_one`."""
    make_directory(directory)
    return only_one(directory / LEDGER)


def _name(job: ControlledJob) -> str:
    """The name of its files."""
    return Path(job.results[0][1]).name


def _controlled(job: JobState) -> bool:
    # Some engines replace blanks in names.
    return job.name.replace("-", " ").startswith(f"{OWN_JOBS}{JOB_NAME}".replace("-", " "))


def _up(time_ms: int, step_ms: int) -> int:
    return -(-time_ms // step_ms) * step_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
