"""A cell whose plan follows the live optimizer: consecutive jobs instead of one."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError
from nova_engines.handover import Ledger
from nova_engines.results import ResultRecords, joined
from nova_engines.verification import Verification
from nova_harness.control.controller import Controller
from nova_harness.control.deciding import Tuning, rehearse
from nova_harness.control.outcome import delivered, rows_of
from nova_harness.engines.base import RUNNING_SECONDS, ReadingJob, RunError
from nova_workloads.joined_streams import instances_of

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Ints
    from nova_engines.flow import Flow, Match
    from nova_engines.handover import Share
    from nova_engines.source_orders import ControlledJob
    from nova_engines.sources import Sources
    from nova_harness.engines.base import ControlledEngine, Job
    from nova_harness.results.schema import OperatorCounts


@dataclass(frozen=True)
class Control:
    """Starts jobs that follow the live optimizer.

    Attributes:
        engine: that runs them.
        directory: of the controller's log and plans; replaced with each job.
        note: callback with the kind and text of each line of the log.
        plan: to begin with.
        match: which tuples of pairs match; None of whole queries.
    """

    engine: ControlledEngine
    directory: Path
    note: Callable[[str, str], None]
    plan: Plan
    match: Match | None

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> ControlledRun:
        """Start the plan's first jobs, which make up a flow; see `Engine.start`."""
        # State of a job that was late or overdue.
        shutil.rmtree(self.directory, ignore_errors=True)
        # Before the job's start is set, as it may take long.
        problem, plan = self.plan.problem, self.plan
        rehearse(problem, plan)
        controller = Controller(
            self.engine, self.directory, Tuning(), lambda entry: self.note(entry.kind, entry.text)
        )
        try:
            controller.begin(problem, plan, sources(self.engine.lead.start_ms()), self.match)
        except BaseException:
            controller.close()
            raise
        return ControlledRun(controller, self.engine, plan, flow)


class ControlledRun:
    """See `nova_harness.engines.base.Job`: consecutive jobs, of which one runs.

    Args:
        controller: after its `begin`.
        engine: that runs them.
        plan: of the first ones.
        flow: of that plan.
    """

    def __init__(
        self, controller: Controller, engine: ControlledEngine, plan: Plan, flow: Flow
    ) -> None:
        self._controller, self._engine, self._plan = controller, engine, plan
        self.sources, self.document = controller.sources, flow.to_json()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    @property
    def name(self) -> str:
        """The running jobs."""
        return ", ".join(group.running.job.job for group in self._controller.groups)

    @property
    def _jobs(self) -> list[Job]:
        running = [group.running for group in self._controller.groups]
        return [self._engine.job(one.job.job, one.target.flow, self.sources) for one in running]

    def await_running(self) -> None:
        """Begin to control the first job, which runs."""
        self._engine.lead.runs()
        self._thread.start()

    def _follow(self) -> None:
        while not self._ended.is_set() and not self._controller.finished:
            self._controller.run(1.0, lambda controller: None)

    def verify(self) -> Verification:
        """Where operators of the running jobs run; waits for jobs that do not run."""
        until = time.monotonic() + RUNNING_SECONDS
        while True:
            try:
                seen = [job.verify() for job in self._jobs]
                rows = (row for one in seen for row in one.rows)
                return Verification(tuple(rows), "; ".join(filter(None, (s.note for s in seen))))
            except NovaError:
                if time.monotonic() > until:
                    raise
            time.sleep(1.0)

    def look(self) -> bool:
        """Whether the last job has ended by itself."""
        if not self._thread.is_alive() and not self._controller.finished:
            raise RunError("the controller has ended; its log says why")
        return self._controller.finished

    def counters(self) -> dict[str, Any]:
        """Counts of the running jobs, by their names; empty where one was just lost."""
        try:
            return {job.name: job.counters() for job in self._jobs}
        except NovaError:
            return {}

    def operators(self, before: dict[str, Any], after: dict[str, Any]) -> list[OperatorCounts]:
        """Counts of operators; without jobs that began in between."""
        jobs = [job for job in self._jobs if job.name in before and job.name in after]
        return [
            counts for job in jobs for counts in job.operators(before[job.name], after[job.name])
        ]

    def read_offsets(self) -> Mapping[tuple[str, int], int]:
        """Of the running jobs; see `nova_harness.engines.base.ReadingJob`."""
        read: dict[tuple[str, int], int] = {}
        for job in self._jobs:
            assert isinstance(job, ReadingJob)
            read |= job.read_offsets()
        return read

    def end(self) -> None:
        """End the controller, and the jobs that run."""
        self._ended.set()
        if self._thread.ident is not None:
            # Wait for its current step, which may deploy another job.
            self._thread.join()
        self._controller.close()
        self._controller.deployer.cancel()

    def results(self, scratch: Path) -> ResultRecords:
        """Results of each window from the job that the ledger assigns to it.

        Instances of pairs are those of the first plan, for results of the right instance of their
        own plan; -1 for the others.
        """
        controller, announced = self._controller, True
        parts: list[ResultRecords] = []
        failures, truncated = [], 0
        for group in controller.groups:
            ledger = Ledger.read(group.handover.path)
            came = delivered(ledger, controller.hosts)
            for share, part in zip(ledger.shares, ledger.own(came), strict=True):
                parts.append(part if share.job.queries else self._of_first_plan(share, part))
            failures += [part.failure for part in came if part.failure is not None]
            truncated += came[-1].truncated_bytes
            announced &= came[-1].announced == len(came[-1])
        merged = rows_of(parts) if self._plan.problem.queries else joined(parts)
        return replace(
            merged,
            truncated_bytes=truncated,
            starts=1,
            announced=len(merged) if announced else None,
            failure="; ".join(failures) or None,
        )

    def _of_first_plan(self, share: Share, part: ResultRecords) -> ResultRecords:
        own = part.records.copy()
        plan = self._controller.deployer.plan_of(share)
        own["instance"] = self._first_instance(plan, share.job, own)
        return replace(part, records=own)

    def _first_instance(self, own: Plan, job: ControlledJob, records: Any) -> Ints:
        # A job numbers the joins of its own sources only.
        index = np.array([self.sources.index(name) for name in own.problem.sources.ids.tolist()])
        left = index[own.problem.matrix.left[own.instances.pair]]
        mine = np.flatnonzero(np.isin(left, [source for source, _ in job.sources]))
        known = (records["instance"] >= 0) & (records["instance"] < len(mine))
        number = np.where(known, mine[np.where(known, records["instance"], 0)], -1)
        placed = _due(own, self.sources, records) == number
        return np.where(placed, _due(self._plan, self.sources, records), -1).astype(np.int32)


def _due(plan: Plan, sources: Sources, records: Any) -> Ints:
    """(k,) instance of a plan that has to deliver each result; -1 for a pair of no instance."""
    problem = plan.problem
    index = np.array([sources.index(name) for name in problem.sources.ids.tolist()])
    instance = np.full(len(records), -1, np.int64)
    left, right = index[problem.matrix.left], index[problem.matrix.right]
    for pair in range(len(left)):
        mine = np.flatnonzero(
            (records["left_source"] == left[pair]) & (records["right_source"] == right[pair])
        )
        part = records[mine]
        instance[mine] = instances_of(plan, pair, part["left_sequence"], part["right_sequence"])
    return instance
