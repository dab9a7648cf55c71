"""Lift the hosts' CPU limits for a while, and restore them in any case."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory

# Cores left for the program that controls a rack, whose weight exceeds all else on the machine.
LEFT_CORES = 0.2
# Share of the rest that the coordinator's host may use while limits are lifted.
SINK_SHARE = 0.25


class Limits:
    """The CPU limits of a virtual rack; real hosts keep theirs.

    Without limits, processes start and classes load in a fraction of the time. While limits are
    lifted, busy hosts share all of the machine's cores but a few tenths: without any limit, their
    processes would starve the program that controls them. Measurements run under the inventory's
    limits.
    """

    def __init__(self, inventory: Inventory) -> None:
        from nova_testbed.rack import VirtualRack

        self.inventory = inventory
        self._rack = VirtualRack(inventory) if inventory.virtual else None
        # Limits in force that differ from the inventory's.
        self._changed: dict[str, float] = {}

    def generous(self, busy: Collection[str] | None = None) -> dict[str, float]:
        """Cores each host may use while limits are lifted: never less than the inventory's.

        Args:
            busy: hosts that share the machine; None for all.
        """
        total = max((os.cpu_count() or 1) - LEFT_CORES, 0.5)
        limited = [host for host in self.inventory.hosts if host.cpu is not None]
        sharing = [host for host in limited if busy is None or host.name in busy]
        others = max(sum(host.role != "sink" for host in sharing), 1)
        cores = {host.name: host.cpu or 0.0 for host in limited}
        for host in sharing:
            share = SINK_SHARE if host.role == "sink" else (1 - SINK_SHARE) / others
            cores[host.name] = max(cores[host.name], total * share)
        return cores

    def lift(self, busy: Collection[str] | None = None) -> None:
        """Let hosts use their share of the machine.

        Args:
            busy: hosts that share the machine; the others keep their limits. None for all.

        Raises:
            RackError: where the rack is not up.
        """
        self._set(self.generous(busy))

    def impose(self) -> None:
        """Restore the inventory's limits.

        Raises:
            RackError: where the rack is not up.
        """
        self._set({name: self.inventory.host(name).cpu or 0.0 for name in self._changed})

    def _set(self, cores: Mapping[str, float]) -> None:
        """Change hosts' limits where others are in force."""
        own = {name: self.inventory.host(name).cpu for name in cores}
        changes = {
            name: limit
            for name, limit in cores.items()
            if self._changed.get(name, own[name]) != limit
        }
        if self._rack is None or not changes:
            return
        # Noted first, so that a partial failure is restored, too.
        self._changed |= changes
        self._rack.set_limits(cpu=changes)
        for name in [name for name, limit in changes.items() if limit == own[name]]:
            del self._changed[name]

    @contextmanager
    def off(self) -> Iterator[None]:
        """Lift limits inside the block; restore them in any case."""
        try:
            self.lift()
            yield
        finally:
            self.impose()
