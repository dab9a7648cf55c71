"""Storm on the hosts of a test bed.

ZooKeeper, nimbus and a supervisor run on the sink's host, a supervisor on every other. Workers are
processes of the supervisors' jobs, and end with them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from nova_engines.installing import java
from nova_harness.deployment import EngineDeployment
from nova_storm.configuration import ClusterConfiguration, Node
from nova_storm.home import VERSION, StormHome
from nova_storm.nimbus import Nimbus, StormError

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts

JOBS = {
    "zookeeper": "nova_storm_zookeeper",
    "nimbus": "nova_storm_nimbus",
    "supervisor": "nova_storm_supervisor",
}
# A worker's heap, MB; what the tuples of a few windows need.
WORKER_HEAP = 128
# How soon nimbus schedules a topology and knows of executors that they run; Storm's own values are
# for clusters that live long.
SETTINGS = {"nimbus.monitor.freq.secs": 2, "executor.metrics.frequency.secs": 2}
ZOOKEEPER_SECONDS = 60.0
POLL_SECONDS = 1.0
# Until no worker that has its files in a directory is left; asked on a host. The brackets keep the
# command from finding itself.
NO_WORKER = """\
for i in $(seq 150); do
  left=
  for command in $(grep -ls 'daemon[.]worker[.]Worker' /proc/[0-9]*/cmdline); do
    ! grep -qsF {work}/ "$command" || left=$command
  done
  [ -n "$left" ] || exit 0
  sleep 0.2
done
echo 'a worker of Storm does not end' >&2
exit 1
"""


class StormDeployment(EngineDeployment):
    """A Storm cluster on the hosts of an inventory.

    Attributes:
        home: what Storm is taken from.
        configuration: of the cluster.
        addresses: of every host.
        nimbus: a client, on this machine.
    """

    ENGINE = "Storm"
    NAME = "storm"
    PROCESSES = tuple(JOBS.values())

    def __init__(self, hosts: Hosts, home: StormHome) -> None:
        """Configure it.

        Args:
            hosts: connected; the inventory's with addresses.
            home: what Storm is taken from.
        """
        super().__init__(hosts)
        self.home = home
        inventory = hosts.inventory
        self.addresses = {host.name: host.address for host in inventory.hosts}
        coordinator = self.addresses[self.sink]
        self.configuration = ClusterConfiguration(
            [Node(name, address) for name, address in self.addresses.items()],
            self.place(self.sink),
            coordinator,
            self.work(self.sink),
            worker_heap_mb=WORKER_HEAP,
            settings=SETTINGS,
        )
        port = self.configuration.nimbus_port
        self.nimbus = Nimbus(home, coordinator, port, java("Storm"))

    @property
    def version(self) -> str:
        """Of Storm."""
        return VERSION

    @property
    def home_path(self) -> Path:
        """The engine home."""
        return self.home.path

    @cached_property
    def runtime_files(self) -> Sequence[Path]:
        """All of it."""
        return sorted(path for path in self.home.path.rglob("*") if path.is_file())

    def check(self) -> None:
        """Whether Storm is installed here."""
        self.home.check()

    def files(self, name: str) -> dict[str, str]:
        """storm.yaml of a host's processes."""
        configuration = self._on(name)
        node = next(node for node in configuration.nodes if node.name == name)
        documents = {"supervisor": configuration.supervisor(node)}
        if name == self.sink:
            documents["nimbus"] = configuration.nimbus()
        return {
            f"{process}.yaml": yaml.safe_dump(document, sort_keys=False)
            for process, document in documents.items()
        }

    def commands(self, name: str) -> dict[str, str]:
        """A supervisor; on the sink's host ZooKeeper and nimbus before it."""
        processes = ["supervisor"]
        if name == self.sink:
            processes = ["zookeeper", "nimbus", "supervisor"]
        return {
            JOBS[process]: f"mkdir -p {self.work(name)}/log && {self._on(name).command(process)}"
            for process in processes
        }

    def _on(self, name: str) -> ClusterConfiguration:
        """The configuration with a host's directories."""
        return replace(self.configuration, home=self.place(name), work=self.work(name))

    def launch(self) -> None:
        """ZooKeeper first, which the others cannot do without."""
        hub, job = self.hosts[self.sink], JOBS["zookeeper"]
        command = self.commands(self.sink)[job]
        hub.start(command, name=job, log=f"{self.work(hub.name)}/{job}.out", keep=True)
        self._await_port(self.configuration.zookeeper_port)

        def others(name: str) -> None:
            for job, command in self.commands(name).items():
                if job != JOBS["zookeeper"]:
                    log = f"{self.work(name)}/{job}.out"
                    self.hosts[name].start(command, name=job, log=log, keep=True)

        self.hosts.map(lambda host: others(host.name))

    def _await_port(self, port: int) -> None:
        until = time.monotonic() + ZOOKEEPER_SECONDS
        while True:
            try:
                socket.create_connection((self.configuration.coordinator, port), 1).close()
            except OSError:
                if time.monotonic() > until:
                    raise StormError(
                        f"nothing listens on port {port} of {self.sink}{self.last_words()}"
                    ) from None
                time.sleep(POLL_SECONDS / 4)
            else:
                return

    def wait(self, timeout_s: float) -> None:
        """Until all supervisors have registered."""
        until = time.monotonic() + timeout_s
        while True:
            missing = set(self.addresses.values())
            try:
                missing -= {str(one["host"]) for one in self.nimbus.status()["supervisors"]}
            except StormError:
                # Nimbus listens before it is leader.
                if time.monotonic() > until:
                    raise
            if not missing:
                return
            if time.monotonic() > until:
                late = [name for name, address in self.addresses.items() if address in missing]
                raise StormError(
                    f"no supervisor of {', '.join(late)} has registered within {timeout_s:g} s; "
                    f"see {self.work(self.sink)}/log on the host"
                )
            time.sleep(POLL_SECONDS)

    def await_no_worker(self) -> None:
        """Until the workers of a topology that was killed have ended."""
        self.hosts.map(lambda host: host.run(NO_WORKER.format(work=self.work(host.name))))
