"""A Flink cluster on this machine's loopback: for tests, for trying out, for people without hosts.

Every node has an address of its own in 127/8, so that nodes are configured as real hosts are.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from nova_engines.installing import java
from nova_flink.configuration import COORDINATOR, QUICK_COMPILER, ClusterConfiguration, Node
from nova_flink.home import FlinkHome
from nova_flink.rest import FlinkError, Rest

START_S = 120.0
STOP_S = 15.0
# Below what Linux hands out for outgoing connections.
PORTS = range(20000, 32000, 8)
# Longest tail of a log that an error quotes.
QUOTED = 200


class LocalCluster:
    """A JobManager, and a TaskManager for every node, as processes of this machine.

    As a context manager it starts on entry and ends what it started on exit. Given the same
    ``directory``, nothing of an earlier cluster is used again.

    Args:
        home: the engine home; must be installed.
        node_names: one TaskManager for each; the first one's "host" runs the JobManager.
        directory: for configuration, logs and temporary files: a subdirectory for every node.
        settings: configuration keys of Flink, added or replaced.
        task_manager_options: of Java; None takes the home's (its archive of loaded classes), and
            the compiler that makes all of them start soon on a small machine.
        job_manager_options: of Java; None takes the home's.
        extra_jars: added to every process's class path.
        start_timeout_s: until all TaskManagers must have registered.
        stop_timeout_s: until processes that do not end are killed.

    Attributes:
        configuration: what the nodes were configured with; its work directory is the first's.
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
        self.home = home
        self.directory = directory.absolute()
        self.start_timeout_s = start_timeout_s
        self.stop_timeout_s = stop_timeout_s
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._node_names = list(node_names)
        network = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
        port = _free_ports()
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

    def start(self) -> None:
        """Start everything and wait until all TaskManagers have registered.

        Raises:
            FlinkError: when a process ends at once or does not register in time; nothing of the
                cluster is left running then.
        """
        try:
            self._launch("jobmanager", self._nodes[0])
            for node in self._nodes:
                self._launch(node.name, node)
            self._await_registered()
        except BaseException:
            self.stop()
            raise

    def restart(self, node_name: str) -> None:
        """Start the TaskManager of a node anew, e.g. after it was killed; does not wait for it."""
        self._end([node_name])
        self._launch(node_name, next(node for node in self._nodes if node.name == node_name))

    def kill(self, name: str) -> None:
        """End one process without warning, as a crash would: ``jobmanager`` or a node's name."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all processes of this cluster."""
        self._end(list(self.processes))

    def _launch(self, name: str, node: Node) -> None:
        number = self._nodes.index(node)
        work = self._work(number)
        configuration = replace(self.configuration, work_directory=str(work))
        if name != "jobmanager":
            command, log = configuration.task_manager_command(node), "taskmanager"
        else:
            shutil.rmtree(work, ignore_errors=True)
            command, log = configuration.coordinator_command(node), "jobmanager"
        configuration.write(node, work)
        (work / "log").mkdir(exist_ok=True)
        with (work / "log" / f"{log}.out").open("wb") as out:
            # A session of its own: Ctrl-C is for whoever uses the cluster, who then stops it.
            self.processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_registered(self) -> None:
        until = time.monotonic() + self.start_timeout_s
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise FlinkError(
                        f"{name} ended with code {process.returncode}: {self._last_words(name)}"
                    )
            left = until - time.monotonic()
            try:
                self.rest.wait_task_managers(self._node_names, min(1.0, left))
            except FlinkError:
                if left <= 0:
                    raise
                time.sleep(0.1)
            else:
                return

    def _last_words(self, name: str) -> str:
        """The end of what a process wrote, in a line."""
        manager = name == "jobmanager"
        number = 0 if manager else self._node_names.index(name)
        log = self._work(number) / "log"
        for end in ("out", "log"):
            path = log / f"{'jobmanager' if manager else 'taskmanager'}.{end}"
            text = path.read_text(errors="replace").strip() if path.is_file() else ""
            if text:
                return f"{text[-QUOTED:].strip()} ({path})"
        return f"it wrote nothing to {log}"

    def _end(self, which: Sequence[str]) -> None:
        ending = [self.processes.pop(name) for name in which if name in self.processes]
        for process in ending:
            process.terminate()
        until = time.monotonic() + self.stop_timeout_s
        for process in ending:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


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
    raise FlinkError(f"no eight ports in a row are free between {PORTS.start} and {PORTS.stop}")
