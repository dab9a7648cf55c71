"""The state of a rack, and its missing parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import nova_testbed.rack.cgroups as cgroups
import nova_testbed.rack.network as network
import nova_testbed.rack.switch as switch
from nova_testbed.rack.processes import marked
from nova_testbed.rack.state import Emulation, RackError, RackRecord, StateDirectory


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


def status_of(name: str, state: StateDirectory, record: RackRecord | None) -> RackStatus:
    """The state of a rack now.

    Args:
        name: of its inventory.
        state: its directory.
        record: from its directory; None where it is down.
    """
    if record is None:
        return RackStatus(name, "down", None, state.path, None, None, (), ())
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
        counters = switch.statistics(state)
        if counters is None:
            problems.insert(0, "the switch is not running")
    if record.guarded:
        try:
            guarded, why = network.guards(record.number), "its rules of nft are gone"
        except RackError as error:
            guarded, why = [], str(error)
        if not guarded:
            problems.insert(0, f"this machine's other users are no longer kept from it ({why})")
    if not record.complete:
        problems.insert(0, "it was never brought up completely")
    return RackStatus(
        record.name,
        "broken" if problems else "up",
        record.number,
        state.path,
        record.emulation,
        counters,
        hosts,
        tuple(problems),
    )
