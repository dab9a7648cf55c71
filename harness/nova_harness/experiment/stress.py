"""The inventory's artificial load, beside an engine that needs memory."""

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
# Memory for sshd, stress-ng itself and the kernel's tables.
ROOM = 48 * MIB


def profiles(inventory: Inventory, engine_bytes: int) -> list[StressProfile]:
    """The inventory's load, with memory that leaves enough for the engine.

    If load and engine used all of a host's memory, the kernel would end one of them: shares of
    memory are shares of what the engine leaves.

    Args:
        inventory: of the hosts.
        engine_bytes: memory of the engine on each host.

    Returns:
        One per size of hosts.
    """
    load = inventory.stress
    sizes: dict[int | None, list[str]] = {}
    for name in load.hosts:
        sizes.setdefault(inventory.host(name).memory, []).append(name)
    load_profiles = []
    for size, names in sizes.items():
        percent = load.memory_percent
        if size is not None:
            percent *= max(0.0, 1 - (engine_bytes + ROOM) / size)
        load_profiles.append(replace(load, hosts=tuple(names), memory_percent=percent))
    return load_profiles


@contextmanager
def stressed(hosts: Hosts, engine_bytes: int, *, on: bool, at: float) -> Iterator[None]:
    """Load hosts from a time on, until the block ends in any way.

    Hosts get the order before, while they are idle: busy hosts take seconds to answer.

    Args:
        hosts: connected.
        engine_bytes: memory of the engine on each host.
        on: whether to load hosts at all.
        at: when it begins, s since the epoch.

    Raises:
        HostError: when a host cannot be loaded, or its load ended early.
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
