"""A cell whose plan follows the live optimizer: consecutive jobs instead of one."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nova_core.errors import NovaError
from nova_engines.handover import Ledger
from nova_engines.results import ResultRecords
from nova_harness.control.controller import LEDGER, Controller
from nova_harness.control.deciding import Tuning, rehearse
from nova_harness.control.outcome import delivered
from nova_harness.engines.base import RUNNING_SECONDS, RunError
from nova_workloads.joined_streams import instances_of

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Ints
    from nova_engines.verification import Verification
    from nova_engines.workload import Workload
    from nova_harness.engines.base import ControlledEngine, Job
    from nova_harness.engines.kafka import ReadingJob
    from nova_harness.results.schema import OperatorCounts


@dataclass(frozen=True)
class Control:
    """Starts jobs that follow the live optimizer.

    Attributes:
        engine: that runs them.
        directory: of the controller's log and plans; replaced with each job.
        note: callback with the kind and text of each line of the log.
    """

    engine: ControlledEngine
    directory: Path
    note: Callable[[str, str], None]

    def start(self, plan: Plan, workload: Callable[[int], Workload], name: str) -> ControlledRun:
        """Start the first job; see `Engine.start`."""
        # State of a job that was late or overdue.
        shutil.rmtree(self.directory, ignore_errors=True)
        # Before the job's start is set, as it may take long.
        rehearse(plan.problem, plan)
        controller = Controller(
            self.engine, self.directory, Tuning(), lambda entry: self.note(entry.kind, entry.text)
        )
        try:
            controller.begin(plan.problem, plan, workload(self.engine.lead.start_ms()))
        except BaseException:
            controller.close()
            raise
        return ControlledRun(controller, self.engine, plan)


class ControlledRun:
    """See `nova_harness.engines.base.Job`: consecutive jobs, of which one runs.

    Args:
        controller: after its `begin`.
        engine: that runs them.
        plan: of the first one.
    """

    def __init__(self, controller: Controller, engine: ControlledEngine, plan: Plan) -> None:
        self._controller, self._engine, self._plan = controller, engine, plan
        self.workload = controller.workload
        self.document = controller.running.dataflow.to_json()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    @property
    def name(self) -> str:
        """The running job."""
        return self._controller.running.job.job

    @property
    def _job(self) -> Job:
        running = self._controller.running
        return self._engine.job(running.job.job, running.dataflow, self.workload)

    def await_running(self) -> None:
        """Begin to control the first job, which runs."""
        self._engine.lead.runs()
        self._thread.start()

    def _follow(self) -> None:
        while not self._ended.is_set() and not self._controller.finished:
            self._controller.run(1.0, lambda controller: None)

    def verify(self) -> Verification:
        """Where operators of the running job run; waits for a job if none runs."""
        until = time.monotonic() + RUNNING_SECONDS
        while True:
            try:
                return self._job.verify()
            except NovaError:
                if time.monotonic() > until:
                    raise
            time.sleep(1.0)

    def look(self) -> bool:
        """Whether the last job has ended by itself."""
        if not self._thread.is_alive() and not self._controller.finished:
            raise RunError("the controller has ended; its log says why")
        return self._controller.finished

    def counters(self) -> tuple[str, dict[str, Any]]:
        """Counts of the running job; empty where it was just lost."""
        try:
            return self.name, self._job.counters()
        except NovaError:
            return self.name, {}

    def operators(
        self, before: tuple[str, dict[str, Any]], after: tuple[str, dict[str, Any]]
    ) -> list[OperatorCounts]:
        """Counts of operators; empty for a job that began in between."""
        same = before[0] == after[0] and before[1] and after[1]
        return self._job.operators(before[1], after[1]) if same else []

    def read_offsets(self) -> Mapping[tuple[str, int], int]:
        """Of the running job; see `nova_harness.engines.kafka.ReadingJob`."""
        return cast("ReadingJob", self._job).read_offsets()

    def end(self) -> None:
        """End the controller, and the job that runs."""
        self._ended.set()
        if self._thread.ident is not None:
            # Wait for its current step, which may deploy another job.
            self._thread.join()
        self._controller.close()
        with suppress(NovaError):
            self._job.end()

    def results(self, scratch: Path) -> ResultRecords:
        """Results of each window from the job that the ledger assigns to it.

        Instances are those of the first plan, for results of the right instance of their own plan;
        -1 for the others.
        """
        controller = self._controller
        ledger = Ledger.read(controller.directory / LEDGER)
        came = delivered(ledger, controller.hosts)
        parts = []
        for share, part in zip(ledger.shares, ledger.own(came), strict=True):
            records = part.records.copy()
            records["instance"] = self._first_instance(controller.plan_of(share), records)
            parts.append(records)
        failures = [part.failure for part in came if part.failure is not None]
        records = np.concatenate(parts)
        last = came[-1]
        return ResultRecords(
            records,
            last.truncated_bytes,
            announced=len(records) if last.announced == len(last) else None,
            failure="; ".join(failures) or None,
        )

    def _first_instance(self, own: Plan, records: Any) -> Ints:
        placed = _due(own, self.workload, records) == records["instance"]
        return np.where(placed, _due(self._plan, self.workload, records), -1).astype(np.int32)


def _due(plan: Plan, workload: Workload, records: Any) -> Ints:
    """(k,) instance of a plan that has to deliver each result; -1 for a pair of no instance."""
    problem = plan.problem
    index = np.array([workload.index(name) for name in problem.sources.ids.tolist()])
    instance = np.full(len(records), -1, np.int64)
    left, right = index[problem.matrix.left], index[problem.matrix.right]
    for pair in range(len(left)):
        mine = np.flatnonzero(
            (records["left_source"] == left[pair]) & (records["right_source"] == right[pair])
        )
        part = records[mine]
        instance[mine] = instances_of(plan, pair, part["left_sequence"], part["right_sequence"])
    return instance
