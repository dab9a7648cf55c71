"""``nova query``: what readings say of queries, and what must come out."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.lazy_commands import OpenGroup

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

DIFFERENT = 1

_problem = click.argument("problem", type=paths.InputPath(exists=True))
_readings = click.option(
    "--readings",
    type=paths.InputPath(exists=True, file_okay=False),
    required=True,
    metavar="DIR",
    help="SOURCE.csv or .parquet for every source, or a file per stream with a column source.",
)


@click.group(cls=OpenGroup, short_help="Whole queries: estimates, and what must come out.")
def query() -> None:
    """Whole queries: what readings say of them, and what they must deliver."""


def _loaded(path: Path, folder: Path) -> tuple[Problem, Any]:
    from nova_core.io.files import read_problem
    from nova_workloads.queries.readings import connection, load

    problem = read_problem(path)
    if not problem.streams:
        raise NovaError(f"{path}: streams are missing: give the columns of every stream")
    database = connection()
    load(database, problem, folder)
    return problem, database


@query.command(short_help="Selectivities, groups, rates and sizes from readings.")
@_problem
@_readings
@click.option(
    "--output", "-o", type=paths.OUTPUT, help="Where the problem with the estimates goes."
)
@shared.json_option
def estimate(problem: Path, readings: Path, output: Path | None, as_json: bool) -> None:
    """Estimate selectivities, groups, rates and tuple sizes of PROBLEM's queries."""
    from dataclasses import asdict

    from nova_workloads.queries.estimate import estimated

    read, database = _loaded(problem, readings)
    updated, estimates = estimated(read, database)
    if output is not None:
        from nova_core.io.files import write_problem

        write_problem(updated, output)
    if as_json:
        console.print_json({"operators": [asdict(one) for one in estimates]})
        return
    rows = []
    for one in estimates:
        value = f"{one.name} {one.value:g}" if one.name else ""
        if one.keys:
            value += f", {one.keys:,} keys, {one.hot} hot"
        rows.append((f"{one.query}/{one.operator}", f"{one.emitted:,}", f"{one.rate:.4g}", value))
    headings = ["operator", ">emitted", ">tuples/s", "estimate"]
    console.show(console.table("What the readings say", headings, rows))
    if output is not None:
        console.say(f"problem written to {output}")


@query.command(short_help="Readings as sources of a job that replays them.")
@_problem
@_readings
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Seconds of the readings in a second; 0 for as fast as an engine takes them.",
)
@click.option("--output", "-o", type=paths.OUTPUT, required=True, help="Folder to make.")
def sources(problem: Path, readings: Path, speed: float, output: Path) -> None:
    """Write the readings of PROBLEM's queries as `nova translate --set sources=` takes them.

    OUTPUT/sources.json says how they are replayed, the files beside it are the readings.
    """
    from nova_core import scratch
    from nova_core.io.files import read_problem
    from nova_workloads.queries.replayed import ReplayedReadings

    if output.exists():
        raise NovaError(f"--output: {output}: is there already; give a folder to be made")
    read = read_problem(problem)
    output.parent.mkdir(parents=True, exist_ok=True)
    with scratch.beside(output) as place:
        made = place / "made"
        made.mkdir()
        replayed = ReplayedReadings(read, readings, made, speed)
        names = {one: Path(file).name for one, file in replayed.files.items()}
        text = replayed.from_time(0).with_paths(names).to_json()
        (made / "sources.json").write_text(text, "utf-8")
        made.rename(output)
    console.say(
        f"readings of {len(names)} sources in {output}, for --set sources={output / 'sources.json'}"
    )


@query.command(short_help="What queries must deliver; compares what an engine delivered.")
@_problem
@_readings
@click.option("--query", "name", metavar="ID", help="Which query [default: the only one].")
@click.option("--output", "-o", type=paths.OUTPUT, help="Where the results go, as CSV.")
@click.option(
    "--check",
    "results",
    type=paths.InputPath(exists=True, dir_okay=False),
    help="Results of a run; exit code 1 when they differ.",
)
@shared.json_option
@click.pass_context
def reference(
    ctx: click.Context,
    problem: Path,
    readings: Path,
    name: str | None,
    output: Path | None,
    results: Path | None,
    as_json: bool,
) -> None:
    """Run a query of PROBLEM in one process, by DuckDB; rows are to come in any order.

    Results of a run are a file as the sinks of engines write it, with the files beside it.
    """
    from msgspec import to_builtins

    from nova_core.io.binding import bind
    from nova_workloads.queries.reference import compare, expected, read_delivered

    read, database = _loaded(problem, readings)
    ids = [one.id for one in read.queries]
    if name is None and len(ids) > 1:
        raise NovaError(f"--query: expected one of {', '.join(ids)}")
    if name is not None and name not in ids:
        raise NovaError(f"--query {name}: expected one of {', '.join(ids)}")
    chosen = read.queries[0 if name is None else ids.index(name)]
    rows = expected(database, read, chosen)
    columns = bind(chosen, read)[chosen.operators[-1].id].columns
    if output is not None:
        from nova_core.io.safe_files import write_text

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["time", *(one.name for one in columns)])
        writer.writerows(rows)
        write_text(output, text.getvalue())
    compared = None if results is None else compare(rows, read_delivered(results, columns))
    if as_json:
        comparison = compared and {"ok": compared.ok, **to_builtins(compared)}
        console.print_json({"query": chosen.id, "results": len(rows), "comparison": comparison})
    else:
        click.echo(f"{chosen.id}: {len(rows):,} results must come")
        if compared is not None:
            click.echo(
                f"{compared.delivered:,} came: {compared.lost:,} lost, "
                f"{compared.duplicated:,} duplicated, {compared.wrong:,} wrong"
            )
            for line in compared.lines():
                click.echo(line)
    if compared is not None and not compared.ok:
        ctx.exit(DIFFERENT)
