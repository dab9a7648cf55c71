"""``nova check``: whether a plan keeps every constraint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nova_core import console, paths
from nova_core.commands import shared

if TYPE_CHECKING:
    from nova_core.model.verify import Report


@click.command(short_help="Verify that a plan keeps every constraint.")
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@shared.capacity_option
@click.option("--accept", is_flag=True, help="Accept what the plan says it breaks on purpose.")
@shared.json_option
@click.pass_context
def check(
    ctx: click.Context,
    plan: Path,
    problem: Path,
    capacity: str | None,
    accept: bool,
    as_json: bool,
) -> None:
    """Verify that PLAN answers the problem and keeps every constraint; exit code 1 if not."""
    placed = shared.load_plan(plan, shared.load_problem(problem, capacity))
    from nova_core.model.verify import verify

    with console.warnings_as_lines():
        report = verify(placed)
    holds = report.ok or (accept and report.honest)
    if as_json:
        console.print_json({"holds": holds, **report.to_dict()})
    else:
        print_report(plan, report)
    ctx.exit(0 if holds else 1)


def print_report(plan: Path, report: Report) -> None:
    """The report for people: what is broken, one line each, then the verdict."""
    from rich.markup import escape

    lines = []
    for name, count in report.counts.items():
        listed = [v for v in report.violations if v.constraint == name]
        for violation in listed:
            purpose = ", on purpose" if violation.accepted else ""
            lines.append(f"[red]{name}[/]{purpose}: {escape(violation.text)}")
        if count > len(listed) > 0:
            lines.append(f"[red]{name}[/]: {count - len(listed):,} more")
    colour = "green" if report.ok else "yellow" if report.honest else "red"
    console.show(*lines, f"[{colour}]{escape(str(plan))} {report.summary()}[/]")
