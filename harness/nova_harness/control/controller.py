"""The controller of running jobs: looks, decides, hands over, and logs what it did."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nova_core.errors import NovaError
from nova_core.model.files import make_directory, read_plan, read_problem, write_plan, write_text
from nova_core.model.files import write_problem as write_problem_file
from nova_engines.dataflow import from_plan
from nova_engines.handover import FAILED, FINISHED, Handover, HandoverError, Ledger, only_one
from nova_engines.names import OWN_JOBS
from nova_engines.source_orders import ControlledJob, Order, tell
from nova_engines.workload import Workload
from nova_harness.control.arrivals import Arrival, ArrivalsWatch
from nova_harness.control.deciding import Decider, Decision, Seen, Tuning, moves_of
from nova_harness.control.disturbances import Disturbing, Script
from nova_harness.control.job_groups import (
    LEDGERS,
    Group,
    Running,
    Target,
    ledgers_of,
    name_of,
    sources_of_groups,
)
from nova_harness.control.sensing import STALE_S, HostSensor, HostView
from nova_harness.engines.host_files import HostFiles
from nova_harness.engines.warming import WARMING_RATE, warming_plan

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.handover import Share
    from nova_harness.engines.base import ControlledEngine, JobsSeen, JobState, JobsWatch

T = TypeVar("T")
TICK_S = 0.5
# After a failure, wait so long to learn which host was lost.
LEARN_S = 8.0
# Name of the job that warms the engine up.
WARMING = "warming-up"
# How long it is useful that it runs, s.
WARM_UP_S = 5.0
# Prefix of the names of controlled jobs, after the prefix of all of Nova's jobs.
JOB_NAME = "control-"
# Sources of the first job begin so long after their order.
BEGIN_MS = 1500
# A failed hand-over is tried again after so long.
AGAIN_S = 5.0
# A lost worker process is started again after so long; each time, the wait doubles.
REVIVE_S = 2.0
# Jobs at most that the joins are divided into, where workers outlive jobs.
MOST_JOBS = 8
LOCK, DECISIONS, WORKLOAD, PROBLEM, JOBS, PAUSED = (
    "controller",
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
        kind: ``warmed-up``, ``deployed``, ``resumed``, ``disturbed``, ``over``, ``noticed``,
            ``refused``, ``would``, ``handed-over``, ``failed``, ``waiting``, ``restarted``,
            ``recovered``, ``ended``.
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
class _Trial:
    """When to try again."""

    at: float = -math.inf
    times: int = 0


class Controller:
    """Keeps jobs on the plan of the live optimizer, as hosts change.

    Joins that share no source are jobs of their own: a hand-over replaces only jobs that change,
    and a failure stops only jobs that it hits. Where each job has its own processes, all joins are
    one job. The directory has the problem, the workload, the ledger of each group's hand-overs, the
    plan of every job and the log; another controller can resume from it.

    Args:
        engine: running, on connected hosts.
        directory: of its state; one controller at a time uses it.
        tuning: when to act.
        note: callback with every line of the log.
        dry_run: decide and log, but change nothing.
        most_jobs: that run at the same time; those of hand-overs not counted.

    Attributes:
        groups: joins that are one job each.
        workload: what flows.
        finished: whether all jobs have ended by themselves.
        positions: of hosts in the cost space: the first two coordinates, ms.
        last_text: of the last line of the log about no job in particular.
    """

    def __init__(
        self,
        engine: ControlledEngine,
        directory: Path,
        tuning: Tuning,
        note: Callable[[Entry], None],
        *,
        dry_run: bool = False,
        most_jobs: int = MOST_JOBS,
    ) -> None:
        self.engine, self.directory, self.tuning = engine, directory, tuning
        self.dry_run, self._note = dry_run, note
        self.deployment = engine.deployment
        self.hosts = engine.deployment.hosts
        self.files = HostFiles(self.hosts)
        self.jobs = engine.controlled_jobs
        self.most_jobs = most_jobs if engine.stays_warm else 1
        self.groups: list[Group] = []
        self.decider: Decider
        self.workload: Workload
        self.positions: dict[str, tuple[float, float]] = {}
        self._sensor: HostSensor | None = None
        self._arrivals: ArrivalsWatch | None = None
        self._watch: JobsWatch
        self._reasons: list[str] = []
        self._noticed_at = 0.0
        self._moved_at = -math.inf
        self._revivals: dict[str, _Trial] = {}
        # Hosts without an engine's process when the controller began.
        self._absent: set[str] = set()
        self._looked_at = -math.inf
        self._awake_at = -math.inf
        self._followed = False
        self.last_text = ""
        # Jobs are deployed, and lines logged, by several threads.
        self._lock = threading.RLock()
        self.finished = False

    # --- begin ----------------------------------------------------------------------------------

    def begin(
        self, problem: Problem, plan: Plan, workload: Workload, *, warm_s: float = 0.0
    ) -> None:
        """Deploy the first plan, or resume where another controller ended; first `rehearse`.

        Args:
            problem: with the hosts' own capacities; nodes are called like hosts.
            plan: to begin with.
            workload: replays, or what is read from Kafka. Without a time of start, it begins when
                the job runs.
            warm_s: before the first jobs, run joins on every host for so long: where workers
                outlive jobs, the first hand-over to a host is faster then. Not with Kafka.

        Raises:
            NovaError: for a directory of another problem, or when the plan cannot be deployed.
        """
        joined = {*problem.matrix.left.tolist(), *problem.matrix.right.tolist()}
        ledgers = ledgers_of(self.directory)
        if len({index for one in ledgers for index, _ in _last(one).job.sources}) == len(joined):
            self._resume(problem, ledgers)
        else:
            self._first(problem, plan, workload, warm_s)
        flat = np.pad(problem.nodes.position, ((0, 0), (0, 2)))[:, :2].tolist()
        self.positions = {
            name: (x, y) for name, (x, y) in zip(problem.nodes.ids.tolist(), flat, strict=True)
        }
        sessions = self.hosts.map(lambda host: self._sessions(host.name))
        self._absent = {name for name, pids in sessions.items() if not pids}
        self._sensor = HostSensor(self.hosts, sessions, self.workload.control)
        self._arrivals = ArrivalsWatch(self.hosts)
        self._follow_jobs()

    def _first(self, problem: Problem, plan: Plan, workload: Workload, warm_s: float) -> None:
        make_directory(self.directory / JOBS)
        # A controller that was killed while it began may have written some ledgers.
        shutil.rmtree(self.directory / LEDGERS, ignore_errors=True)
        make_directory(self.directory / LEDGERS)
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
        for job in self.engine.jobs():
            if job.runs and _controlled(job):
                raise NovaError(
                    f"{job.name} ({job.job}) runs already: go on with the --state of its "
                    "controller, or end it with `nova cluster stop`"
                )
            if job.runs and job.own:
                self.engine.stop(job.job)
        self.deployment.prepare_results()
        replays = all(one.kind == "replay" for one in self.workload.sources)
        if warm_s and replays and self.engine.stays_warm:
            self._warm_up(problem, warm_s)
        begun = time.monotonic()
        for number, sources in enumerate(sources_of_groups(problem, self.most_jobs), 1):
            ledger = self.directory / LEDGERS / f"{number}.json"
            self.groups.append(Group(sources, Handover(self.jobs, self.files, ledger)))
        self._aim(plan)
        from_ms = _now_ms()
        try:
            first = _at_once(lambda group: self._deploy(group, from_ms), self.groups)
        except BaseException:
            self._end_strays()
            raise
        for group, running in first.items():
            group.adopt(running)
        begin = start // window * window
        if not workload.start_ms:
            begin = _up(_now_ms() + BEGIN_MS, window)
        _at_once(lambda one: one.handover.first(one.running.job, window, begin), self.groups)
        self.decider = Decider(problem, plan, self.tuning)
        took = time.monotonic() - begun
        jobs = _ids(self.groups)
        self._say("deployed", f"after {took:.1f} s, running: {jobs}", seconds=took)

    def _warm_up(self, problem: Problem, seconds: float) -> None:
        """Java loads and compiles meanwhile what later jobs run."""
        begun, sources = time.monotonic(), self.workload.sources
        # Slowly, as every host gets all tuples of a source.
        slow = [replace(one, rate=min(WARMING_RATE, one.rate), surges=()) for one in sources]
        workload = replace(self.workload, sources=tuple(slow))
        plan = warming_plan(problem, [host.name for host in self.hosts])
        flow = from_plan(plan, problem, workload)
        job = self.engine.submit(flow, workload, f"{OWN_JOBS}{WARMING}", WARMING)
        file = self.deployment.result_file(WARMING)
        controlled = ControlledJob.of(job.name, flow, workload, file)
        try:
            job.await_running()
            tell(self.files, controlled, Order(_now_ms()))
            time.sleep(seconds)
        finally:
            self.jobs.cancel(controlled)
        took = time.monotonic() - begun
        self._say("warmed-up", f"joins have run on every host, for {took:.1f} s in all")

    def _resume(self, problem: Problem, ledgers: Sequence[Path]) -> None:
        known = read_problem(self.directory / PROBLEM)
        if known.digest != problem.digest:
            raise NovaError(f"{self.directory}: is of another problem; use another --state")
        self.workload = Workload.read(self.directory / WORKLOAD)
        # Other engines forget killed jobs.
        keeps, exist = self.jobs.ends_failed_jobs, {job.job for job in self.engine.jobs()}
        notes = []
        for ledger in ledgers:
            share = _last(ledger)
            if keeps and share.job.job not in exist:
                raise NovaError(
                    f"{self.directory}: its job {share.job.job} no longer exists: "
                    f"{self.deployment.ENGINE} was stopped; start again with another --state"
                )
            names = (self.workload.sources[index].source for index, _ in share.job.sources)
            group = Group(frozenset(names), Handover(self.jobs, self.files, ledger))
            notes.append(self._resume_group(group))
            self.groups.append(group)
        self._end_strays()
        ended = [Ledger.read(one).end_ms is not None for one in ledgers]
        self.finished = all(ended)
        newest = max(self.groups, key=lambda group: _number(group.name))
        self.decider = Decider(problem, newest.running.target.plan, self.tuning)
        self._aim(newest.running.target.plan)
        note = "; a hand-over that was begun is settled" if any(notes) else ""
        self._say("resumed", f"goes on with {_ids(self.groups)}{note}")

    def _resume_group(self, group: Group) -> bool:
        """Find what runs; whether a hand-over was settled."""
        settled = True
        try:
            settled = group.handover.settle()
        except HandoverError as error:
            # Settled, but without a running job: the controller deploys another one.
            if Ledger.read(group.handover.path).handing is not None:
                raise
            self._say("failed", str(error))
        ledger = Ledger.read(group.handover.path)
        share = ledger.shares[-1]
        if ledger.end_ms is None:
            # The last controller may not have ordered its begin, or may have begun to end it.
            group.handover.tell_again(share)
        group.adopt(self._known(group, share))
        return settled

    def _end_strays(self) -> None:
        """End controlled jobs that the ledger does not name.

        Their controller was killed, or failed, after it had submitted them.
        """
        ledgers = ledgers_of(self.directory)
        known = {job for path in ledgers for job in Ledger.read(path).jobs}
        for job in self.engine.jobs():
            if job.runs and _controlled(job) and job.job not in known:
                self.engine.stop(job.job)

    def _known(self, group: Group, share: Share) -> Running:
        """A job of the ledger that another controller may have deployed."""
        plan = self.plan_of(share)
        flow = from_plan(plan, plan.problem, self.workload)
        return Running(share.job, Target(plan, flow.of_sources(group.sources)))

    def _aim(self, plan: Plan) -> None:
        """Note which jobs have to be replaced for a plan."""
        flow = from_plan(plan, plan.problem, self.workload)
        for group in self.groups:
            own = flow.of_sources(group.sources)
            group.due = None if group.runs(own) else Target(plan, own)

    def plan_of(self, share: Share) -> Plan:
        """The plan of a job of the ledger, with the problem it was made for."""
        name, at = name_of(share.job), self.directory / JOBS
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
                for group in self.groups:
                    group.unsure = True
                self._once(self, "failed", str(error))
            show(self)
            time.sleep(max(0.0, min(begun + TICK_S, until) - time.monotonic()))

    def end(self) -> int:
        """End all jobs at a window's end, with complete results; returns the latest, ms."""
        boundary = max(_at_once(lambda group: group.handover.end(), self.groups).values())
        self._say("ended", f"{_ids(self.groups)} ended at {_clock(boundary)}", boundary_ms=boundary)
        return boundary

    def close(self) -> None:
        """Stop watching; the jobs keep running."""
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
        sure = [group for group in self.groups if self._is_sure(group)]
        if not self._followed:
            self._follow_processes()
        now = time.monotonic()
        if now - self._looked_at > STALE_S:
            # The controller was suspended or busy: first, read what has arrived since.
            self._awake_at = now + STALE_S
        self._looked_at = now
        status = self._watch.look(now)
        seen = self._seen(status, now)
        for decision in self.decider.decide(seen, now, self._rates()):
            self._follow(decision)
        self._revive(seen, now)
        self._welcome(seen)
        self.finished = all(state == FINISHED for state in status.states.values())
        lost = [group for group in sure if self._has_lost(group, status, seen)]
        failed = [group for group in sure if self._has_failed(group, status, group in lost)]
        self._recover(failed, seen, now)
        for group in lost:
            if group not in failed:
                text = f"for {self.deployment.ENGINE} to notice what it has lost"
                self._once(group, "waiting", text)
        due = [one for one in sure if one.due is not None and one not in (*lost, *failed)]
        if not due or self.dry_run or self.finished:
            return
        if (self.directory / PAUSED).exists():
            text = "paused: joins that should move stay until `nova control resume`"
            self._once(self, "waiting", text)
        elif self._may_move(now):
            why = "; ".join(dict.fromkeys(self._reasons))
            self._move([group for group in due if now >= group.next_try], why)

    def _is_sure(self, group: Group) -> bool:
        """Settle a group's hand-over, and find its job, where that is needed and possible."""
        try:
            self._settle(group)
            if group.unsure:
                self._catch_up(group)
        except NovaError as error:
            group.unsure = True
            self._once(group, "failed", str(error))
        return not group.unsure

    def _has_lost(self, group: Group, status: JobsSeen, seen: Mapping[str, Seen]) -> bool:
        """Whether a host has lost its part of a job that has not finished."""
        if status.states[group.running.job.job] == FINISHED:
            return False
        nodes, views = group.running.target.dataflow.nodes, self.views()
        if self.jobs.ends_failed_jobs:
            # An engine's coordinator may be lost while the job runs.
            return not all(seen[node].up for node in nodes)
        return not all(self._works(node, views[node], status) for node in nodes)

    def _has_failed(self, group: Group, status: JobsSeen, lost: bool) -> bool:
        """Whether a job has failed, or counts as failed."""
        if group.failed_at is not None or status.states[group.running.job.job] == FAILED:
            return True
        return lost and not self.jobs.ends_failed_jobs

    def _may_move(self, now: float) -> bool:
        """Whether it is time for a hand-over by choice.

        Changes of several hosts at once are noticed one by one: one hand-over covers them all.
        """
        waited = time.monotonic() - self._noticed_at >= self.tuning.lasting_s
        calm = now - self._moved_at > self.tuning.cooldown_s
        return calm and (waited or not self.decider.confirming)

    def _works(self, name: str, view: HostView, jobs: JobsSeen) -> bool:
        """Whether a host's part of the jobs, if any, works."""
        if jobs.workers is not None:
            present = name in jobs.workers
        else:
            # This engine does not notice lost hosts: silence decides.
            now, patience = time.monotonic(), max(STALE_S, jobs.silence_s)
            present = now < self._awake_at or now - view.read_at < patience
        return present and view.works is not False

    def _seen(self, jobs: JobsSeen, now: float) -> dict[str, Seen]:
        return {
            name: Seen(
                up=self._works(name, view, jobs) and view.alive is not False,
                share=None if view.silent(now) or view.taken is None else view.share,
                saturated=jobs.saturated.get(name),
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
            if self.dry_run:
                self._say("would", f"{decision.what}: would hand over now")
                return
            if not self._reasons:
                self._noticed_at = time.monotonic()
            self._reasons.append(decision.what)
            self._aim(self.decider.plan())

    # --- acting ---------------------------------------------------------------------------------

    def _deploy(self, group: Group, from_ms: int) -> Running:
        """Submit the job that a group should run; it runs and waits for its orders.

        Args:
            group: without anything due, the same job again.
            from_ms: Kafka's messages are read from then on, ms since the epoch; its sources are
                ordered to begin then or later.
        """
        target, at = group.due or group.running.target, self.directory / JOBS
        with self._lock:
            number = sum(1 for _ in at.glob("*.problem.json")) + 1
            name = f"{JOB_NAME}{number}"
            write_problem_file(target.plan.problem, at / f"{name}.problem.json")
            write_plan(target.plan, at / f"{name}.json")
            workload = self.workload.read_from(from_ms)
            job = self.engine.submit(target.dataflow, workload, f"{OWN_JOBS}{name}", name)
        file = self.deployment.result_file(name)
        controlled = ControlledJob.of(job.name, target.dataflow, self.workload, file)
        try:
            job.await_running()
        except BaseException:
            with suppress(NovaError):
                self.jobs.cancel(controlled)
            raise
        return Running(controlled, target)

    def _settle(self, group: Group) -> None:
        """Finish or take back a hand-over that was interrupted."""
        if not group.handover.settle():
            return
        share = _last(group.handover.path)
        if share.job.job == group.running.job.job:
            self._say("failed", f"the hand-over is taken back: {share.job.job} goes on")
            return
        self._handed_over(group, share)

    def _handed_over(self, group: Group, share: Share) -> None:
        """Adopt a hand-over that the ledger has, although something did not answer."""
        group.adopt(self._known(group, share))
        self._adopted()
        text = f"handed over at {_clock(share.from_ms)}, after something had not answered"
        self._say("handed-over", text, job=share.job.job, boundary_ms=share.from_ms)

    def _catch_up(self, group: Group) -> None:
        """After another controller, or an error: find the job, and whether it has failed.

        Not every engine's watch reports failed jobs.
        """
        share = _last(group.handover.path)
        if share.job.job != group.running.job.job:
            self._handed_over(group, share)
        if group.failed_at is None and self.jobs.state(share.job) == FAILED:
            group.failed_at = time.monotonic()
            self._log_failure(group)
        group.unsure = False

    def _log_failure(self, group: Group) -> None:
        if not group.logged:
            self._say("failed", f"{group.name} has failed: {self.engine.why(group.running.job)}")
        group.logged = True

    def hand_over(self, plan: Plan, why: str) -> None:
        """Replace jobs by those of a plan, at a window's end; logged, also if it is not possible.

        Args:
            plan: on the same hosts.
            why: for the log.
        """
        self._aim(plan)
        self._move([group for group in self.groups if group.due is not None], why)

    def _move(self, groups: Sequence[Group], why: str) -> None:
        """Replace jobs by those that are due, all at the same time."""
        begun, from_ms = time.monotonic(), _now_ms()
        plan = self._each(
            groups,
            f"{why}: not handed over",
            AGAIN_S,
            lambda group: self._deploy(group, from_ms),
            lambda group, new: group.handover.plan(new.job),
        )
        if not plan:
            return
        boundary = max(plan.values())
        # The previous jobs had to work off what they were behind: that is no time of rest.
        self._moved_at -= max(0, _now_ms() - boundary) / 1000
        took = time.monotonic() - begun
        which = f"{len(plan)} of {len(self.groups)} jobs " if len(self.groups) > 1 else ""
        self._say(
            "handed-over",
            f"{why}: {which}handed over at {_clock(boundary)}, {took:.1f} s after it was begun",
            job=_ids(plan),
            boundary_ms=boundary,
            seconds=took,
            told_s=max(group.handover.told_s for group in plan),
            waited_s=max(0.0, begun - self._noticed_at),
        )

    def _each(
        self,
        groups: Sequence[Group],
        failure: str,
        again_s: float,
        deploy: Callable[[Group], Running],
        begin: Callable[[Group, Running], int],
    ) -> dict[Group, int]:
        """Replace jobs: deploy new ones, and when all run, let them take over.

        Args:
            groups: of these jobs.
            failure: for the log, where one is not replaced.
            again_s: until the next try then.
            deploy: a group's new job.
            begin: lets it take over.

        Returns:
            What ``begin`` has returned, for the groups whose job was replaced.
        """

        def tried(call: Callable[[Group], T]) -> Callable[[Group], T | None]:
            def it(group: Group) -> T | None:
                try:
                    return call(group)
                except NovaError as error:
                    group.next_try, group.unsure = time.monotonic() + again_s, True
                    self._once(group, "failed", f"{failure}: {error}")
                    return None

            return it

        new = _at_once(tried(deploy), groups)
        begun = _at_once(tried(lambda group: begin(group, new[group])), list(new))
        for group in begun:
            group.adopt(new[group])
        if len(begun) < len(groups):
            self._end_strays()
        if begun:
            self._adopted()
        return begun

    def _recover(self, failed: Sequence[Group], seen: Mapping[str, Seen], now: float) -> None:
        """Deploy failed jobs anew, as soon as that is possible."""
        ends, waiting, ready = self.jobs.ends_failed_jobs, set(self.decider.waiting(seen)), []
        for group in failed:
            if group.failed_at is None:
                # The engine may have taken seconds to answer since the look began.
                failed_at = time.monotonic()
                self._log_failure(group)
                if not self.dry_run and not ends:
                    self.jobs.cancel(group.running.job)
                    if self._sensor is not None:
                        self._sensor.follow(frozenset(), {})
                group.failed_at = failed_at
            nodes = group.running.target.dataflow.nodes
            if missing := sorted(waiting.intersection(nodes)):
                text = f"for {', '.join(missing)}, without which nothing runs"
                self._once(group, "waiting", text)
                continue
            # An engine that ends failed jobs may do so before it says which host it has lost.
            known = not ends or any(not seen[name].up for name in nodes)
            if now < group.next_try or (not known and now - group.failed_at < LEARN_S):
                continue
            if self.dry_run:
                self._once(group, "would", f"would deploy {group.name} anew")
                continue
            ready.append(group)
        since = {group: group.failed_at or now for group in ready}
        for group, begin in self._each(
            ready,
            "not deployed anew",
            1.0,
            lambda group: self._deploy(group, group.handover.incomplete()),
            lambda group, new: group.handover.after_failure(new.job),
        ).items():
            took = time.monotonic() - since[group]
            self._say(
                "recovered",
                f"joins anew from {_clock(begin)} on, {took:.1f} s after the failure was seen",
                job=group.running.job.job,
                begin_ms=begin,
                seconds=took,
            )

    def _adopted(self) -> None:
        """Other jobs run than before."""
        self._moved_at, self.last_text = time.monotonic(), ""
        if all(group.due is None for group in self.groups):
            self._reasons = []
        self._follow_jobs()

    def _follow_jobs(self) -> None:
        """Point the watches at the running jobs."""
        running = [group.running for group in self.groups]
        self._watch = self.engine.watch([(one.job, one.target.dataflow) for one in running])
        if self._arrivals is not None:
            self._arrivals.follow([file for one in running for file in one.job.results])
        if self._sensor is not None:
            # Not the processes of the previous jobs, which end.
            self._sensor.follow(frozenset(one.job.job for one in running), {})
            self._followed = False
            with suppress(NovaError):  # another look asks again
                self._follow_processes()

    def _follow_processes(self) -> None:
        """Point the sensor at the jobs' own processes."""
        if self._sensor is not None:
            workers: dict[str, set[int]] = {}
            for group in self.groups:
                job, nodes = group.running.job, group.running.target.dataflow.nodes
                for node, pids in self.engine.processes(job, nodes).items():
                    workers.setdefault(node, set()).update(pids)
            self._sensor.follow(frozenset(one.running.job.job for one in self.groups), workers)
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
        with self._lock:
            with (self.directory / DECISIONS).open("a", encoding="utf-8") as file:
                file.write(entry.to_json() + "\n")
            self._note(entry)

    def _once(self, about: Controller | Group, kind: str, text: str) -> None:
        """Log an entry unless it equals the last such one about a group, or about all."""
        if text != about.last_text:
            self._say(kind, text)
        about.last_text = text


def pause(directory: Path, *, paused: bool) -> None:
    """Pause or resume hand-overs by choice of a directory's controller; failures are handled.

    Raises:
        NovaError: for a directory without a controller's state.
    """
    if not ledgers_of(directory):
        raise NovaError(f"{directory}: holds no state of `nova control run`")
    if paused:
        write_text(directory / PAUSED, "")
    else:
        (directory / PAUSED).unlink(missing_ok=True)


def controlled(directory: Path) -> Any:
    """Keep other controllers from a directory; see `nova_engines.handover.only_one`."""
    make_directory(directory)
    return only_one(directory / LOCK)


def _at_once(call: Callable[[Group], T | None], groups: Sequence[Group]) -> dict[Group, T]:
    """Call for all groups at the same time; without the answers that are None."""
    if len(groups) < 2:
        answers = [call(group) for group in groups]
    else:
        with ThreadPoolExecutor(len(groups)) as pool:
            answers = list(pool.map(call, groups))
    pairs = zip(groups, answers, strict=True)
    return {group: answer for group, answer in pairs if answer is not None}


def _last(ledger: Path) -> Share:
    """The share of the job that runs."""
    return Ledger.read(ledger).shares[-1]


def _number(name: str) -> int:
    """Jobs are numbered as they are deployed."""
    return int(name.removeprefix(JOB_NAME))


def _ids(groups: Iterable[Group]) -> str:
    return ", ".join(group.running.job.job for group in groups)


def _controlled(job: JobState) -> bool:
    # Some engines replace blanks in names.
    return job.name.replace("-", " ").startswith(f"{OWN_JOBS}{JOB_NAME}".replace("-", " "))


def _up(time_ms: int, step_ms: int) -> int:
    return -(-time_ms // step_ms) * step_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
