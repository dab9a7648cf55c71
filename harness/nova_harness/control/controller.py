"""The controller of running jobs: looks, decides, hands over, and logs what it did."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError
from nova_core.io.safe_files import make_directory, write_text
from nova_engines.flow_of_plan import flow_of
from nova_engines.handover import FAILED, FINISHED, Ledger, now_ms, only_one
from nova_engines.results import fields_of
from nova_harness.control.arrivals import Arrival, ArrivalsWatch
from nova_harness.control.backoff import Backoff
from nova_harness.control.deciding import Decider, Decision, Seen, Tuning, moves_of
from nova_harness.control.decision_log import DecisionLog, Entry, clock
from nova_harness.control.deploying import Deployer, ids
from nova_harness.control.disturbances import Disturbing, Script
from nova_harness.control.job_groups import Group, ledgers_of
from nova_harness.control.sensing import PERIOD_S, STALE_S, HostSensor, HostView, Rate

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.flow import Match
    from nova_engines.sources import Sources
    from nova_harness.engines.base import ControlledEngine, JobsSeen, JobsWatch

TICK_S = 0.5
# After a failure, wait so long to learn which host was lost.
LEARN_S = 8.0
# A worker process that was started again is started once more after so long; the wait doubles.
REVIVE_S = 4.0
# How long joins run usefully on every host before the first jobs, s.
WARM_UP_S = 5.0
# Jobs at most that the joins are divided into, where workers outlive jobs.
MOST_JOBS = 8
LOCK, PAUSED = "controller", "paused"


class Controller:
    """Keeps jobs on the plan of the live optimizer, as hosts change.

    Joins, or queries, that share no source are jobs of their own: a hand-over replaces only jobs
    that change, and a failure stops only jobs that it hits. Where each job has its own processes,
    all are one job. The directory has the problem, the sources with their readings, the ledger of
    each group's hand-overs, the plan of every job and the log; another controller can resume from
    it.

    Args:
        engine: running, on connected hosts.
        directory: of its state; one controller at a time uses it.
        tuning: when to act.
        note: callback with every line of the log.
        dry_run: decide and log, but change nothing.
        most_jobs: that run at the same time; those of hand-overs not counted.

    Attributes:
        groups: operators that are one job each.
        finished: whether all jobs have ended by themselves.
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
        most_jobs: int = MOST_JOBS,
    ) -> None:
        self.engine, self.directory, self.tuning = engine, directory, tuning
        self.dry_run, self.log = dry_run, DecisionLog(directory, note)
        self.deployment = engine.deployment
        self.hosts = engine.deployment.hosts
        self.jobs = engine.controlled_jobs
        self.deployer = Deployer(engine, directory, self.log, self._adopted, most_jobs)
        self.groups = self.deployer.groups
        self.decider: Decider
        self.positions: dict[str, tuple[float, float]] = {}
        self._sensor: HostSensor | None = None
        self._arrivals: ArrivalsWatch | None = None
        self._watch: JobsWatch
        self._reasons: list[str] = []
        # What refused decisions were about, since the last one that was not refused.
        self._refused: set[str] = set()
        self._noticed_at = 0.0
        self._moved_at = -math.inf
        self._revivals: dict[str, Backoff] = {}
        # Hosts without an engine's process when the controller began, and when to look for one.
        self._absent: set[str] = set()
        self._welcome_at = -math.inf
        self._looked_at = -math.inf
        self._awake_at = -math.inf
        self._followed = False
        self.finished = False

    # --- begin ----------------------------------------------------------------------------------

    def begin(
        self,
        problem: Problem,
        plan: Plan,
        sources: Sources,
        match: Match | None,
        *,
        warm_s: float = 0.0,
    ) -> None:
        """Deploy the first plan, or resume where another controller ended; first `rehearse`.

        Args:
            problem: with the hosts' own capacities; nodes are called like hosts.
            plan: to begin with.
            sources: replays, of Kafka, or readings. Without a time of start, they begin when the
                job runs.
            match: which tuples of pairs match; None of whole queries.
            warm_s: before the first jobs, run joins on every host for so long: where workers
                outlive jobs, the first hand-over to a host is faster then. Only with replays.

        Raises:
            NovaError: for a directory of another problem, or when the plan cannot be deployed.
        """
        if self.deployer.resumes(problem, flow_of(plan, match)):
            plan = self.deployer.resume()
            ledgers = [Ledger.read(group.handover.path) for group in self.groups]
            self.finished = all(ledger.end_ms is not None for ledger in ledgers)
        else:
            self.deployer.first(problem, plan, sources, match, warm_s)
        self.decider = Decider(problem, plan, self.tuning)
        flat = np.pad(problem.nodes.position, ((0, 0), (0, 2)))[:, :2].tolist()
        self.positions = {
            name: (x, y) for name, (x, y) in zip(problem.nodes.ids.tolist(), flat, strict=True)
        }
        sessions = self.hosts.map(lambda host: self._sessions(host.name))
        self._absent = {name for name, pids in sessions.items() if not pids}
        self._sensor = HostSensor(self.hosts, sessions, self.sources.control)
        self._follow_jobs()

    @property
    def sources(self) -> Sources:
        """Where tuples come from."""
        return self.deployer.sources

    @property
    def match(self) -> Match | None:
        """Which of them match; None of whole queries."""
        return self.deployer.match

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
                self.log.once(self, "failed", str(error))
            show(self)
            time.sleep(max(0.0, min(begun + TICK_S, until) - time.monotonic()))

    def end(self) -> int:
        """End all jobs at a window's end, with complete results; returns the latest, ms."""
        return self.deployer.end()

    def close(self) -> None:
        """Stop watching; the jobs keep running."""
        for one in (self._sensor, self._arrivals):
            if one is not None:
                one.close()

    def disturbed(self, script: Script) -> Disturbing:
        """Start a script's disturbances, and log them."""
        begun = Disturbing(script.events, self.deployment, self.log.say)
        begun.start()
        return begun

    def views(self) -> dict[str, HostView]:
        """The latest readings of hosts."""
        return {} if self._sensor is None else self._sensor.view()

    def arrivals(self) -> list[Arrival]:
        """What the sinks have received since this was first asked for: it costs their hosts CPU."""
        if self._arrivals is None:
            self._arrivals = ArrivalsWatch(self.hosts)
            self._follow_results()
        return self._arrivals.history()

    def look(self) -> None:
        """Look once, and act on it."""
        sure = [group for group in self.groups if self.deployer.is_sure(group)]
        if not self._followed:
            self._follow_processes()
        now = time.monotonic()
        if now - self._looked_at > STALE_S:
            # The controller was suspended or busy: first, read what has arrived since.
            self._awake_at = now + STALE_S
        self._looked_at = now
        status = self._watch.look(now)
        self._welcome(status, now)
        seen = self._seen(status, now, self._blamed(sure, status) | self._absent)
        for decision in self.decider.decide(seen, now, self._rates()):
            self._follow(decision)
        self._revive(seen, now)
        self.finished = all(state == FINISHED for state in status.states.values())
        lost = [group for group in sure if self._has_lost(group, status, seen)]
        failed = [group for group in sure if self._has_failed(group, status, group in lost)]
        self._recover(failed, seen, now)
        for group in lost:
            if group not in failed:
                text = f"for {self.deployment.ENGINE} to notice what it has lost"
                self.log.once(group, "waiting", text)
        due = [one for one in sure if one.due is not None and one not in (*lost, *failed)]
        if not due or self.dry_run or self.finished:
            return
        if (self.directory / PAUSED).exists():
            text = "paused: joins that should move stay until `nova control resume`"
            self.log.once(self, "waiting", text)
        elif self._may_move(now):
            why = "; ".join(dict.fromkeys(self._reasons))
            self._move([group for group in due if now >= group.next_try], why)

    def _has_lost(self, group: Group, status: JobsSeen, seen: Mapping[str, Seen]) -> bool:
        """Whether a host has lost its part of a job that has not finished."""
        if status.states[group.running.job.job] == FINISHED:
            return False
        nodes, views = group.running.target.flow.nodes, self.views()
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

    def _blamed(self, groups: Sequence[Group], status: JobsSeen) -> set[str]:
        """Hosts that the causes of new failures name."""
        jobs = [group.running.job for group in groups if group.failed_at is None]
        failed = [job for job in jobs if status.states[job.job] == FAILED]
        return {host for job in failed for host in self.engine.blames(job)}

    def _seen(self, jobs: JobsSeen, now: float, lost: set[str]) -> dict[str, Seen]:
        return {
            name: Seen(
                up=self._works(name, view, jobs) and view.alive is not False and name not in lost,
                share=None if view.silent(now) or view.taken is None else view.share,
                saturated=jobs.saturated.get(name),
            )
            for name, view in self.views().items()
        }

    def _rates(self) -> dict[str, Rate]:
        """What sources emit."""
        sources = self.sources.sources
        return {
            sources[number].source: rate
            for view in self.views().values()
            if not view.silent(time.monotonic())
            for number, rate in view.rates.items()
        }

    def _follow(self, decision: Decision) -> None:
        if decision.delta is None:
            if decision.about not in self._refused:  # it is tried again and again
                self._refused.add(decision.about)
                self.log.say("refused", f"{decision.what}: {decision.refused}")
            return
        self._refused.clear()
        moves = moves_of(decision.delta)
        self.log.say("noticed", f"{decision.what}: {'; '.join(moves) or 'nothing has to move'}")
        if not decision.delta.empty:
            if self.dry_run:
                self.log.say("would", f"{decision.what}: would hand over now")
                return
            if not self._reasons:
                self._noticed_at = time.monotonic()
            self._reasons.append(decision.what)
            self.deployer.aim(self.decider.plan())
            self._forget_reasons()

    # --- acting ---------------------------------------------------------------------------------

    def hand_over(self, plan: Plan, why: str) -> None:
        """Replace jobs by those of a plan, at a window's end; logged, also if it is not possible.

        Args:
            plan: on the same hosts.
            why: for the log.
        """
        self.deployer.aim(plan)
        self._move([group for group in self.groups if group.due is not None], why)

    def _move(self, groups: Sequence[Group], why: str) -> None:
        """Replace jobs by those that are due, all at the same time."""
        begun = time.monotonic()
        moved = self.deployer.hand_over(groups, why)
        if not moved:
            return
        boundary = max(moved.values())
        # The previous jobs had to work off what they were behind: that is no time of rest.
        self._moved_at -= max(0, now_ms() - boundary) / 1000
        took = time.monotonic() - begun
        which = f"{len(moved)} of {len(self.groups)} jobs " if len(self.groups) > 1 else ""
        self.log.say(
            "handed-over",
            f"{why}: {which}handed over at {clock(boundary)}, {took:.1f} s after it was begun",
            job=ids(moved),
            boundary_ms=boundary,
            seconds=took,
            told_s=max(group.handover.told_s for group in moved),
            waited_s=max(0.0, begun - self._noticed_at),
        )

    def _recover(self, failed: Sequence[Group], seen: Mapping[str, Seen], now: float) -> None:
        """Deploy failed jobs anew, as soon as that is possible."""
        ends, waiting, ready = self.jobs.ends_failed_jobs, set(self.decider.waiting(seen)), []
        counted = self.decider.counted()
        for group in failed:
            if group.failed_at is None:
                # The engine may have taken seconds to answer since the look began.
                failed_at = time.monotonic()
                self.deployer.log_failure(group)
                if not self.dry_run and not ends:
                    self.jobs.cancel(group.running.job)
                    if self._sensor is not None:
                        self._sensor.follow(frozenset(), {})
                group.failed_at = failed_at
            needed = (group.due or group.running.target).flow.nodes
            if missing := sorted(waiting.intersection(needed)):
                text = f"for {', '.join(missing)}, without which nothing runs"
                self.log.once(group, "waiting", text)
                continue
            # An engine that ends failed jobs may do so before it says which host it has lost.
            nodes = group.running.target.flow.nodes
            known = not ends or any(not seen[name].up or not counted.get(name) for name in nodes)
            if now < group.next_try or (not known and now - group.failed_at < LEARN_S):
                continue
            if self.dry_run:
                self.log.once(group, "would", f"would deploy {group.name} anew")
                continue
            ready.append(group)
        since = {group: group.failed_at or now for group in ready}
        for group, begin in self.deployer.deploy_anew(ready).items():
            took = time.monotonic() - since[group]
            self.log.say(
                "recovered",
                f"joins anew from {clock(begin)} on, {took:.1f} s after the failure was seen",
                job=group.running.job.job,
                begin_ms=begin,
                seconds=took,
            )

    def _adopted(self) -> None:
        """Other jobs run than before."""
        self._moved_at = time.monotonic()
        self.log.forget(self)
        self._forget_reasons()
        self._follow_jobs()

    def _forget_reasons(self) -> None:
        """Once nothing has to move, also because a decision has taken back another one."""
        if all(group.due is None for group in self.groups):
            self._reasons = []

    def _follow_jobs(self) -> None:
        """Point the watches at the running jobs."""
        running = [group.running for group in self.groups]
        self._watch = self.engine.watch([(one.job, one.target.flow) for one in running])
        self._follow_results()
        if self._sensor is not None:
            # Not the processes of the previous jobs, which end.
            self._sensor.follow(frozenset(one.job.job for one in running), {})
            self._followed = False
            with suppress(NovaError):  # another look asks again
                self._follow_processes()

    def _follow_results(self) -> None:
        """Point the watch of sinks at the running jobs' results."""
        if self._arrivals is not None:
            running = [group.running for group in self.groups]
            self._arrivals.follow(
                {
                    file: fields_of(sink)
                    for one in running
                    for file, sink in zip(one.job.results, one.target.flow.sinks, strict=True)
                }
            )

    def _follow_processes(self) -> None:
        """Point the sensor at the jobs' own processes."""
        if self._sensor is not None:
            workers: dict[str, set[int]] = {}
            for group in self.groups:
                job, nodes = group.running.job, group.running.target.flow.nodes
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
            trial = self._revivals.setdefault(name, Backoff())
            ended = view.alive is False and name not in self._absent
            if not ended or seen[name].up or view.silent(now) or now < trial.until:
                continue
            if not self.engine.misses(name):
                continue
            trial.fail(now, REVIVE_S)
            with suppress(NovaError):
                self.deployment.start_worker(name)
                assert self._sensor is not None
                self._sensor.expect(name, self._sessions(name))
                self.log.say("restarted", f"{self.deployment.ENGINE} on {name} was started again")

    def _welcome(self, status: JobsSeen, now: float) -> None:
        """From now on, count the processes of an engine that has been started by others as its."""
        if now < self._welcome_at:
            return
        self._welcome_at, views = now + PERIOD_S, self.views()
        for name in sorted(self._absent):
            if views[name].silent(now) or not (status.workers is None or name in status.workers):
                continue
            # Another look asks again.
            with suppress(NovaError):
                if sessions := self._sessions(name):
                    assert self._sensor is not None
                    self._sensor.expect(name, sessions)
                    self._absent.discard(name)

    def _sessions(self, name: str) -> set[int]:
        """Sessions of the engine's processes on a host."""
        processes = self.deployment.PROCESSES
        return {job.pid for job in self.hosts[name].jobs() if job.name in processes}


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
