"""A Flink cluster on this machine's loopback: for tests, and for people without hosts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nova_engines.installing import java
from nova_engines.local_processes import STOP_S, LocalProcesses, free_ports, loopback
from nova_engines.nodes import COORDINATOR, Node, write_files
from nova_flink.configuration import QUICK_COMPILER, ClusterConfiguration
from nova_flink.home import FlinkHome
from nova_flink.rest import FlinkError, Rest

START_S = 120.0


class LocalCluster(LocalProcesses):
    """A JobManager, and a TaskManager for every node, as processes of this machine.

    As a context manager it starts on entry and ends what it started on exit. It reuses nothing of
    an earlier cluster in the same ``directory``.

    Args:
        home: the engine home; must be installed.
        node_names: one TaskManager for each; the first one's "host" runs the JobManager.
        directory: for configuration, logs and temporary files: a subdirectory for every node.
        settings: configuration keys of Flink, added or replaced.
        task_manager_options: of Java; None takes the home's (its archive of loaded classes), and
            the quick compiler, with which all of them start soon on a small machine.
        job_manager_options: of Java; None takes the home's.
        extra_jars: added to every process's class path.
        start_timeout_s: until all TaskManagers must have registered.
        stop_timeout_s: until processes that do not end are killed.

    Attributes:
        configuration: of the nodes; its work directory is the first node's.
        rest: the cluster's REST interface.
        processes: running ones by name: ``jobmanager`` and a node's name for its TaskManager.
    """

    def __init__(
        self,
        home: FlinkHome,
        node_names: Sequence[str],
        directory: Path,
        *,
        settings: Mapping[str, str | int] | None = None,
        task_manager_options: Sequence[str] | None = None,
        job_manager_options: Sequence[str] | None = None,
        extra_jars: Sequence[Path] = (),
        start_timeout_s: float = START_S,
        stop_timeout_s: float = STOP_S,
    ) -> None:
        home.check()
        super().__init__(stop_timeout_s)
        self.home = home
        self.directory = directory.absolute()
        self.start_timeout_s = start_timeout_s
        network, port = loopback(), free_ports(7)
        self._nodes = [
            Node(name, f"{network}.{i}", role="worker" if i > 1 else COORDINATOR)
            for i, name in enumerate(node_names, 1)
        ]
        if task_manager_options is None:
            task_manager_options = (QUICK_COMPILER, *home.task_manager_options)
        if job_manager_options is None:
            job_manager_options = home.job_manager_options
        self.configuration = ClusterConfiguration(
            self._nodes,
            home.path,
            work_directory=str(self._work(0)),
            rpc_port=port,
            rest_port=port + 1,
            blob_port=port + 2,
            task_manager_port=port + 3,
            data_port=port + 4,
            metrics_ports=port + 5,
            settings=dict(settings or {}),
            java=java(),
            task_manager_options=task_manager_options,
            job_manager_options=job_manager_options,
            extra_jars=extra_jars,
        )
        self.rest = Rest(self.configuration.rest_url)

    def _work(self, index: int) -> Path:
        return self.directory / f"node{index}"

    def launch(self) -> None:
        """Start everything and wait until all TaskManagers have registered."""
        self._launch("jobmanager", self._nodes[0])
        for node in self._nodes:
            self._launch(node.name, node)
        self._await_registered()

    def restart(self, node_name: str) -> None:
        """Start the TaskManager of a node anew, e.g. after it was killed; does not wait for it."""
        self.end([node_name])
        self._launch(node_name, next(node for node in self._nodes if node.name == node_name))

    def _launch(self, name: str, node: Node) -> None:
        work = self._work(self._nodes.index(node))
        configuration = replace(self.configuration, work_directory=str(work))
        if name != "jobmanager":
            command, log = configuration.task_manager_command(node), "taskmanager"
        else:
            shutil.rmtree(work, ignore_errors=True)
            command, log = configuration.coordinator_command(node), "jobmanager"
        write_files(configuration.files(node), work)
        self.run(name, command, *(work / "log" / f"{log}.{end}" for end in ("out", "log")))

    def _await_registered(self) -> None:
        until = time.monotonic() + self.start_timeout_s
        names = [node.name for node in self._nodes]
        while True:
            self.check(FlinkError)
            left = until - time.monotonic()
            try:
                self.rest.wait_task_managers(names, min(1.0, left))
            except FlinkError:
                if left <= 0:
                    raise
                time.sleep(0.1)
            else:
                return
