"""Storm on the hosts of a test bed.

ZooKeeper, nimbus and a supervisor run on the sink's host, a supervisor on every other. Workers are
processes of the supervisors' jobs, and end with them.
"""

from __future__ import annotations

import math
import re
import shlex
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nova_core.errors import NovaError
from nova_engines import results
from nova_engines.flow import Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.handover import FAILED, FINISHED, RUNNING
from nova_engines.installing import java
from nova_engines.names import is_own_job
from nova_engines.sources import READINGS, REPLAY, Sources
from nova_harness.engines.base import (
    ALL,
    RUNNING_SECONDS,
    Abilities,
    JobsSeen,
    JobState,
    Lead,
    RunError,
)
from nova_harness.engines.deployment import EngineDeployment
from nova_harness.engines.host_files import HostFiles
from nova_harness.results.schema import OperatorCounts
from nova_storm.configuration import ClusterConfiguration, Node
from nova_storm.flux import topology
from nova_storm.home import VERSION, StormHome
from nova_storm.nimbus import Nimbus, StormError
from nova_storm.verification import await_running, of_name, verify

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.results import ResultRecords
    from nova_engines.source_orders import ControlledJob
    from nova_engines.verification import Verification
    from nova_harness.engines.deployment import Tell
    from nova_testbed.host import Host
    from nova_testbed.hosts import Hosts

JOBS = {
    "zookeeper": "nova_storm_zookeeper",
    "nimbus": "nova_storm_nimbus",
    "supervisor": "nova_storm_supervisor",
}
# A worker's heap, MB; what the tuples of a few windows need.
WORKER_HEAP = 128
# How soon nimbus schedules a topology and learns that executors run; Storm's own values are for
# long-lived clusters.
SETTINGS = {"nimbus.monitor.freq.secs": 2, "executor.metrics.frequency.secs": 2}
ZOOKEEPER_SECONDS = 60.0
POLL_SECONDS = 1.0
# Every host starts two JVMs for a topology.
FIRST_LEAD_SECONDS = 30.0
SECOND_LEAD_SECONDS = 15.0
RESULTS = "results"
# On a host: workers of a topology with files in a directory, and the processes that write their
# logs. The brackets keep the command from matching itself.
WORKERS = """\
for command in $(grep -ls 'daemon[.]worker[.]Worker' /proc/[0-9]*/cmdline); do
  if grep -qsF {work}/ "$command" && tr '\\0' '\\n' <"$command" | grep -qxE {topology}; then
    echo "$command"
  fi
done 2>/dev/null
"""
# Wait until none of them runs.
NO_WORKER = f"""\
for i in $(seq 150); do
  left=$({WORKERS})
  [ -n "$left" ] || exit 0
  sleep 0.2
done
echo 'a worker of Storm does not end' >&2
exit 1
"""


class StormRunner:
    """See `nova_harness.engines.base.Runner`."""

    name = "storm"
    can = Abilities(ALL, (REPLAY,), (READINGS,), controlled=True)

    def prepare(self, tell: Tell, source: str) -> None:
        """Prepare Storm, with Nova's classes."""
        home = StormHome.default()
        home.check()
        home.install(tell)

    def cluster(self, address: str, problem: Problem | None) -> StormCluster:
        """The cluster whose nimbus answers at HOST[:PORT]."""
        from nova_engines.nodes import addresses

        nimbus = Nimbus.at(address)

        def reached(nodes: Sequence[str]) -> Mapping[str, str]:
            if problem is None:
                raise NovaError(
                    "--problem is missing: Storm knows hosts by address, and the "
                    "problem has the nodes' addresses"
                )
            return addresses(problem, nodes)

        return StormCluster(nimbus, reached)

    def engine(self, hosts: Hosts, source: str) -> StormEngine:
        """Storm on the hosts."""
        return StormEngine(StormDeployment(hosts, StormHome.default()))


RUNNER = StormRunner()


