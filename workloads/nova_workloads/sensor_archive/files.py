"""Sensor archives: names and contents of their files, and how they are read into Spark.

Two kinds are read. Sensor.Community's daily files (`YYYY-MM-DD_<type>_sensor_<id>.csv`: semicolons,
a header) of the sensor types in `TYPES`, or of several sensors and types at once
(`YYYY-MM-DD_mixed*.csv`). And sequence files (`<type>_<id>*.csv`: commas, no header, the columns
sensor, region, sequence number, value), whose number serves as the time. Both may be compressed
with gzip.

Files are read whole, one row per file: a file is accepted or refused before its lines are, and the
order of its lines is known. Daily files have a few dozen kilobytes each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = ("pressure", "humidity")
# The day of sequence files: their numbers count from its beginning.
SEQUENCE_DAY = date(1970, 1, 1)


@dataclass(frozen=True)
class Schema:
    """The content of files of a kind.

    Attributes:
        type: sensor type, or None where every line has its own.
        columns: in the order of the file; the header of those that have one.
        separator: between columns.
        name: regular expression (Python's and Java's) of file names; groups: day, type and sensor,
            or type and sensor in sequence files.
        sequence: whether lines hold a sequence number instead of a position and a time.
        value: the column of the only stream's value where its name is not the stream's.
    """

    type: str | None
    columns: tuple[str, ...]
    separator: str
    name: str
    sequence: bool = False
    value: str | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of which the files have values."""
        if self.type is not None:
            return STREAMS_OF[self.type]
        return STREAMS


_PLACE = ("sensor_id", "sensor_type", "location", "lat", "lon", "timestamp")
_TYPES = {
    "bmp280": (*_PLACE, "pressure", "altitude", "pressure_sealevel", "temperature"),
    "bme280": (*_PLACE, "pressure", "altitude", "pressure_sealevel", "temperature", "humidity"),
    "dht22": (*_PLACE, "temperature", "humidity"),
}
TYPES = tuple(_TYPES)
STREAMS_OF = {kind: tuple(s for s in STREAMS if s in columns) for kind, columns in _TYPES.items()}
MIXED = "mixed"

_END = r"\.csv(?:\.gz)?$"
_DAY = r"^(\d{4}-\d\d-\d\d)"
SCHEMAS = {
    kind: Schema(kind, columns, ";", rf"{_DAY}_({kind})_sensor_(\d+)(?:_indoor)?{_END}")
    for kind, columns in _TYPES.items()
}
SCHEMAS[MIXED] = Schema(None, _TYPES["bme280"], ";", rf"{_DAY}_({MIXED})[^/]*{_END}")
SCHEMAS |= {
    f"{kind}-sequence": Schema(
        kind,
        ("sensor_id", "region", "sequence", "value"),
        ",",
        rf"^({kind})_(\d+)(?:_[^/]*)?{_END}",
        sequence=True,
        value="value",
    )
    for kind, streams in STREAMS_OF.items()
    if len(streams) == 1
}
GLOB = "*{" + ",".join([*TYPES, MIXED]) + "}*.csv*"
# A Python worker holds a file, its columns and their readings at once.
LARGEST = 512 * 2**20
WEB_TIMEOUT = 60  # s


@dataclass(frozen=True)
class ArchiveFile:
    """A file of an archive, as its name describes it.

    Attributes:
        path: where it is; a path of this machine has no scheme.
        bytes: its size.
        modified: time of its last change, s since 1970.
        day: the day its readings are of.
        kind: of `SCHEMAS`.
        sensor: number of its sensor, or None in mixed files.
    """

    path: str
    bytes: int
    modified: int
    day: date
    kind: str
    sensor: int | None


def described(path: str, size: int, modified: int) -> ArchiveFile | None:
    """The file that its name describes, or None for a name that is not of an archive."""
    name = path.rsplit("/", 1)[-1]
    for kind, schema in SCHEMAS.items():
        match = re.match(schema.name, name)
        if match is None:
            continue
        if schema.sequence:
            return ArchiveFile(path, size, modified, SEQUENCE_DAY, kind, int(match[2]))
        try:
            day = date.fromisoformat(match[1])
        except ValueError:
            return None
        return ArchiveFile(path, size, modified, day, kind, int(match[3]) if schema.type else None)
    return None


