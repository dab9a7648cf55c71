"""The commands ``nova engines``."""

from __future__ import annotations

import click

from nova_core import console


@click.group()
def engines() -> None:
    """Install the engines that run plans, and say where they are."""


@engines.command("list")
@click.option(
    "--json", "as_json", is_flag=True, help="Write the answer as JSON to stdout, nothing else."
)
def list_engines(as_json: bool) -> None:
    """Show the engines that Nova has an adapter for."""
    from nova_core.engines import load, names

    found = [load(name) for name in names()]
    rows = [
        {
            "name": engine.name,
            "installed": engine.installed(),
            "path": str(engine.path),
            "description": engine.describe(),
        }
        for engine in found
    ]
    if as_json:
        console.print_json(rows)
        return
    table = console.table("engines", ["name", "installed", "where", "what"])
    for row in rows:
        state = "yes" if row["installed"] else "no"
        table.add_row(str(row["name"]), state, str(row["path"]), str(row["description"]))
    console.show(table)


@engines.command()
@click.argument("name")
def install(name: str) -> None:
    """Install an engine into a place of its own; nothing is done where it is there already."""
    from nova_core.engines import load

    engine = load(name)
    told = console.output(stderr=True)
    with told.status(f"installing {name}") as status:

        def progress(message: str) -> None:
            # A terminal shows the present step, a log all of them.
            if told.is_terminal:
                status.update(message)
            else:
                console.say(message)

        engine.install(progress)
    console.say(f"{name} is installed at {engine.path}")


@engines.command()
@click.argument("name")
def path(name: str) -> None:
    """Print where an engine is installed; exit code 2 where it is not."""
    from nova_core.engines import load
    from nova_core.errors import NovaError

    engine = load(name)
    if not engine.installed():
        raise NovaError(f"{name} is not installed: run `nova engines install {name}`")
    click.echo(str(engine.path))


__all__ = ["engines"]
