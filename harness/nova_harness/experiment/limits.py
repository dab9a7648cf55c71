"""Lifting the hosts' CPU limits for a while, and putting them back whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory

# A rack weighs more than all else on the machine: what is left for whoever controls it, cores.
LEFT_CORES = 0.2
# Of the rest, what the coordinator's host may use while limits are lifted.
SINK_SHARE = 0.25


class Limits:
    """The CPU limits of a virtual rack; real hosts keep theirs.

    Processes start, and classes load, in a fraction of the time without limits. Lifted, hosts share
    all of the machine's cores but a few tenths: without any limit their processes would starve the
    program that controls them. What is measured runs under the inventory's limits.

    Attributes:
        lifted: whether they are off now.
    """

    def __init__(self, inventory: Inventory) -> None:
        from nova_testbed.rack import VirtualRack

        self.inventory = inventory
        self.lifted = False
        self._rack = VirtualRack(inventory) if inventory.virtual else None

    def generous(self) -> dict[str, float]:
        """Cores each host may use while limits are lifted: never less than the inventory's."""
        total = max((os.cpu_count() or 1) - LEFT_CORES, 0.5)
        limited = [host for host in self.inventory.hosts if host.cpu is not None]
        others = max(len(limited) - 1, 1)
        shares = {
            host.name: total * (SINK_SHARE if host.role == "sink" else (1 - SINK_SHARE) / others)
            for host in limited
        }
        return {host.name: max(host.cpu or 0.0, shares[host.name]) for host in limited}

    def lift(self) -> None:
        """Let every host use its share of the machine.

        Raises:
            RackError: where the rack is not up.
        """
        if self._rack is None or self.lifted:
            return
        self.lifted = True
        for name, cores in self.generous().items():
            self._rack.set_limits(name, cpu=cores)

    def impose(self) -> None:
        """Put the inventory's limits in force.

        Raises:
            RackError: where the rack is not up.
        """
        if self._rack is None or not self.lifted:
            return
        for host in self.inventory.hosts:
            if host.cpu is not None:
                self._rack.set_limits(host.name, cpu=host.cpu)
        self.lifted = False

    @contextmanager
    def off(self) -> Iterator[None]:
        """Lifted for as long as the block lasts, however it ends."""
        try:
            self.lift()
            yield
        finally:
            self.impose()


__all__ = ["Limits"]
