"""The command ``nova workload latency``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.numbers import NumberRange, at_least
from nova_workloads.commands.spark_options import bad_file_option, spark_options


@click.command()
@click.argument("measurements", nargs=-1, required=True, type=paths.INPUT)
@click.option(
    "--output",
    "-o",
    type=paths.OutputPath(dir_okay=False),
    required=True,
    help="A .parquet file of pairs, for `nova topology embed` and `nova workload build`.",
)
@click.option(
    "--window",
    type=at_least(1),
    default=10,
    show_default=True,
    help="How many of a direction's last samples count.",
)
@click.option(
    "--percentile",
    type=NumberRange(0, 100, min_open=True),
    default=20.0,
    show_default=True,
    help="Which of them is the latency.",
)
@bad_file_option
@spark_options
@shared.json_option
def latency(
    measurements: tuple[Path, ...],
    output: Path,
    spark: dict[str, Any],
    as_json: bool,
    **settings: Any,
) -> None:
    """Make one round-trip time per pair of nodes from many measured ones.

    MEASUREMENTS is any number of files or directories: RIPE Atlas' ping results (.json, .jsonl) and
    matrices (.csv: a row of names, then a row per node; ms), also .gz. Several matrices are rounds,
    in the order of their names. What is written has the column rtt: `nova topology` takes half of
    each, as latencies of problems are one way.
    """
    from nova_workloads.latencies.pipeline import Filter, filter_latencies
    from nova_workloads.spark import shown_session

    with shown_session(spark) as (session, shown):
        report = filter_latencies(session, measurements, output, Filter(**settings), shown.step)
    if as_json:
        console.print_json(report)
    else:
        _show(report)


def _show(report: dict[str, Any]) -> None:
    from nova_core.io.latencies import doubt
    from nova_workloads.latencies.samples import REASONS

    for path, problem in report["files"]["problems"].items():
        console.warn(f"{path}: left out: {problem}")
    if why := doubt(report["pairs"]["latency_median"]):
        console.warn(f"{report['output']}: {why}")
    samples, pairs, coverage = report["samples"], report["pairs"], report["coverage"]
    table = console.table("Samples", ["what", ">count", "why"])
    table.add_row("in", f"{samples['in']:,}", "")
    for reason, count in samples["dropped"].items():
        if count:
            table.add_row(f"  {reason}", f"{count:,}", REASONS[reason])
    table.add_row("out", f"{samples['out']:,}", "")
    over = report["outliers"]["over"]
    late = f"more than {over:g} times the latency; the filter ignores them"
    table.add_row("  outliers", f"{report['outliers']['samples']:,}", late)
    rows = [
        ("nodes", f"{coverage['nodes']:,}"),
        ("pairs", f"{pairs['count']:,}"),
        ("pairs, of all", console.share(pairs["count"], coverage["pairs_possible"])),
        ("pairs measured in both directions", f"{pairs['both_directions']:,}"),
        ("one direction over the other, median", console.number(pairs["asymmetry_median"] or 1, 3)),
        ("pairs with one direction over 1.5 times the other", f"{pairs['asymmetric']:,}"),
        ("round trip, ms: least", console.number(pairs["latency_min"], 2)),
        ("round trip, ms: median", console.number(pairs["latency_median"], 2)),
        ("round trip, ms: greatest", console.number(pairs["latency_max"], 2)),
        ("neighbours of a node, median", console.number(coverage["neighbours_median"], 0)),
        (f"nodes with fewer than {coverage['few']}", f"{coverage['nodes_with_few_neighbours']:,}"),
        ("written to", report["output"]),
    ]
    console.show(table, console.table("Latencies", ["what", ">value"], rows))
