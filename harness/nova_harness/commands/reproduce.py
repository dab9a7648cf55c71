"""The commands ``nova reproduce ...``: the paper's figures again, from parameters in YAML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_core.commands import shared
from nova_harness.commands.reproduce_sbon import sbon
from nova_harness.commands.reproduce_shared import data_directory, figure_options, publish
from nova_harness.commands.reproduce_simulation import fig6, fig7, fig10
from nova_harness.commands.reproduce_whitewater import whitewater

if TYPE_CHECKING:
    from nova_harness import fig8 as eighth
    from nova_harness import fig9 as ninth


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def reproduce() -> None:
    """Run the paper's experiments again: tables, figures and their numbers."""


for command in (fig6, fig7, fig10, sbon, whitewater):
    reproduce.add_command(command)


@reproduce.command()
@figure_options("fig8")
def fig8(
    data: Path | None, synthetic: bool, parameters: Path | None, output: Path, as_json: bool
) -> None:
    """Every strategy on estimated latencies, judged by estimated and measured ones (Fig. 8).

    With what heights and more dimensions are worth to Nova.
    """
    from nova_harness import fig8 as figure
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("fig8", figure.Fig8, parameters)
    with shared.working(), console.progress("placing") as advance:
        result = figure.run(asked, data_directory(data, synthetic), advance)
    tables: dict[str, Sequence[object]] = {"fig8": result.strategies, "fig8-spaces": result.spaces}
    shown = [strategies_table(result), "", spaces_table(result)]
    publish(output, "fig8", result, tables, figure.draw, shown, as_json)


@reproduce.command()
@figure_options("fig9")
def fig9(
    data: Path | None, synthetic: bool, parameters: Path | None, output: Path, as_json: bool
) -> None:
    """A placement that stays while latencies change over the hours (Fig. 9)."""
    from nova_harness import fig9 as figure
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("fig9", figure.Fig9, parameters)
    with shared.working(), console.progress("placing") as advance:
        result = figure.run(asked, data_directory(data, synthetic), advance)
    shown = [
        hours_table(result),
        "",
        f"90P stays within {100 * result.p90_range:.1f} % of its mean over the hours, the mean "
        f"within {100 * result.mean_range:.1f} %; of single workloads 90P within "
        f"{100 * result.worst_workload:.1f} %",
    ]
    publish(output, "fig9", result, {"fig9": result.hours}, figure.draw, shown, as_json)


def strategies_table(result: eighth.Result) -> Any:
    """Figure 8 as a table."""
    table = console.table(
        f"Placed on estimated latencies of {result.nodes} nodes ({result.latencies}), ms",
        ["strategy", ">mean, estimated", ">measured", ">x", ">90P, estimated", ">measured", ">x"],
        caption="\n".join(f"{r.strategy}: {r.error}" for r in result.strategies if r.error) or None,
    )
    for row in result.strategies:
        table.add_row(
            row.strategy,
            console.number(row.estimated_mean),
            console.number(row.measured_mean),
            console.number(row.measured_mean / row.estimated_mean, 2),
            console.number(row.estimated_p90),
            console.number(row.measured_p90),
            console.number(row.measured_p90 / row.estimated_p90, 2),
        )
    return table


def spaces_table(result: eighth.Result) -> Any:
    """What other cost spaces are worth, against the first one."""
    table = console.table(
        "nova(p) in other cost spaces, measured",
        ["space", ">error, ms", "objective", ">mean, ms", ">%", ">90P, ms", ">%", ">usage, %"],
    )
    first: dict[str, eighth.SpaceRow] = {}
    for row in result.spaces:
        base = first.setdefault(row.objective, row)
        table.add_row(
            row.space,
            console.number(row.mae),
            row.objective,
            console.number(row.measured_mean),
            _change(row.measured_mean, base.measured_mean),
            console.number(row.measured_p90),
            _change(row.measured_p90, base.measured_p90),
            _change(row.measured_usage, base.measured_usage),
        )
    return table


def _change(value: float, base: float) -> str:
    return f"{100 * (value / base - 1):+.1f}"


def hours_table(result: ninth.Result) -> Any:
    """Figure 9 as a table."""
    table = console.table(
        f"A fixed placement on {result.nodes} nodes ({result.latencies}), measured, ms",
        [">hour", ">mean", ">90P", ">90P / its mean, lowest", ">highest", ">changed", ">by"],
        caption="changed: entries of the matrix since the hour before, by how much (median)",
    )
    for row in result.hours:
        table.add_row(
            str(row.hour),
            console.number(row.mean),
            console.number(row.p90),
            console.number(row.lowest_p90, 3),
            console.number(row.highest_p90, 3),
            f"{row.changed:,}",
            console.number(row.median_change),
        )
    return table
