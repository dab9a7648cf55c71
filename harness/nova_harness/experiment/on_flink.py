"""Experiments on Flink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_flink.dataflow import Dataflow, from_plan
from nova_flink.rest import ENDED
from nova_flink.verification import Verification, await_running, verify
from nova_harness.experiment.engine import RUNNING_SECONDS, Lead, RunError
from nova_harness.results.schema import OperatorCounts

if TYPE_CHECKING:
    from pathlib import Path

    from nova_core.model.plan import Plan
    from nova_flink.client import Client
    from nova_flink.home import FlinkHome
    from nova_flink.results import ResultRecords
    from nova_flink.workload import Workload
    from nova_harness.deployment import Tell
    from nova_harness.experiment.engine import Engine, Opener
    from nova_harness.flink_deployment import FlinkDeployment
    from nova_testbed.hosts import Hosts

# The first job warms up: its sources may as well begin before it runs.
FIRST_LEAD_SECONDS = 5.0
BUSY = "accumulated-busy-time"
RESULTS = "results"


def ready_home(tell: Tell) -> FlinkHome:
    """The engine home, with Nova's own classes as they are now.

    Raises:
        NovaError: when Flink is not installed, or the classes cannot be compiled.
    """
    from nova_flink.home import FlinkHome

    home = FlinkHome.default()
    home.check()
    home.install(tell)
    return home


def prepare(tell: Tell) -> Opener:
    """See `nova_harness.experiment.engine.prepare`."""
    home = ready_home(tell)

    @contextmanager
    def opener(hosts: Hosts, tell: Tell, keep: bool) -> Iterator[Engine]:
        from nova_flink.client import Client
        from nova_harness.flink_deployment import FlinkDeployment

        deployment = FlinkDeployment(hosts, home)
        try:
            deployment.up(tell)
            with Client(home, deployment.rest.url) as client:
                yield FlinkEngine(deployment, client)
        finally:
            if not keep:
                tell("ending Flink")
                deployment.down()

    return opener


class FlinkEngine:
    """See `nova_harness.experiment.engine.Engine`."""

    name = "flink"
    engine_bytes = 320 << 20
    stays_warm = True

    def __init__(self, deployment: FlinkDeployment, client: Client) -> None:
        self.deployment, self.client = deployment, client
        self.lead = Lead(FIRST_LEAD_SECONDS)

    def start(self, plan: Plan, workload: Callable[[int], Workload], name: str) -> FlinkJob:
        """Submit a job."""
        made = workload(self.lead.start_ms())
        dataflow = from_plan(plan, plan.problem, made)
        file = self.deployment.result_file(RESULTS)
        job = self.client.submit(dataflow, made, file, name)
        return FlinkJob(self, job, dataflow, made)


class FlinkJob:
    """See `nova_harness.experiment.engine.Job`."""

    def __init__(
        self, engine: FlinkEngine, name: str, dataflow: Dataflow, workload: Workload
    ) -> None:
        self.engine, self.name = engine, name
        self.dataflow, self.workload = dataflow, workload
        self.rest = engine.deployment.rest
        self._seen: Verification | None = None

    @property
    def document(self) -> str:
        """Its operators."""
        return self.dataflow.to_json()

    def await_running(self) -> None:
        """Until every vertex runs."""
        await_running(self.rest, self.name, self.dataflow, RUNNING_SECONDS)
        self.engine.lead.runs()

    def verify(self) -> Verification:
        """Where its vertices run."""
        self._seen = verify(self.rest, self.name, self.dataflow)
        return self._seen

    def look(self) -> bool:
        """Whether it has finished."""
        state = str(self.rest.job(self.name)["state"])
        if state in ("FAILED", "FAILING", "RESTARTING", "CANCELED", "CANCELLING"):
            raise RunError(f"the job {state.lower()}: {self._why()}")
        return state == "FINISHED"

    def _why(self) -> str:
        told = self.rest.exceptions(self.name)
        # The first line says what Flink did about it, the last cause what happened.
        return told[-1] if told else "Flink does not say why"

    def counters(self) -> dict[str, Any]:
        """The job, as REST tells it."""
        return self.rest.job(self.name)

    def operators(self, before: dict[str, Any], after: dict[str, Any]) -> list[OperatorCounts]:
        """What each vertex did between two answers of REST about the job."""
        seen = self._seen or self.verify()
        nodes = {row.operator: row.actual for row in seen.rows}
        was = {vertex["id"]: vertex["metrics"] for vertex in before["vertices"]}
        found = []
        for vertex in after["vertices"]:
            old, new = was[vertex["id"]], vertex["metrics"]
            first = next((n for name, n in nodes.items() if name in vertex["name"]), None)
            found.append(
                OperatorCounts(
                    name=vertex["name"],
                    node=first,
                    records_in=new["read-records"] - old["read-records"],
                    records_out=new["write-records"] - old["write-records"],
                    # Flink does not measure it of legacy sources.
                    busy_ms=None
                    if "NaN" in (str(new[BUSY]), str(old[BUSY]))
                    else new[BUSY] - old[BUSY],
                    back_pressured_ms=new["accumulated-backpressured-time"]
                    - old["accumulated-backpressured-time"],
                )
            )
        return found

    def end(self) -> None:
        """Cancel it; a coordinator that is gone has no job any more."""
        try:
            if self.rest.job(self.name)["state"] in ENDED:
                return
            self.rest.cancel(self.name)
        except NovaError:
            return

    def results(self, scratch: Path) -> ResultRecords:
        """What its sink has written."""
        found = self.engine.deployment.read_results(RESULTS, scratch)
        return replace(found, dead_letters=self.engine.deployment.dead_letters(self.name))
