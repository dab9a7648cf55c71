"""Groups of commands that import a command when it is asked for, so that ``--help`` is quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

import click

from nova_core import extras, research
from nova_core.errors import NovaError

ENTRY_POINTS = "nova.commands"


def installed_commands(group: str = "") -> dict[str, str]:
    """Places of the commands that packages add, by name.

    Args:
        group: which they join: the entry points ``GROUP.NAME``; empty for the front, ``NAME``.
    """
    from importlib.metadata import entry_points

    found = {}
    for entry in entry_points(group=ENTRY_POINTS):
        joins, _, name = entry.name.rpartition(".")
        if joins == group:
            found[name] = entry.value
    return found


def absent_command(name: str, group: str = "") -> click.Command | None:
    """Stands for a command of nova-research where that is not installed; None for other names."""
    text = research.absent(ENTRY_POINTS, "command", f"{group}.{name}" if group else name)
    return broken_command(name, NovaError(text)) if text else None


def load_command(name: str, place: str) -> click.Command:
    """The command at ``module:attribute``, or a `broken_command` where there is none.

    One broken package must not break ``--help`` of the whole group.
    """
    module, _, attribute = place.partition(":")
    try:
        command = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as cause:
        what = f"command {name}"
        error = NovaError(extras.missing(what, cause) or f"{what}: cannot load {place}: {cause}")
        error.__cause__ = cause
        return broken_command(name, error)
    if not isinstance(command, click.Command):
        return broken_command(name, NovaError(f"command {name}: {place} is no click command"))
    return command


def broken_command(name: str, error: NovaError) -> click.Command:
    """A command that cannot be loaded; it says why when it is run."""

    def callback(arguments: tuple[str, ...]) -> NoReturn:
        raise error

    return click.Command(
        name,
        callback=callback,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        short_help="(cannot be loaded; run it to see why)",
    )


class LazyCommands(click.Group):
    """A group of commands at known places, listed in their order.

    Args:
        places: ``module:attribute`` by name.
    """

    def __init__(self, *arguments: Any, places: Mapping[str, str], **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None; a broken one fails with the reason when it is run."""
        place = self.places.get(cmd_name)
        return None if place is None else load_command(cmd_name, place)


class OpenGroup(click.Group):
    """A group of commands that packages add to, by entry points ``GROUP.NAME``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*self.commands, *installed_commands(self.name or "")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None; a broken one fails with the reason when it is run."""
        group = self.name or ""
        place = installed_commands(group).get(cmd_name)
        if place is not None:
            return load_command(cmd_name, place)
        return super().get_command(ctx, cmd_name) or absent_command(cmd_name, group)
