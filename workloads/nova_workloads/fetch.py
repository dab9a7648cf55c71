"""Fetching public archives: Sensor.Community's daily files and RIPE Atlas' measurement results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlencode

import msgspec

from nova_core.errors import NovaError
from nova_core.io.packed import check_packed
from nova_workloads.download import (
    Entry,
    Fetcher,
    FetchError,
    Manifest,
    MissingError,
    sha256_of,
)

SENSOR_ARCHIVE = "https://archive.sensor.community"
SENSOR_API = "https://data.sensor.community"
ATLAS_API = "https://atlas.ripe.net"
DAILY_FILE = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)_(?P<type>[a-z0-9-]+)_sensor_(?P<id>\d+)(_indoor)?\.csv(\.gz)?"
)
# A day's files are exported the next morning; before that they may still change.
SETTLED = timedelta(days=2)
GIVE_UP = 3  # files that failed one after the other


@dataclass(frozen=True)
class Wanted:
    """A file to fetch.

    Attributes:
        url: where it is.
        file: path within the directory.
        settled: whether it will not change any more.
    """

    url: str
    file: str
    settled: bool = True


@dataclass
class Outcome:
    """The outcome of fetching.

    Attributes:
        fetched: files that were fetched.
        bytes: their size.
        kept: files that existed already.
        missing: addresses that the server does not have.
        failed: reasons of the files that could not be fetched.
    """

    fetched: int = 0
    bytes: int = 0
    kept: int = 0
    missing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """How many files were tried."""
        return self.fetched + self.kept + len(self.missing) + len(self.failed)


def fetch_all(
    files: Sequence[Wanted],
    directory: Path,
    fetcher: Fetcher,
    *,
    verify: bool = False,
    check: Callable[[Path], None] | None = None,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Fetch files into a directory, except existing ones.

    Args:
        files: the files.
        directory: where to; its ``manifest.jsonl`` lists the files with checksums.
        fetcher: sends the requests.
        verify: compare the checksums of existing files, and fetch damaged ones again; else their
            sizes.
        check: raises ValueError for a file that is damaged; gzip files are checked anyway.
        progress: callback after each file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(directory)
    outcome = Outcome()
    in_a_row = 0
    for one in files:
        if in_a_row == GIVE_UP:
            outcome.failed.append(f"{GIVE_UP} in a row: the rest was not tried")
            break
        path = directory / one.file
        try:
            if _is_here(one, path, manifest, fetcher, verify):
                outcome.kept += 1
            else:
                packed = check_packed if path.suffix == ".gz" else None
                entry = fetcher.file(one.url, path, one.file, check or packed)
                manifest.add(entry)
                outcome.fetched += 1
                outcome.bytes += entry.bytes
            in_a_row = 0
        except MissingError:
            outcome.missing.append(one.url)
        except FetchError as error:
            outcome.failed.append(str(error))
            in_a_row += 1
        progress(outcome)
    return outcome


def _is_here(one: Wanted, path: Path, manifest: Manifest, fetcher: Fetcher, verify: bool) -> bool:
    entry = manifest.entries.get(one.file)
    if entry is None or not path.is_file() or path.stat().st_size != entry.bytes:
        return False
    if verify and sha256_of(path) != entry.sha256:
        return False
    if one.settled or _fetched_late(entry, one.file):
        return True
    return not fetcher.changed(one.url, entry)


def _fetched_late(entry: Entry, file: str) -> bool:
    """Whether a file was fetched when it could not change any more."""
    match = re.search(r"\d{4}-\d\d-\d\d", file)
    if match is None:
        return False
    day = datetime.fromisoformat(match[0]).replace(tzinfo=UTC)
    return datetime.fromisoformat(entry.fetched) >= day + SETTLED


def days(first: date, last: date) -> list[date]:
    """All days from one to another, both included.

    Raises:
        NovaError: when the last is before the first.
    """
    if last < first:
        raise NovaError(f"--to {last}: before --from {first}")
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


# --- Sensor.Community ---------------------------------------------------------------------------


class _Links(HTMLParser):
    """The targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link."""
        if tag == "a":
            self.targets += [value for name, value in attrs if name == "href" and value]


@dataclass(frozen=True)
class SensorArchive:
    """Sensor.Community's archive: a directory per day, a file per sensor and day.

    Attributes:
        fetcher: sends the requests.
        url: of the archive.
        api: of the service that knows where sensors are.
    """

    fetcher: Fetcher
    url: str = SENSOR_ARCHIVE
    api: str = SENSOR_API

    def sensors_in(self, box: tuple[float, float, float, float]) -> set[int]:
        """Sensors in a box (south, west, north, east; degrees) that have reported just now.

        The archive's directories do not say where sensors are; the live service does, for those
        that are on.

        Raises:
            FetchError: when it does not answer with a list of sensors.
        """
        corners = ",".join(f"{value:g}" for value in box)
        url = f"{self.api}/airrohr/v1/filter/box={corners}"
        text = self.fetcher.text(url)
        try:
            return {int(row["sensor"]["id"]) for row in json.loads(text)}
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FetchError(f"{url}: no list of sensors came") from error

    def files(
        self, day: date, sensors: set[int] | None, types: Sequence[str], today: date
    ) -> list[Wanted]:
        """The files of a day.

        Args:
            day: the day.
            sensors: only these; all when None.
            types: sensor types.
            today: files of the last days before it may still change.

        Raises:
            MissingError: when the archive does not have that day.
        """
        try:
            place = f"{self.url}/{day}"
            listing = self.fetcher.text(f"{place}/")
        except MissingError:
            # Past years are one level down.
            place = f"{self.url}/{day.year}/{day}"
            listing = self.fetcher.text(f"{place}/")
        links = _Links()
        links.feed(listing)
        by_name = {}
        for link in links.targets:
            name = unquote(link).rpartition("/")[2]
            match = DAILY_FILE.fullmatch(name)
            if (
                match is not None
                and match["day"] == day.isoformat()
                and match["type"] in types
                and (sensors is None or int(match["id"]) in sensors)
            ):
                by_name[name] = Wanted(
                    f"{place}/{name}", f"{day}/{name}", settled=today - day >= SETTLED
                )
        return [by_name[name] for name in sorted(by_name)]


# --- RIPE Atlas ---------------------------------------------------------------------------------


class _Result(msgspec.Struct):
    """Fields of every result."""

    prb_id: int
    timestamp: int


def atlas_files(
    measurements: Sequence[int],
    first: date,
    last: date,
    today: date,
    probes: Sequence[int] = (),
    url: str = ATLAS_API,
) -> Iterator[Wanted]:
    """A file per measurement and day (UTC), of one JSON result a line.

    Args:
        measurements: their ids.
        first: first day.
        last: last day.
        today: results of the last days before it may still come.
        probes: only these; all when empty.
        url: of the service.
    """
    for measurement in measurements:
        for day in days(first, last):
            begin = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
            query: dict[str, object] = {"start": begin, "stop": begin + 86_399, "format": "txt"}
            if probes:
                query["probe_ids"] = ",".join(map(str, probes))
            yield Wanted(
                f"{url}/api/v2/measurements/{measurement}/results/?{urlencode(query)}",
                f"{measurement}/ripe-atlas-{measurement}-{day}.jsonl",
                settled=today - day >= SETTLED,
            )


def as_lines(path: Path) -> None:
    """Check results and rewrite a JSON array as one document per line.

    Raises:
        ValueError: for anything but results.
    """
    content = path.read_bytes()
    try:
        if content.lstrip()[:1] == b"[":
            rows = msgspec.json.decode(content, type=list[msgspec.Raw])
            content = b"".join(msgspec.json.format(bytes(row), indent=-1) + b"\n" for row in rows)
            path.write_bytes(content)
        for line in content.splitlines():
            msgspec.json.decode(line, type=_Result)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"no measurement results: {error}") from error
