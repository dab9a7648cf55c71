"""Choices that are a library's names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from nova_core.choices import LazyChoice
from nova_core.cli import COMMANDS, cli


def options_of(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    for part in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options_of(part)


def test_names_are_loaded_when_they_are_needed() -> None:
    choice = LazyChoice("nova_core.nowhere:NAMES")
    with pytest.raises(ModuleNotFoundError):
        _ = choice.choices
    choice = LazyChoice("nova_core.costspace.embedding:METHODS")
    assert choice.convert("vivaldi", None, None) == "vivaldi"
    with pytest.raises(click.BadParameter, match="'magic' is not one of 'solver', 'vivaldi'"):
        choice.convert("magic", None, None)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        choice.nonsense  # noqa: B018


def test_all_names_of_all_commands_are_there() -> None:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in COMMANDS]
    lazy = [
        option.type
        for command in commands
        if command is not None
        for option in options_of(command)
        if isinstance(option.type, LazyChoice)
    ]
    assert len(lazy) >= 2
    assert all(choice.choices for choice in lazy)


def test_a_command_is_there_without_its_choices() -> None:
    code = "from nova_core.commands import plan, topology; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"numpy", "nova_core.costspace"}.isdisjoint(run.stdout.split())
