"""Flink on the hosts of a test bed.

The JobManager and a TaskManager run on the sink's host, a TaskManager on every other.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nova_core.errors import NovaError
from nova_engines import sources as kinds
from nova_engines.flow import Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.names import is_own_job
from nova_engines.nodes import MB, Node
from nova_engines.results import BESIDE
from nova_engines.sources import Sources
from nova_flink.configuration import ClusterConfiguration
from nova_flink.controlled_jobs import FlinkJobs
from nova_flink.names import node_of_task_manager, task_manager
from nova_flink.rest import ENDED, Rest
from nova_flink.verification import await_running, verify
from nova_harness.engines.base import (
    ALL,
    RUNNING_SECONDS,
    Abilities,
    JobState,
    Lead,
    RunError,
)
from nova_harness.engines.deployment import EngineDeployment
from nova_harness.engines.flink_watch import FlinkWatch
from nova_harness.results.schema import OperatorCounts

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.results import ResultRecords
    from nova_engines.source_orders import ControlledJob
    from nova_engines.verification import Verification
    from nova_flink.client import Client
    from nova_flink.home import FlinkHome
    from nova_harness.engines.deployment import Tell
    from nova_testbed.host import Host
    from nova_testbed.hosts import Hosts

COORDINATOR, TASK_MANAGER = "nova_flink_coordinator", "nova_flink_task_manager"
# The first job warms up: its sources may begin before it runs.
FIRST_LEAD_SECONDS = 5.0
BUSY = "accumulated-busy-time"
# When a TaskManager was last heard from, ms since the epoch, as Flink's REST interface calls it.
HEARTBEAT = "timeSinceLastHeartbeat"
RESULTS = "results"
FAILING = ("FAILING", "RESTARTING")
# A job fails before Flink reports the cause.
REASON_SECONDS = 5.0
# As RowSource.java calls it.
BEHIND_US = "nova behind us: "


def ready_home(tell: Tell) -> FlinkHome:
    """The engine home, with the current classes of Nova.

    Raises:
        NovaError: when Flink is not installed, or the classes cannot be compiled.
    """
    from nova_flink.home import FlinkHome

    home = FlinkHome.default()
    home.check()
    home.install(tell)
    return home


class FlinkRunner:
    """See `nova_harness.engines.base.Runner`."""

    name = "flink"
    can = Abilities(
        operators=ALL,
        sources=kinds.KINDS,
        query_sources=(kinds.READINGS, kinds.KAFKA),
        controlled=True,
        places=True,
        checkpoints=True,
    )

    def prepare(self, tell: Tell, source: str) -> None:
        """Prepare Flink, and look for its connector for Kafka."""
        ready_home(tell)
        if source == kinds.KAFKA:
            from nova_kafka.home import connectors_home

            connectors_home().check()

    def cluster(self, address: str, problem: Problem | None) -> FlinkCluster:
        """The cluster whose REST interface has that URL."""
        return FlinkCluster(Rest.at(address))

    def engine(self, hosts: Hosts, source: str) -> FlinkEngine:
        """Flink, with its connector for Kafka where that is installed."""
        from nova_flink.home import FlinkHome
        from nova_kafka.home import connectors_home

        connectors = connectors_home()
        jars = connectors.jars if connectors.installed else ()
        return FlinkEngine(FlinkDeployment(hosts, FlinkHome.default(), extra_jars=jars))


RUNNER = FlinkRunner()


class FlinkDeployment(EngineDeployment):
    """A Flink cluster on the hosts of an inventory.

    Attributes:
        home: Flink's installation.
        nodes: as Flink is configured for them, by name.
        configuration: of the cluster.
        rest: its coordinator's REST interface.
    """

    ENGINE = "Flink"
    NAME = "flink"
    PROCESSES = (COORDINATOR, TASK_MANAGER)
    LOGS: ClassVar[Mapping[str, str]] = {
        COORDINATOR: "log/jobmanager.log",
        TASK_MANAGER: "log/taskmanager.log",
    }

    def __init__(
        self,
        hosts: Hosts,
        home: FlinkHome,
        extra_jars: Sequence[Path] = (),
    ) -> None:
        """Configure it.

        Args:
            hosts: connected; the inventory's with addresses.
            home: Flink's installation.
            extra_jars: of connectors, on this machine.
        """
        super().__init__(hosts)
        self.home, self.extra_jars = home, extra_jars
        inventory = hosts.inventory
        self.nodes = {
            host.name: Node(
                name=host.name,
                address=host.address,
                memory=host.memory,
                cpu=host.cpu,
                role="coordinator" if host.name == self.sink else "worker",
            )
            for host in inventory.hosts
        }
        # Archives of loaded classes name the jars they were made from by path.
        archives = inventory.virtual
        self.configuration = ClusterConfiguration(
            list(self.nodes.values()),
            self.place(self.sink),
            work_directory=self.work(self.sink),
            task_manager_options=self.home.task_manager_options if archives else (),
            job_manager_options=self.home.job_manager_options if archives else (),
            extra_jars=extra_jars,
        )
        self.rest = Rest(self.configuration.rest_url)

    def miss_after(self, seconds: float) -> None:
        """Set when hosts that hang or are cut off count as lost; call it before `up`."""
        heartbeat = {
            "heartbeat.interval": f"{round(200 * seconds)} ms",
            "heartbeat.timeout": f"{round(1000 * seconds)} ms",
        }
        settings = {**self.configuration.settings, **heartbeat}
        self.configuration = replace(self.configuration, settings=settings)

    def take_memory(self) -> None:
        """Let processes use all memory of their hosts; call it before `up`."""
        usual, inventory = self.configuration, self.hosts.inventory
        most = max((host.memory or 0 for host in inventory.hosts), default=0) // MB
        heap = max((host.memory or 0 for host in inventory.with_role("sink")), default=0) // MB // 2
        self.configuration = replace(
            usual,
            task_manager=max(most, usual.task_manager),
            job_manager_heap=max(heap, usual.job_manager_heap),
        )

    @property
    def version(self) -> str:
        """Of Flink."""
        return self.home.version

    @property
    def home_path(self) -> Path:
        """The engine home."""
        return self.home.path

    @property
    def runtime_files(self) -> Sequence[Path]:
        """Its jars."""
        return [*self.home.runtime_files, *self.extra_jars]

    def check(self) -> None:
        """Whether Flink is installed here."""
        self.home.check()

    def files(self, name: str) -> dict[str, str]:
        """Configuration of a host."""
        return self._on(name).files(self.nodes[name])

    def commands(self, name: str) -> dict[str, str]:
        """A TaskManager; on the sink's host the JobManager before it."""
        node, configuration = self.nodes[name], self._on(name)
        commands = {TASK_MANAGER: configuration.task_manager_command(node)}
        if name == self.sink:
            commands = {COORDINATOR: configuration.coordinator_command(node), **commands}
        return commands

    def _on(self, name: str) -> ClusterConfiguration:
        """The configuration with a host's directories."""
        place, jars = self.place(name), self.extra_jars
        if not self.hosts.inventory.virtual:
            jars = [Path(place) / self.within(jar) for jar in jars]
        return replace(
            self.configuration,
            home_path=place,
            work_directory=self.work(name),
            extra_jars=jars,
        )

    def worker_processes(self, name: str) -> set[int]:
        """Its TaskManager's."""
        return {pid for job in self.hosts[name].jobs(TASK_MANAGER) for pid in job.processes()}

    def dead_letters(self, job: str) -> int:
        """Number of invalid tuples at the sources of a job, see DeadLetters.java."""

        def lines(host: Host) -> int:
            files = f"{self.work(host.name)}/log/dead-letters/{job}.*"
            count = host.run(f"cat {files} 2>/dev/null | wc -l", check=False).stdout
            return int(count or 0)

        return sum(self.hosts.map(lines).values())

    def wait(self, timeout_s: float) -> None:
        """Until all TaskManagers have registered."""
        self.rest.wait_task_managers(self.nodes, timeout_s)


