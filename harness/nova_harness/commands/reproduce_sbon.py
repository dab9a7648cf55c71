"""The command ``nova reproduce sbon``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_core.commands import shared
from nova_harness.commands.reproduce_shared import figure_options, publish

if TYPE_CHECKING:
    from nova_harness.sbon_results import Result


@click.command()
@figure_options("sbon", None)
def sbon(parameters: Path | None, output: Path, as_json: bool) -> None:
    """SBON's algorithms on transit-stub topologies: its Table 1, Fig. 8 and 9, and reuse."""
    from nova_harness import sbon as experiment
    from nova_harness.figure_inputs import read_parameters
    from nova_harness.sbon_results import draw

    asked = read_parameters("sbon", experiment.Sbon, parameters)
    with shared.working(), console.progress("topologies") as advance:
        result = experiment.run(asked, advance)
    tables: dict[str, Sequence[object]] = {
        "sbon-table1": result.table,
        "sbon-distributions": result.distributions,
        "sbon-spaces": result.spaces,
        "sbon-reuse": result.reuse,
    }
    shown = [_table(result), "", _spaces(result), "", _reuse(result)]
    publish(output, "sbon", result, tables, draw, shown, as_json)


def _table(result: Result) -> Any:
    table = console.table(
        f"Penalties, %: {result.queries:,} queries on each of {result.topologies} transit-stub "
        f"topologies of {result.nodes:,} nodes",
        [
            "algorithm",
            ">network usage",
            ">±",
            ">published",
            ">80th percentile",
            ">delay",
            ">±",
            ">published",
            ">faster than the route",
        ],
        caption="±: standard deviation among topologies",
    )
    for row in result.table:
        table.add_row(
            row.algorithm,
            console.number(row.usage),
            console.number(row.usage_spread),
            console.number(row.published_usage, 0),
            console.number(row.usage_p80),
            console.number(row.delay),
            console.number(row.delay_spread),
            console.number(row.published_delay, 0),
            console.number(row.faster),
        )
    return table


def _spaces(result: Result) -> Any:
    table = console.table(
        "RELAXATION in other cost spaces, %",
        ["space", ">median error", ">network usage", ">±", ">worst topology", ">delay"],
        caption="the first is the table's",
    )
    for row in result.spaces:
        table.add_row(
            row.space,
            console.number(row.error),
            console.number(row.usage),
            console.number(row.usage_spread),
            console.number(row.worst_usage),
            console.number(row.delay),
        )
    return table


def _reuse(result: Result) -> Any:
    table = console.table(
        "Network usage saved by reuse among queries for the same aggregation, %",
        [">queries", ">saved", ">±", ">least", ">published", ">without multicast", ">operators"],
        caption="operators: aggregators left of as many as there are queries, mean",
    )
    for row in result.reuse:
        table.add_row(
            str(row.queries),
            console.number(row.saving),
            console.number(row.saving_spread),
            console.number(row.least_saving),
            console.number(row.published, 0),
            console.number(row.saving_unicast),
            console.number(row.shared),
        )
    return table
