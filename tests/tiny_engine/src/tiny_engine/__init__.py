"""A stream processing engine of a few hundred lines, as somebody else's package would bring it."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError
from nova_core.model import Plan, Problem
from nova_engines.flow import Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.results import PAIR, ResultRecords
from nova_engines.sources import Sources
from nova_engines.verification import RUNNING, Verification, compare
from nova_harness.engines.base import Abilities, Cluster, JobState, RunError
from nova_harness.engines.deployment import EngineDeployment, Tell
from nova_harness.results.schema import OperatorCounts
from nova_testbed.hosts import Hosts

WORKER = "tiny_engine_worker"
RESULTS = "results"
# Until a job runs on all hosts; from its submission to the first tuple.
SECONDS, LEAD_SECONDS = 20.0, 1.5


class TinyDeployment(EngineDeployment):
    """A worker on every host: a Python program that is part of the host's configuration."""

    ENGINE = "Tiny"
    NAME = "tiny"
    PROCESSES = (WORKER,)
    NEEDS = ()
    version = "1"
    home_path = Path(sys.prefix)
    runtime_files: Sequence[Path] = ()

    def check(self) -> None:
        """There is nothing to install."""

    def files(self, name: str) -> dict[str, str]:
        """The program."""
        return {"worker.py": Path(__file__).with_name("worker.py").read_text("utf-8")}

    def commands(self, name: str) -> dict[str, str]:
        """Its start."""
        work, address = self.work(name), self.hosts.inventory.host(name).address
        words = [sys.executable, "-I", f"{work}/worker.py", name, address, f"{work}/job"]
        return {WORKER: f"exec {shlex.join(words)}"}

    def wait(self, timeout_s: float) -> None:
        """Until every worker listens."""
        self.each("until [ -e {job}/ready ]; do sleep 0.1; done", timeout_s)

    def each(self, command: str, timeout_s: float = SECONDS) -> Mapping[str, str]:
        """What a command prints on each host, where ``{job}`` is the job's directory."""

        def one(host: Any) -> str:
            text = command.replace("{job}", f"{self.work(host.name)}/job")
            done = host.run(text, timeout=timeout_s, check=False)
            if done.returncode:
                raise NovaError(f"tiny worker on {host.name}: {done.last_words}{self.last_words()}")
            return str(done.stdout)

        return self.hosts.map(one)


class TinyEngine:
    """See `nova_harness.engines.base.Engine`."""

    name = "tiny"
    engine_bytes = 64 << 20
    stays_warm = False

    def __init__(self, deployment: TinyDeployment) -> None:
        self.deployment = deployment

    @property
    def address(self) -> str:
        """It has no coordinator: the sink's host."""
        return self.deployment.sink

    def up(self, tell: Tell) -> None:
        """Start the workers."""
        self.deployment.up(tell)

    def close(self) -> None:
        """Nothing of it is on this machine."""

    def down(self) -> list[str]:
        """End the workers."""
        return self.deployment.down()

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> TinyJob:
        """Give every worker the job."""
        job = TinyJob(self, name, flow, sources(round(1000 * (time.time() + LEAD_SECONDS))))
        job.submit()
        return job

    def document(self, plan: Plan) -> str:
        """Its operators."""
        return flow_of(plan).to_json()

    def verify(self, job: str, document: str) -> Verification:
        """Where workers say that operators run."""
        parts = [(name, node, RUNNING) for node, of in self.counts().items() for name in of]
        return compare(Flow.from_json(document).placement, parts)

    def counts(self) -> dict[str, dict[str, Sequence[int]]]:
        """Tuples in and out of every operator, by host."""
        told = self.deployment.each("cat {job}/state.json 2>/dev/null || echo {}")
        return {name: json.loads(text) for name, text in told.items()}

    def hosts(self) -> dict[str, bool]:
        """Whether workers listen."""
        told = self.deployment.each("[ -e {job}/ready ] && echo yes || echo no")
        return {name: text.strip() == "yes" for name, text in told.items()}

    def jobs(self) -> list[JobState]:
        """At most one."""
        runs = any(self.counts().values())
        return [JobState("tiny", "nova tiny", "RUNNING", own=True, runs=True)] if runs else []

    def stop(self, job: str) -> str:
        """End the job."""
        # A worker that is gone has nothing to end.
        wait = "for i in $(seq 60); do [ -e {job}/state.json ] || break; sleep 0.05; done"
        clear = "rm -f {job}/job.json {job}/state.json"
        self.deployment.each(f"touch {{job}}/end; {wait}; {clear}")
        return "ended"


