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
    "--as",
    "form",
    metavar="FORM",
    help="What to write, where an engine knows several: for Spark bundle (a job: the default) or "
    "stages (rules that place a query of your own).",
)
@shared.output_option("Directory to make; must not exist.", required=True)
@shared.settings_option("An option of the engine's translation; may be repeated.")
@shared.json_option
def translate(
    plan: Path,
    problem: Path,
    capacity: str | None,
    engine: str,
    form: str | None,
    output: Path,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write PLAN as configuration, scripts and a job, to deploy it by your own means."""
    from nova_core.engines import load

    chosen, options = load(engine), shared.settings_of(settings)
    if form is not None:
        options["form"] = form
    loaded = shared.load_problem(problem, capacity)
    written = chosen.translate(shared.load_plan(plan, loaded), loaded, output, options)
    if as_json:
        console.print_json({"engine": engine, "files": [str(path) for path in written]})
        return
    console.say(f"{len(written)} files in {output}; read {output / 'README.md'}")
