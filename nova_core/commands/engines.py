"""The commands ``nova engines``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_core.commands import shared

if TYPE_CHECKING:
    from nova_core.engines import Engine


@click.group()
def engines() -> None:
    """Install the engines that run plans, and say where they are."""


def _row(engine: Engine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "installed": engine.installed(),
        "path": str(engine.path),
        "description": engine.describe(),
    }


@engines.command("list")
@shared.json_option
def list_engines(as_json: bool) -> None:
    """Show the engines that Nova has an adapter for."""
    from nova_core.engines import load, names

    rows = [_row(load(name)) for name in names()]
    if as_json:
        console.print_json(rows)
        return
    cells = [
        (row["name"], "yes" if row["installed"] else "no", row["path"], row["description"])
        for row in rows
    ]
    console.show(console.table("engines", ["name", "installed", "where", "what"], cells))


@engines.command()
@click.argument("name")
@shared.json_option
def install(name: str, as_json: bool) -> None:
    """Install an engine into a place of its own; nothing is done where it is there already."""
    from nova_core.engines import load

    engine = load(name)
    with console.progress(f"installing {name}") as progress:
        engine.install(progress.step)
    console.say(f"{name} is installed at {engine.path}")
    if as_json:
        console.print_json(_row(engine))


@engines.command()
@click.argument("name")
@shared.json_option
def path(name: str, as_json: bool) -> None:
    """Print where an engine is installed; exit code 2 where it is not."""
    from nova_core.engines import load
    from nova_core.errors import NovaError

    engine = load(name)
    if not engine.installed():
        raise NovaError(f"{name} is not installed: run `nova engines install {name}`")
    if as_json:
        console.print_json(_row(engine))
    else:
        click.echo(str(engine.path))
