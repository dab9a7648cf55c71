"""An engine's processes on the hosts of a test bed: started, found again, stopped.

They are background jobs of the test bed, so that any later command finds them. The coordinator is
on the sink's host.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nova_core.errors import NovaError
from nova_core.programs import PROGRAMS
from nova_engines import results
from nova_testbed.connection import HostError
from nova_testbed.jobs import own_directory

if TYPE_CHECKING:
    from nova_engines.flow import Flow
    from nova_engines.results import ResultRecords
    from nova_testbed.host import Host
    from nova_testbed.hosts import Hosts
    from nova_testbed.inventory import HostSpec
    from nova_testbed.jobs import BackgroundJob

STAMP = "stamp.json"
# Where copies of the engine home have files from elsewhere.
OTHERS = "others"
# Parents of users' directories on hosts.
TEMPORARY, LASTING = "/tmp", "/var/tmp"

Tell = Callable[[str], None]


class EngineDeployment(ABC):
    """The common part of all engines.

    Args:
        hosts: connected; the inventory's with addresses.

    Attributes:
        ENGINE: its name in messages.
        NAME: name of its directories on hosts.
        PROCESSES: names of its background jobs.
        NEEDS: programs that hosts need.
        hosts: as given.
        sink: name of the host of the sink and coordinator.
        reused: whether `up` found it running.
        started: when processes of a host were last started here, s since the epoch, by host.
        up_seconds: how long `up` took to start it, from the first process until all were connected.
    """

    ENGINE: ClassVar[str]
    NAME: ClassVar[str]
    PROCESSES: ClassVar[tuple[str, ...]]
    NEEDS: ClassVar[tuple[str, ...]] = ("java",)

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.sink = hosts.inventory.with_role("sink")[0].name
        self.reused = False
        self.started: dict[str, float] = {}
        self.up_seconds: float | None = None
        self._begun = 0.0

    # --- directories on hosts -------------------------------------------------------------------

    def work(self, name: str) -> str:
        """Its working directory on a host, below that of the user who logs in, see `own`."""
        return f"{_own(TEMPORARY, self.hosts.inventory.host(name))}/{self.NAME}"

    def place(self, name: str) -> str:
        """The engine home on a host: this machine's on virtual hosts, a copy on real ones."""
        if self.hosts.inventory.virtual:
            return str(self.home_path)
        return f"{_own(LASTING, self.hosts.inventory.host(name))}/{self.NAME}"

    def within(self, file: Path) -> Path:
        """Path of one of the `runtime_files` in the copy of the engine home on a real host."""
        if file.is_relative_to(self.home_path):
            return file.relative_to(self.home_path)
        return Path(OTHERS) / file.name

    def own(self, host: Host) -> None:
        """Create a host's directories, which belong to its user, and only the user can write to.

        Raises:
            HostError: where one belongs to another user, or is open to others.
        """
        for parent in [TEMPORARY] if self.hosts.inventory.virtual else [TEMPORARY, LASTING]:
            own_directory(host, _own(parent, host.spec))

    # --- what engines differ in -----------------------------------------------------------------

    @property
    @abstractmethod
    def version(self) -> str:
        """The engine's version."""

    @property
    @abstractmethod
    def home_path(self) -> Path:
        """The directory on this machine with all that hosts need."""

    @property
    @abstractmethod
    def runtime_files(self) -> Sequence[Path]:
        """Files hosts need."""

    @abstractmethod
    def files(self, name: str) -> dict[str, str]:
        """Configuration of a host: path in its `work` directory, text."""

    @abstractmethod
    def commands(self, name: str) -> dict[str, str]:
        """Commands of a host's processes, in the order of their start."""

    @abstractmethod
    def wait(self, timeout_s: float) -> None:
        """Wait until all processes are connected.

        Raises:
            NovaError: when they are not in time.
        """

    @abstractmethod
    def check(self) -> None:
        """Whether the engine is installed here.

        Raises:
            NovaError: saying what to do.
        """

    UP_SECONDS: ClassVar[float] = 180.0
    LOGS: ClassVar[Mapping[str, str]] = {}

    # --- up -------------------------------------------------------------------------------------

    def up(self, tell: Tell = lambda message: None, *, wait: bool = True) -> None:
        """Start the engine, or use one that already runs with the same configuration.

        Args:
            tell: progress callback, called with one line at a time.
            wait: wait until it is up; otherwise call `await_up` later.

        Raises:
            NovaError: naming the host that cannot run it, or what does not answer.
        """
        self.check()
        self.hosts.map(self.own)
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
            tell(f"starting {self.ENGINE}")
            self._begun = time.monotonic()
            self.launch()
        except BaseException:
            self.down()
            raise
        if wait:
            self.await_up(tell)

    def await_up(self, tell: Tell = lambda message: None) -> None:
        """Wait for an engine that `up` has started.

        Raises:
            NovaError: naming what does not answer.
        """
        if self.reused:
            return
        tell(f"waiting for {self.ENGINE} on {len(self.hosts)} hosts")
        try:
            self._await()
        except BaseException:
            self.down()
            raise
        self.up_seconds = time.monotonic() - self._begun

    def worker_processes(self, name: str) -> set[int]:
        """Ids of the processes on a host that run parts of jobs.

        Raises:
            NovaError: for an engine where they are unknown.
        """
        raise NovaError(f"{self.ENGINE}: its workers cannot be ended or stopped")

    def start_worker(self, name: str) -> None:
        """Restart a host's processes that have ended."""
        running = {job.name for job in self.hosts[name].jobs()}
        self.start(self.hosts[name], set(self.PROCESSES) - running)

    def end_worker(self, name: str) -> None:
        """End a host's processes; on the sink's host, that would be the coordinator, too."""
        self._end(self.hosts[name], self.commands(name))

    def launch(self) -> None:
        """Start the processes of all hosts."""
        self.hosts.map(self.start)

    def start(self, host: Host, names: Collection[str] | None = None) -> None:
        """Start a host's processes: those of some names, or all."""
        for name, command in self.commands(host.name).items():
            if names is None or name in names:
                self.started[host.name] = time.time()
                log = f"{self.work(host.name)}/{name}.out"
                host.start(command, name=name, log=log, keep=True)

    def _await(self) -> None:
        try:
            self.wait(self.UP_SECONDS)
        except NovaError as error:
            raise NovaError(f"{error}{self.last_words()}") from None

    def last_words(self, names: Collection[str] | None = None) -> str:
        """Last output of a process that has ended, for an error message; empty where all run.

        Args:
            names: of the hosts that count; None for all.
        """
        hosts = [host for host in self.hosts if names is None or host.name in names]
        running = self.hosts.map(
            lambda host: {job.name for job in host.jobs()} if host in hosts else set()
        )
        for host in hosts:
            for process in sorted(set(self.commands(host.name)) - running[host.name]):
                work = self.work(host.name)
                files = f"{work}/{process}.out"
                if process in self.LOGS:
                    files += f" {work}/{self.LOGS[process]}"
                lines = host.run(f"tail -q -n 2 {files}", check=False).stdout.split("\n")
                last = " / ".join(line.strip() for line in lines if line.strip())
                return f"; {process} on {host.name} has ended: {last or 'without output'}"
        return ""

    def footprint(self) -> dict[str, Any]:
        """How long it took to start (``seconds``, None where it was running), and its memory.

        ``processes`` has the number of each kind and their total memory, bytes; shared memory
        counts once (PSS).
        """

        def memory(host: Host) -> dict[str, int]:
            by_process = {}
            for job in host.jobs():
                if job.name in self.PROCESSES:
                    files = " ".join(f"/proc/{pid}/smaps_rollup" for pid in job.processes())
                    command = f"awk '/^Pss:/ {{ kb += $2 }} END {{ print kb + 0 }}' {files}"
                    words = host.run(command, check=False).stdout.split()
                    by_process[job.name] = 1024 * int(words[0]) if words else 0
            return by_process

        by_host = self.hosts.map(memory).values()
        processes = {}
        for name in self.PROCESSES:
            sizes = [one[name] for one in by_host if name in one]
            processes[name] = {"number": len(sizes), "bytes": sum(sizes)}
        return {"seconds": None if self.reused else self.up_seconds, "processes": processes}

    def _runs(self, stamp: str) -> bool:
        def same(host: Host) -> bool:
            text = host.run(f"cat {self.work(host.name)}/{STAMP} 2>/dev/null", check=False).stdout
            return text == stamp and self.commands(host.name).keys() <= {
                job.name for job in host.jobs()
            }

        if not all(self.hosts.map(same).values()):
            return False
        try:
            # One of its processes may have been started again just now.
            self.wait(self.UP_SECONDS)
        except NovaError:
            return False
        return True

    def _stamp(self) -> str:
        """Digest of the engine's files and configuration; another one needs a restart."""
        digest = hashlib.sha256()
        for host in self.hosts:
            for name, text in sorted((self.files(host.name) | self.commands(host.name)).items()):
                digest.update(f"{name}\0{text}\0".encode())
        digest.update(json.dumps(self._files()).encode())
        return digest.hexdigest()

    def _files(self) -> list[tuple[str, int, int]]:
        stats = [(path.name, path.stat()) for path in self.runtime_files]
        return [(name, stat.st_size, int(stat.st_mtime)) for name, stat in stats]

    def _distribute(self, tell: Tell) -> None:
        """Copy the engine's files to real hosts; virtual ones see this machine's."""
        if self.hosts.inventory.virtual:
            self.hosts.map(self._sees_home)
            return
        stamp = json.dumps(self._files())

        def lacks(host: Host) -> bool:
            file = f"{self.place(host.name)}/{STAMP}"
            return host.run(f"cat {file} 2>/dev/null", check=False).stdout != stamp

        missing = [name for name, lacking in self.hosts.map(lacks).items() if lacking]
        if not missing:
            return
        tell(f"copying {self.ENGINE} to {len(missing)} hosts")
        with tempfile.TemporaryDirectory(prefix="nova-engine-") as directory:
            for path in self.runtime_files:
                target = Path(directory) / self.within(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)

            def copy(host: Host) -> None:
                home = self.place(host.name)
                host.run(f"rm -rf {shlex.quote(home)}")
                host.put(directory, home)
                host.run(f"printf %s {shlex.quote(stamp)} >{home}/{STAMP}")

            self.hosts.map(lambda host: copy(host) if host.name in missing else None)

    def _sees_home(self, host: Host) -> None:
        """Refuse a virtual host that started before the engine was installed, or cannot read it."""
        names = " ".join(shlex.quote(str(path)) for path in self.runtime_files)
        # The shell's own `[`: there may be hundreds of files, and little CPU.
        look = f'for f in {names}; do [ -r "$f" ] || exit 1; done; stat -L -c %s {names}'
        sizes = host.run(f"{look} 2>/dev/null", check=False).stdout.split()
        if sizes != [str(path.stat().st_size) for path in self.runtime_files]:
            raise HostError(
                host.name,
                "does not see the engine as it is installed now; what is installed while virtual "
                "hosts are up may not show on them: `nova testbed down`, then up; and their user "
                f"must be able to read it: chmod -R o+rX {self.home_path}",
            )

    def _configure(self, host: Host, stamp: str) -> None:
        with tempfile.TemporaryDirectory(prefix="nova-engine-") as directory:
            for name, text in self.files(host.name).items():
                target = Path(directory) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            (Path(directory) / STAMP).write_text(stamp)
            work = self.work(host.name)
            host.run(f"rm -rf {shlex.quote(work)}")
            host.put(directory, work)
            for program in self.NEEDS:
                if host.run(f"command -v {program}", check=False).returncode:
                    where = PROGRAMS[program].on_debian
                    raise HostError(host.name, f"{program} is missing; {where}")

    # --- down -----------------------------------------------------------------------------------

    def jobs(self) -> dict[str, list[BackgroundJob]]:
        """The engine's processes by host."""
        names = self.PROCESSES
        return self.hosts.map(lambda host: [job for job in host.jobs() if job.name in names])

    def down(self) -> list[str]:
        """End the engine's processes on all hosts.

        Returns:
            The hosts that had any.

        Raises:
            HostError: where something cannot be ended.
        """
        had = self.hosts.map(lambda host: self._end(host, self.PROCESSES))
        return [name for name, any_ended in had.items() if any_ended]

    def _end(self, host: Host, names: Collection[str]) -> bool:
        """End a host's processes of some names; returns whether there were any."""
        jobs = [job for job in host.jobs() if job.name in names]
        for job in jobs:
            # No state needs saving.
            job.stop(grace=0)
            job.discard()
        return bool(jobs)

    # --- result files ---------------------------------------------------------------------------

    def result_file(self, name: str) -> str:
        """Where the sink writes a job's results, on the sink's host."""
        return f"{self.work(self.sink)}/results/{name}"

    def prepare_results(self) -> None:
        """Create an empty directory for results on the sink's host."""
        directory = shlex.quote(f"{self.work(self.sink)}/results")
        self.hosts[self.sink].run(f"rm -rf {directory} && mkdir -p {directory}")

    def read_results(self, flow: Flow, name: str, scratch: Path) -> ResultRecords:
        """A job's results from its sinks' hosts: records of pairs, or rows of queries.

        Args:
            flow: what the job runs.
            name: of the first sink's file.
            scratch: directory for temporary copies, which are removed.
        """
        files = flow.result_files(self.result_file(name))
        parts: dict[str, ResultRecords] = {}
        with tempfile.TemporaryDirectory(dir=scratch) as directory:
            for number, one in enumerate(flow.sinks):
                local = Path(directory) / str(number)
                fetch_results(self.hosts[one.node], files[one.name], local)
                parts[one.query or one.name] = results.read(local, results.fields_of(one))
        of_sinks = list(parts.values())
        if flow.has_columns:
            return results.together(results.QueryRows(parts), of_sinks)
        return results.joined(of_sinks)


def fetch_results(host: Host, remote: str, local: Path) -> None:
    """Copy a result file and its side files; an empty one for none.

    Args:
        host: of a sink.
        remote: the file there.
        local: the copy's path here.
    """
    local.write_bytes(b"")
    copies = {f"{remote}{suffix}": f"{local}{suffix}" for suffix in ("", *results.BESIDE)}
    known = " ".join(map(shlex.quote, copies))
    for name in host.run(f"ls -d {known} 2>/dev/null", check=False).stdout.split():
        host.get(name, copies[name])


def _own(parent: str, host: HostSpec) -> str:
    return f"{parent}/nova-{host.user}"
