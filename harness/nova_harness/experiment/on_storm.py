"""Experiments on Storm."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nova_flink import results
from nova_flink.dataflow import Dataflow, from_plan
from nova_harness.experiment.engine import RUNNING_SECONDS, Lead, RunError
from nova_harness.results.schema import OperatorCounts
from nova_storm.flux import topology
from nova_storm.verification import Verification, await_running, of_name, verify

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_flink.results import ResultRecords
    from nova_flink.workload import Workload
    from nova_harness.deployment import Tell
    from nova_harness.experiment.engine import Engine, Opener
    from nova_harness.storm_deployment import StormDeployment
    from nova_testbed.hosts import Hosts

# Every host starts two JVMs for a topology.
FIRST_LEAD_SECONDS = 30.0
SECOND_LEAD_SECONDS = 15.0
RESULTS = "results"


def prepare(tell: Tell) -> Opener:
    """See `nova_harness.experiment.engine.prepare`."""
    from nova_storm.home import StormHome

    home = StormHome.default()
    home.check()
    home.install(tell)

    @contextmanager
    def opener(hosts: Hosts, tell: Tell, keep: bool) -> Iterator[Engine]:
        from nova_harness.storm_deployment import StormDeployment

        deployment = StormDeployment(hosts, home)
        try:
            deployment.up(tell)
            yield StormEngine(deployment)
        finally:
            if not keep:
                tell("ending Storm")
                deployment.down()

    return opener


class StormEngine:
    """See `nova_harness.experiment.engine.Engine`."""

    name = "storm"
    # A supervisor, a worker and what writes its log.
    engine_bytes = 480 << 20
    stays_warm = False

    def __init__(self, deployment: StormDeployment) -> None:
        self.deployment = deployment
        self.lead = Lead(FIRST_LEAD_SECONDS, SECOND_LEAD_SECONDS)

    def start(self, plan: Plan, workload: Callable[[int], Workload], name: str) -> StormJob:
        """Submit a topology."""
        made = workload(self.lead.start_ms())
        dataflow = from_plan(plan, plan.problem, made)
        called = name.replace(" ", "-").replace(".", "-")
        file = self.deployment.result_file(RESULTS)
        document = topology(dataflow, made, file, called)
        with tempfile.TemporaryDirectory(prefix="nova-storm-") as directory:
            path = Path(directory) / "topology.yaml"
            path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), "utf-8")
            self.deployment.nimbus.submit(path)
        return StormJob(self, called, dataflow, made)


class StormJob:
    """See `nova_harness.experiment.engine.Job`."""

    def __init__(
        self, engine: StormEngine, name: str, dataflow: Dataflow, workload: Workload
    ) -> None:
        self.engine, self.name = engine, name
        self.dataflow, self.workload = dataflow, workload
        self.deployment = engine.deployment
        self._seen: Verification | None = None

    @property
    def document(self) -> str:
        """Its components."""
        return self.dataflow.to_json()

    def await_running(self) -> None:
        """Until every executor runs."""
        d = self.deployment
        self._seen = await_running(d.nimbus, self.name, self.dataflow, d.addresses, RUNNING_SECONDS)
        self.engine.lead.runs()

    def verify(self) -> Verification:
        """Where nimbus had its executors when it was asked last: a JVM is started for each time."""
        if self._seen is None:
            self.counters()
            assert self._seen is not None
        return self._seen

    def look(self) -> bool:
        """Whether its sink has said that nothing more will come.

        Nimbus, who would need a JVM to be asked, takes no notice of that; a worker that has ended
        is started again by its supervisor.
        """
        gone = self.deployment.last_words()
        if gone:
            raise RunError(f"Storm{gone}")
        file, hub = (
            self.deployment.result_file(RESULTS),
            self.deployment.hosts[self.deployment.sink],
        )
        end, failed = shlex.quote(file + results.END), shlex.quote(file + results.FAILED)
        told = hub.run(
            f"if [ -e {failed} ]; then cat {failed} >&2; exit 2; fi; test -e {end}", check=False
        )
        if told.returncode == 2:
            raise RunError(f"the sink cannot write its results: {told.last_words}")
        return told.returncode == 0

    def counters(self) -> Mapping[str, Any]:
        """Its executors, as nimbus tells them; counted from one tuple in twenty."""
        status = self.deployment.nimbus.status()
        self._seen = verify(status, self.name, self.dataflow, self.deployment.addresses)
        return {one["component"]: one for one in of_name(status, self.name)["executors"]}

    def operators(
        self, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> list[OperatorCounts]:
        """What each executor did between two answers of nimbus."""
        node_at = {address: name for name, address in self.deployment.addresses.items()}
        spouts = {one.name for one in self.dataflow.of_kind("source")}

        def gained(name: str, field: str) -> float | None:
            told = [after[name].get(field), before.get(name, {}).get(field)]
            return None if None in told else told[0] - told[1]

        return [
            OperatorCounts(
                name=name,
                node=node_at.get(str(one["host"]), str(one["host"])),
                records_in=0 if name in spouts else gained(name, "executed"),
                records_out=gained(name, "emitted"),
                busy_ms=None if name in spouts else gained(name, "busy_ms"),
            )
            for name, one in after.items()
        ]

    def end(self) -> None:
        """Kill it."""
        self.deployment.nimbus.kill(self.name)
        self.deployment.await_no_worker()

    def results(self, scratch: Path) -> ResultRecords:
        """What its sink has written."""
        return self.deployment.read_results(RESULTS, scratch)
