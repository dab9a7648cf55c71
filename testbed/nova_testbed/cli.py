"""The command ``nova testbed``: hosts to run engines on, virtual ones by default."""

from __future__ import annotations

import click

from nova_core.lazy_commands import LazyCommands

# In the order in which a newcomer meets them.
PLACES = {
    "check": "check:check",
    "up": "lifecycle:up",
    "status": "lifecycle:status",
    "ssh": "work:ssh",
    "exec": "work:execute",
    "measure": "measure:measure",
    "stress": "work:stress",
    "down": "lifecycle:down",
    "clean": "lifecycle:clean",
}


@click.group(
    cls=LazyCommands,
    places={name: f"nova_testbed.commands.{place}" for name, place in PLACES.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
def testbed() -> None:
    """Hosts to run engines on: real ones over SSH, or a virtual rack on this machine.

    Everything works on an inventory of hosts; by default fourteen virtual ones.
    """
