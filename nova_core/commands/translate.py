"""``nova translate``: a plan as files for an engine."""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import shared


@click.command(short_help="Write a plan as files that an engine runs.")
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@shared.capacity_option
@click.option("--engine", required=True, help="One of `nova engines list`.")
@click.option(
    "--output", "-o", type=paths.OUTPUT, required=True, help="Directory to make; must not exist."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the engine's translation; may be repeated.",
)
@shared.json_option
def translate(
    plan: Path,
    problem: Path,
    capacity: str | None,
    engine: str,
    output: Path,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write PLAN as configuration, scripts and a job, to deploy it by your own means."""
    from nova_core.engines import load
    from nova_core.errors import NovaError

    chosen = load(engine)
    options = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise NovaError(f"--set {setting}: expected KEY=VALUE")
        options[key.strip().replace("-", "_")] = value.strip()
    asked = shared.load_problem(problem, capacity)
    made = shared.load_plan(plan, asked)
    written = chosen.translate(made, asked, output, options)
    if as_json:
        console.print_json({"engine": engine, "files": [str(path) for path in written]})
        return
    console.say(f"{len(written)} files in {output}; read {output / 'README.md'}")


__all__ = ["translate"]
