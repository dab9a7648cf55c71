"""Spark on the hosts of a virtual rack, in Real-Time Mode.

A Master, the driver and a Worker run on the sink's host, a Worker on every other; executors are
processes of the Workers' jobs. Hosts use this machine's PySpark and Python.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_engines.documents import from_json, read
from nova_engines.flow import Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.nodes import MB, Node
from nova_engines.results import ResultRecords
from nova_engines.sources import KAFKA, READINGS, REPLAY, Sources
from nova_harness.engines.base import ALL, Abilities, JobState, RunError
from nova_harness.engines.deployment import EngineDeployment
from nova_harness.results.schema import OperatorCounts
from nova_spark import realtime, results, tasks
from nova_spark.configuration import ClusterConfiguration
from nova_spark.driver import ENDED, FAILED, FINISHED, READY, State
from nova_spark.extension import build, kafka_client
from nova_spark.home import check
from nova_spark.rest import Rest, registered
from nova_spark.verification import Record, verify

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.verification import Verification
    from nova_harness.engines.deployment import Tell
    from nova_testbed.hosts import Hosts

MASTER, WORKER, DRIVER = "nova_spark_master", "nova_spark_worker", "nova_spark_driver"
# The driver's heap, the least that Spark allows, and its total memory with Java and Python, MB.
DRIVER_HEAP = 512
DRIVER_MB = 1000
UI_PORT = 4040
POLL_SECONDS = 0.5
REGISTER_SECONDS = 90.0
# The quick compiler alone: hosts have part of a core, and runs take a minute.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Until a plan's first batch has finished: classes are loaded, code is generated and compiled.
PREPARE_SECONDS = 200.0
END_SECONDS = 60.0
RESULTS = "results"


class SparkRunner:
    """See `nova_harness.engines.base.Runner`."""

    name = "spark"
    can = Abilities(operators=ALL, sources=(REPLAY, KAFKA), query_sources=(READINGS, KAFKA))

    def prepare(self, tell: Tell, source: str) -> None:
        """Prepare PySpark, with Nova's classes."""
        check()
        build(tell, kafka_client() if source == KAFKA else None, queries=True)

    def cluster(self, address: str, problem: Problem | None) -> SparkRecords:
        """The application of a job's record."""
        return SparkRecords("" if address == "record" else address)

    def engine(self, hosts: Hosts, source: str) -> SparkEngine:
        """Spark, with Kafka's client where its jobs read Kafka."""
        return SparkEngine(SparkDeployment(hosts, kafka=source == KAFKA))


RUNNER = SparkRunner()


