"""Groups of commands that import a command when it is asked for, so that ``--help`` is quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from nova_core.errors import NovaError


def load_command(name: str, place: str) -> click.Command:
    """The command at ``module:attribute``.

    Raises:
        NovaError: where there is none.
    """
    module, _, attribute = place.partition(":")
    try:
        command = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise NovaError(f"command {name}: cannot load {place}: {error}") from error
    if not isinstance(command, click.Command):
        raise NovaError(f"command {name}: {place} is no click command")
    return command


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
        """The command of that name, or None."""
        place = self.places.get(cmd_name)
        return None if place is None else load_command(cmd_name, place)
