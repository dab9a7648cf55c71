"""The command ``nova reproduce whitewater``: Figures 6 to 8 of WhiteWater."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_core.commands import shared
from nova_harness.commands.reproduce_shared import figure_options, publish

if TYPE_CHECKING:
    from nova_harness import whitewater as figures

QUICK = 20
SMALL_COLUMNS = (
    *("search", ">optimal", ">published", ">to 1.5 x", ">to 2 x", ">to 4 x", ">more"),
    *(">worst", ">ms of CPU"),
)
LARGE_COLUMNS = (
    *("search", ">better", ">same", ">worse", ">published", ">ratio, mean", ">5th percentile"),
    *(">infeasible", ">ms of CPU", ">median", ">evaluations"),
)


@click.command()
@click.option(
    "--quick",
    is_flag=True,
    help=f"Take only {QUICK} queries of each size.",
)
@figure_options("whitewater", None)
def whitewater(quick: bool, parameters: Path | None, output: Path, as_json: bool) -> None:
    """WhiteWater's searches: how often they find the best configuration, and how fast.

    Small random queries are searched exhaustively as well (its Fig. 6); on large ones searches are
    compared with reactive tabu (Fig. 7) and timed (Fig. 8). What is finished in the output
    directory is not done again.
    """
    import msgspec

    from nova_harness import whitewater as figures
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("whitewater", figures.Whitewater, parameters)
    if quick:
        fewer = {
            name: msgspec.structs.replace(part, queries=min(part.queries, QUICK))
            for name, part in (("small", asked.small), ("large", asked.large))
        }
        asked = msgspec.structs.replace(asked, **fewer)
    with shared.working(), console.progress("searching") as advance:
        result = figures.run(asked, output / "runs.jsonl", advance)
    tables: dict[str, Sequence[object]] = {
        "whitewater-small": result.small,
        "whitewater-large": result.large,
    }
    shown = [small_table(result), "", large_table(result), "", *told(result)]
    publish(output, "whitewater", result, tables, figures.draw, shown, as_json)


def small_table(result: figures.Result) -> Any:
    """Figure 6 as a table."""
    table = console.table(
        f"{result.small_queries} small queries, by how many times worse than the optimum, %",
        SMALL_COLUMNS,
        caption="worst: unlimited where nothing feasible was found",
    )
    for row in result.small:
        table.add_row(
            row.search,
            console.number(row.optimal),
            console.number(row.published),
            console.number(row.up_to_1_5),
            console.number(row.up_to_2),
            console.number(row.up_to_4),
            console.number(row.worse),
            console.number(row.worst, 2),
            console.number(row.time, 2),
        )
    return table


def large_table(result: figures.Result) -> Any:
    """Figures 7 and 8 as a table."""
    table = console.table(
        f"{result.large_queries} large queries, against reactive tabu, % of queries",
        LARGE_COLUMNS,
        caption="published: worse than reactive tabu",
    )
    for row in result.large:
        table.add_row(
            row.search,
            console.number(row.better),
            console.number(row.same),
            console.number(row.worse),
            console.number(row.published_worse),
            console.number(row.ratio, 3),
            console.number(row.lowest, 3),
            f"{row.infeasible:,}",
            console.number(row.time, 2),
            console.number(row.median_time, 2),
            console.number(row.evaluations, 0),
        )
    return table


def told(result: figures.Result) -> tuple[str, ...]:
    """What the figures come to, in words."""
    annealing = next(row for row in result.large if row.search == "annealing")
    return (
        f"annealing is {result.speedup:.0f} times as fast as tabu (published: 23) with "
        f"{result.annealing_to_tabu:.3f} of its throughput on average, and no less in "
        f"{result.annealing_at_least_tabu:.0f} % of the queries; it takes {annealing.time:.1f} ms "
        f"(published: {result.published_annealing:.0f} ms)",
    )