class SparkDeployment(EngineDeployment):
    """A standalone cluster with one session on the hosts of an inventory.

    Attributes:
        kafka: whether jobs may read Kafka.
        configuration: of the cluster.
    """

    ENGINE = "Spark"
    NAME = "spark"
    PROCESSES = (DRIVER, WORKER, MASTER)

    def __init__(self, hosts: Hosts, *, kafka: bool = False) -> None:
        """Configure it.

        Args:
            hosts: connected; of a virtual rack.
            kafka: whether jobs may read Kafka.

        Raises:
            NovaError: for real hosts, or hosts with too little memory.
        """
        super().__init__(hosts)
        inventory = hosts.inventory
        if not inventory.virtual:
            raise NovaError(
                f"inventory {inventory.name}: experiments on Spark need virtual hosts, which share "
                "this machine's PySpark; `nova translate --engine spark` writes files for others"
            )
        self._home = check()
        nodes = []
        for host in inventory.hosts:
            memory, role = host.memory, "worker"
            if host.name == self.sink:
                memory, role = memory and memory - DRIVER_MB * MB, "coordinator"
            nodes.append(Node(host.name, host.address, memory, role=role))
        self.kafka = kafka
        self.configuration = ClusterConfiguration(
            nodes,
            str(self._home),
            sys.executable,
            # All virtual hosts have the same users.
            self.work(self.sink),
            slots=tasks.SLOTS,
        )

    @property
    def orders(self) -> str:
        """Directory of the driver's orders, on the sink's host."""
        return f"{self.configuration.work_directory}/orders"

    @property
    def version(self) -> str:
        """Of PySpark."""
        from importlib.metadata import version

        return version("pyspark")

    @property
    def home_path(self) -> Path:
        """PySpark's directory."""
        return self._home

    @property
    def runtime_files(self) -> Sequence[Path]:
        """Examples of files that hosts have to see."""
        import nova_spark

        return [
            self._home / "bin" / "spark-class",
            Path(sys.executable),
            Path(str(nova_spark.__file__)),
        ]

    def check(self) -> None:
        """Whether Spark can start here."""
        check()

    def node(self, name: str) -> Node:
        """A host, as Spark is configured for it."""
        return next(node for node in self.configuration.nodes if node.name == name)

    def files(self, name: str) -> dict[str, str]:
        """Configuration of a host."""
        return self.configuration.files(self.node(name))

    def commands(self, name: str) -> dict[str, str]:
        """A Worker; on the sink's host the Master before it and the driver after it."""
        node = self.node(name)
        commands = {WORKER: self.configuration.worker_command(node)}
        if name == self.sink:
            commands = {
                MASTER: self.configuration.master_command(node),
                **commands,
                DRIVER: self._driver_command(node),
            }
        return commands

    def _driver_command(self, node: Node) -> str:
        c, work = self.configuration, self.configuration.work_directory
        settings = {
            "spark.driver.host": node.address,
            "spark.driver.bindAddress": node.address,
            "spark.driver.memory": f"{DRIVER_HEAP}m",
            "spark.driver.extraJavaOptions": f"{QUICK} -Xss8m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.ui.port": str(UI_PORT),
            "spark.ui.killEnabled": "false",
            # Hosts with part of a core are slow, not dead.
            "spark.network.timeout": "300s",
        }
        # All executors are alike.
        client = kafka_client() if self.kafka else None
        settings |= realtime.settings(min(c.heaps.values()), client, queries=True)
        environment = {
            "SPARK_HOME": c.spark_home,
            "SPARK_CONF_DIR": f"{work}/conf",
            "SPARK_LOCAL_IP": node.address,
            "SPARK_PUBLIC_DNS": node.address,
            "SPARK_LOCAL_DIRS": f"{work}/tmp",
            "PYSPARK_PYTHON": c.python,
        }
        words = [f"{name}={value}" for name, value in environment.items()]
        words += [c.python, "-P", "-m", "nova_spark.driver", "--directory", self.orders]
        words += ["--master", c.master_url, "--addresses", json.dumps(c.addresses)]
        words += ["--set", json.dumps(settings)]
        return f"mkdir -p {self.orders} {work}/tmp && cd {work} && exec env {shlex.join(words)}"

    def launch(self) -> None:
        """Start the driver after all Workers have registered, so that it gets its executors."""
        self.hosts.map(lambda host: self.start(host, (MASTER, WORKER)))
        self._await_workers()
        self.start(self.hosts[self.sink], (DRIVER,))

    def _await_workers(self) -> None:
        until = time.monotonic() + REGISTER_SECONDS
        while True:
            missing = {node.address: node.name for node in self.configuration.nodes}
            for address in registered(self.configuration.master_ui):
                missing.pop(address, None)
            if not missing:
                return
            if time.monotonic() > until:
                raise NovaError(
                    f"no Worker of {', '.join(missing.values())} has registered within "
                    f"{REGISTER_SECONDS:g} s{self.last_words()}"
                )
            time.sleep(POLL_SECONDS)

    def wait(self, timeout_s: float) -> None:
        """Wait until the driver has an executor on every host."""
        until = time.monotonic() + timeout_s
        while True:
            state = self.state("driver.json")
            if state is not None and state.state == READY:
                return
            if state is not None:
                raise NovaError(f"Spark: {state.why}")
            if self.last_words() or time.monotonic() > until:
                raise NovaError(f"Spark's driver on {self.sink} is not ready")
            time.sleep(POLL_SECONDS)

    def state(self, name: str) -> State | None:
        """The driver's state in a file; None without the file."""
        file = f"{self.orders}/{name}"
        text = self.hosts[self.sink].run(f"cat {file} 2>/dev/null", check=False).stdout
        return from_json(text, State, f"{self.sink}: {file}") if text else None


