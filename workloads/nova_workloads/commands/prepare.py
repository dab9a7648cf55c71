"""The command ``nova workload prepare``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.numbers import NumberRange, at_least
from nova_workloads.commands.spark_options import bad_file_option, spark_options

if TYPE_CHECKING:
    from nova_workloads.sensor_archive.regions import Regions

SHOWN_PROBLEMS = 10
DAY = click.DateTime(["%Y-%m-%d"])


def _regions(grid: float, regions: Path | None, region_name: str) -> Regions:
    from nova_workloads.sensor_archive.regions import Grid, read_regions

    return read_regions(regions, region_name) if regions else Grid(grid)


def _days(first: datetime | None, last: datetime | None) -> dict[str, Any]:
    """Fields of `nova_workloads.sensor_archive.pipeline.Preparation`."""
    return {
        "first_day": first.date() if first else None,
        "last_day": last.date() if last else None,
    }


region_options = shared.together(
    "regions",
    _regions,
    click.option(
        "--grid",
        type=NumberRange(0, 90, min_open=True),
        default=1.0,
        show_default=True,
        help="Size of regions, degrees.",
    ),
    click.option(
        "--regions",
        type=paths.InputPath(exists=True, dir_okay=False),
        help="GeoJSON file of regions, instead of a grid; sensors in none of them are dropped.",
    ),
    click.option(
        "--region-name",
        default="name",
        show_default=True,
        help="Property that names a region of the file.",
    ),
)
# Fields of `nova_workloads.sensor_archive.cleaning.Cleaning`.
cleaning_options = shared.together(
    "cleaning",
    dict,
    click.option(
        "--move-distance",
        type=NumberRange(min=0),
        default=1.0,
        show_default=True,
        help="A sensor this far from its first position has moved, km.",
    ),
    click.option(
        "--pressure",
        type=float,
        nargs=2,
        default=(30_000, 110_000),
        show_default=True,
        help="Least and greatest possible, Pa.",
    ),
    click.option(
        "--sequence-period",
        type=NumberRange(0, min_open=True),
        default=1.0,
        show_default=True,
        help="Time between two numbers of sequence files, ms.",
    ),
)
day_options = shared.together(
    "days",
    _days,
    click.option("--from", "first", type=DAY, help="First day."),
    click.option("--to", "last", type=DAY, help="Last day."),
)


@click.command()
@click.argument("archive", nargs=-1, required=True, type=paths.InputPath(text=True))
@click.option(
    "--output",
    "-o",
    type=paths.OutputPath(text=True),
    required=True,
    help="Directory of the tables; new, or prepared.",
)
@region_options
@click.option(
    "--join-distance",
    type=NumberRange(min=0),
    help="Join only sensors of a region that are at most so far apart, km.",
)
@cleaning_options
@click.option(
    "--rate-window",
    type=at_least(1),
    default=3600,
    show_default=True,
    help="Rates are counted over windows of so many seconds.",
)
@day_options
@bad_file_option
@spark_options
@shared.json_option
def prepare(
    archive: tuple[str, ...],
    output: str,
    regions: Regions,
    join_distance: float | None,
    cleaning: dict[str, Any],
    rate_window: int,
    days: dict[str, Any],
    on_bad_file: Literal["skip", "fail"],
    spark: dict[str, Any],
    as_json: bool,
) -> None:
    """Clean a Sensor.Community archive into readings, sensors and a join matrix.

    ARCHIVE is any number of directories or files of the archive's daily CSV files or of sequence
    files, here or where Spark can read (s3a://…); or a .txt file with addresses of such files. A
    second run on the same output reads only new files.
    """
    from nova_workloads.sensor_archive import pipeline
    from nova_workloads.sensor_archive.cleaning import Cleaning
    from nova_workloads.sensor_archive.pipeline import Preparation
    from nova_workloads.spark import shown_session

    preparation = Preparation(
        regions=regions,
        cleaning=Cleaning(**cleaning),
        max_distance=join_distance,
        window=rate_window,
        on_bad_file=on_bad_file,
        **days,
    )
    with shown_session(spark) as (session, shown):
        report = pipeline.prepare(session, archive, output, preparation, shown.step)
    if as_json:
        console.print_json(report)
    else:
        _show(report)


def _by_reason(passed_over: dict[str, str]) -> dict[str, list[str]]:
    """Paths by the reason why they are passed over."""
    found: dict[str, list[str]] = {}
    for path, why in passed_over.items():
        found.setdefault(why, []).append(path)
    return found


def _show(report: dict[str, Any]) -> None:
    from nova_workloads.sensor_archive.cleaning import REASONS

    files, readings = report["files"], report["readings"]
    for path, problem in list(files["problems"].items())[:SHOWN_PROBLEMS]:
        console.warn(f"{path}: left out: {problem}")
    if files["refused"] > SHOWN_PROBLEMS:
        console.warn(f"{files['refused'] - SHOWN_PROBLEMS} more files left out; see --json")
    for why, passed in _by_reason(files["passed_over"]).items():
        more = f" and {len(passed) - 1:,} more" if len(passed) > 1 else ""
        console.warn(f"{passed[0]}{more}: passed over: {why}")
    table = console.table("Readings", ["what", ">count", ">share", "why"])
    table.add_row("in", f"{readings['in']:,}", "", "")
    for reason, count in readings["dropped"].items():
        if count:
            share = f"{100 * count / readings['in']:.2f} %"
            table.add_row(f"  {reason}", f"{count:,}", share, REASONS[reason])
    table.add_row("out", f"{readings['out']:,}", console.share(readings["out"], readings["in"]), "")
    days = report["days"]
    sensors = report["sensors"]
    rows = [
        ("days", f"{days['first']} to {days['last']} ({days['count']})"),
        ("files", f"{files['total']:,}"),
        ("files read now", f"{files['new']:,} ({files['new_bytes'] / 2**20:,.1f} MiB)"),
        ("files left out", f"{files['refused']:,}"),
        ("files passed over", f"{len(files['passed_over']):,}"),
        ("pressure sensors", f"{sensors['pressure']:,}"),
        ("humidity sensors", f"{sensors['humidity']:,}"),
        ("regions", f"{report['regions']:,}"),
        ("pairs to join", f"{report['pairs']:,}"),
        ("seconds", f"{report['seconds']:.1f}"),
        ("written to", report["output"]),
    ]
    console.show(table, console.table("Prepared", ["what", ">value"], rows))