class TinyJob:
    """See `nova_harness.engines.base.Job`."""

    def __init__(self, engine: TinyEngine, name: str, flow: Flow, sources: Sources) -> None:
        self.engine, self.name = engine, name
        self.flow, self.sources = flow, sources

    def submit(self) -> None:
        """Have every worker run its operators."""
        d = self.engine.deployment
        job = {
            "flow": asdict(self.flow),
            "sources": asdict(self.sources),
            "addresses": {host.name: host.address for host in d.hosts.inventory.hosts},
            "file": d.result_file(RESULTS),
            "fields": PAIR,
        }
        with tempfile.TemporaryDirectory(prefix="tiny-engine-") as directory:
            file = Path(directory) / "job.json"
            file.write_text(json.dumps(job), "utf-8")
            d.each("rm -f {job}/end")
            d.hosts.map(lambda host: host.put(file, f"{d.work(host.name)}/job/job.json"))

    @property
    def document(self) -> str:
        """Its operators."""
        return self.flow.to_json()

    def await_running(self) -> None:
        """Until all workers have said what they run."""
        until = time.monotonic() + SECONDS
        while not self.verify().ok:
            if time.monotonic() > until:
                raise RunError(
                    f"tiny: workers do not run the job{self.engine.deployment.last_words()}"
                )
            time.sleep(0.1)

    def verify(self) -> Verification:
        """Where workers say that operators run."""
        return self.engine.verify(self.name, self.document)

    def look(self) -> bool:
        """Whether the sink has all results."""
        if gone := self.engine.deployment.last_words():
            raise RunError(f"tiny{gone}")
        d = self.engine.deployment
        file = f"{d.result_file(RESULTS)}.end"
        return d.hosts[d.sink].run(f"test -e {file}", check=False).returncode == 0

    def counters(self) -> dict[str, dict[str, Sequence[int]]]:
        """Tuples in and out of every operator, by host."""
        return self.engine.counts()

    def operators(self, before: Any, after: Any) -> list[OperatorCounts]:
        """What each did between two answers."""
        return [
            OperatorCounts(
                name=name,
                node=node,
                records_in=now[0] - before.get(node, {}).get(name, (0, 0))[0],
                records_out=now[1] - before.get(node, {}).get(name, (0, 0))[1],
                busy_ms=None,
            )
            for node, of_node in after.items()
            for name, now in of_node.items()
        ]

    def end(self) -> None:
        """End it."""
        self.engine.stop(self.name)

    def results(self, scratch: Path) -> ResultRecords:
        """What has arrived at the sink."""
        return self.engine.deployment.read_results(self.flow, RESULTS, scratch)


class TinyRunner:
    """See `nova_harness.engines.base.Runner`."""

    name = "tiny"
    can = Abilities()
    job = TinyJob

    def prepare(self, tell: Tell, source: str) -> None:
        """There is nothing to install."""

    def cluster(self, address: str, problem: Problem | None) -> Cluster:
        """There are no clusters of it but Nova's."""
        raise NovaError("tiny: --at: there are no clusters but those on Nova's hosts")

    def engine(self, hosts: Hosts, source: str) -> TinyEngine:
        """The engine on the hosts."""
        return TinyEngine(TinyDeployment(hosts))


RUNNER = TinyRunner()
