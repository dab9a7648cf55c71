"""``nova plot``: a picture of the cost space."""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import figures, shared


@click.command(short_help="Draw the cost space, with a plan.")
@click.argument("what", metavar="PLAN|PROBLEM", type=paths.INPUT)
@click.option(
    "--problem", "-p", type=paths.INPUT, help="The problem; makes the argument a plan of it."
)
@shared.capacity_option
@shared.output_option("A .png or .svg file to write.", required=True)
@shared.seed_option("Of the flows shown of a large plan.")
@shared.json_option
def plot(
    what: Path, problem: Path | None, capacity: str | None, output: Path, seed: int, as_json: bool
) -> None:
    """Draw nodes, virtual positions, replicas and flows in the cost space.

    Give a plan with --problem, or a problem alone.
    """
    loaded = shared.load_problem(what if problem is None else problem, capacity)
    with shared.working():
        placed = None if problem is None else shared.load_plan(what, loaded)
        from nova_core.left_out import left_out
        from nova_core.plotting import save_plot

        kept = None if placed is None else left_out(placed)
        save_plot(loaded, placed, output, seed=seed, note="" if kept is None else str(kept))
    if as_json:
        console.print_json(
            {
                "problem": figures.problem_dict(loaded),
                "strategy": None if placed is None else placed.strategy,
                "written": str(output),
            }
        )
        return
    console.say(f"plot written to {output}")
