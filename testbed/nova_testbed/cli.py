"""The command ``nova testbed``: hosts to run engines on, virtual ones by default."""

from __future__ import annotations

import click

from nova_testbed.commands.check import check
from nova_testbed.commands.lifecycle import clean, down, status, up
from nova_testbed.commands.measure import measure
from nova_testbed.commands.work import execute, ssh, stress


class InOrder(click.Group):
    """Lists its commands in the order in which a newcomer meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
def testbed() -> None:
    """Hosts to run engines on: real ones over SSH, or a virtual rack on this machine.

    Everything works on an inventory of hosts; by default fourteen virtual ones.
    """


for _command in (check, up, status, ssh, execute, measure, stress, down, clean):
    testbed.add_command(_command)
