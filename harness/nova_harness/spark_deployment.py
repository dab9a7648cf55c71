"""Spark on the hosts of a virtual rack.

A Master, the driver and a Worker run on the sink's host, a Worker on every other; executors are
processes of the Workers' jobs. Hosts use this machine's PySpark and Python.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_harness.deployment import EngineDeployment
from nova_spark import realtime
from nova_spark.configuration import MB, ClusterConfiguration, Node
from nova_spark.driver import READY, State
from nova_spark.engine import check, spark_home
from nova_spark.place import SLOTS
from nova_testbed.connection import HostError

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts

MASTER, WORKER, DRIVER = "nova_spark_master", "nova_spark_worker", "nova_spark_driver"
# The driver's heap, the least Spark takes, and all it has on its host: Java and Python.
DRIVER_HEAP = 512
DRIVER_MB = 1000
UI_PORT = 4040
POLL_SECONDS = 0.5
REGISTER_SECONDS = 90.0
READY_SECONDS = 170.0
# The quick compiler alone: hosts have part of a core, and runs take a minute.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class SparkDeployment(EngineDeployment):
    """A standalone cluster with one session on the hosts of an inventory.

    Attributes:
        real_time: whether jobs run in Real-Time Mode.
        configuration: of the cluster.
    """

    ENGINE = "Spark"
    NAME = "spark"
    PROCESSES = (DRIVER, WORKER, MASTER)

    def __init__(self, hosts: Hosts, *, real_time: bool = False) -> None:
        """Configure it.

        Args:
            hosts: connected; of a virtual rack.
            real_time: whether jobs run in Real-Time Mode.

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
        check()
        nodes = []
        for host in inventory.hosts:
            memory, role = host.memory, "worker"
            if host.name == self.sink:
                memory, role = memory and memory - DRIVER_MB * MB, "coordinator"
            nodes.append(Node(host.name, host.address, memory, role))
        self._home = Path(str(spark_home()))
        self.real_time = real_time
        self.configuration = ClusterConfiguration(
            nodes,
            str(self._home),
            sys.executable,
            # All virtual hosts have the same users.
            self.work(self.sink),
            slots=realtime.SLOTS if real_time else SLOTS,
        )

    @property
    def orders(self) -> str:
        """Where the driver looks for orders, on the sink's host."""
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
        """What hosts have to see, for example."""
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
            # A run on hosts with part of a core is slow, not dead.
            "spark.network.timeout": "300s",
        }
        if self.real_time:
            # All executors are alike.
            settings |= realtime.settings(min(c.heaps.values()))
        environment = {
            "SPARK_HOME": c.spark_home,
            "SPARK_CONF_DIR": f"{work}/conf",
            "SPARK_LOCAL_IP": node.address,
            "SPARK_PUBLIC_DNS": node.address,
            "SPARK_LOCAL_DIRS": f"{work}/tmp",
            "PYSPARK_PYTHON": c.python,
        }
        words = [f"{name}={value}" for name, value in environment.items()]
        words += [c.python, "-m", "nova_spark.driver", "--directory", self.orders]
        words += ["--master", c.master_url, "--slots", str(c.slots)]
        words += ["--heaps", json.dumps(c.heaps), "--set", json.dumps(settings)]
        if self.real_time:
            words += ["--real-time", json.dumps(c.addresses)]
        return f"mkdir -p {self.orders} {work}/tmp && cd {work} && exec env {shlex.join(words)}"

    def launch(self) -> None:
        """The driver when all Workers have registered, so that it finds what it asks for."""

        def start(name: str, jobs: Sequence[str]) -> None:
            for job, command in self.commands(name).items():
                if job in jobs:
                    log = f"{self.work(name)}/{job}.out"
                    self.hosts[name].start(command, name=job, log=log, keep=True)

        self.hosts.map(lambda host: start(host.name, (MASTER, WORKER)))
        self._await_workers()
        start(self.sink, (DRIVER,))

    def _await_workers(self) -> None:
        until = time.monotonic() + REGISTER_SECONDS
        while True:
            missing = {node.address: node.name for node in self.configuration.nodes}
            for address in self._registered():
                missing.pop(address, None)
            if not missing:
                return
            if time.monotonic() > until:
                raise NovaError(
                    f"no Worker of {', '.join(missing.values())} has registered within "
                    f"{REGISTER_SECONDS:g} s{self.last_words()}"
                )
            time.sleep(POLL_SECONDS)

    def _registered(self) -> list[str]:
        """Addresses of the Workers that the Master knows; none while it does not answer."""
        c = self.configuration
        url = f"http://{c.coordinator.address}:{c.master_ui_port}/json/"
        # Hosts of a cluster are near: no proxy stands between.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=10) as answer:
                told: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return []
        return [str(one["host"]) for one in told["workers"] if one["state"] == "ALIVE"]

    def wait(self, timeout_s: float) -> None:
        """Until the driver has an executor on every host."""
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
        """What the driver has written into a file; None where there is none."""
        file = f"{self.orders}/{name}"
        told = self.hosts[self.sink].run(f"cat {file} 2>/dev/null", check=False).stdout
        try:
            return State.from_json(told) if told else None
        except (ValueError, KeyError, TypeError) as error:
            raise HostError(self.sink, f"{file}: {error}") from error