class SparkRecords:
    """See `nova_harness.engines.base.Cluster`: applications, by the records of their jobs.

    Args:
        address: of the application's pages, or a history server; empty for the record's address.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def document(self, plan: Plan) -> str:
        """Its operators."""
        return flow_of(plan).to_json()

    def verify(self, job: str, document: str) -> Verification:
        """Where tasks ran in the last batches of the job whose record is the file ``job``."""
        record = read(Path(job), Record)
        planned = None
        if document:
            planned = Flow.from_json(document).placement
        rest = Rest(self.address or record.url, record.application)
        return verify(rest, record.steps, planned)

    def hosts(self) -> dict[str, bool]:
        """Not known without a Master."""
        return {}

    def jobs(self) -> list[JobState]:
        """Not known without a record."""
        raise NovaError("Spark tells of a job by its record: nova cluster verify RECORD")

    def stop(self, job: str) -> str:
        """Refused: the program that submitted a job has to end it."""
        raise NovaError(f"job {job}: end the program that submitted it; Spark ends its tasks")


class SparkEngine:
    """See `nova_harness.engines.base.Engine`."""

    name = "spark"
    # A Worker and an executor.
    engine_bytes = 900 << 20
    stays_warm = False

    def __init__(self, deployment: SparkDeployment) -> None:
        self.deployment = deployment

    @property
    def address(self) -> str:
        """Of the Master's pages."""
        return self.deployment.configuration.master_ui

    def up(self, tell: Tell) -> None:
        """Start Spark, with its driver."""
        self.deployment.up(tell)

    def close(self) -> None:
        """Nothing to close on this machine."""

    def down(self) -> list[str]:
        """End Spark."""
        return self.deployment.down()

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> SparkJob:
        """Give the driver an order, and wait until its first batch has finished."""
        d, given = self.deployment, sources(0)
        number = 1 + max(self._numbers(), default=-1)
        order = {
            "name": name,
            "flow": flow.to_json(),
            "sources": self._sent(given, number).to_json(),
            "results": d.result_file(RESULTS),
            "checkpoints": f"{d.configuration.work_directory}/checkpoints/{number}",
        }
        with tempfile.TemporaryDirectory(prefix="nova-spark-") as directory:
            path = Path(directory) / "order.json"
            path.write_text(json.dumps(order), "utf-8")
            d.hosts[d.sink].put(path, f"{d.orders}/{number}.order.json")
        job = SparkJob(self, number, flow, given)
        try:
            job.sources = sources(job.await_state().start_ms)
        except BaseException:
            with suppress(NovaError):
                job.end()
            raise
        return job

    def _sent(self, sources: Sources, number: int) -> Sources:
        """The same; files of readings are copied to where an order's driver reads them."""
        host, made = self.deployment.hosts[self.deployment.sink], list(sources.sources)
        for index, one in enumerate(made):
            if one.of_readings and one.path is not None:
                there = f"{self.deployment.orders}/{number}.{index}.readings"
                host.put(Path(one.path), there)
                made[index] = replace(one, path=there)
        return replace(sources, sources=tuple(made))

    def document(self, plan: Plan) -> str:
        """Its operators."""
        return flow_of(plan).to_json()

    def verify(self, job: str, document: str) -> Verification:
        """Where the tasks of an order's last batches ran."""
        number = int(self._known(job).job)
        return SparkJob(self, number, Flow.from_json(document)).verify()

    def jobs(self) -> list[JobState]:
        """The driver's orders."""
        states = []
        for number in self._numbers():
            state = self.deployment.state(f"{number}.state.json")
            word = "waiting" if state is None else state.state
            runs = word not in (FINISHED, ENDED, FAILED)
            states.append(JobState(str(number), f"order {number}", word, own=True, runs=runs))
        return states

    def _numbers(self) -> list[int]:
        """Numbers of the driver's orders, sorted."""
        d = self.deployment
        names = d.hosts[d.sink].run(f"ls {d.orders} 2>/dev/null", check=False).stdout.split()
        return sorted(int(one.split(".")[0]) for one in names if one.endswith(".order.json"))

    def _known(self, job: str) -> JobState:
        for one in self.jobs():
            if one.job == job:
                return one
        raise NovaError(f"job {job!r}: Spark's driver has no such order; jobs are called by number")

    def stop(self, job: str) -> str:
        """End an order."""
        SparkJob(self, int(self._known(job).job)).end()
        return self._known(job).state

    def hosts(self) -> dict[str, bool]:
        """Hosts by their Workers."""
        workers = registered(self.deployment.configuration.master_ui)
        return {one.name: one.address in workers for one in self.deployment.configuration.nodes}


