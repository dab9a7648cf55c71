"""Flink on the hosts of a test bed: brought up, found again, taken down.

The JobManager and a TaskManager run on the sink's host, a TaskManager on every other. They are
background jobs of the test bed's, so that any later command finds them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_flink.configuration import ClusterConfiguration, Node
from nova_flink.rest import Rest
from nova_testbed.connection import HostError
from nova_testbed.rack.virtual_host import hidden_below

if TYPE_CHECKING:
    from nova_flink.home import FlinkHome
    from nova_testbed.host import Host
    from nova_testbed.hosts import Hosts
    from nova_testbed.jobs import BackgroundJob

COORDINATOR, TASK_MANAGER = "nova_flink_coordinator", "nova_flink_task_manager"
WORK = "/tmp/nova-flink"
# Where real hosts get what they need of the engine home.
REMOTE_HOME = "/var/tmp/nova-engines/flink"
STAMP = "stamp.json"
UP_SECONDS = 180.0

Tell = Callable[[str], None]


@dataclass
class FlinkDeployment:
    """A Flink cluster on the hosts of an inventory.

    Attributes:
        hosts: connected; the inventory's with addresses.
        home: what Flink is taken from.
        settings: of Flink, beside those of `nova_flink.configuration`.
        reused: whether `up` found it running.
        up_seconds: how long `up` took to start it, from the first process to the last TaskManager
            that registered.
    """

    hosts: Hosts
    home: FlinkHome
    settings: Mapping[str, str] = field(default_factory=dict)
    reused: bool = False
    up_seconds: float | None = None

    def __post_init__(self) -> None:
        inventory = self.hosts.inventory
        self.sink = inventory.with_role("sink")[0].name
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
        place = self.home.path if inventory.virtual else Path(REMOTE_HOME)
        # Archives of loaded classes name the jars they were made from by path.
        archives = inventory.virtual
        self.configuration = ClusterConfiguration(
            list(self.nodes.values()),
            place,
            work_directory=WORK,
            settings=dict(self.settings),
            task_manager_options=self.home.task_manager_options if archives else (),
            job_manager_options=self.home.job_manager_options if archives else (),
        )
        self.rest = Rest(self.configuration.rest_url)

    # --- up -------------------------------------------------------------------------------------

    def up(self, tell: Tell = lambda message: None) -> None:
        """Bring the cluster up, or use the one that runs with the same configuration.

        Args:
            tell: is told what is being done, one line at a time.

        Raises:
            NovaError: naming the host that cannot run it, or what does not answer.
        """
        self.home.check()
        stamp = self._stamp()
        if self._runs(stamp):
            self.reused = True
            return
        self.reused = False
        self.down()
        try:
            self._distribute(tell)
            tell("writing configuration")
            self.hosts.map(lambda host: self._configure(host, stamp))
            tell("starting Flink")
            begin = time.monotonic()
            self.hosts.map(self._start)
            self._wait(tell)
            self.up_seconds = time.monotonic() - begin
        except BaseException:
            self.down()
            raise

    def _wait(self, tell: Tell) -> None:
        tell(f"waiting for {len(self.nodes)} TaskManagers")
        try:
            self.rest.wait_task_managers(self.nodes, UP_SECONDS)
        except NovaError as error:
            raise NovaError(f"{error}{self._last_words()}") from None

    def _last_words(self) -> str:
        """What processes said that have ended, for an error."""
        for host in self.hosts:
            names = {job.name for job in host.jobs()}
            wanted = {TASK_MANAGER: "taskmanager"}
            if host.name == self.sink:
                wanted[COORDINATOR] = "jobmanager"
            for gone in sorted(set(wanted) - names):
                files = f"{WORK}/{gone}.out {WORK}/log/{wanted[gone]}.log"
                said = host.run(f"tail -q -n 2 {files}", check=False).stdout.split("\n")
                last = " / ".join(line.strip() for line in said if line.strip())
                return f"; {gone} on {host.name} has ended: {last or 'it said nothing'}"
        return ""

    def footprint(self) -> dict[str, Any]:
        """How long it took to come up (None where it was running), and the memory it takes.

        Memory is what its processes have in RAM, bytes; what several share counts once on a
        machine that can tell (PSS).
        """

        def taken(host: Host) -> dict[str, int]:
            found = {}
            for job in host.jobs():
                if job.name in (COORDINATOR, TASK_MANAGER):
                    files = " ".join(f"/proc/{pid}/smaps_rollup" for pid in job.processes())
                    command = f"awk '/^Pss:/ {{ kb += $2 }} END {{ print kb + 0 }}' {files}"
                    told = host.run(command, check=False).stdout.split()
                    found[job.name] = 1024 * int(told[0]) if told else 0
            return found

        by_host = self.hosts.map(taken)
        of_workers = [one[TASK_MANAGER] for one in by_host.values() if TASK_MANAGER in one]
        return {
            "seconds": None if self.reused else self.up_seconds,
            "task_managers": len(of_workers),
            "task_managers_bytes": sum(of_workers),
            "coordinator_bytes": by_host[self.sink].get(COORDINATOR, 0),
        }

    def _runs(self, stamp: str) -> bool:
        def same(host: Host) -> bool:
            told = host.run(f"cat {WORK}/{STAMP} 2>/dev/null", check=False).stdout
            if told != stamp:
                return False
            names = [job.name for job in host.jobs()]
            return TASK_MANAGER in names and (host.name != self.sink or COORDINATOR in names)

        if not all(self.hosts.map(same).values()):
            return False
        try:
            self.rest.wait_task_managers(self.nodes, 5.0)
        except NovaError:
            return False
        return True

    def _stamp(self) -> str:
        """What the cluster was made from; another one needs another cluster."""
        digest = hashlib.sha256()
        for node in self.nodes.values():
            for name, text in sorted(self.configuration.files(node).items()):
                digest.update(f"{name}\0{text}\0".encode())
            digest.update(self.configuration.task_manager_command(node).encode())
        digest.update(json.dumps(self._files()).encode())
        return digest.hexdigest()

    def _files(self) -> list[tuple[str, int, int]]:
        status = [(path.name, path.stat()) for path in self.home.runtime_files]
        return [(name, found.st_size, int(found.st_mtime)) for name, found in status]

    def _distribute(self, tell: Tell) -> None:
        """Real hosts get Flink's jars; virtual ones see this machine's."""
        if self.hosts.inventory.virtual:
            if own := hidden_below(self.home.path):
                raise NovaError(
                    f"{self.home.path}: virtual hosts cannot see the engine, as each has its own "
                    f"{own}: set NOVA_HOME to a directory elsewhere and install it there"
                )
            self.hosts.map(self._sees_home)
            return
        stamp = json.dumps(self._files())

        def lacks(host: Host) -> bool:
            told = host.run(f"cat {REMOTE_HOME}/{STAMP} 2>/dev/null", check=False).stdout
            return told != stamp

        missing = [name for name, lacking in self.hosts.map(lacks).items() if lacking]
        if not missing:
            return
        tell(f"copying Flink to {len(missing)} hosts")
        with tempfile.TemporaryDirectory(prefix="nova-flink-") as directory:
            for path in self.home.runtime_files:
                target = Path(directory) / path.relative_to(self.home.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
            self.hosts.put(directory, REMOTE_HOME, missing)
        command = f"printf %s {shlex.quote(stamp)} >{REMOTE_HOME}/{STAMP}"
        self.hosts.run(command, missing)

    def _sees_home(self, host: Host) -> None:
        """Refuse a virtual host that came up before the engine was installed."""
        names = " ".join(shlex.quote(str(path)) for path in self.home.runtime_files)
        told = host.run(f"stat -L -c %s {names} 2>/dev/null", check=False).stdout.split()
        if told != [str(path.stat().st_size) for path in self.home.runtime_files]:
            raise HostError(
                host.name,
                "does not see the engine as it is installed now; what is installed while virtual "
                "hosts are up may not show on them: `nova testbed down`, then up",
            )

    def _configure(self, host: Host, stamp: str) -> None:
        with tempfile.TemporaryDirectory(prefix="nova-flink-") as directory:
            for name, text in self.configuration.files(self.nodes[host.name]).items():
                target = Path(directory) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            (Path(directory) / STAMP).write_text(stamp)
            host.run(f"rm -rf {WORK}")
            host.put(directory, WORK)
            if host.run("command -v java", check=False).returncode:
                raise HostError(host.name, "java is missing; apt-get install default-jre-headless")

    def _start(self, host: Host) -> None:
        node = self.nodes[host.name]
        commands = {TASK_MANAGER: self.configuration.task_manager_command(node)}
        if host.name == self.sink:
            commands = {COORDINATOR: self.configuration.coordinator_command(node), **commands}
        for name, command in commands.items():
            host.start(command, name=name, log=f"{WORK}/{name}.out", keep=True)

    # --- down -----------------------------------------------------------------------------------

    def jobs(self) -> dict[str, list[BackgroundJob]]:
        """Flink's processes by host."""
        wanted = (COORDINATOR, TASK_MANAGER)
        return self.hosts.map(lambda host: [job for job in host.jobs() if job.name in wanted])

    def down(self) -> list[str]:
        """End Flink's processes on all hosts.

        Returns:
            The hosts that had any.

        Raises:
            HostError: where something cannot be ended.
        """

        def end(host: Host) -> bool:
            jobs = [j for j in host.jobs() if j.name in (COORDINATOR, TASK_MANAGER)]
            for job in jobs:
                # There is nothing to save.
                job.stop(grace=0)
                job.discard()
            return bool(jobs)

        return [name for name, had in self.hosts.map(end).items() if had]

    # --- files of results -----------------------------------------------------------------------

    def result_file(self, name: str) -> str:
        """Where the sink writes a job's results, on the sink's host."""
        return f"{WORK}/results/{name}"

    def prepare_results(self) -> None:
        """An empty directory for results on the sink's host."""
        directory = shlex.quote(f"{WORK}/results")
        self.hosts[self.sink].run(f"rm -rf {directory} && mkdir -p {directory}")

    def fetch_results(self, name: str, local: Path) -> None:
        """Copy a job's results from the sink's host; an empty file where it made none."""
        host, remote = self.hosts[self.sink], self.result_file(name)
        if host.run(f"test -e {shlex.quote(remote)}", check=False).returncode:
            local.write_bytes(b"")
            return
        host.get(remote, local)


__all__ = ["COORDINATOR", "TASK_MANAGER", "FlinkDeployment"]
