"""What the commands of the test bed share: options, reading inventories, connecting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths

# The same option and the same help text as in all other commands.
from nova_core.commands.shared import json_option as json_option
from nova_core.commands.shared import together as together
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts
    from nova_testbed.inventory import Inventory
    from nova_testbed.rack import VirtualRack

DEFAULT = "virtual-14"
inventory_option = click.option(
    "--inventory",
    "-i",
    "place",
    type=paths.InputPath(text=True),
    envvar="NOVA_INVENTORY",
    default=DEFAULT,
    show_default=True,
    show_envvar=True,
    metavar="FILE|NAME",
    help="Inventory file, or one that comes with Nova.",
)
on_option = click.option(
    "--on",
    multiple=True,
    metavar="HOST|ROLE",
    help="Only this host, or the hosts of this role; may be repeated.",
)


def read(place: str) -> Inventory:
    """An inventory by file or name; warnings become lines on stderr."""
    from nova_testbed.inventory import read_inventory

    with console.warnings_as_lines():
        return read_inventory(place)


def rack(inventory: Inventory) -> VirtualRack:
    """The virtual rack of an inventory."""
    # Before anything is made without it.
    import cryptography  # noqa: F401

    from nova_testbed.rack import VirtualRack

    return VirtualRack(inventory)


def running(inventory: Inventory) -> Inventory:
    """The inventory with addresses: virtual hosts have theirs from the rack."""
    return rack(inventory).reachable() if inventory.virtual else inventory


def chosen(inventory: Inventory, on: Sequence[str]) -> list[str]:
    """Names of the selected hosts, in the inventory's order; all by default."""
    from nova_testbed.inventory import ROLES

    if not on:
        return [host.name for host in inventory.hosts]
    names = [inventory.host(name).name for name in on if name not in ROLES]
    known = {host.name for host in inventory.hosts}
    # A host may have the name of a role: the host takes precedence.
    names += [name for name in on if name in known]
    roles = [name for name in on if name in ROLES and name not in known]
    chosen = [h.name for h in inventory.hosts if h.name in names or h.role in roles]
    if not chosen:
        raise NovaError(f"inventory {inventory.name}: no host has the role {', '.join(roles)}")
    return chosen


@contextmanager
def connected(inventory: Inventory, names: Sequence[str] | None = None) -> Iterator[Hosts]:
    """Connected hosts; a progress bar is shown while they connect."""
    from nova_testbed.hosts import connect

    total = len(inventory.hosts if names is None else names)
    with counter("connecting", total) as advance:
        hosts = connect(inventory, names, advance)
    with console.warnings_as_lines(), hosts:
        yield hosts


@contextmanager
def counter(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar that counts hosts."""
    completed = itertools.count(1)
    with console.progress(what) as advance:
        yield lambda name: advance(next(completed), total)


def say(answer: dict[str, Any], as_json: bool) -> None:
    """Print a short answer, a line per name."""
    if as_json:
        console.print_json(answer)
    else:
        for name, value in answer.items():
            console.show(f"{name}: {value:g}" if isinstance(value, float) else f"{name}: {value}")


def cores(value: float | None) -> str:
    """A CPU limit for a table."""
    return "unlimited" if value is None else f"{value:g}"


def mebibytes(value: int | None) -> str:
    """A memory limit for a table."""
    return "unlimited" if value is None else f"{value / 2**20:,.0f} MiB"