class StormDeployment(EngineDeployment):
    """A Storm cluster on the hosts of an inventory.

    Attributes:
        home: Storm's installation.
        configuration: of the cluster.
        addresses: of every host.
        nimbus: a client, on this machine.
    """

    ENGINE = "Storm"
    NAME = "storm"
    PROCESSES = tuple(JOBS.values())

    def __init__(self, hosts: Hosts, home: StormHome) -> None:
        """Configure it.

        Args:
            hosts: connected; the inventory's with addresses.
            home: Storm's installation.
        """
        super().__init__(hosts)
        self.home = home
        # Before `miss_after`, hosts count as lost as soon as the controller counts them as silent.
        self.missed_after_s = 0.0
        inventory = hosts.inventory
        self.addresses = {host.name: host.address for host in inventory.hosts}
        coordinator = self.addresses[self.sink]
        self.configuration = ClusterConfiguration(
            [Node(name, address) for name, address in self.addresses.items()],
            self.place(self.sink),
            coordinator,
            self.work(self.sink),
            worker_heap_mb=WORKER_HEAP,
            settings=SETTINGS,
        )
        port = self.configuration.nimbus_port
        self.nimbus = Nimbus(home, coordinator, port, java("Storm"))

    @property
    def version(self) -> str:
        """Of Storm."""
        return VERSION

    @property
    def home_path(self) -> Path:
        """The engine home."""
        return self.home.path

    @cached_property
    def runtime_files(self) -> Sequence[Path]:
        """All files of the engine home."""
        return sorted(path for path in self.home.path.rglob("*") if path.is_file())

    def check(self) -> None:
        """Whether Storm is installed here."""
        self.home.check()

    def files(self, name: str) -> dict[str, str]:
        """storm.yaml of a host's processes."""
        configuration = self._on(name)
        node = next(node for node in configuration.nodes if node.name == name)
        files = {"supervisor.yaml": configuration.storm_yaml(node)}
        if name == self.sink:
            files["nimbus.yaml"] = configuration.storm_yaml(None)
        return files

    def commands(self, name: str) -> dict[str, str]:
        """A supervisor; on the sink's host ZooKeeper and nimbus before it."""
        processes = ["supervisor"]
        if name == self.sink:
            processes = ["zookeeper", "nimbus", "supervisor"]
        return {
            JOBS[process]: f"mkdir -p {self.work(name)}/log && {self._on(name).command(process)}"
            for process in processes
        }

    def _on(self, name: str) -> ClusterConfiguration:
        """The configuration with a host's directories."""
        return replace(self.configuration, home=self.place(name), work=self.work(name))

    def launch(self) -> None:
        """Start ZooKeeper before the processes that need it."""
        first = {JOBS["zookeeper"]}
        self.start(self.hosts[self.sink], first)
        self._await_port(self.configuration.zookeeper_port)
        self.hosts.map(lambda host: self.start(host, set(self.PROCESSES) - first))

    def _await_port(self, port: int) -> None:
        until = time.monotonic() + ZOOKEEPER_SECONDS
        while True:
            try:
                socket.create_connection((self.configuration.coordinator, port), 1).close()
            except OSError:
                if time.monotonic() > until:
                    raise StormError(
                        f"nothing listens on port {port} of {self.sink}{self.last_words()}"
                    ) from None
                time.sleep(POLL_SECONDS / 4)
            else:
                return

    def wait(self, timeout_s: float) -> None:
        """Until all supervisors have registered."""
        until = time.monotonic() + timeout_s
        while True:
            missing = set(self.addresses.values())
            try:
                status = self.nimbus.status(until - time.monotonic(), len(missing))
                missing -= {str(one["host"]) for one in status["supervisors"]}
            except StormError:
                # Nimbus listens before it is the leader.
                if time.monotonic() > until:
                    raise
            if not missing:
                return
            if time.monotonic() > until:
                late = [name for name, address in self.addresses.items() if address in missing]
                raise StormError(
                    f"no supervisor of {', '.join(late)} has registered within {timeout_s:g} s; "
                    f"see {self.work(self.sink)}/log on the host"
                )
            time.sleep(POLL_SECONDS)

    def miss_after(self, seconds: float) -> None:
        """Set when supervisors end workers that hang; only Nova notices a lost host."""
        self.missed_after_s = seconds
        timeouts = {"supervisor.worker.timeout.secs": math.ceil(seconds)}
        settings = {**self.configuration.settings, **timeouts}
        self.configuration = replace(self.configuration, settings=settings)

    def worker_processes(self, name: str, topology: str = "") -> set[int]:
        """Its workers', of one topology or of all."""
        paths = self.hosts[name].run(self._on_host(WORKERS, name, topology)).stdout.split()
        return {int(path.split("/")[2]) for path in paths}

    def await_no_worker(self, topology: str, names: Sequence[str] | None = None) -> None:
        """Wait until the workers of a killed topology have ended, on some hosts or all."""

        def end(host: Host) -> None:
            if names is None or host.name in names:
                host.run(self._on_host(NO_WORKER, host.name, topology))

        self.hosts.map(end)

    def _on_host(self, command: str, name: str, topology: str) -> str:
        # Storm adds a number and the time to a topology's name.
        pattern = f"{re.escape(topology)}-[0-9]+-[0-9]+" if topology else ".*"
        return command.format(work=self.work(name), topology=shlex.quote(pattern))


