"""The command ``nova workload build``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nova_core import console, paths
from nova_core.commands import shared


@click.command()
@click.option(
    "--sensors",
    type=paths.InputPath(exists=True, file_okay=False),
    required=True,
    help="Directory that `nova workload prepare` wrote.",
)
@click.option(
    "--topology",
    type=paths.InputPath(exists=True),
    required=True,
    help="Nodes: a table (.csv, .parquet, .arrow) or a problem.",
)
@click.option("--sink", required=True, help="The node that consumes the result.")
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    required=True,
    help="A .yaml or .json document; a path without suffix becomes a directory of Parquet tables.",
)
@click.option(
    "--nodes-of",
    type=paths.InputPath(exists=True, dir_okay=False),
    help="Table with the columns source (or sensor) and node; others go to the nearest node.",
)
@click.option(
    "--latencies",
    type=paths.InputPath(exists=True, dir_okay=False),
    help="Pairs of nodes (source, target, latency), as `nova workload latency` writes them.",
)
@click.option(
    "--rate",
    type=click.Choice(["median", "peak"]),
    default="median",
    show_default=True,
    help="Which of a sensor's rates is its source's.",
)
@click.option("--rate-scale", type=float, default=1.0, show_default=True, help="Multiplies rates.")
@click.option("--fixed-rate", type=float, help="Of every source instead of its own, tuples/s.")
@click.option(
    "--selectivity",
    type=float,
    default=1.0,
    show_default=True,
    help="Results per tuple of a pair's slower input.",
)
@click.option("--name", default="sensors", show_default=True, help="Of the problem.")
@shared.json_option
def build(sensors: Path, topology: Path, output: Path, as_json: bool, **arguments: Any) -> None:
    """Make a placement problem of prepared sensors and a topology.

    A topology's table has the columns id, capacity, coordinates (x, y, …; or --latencies) and,
    where sensors go to their nearest node, lat and lon.
    """
    from nova_workloads.problem_builder import Build, build_problem

    with console.warnings_as_lines():
        summary = build_problem(sensors, topology, output, Build(**arguments))
    if as_json:
        console.print_json(summary)
        return
    nearest = summary["nearest"]
    rows = [
        ("nodes", f"{summary['nodes']:,}"),
        ("pressure sources", f"{summary['sources']['pressure']:,}"),
        ("humidity sources", f"{summary['sources']['humidity']:,}"),
        ("sensors without a partner, left out", f"{summary['unmatched']:,}"),
        ("regions", f"{summary['regions']:,}"),
        ("pairs of sources to join", f"{summary['pairs']:,}"),
        ("rate of all sources, tuples/s", console.number(summary["rate"], 2)),
        ("capacity, tuples/s", console.number(summary["capacity"], 0)),
        ("sources on their nearest node", f"{nearest['sources']:,}"),
        ("distance to it, km: median", console.number(nearest["km_median"] or 0.0)),
        ("distance to it, km: greatest", console.number(nearest["km_max"] or 0.0)),
        ("digest", summary["digest"] or "-"),
        ("written to", summary["output"]),
    ]
    console.show(console.table(arguments["name"], ["what", ">value"], rows))