class FlinkCluster:
    """See `nova_harness.engines.base.Cluster`."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest

    @property
    def address(self) -> str:
        """Its REST interface."""
        return self.rest.url

    def document(self, plan: Plan) -> str:
        """Its operators."""
        return flow_of(plan).to_json()

    def verify(self, job: str, document: str) -> Verification:
        """Where a job's subtasks run."""
        return verify(self.rest, job, Flow.from_json(document))

    def hosts(self) -> dict[str, bool]:
        """TaskManagers."""
        return {node_of_task_manager(one) or one: True for one in self.rest.task_managers()}

    def jobs(self) -> list[JobState]:
        """All jobs that Flink lists."""
        return [
            JobState(
                job,
                str(one["name"]),
                str(one["state"]),
                own=is_own_job(str(one["name"])),
                runs=one["state"] not in ENDED,
            )
            for job, one in self.rest.jobs().items()
        ]

    def stop(self, job: str) -> str:
        """Cancel a job."""
        return self.rest.cancel(job).lower()


class FlinkEngine(FlinkCluster):
    """See `nova_harness.engines.base.Engine`."""

    name = "flink"
    engine_bytes = 320 << 20
    stays_warm = True

    def __init__(self, deployment: FlinkDeployment) -> None:
        super().__init__(deployment.rest)
        self.deployment = deployment
        self.lead = Lead(FIRST_LEAD_SECONDS)
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The process on this machine that submits jobs."""
        from nova_flink.client import Client

        if self._client is None:
            d = self.deployment
            self._client = Client(d.home, self.rest.url, d.extra_jars)
        return self._client

    def up(self, tell: Tell) -> None:
        """Start Flink."""
        self.deployment.up(tell)
        _ = self.client

    def close(self) -> None:
        """End the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def down(self) -> list[str]:
        """End Flink."""
        return self.deployment.down()

    def start(
        self,
        flow: Flow,
        sources: Callable[[int], Sources],
        name: str,
        results: str = RESULTS,
    ) -> FlinkJob:
        """Submit a job; jobs that run at once need result files of their own."""
        job = self.submit(flow, sources(self.lead.start_ms()), name, results)
        job.lead = self.lead
        return job

    def submit(self, flow: Flow, sources: Sources, name: str, results: str) -> FlinkJob:
        """Submit a job with its own result file."""
        job = self.client.submit(flow, sources, self.deployment.result_file(results), name)
        return FlinkJob(self, job, flow, sources, results)

    def take_memory(self) -> None:
        """Let its processes use all memory of their hosts; call it before `up`."""
        self.deployment.take_memory()

    def miss_after(self, seconds: float) -> None:
        """By its heartbeat."""
        self.deployment.miss_after(seconds)

    @property
    def controlled_jobs(self) -> FlinkJobs:
        """For hand-overs."""
        return FlinkJobs(self.rest)

    def job(self, name: str, flow: Flow, sources: Sources) -> FlinkJob:
        """The job of that id."""
        return FlinkJob(self, name, flow, sources)

    def watch(self, running: Sequence[tuple[ControlledJob, Flow]]) -> FlinkWatch:
        """By its REST interface."""
        return FlinkWatch(self.rest, running)

    def processes(self, job: ControlledJob, nodes: Sequence[str]) -> dict[str, set[int]]:
        """TaskManagers outlive jobs."""
        return {}

    def misses(self, node: str) -> bool:
        """Flink does not use a worker for minutes that returns before its loss was noticed."""
        return task_manager(node) not in self.rest.task_managers()

    def why(self, job: ControlledJob) -> str:
        """The last cause that Flink reports."""
        return (self.rest.exceptions(job.job) or ["Flink gives no reason"])[-1]

    def blames(self, job: ControlledJob) -> set[str]:
        """Nodes whose TaskManagers the causes name; Flink may list these for seconds."""
        words = set(re.findall(r"[\w.-]*[\w-]", " ".join(self.rest.exceptions(job.job))))
        return {node for node in self.deployment.nodes if task_manager(node) in words}

    def hosts(self) -> dict[str, bool]:
        """Hosts by their TaskManagers.

        Until Flink notices the loss of a TaskManager, for tens of seconds, it lists the one that
        was started in its place; then it forgets both, until the new one registers again. Its
        heartbeats count from then on.
        """
        registered, started = self.rest.task_managers(), self.deployment.started
        beats = {
            name: registered.get(task_manager(name), {}).get(HEARTBEAT)
            for name in self.deployment.nodes
        }
        # Before the first one, the time is 0.
        return {
            name: beat is not None and (beat == 0 or beat >= 1000 * started.get(name, 0.0))
            for name, beat in beats.items()
        }