class StormCluster:
    """See `nova_harness.engines.base.Cluster`.

    Args:
        nimbus: a client.
        addresses: returns the configured addresses of nodes' supervisors.
    """

    def __init__(
        self, nimbus: Nimbus, addresses: Callable[[Sequence[str]], Mapping[str, str]]
    ) -> None:
        self.nimbus, self._addresses = nimbus, addresses

    @property
    def address(self) -> str:
        """Where nimbus answers."""
        return self.nimbus.address

    def document(self, plan: Plan) -> str:
        """Its components."""
        return flow_of(plan).to_json()

    def verify(self, job: str, document: str) -> Verification:
        """Where nimbus has a topology's executors."""
        flow = Flow.from_json(document)
        addresses = self._addresses(flow.nodes)
        return verify(self.nimbus.status(), job, flow.placement, addresses)

    def hosts(self) -> dict[str, bool]:
        """Supervisors."""
        return {str(one["host"]): True for one in self.nimbus.status()["supervisors"]}

    def jobs(self) -> list[JobState]:
        """Topologies; nimbus forgets killed ones."""
        return [
            JobState(
                str(one["name"]),
                str(one["name"]),
                str(one["status"]),
                own=is_own_job(str(one["name"]).replace("-", " ")),
                runs=one["status"] != "KILLED",
            )
            for one in self.nimbus.status()["topologies"]
        ]

    def stop(self, job: str) -> str:
        """Kill a topology."""
        self.nimbus.kill(job)
        return "killed"


