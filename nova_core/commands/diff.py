"""``nova diff``: what changes from one plan to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nova_core import console, paths
from nova_core.commands import figures, shared

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.plan_diff import PlanDiff


@click.command(short_help="Show what changes between two plans.")
@click.argument("a", type=paths.INPUT)
@click.argument("b", type=paths.INPUT)
@shared.problem_option
@shared.capacity_option
@shared.rows_option
@shared.json_option
@click.pass_context
def diff(
    ctx: click.Context,
    a: Path,
    b: Path,
    problem: Path,
    capacity: str | None,
    rows: int | None,
    as_json: bool,
) -> None:
    """Show what changes from plan A to plan B of one problem; exit code 1 if anything does."""
    loaded = shared.load_problem(problem, capacity)
    old, new = shared.load_plan(a, loaded), shared.load_plan(b, loaded)
    from nova_core.plan_diff import diff_plans

    with shared.working():
        difference = diff_plans(old, new)
        outcomes = (figures.judge(old), figures.judge(new))
    if as_json:
        console.print_json(
            {
                "same": difference.same,
                "counts": {**difference.counts(), "unchanged": difference.unchanged},
                "rerouted": difference.rerouted,
                "changes": difference.rows(rows or None),
                "old": outcomes[0].to_dict(),
                "new": outcomes[1].to_dict(),
            }
        )
    else:
        print_diff(difference, (a, b), outcomes, shared.shown_rows(rows))
    ctx.exit(0 if difference.same else 1)


def print_diff(
    difference: PlanDiff,
    paths: tuple[Path, Path],
    outcomes: tuple[figures.Outcome, figures.Outcome],
    limit: int | None,
) -> None:
    """The difference for people."""
    if difference.same:
        console.show(f"no difference: all {difference.unchanged:,} instances stay")
        return

    def rate(before: float, after: float) -> str:
        if before and after and before != after:
            return f"{console.number(before)} -> {console.number(after)}"
        return console.number(before or after)

    rows = difference.rows(limit)
    more = len(difference.kind) - len(rows)
    table = console.table(
        "Changes",
        ["change", "operator", "from", "to", ">tuples/s"],
        [
            (
                row["change"],
                row["operator"],
                row["from"] or "-",
                row["to"] or "-",
                rate(row["old_rate"], row["new_rate"]),
            )
            for row in rows
        ],
        caption=f"{more:,} more (--rows)" if more else None,
    )
    summary = [f"{count:,} {kind}" for kind, count in difference.counts().items() if count]
    summary += ["other routes"] * difference.rerouted
    changes: list[Table | str] = ["", table, ""] if rows else []
    console.show(
        f"{', '.join(summary)}; {difference.unchanged:,} stay",
        *changes,
        cost_changes(outcomes, paths),
    )


def cost_changes(
    outcomes: tuple[figures.Outcome, figures.Outcome], paths: tuple[Path, Path]
) -> Table:
    """Table of what both plans cost."""
    old, new = (one.evaluation for one in outcomes)
    objective = outcomes[1].plan.objective
    costs = [
        ("mean latency, ms", old.estimated.mean, new.estimated.mean),
        ("90P latency, ms", old.estimated.p90, new.estimated.p90),
        (
            f"objective {objective}",
            old.estimated.objectives[objective],
            new.estimated.objectives[objective],
        ),
        ("overloaded nodes", old.load.overloaded_count, new.load.overloaded_count),
        ("traffic, tuples/s", old.traffic, new.traffic),
        ("replicas", old.replicas, new.replicas),
        ("nodes used", old.nodes_used, new.nodes_used),
    ]
    if old.measured is not None and new.measured is not None:
        costs[2:2] = [
            ("measured mean, ms", old.measured.mean, new.measured.mean),
            ("measured 90P, ms", old.measured.p90, new.measured.p90),
        ]
    rows = []
    for name, before, after in costs:
        digits = 0 if isinstance(before, int) else 1
        change = "=" if after == before else f"{after - before:+,.{digits}f}"
        rows.append((name, console.number(before, digits), console.number(after, digits), change))
    return console.table("Cost", ["", *(f">{path.name}" for path in paths), ">change"], rows)
