"""A Spark cluster on this machine's loopback: for tests, for trying out, for people without hosts.

Every node has an address of its own in 127/8, so that nodes are configured as real hosts are.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from nova_core.errors import NovaError
from nova_spark.configuration import COORDINATOR, ClusterConfiguration, Node
from nova_spark.engine import check, spark_home
from nova_spark.place import SLOTS

START_S = 90.0
STOP_S = 10.0
# Below what Linux hands out for outgoing connections.
PORTS = range(20000, 32000, 8)
QUOTED = 200


class LocalCluster:
    """A Master, and a Worker for every node, as processes of this machine.

    As a context manager it starts on entry and ends what it started on exit.

    Args:
        node_names: one Worker for each; the first one's "host" runs the Master.
        directory: for configuration, logs and temporary files: a subdirectory for every node.
        python: for what runs in Python.
        slots: tasks a node runs at once.
        start_timeout_s: until all Workers must have registered.

    Attributes:
        configuration: what the nodes were configured with; its work directory is the first's.
        processes: running ones by name: ``master`` and a node's name for its Worker.
    """

    def __init__(
        self,
        node_names: Sequence[str],
        directory: Path,
        *,
        python: str,
        slots: int = SLOTS,
        start_timeout_s: float = START_S,
    ) -> None:
        check()
        self.directory = directory.absolute()
        self.start_timeout_s = start_timeout_s
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        network = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
        port = _free_ports()
        nodes = [
            Node(name, f"{network}.{i}", role="worker" if i > 1 else COORDINATOR)
            for i, name in enumerate(node_names, 1)
        ]
        self.configuration = ClusterConfiguration(
            nodes,
            str(spark_home()),
            python,
            str(self._work(0)),
            master_port=port,
            master_ui_port=port + 1,
            worker_port=port + 2,
            worker_ui_port=port + 3,
            slots=slots,
        )

    def _work(self, index: int) -> Path:
        return self.directory / f"node{index}"

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def settings(self) -> dict[str, str]:
        """What a session on this cluster needs beside `nova_spark.place.SETTINGS`."""
        address = self.configuration.coordinator.address
        return {
            "spark.master": self.configuration.master_url,
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
        }

    def start(self) -> None:
        """Start everything and wait until all Workers have registered.

        Raises:
            NovaError: when a process ends at once or does not register in time; nothing of the
                cluster is left running then.
        """
        nodes = self.configuration.nodes
        try:
            self._launch("master", nodes[0])
            for node in nodes:
                self._launch(node.name, node)
            self._await_registered()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes of this cluster: the Workers first, who end their executors."""
        ending = list(self.processes.values())
        self.processes.clear()
        for process in reversed(ending):
            process.terminate()
        until = time.monotonic() + STOP_S
        for process in ending:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def registered(self) -> list[str]:
        """Addresses of the Workers the Master knows."""
        c = self.configuration
        url = f"http://{c.coordinator.address}:{c.master_ui_port}/json/"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return [str(w["host"]) for w in told["workers"] if w["state"] == "ALIVE"]

    def _launch(self, name: str, node: Node) -> None:
        work = self._work(list(self.configuration.nodes).index(node))
        configuration = replace(self.configuration, work_directory=str(work))
        configuration.write(node, work)
        make = configuration.master_command if name == "master" else configuration.worker_command
        with self._log(name).open("wb") as out:
            # A session of its own: Ctrl-C is for whoever uses the cluster, who then stops it.
            self.processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", make(node)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        nodes = [node.name for node in self.configuration.nodes]
        index, kind = (0, "master") if name == "master" else (nodes.index(name), "worker")
        return self._work(index) / f"{kind}.out"

    def _await_registered(self) -> None:
        until = time.monotonic() + self.start_timeout_s
        wanted = {node.address: node.name for node in self.configuration.nodes}
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    text = self._log(name).read_text(errors="replace").strip()[-QUOTED:]
                    raise NovaError(f"{name} ended with code {process.returncode}: {text.strip()}")
            try:
                missing = set(wanted) - set(self.registered())
            except OSError:
                missing = set(wanted)
            if not missing:
                return
            if time.monotonic() > until:
                late = ", ".join(wanted[address] for address in sorted(missing))
                raise NovaError(
                    f"no Worker of {late} has registered after {self.start_timeout_s:g} s; "
                    f"see {self.directory}/node*/*.out"
                )
            time.sleep(0.1)


def _free_ports() -> int:
    """The first of eight ports in a row that nothing on this machine listens on."""
    for first in random.sample(PORTS, len(PORTS)):
        sockets = [socket.socket() for _ in range(PORTS.step)]
        try:
            for port, one in enumerate(sockets, first):
                one.bind(("", port))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise NovaError(f"no eight ports in a row are free between {PORTS.start} and {PORTS.stop}")