class StormEngine(StormCluster):
    """See `nova_harness.engines.base.Engine`."""

    name = "storm"
    # A supervisor, a worker and the process that writes its log.
    engine_bytes = 480 << 20
    stays_warm = False

    def __init__(self, deployment: StormDeployment) -> None:
        super().__init__(deployment.nimbus, lambda nodes: deployment.addresses)
        self.deployment = deployment
        self.lead = Lead(FIRST_LEAD_SECONDS, SECOND_LEAD_SECONDS)

    def up(self, tell: Tell) -> None:
        """Start Storm."""
        self.deployment.up(tell)

    def close(self) -> None:
        """Nothing to close: every request to nimbus is a separate process."""

    def down(self) -> list[str]:
        """End Storm."""
        return self.deployment.down()

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> StormJob:
        """Submit a topology."""
        job = self._submit(flow, sources(self.lead.start_ms()), _called(name), RESULTS)
        job.lead = self.lead
        return job

    def miss_after(self, seconds: float) -> None:
        """Set the timeout of workers; only Nova notices a lost host."""
        self.deployment.miss_after(seconds)

    @property
    def controlled_jobs(self) -> StormJobs:
        """For hand-overs."""
        return StormJobs(self)

    def submit(self, flow: Flow, sources: Sources, name: str, results: str) -> StormJob:
        """Submit a topology with its own result file.

        Its name is unique, as it also names its orders and results.
        """
        called = f"{_called(name)}-{time.time_ns() // 1_000_000}"
        return self._submit(flow, sources, called, results)

    def job(self, name: str, flow: Flow, sources: Sources) -> StormJob:
        """A topology of that name."""
        return StormJob(self, name, flow, sources)

    def watch(self, running: Sequence[tuple[ControlledJob, Flow]]) -> StormWatch:
        """By their sinks' files: every request to nimbus starts a JVM."""
        jobs = [job for job, _ in running]
        return StormWatch(self.controlled_jobs, jobs, self.deployment.missed_after_s)

    def processes(self, job: ControlledJob, nodes: Sequence[str]) -> dict[str, set[int]]:
        """Its workers and the processes that write their logs."""
        workers = self.deployment.hosts.map(
            lambda host: (
                self.deployment.worker_processes(host.name, job.job)
                if host.name in nodes
                else set()
            )
        )
        return {name: pids for name, pids in workers.items() if pids}

    def misses(self, node: str) -> bool:
        """A supervisor that returns resumes its work."""
        return True

    def why(self, job: ControlledJob) -> str:
        """Storm reports no cause; Nova noticed the loss."""
        return "a worker of its topology, or its host, is lost"

    def blames(self, job: ControlledJob) -> set[str]:
        """Storm reports no cause."""
        return set()

    def _submit(self, flow: Flow, sources: Sources, called: str, file: str) -> StormJob:
        document = topology(flow, sources, self.deployment.result_file(file), called)
        with tempfile.TemporaryDirectory(prefix="nova-storm-") as directory:
            path = Path(directory) / "topology.yaml"
            path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), "utf-8")
            self.nimbus.submit(path)
        return StormJob(self, called, flow, sources)

    def stop(self, job: str) -> str:
        """Kill a topology, and wait until its workers have ended."""
        state = super().stop(job)
        self.deployment.await_no_worker(job)
        return state

    def hosts(self) -> dict[str, bool]:
        """Hosts by their supervisors."""
        supervisors = super().hosts()
        return {name: at in supervisors for name, at in self.deployment.addresses.items()}


class StormJobs:
    """See `nova_engines.handover.Jobs`: a job is a topology, and its id the topology's name.

    Args:
        engine: whose they are.
    """

    ends_failed_jobs = False
    behind_ms = 15_000

    def __init__(self, engine: StormEngine) -> None:
        self._engine = engine
        self._files = HostFiles(engine.deployment.hosts)

    def finished(self, job: ControlledJob) -> bool:
        """Whether all its sinks have noted the end of their results."""
        return all(self._files.read(node, path + results.END) for node, path in job.results)

    def state(self, job: ControlledJob) -> str:
        """By its sinks' files, and nimbus's list."""
        if self.finished(job):
            return FINISHED
        return RUNNING if self._listed(job) else FAILED

    def cancel(self, job: ControlledJob) -> None:
        """Kill it, and wait until it has ended on its sinks' hosts; others may be cut off."""
        if self._listed(job):
            self._engine.nimbus.kill(job.job)
        sinks = [node for node, _ in job.results]
        self._engine.deployment.await_no_worker(job.job, sinks)

    def wait_ended(self, job: ControlledJob, timeout_s: float) -> str:
        """By its sinks' files; a job that does not end in time has lost a worker."""
        until = time.monotonic() + timeout_s
        while not self.finished(job):
            if time.monotonic() > until:
                self.cancel(job)
                return self.state(job)
            time.sleep(POLL_SECONDS / 4)
        return FINISHED

    def _listed(self, job: ControlledJob) -> bool:
        return any(one.job == job.job and one.runs for one in self._engine.jobs())


