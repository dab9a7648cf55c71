"""The commands ``nova data fetch ...``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least
from nova_workloads import fetch as fetching
from nova_workloads.download import Fetcher, FetchError, MissingError, checked_base

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nova_workloads.fetch import Outcome, Wanted

DAY = click.DateTime(["%Y-%m-%d"])


def _numbers(_: click.Context, __: click.Parameter, value: str | None) -> list[int] | None:
    """Whole numbers with commas between them."""
    try:
        return None if value is None else [int(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected whole numbers such as 12,34") from error


def _box(
    _: click.Context, __: click.Parameter, value: str | None
) -> tuple[float, float, float, float] | None:
    """South, west, north, east in degrees."""
    if value is None:
        return None
    try:
        south, west, north, east = (float(part) for part in value.split(","))
    except ValueError:
        south = west = north = east = float("nan")
    if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
        raise click.BadParameter(
            f"{value!r}: expected south,west,north,east in degrees, e.g. 52.3,13.0,52.7,13.8"
        )
    return south, west, north, east


@dataclass(frozen=True)
class Fetching:
    """What is fetched, where to and how; values of `fetch_options`."""

    directory: Path
    first: datetime
    last: datetime | None
    per_second: float
    retries: int
    verify: bool
    as_json: bool

    def fetcher(self) -> Fetcher:
        """What fetches a file, no faster than is allowed."""
        return Fetcher(per_second=self.per_second, retries=self.retries, say=console.say)

    def days(self) -> tuple[date, date]:
        """The first day and the last."""
        return self.first.date(), (self.last or self.first).date()

    def fetch(self, files: Sequence[Wanted], fetcher: Fetcher, **options: Any) -> Outcome:
        """Fetch files into the directory, unless they are there."""
        with console.progress("fetching") as advance:
            return fetching.fetch_all(
                files,
                self.directory,
                fetcher,
                verify=self.verify,
                progress=lambda outcome: advance(outcome.tried, len(files)),
                **options,
            )


# What all commands of fetch share.
fetch_options = shared.together(
    "how",
    Fetching,
    click.argument("directory", type=paths.OUTPUT),
    click.option("--from", "first", type=DAY, required=True, help="First day (UTC)."),
    click.option("--to", "last", type=DAY, help="Last day. [default: the first]"),
    click.option(
        "--per-second",
        type=NumberRange(min=0.001),
        default=4.0,
        show_default=True,
        help="Requests at most.",
    ),
    click.option(
        "--retries",
        type=at_least(0),
        default=5,
        show_default=True,
        help="After a failed attempt, each after twice the pause.",
    ),
    click.option("--verify", is_flag=True, help="Compare checksums of existing files."),
    shared.json_option,
)


@click.group()
def fetch() -> None:
    """Fetch public archives; an interrupted run can be resumed.

    Existing files are not fetched again; manifest.jsonl has each file's address and checksum.
    """


@fetch.command("sensor-community")
@fetch_options
@click.option("--sensors", callback=_numbers, metavar="ID,...", help="Only these.")
@click.option(
    "--bbox",
    callback=_box,
    metavar="S,W,N,E",
    help="Only sensors in this box (degrees) that are on at the moment.",
)
@click.option("--everything", is_flag=True, help="All sensors: tens of thousands of files a day.")
@click.option(
    "--types", default="bmp280,dht22,bme280", show_default=True, help="Only these sensor types."
)
@click.option(
    "--url", default=fetching.SENSOR_ARCHIVE, show_default=True, help="Of the archive or a mirror."
)
@click.option("--api-url", default=fetching.SENSOR_API, show_default=True, help="For --bbox.")
def sensor_community(
    how: Fetching,
    sensors: list[int] | None,
    bbox: tuple[float, float, float, float] | None,
    everything: bool,
    types: str,
    url: str,
    api_url: str,
) -> None:
    """Fetch daily files of Sensor.Community's archive into DIRECTORY."""
    if (sensors is not None) + (bbox is not None) + everything != 1:
        raise NovaError("give --sensors, --bbox or --everything, one of them")
    fetcher = how.fetcher()
    api = checked_base(api_url, "--api-url")
    archive = fetching.SensorArchive(fetcher, checked_base(url), api)
    chosen = None if everything else set(sensors or ())
    days = fetching.days(*how.days())
    if bbox is not None:
        chosen = archive.sensors_in(bbox)
        if not chosen:
            raise NovaError(f"--bbox {','.join(map(str, bbox))}: no sensor there is on")
    names = [name.strip().lower() for name in types.split(",")]
    files: list[Wanted] = []
    missing, failed = [], []
    for day in days:
        try:
            files += archive.files(day, chosen, names, _today())
        except MissingError:
            missing.append(str(day))
        except FetchError as error:
            failed.append(str(error))
            break  # the archive's other days would fail, too
    outcome = how.fetch(files, fetcher)
    outcome.missing[:0], outcome.failed[:0] = missing, failed
    _tell(outcome, how)


@fetch.command("ripe-atlas")
@fetch_options
@click.option(
    "--measurement",
    "measurements",
    callback=_numbers,
    required=True,
    metavar="ID,...",
    help="Measurements, e.g. pings of the anchoring mesh.",
)
@click.option("--probes", callback=_numbers, metavar="ID,...", help="Only these.")
@click.option("--url", default=fetching.ATLAS_API, show_default=True, help="Of the service.")
def ripe_atlas(how: Fetching, measurements: list[int], probes: list[int] | None, url: str) -> None:
    """Fetch results of RIPE Atlas measurements into DIRECTORY, a file per measurement and day."""
    archive = checked_base(url)
    files = list(fetching.atlas_files(measurements, *how.days(), _today(), probes or (), archive))
    _tell(how.fetch(files, how.fetcher(), check=fetching.as_lines), how)


def _today() -> date:
    return datetime.now(UTC).date()


def _tell(outcome: Outcome, how: Fetching) -> None:
    if how.as_json:
        console.print_json(asdict(outcome))
    else:
        rows = [
            ("fetched", f"{outcome.fetched:,}"),
            ("there already", f"{outcome.kept:,}"),
            ("not in the archive", f"{len(outcome.missing):,}"),
            ("failed", f"{len(outcome.failed):,}"),
        ]
        console.show(console.table(str(how.directory), ["files", ">number"], rows))
    if outcome.missing:
        more = f" and {len(outcome.missing) - 1} more" if len(outcome.missing) > 1 else ""
        console.warn(f"not in the archive: {outcome.missing[0]}{more}")
    if outcome.failed:
        more = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
        raise NovaError(f"{outcome.failed[0]}{more}")
