"""A virtual rack: hosts made of namespaces on this machine, reached over SSH like any others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TypeVar

import msgspec

import nova_testbed.rack.assembly as assembly
import nova_testbed.rack.network as network
import nova_testbed.rack.switch as switch
import nova_testbed.rack.virtual_host as virtual_host
from nova_testbed import netem
from nova_testbed.inventory import Inventory, Link
from nova_testbed.rack.privileges import Progress, as_root, is_root
from nova_testbed.rack.processes import end_processes, local_run, marked
from nova_testbed.rack.reservation import reserved
from nova_testbed.rack.state import (
    Emulation,
    HostRecord,
    RackError,
    RackRecord,
    StateDirectory,
    default_state_root,
    locked,
    make_directory,
    record_of,
)
from nova_testbed.rack.status import RackStatus, status_of

T = TypeVar("T")


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
        """Describe the rack; `up` creates it.

        Args:
            inventory: of virtual hosts.
            state_dir: where keys, logs and disks of this rack are kept; a directory of its own, by
                default ``~/.local/state/nova/racks/NAME``.
            emulation: what delays packets; by default netem where the kernel has it, else the
                switch.

        Raises:
            RackError: for a path that cannot be a state directory.
        """
        self.inventory = inventory
        self.emulation = emulation
        directory = state_dir or default_state_root() / inventory.name
        self.state = StateDirectory(directory.resolve())

    def reserved(self) -> AbstractContextManager[None]:
        """Reserve this rack against other programs until the block or this process ends.

        A process may reserve a rack more than once. The other methods ignore reservations.

        Raises:
            RackError: that names the program that has reserved it.
        """
        return reserved(self.inventory.name, self.state.path)

    def up(self, progress: Progress | None = None) -> Inventory:
        """Bring the rack up, or its missing parts; links and limits become the inventory's.

        Args:
            progress: called with the current step, how much of it is finished, and its total.

        Returns:
            The inventory, with what SSH needs to connect to each host.

        Raises:
            RackError: with the reason; then nothing is left of a rack that was not up.

        Warns:
            RackWarning: where its timing will be less exact than possible.
        """
        if not is_root():
            arguments = {"emulation": self.emulation}
            return self._as_root("up", Inventory, arguments, progress)
        tell = progress or (lambda what, finished, total: None)
        with locked(self.state.path.parent):
            record = self._record()
            if record is not None and record.complete:
                assembly.bring_up(self._updated(record), self.state, tell)
            else:
                draft = record_of(self.inventory, 0, self._emulation(), self.state.path)
                assembly.create(draft, self.state, tell)
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
                user=virtual_host.USER,
                key_file=self.state.key_file,
                known_hosts=self.state.known_hosts,
                device=network.DATA_DEVICE,
                rootless=True,
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
            assembly.remove(self.state)

    def status(self) -> RackStatus:
        """The state of the rack, and its missing parts."""
        if not is_root():
            return self._as_root("status", RackStatus)
        return status_of(self.inventory.name, self.state, self._record())

    def set_link(self, a: str, b: str, link: Link) -> None:
        """Change the link of two hosts; it is in force on return, without a restart.

        Raises:
            RackError: for an unknown host, or a rack that is not up.
        """
        self.set_links({(a, b): link})

    def set_links(self, links: Mapping[tuple[str, str], Link]) -> None:
        """Change the links of several pairs of hosts, see `set_link`; all of them, or none.

        Args:
            links: by pair of hosts, in either order.

        Raises:
            RackError: for an unknown host, or a rack that is not up.
        """
        if not is_root():
            self._as_root("set_links", NoneType, {"links": dict(links)})
            return
        with locked(self.state.path.parent):
            old = record = self._up_record()
            for (a, b), link in links.items():
                record = record.with_link(a, b, link)
            if record.emulation == "switch":
                switch.reload(record, self.state)
            else:
                ends = dict.fromkeys(host for pair in links for host in pair)
                try:
                    for host in ends:
                        network.shape(record, host)
                except RackError:
                    for host in ends:
                        network.shape(old, host)
                    raise
            self.state.write(record)

    def set_limits(
        self,
        *,
        cpu: Mapping[str, float | None] | None = None,
        memory: Mapping[str, int | None] | None = None,
    ) -> None:
        """Change the limits of running hosts; hosts that are not named keep theirs.

        Args:
            cpu: cores by host; None lifts the limit.
            memory: bytes by host; None lifts the limit.

        Raises:
            RackError: where one is refused (those before it stay changed), or the rack is not up.
        """
        cpu, memory = dict(cpu or {}), dict(memory or {})
        if not is_root():
            limits = {"cpu": cpu, "memory": memory}
            self._as_root("set_limits", NoneType, limits)
            return
        with locked(self.state.path.parent):
            record = self._up_record()
            try:
                for host in dict.fromkeys([*cpu, *memory]):
                    old = record.hosts[record.index(host)]
                    new = HostRecord(host, cpu.get(host, old.cpu), memory.get(host, old.memory))
                    assembly.limit(record.names, new)
                    record = record.with_host(new)
            finally:
                self.state.write(record)

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
            assembly.start_switch(record, self.state)

    def kill_host(self, host: str) -> None:
        """Let a host fail as in a power failure; `up` starts it again with its disk unchanged.

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
        # Root must not become the owner of the directories above it.
        make_directory(self.state.path.parent)
        own = {"inventory": self.inventory, "state_dir": self.state.path, **(arguments or {})}
        return as_root(method, own, kind, progress)

    def _record(self) -> RackRecord | None:
        """The record on disk, unless another rack has its number now (after a reboot)."""
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
        updated = record_of(self.inventory, record.number, record.emulation, Path(record.disks))
        if [host.name for host in updated.hosts] != [host.name for host in record.hosts]:
            raise RackError(
                f"rack {record.name} is up with other hosts than this inventory has: "
                "`nova testbed down` first"
            )
        return msgspec.structs.replace(updated, complete=True)

    def _emulation(self) -> Emulation:
        if self.emulation is not None:
            return self.emulation
        return "netem" if len(netem.supported(local_run)) == 3 else "switch"
