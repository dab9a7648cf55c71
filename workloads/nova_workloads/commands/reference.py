"""The command ``nova workload reference``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import at_least
from nova_workloads.commands.inputs import NOW, Inputs, input_options

if TYPE_CHECKING:
    from nova_workloads.comparison import Comparison
    from nova_workloads.reference import Reference

DIFFERENT = 1


@click.command()
@input_options
@click.option(
    "--window",
    "window_ms",
    type=at_least(1),
    required=True,
    metavar="MS",
    help="Length of the tumbling windows of event time.",
)
@click.option("--left", default="pressure", show_default=True, help="Logical stream.")
@click.option("--right", default="humidity", show_default=True, help="Logical stream.")
@click.option(
    "--keys",
    type=at_least(1),
    default=1,
    show_default=True,
    help="Match sequence numbers modulo this as well.",
)
@click.option(
    "--problem",
    type=paths.INPUT,
    help="Joins the pairs of this problem's matrix, instead of all of equal region.",
)
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    help="Writes every result: a .csv or .parquet file.",
)
@click.option(
    "--check",
    "results",
    multiple=True,
    type=paths.INPUT,
    help="Results of a run (.csv, .jsonl, .parquet) to compare with it; may be repeated. "
    "Exit code 1 when they differ.",
)
@click.option("--columns", metavar="NAME,...", help="Of --check files of CSV without header.")
@shared.json_option
def reference(
    given: Inputs,
    window_ms: int,
    left: str,
    right: str,
    keys: int,
    problem: Path | None,
    output: Path | None,
    results: tuple[Path, ...],
    columns: str | None,
    as_json: bool,
) -> None:
    """Say which results a windowed join must deliver, and compare a run with it.

    The streams are given as for `nova workload replay`, or as the files it wrote; with the same
    options and --start they are the same tuples. Results of a run have the columns left_sensor,
    left_sequence, right_sensor, right_sequence and perhaps window_ms.
    """
    from nova_workloads.reference import Reference, pairs_of
    from nova_workloads.result_files import read_results, write_results
    from nova_workloads.schedule import all_tuples

    if given.start == NOW:
        raise NovaError("--start now: give the start that the replay told, in ms")
    if given.synthetic and given.duration is None and given.count is None:
        raise NovaError("--synthetic: give --duration or --count")
    schedule = given.schedule(given.start_ms())
    streams = given.streams()
    pairs = None
    if problem is not None:
        from nova_core.io.files import read_problem

        joined = read_problem(problem)
        joined.require_pairs("nova workload reference")
        pairs = pairs_of(joined, streams, left, right)
    join = Reference(
        streams,
        all_tuples(schedule, streams),
        window_ms,
        left=left,
        right=right,
        keys=keys,
        pairs=pairs,
    )
    if output is not None:
        write_results(join, output)
    names = [name.strip() for name in columns.split(",")] if columns else []
    compared = join.compare(read_results(results, join, names)) if results else None
    if as_json:
        console.print_json(_answer(join, compared))
    else:
        _show(join, compared)
    if compared is not None and not compared.ok:
        click.get_current_context().exit(DIFFERENT)


def _answer(join: Reference, compared: Comparison | None) -> dict[str, Any]:
    from msgspec import to_builtins

    return {
        "tuples": len(join.tuples),
        "pairs": {join.pair_name(i): int(n) for i, n in enumerate(join.per_pair.tolist())},
        "windows": join.windows,
        "window_ms": join.window_ms,
        "results": join.total,
        "comparison": compared and {"ok": compared.ok, **to_builtins(compared)},
    }


def _show(join: Reference, compared: Comparison | None) -> None:
    rows = [
        ("tuples", f"{len(join.tuples):,}"),
        ("pairs of sensors", f"{len(join.pairs):,}"),
        ("windows with results", f"{join.windows:,}"),
        ("results that must come", f"{join.total:,}"),
    ]
    if compared is not None:
        rows += [
            ("results that came", f"{compared.delivered:,}"),
            ("  lost", f"{compared.lost:,}"),
            ("  duplicated", f"{compared.duplicated:,}"),
            ("  wrong", f"{compared.wrong:,}"),
        ]
    console.show(console.table(f"windows of {join.window_ms} ms", ["what", ">number"], rows))
    if compared is None:
        return
    for line in compared.lines():
        click.echo(line)
    for pair, number in list(compared.lost_per_pair.items())[: console.ROWS]:
        click.echo(f"lost of {pair}: {number:,}")
    click.echo("the same" if compared.ok else "different")
