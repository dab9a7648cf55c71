"""The inventory's artificial load, beside an engine that needs memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from nova_testbed import stress
from nova_testbed.connection import HostError

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts
    from nova_testbed.inventory import Inventory, StressProfile

MIB = 1 << 20
# What sshd, stress-ng itself and the kernel's tables take besides.
ROOM = 48 * MIB


def profiles(inventory: Inventory, engine_bytes: int) -> list[StressProfile]:
    """The inventory's load, with memory that leaves the engine's processes theirs.

    All of a host's memory would have the kernel end one or the other: a share of memory is taken of
    what the engine leaves.

    Args:
        inventory: of the hosts.
        engine_bytes: what the engine takes on each host.

    Returns:
        One per size of hosts.
    """
    load = inventory.stress
    sizes: dict[int | None, list[str]] = {}
    for name in load.hosts:
        sizes.setdefault(inventory.host(name).memory, []).append(name)
    found = []
    for size, names in sizes.items():
        percent = load.memory_percent
        if size is not None:
            percent *= max(0.0, 1 - (engine_bytes + ROOM) / size)
        found.append(replace(load, hosts=tuple(names), memory_percent=percent))
    return found


@contextmanager
def stressed(hosts: Hosts, engine_bytes: int, *, on: bool, at: float) -> Iterator[None]:
    """Load on hosts from a time on, for as long as the block lasts, however it ends.

    Hosts are told before, while they have little to do: one that is busy takes seconds to answer.

    Args:
        hosts: connected.
        engine_bytes: what the engine takes on each host.
        on: whether there is to be any.
        at: when it begins, s since the epoch.

    Raises:
        HostError: when a host cannot be loaded, or was not to the end.
    """
    if not on:
        yield
        return
    started: list[str] = []
    try:
        for profile in profiles(hosts.inventory, engine_bytes):
            stress.start(hosts, profile, at=at)
            started += profile.hosts
        yield
    except BaseException:
        if started:
            stress.stop(hosts, started)
        raise
    ended = set(started) - set(stress.stop(hosts, started))
    if ended:
        raise HostError(min(ended), "stress-ng has ended before the run")
