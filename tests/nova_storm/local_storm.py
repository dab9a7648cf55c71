"""A cluster of Storm on this machine's loopback: for tests, for trying out.

Every node has an address of its own in 127/8 and a supervisor, nimbus and ZooKeeper a process each,
so that nodes are configured as real hosts are.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nova_engines.installing import java
from nova_engines.local_processes import LocalProcesses, free_ports, loopback
from nova_engines.nodes import write_files
from nova_storm.configuration import SLOTS, ClusterConfiguration, Node
from nova_storm.home import StormHome
from nova_storm.nimbus import Nimbus, StormError

START_S = 90.0
POLL_S = 0.3
# How long to wait for nimbus before checking whether a process has ended, s.
LOOK_S = 5.0
# Storm's own values are for long-lived clusters: a loss is noticed after half a minute.
QUICK = {
    "nimbus.monitor.freq.secs": 2,
    "supervisor.monitor.frequency.secs": 1,
    "task.heartbeat.frequency.secs": 1,
    "worker.heartbeat.frequency.secs": 1,
    "executor.metrics.frequency.secs": 1,
    "supervisor.worker.shutdown.sleep.secs": 1,
}


class LocalCluster(LocalProcesses):
    """ZooKeeper, nimbus, and a supervisor for every node, as processes of this machine.

    As a context manager it starts on entry and ends what it started on exit, workers included.

    Args:
        home: the engine home; must be installed.
        node_names: one supervisor for each.
        directory: for configuration, state and logs: a subdirectory for every process.
        settings: of storm.yaml, added or replaced.

    Attributes:
        configuration: what the nodes were configured with.
        addresses: of every node.
        nimbus: a client.
        processes: running ones, by name: ``zookeeper``, ``nimbus``, and nodes' names.
    """

    def __init__(
        self,
        home: StormHome,
        node_names: Sequence[str],
        directory: Path,
        *,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        home.check()
        super().__init__()
        self.home, self.directory = home, directory.absolute()
        network, first = loopback(), free_ports(2 + (SLOTS + 1) * len(node_names))
        # Netty listens on all addresses, so nodes on one machine need ports of their own.
        nodes = [
            Node(name, f"{network}.{i}", first + 2 + (SLOTS + 1) * (i - 2))
            for i, name in enumerate(node_names, 2)
        ]
        self.configuration = ClusterConfiguration(
            nodes,
            str(home.path),
            f"{network}.1",
            str(self.directory),
            zookeeper_port=first,
            nimbus_port=first + 1,
            worker_heap_mb=96,
            java=java("Storm"),
            settings={**QUICK, **(settings or {})},
        )
        self.addresses = {node.name: node.address for node in nodes}
        self.nimbus = Nimbus(home, f"{network}.1", first + 1, self.configuration.java)

    def launch(self) -> None:
        """Start everything and wait until all supervisors have registered."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.launch_one("zookeeper")
        self._await_port(self.configuration.zookeeper_port)
        self.launch_one("nimbus")
        for node in self.configuration.nodes:
            self.launch_one(node.name)
        self._await_port(self.configuration.nimbus_port)
        self.await_supervisors()

    def launch_one(self, name: str) -> None:
        """Start one process: ``zookeeper``, ``nimbus``, or a node's supervisor."""
        node = next((n for n in self.configuration.nodes if n.name == name), None)
        process = name if node is None else "supervisor"
        number = "" if node is None else str(self.configuration.nodes.index(node))
        work = self.directory / f"{process}{number}"
        configuration = replace(self.configuration, work=str(work))
        write_files({f"{process}.yaml": configuration.storm_yaml(node)}, work)
        self.run(name, configuration.command(process), work / "out")

    def stop(self) -> None:
        """End all processes of this cluster, workers included."""
        super().stop()
        self._end_workers()

    def _end_workers(self) -> None:
        """Workers outlive their supervisor, which writes down their process ids."""
        for path in self.directory.glob("supervisor*/state/workers/*/pids/*"):
            if not path.name.isdigit():
                continue
            pid = int(path.name)
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                # A process id may have been reused.
                if str(self.directory).encode() in command:
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue

    def await_supervisors(self) -> None:
        """Wait until all supervisors have registered."""
        required = len(self.configuration.nodes)
        until, registered = time.monotonic() + START_S, 0
        while time.monotonic() < until:
            self.check(StormError)
            try:
                rest = min(until - time.monotonic(), LOOK_S)
                registered = len(self.nimbus.status(rest, required)["supervisors"])
            except StormError:
                # Nimbus listens before it is leader.
                registered = 0
            if registered == required:
                return
            time.sleep(POLL_S)
        raise StormError(
            f"{registered} of {required} supervisors have registered; logs: {self.directory}"
        )

    def _await_port(self, port: int) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            self.check(StormError)
            try:
                socket.create_connection((self.configuration.coordinator, port), 1).close()
            except OSError:
                time.sleep(POLL_S)
            else:
                return
        raise StormError(f"nothing listens on port {port}; logs: {self.directory}")