class FlinkJob:
    """See `nova_harness.engines.base.Job`.

    Attributes:
        lead: that its start was set by; None for a job that takes over from another one.
    """

    lead: Lead | None = None

    def __init__(
        self,
        engine: FlinkEngine,
        name: str,
        flow: Flow,
        sources: Sources,
        file: str = RESULTS,
    ) -> None:
        self.engine, self.name, self.file = engine, name, file
        self.flow, self.sources = flow, sources
        self.rest = engine.rest
        self._seen: Verification | None = None

    @property
    def document(self) -> str:
        """Its operators."""
        return self.flow.to_json()

    def await_running(self) -> None:
        """Until every vertex runs."""
        await_running(self.rest, self.name, self.flow, RUNNING_SECONDS)
        if self.lead is not None:
            self.lead.runs()

    def verify(self) -> Verification:
        """Where its vertices run."""
        self._seen = verify(self.rest, self.name, self.flow)
        return self._seen

    def look(self) -> bool:
        """Whether it has finished."""
        state = str(self.rest.job(self.name)["state"])
        starts_again = self.sources.checkpoint_ms > 0 and state in FAILING
        if state in (*FAILING, "FAILED", "CANCELED", "CANCELLING") and not starts_again:
            raise RunError(f"the job {state.lower()}: {self._why(state)}")
        return state == "FINISHED"

    def _why(self, state: str) -> str:
        reasons, until = self.rest.exceptions(self.name), time.monotonic() + REASON_SECONDS
        # A cancelled job has no cause to wait for.
        failed = state in (*FAILING, "FAILED")
        while failed and not reasons and time.monotonic() < until:
            time.sleep(0.2)
            reasons = self.rest.exceptions(self.name)
        # The first line is Flink's reaction, the last the cause.
        return reasons[-1] if reasons else "Flink does not say why"

    def counters(self) -> dict[str, Any]:
        """The job, as REST reports it."""
        return self.rest.job(self.name)

    def operators(self, before: dict[str, Any], after: dict[str, Any]) -> list[OperatorCounts]:
        """Counts of each vertex between two REST answers about the job."""
        seen = self._seen or self.verify()
        nodes = {row.operator: row.actual for row in seen.rows}
        was = {vertex["id"]: vertex["metrics"] for vertex in before["vertices"]}
        counts = []
        for vertex in after["vertices"]:
            old, new = was[vertex["id"]], vertex["metrics"]
            if new["read-records"] < old["read-records"]:
                return []  # restarted in between
            first = next((n for name, n in nodes.items() if name in vertex["name"]), None)
            counts.append(
                OperatorCounts(
                    name=vertex["name"],
                    node=first,
                    records_in=new["read-records"] - old["read-records"],
                    records_out=new["write-records"] - old["write-records"],
                    # Flink does not measure it for legacy sources.
                    busy_ms=None
                    if "NaN" in (str(new[BUSY]), str(old[BUSY]))
                    else new[BUSY] - old[BUSY],
                    back_pressured_ms=new["accumulated-backpressured-time"]
                    - old["accumulated-backpressured-time"],
                )
            )
        return counts

    def behind_s(self) -> dict[str, float]:
        """How far each source of readings was behind when it ended (RowSource.java), s.

        Those that have not reported it are missing: the job has not ended, or a worker process has.
        """
        return {
            name.removeprefix(BEHIND_US): int(behind_us) / 1e6
            for name, behind_us in self.rest.accumulators(self.name).items()
            if name.startswith(BEHIND_US)
        }

    def discard(self) -> None:
        """Remove its result files."""
        d = self.engine.deployment
        files = self.flow.result_files(d.result_file(self.file))
        for one in self.flow.sinks:
            path = shlex.quote(files[one.name])
            beside = " ".join(path + suffix for suffix in BESIDE)
            d.hosts[one.node].run(f"rm -f {path} {beside}")

    def read_offsets(self) -> dict[tuple[str, int], int]:
        """Messages read per topic and partition."""
        return self.rest.read_offsets(self.name)

    def end(self) -> None:
        """Cancel it; without a coordinator, there is no job."""
        try:
            if self.rest.job(self.name)["state"] in ENDED:
                return
            self.rest.cancel(self.name)
        except NovaError:
            return

    def results(self, scratch: Path) -> ResultRecords:
        """Results that its sinks have written."""
        d = self.engine.deployment
        records = d.read_results(self.flow, self.file, scratch)
        if self.flow.has_columns:
            return records
        return replace(records, dead_letters=d.dead_letters(self.name))
