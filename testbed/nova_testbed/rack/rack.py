"""A virtual rack: hosts made of namespaces on this machine, reached over SSH like any others."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Literal, TypeVar

import msgspec

from nova_testbed import netem
from nova_testbed.inventory import Inventory, Link
from nova_testbed.rack import cgroups, cleanup, network, switch, virtual_host
from nova_testbed.rack.keys import known_hosts, make_key
from nova_testbed.rack.privileges import Progress, as_root, is_root
from nova_testbed.rack.processes import end_processes, local_run, marked
from nova_testbed.rack.requirements import missing
from nova_testbed.rack.state import (
    Emulation,
    HostRecord,
    Names,
    RackError,
    RackRecord,
    RackWarning,
    StateDirectory,
    default_state_root,
    give_to_user,
    locked,
    make_directory,
    record_of,
)
from nova_testbed.rack.state import replace as write_file

T = TypeVar("T")


class Keep(Enum):
    """Says that a limit stays as it is."""

    KEEP = "keep"


KEEP = Keep.KEEP


@dataclass(frozen=True)
class HostStatus:
    """A host of a rack.

    Attributes:
        name: of the host.
        address: where its sshd listens.
        up: whether it runs.
        cpu: limit in force, cores; None is unlimited.
        memory: limit in force, bytes; None is unlimited.
        usage: what it has used so far.
    """

    name: str
    address: str
    up: bool
    cpu: float | None
    memory: int | None
    usage: cgroups.Usage


@dataclass(frozen=True)
class RackStatus:
    """A rack as it is now.

    Attributes:
        name: of the inventory.
        state: ``down``, ``up``, or ``broken`` when some of it is missing.
        number: that gives its names and addresses; None when down.
        state_directory: with its record, keys and logs.
        emulation: what delays packets; None when down.
        switch: its counters; None where none runs.
        hosts: in the order of the inventory.
        problems: what is missing, a line each.
    """

    name: str
    state: Literal["down", "up", "broken"]
    number: int | None
    state_directory: Path
    emulation: Emulation | None
    switch: switch.SwitchStatistics | None
    hosts: tuple[HostStatus, ...]
    problems: tuple[str, ...]


class VirtualRack:
    """The rack an inventory describes. It outlives the process that brings it up.

    Without root's rights every method works through ``sudo -n``.
    """

    def __init__(
        self,
        inventory: Inventory,
        state_dir: Path | None = None,
        *,
        emulation: Emulation | None = None,
    ) -> None:
        """Nothing happens yet.

        Args:
            inventory: of virtual hosts.
            state_dir: where keys, logs and disks of this rack are kept; a directory of its own, by
                default ``~/.local/state/nova/racks/NAME``.
            emulation: what delays packets; by default netem where the kernel has it, else the
                switch.

        Raises:
            RackError: for a directory that cannot be one.
        """
        self.inventory = inventory
        self.emulation = emulation
        directory = state_dir or default_state_root() / inventory.name
        self.state = StateDirectory(directory.resolve())

    def up(self, progress: Progress | None = None) -> Inventory:
        """Bring the rack up, or what is missing of it; links and limits become the inventory's.

        Args:
            progress: told what is done, how much of it, and of how much.

        Returns:
            The inventory, with what it takes to reach each host over SSH.

        Raises:
            RackError: with what is in the way; then nothing is left of a rack that was not up.

        Warns:
            RackWarning: where its timing will be less exact than it could be.
        """
        if not is_root():
            arguments = {"emulation": self.emulation}
            return self._as_root("up", Inventory, arguments, progress)
        tell = progress or (lambda what, done, total: None)
        with locked(self.state.path.parent):
            record = self._record()
            if record is not None and record.complete:
                self._bring_up(self._updated(record), tell)
            else:
                self._create(tell)
        return self.reachable()

    def reachable(self) -> Inventory:
        """The inventory with addresses and keys, as `up` returns it.

        Raises:
            RackError: when the rack is not up.
        """
        record = self._up_record()
        hosts = tuple(
            replace(
                host,
                address=record.names.data(record.index(host.name)),
                port=22,
                user="root",
                key_file=self.state.key_file,
                known_hosts=self.state.known_hosts,
                device=network.DATA_DEVICE,
            )
            for host in self.inventory.hosts
        )
        return replace(self.inventory, hosts=hosts)

    def down(self) -> None:
        """Remove the rack, with its disks and keys; one that is not up is no error.

        Raises:
            RackError: when something of it cannot be removed.
        """
        if not is_root():
            self._as_root("down", NoneType)
            return
        with locked(self.state.path.parent):
            self._remove()

    def status(self) -> RackStatus:
        """What there is of the rack, and what is missing."""
        if not is_root():
            return self._as_root("status", RackStatus)
        record = self._record()
        if record is None:
            name = self.inventory.name
            return RackStatus(name, "down", None, self.state.path, None, None, (), ())
        parts = marked(record.number)
        groups = cgroups.detect()
        names = record.names
        hosts = tuple(
            HostStatus(
                host.name,
                names.data(index),
                host.name in parts,
                host.cpu,
                host.memory,
                groups.usage(names.prefix, host.name) if groups else cgroups.Usage(),
            )
            for index, host in enumerate(record.hosts)
        )
        problems = [f"host {host.name} is not running" for host in hosts if not host.up]
        counters = None
        if record.emulation == "switch":
            counters = switch.statistics(self.state)
            if counters is None:
                problems.insert(0, "the switch is not running")
        if not record.complete:
            problems.insert(0, "it was never brought up completely")
        return RackStatus(
            record.name,
            "broken" if problems else "up",
            record.number,
            self.state.path,
            record.emulation,
            counters,
            hosts,
            tuple(problems),
        )

    def set_link(self, a: str, b: str, link: Link) -> None:
        """Connect two hosts otherwise; in force on return, without a restart of anything.

        Raises:
            RackError: for an unknown host, or a rack that is not up.
        """
        if not is_root():
            self._as_root("set_link", NoneType, {"a": a, "b": b, "link": link})
            return
        with locked(self.state.path.parent):
            old = self._up_record()
            record = old.with_link(a, b, link)
            if record.emulation == "switch":
                switch.reload(record, self.state)
            else:
                try:
                    network.shape(record, a)
                    network.shape(record, b)
                except RackError:
                    network.shape(old, a)
                    network.shape(old, b)
                    raise
            self.state.write(record)

    def set_limits(
        self, host: str, *, cpu: float | Keep | None = KEEP, memory: int | Keep | None = KEEP
    ) -> None:
        """Change the limits of a host while it runs.

        Args:
            host: its name.
            cpu: cores; None lifts the limit.
            memory: bytes; None lifts the limit.

        Raises:
            RackError: where that is refused, or the rack is not up.
        """
        if not is_root():
            limits = {"host": host, "cpu": cpu, "memory": memory}
            self._as_root("set_limits", NoneType, limits)
            return
        with locked(self.state.path.parent):
            record = self._up_record()
            old = record.hosts[record.index(host)]
            new = HostRecord(
                host,
                old.cpu if isinstance(cpu, Keep) else cpu,
                old.memory if isinstance(memory, Keep) else memory,
            )
            _limit(record.names, new)
            self.state.write(record.with_host(new))

    def restart_switch(self) -> None:
        """End the switch, if it runs, and start it again; connections among hosts survive.

        Raises:
            RackError: where it does not start, or the rack has none.
        """
        if not is_root():
            self._as_root("restart_switch", NoneType)
            return
        with locked(self.state.path.parent):
            record = self._up_record()
            if record.emulation != "switch":
                raise RackError(f"rack {record.name}: netem delays its packets; it has no switch")
            switch.stop(record)
            self._start_switch(record)

    def kill_host(self, host: str) -> None:
        """Let a host fail, as if its plug were pulled; `up` starts it again, its disk as it was.

        Raises:
            RackError: for an unknown host, or a rack that is not up.
        """
        if not is_root():
            self._as_root("kill_host", NoneType, {"host": host})
            return
        record = self._up_record()
        record.index(host)
        end_processes(lambda: marked(record.number).get(host, set()))

    def _as_root(
        self,
        method: str,
        kind: type[T],
        arguments: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> T:
        # So that root does not become the owner of the directories above it.
        make_directory(self.state.path.parent)
        own = {"inventory": self.inventory, "state_dir": self.state.path, **(arguments or {})}
        return as_root(method, own, kind, progress)

    def _record(self) -> RackRecord | None:
        """The record on disk, unless its number has gone to another rack since (a reboot)."""
        record = self.state.read()
        if record is None:
            return None
        owner = network.state_directory_of(record.number)
        return record if owner == self.state.path else None

    def _up_record(self) -> RackRecord:
        record = self._record()
        if record is None or not record.complete:
            raise RackError(f"rack {self.inventory.name} is not up: `nova testbed up` first")
        return record

    def _updated(self, record: RackRecord) -> RackRecord:
        wanted = record_of(self.inventory, record.number, record.emulation, Path(record.disks))
        if [host.name for host in wanted.hosts] != [host.name for host in record.hosts]:
            raise RackError(
                f"rack {record.name} is up with other hosts than this inventory has: "
                "`nova testbed down` first"
            )
        return msgspec.structs.replace(wanted, complete=True)

    def _create(self, tell: Progress) -> None:
        wanted = record_of(self.inventory, 0, self._emulation(), self.state.path)
        if not self.state.is_ours():
            raise RackError(
                f"state directory {self.state.path}: has other files in it; a rack needs a "
                "directory of its own"
            )
        self._remove()  # what an earlier attempt may have left
        try:
            self.state.create()
            names = network.claim(self.state.path)
            disks = virtual_host.make_disk_directory(self.state, names.prefix)
            record = msgspec.structs.replace(wanted, number=names.number, disks=str(disks))
            self.state.write(record)
            self._bring_up(record, tell)
        except BaseException as error:
            with uninterrupted():
                self._remove()
            reason = missing() if isinstance(error, RackError) else None
            if reason:
                raise RackError(f"{error}; {reason}") from error
            raise

    def _bring_up(self, record: RackRecord, tell: Progress) -> None:
        """Make everything that is not there yet."""
        total = len(record.hosts)
        groups = cgroups.detect()
        names = record.names
        tell("network", 0, total)
        network.create(record)
        if groups is not None:
            groups.create(names.prefix, [host.name for host in record.hosts])
        login = make_key(self.state.key_file, f"nova-{record.name}")
        parts = marked(record.number)
        keys = {}
        for index, host in enumerate(record.hosts):
            keys[names.data(index)] = virtual_host.make_disk(record, self.state, host.name, login)
        write_file(self.state.known_hosts, known_hosts(keys))
        down = [host.name for host in record.hosts if host.name not in parts]
        for done, name in enumerate(down):
            tell("starting hosts", done, len(down))
            own = groups.groups(names.prefix, name) if groups else []
            virtual_host.start(record, self.state, name, own)
        if record.emulation == "switch":
            if switch.statistics(self.state) is None:
                tell("switch", 0, 1)
                switch.stop(record)
                self._start_switch(record)
            else:
                switch.reload(record, self.state)
        for done, name in enumerate(down):
            tell("waiting for SSH", done, len(down))
            virtual_host.wait_for_ssh(record, self.state, name)
        # Only now: a host with little CPU would take long to start.
        for host in record.hosts:
            _limit(names, host)
        self.state.write(msgspec.structs.replace(record, complete=True))
        for path in (
            self.state.path,
            self.state.logs,
            self.state.key_file,
            self.state.key_file.with_suffix(".pub"),
            self.state.known_hosts,
        ):
            give_to_user(path)
        tell("up", total, total)

    def _start_switch(self, record: RackRecord) -> None:
        groups = cgroups.detect()
        # Kernels with RT_GROUP_SCHED refuse real-time priority in other cgroups than the root.
        procs = None
        if isinstance(groups, cgroups.CgroupsV1) and "cpu" in groups.mounts:
            procs = groups.mounts["cpu"] / "cgroup.procs"
        found = switch.start(record, self.state, procs)
        if not found.realtime:
            warnings.warn(
                f"rack {record.name}: the switch gets no real-time priority; other programs will "
                "show in its delays",
                RackWarning,
                stacklevel=2,
            )

    def _emulation(self) -> Emulation:
        if self.emulation is not None:
            return self.emulation
        return "netem" if len(netem.supported(local_run)) == 3 else "switch"

    def _remove(self) -> None:
        """Remove what there is of this rack, however it came to be so."""
        numbers = set(network.claimed_by(self.state.path))
        disks = None
        with contextlib.suppress(RackError):  # a record that cannot be read
            record = self.state.read()
            if record is not None:
                disks = Path(record.disks)
                if network.state_directory_of(record.number) is None:
                    numbers.add(record.number)
        for number in numbers:
            cleanup.remove(number, None, disks)
        cleanup.remove(None, self.state, None)


def _limit(names: Names, host: HostRecord) -> None:
    groups = cgroups.detect()
    if groups is not None:
        groups.set_cpu(names.prefix, host.name, host.cpu)
        groups.set_memory(names.prefix, host.name, host.memory)
    elif host.cpu is not None or host.memory is not None:
        raise RackError(
            f"host {host.name}: no limits, for this machine has no control groups in "
            "/proc/self/mountinfo that could limit CPU or memory"
        )


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
