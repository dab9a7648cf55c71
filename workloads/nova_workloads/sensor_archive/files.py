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
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_workloads.logical_streams import STREAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The day of sequence files: their numbers count from its beginning.
SEQUENCE_DAY = date(1970, 1, 1)


@dataclass(frozen=True)
class Schema:
    """The content of files of a kind.

    Attributes:
        type: sensor type, or None where every line has its own.
        columns: in the order of the file; the header of those that have one.
        separator: between columns.
        name: regular expression of file names, in lower case; groups: day, type and sensor, or
            type and sensor in sequence files.
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
_PRESSURE = (*_PLACE, "pressure", "altitude", "pressure_sealevel", "temperature")
_HUMIDITY = (*_PLACE, "temperature", "humidity")
_TYPES = {
    "bmp280": _PRESSURE,
    "bme280": (*_PRESSURE, "humidity"),
    "dht22": _HUMIDITY,
    "bmp180": _PRESSURE,
    "bme680": (*_PRESSURE, "humidity"),
    "htu21d": _HUMIDITY,
    "sht31": _HUMIDITY,
}
TYPES = tuple(_TYPES)
# Degrees Celsius that a type can measure, by its data sheet.
TEMPERATURE = {
    "bmp280": (-40.0, 85.0),
    "bme280": (-40.0, 85.0),
    "dht22": (-40.0, 80.0),
    "bmp180": (-40.0, 85.0),
    "bme680": (-40.0, 85.0),
    "htu21d": (-40.0, 125.0),
    "sht31": (-40.0, 125.0),
}
STREAMS_OF = {kind: tuple(s for s in STREAMS if s in columns) for kind, columns in _TYPES.items()}
MIXED = "mixed"

# Downloads of a file that is there already are copies: "… (1).csv".
_END = r"(?: ?\(\d+\)| - copy)?\.csv(?:\.gz)?"
_DAY = r"(\d{4}-\d\d-\d\d)"
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
        rf"({kind})_(\d+)(?:_[^/]*)?{_END}",
        sequence=True,
        value="value",
    )
    for kind, streams in STREAMS_OF.items()
    if len(streams) == 1
}
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
    name = path.rsplit("/", 1)[-1].lower()
    for kind, schema in SCHEMAS.items():
        match = re.fullmatch(schema.name, name)
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


def passed_over(path: str) -> str:
    """Why a file whose name is not of an archive is passed over."""
    name = path.rsplit("/", 1)[-1].lower()
    typed = re.match(r"\d{4}-\d\d-\d\d_([a-z0-9-]+)_sensor_\d+", name)
    if name.endswith((".zip", ".7z", ".tar", ".tgz", ".tar.gz", ".xz", ".bz2")):
        return "packed in a way that is not read; unpack it, or pack its files with gzip"
    if typed is not None and typed[1] not in TYPES:
        return f"of type {typed[1]}, which has neither pressure nor humidity, or is not known"
    return "its name is not that of an archive's file"


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


def list_files(
    spark: SparkSession, places: Iterable[str]
) -> tuple[list[ArchiveFile], dict[str, str]]:
    """The archive's files at and below some places, in the order of their paths.

    Returns:
        The files, and why others are passed over, by their paths.

    Args:
        spark: lists files that are neither on this machine nor on the web.
        places: directories or files of this machine or of a file system Spark can read
            (``s3a://…``, ``hdfs://…``); or lists of addresses, one a line, as a ``.txt`` file or an
            address that ends so, as web servers do not list their files.

    Raises:
        NovaError: for a place that does not exist, or has no file of an archive.
    """
    files: list[ArchiveFile] = []
    others: dict[str, str] = {}
    for place in places:
        count, here = len(files), set()
        for path, size, modified in _listed(spark, place):
            here.add(path)
            file = described(path, size, modified)
            if file is not None:
                files.append(file)
            else:
                others[path] = passed_over(path)
        if len(files) == count:
            counts = Counter(why for path, why in others.items() if path in here)
            there = "".join(f"; {number} {why}" for why, number in counts.most_common())
            raise NovaError(
                f"{place}: no file of an archive; names are YYYY-MM-DD_<type>_sensor_<id>.csv, "
                "YYYY-MM-DD_mixed.csv or <type>_<id>.csv, also .csv.gz; types "
                f"{', '.join(TYPES)}{there}"
            )
    unique = {file.path: file for file in files}
    large = next((file for file in unique.values() if file.bytes > LARGEST), None)
    if large is not None:
        raise NovaError(
            f"{large.path}: {large.bytes / 2**20:,.0f} MiB; files are read whole, so they may have "
            f"{LARGEST // 2**20} MiB at most. Split it"
        )
    return [unique[path] for path in sorted(unique)], others


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
        elif not entry.name.startswith("."):
            status = entry.stat()
            yield entry.path, status.st_size, int(status.st_mtime)


def _listed_by_spark(spark: SparkSession, place: str) -> Iterator[tuple[str, int, int]]:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        # Without its content column this lists and reads nothing.
        table = (
            reader.load(place)
            .select("path", "length", F.unix_seconds("modificationTime").alias("modified"))
            .toArrow()
        )
    except AnalysisException as error:
        raise NovaError(f"{place}: cannot be listed: {error.getMessage()}") from None
    yield from zip(*(column.to_pylist() for column in table.columns), strict=True)
