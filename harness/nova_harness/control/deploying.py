"""Deploys the jobs of groups of operators, and replaces them by others."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nova_core.errors import NovaError
from nova_core.io.files import read_plan, read_problem, write_plan
from nova_core.io.files import write_problem as write_problem_file
from nova_core.io.safe_files import make_directory, write_text
from nova_engines.documents import read, to_json
from nova_engines.flow import SOURCE, Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.handover import FAILED, Handover, HandoverError, Ledger, next_multiple, now_ms
from nova_engines.names import OWN_JOBS
from nova_engines.source_orders import ControlledJob
from nova_engines.sources import READINGS, REPLAY, Sources
from nova_harness.control.decision_log import clock
from nova_harness.control.job_groups import (
    LEDGERS,
    Group,
    Running,
    Target,
    ledgers_of,
    name_of,
    sources_of_groups,
)
from nova_harness.engines.host_files import HostFiles
from nova_harness.engines.warming import WARMING_RATE, warming_plan

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.flow import Flow
    from nova_engines.handover import Share
    from nova_harness.control.decision_log import DecisionLog
    from nova_harness.engines.base import ControlledEngine, JobState

T = TypeVar("T")
# Name of the job that warms the engine up.
WARMING = "warming-up"
# Prefix of the names of controlled jobs, after the prefix of all of Nova's jobs.
JOB_NAME = "control-"
# Sources of the first job begin so long after their order.
BEGIN_MS = 1500
# A failed hand-over is tried again after so long, and a failed recovery.
AGAIN_S, ANEW_S = 5.0, 1.0
SOURCES, MATCH, PROBLEM, JOBS = "sources.json", "match.json", "problem.json", "jobs"
KEPT = "readings"


class Deployer:
    """Deploys the jobs of groups of operators, and replaces them by others.

    Args:
        engine: running, on connected hosts.
        directory: of a controller: has the problem, the sources, the ledger of each group, and the
            plan of every job.
        log: of the controller.
        changed: callback after other jobs run than before.
        most_jobs: that run at the same time; those of hand-overs not counted.

    Attributes:
        groups: operators that are one job each; none before `first` or `resume`.
        sources: where tuples come from.
        match: which of them match; None of whole queries.
        jobs: of the engine.
    """

    def __init__(
        self,
        engine: ControlledEngine,
        directory: Path,
        log: DecisionLog,
        changed: Callable[[], None],
        most_jobs: int,
    ) -> None:
        self.engine, self.directory, self.log = engine, directory, log
        self.deployment, self.hosts = engine.deployment, engine.deployment.hosts
        self.files, self.jobs = HostFiles(self.hosts), engine.controlled_jobs
        self.groups: list[Group] = []
        self.sources: Sources
        self.match: Match | None = None
        self._changed = changed
        self._most_jobs = most_jobs if engine.stays_warm else 1
        # Jobs are submitted one after the other.
        self._lock = threading.Lock()

    # --- begin ----------------------------------------------------------------------------------

    def resumes(self, problem: Problem, flow: Flow) -> bool:
        """Whether the directory has jobs of all operators of a problem.

        Args:
            problem: of them.
            flow: of a plan for it.

        Raises:
            NovaError: for a directory of another problem.
        """
        ledgers = ledgers_of(self.directory)
        if ledgers and read_problem(self.directory / PROBLEM).digest != problem.digest:
            raise NovaError(f"{self.directory}: is of another problem; use another --state")
        known = {index for one in ledgers for index, _ in _last(one).job.sources}
        return len(known) == len(flow.of_kind(SOURCE))

    def first(
        self, problem: Problem, plan: Plan, sources: Sources, match: Match | None, warm_s: float
    ) -> None:
        """Deploy the first plan; see `nova_harness.control.controller.Controller.begin`.

        Raises:
            NovaError: when it cannot be deployed, or a controlled job runs already.
        """
        make_directory(self.directory / JOBS)
        works = {self.deployment.work(host.name) for host in self.hosts}
        if len(works) > 1:
            raise NovaError("hosts: log in as the same user everywhere; sources take orders there")
        self.match, flow = match, flow_of(plan, match)
        boundary, replays = flow.boundary_ms, sources.kinds == {REPLAY}
        start = sources.start_ms
        if not start and READINGS in sources.kinds:
            # They begin with the first one, however late; others with those that are due then.
            start = self.engine.lead.start_ms()
        self.sources = replace(
            sources,
            start_ms=start or next_multiple(now_ms(), boundary),
            control=f"{works.pop()}/orders",
            checkpoint_ms=0,
        )
        self._keep_readings()
        write_text(self.directory / SOURCES, self.sources.to_json())
        if match is not None:
            write_text(self.directory / MATCH, to_json(match))
        write_problem_file(problem, self.directory / PROBLEM)
        for job in self.engine.jobs():
            if job.runs and _controlled(job):
                raise NovaError(
                    f"{job.name} ({job.job}) runs already: go on with the --state of its "
                    "controller, or end it with `nova cluster stop`"
                )
            if job.runs and job.own:
                self.engine.stop(job.job)
        # A controller that was killed while it began may have written some ledgers.
        shutil.rmtree(self.directory / LEDGERS, ignore_errors=True)
        make_directory(self.directory / LEDGERS)
        self.deployment.prepare_results()
        if warm_s and replays and self.engine.stays_warm:
            self._warm_up(problem, warm_s)
        begun = time.monotonic()
        for number, together in enumerate(sources_of_groups(flow, self._most_jobs), 1):
            ledger = self.directory / LEDGERS / f"{number}.json"
            self.groups.append(Group(together, self._handover(ledger)))
        self.aim(plan)
        from_ms = now_ms()
        try:
            first = _at_once(lambda group: self._deploy(group, from_ms), self.groups)
        except BaseException:
            self.cancel()
            raise
        for group, running in first.items():
            group.adopt(running)
        begin = self.sources.begin_ms // boundary * boundary
        if not start:
            begin = next_multiple(now_ms() + BEGIN_MS, boundary)

        def begun_at(group: Group) -> None:
            group.handover.first(group.running.job, boundary, begin, flow.history_ms)

        _at_once(begun_at, self.groups)
        took = time.monotonic() - begun
        jobs = ids(self.groups)
        self.log.say("deployed", f"after {took:.1f} s, running: {jobs}", seconds=took)

    def _keep_readings(self) -> None:
        """Keep them in the directory: jobs that take over read them, also of a later controller."""
        kept = []
        for number, one in enumerate(self.sources.sources):
            if one.kind == READINGS:
                make_directory(self.directory / KEPT)
                path = self.directory.absolute() / KEPT / str(number)
                path.write_bytes(one.encoded())
                one = replace(one, path=str(path))
            kept.append(one)
        self.sources = replace(self.sources, sources=tuple(kept))

    def _handover(self, ledger: Path) -> Handover:
        return Handover(self.jobs, self.files, ledger, self.sources.clock)

    def _warm_up(self, problem: Problem, seconds: float) -> None:
        """Java loads and compiles meanwhile what later jobs run, up to their end at a boundary."""
        begun = time.monotonic()
        # Slowly, as every host gets all tuples of a source.
        slow = [
            replace(one, rate=min(WARMING_RATE, one.rate), surges=())
            for one in self.sources.sources
        ]
        sources = replace(self.sources, sources=tuple(slow))
        # A host may be without a worker, such as one that a script adds later.
        hosts = [name for name, registered in self.engine.hosts().items() if registered]
        plan = warming_plan(problem, hosts)
        flow = flow_of(plan, self.match)
        job = self.engine.submit(flow, sources, f"{OWN_JOBS}{WARMING}", WARMING)
        file = self.deployment.result_file(WARMING)
        controlled = ControlledJob.of(job.name, flow, sources, file)
        handover = Handover(self.jobs, self.files, self.directory / f"{WARMING}.json")
        handover.path.unlink(missing_ok=True)
        try:
            job.await_running()
            boundary = flow.boundary_ms
            handover.first(controlled, boundary, next_multiple(now_ms(), boundary))
            time.sleep(seconds)
            try:
                handover.end()
            except NovaError as error:  # it is ended anyway
                self.log.say("failed", f"the job that warms up did not end by itself: {error}")
        finally:
            self.jobs.cancel(controlled)
            handover.path.unlink(missing_ok=True)
        took = time.monotonic() - begun
        self.log.say("warmed-up", f"joins have run on every host, for {took:.1f} s in all")

    def resume(self) -> Plan:
        """Find the jobs of another controller, and settle its hand-overs; the newest plan.

        Raises:
            NovaError: for jobs that no longer exist.
        """
        ledgers = ledgers_of(self.directory)
        self.sources = Sources.read(self.directory / SOURCES)
        if (self.directory / MATCH).exists():
            self.match = read(self.directory / MATCH, Match)
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
            names = (self.sources.sources[index].source for index, _ in share.job.sources)
            group = Group(frozenset(names), self._handover(ledger))
            notes.append(self._resume_group(group))
            self.groups.append(group)
        self._end_strays()
        newest = max(self.groups, key=lambda group: _number(group.name))
        self.aim(newest.running.target.plan)
        note = "; a hand-over that was begun is settled" if any(notes) else ""
        self.log.say("resumed", f"goes on with {ids(self.groups)}{note}")
        return newest.running.target.plan

    def _resume_group(self, group: Group) -> bool:
        """Find what runs; whether a hand-over was settled."""
        settled = True
        try:
            settled = group.handover.settle()
        except HandoverError as error:
            # Settled, but without a running job: the controller deploys another one.
            if Ledger.read(group.handover.path).handing is not None:
                raise
            self.log.say("failed", str(error))
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
        for job in self._controlled_jobs():
            if job not in known:
                self.engine.stop(job)

    def cancel(self) -> None:
        """End all controlled jobs at once, also one that would have taken over.

        Errors are ignored.
        """
        with suppress(NovaError):
            for job in self._controlled_jobs():
                with suppress(NovaError):
                    self.engine.stop(job)

    def _controlled_jobs(self) -> list[str]:
        """Ids of those that run."""
        return [job.job for job in self.engine.jobs() if job.runs and _controlled(job)]

    def _known(self, group: Group, share: Share) -> Running:
        """A job of the ledger that another controller may have deployed."""
        plan = self.plan_of(share)
        flow = flow_of(plan, self.match).of_sources(group.sources)
        return Running(share.job, Target(plan, flow))

    def plan_of(self, share: Share) -> Plan:
        """The plan of a job of the ledger, with the problem it was made for."""
        name, at = name_of(share.job), self.directory / JOBS
        return read_plan(at / f"{name}.json", read_problem(at / f"{name}.problem.json"))

    # --- replace --------------------------------------------------------------------------------

    def aim(self, plan: Plan) -> None:
        """Note which jobs have to be replaced for a plan."""
        flow = flow_of(plan, self.match)
        for group in self.groups:
            own = flow.of_sources(group.sources)
            group.due = None if group.runs(own) else Target(plan, own)

    def is_sure(self, group: Group) -> bool:
        """Settle a group's hand-over, and find its job, where that is needed and possible."""
        try:
            self._settle(group)
            if group.unsure:
                self._catch_up(group)
        except NovaError as error:
            group.unsure = True
            self.log.once(group, "failed", str(error))
        return not group.unsure

    def _settle(self, group: Group) -> None:
        """Finish or take back a hand-over that was interrupted."""
        if not group.handover.settle():
            return
        share = _last(group.handover.path)
        if share.job.job == group.running.job.job:
            self.log.say("failed", f"the hand-over is taken back: {share.job.job} goes on")
            return
        self._handed_over(group, share)

    def _handed_over(self, group: Group, share: Share) -> None:
        """Adopt a hand-over that the ledger has, although something did not answer."""
        group.adopt(self._known(group, share))
        self.log.forget(group)
        self._changed()
        at = self.sources.clock.time_ms(share.from_ms)
        text = f"handed over at {clock(at)}, after something had not answered"
        self.log.say("handed-over", text, job=share.job.job, boundary_ms=at)

    def _catch_up(self, group: Group) -> None:
        """After another controller, or an error: find the job, and whether it has failed.

        Not every engine's watch reports failed jobs.
        """
        share = _last(group.handover.path)
        if share.job.job != group.running.job.job:
            self._handed_over(group, share)
        if group.failed_at is None and self.jobs.state(share.job) == FAILED:
            group.failed_at = time.monotonic()
            self.log_failure(group)
        group.unsure = False

    def log_failure(self, group: Group) -> None:
        """Log once that a group's job has failed."""
        if not group.logged:
            self.log.say("failed", f"{group.name} has failed: {self.engine.why(group.running.job)}")
        group.logged = True

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
            sources = self.sources.read_from(from_ms)
            job = self.engine.submit(target.flow, sources, f"{OWN_JOBS}{name}", name)
        file = self.deployment.result_file(name)
        controlled = ControlledJob.of(job.name, target.flow, self.sources, file)
        try:
            job.await_running()
        except BaseException:
            with suppress(NovaError):
                self.jobs.cancel(controlled)
            raise
        return Running(controlled, target)

    def hand_over(self, groups: Sequence[Group], why: str) -> dict[Group, int]:
        """Replace running jobs by those that are due, at a window's end; failures are logged.

        Args:
            groups: of these jobs.
            why: for the log.

        Returns:
            The boundary as a time of day, ms since the epoch, of each job that was replaced.
        """
        return self._replace(
            groups,
            f"{why}: not handed over",
            AGAIN_S,
            lambda group: self._deploy(group, group.handover.incomplete()),
            lambda group, new: group.handover.plan(new.job),
        )

    def deploy_anew(self, groups: Sequence[Group]) -> dict[Group, int]:
        """Replace failed jobs; when the first window of each new one begins, ms since the epoch.

        Failures are logged.
        """
        return self._replace(
            groups,
            "not deployed anew",
            ANEW_S,
            lambda group: self._deploy(group, group.handover.incomplete()),
            lambda group, new: group.handover.after_failure(new.job),
        )

    def _replace(
        self,
        groups: Sequence[Group],
        failure: str,
        again_s: float,
        deploy: Callable[[Group], Running],
        begin: Callable[[Group, Running], int],
    ) -> dict[Group, int]:
        """Deploy new jobs, all at the same time; when all run, let them take over.

        Returns:
            From when on each of them counts, as a time of day, ms since the epoch.
        """

        def tried(call: Callable[[Group], T]) -> Callable[[Group], T | None]:
            def answer(group: Group) -> T | None:
                try:
                    return call(group)
                except NovaError as error:
                    group.next_try, group.unsure = time.monotonic() + again_s, True
                    self.log.once(group, "failed", f"{failure}: {error}")
                    return None

            return answer

        new = _at_once(tried(deploy), groups)
        begun = _at_once(tried(lambda group: begin(group, new[group])), list(new))
        for group in begun:
            group.adopt(new[group])
        if begun:
            self.log.forget(*begun)
            self._changed()
        if len(begun) < len(groups):
            try:
                self._end_strays()
            except NovaError as error:
                self.log.say("failed", f"a job that did not take over may still run: {error}")
        return {group: self.sources.clock.time_ms(at) for group, at in begun.items()}

    def end(self) -> int:
        """End all jobs at a window's end, with complete results; returns the latest, ms."""
        ends = _at_once(lambda group: group.handover.end(), self.groups)
        boundary = self.sources.clock.time_ms(max(ends.values()))
        text = f"{ids(self.groups)} ended at {clock(boundary)}"
        self.log.say("ended", text, boundary_ms=boundary)
        return boundary


def _at_once(call: Callable[[Group], T | None], groups: Sequence[Group]) -> dict[Group, T]:
    """Call for all groups at the same time; without the answers that are None."""
    if len(groups) < 2:
        answers = [call(group) for group in groups]
    else:
        with ThreadPoolExecutor(len(groups)) as pool:
            answers = list(pool.map(call, groups))
    pairs = zip(groups, answers, strict=True)
    return {group: answer for group, answer in pairs if answer is not None}


def ids(groups: Iterable[Group]) -> str:
    """The ids of their jobs, for the log."""
    return ", ".join(group.running.job.job for group in groups)


def _last(ledger: Path) -> Share:
    """The share of the job that runs."""
    return Ledger.read(ledger).shares[-1]


def _number(name: str) -> int:
    """Jobs are numbered as they are deployed."""
    return int(name.removeprefix(JOB_NAME))


def _controlled(job: JobState) -> bool:
    # Some engines replace blanks in names.
    return job.name.replace("-", " ").startswith(f"{OWN_JOBS}{JOB_NAME}".replace("-", " "))