class SparkJob:
    """See `nova_harness.engines.base.Job`."""

    def __init__(
        self,
        engine: SparkEngine,
        number: int,
        flow: Flow | None = None,
        sources: Sources | None = None,
    ) -> None:
        self.deployment, self.number, self.name = engine.deployment, number, str(number)
        self._flow, self._sources = flow, sources
        driver = self.deployment.state("driver.json")
        self._rest = Rest(driver.url, driver.application) if driver else None

    @property
    def flow(self) -> Flow:
        """The planned operators."""
        assert self._flow is not None
        return self._flow

    @property
    def sources(self) -> Sources:
        """Where its tuples come from; only of a job that this process started."""
        assert self._sources is not None
        return self._sources

    @sources.setter
    def sources(self, sources: Sources) -> None:
        self._sources = sources

    @property
    def document(self) -> str:
        """Its operators."""
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
        """The driver's state of the order; None before there is any.

        Raises:
            RunError: for a failed order.
        """
        state = self.deployment.state(f"{self.number}.state.json")
        if state is not None and state.state == FAILED:
            raise RunError(f"Spark: {state.why}")
        return state

    def await_state(self) -> State:
        """Wait until tuples are about to flow."""
        until = time.monotonic() + PREPARE_SECONDS
        while (state := self.state()) is None:
            self._all_run()
            if time.monotonic() > until:
                raise RunError(f"Spark: no batch within {PREPARE_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        return state

    def _all_run(self) -> None:
        ended = self.deployment.last_words()
        if ended:
            raise RunError(f"Spark{ended}")

    def await_running(self) -> None:
        """All stages run before any tuple flows."""
        self.await_state()

    def verify(self) -> Verification:
        """Where the tasks of its last batches ran, as Spark reports it."""
        state = self.await_state()
        planned = self.flow.placement
        return verify(self.rest, state.steps, planned, self.deployment.configuration.addresses)

    def look(self) -> bool:
        """Whether all due readings are processed."""
        self._all_run()
        state = self.state()
        return state is not None and state.state == FINISHED

    def counters(self) -> None:
        """None: Spark counts by stage, which has several operators and lasts for a batch."""

    def operators(self, before: None, after: None) -> list[OperatorCounts]:
        """Where operators run; their counts are unknown."""
        return [OperatorCounts(name=one.name, node=one.node) for one in self.flow.operators]

    def read_offsets(self) -> dict[tuple[str, int], int]:
        """Messages that finished batches have read, per topic and partition."""
        read = self.await_state().read
        return {(one.topic, one.partition): read.get(one.source, 0) for one in self.sources.sources}

    def end(self) -> None:
        """Stop its queries through the driver."""
        d = self.deployment
        d.hosts[d.sink].run(f"touch {d.orders}/{self.number}.end")
        until = time.monotonic() + END_SECONDS
        while (state := self.state()) is None or state.state not in (FINISHED, ENDED):
            self._all_run()
            if time.monotonic() > until:
                raise RunError(f"Spark: queries do not stop within {END_SECONDS:g} s")
            time.sleep(POLL_SECONDS)

    def results(self, scratch: Path) -> ResultRecords:
        """Results that its sinks have written: of pairs, in a file for every batch."""
        d = self.deployment
        if self.flow.has_columns:
            return d.read_results(self.flow, f"{RESULTS}/{realtime.ROWS}", scratch)
        local = scratch / "results"
        d.hosts[d.sink].run(f"mkdir -p {d.result_file(RESULTS)}/0")
        d.hosts[d.sink].get(d.result_file(RESULTS), local)
        try:
            records = results.read(local / "0")
            # A batch whose file cannot be written fails, and its job with it.
            return ResultRecords(records, 0, announced=len(records))
        finally:
            shutil.rmtree(local)
