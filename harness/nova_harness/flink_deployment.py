"""Flink on the hosts of a test bed.

The JobManager and a TaskManager run on the sink's host, a TaskManager on every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from nova_flink.configuration import ClusterConfiguration, Node
from nova_flink.rest import Rest
from nova_harness.deployment import EngineDeployment

if TYPE_CHECKING:
    from nova_flink.home import FlinkHome
    from nova_testbed.host import Host
    from nova_testbed.hosts import Hosts

COORDINATOR, TASK_MANAGER = "nova_flink_coordinator", "nova_flink_task_manager"


class FlinkDeployment(EngineDeployment):
    """A Flink cluster on the hosts of an inventory.

    Attributes:
        home: what Flink is taken from.
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
        settings: Mapping[str, str] | None = None,
        extra_jars: Sequence[Path] = (),
    ) -> None:
        """Configure it.

        Args:
            hosts: connected; the inventory's with addresses.
            home: what Flink is taken from.
            settings: of Flink, beside those of `nova_flink.configuration`.
            extra_jars: of connectors; for virtual hosts only, which see them where they are.
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
            settings=dict(settings or {}),
            task_manager_options=self.home.task_manager_options if archives else (),
            job_manager_options=self.home.job_manager_options if archives else (),
            extra_jars=extra_jars,
        )
        self.rest = Rest(self.configuration.rest_url)

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
        return replace(
            self.configuration, home_path=self.place(name), work_directory=self.work(name)
        )

    def dead_letters(self, job: str) -> int:
        """How much came for sources of a job that was no tuple of theirs, see DeadLetters.java."""

        def lines(host: Host) -> int:
            files = f"{self.work(host.name)}/log/dead-letters/{job}.*"
            told = host.run(f"cat {files} 2>/dev/null | wc -l", check=False).stdout
            return int(told or 0)

        return sum(self.hosts.map(lines).values())

    def wait(self, timeout_s: float) -> None:
        """Until all TaskManagers have registered."""
        self.rest.wait_task_managers(self.nodes, timeout_s)
