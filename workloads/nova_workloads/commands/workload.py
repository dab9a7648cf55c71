"""The group ``nova workload``; each of its commands is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

# Name of a command to its module and attribute, in the order of a project's life.
COMMANDS = {
    "prepare": "nova_workloads.commands.prepare:prepare",
    "latency": "nova_workloads.commands.latency:latency",
    "build": "nova_workloads.commands.build:build",
    "debs": "nova_workloads.commands.debs:debs",
    "replay": "nova_workloads.commands.replay:replay",
    "reference": "nova_workloads.commands.reference:reference",
}


class LazyCommands(click.Group):
    """A group that imports a command's module only for that command or for the group's help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyCommands)
def workload() -> None:
    """Turn sensor archives and latency measurements into problems, and replay the streams."""
