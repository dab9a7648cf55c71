"""``nova tour``: what Nova does, on a problem that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_core.commands import explain, figures, shared

if TYPE_CHECKING:
    from nova_core.model.plan import Plan

EXAMPLE = "running-example"
# The paper's own choice for it (section 3.4).
PARAMETERS = {"sigma": 0.0, "c_min": 15.0}


@click.command(short_help="Place, explain and draw a small example.")
@shared.output_option(
    "Where the picture goes: .png or .svg.", default=Path("nova-tour.png"), show_default=True
)
@click.option("--picture/--no-picture", default=True, help="Whether to draw one [default].")
@shared.json_option
def tour(output: Path, picture: bool, as_json: bool) -> None:
    """Place the joins of a small embedded problem, explain the plan and draw it.

    Two kinds of sensors in two regions are joined; the nodes near them are small.
    """
    from nova_core.io.examples import load_example

    problem = load_example(EXAMPLE)
    with shared.working():
        chosen = figures.run(problem, "nova", PARAMETERS, warm=False)
        compared = figures.run_all(problem, {name: {} for name in shared.BASELINES})
        if picture:
            from nova_core.plotting import save_plot

            save_plot(problem, chosen.plan, output)
    if as_json:
        written = output if picture else None
        console.print_json(figures.outcome_dict(problem, chosen, compared, None, written))
        return
    console.show(
        figures.problem_line(problem),
        f"Sources: {_sources(chosen.plan)}.",
        "",
        figures.decision_table(*figures.decisions(chosen.plan, None)),
        "",
        "Why the join with the most pieces is where it is (nova explain):",
    )
    from nova_core.explain import Explainer

    explain.print_operator(Explainer(chosen.plan).operator(_hardest(chosen.plan), nearest=5))
    console.show(*figures.costs("nova", chosen, compared))
    if picture:
        console.say(f"picture of the cost space written to {output.resolve()}")
    console.say("next: nova generate, nova plan PROBLEM, nova compare PROBLEM; nova --help")


def _sources(plan: Plan) -> str:
    s = plan.problem.sources
    return ", ".join(
        f"{name} ({stream}, {rate:g}/s)"
        for name, stream, rate in zip(s.ids, s.stream, s.rate, strict=True)
    )


def _hardest(plan: Plan) -> int:
    """The pair with the most to tell: the one cut over most nodes."""
    counts: Any = plan.replica_count
    return int(counts.argmax())
