"""The command ``nova workload debs``."""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.numbers import NumberRange, at_least


@click.command()
@click.option("--output", "-o", type=paths.OUTPUT, help="A .yaml or .json document.")
@click.option("--sql", type=paths.OUTPUT, help="A file for the query in SQL.")
@click.option(
    "--window",
    "window_ms",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Tumbling windows, ms.",
)
@click.option(
    "--rate",
    type=NumberRange(0, 1e12, min_open=True),
    default=1000.0,
    show_default=True,
    help="Of each sensor, tuples/s.",
)
@click.option("--regions", type=at_least(1), default=4, show_default=True)
@click.option("--nodes", type=at_least(4), default=14, show_default=True)
@click.option(
    "--keys",
    type=at_least(1),
    default=1,
    show_default=True,
    help="Match sequence numbers modulo this as well, which divides the output.",
)
@shared.json_option
def debs(
    output: Path | None,
    sql: Path | None,
    window_ms: int,
    rate: float,
    regions: int,
    nodes: int,
    keys: int,
    as_json: bool,
) -> None:
    """Write the DEBS-style workload as a problem, and as a query in SQL.

    Pressure joined with humidity on the region and tumbling windows; by default the paper's four
    regions and eight sensors at 1 kHz on 14 nodes (section 4.1). Without --output and --sql the
    problem goes to stdout.
    """
    from nova_core.errors import ProblemError
    from nova_core.io.safe_files import DOCUMENT_SUFFIXES, write_text
    from nova_workloads.debs import Debs

    workload = Debs(window_ms=window_ms, rate=rate, regions=regions, nodes=nodes, keys=keys)
    if output is not None and output.suffix not in DOCUMENT_SUFFIXES:
        raise ProblemError(f"{output}: expected a .yaml or .json document")
    if output is None and sql is None and not as_json:
        click.echo(workload.text(), nl=False)
        return
    if output is not None:
        write_text(output, workload.text(output.suffix))
    if sql is not None:
        write_text(sql, workload.sql())
    written = [str(path) for path in (output, sql) if path is not None]
    if as_json:
        console.print_json(
            {
                "window_ms": window_ms,
                "rate": rate,
                "regions": regions,
                "nodes": nodes,
                "keys": keys,
                "output_rate": workload.output_rate,
                "written": written,
            }
        )
        return
    console.say(
        f"{', '.join(written)}: {2 * regions} sensors at {rate:g} tuples/s, windows of "
        f"{window_ms} ms, {console.number(workload.output_rate, 0)} results/s"
    )
