"""Lifting the hosts' CPU limits for a while, and putting them back whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory


class Limits:
    """The CPU limits of a virtual rack; real hosts keep theirs.

    Processes start, and classes load, in a fraction of the time without limits. What is measured
    runs under them.

    Attributes:
        lifted: whether they are off now.
    """

    def __init__(self, inventory: Inventory) -> None:
        from nova_testbed.rack import VirtualRack

        self.inventory = inventory
        self.lifted = False
        self._rack = VirtualRack(inventory) if inventory.virtual else None

    def lift(self) -> None:
        """Let every host use what the machine has.

        Raises:
            RackError: where the rack is not up.
        """
        if self._rack is None or self.lifted:
            return
        self.lifted = True
        for host in self.inventory.hosts:
            if host.cpu is not None:
                self._rack.set_limits(host.name, cpu=None)

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
