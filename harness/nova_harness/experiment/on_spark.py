"""Experiments on Spark: Structured Streaming in micro-batches, or in Real-Time Mode."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_flink.results import ResultRecords
from nova_harness.experiment.engine import RunError
from nova_harness.results.schema import OperatorCounts
from nova_spark import results
from nova_spark.driver import ENDED, FAILED, FINISHED, State
from nova_spark.flow import Flow, from_plan
from nova_spark.rest import Rest
from nova_spark.verification import verify

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_flink.workload import Workload
    from nova_harness.deployment import Tell
    from nova_harness.experiment.engine import Engine, Opener
    from nova_harness.spark_deployment import SparkDeployment
    from nova_spark.verification import Verification
    from nova_testbed.hosts import Hosts

# Until a plan's first micro-batch is through: classes are loaded, code is made and compiled.
PREPARE_SECONDS = 200.0
END_SECONDS = 60.0
POLL_SECONDS = 0.5
RESULTS = "results"
METRICS = {
    "records_in": "shuffleReadRecords",
    "records_out": "shuffleWriteRecords",
    "busy_ms": "executorRunTime",
}


def prepare(tell: Tell, *, real_time: bool = False) -> Opener:
    """See `nova_harness.experiment.engine.prepare`.

    Args:
        tell: as there.
        real_time: whether jobs run in Real-Time Mode.
    """
    from nova_spark.engine import check

    check()
    if real_time:
        from nova_spark.extension import build

        build(tell)

    @contextmanager
    def opener(hosts: Hosts, tell: Tell, keep: bool) -> Iterator[Engine]:
        from nova_harness.spark_deployment import SparkDeployment

        deployment = SparkDeployment(hosts, real_time=real_time)
        try:
            # The driver counts its orders from the first.
            deployment.down()
            deployment.up(tell)
            yield SparkEngine(deployment)
        finally:
            if not keep:
                tell("ending Spark")
                deployment.down()

    return opener


@dataclass(frozen=True)
class Placed:
    """Where tasks ran, in the words of an experiment.

    Attributes:
        found: what Spark says.
    """

    found: Verification

    @property
    def ok(self) -> bool:
        """Whether every stage ran on its node, and nowhere else."""
        return self.found.ok

    def to_plain(self) -> dict[str, Any]:
        """As a JSON document."""
        rows = [
            {
                "operator": row.step,
                "node": row.node,
                "actual": ", ".join(row.actual) or None,
                "tasks": row.tasks,
            }
            for row in self.found.rows
        ]
        return {"ok": self.ok, "rows": rows}


class SparkEngine:
    """See `nova_harness.experiment.engine.Engine`."""

    # A Worker, an executor and Python.
    engine_bytes = 900 << 20
    stays_warm = False

    def __init__(self, deployment: SparkDeployment) -> None:
        self.deployment = deployment
        self.name = "spark-realtime" if deployment.real_time else "spark"
        self._orders = 0

    def start(self, plan: Plan, workload: Callable[[int], Workload], name: str) -> SparkJob:
        """Give the driver an order, and wait until its first micro-batch is through."""
        d, number = self.deployment, self._orders
        self._orders += 1
        flow = from_plan(plan, plan.problem, workload(0))
        order = {
            "flow": flow.to_json(),
            "workload": workload(0).to_json(),
            "results": d.result_file(RESULTS),
            "checkpoints": f"{d.configuration.work_directory}/checkpoints/{number}",
            "heaps": d.configuration.heaps,
        }
        with tempfile.TemporaryDirectory(prefix="nova-spark-") as directory:
            path = Path(directory) / "order.json"
            path.write_text(json.dumps(order), "utf-8")
            d.hosts[d.sink].put(path, f"{d.orders}/{number}.order.json")
        job = SparkJob(self, number, name, flow, workload(0))
        try:
            job.workload = workload(job.await_state().start_ms)
        except BaseException:
            with suppress(NovaError):
                job.end()
            raise
        return job


class SparkJob:
    """See `nova_harness.experiment.engine.Job`."""

    def __init__(
        self, engine: SparkEngine, number: int, name: str, flow: Flow, workload: Workload
    ) -> None:
        self.deployment, self.number, self.name = engine.deployment, number, name
        self.flow, self.workload = flow, workload
        driver = self.deployment.state("driver.json")
        self._rest = Rest(driver.url, driver.application) if driver else None

    @property
    def document(self) -> str:
        """Its stages."""
        return self.flow.to_json()

    @property
    def rest(self) -> Rest:
        """The application's REST interface.

        Raises:
            RunError: where there is no driver.
        """
        if self._rest is None:
            raise RunError("Spark: its driver has not started")
        return self._rest

    def state(self) -> State | None:
        """What the driver says of the order; None before it says anything.

        Raises:
            RunError: for one that failed, or when a process of Spark's has ended.
        """
        found = self.deployment.state(f"{self.number}.state.json")
        if found is not None and found.state == FAILED:
            raise RunError(f"Spark: {found.why}")
        return found

    def await_state(self) -> State:
        """Wait until tuples are about to flow."""
        until = time.monotonic() + PREPARE_SECONDS
        while (found := self.state()) is None:
            self._all_run()
            if time.monotonic() > until:
                raise RunError(f"Spark: no micro-batch within {PREPARE_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        return found

    def _all_run(self) -> None:
        gone = self.deployment.last_words()
        if gone:
            raise RunError(f"Spark{gone}")

    def await_running(self) -> None:
        """All stages have run once before any tuple flows."""
        self.await_state()

    def verify(self) -> Placed:
        """Where the tasks of its last micro-batches ran, as Spark tells it."""
        state = self.await_state()
        planned = {stage.name: stage.node for stage in self.flow.stages}
        # Executors of micro-batches hold their node's resource, which says more.
        d = self.deployment
        addresses = d.configuration.addresses if d.real_time else None
        return Placed(verify(self.rest, state.steps, planned, addresses))

    def look(self) -> bool:
        """Whether all that was due is through."""
        self._all_run()
        state = self.state()
        return state is not None and state.state == FINISHED

    def counters(self) -> dict[int, dict[str, Any]]:
        """Spark's stages by id: the last thousand."""
        return {int(one["stageId"]): one for one in self.rest.stages()}

    def operators(
        self, before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]]
    ) -> list[OperatorCounts]:
        """What each step's stages did that came between two answers."""
        new = {number: one for number, one in after.items() if number not in before}
        rows = []
        for step in self.await_state().steps:
            mine = [new[number] for number in step.stages if number in new]
            # In Real-Time Mode stages are several steps', and last as long as a batch.
            counts = (
                {name: sum(int(one[metric]) for one in mine) for name, metric in METRICS.items()}
                if step.task is None
                else {}
            )
            rows.append(OperatorCounts(name=step.name, node=step.node, **counts))
        return rows

    def end(self) -> None:
        """Have the driver stop its queries."""
        d = self.deployment
        d.hosts[d.sink].run(f"touch {d.orders}/{self.number}.end")
        until = time.monotonic() + END_SECONDS
        while (found := self.state()) is None or found.state not in (FINISHED, ENDED):
            self._all_run()
            if time.monotonic() > until:
                raise RunError(f"Spark: queries do not stop within {END_SECONDS:g} s")
            time.sleep(POLL_SECONDS)

    def results(self, scratch: Path) -> ResultRecords:
        """What its sink has written: a file for every micro-batch."""
        local = scratch / "results"
        d = self.deployment
        d.hosts[d.sink].run(f"mkdir -p {d.result_file(RESULTS)}/0")
        d.hosts[d.sink].get(d.result_file(RESULTS), local)
        try:
            found = results.read(local / "0")
            # A micro-batch whose file cannot be written fails, and its job with it.
            return ResultRecords(found, 0, announced=len(found))
        finally:
            shutil.rmtree(local)
