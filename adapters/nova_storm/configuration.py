"""Configuration and commands of ZooKeeper, nimbus and each node's supervisor."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from nova_core.errors import NovaError

SCHEDULER = "nova.storm.PlanScheduler"
NODE = "nova.node"
PLACEMENT = "nova.placement"
# As Control.java calls it.
CONTROL = "nova.control"
NIMBUS_PORT = 6627
# Daemons do little but have many threads.
DAEMON_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
HEAP_MB = {"zookeeper": 64, "nimbus": 256, "supervisor": 128}
MAIN = {
    "zookeeper": "nova.storm.ZooKeeper",
    "nimbus": "org.apache.storm.daemon.nimbus.Nimbus",
    "supervisor": "org.apache.storm.daemon.supervisor.Supervisor",
}
# Ports a node's workers listen on; one per topology that runs there.
SLOTS = 4


@dataclass(frozen=True)
class Node:
    """A node of the problem that Storm uses.

    Attributes:
        name: of the problem.
        address: where others reach it.
        first_port: of its supervisor; its workers' follow. Nodes on one host need their own.
    """

    name: str
    address: str
    first_port: int = 6700


@dataclass(frozen=True)
class ClusterConfiguration:
    """A cluster of Storm.

    Attributes:
        nodes: all that run a supervisor.
        home: the engine home as hosts see it.
        coordinator: address of the host of nimbus and ZooKeeper.
        work: directory of a host for configuration, state and logs.
        zookeeper_port: of ZooKeeper.
        nimbus_port: of nimbus' Thrift interface.
        worker_heap_mb: of every worker.
        java: the program.
        settings: more of storm.yaml, added or replaced.
    """

    nodes: Sequence[Node]
    home: str
    coordinator: str
    work: str
    zookeeper_port: int = 2181
    nimbus_port: int = NIMBUS_PORT
    worker_heap_mb: int = 256
    java: str = "java"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for node in self.nodes:
            other = seen.setdefault(f"{node.address} {node.first_port}", node.name)
            if other != node.name:
                raise NovaError(
                    f"node {node.name!r}: at {node.address}, as {other!r}: Storm needs an address "
                    "for each node (`host` in the problem)"
                )

    def common(self) -> dict[str, Any]:
        """What nimbus, supervisors and clients agree on."""
        return {
            "storm.zookeeper.servers": [self.coordinator],
            "storm.zookeeper.port": self.zookeeper_port,
            "nimbus.seeds": [self.coordinator],
            "nimbus.thrift.port": self.nimbus_port,
            "storm.scheduler": SCHEDULER,
            # A plan says which nodes are used. Storm would not use one for half an hour after
            # nimbus has missed its supervisor three times.
            "blacklist.scheduler.tolerance.count": 2**31 - 1,
            "storm.local.dir": f"{self.work}/state",
            # Nimbus' database of metrics is 70 MB of native code for a page of the UI.
            "storm.metricstore.class": "org.apache.storm.metricstore.NoOpMetricStore",
            # How soon nimbus learns that an executor runs; Storm's own value is a minute.
            "executor.metrics.frequency.secs": 5,
            **self.settings,
        }

    def nimbus(self) -> dict[str, Any]:
        """storm.yaml of nimbus."""
        return {**self.common(), "storm.local.hostname": self.coordinator}

    def supervisor(self, node: Node) -> dict[str, Any]:
        """storm.yaml of a node; a user's own cluster needs the settings that `common` lacks."""
        first = node.first_port
        quick = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        return {
            **self.common(),
            "storm.local.hostname": node.address,
            "supervisor.scheduler.meta": {NODE: node.name},
            "supervisor.thrift.port": first,
            "supervisor.slots.ports": list(range(first + 1, first + 1 + SLOTS)),
            "storm.workers.artifacts.dir": f"{self.work}/workers",
            "storm.log4j2.conf.dir": f"{self.home}/log4j2",
            "worker.childopts": f"-Xmx{self.worker_heap_mb}m {quick}",
            # Storm's own value names options that current versions of Java refuse.
            "worker.profiler.childopts": "",
            "topology.worker.logwriter.childopts": f"-Xmx32m {quick}",
            **self.settings,
        }

    def command(self, process: str) -> str:
        """The shell command of ``zookeeper``, ``nimbus`` or ``supervisor``, on its host."""
        arguments: list[str] = []
        if process == "zookeeper":
            arguments = [self.coordinator, str(self.zookeeper_port), f"{self.work}/zookeeper"]
        options = [
            f"-Dstorm.log.dir={self.work}/log",
            f"-Dstorm.conf.file={self.work}/{process}.yaml",
        ]
        java = java_command(self.home, self.java, HEAP_MB[process], options)
        return f"exec {shlex.join([*java, MAIN[process], *arguments])}"

    def storm_yaml(self, node: Node | None) -> str:
        """The text of storm.yaml of a node's supervisor; without node, of nimbus."""
        document = self.nimbus() if node is None else self.supervisor(node)
        return yaml.safe_dump(document, sort_keys=False)


def java_command(home: str, java: str, heap_mb: int, options: Sequence[str]) -> list[str]:
    """Words of a command: Java with Storm's jars, to be followed by a class and arguments."""
    jars = [f"{home}/{directory}/*" for directory in ("lib", "extlib-daemon", "extlib")]
    return [
        java,
        f"-Xmx{heap_mb}m",
        *DAEMON_OPTIONS,
        f"-Dstorm.home={home}",
        f"-Dlog4j.configurationFile={home}/log4j2/cluster.xml",
        *options,
        "-cp",
        ":".join(jars),
    ]
