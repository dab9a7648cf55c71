"""A Spark cluster on this machine's loopback: for tests, and for people without hosts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.local_processes import LocalProcesses, free_ports, loopback
from nova_engines.nodes import COORDINATOR, Node, write_files
from nova_spark.configuration import SLOTS, ClusterConfiguration
from nova_spark.home import check
from nova_spark.rest import registered

START_S = 90.0


class LocalCluster(LocalProcesses):
    """A Master, and a Worker for every node, as processes of this machine.

    As a context manager it starts on entry and ends what it started on exit.

    Args:
        node_names: one Worker for each; the first one's "host" runs the Master.
        directory: for configuration, logs and temporary files: a subdirectory for every node.
        python: for what runs in Python.
        slots: tasks a node runs at once.
        start_timeout_s: until all Workers must have registered.

    Attributes:
        configuration: of the nodes; its work directory is the first node's.
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
        home = check()
        self.directory = directory.absolute()
        self.start_timeout_s = start_timeout_s
        super().__init__()
        network, port = loopback(), free_ports(4)
        nodes = [
            Node(name, f"{network}.{i}", role="worker" if i > 1 else COORDINATOR)
            for i, name in enumerate(node_names, 1)
        ]
        self.configuration = ClusterConfiguration(
            nodes,
            str(home),
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

    @property
    def settings(self) -> dict[str, str]:
        """What a session on this cluster needs."""
        address = self.configuration.coordinator.address
        return {
            "spark.master": self.configuration.master_url,
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
        }

    def launch(self) -> None:
        """Start everything and wait until all Workers have registered."""
        nodes = self.configuration.nodes
        self._launch("master", nodes[0])
        for node in nodes:
            self._launch(node.name, node)
        self._await_registered()

    def _launch(self, name: str, node: Node) -> None:
        work = self._work(list(self.configuration.nodes).index(node))
        configuration = replace(self.configuration, work_directory=str(work))
        write_files(configuration.files(node), work)
        if name == "master":
            self.run(name, configuration.master_command(node), work / "master.out")
        else:
            self.run(name, configuration.worker_command(node), work / "worker.out")

    def _await_registered(self) -> None:
        until = time.monotonic() + self.start_timeout_s
        required = {node.address: node.name for node in self.configuration.nodes}
        while missing := set(required) - set(registered(self.configuration.master_ui)):
            self.check()
            if time.monotonic() > until:
                late = ", ".join(required[address] for address in sorted(missing))
                raise NovaError(
                    f"no Worker of {late} has registered after {self.start_timeout_s:g} s; "
                    f"see {self.directory}/node*/*.out"
                )
            time.sleep(0.1)
