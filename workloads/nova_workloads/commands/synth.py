"""The command ``nova data synth``."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import SEED, NumberRange, at_least
from nova_workloads.synth import sensors_for, write_archive
from nova_workloads.synth_settings import TYPES, Faults, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
MOST_BYTES = 10**15
WHAT = {
    "missing": "readings with a value left empty",
    "not_a_number": "readings with a value that is `nan` or `unavailable`",
    "impossible": "readings with a value no weather has",
    "duplicates": "readings written twice",
    "clock_jumps": "files with timestamps decades away",
    "moved": "sensors that move",
    "absent": "files that are not there",
    "bad_files": "files that are not what they claim",
}


def _size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A number of bytes such as ``1GB`` or ``200MiB``."""
    if value is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].upper() not in UNITS:
        raise click.BadParameter(f"{value!r} is no size; expected e.g. 200MB or 1GiB")
    size = float(match[1]) * UNITS[match[2].upper()]
    if size > MOST_BYTES:
        raise click.BadParameter("an archive has at most 1 PB")
    return int(size)


def fault_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option per kind of fault."""
    for fault in reversed(fields(Faults)):
        command = click.option(
            f"--{fault.name.replace('_', '-')}",
            type=NumberRange(0, 1),
            metavar="SHARE",
            help=f"Of {WHAT[fault.name]}. [default: {fault.default:g}]",
        )(command)
    return command


@click.command()
@click.argument("directory", type=paths.OUTPUT)
@click.option("--sensors", type=at_least(1), help="How many. [default: 100]")
@click.option(
    "--size", callback=_size, help="As many sensors as make this much CSV, e.g. 1GB (uncompressed)."
)
@click.option("--days", type=at_least(1), default=1, show_default=True)
@click.option(
    "--start",
    type=click.DateTime(["%Y-%m-%d"]),
    default="2025-01-01",
    show_default=True,
    help="First day.",
)
@click.option(
    "--types",
    default=",".join(TYPES),
    show_default=True,
    help="Sensor types, dealt in turn.",
)
@click.option(
    "--interval",
    type=at_least(2),
    default=145,
    show_default=True,
    help="Seconds between a sensor's readings.",
)
@click.option("--regions", type=at_least(1), default=4, show_default=True, help="Towns.")
@click.option("--gzip", "compress", is_flag=True, help="Write .csv.gz.")
@click.option(
    "--mixed", is_flag=True, help="Few files a day, of all sensors, instead of one per sensor."
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--clean", is_flag=True, help="No faults but those given.")
@fault_options
@shared.json_option
def synth(
    directory: Path,
    sensors: int | None,
    size: int | None,
    start: datetime,
    types: str,
    clean: bool,
    as_json: bool,
    **others: Any,
) -> None:
    """Make an archive like Sensor.Community's in DIRECTORY, faults included.

    One CSV file per sensor and day, as in the public archive; truth.json counts what was put in.
    One seed gives one archive, byte for byte.
    """
    if sensors is not None and size is not None:
        raise NovaError("--sensors and --size: give one of them")
    options = {f.name: others.pop(f.name) for f in fields(Faults)}
    shares = {name: share for name, share in options.items() if share is not None}
    if others["mixed"]:
        shares.setdefault("bad_files", 0.0)
    settings = Settings(
        sensors=sensors or 100,
        start=start.date(),
        types=tuple(name.strip().lower() for name in types.split(",")),
        faults=replace(Faults.none() if clean else Faults(), **shares),
        **others,
    )
    if size is not None:
        settings = replace(settings, sensors=sensors_for(size, settings))
    total = settings.sensors * settings.days
    with console.progress("writing files") as advance:
        truth = write_archive(directory, settings, lambda files: advance(files, total))
    if as_json:
        console.print_json(truth)
        return
    files = truth["files"]
    counted = [
        ("rows in good files", truth["rows"]),
        *((f"  {kind.replace('_', ' ')}", counts) for kind, counts in truth["faults"].items()),
        ("  clean", truth["clean"]),
    ]
    columns = ("rows", "pressure", "humidity")
    rows = [
        ("sensors", f"{settings.sensors:,}"),
        ("files", f"{files['written']:,}"),
        ("  not what they claim", f"{files['bad']:,}"),
        ("  absent", f"{files['absent']:,}"),
        ("megabytes", console.number(files["bytes"] / 1e6)),
        *((what, *(f"{counts[name]:,}" for name in columns)) for what, counts in counted),
        ("sensors that move", f"{len(truth['moved_sensors']):,}"),
    ]
    headings = ["what", ">number", ">pressure", ">humidity"]
    console.show(console.table(str(directory), headings, rows))
