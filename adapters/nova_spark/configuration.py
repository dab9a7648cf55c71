"""Configuration and start commands of a standalone cluster for each host, generated."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from nova_engines.nodes import COORDINATOR, MB, ConfigurationError, Node, coordinator_of

# MiB; Spark refuses executors below 450, and those of 450 crash when they start.
EXECUTOR_HEAP = 512
# Tasks a node runs at once.
SLOTS = 2
# Resident memory, MiB, as measured: a Master or Worker with a heap of 128 MiB; what an executor
# takes beside its heap; its Python daemon and a Python worker for two slots, or state in RocksDB.
DAEMON_HEAP = 128
MASTER = 240
WORKER = 240
EXECUTOR_BESIDE_HEAP = 160
PYTHON = 200
# What sshd, the shell and the kernel's part of a host's processes take.
RESERVE = 24
MOST_HEAP = 2048

# One garbage-collection thread and the quick compiler only: daemons are almost idle.
DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
MASTER_MAIN = "org.apache.spark.deploy.master.Master"
WORKER_MAIN = "org.apache.spark.deploy.worker.Worker"
# Applications are submitted by the Master's own protocol; its web pages only display.
NO_WEB = "-Dspark.master.rest.enabled=false -Dspark.ui.killEnabled=false"
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class ClusterConfiguration:
    """What every host of a cluster needs.

    Attributes:
        nodes: all hosts, one of them the coordinator.
        spark_home: Spark as hosts see it, e.g. PySpark's directory; absolute.
        python: the Python with PySpark's requirements, as hosts see it.
        work_directory: where configuration, logs and temporary files go on every host, absolute.
        master_port: of the Master.
        master_ui_port: of the Master's pages.
        worker_port: of every Worker.
        worker_ui_port: of every Worker's pages.
        slots: tasks a node runs at once.
    """

    nodes: Sequence[Node]
    spark_home: str
    python: str = "python3"
    work_directory: str = "/tmp/nova-spark"
    master_port: int = 7077
    master_ui_port: int = 8080
    worker_port: int = 7078
    worker_ui_port: int = 8081
    slots: int = SLOTS

    def __post_init__(self) -> None:
        coordinator_of(self.nodes)
        if self.slots < 1:
            raise ConfigurationError(f"slots: {self.slots}: expected 1 or more")
        for node in self.nodes:
            heap(node)
            if ":" in node.address:
                raise ConfigurationError(
                    f"host {node.name}: address {node.address!r}: on Spark, expected a name or an "
                    "IPv4 address"
                )
        for what, path in (
            ("spark_home", self.spark_home),
            ("work_directory", self.work_directory),
        ):
            if not PurePosixPath(path).is_absolute():
                raise ConfigurationError(f"{what}: {path!r}: expected an absolute path")

    @property
    def coordinator(self) -> Node:
        """The host of the Master."""
        return coordinator_of(self.nodes)

    @property
    def master_url(self) -> str:
        """URL at which applications reach the cluster."""
        return f"spark://{self.coordinator.address}:{self.master_port}"

    @property
    def master_ui(self) -> str:
        """URL of the Master's pages."""
        return f"http://{self.coordinator.address}:{self.master_ui_port}"

    @property
    def addresses(self) -> dict[str, str]:
        """Address of each node."""
        return {node.name: node.address for node in self.nodes}

    @property
    def heaps(self) -> dict[str, int]:
        """Heap of each node's executor, MiB."""
        return {node.name: heap(node) for node in self.nodes}

    def files(self, node: Node) -> dict[str, str]:
        """A host's files: path relative to the work directory, text."""
        return {"conf/log4j2.properties": LOGGING}

    def master_command(self, node: Node) -> str:
        """The shell command that starts the Master.

        Raises:
            ConfigurationError: for a host that is not the coordinator.
        """
        if node.role != COORDINATOR:
            raise ConfigurationError(f"host {node.name} is not the coordinator")
        arguments = ["--host", node.address, "--port", str(self.master_port)]
        arguments += ["--webui-port", str(self.master_ui_port)]
        options = {"SPARK_MASTER_OPTS": NO_WEB}
        return self._command(node, MASTER_MAIN, arguments, options)

    def worker_command(self, node: Node) -> str:
        """The shell command that starts the host's Worker."""
        arguments = [
            *("--host", node.address, "--port", str(self.worker_port)),
            *("--webui-port", str(self.worker_ui_port), "--cores", str(self.slots)),
            *("--memory", f"{heap(node)}m", "--work-dir", f"{self.work_directory}/work"),
            self.master_url,
        ]
        return self._command(node, WORKER_MAIN, arguments, {"SPARK_WORKER_OPTS": NO_WEB})

    def _command(
        self, node: Node, main: str, arguments: Sequence[str], options: dict[str, str]
    ) -> str:
        environment = {
            "SPARK_HOME": self.spark_home,
            "SPARK_CONF_DIR": f"{self.work_directory}/conf",
            "SPARK_LOCAL_IP": node.address,
            "SPARK_LOCAL_DIRS": f"{self.work_directory}/tmp",
            "SPARK_DAEMON_MEMORY": f"{DAEMON_HEAP}m",
            "SPARK_DAEMON_JAVA_OPTS": DAEMON_OPTIONS,
            "PYSPARK_PYTHON": self.python,
            **options,
        }
        words = [f"{name}={value}" for name, value in environment.items()]
        words += [f"{self.spark_home}/bin/spark-class", main, *arguments]
        temporary = shlex.quote(f"{self.work_directory}/tmp")
        return f"mkdir -p {temporary} && exec env {shlex.join(words)}"


def heap(node: Node) -> int:
    """Heap of the executor on a host, MiB.

    Raises:
        ConfigurationError: naming the host that is too small, and the memory it needs.
    """
    if node.memory is None:
        return EXECUTOR_HEAP
    others = RESERVE + WORKER + EXECUTOR_BESIDE_HEAP + PYTHON
    others += MASTER if node.role == COORDINATOR else 0
    executor_heap = min(node.memory // MB - others, MOST_HEAP)
    if executor_heap < EXECUTOR_HEAP:
        what = "a Master and a Worker" if node.role == COORDINATOR else "a Worker"
        raise ConfigurationError(
            f"host {node.name}: memory: {node.memory // MB} MiB is too little for {what} with an "
            f"executor; at least {others + EXECUTOR_HEAP} MiB"
        )
    return executor_heap