def is_local(place: str) -> bool:
    """Whether a place is a path of this machine."""
    return "://" not in place or place.startswith("file://")


def is_web(place: str) -> bool:
    """Whether a place is on a web server."""
    return place.startswith(("http://", "https://"))


def content_of(place: str) -> bytes:
    """The bytes of a file of this machine or of the web.

    Raises:
        OSError: when it cannot be read.
    """
    if is_web(place):
        from urllib.request import urlopen

        with urlopen(place, timeout=WEB_TIMEOUT) as answer:
            content: bytes = answer.read()
            return content
    return Path(place.removeprefix("file://")).read_bytes()


def list_files(spark: SparkSession, places: Iterable[str]) -> list[ArchiveFile]:
    """The archive's files at and below some places, in the order of their paths.

    Args:
        spark: lists files that are neither on this machine nor on the web.
        places: directories or files of this machine or of a file system Spark can read
            (``s3a://…``, ``hdfs://…``); or lists of addresses, one a line, as a ``.txt`` file or an
            address that ends so, as web servers do not list their files.

    Raises:
        NovaError: for a place that does not exist, or has no file of an archive.
    """
    files: list[ArchiveFile] = []
    for place in places:
        count = len(files)
        for path, size, modified in _listed(spark, place):
            file = described(path, size, modified)
            if file is not None:
                files.append(file)
        if len(files) == count:
            raise NovaError(
                f"{place}: no file of an archive; names are YYYY-MM-DD_<type>_sensor_<id>.csv, "
                f"YYYY-MM-DD_mixed.csv or <type>_<id>.csv, also .csv.gz; types {', '.join(TYPES)}"
            )
    unique = {file.path: file for file in files}
    large = next((file for file in unique.values() if file.bytes > LARGEST), None)
    if large is not None:
        raise NovaError(
            f"{large.path}: {large.bytes / 2**20:,.0f} MiB; files are read whole, so they may have "
            f"{LARGEST // 2**20} MiB at most. Split it"
        )
    return [unique[path] for path in sorted(unique)]


def _listed(spark: SparkSession, place: str) -> Iterator[tuple[str, int, int]]:
    if is_web(place) or (is_local(place) and place.endswith(".txt")):
        # Sizes and dates would cost a request each; the content of an address counts as constant.
        yield from ((address, 0, 0) for address in _addresses(place))
    elif not is_local(place):
        yield from _listed_by_spark(spark, place)
    else:
        root = Path(place.removeprefix("file://"))
        if not root.exists():
            raise NovaError(f"{root}: no such file or directory")
        yield from _listed_here(str(root.absolute()))


def _addresses(place: str) -> list[str]:
    if is_web(place) and not place.endswith(".txt"):
        return [place]
    try:
        text = content_of(place).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NovaError(f"{place}: cannot be read: {reason}") from None
    lines = [line.strip() for line in text.splitlines()]
    wrong = next((line for line in lines if line and line[0] != "#" and not is_web(line)), None)
    if wrong is not None:
        raise NovaError(f"{place}: {wrong!r} is no address; one a line is expected, http(s)://…")
    return [line for line in lines if is_web(line)]


def _listed_here(root: str) -> Iterator[tuple[str, int, int]]:
    place = Path(root)
    if not place.is_dir():
        status = place.stat()
        yield root, status.st_size, int(status.st_mtime)
        return
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if entry.is_dir():
            if not entry.name.startswith((".", "_")):
                yield from _listed_here(entry.path)
        elif ".csv" in entry.name:
            status = entry.stat()
            yield entry.path, status.st_size, int(status.st_mtime)


def _listed_by_spark(spark: SparkSession, place: str) -> Iterator[tuple[str, int, int]]:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        # Without its content column this lists and reads nothing.
        listing = reader.option("pathGlobFilter", GLOB).load(place)
        table = listing.select(
            "path", "length", F.unix_seconds("modificationTime").alias("modified")
        ).toArrow()
    except AnalysisException as error:
        raise NovaError(f"{place}: cannot be listed: {error.getMessage()}") from None
    yield from zip(*(column.to_pylist() for column in table.columns), strict=True)