class StormWatch:
    """See `nova_harness.engines.base.JobsWatch`."""

    def __init__(self, jobs: StormJobs, running: Sequence[ControlledJob], silence_s: float) -> None:
        self._jobs, self._running, self._silence_s = jobs, running, silence_s

    def look(self, now: float) -> JobsSeen:
        """Whether they have finished; only readings of hosts show a failure."""
        states = {
            job.job: FINISHED if self._jobs.finished(job) else RUNNING for job in self._running
        }
        return JobsSeen(states, silence_s=self._silence_s)


class StormJob:
    """See `nova_harness.engines.base.Job`.

    Attributes:
        lead: that its start was set by; None for a topology that takes over from another one.
    """

    lead: Lead | None = None

    def __init__(self, engine: StormEngine, name: str, flow: Flow, sources: Sources) -> None:
        self.engine, self.name = engine, name
        self.flow, self.sources = flow, sources
        self.deployment = engine.deployment
        self._seen: Verification | None = None

    @property
    def document(self) -> str:
        """Its components."""
        return self.flow.to_json()

    def await_running(self) -> None:
        """Wait until every executor runs."""
        d = self.deployment
        nodes = self.flow.placement
        self._seen = await_running(d.nimbus, self.name, nodes, d.addresses, RUNNING_SECONDS)
        if self.lead is not None:
            self.lead.runs()

    def verify(self) -> Verification:
        """Where nimbus last reported its executors: every request starts a JVM."""
        if self._seen is None:
            self.counters()
            assert self._seen is not None
        return self._seen

    def look(self) -> bool:
        """Whether its sinks have noted the end of their results.

        Nimbus does not know of that end, and every request to it starts a JVM. Supervisors restart
        workers that have ended.
        """
        ended = self.deployment.last_words(self.flow.nodes)
        if ended:
            raise RunError(f"Storm{ended}")
        files = self.flow.result_files(self.deployment.result_file(RESULTS))
        return all(self._ended(one.node, files[one.name]) for one in self.flow.sinks)

    def _ended(self, node: str, file: str) -> bool:
        end, failed = shlex.quote(file + results.END), shlex.quote(file + results.FAILED)
        look = f"if [ -e {failed} ]; then cat {failed} >&2; exit 2; fi; test -e {end}"
        answer = self.deployment.hosts[node].run(look, check=False)
        if answer.returncode == 2:
            raise RunError(f"the sink cannot write its results: {answer.last_words}")
        return answer.returncode == 0

    def counters(self) -> Mapping[str, Any]:
        """Its executors, as nimbus reports them; counted from one tuple in twenty."""
        status = self.deployment.nimbus.status()
        self._seen = verify(status, self.name, self.flow.placement, self.deployment.addresses)
        return {one["component"]: one for one in of_name(status, self.name)["executors"]}

    def operators(
        self, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> list[OperatorCounts]:
        """Counts of each executor between two answers of nimbus."""
        node_at = {address: name for name, address in self.deployment.addresses.items()}
        spouts = {one.name for one in self.flow.of_kind("source")}

        def gained(name: str, field: str) -> float | None:
            counts = [after[name].get(field), before.get(name, {}).get(field)]
            return None if None in counts else counts[0] - counts[1]

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
        self.engine.stop(self.name)

    def results(self, scratch: Path) -> ResultRecords:
        """Results that its sinks have written."""
        return self.deployment.read_results(self.flow, RESULTS, scratch)


def _called(name: str) -> str:
    """A job's name in characters that Storm allows."""
    return name.replace(" ", "-").replace(".", "-")
