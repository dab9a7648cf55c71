"""Cleaning: which lines of an archive become readings, and why others are dropped.

A *reading* is one value of one stream on one line: a line of a BME280 holds two, one of the other
types one. A reading that is dropped has exactly one reason, the first of `REASONS` that applies.
All but the last two reasons need nothing but the reading's own file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nova_workloads.logical_streams import STREAMS
from nova_workloads.sensor_archive.files import (
    MIXED,
    SCHEMAS,
    SEQUENCE_DAY,
    STREAMS_OF,
    TEMPERATURE,
    TYPES,
    ArchiveFile,
    described,
    is_local,
    is_web,
)
from nova_workloads.sensor_archive.parse import BadFileError, Lines, body_of, parse, read_content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nova_core.model.problem import Bools, Floats, Ints

# In order of precedence. The code of a reason is its position, from 1; 0 is a reading that stays.
REASONS = {
    "malformed": "wrong number of fields, another sensor's line, unreadable position or time",
    "missing": "the value is empty",
    "not_a_number": "the value is nan, infinite, unavailable or other text",
    "impossible_pressure": "no place on Earth has this pressure",
    "impossible_humidity": "below 0 % or above 100 %",
    "impossible_temperature": "the line has a temperature the sensor cannot measure",
    "clock_jump": "the time is not on the day of the file",
    "duplicate": "an earlier line of the file has the same sensor, stream and time",
    "out_of_order": "the time contradicts the order of lines: the clock was set within the day",
    "moved": "the sensor is away from its home, where its first reading was made",
    "outside": "the sensor's home is in no region",
}
CODES = {reason: code for code, reason in enumerate(REASONS, 1)}
DAY = 86_400_000_000  # µs


@dataclass(frozen=True)
class Cleaning:
    """Limits of possible values and of the same place; ranges include both ends.

    Attributes:
        pressure: Pa; the default is what a BMP280 can measure.
        humidity: percent.
        move_distance: a sensor further from its home than this has moved, km. Published positions
            are rounded to some hundred metres.
        sequence_period: time between two numbers of sequence files, ms.
    """

    pressure: tuple[float, float] = (30_000.0, 110_000.0)
    humidity: tuple[float, float] = (0.0, 100.0)
    move_distance: float = 1.0
    sequence_period: float = 1.0


@dataclass(frozen=True)
class Readings:
    """Readings of one stream, in the order of files and lines.

    Attributes:
        stream: index into `STREAMS`.
        row: (n,) the line each is on.
        code: (n,) of `CODES`, 0 for one that stays.
        value: (n,) Pa or percent; NaN where there is none.
    """

    stream: int
    row: Ints
    code: Ints
    value: Floats


def clean(
    kind: str, files: Sequence[ArchiveFile], lines: Lines, cleaning: Cleaning
) -> tuple[list[Readings], Ints]:
    """Judge the readings of files of one kind by what is in the files.

    Args:
        kind: of `nova_workloads.sensor_archive.files.SCHEMAS`.
        files: in the order that ``lines.file`` counts.
        lines: of these files.
        cleaning: the limits.

    Returns:
        the readings per stream, and the time of every line ((n,) µs since 1970).
    """
    schema = SCHEMAS[kind]
    time = lines.time
    if schema.sequence:
        time = np.rint(lines.time * (1000 * cleaning.sequence_period)).astype(np.int64)
    fine = _well_formed(kind, files, lines)
    jumped = np.zeros(len(lines), np.bool_)
    if not schema.sequence:
        begin = np.array([(f.day - SEQUENCE_DAY) // timedelta(days=1) * DAY for f in files])
        within = time - begin[lines.file]
        jumped = (within < 0) | (within >= DAY)
    readings = []
    for place, stream in enumerate(schema.streams):
        held = np.arange(len(lines))
        if kind == MIXED:
            # A line of another type has no reading of this stream.
            with_it = [TYPES.index(name) for name, has in STREAMS_OF.items() if stream in has]
            held = np.flatnonzero(np.isin(lines.type, with_it))
        value = lines.values[held, place]
        # In sequence files a BMP280 gives its temperature.
        warmth = schema.sequence and stream == "pressure"
        temperature = value if warmth else lines.temperature[held]
        types = lines.type[held].astype(np.int64)
        rules = {
            "malformed": ~fine[held],
            "missing": lines.empty[held, place],
            "not_a_number": ~np.isfinite(value),
            "impossible_pressure": _outside(value, cleaning.pressure)
            & (stream == "pressure" and not warmth),
            "impossible_humidity": _outside(value, cleaning.humidity) & (stream == "humidity"),
            "impossible_temperature": _impossible(temperature, types, cleaning),
            "clock_jump": jumped[held],
        }
        code = np.select(list(rules.values()), [CODES[reason] for reason in rules], 0)
        good = np.flatnonzero(code == 0)
        # Of one file, or of one sensor in a mixed file.
        series = lines.file[held[good]].astype(np.int64)
        if kind == MIXED:
            sensors = np.stack([series, lines.sensor[held[good]]])
            series = np.unique(sensors, axis=1, return_inverse=True)[1].reshape(-1)
        code[good] = _order_codes(series, time[held[good]])
        readings.append(Readings(STREAMS.index(stream), held, code, value))
    return readings, time


def _well_formed(kind: str, files: Sequence[ArchiveFile], lines: Lines) -> Bools:
    schema = SCHEMAS[kind]
    fine = lines.whole & (lines.sensor >= 0)
    if schema.type is not None:
        own = np.array([file.sensor for file in files], np.int64)
        fine &= lines.sensor == own[lines.file]
        fine &= lines.type == TYPES.index(schema.type)
    if schema.sequence:
        return fine & (lines.time >= 0)
    placed = (np.abs(lines.lat) <= 90) & (np.abs(lines.lon) <= 180)
    # Jumps lead to 1970, or further back, but a time that cannot be read is -1 µs.
    return np.asarray(fine & placed & (lines.time != -1))


def _outside(value: Floats, limits: tuple[float, float]) -> Bools:
    return np.asarray((value < limits[0]) | (value > limits[1]))


def _impossible(temperature: Floats, types: Ints, cleaning: Cleaning) -> Bools:
    """No stream has the temperature: a missing or non-numeric one is ignored."""
    limits = np.array([TEMPERATURE[kind] for kind in TYPES])[types]
    return np.asarray((temperature < limits[:, 0]) | (temperature > limits[:, 1]))


def _order_codes(series: Ints, time: Ints) -> Ints:
    """(n,) codes of readings that repeat a time, or contradict the order of lines.

    After one jump of a clock and back, either the lines behind an earlier line are wrong or those
    ahead of a later one: the fewer are dropped.

    Args:
        series: (n,) the series that a reading belongs to.
        time: (n,) µs, in the order of lines.
    """
    code = np.zeros(len(time), np.int64)
    if len(time) < 2:
        return code
    by_line = np.argsort(series, kind="stable")
    follows = np.diff(series[by_line]) == 0
    late = follows & (np.diff(time[by_line]) <= 0)
    if not late.any():
        return code
    # Only series with such a step can have wrong readings.
    odd = np.isin(series, series[by_line[1:][late]])
    chosen = np.flatnonzero(odd)
    series, time = series[chosen], time[chosen]
    by_time = np.lexsort((np.arange(len(time)), time, series))
    again = np.zeros(len(time), np.bool_)
    again[by_time[1:]] = (np.diff(series[by_time]) == 0) & (np.diff(time[by_time]) == 0)
    code[chosen[again]] = CODES["duplicate"]
    chosen, series, time = chosen[~again], series[~again], time[~again]
    by_line = np.argsort(series, kind="stable")
    groups = np.unique(series[by_line], return_inverse=True)[1]
    # Ranks, shifted by group, let one running maximum serve all groups.
    rank = np.unique(time[by_line], return_inverse=True)[1] + groups * (len(time) + 1)
    behind = np.zeros(len(rank), np.bool_)
    ahead = np.zeros(len(rank), np.bool_)
    behind[1:] = rank[1:] < np.maximum.accumulate(rank)[:-1]
    ahead[:-1] = rank[:-1] > np.minimum.accumulate(rank[::-1])[::-1][1:]
    behind_count, ahead_count = (np.bincount(groups, flag) for flag in (behind, ahead))
    wrong = np.where((behind_count <= ahead_count)[groups], behind, ahead)
    code[chosen[by_line[wrong]]] = CODES["out_of_order"]
    return code


# Bytes of text parsed together: enough to make the cost of a call negligible, little to hold.
TOGETHER = 4 * 2**20
FILE = -1  # the code of a row that stands for a file

COLUMNS = {
    "code": pa.int8(),
    "day": pa.date32(),
    "stream": pa.int8(),
    "sensor": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "value": pa.float64(),
    "lat": pa.float64(),
    "lon": pa.float64(),
    "type": pa.int8(),
    "place": pa.string(),
    "note": pa.string(),
}
SCHEMA = pa.schema(list(COLUMNS.items()))
DDL = (
    "code tinyint, day date, stream tinyint, sensor bigint, timestamp timestamp, value double, "
    "lat double, lon double, type tinyint, place string, note string"
)


def cleaner(
    cleaning: Cleaning,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `DataFrame.mapInArrow`, of rows with a ``path`` and perhaps its ``content``.

    It gives rows with `COLUMNS`: per reading its code (of `CODES`; 0 is fine by its own file) and,
    in sequence files, its region as ``place``; per file one row with the code -1, its path as
    ``place`` and its problem as ``note``.
    """

    def clean_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)
        waiting: dict[str, list[tuple[ArchiveFile, bytes]]] = {kind: [] for kind in SCHEMAS}
        size = dict.fromkeys(SCHEMAS, 0)
        for batch in batches:
            seen: list[tuple[ArchiveFile, str | None]] = []
            for path, content in _contents(batch):
                file = described(path, 0, 0)
                assert file is not None, path
                problem = None
                try:
                    data = read_content(path) if content is None else content
                    body = body_of(path, data, file.kind)
                    waiting[file.kind].append((file, body))
                    size[file.kind] += len(body)
                except BadFileError as error:
                    problem = str(error)
                seen.append((file, problem))
                if size[file.kind] >= TOGETHER:
                    yield from _cleaned(file.kind, waiting.pop(file.kind), cleaning)
                    waiting[file.kind], size[file.kind] = [], 0
            yield _file_rows(seen)
        for kind, files in waiting.items():
            if files:
                yield from _cleaned(kind, files, cleaning)

    return clean_batches


def _contents(batch: pa.RecordBatch) -> Iterator[tuple[str, bytes | None]]:
    has_content = "content" in batch.schema.names
    for row in range(batch.num_rows):
        content = batch.column("content")[row].as_py() if has_content else None
        yield batch.column("path")[row].as_py(), content


def _file_rows(seen: list[tuple[ArchiveFile, str | None]]) -> pa.RecordBatch:
    columns = {name: pa.nulls(len(seen), kind) for name, kind in COLUMNS.items()}
    columns |= {
        "code": pa.array([FILE] * len(seen), pa.int8()),
        "day": pa.array([file.day for file, _ in seen], pa.date32()),
        "place": pa.array([file.path for file, _ in seen], pa.string()),
        "note": pa.array([problem for _, problem in seen], pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)


def _cleaned(
    kind: str, files: list[tuple[ArchiveFile, bytes]], cleaning: Cleaning
) -> Iterator[pa.RecordBatch]:
    described_files = [file for file, _ in files]
    lines = parse(kind, [body for _, body in files])
    readings, time = clean(kind, described_files, lines, cleaning)
    days = np.array([np.datetime64(file.day) for file in described_files])
    for of_stream in readings:
        yield _batch(kind, lines, time, days, of_stream)


def _batch(kind: str, lines: Lines, time: Any, days: Any, readings: Readings) -> pa.RecordBatch:
    row = readings.row
    sequence = SCHEMAS[kind].sequence
    nothing = pa.nulls(len(row), pa.string())
    columns = {
        "code": readings.code.astype(np.int8),
        "day": days[lines.file[row]],
        "stream": np.full(len(row), readings.stream, np.int8),
        "sensor": pa.array(lines.sensor[row], mask=lines.sensor[row] < 0),
        "timestamp": pa.array(time[row], mask=time[row] == -1).cast(COLUMNS["timestamp"]),
        "value": pa.array(readings.value, mask=~np.isfinite(readings.value)),
        "lat": pa.array(lines.lat[row], from_pandas=True),
        "lon": pa.array(lines.lon[row], from_pandas=True),
        "type": lines.type[row],
        "place": pa.array(lines.region[row], pa.string()) if sequence else nothing,
        "note": nothing,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(values, COLUMNS[name]) for name, values in columns.items()], schema=SCHEMA
    )


# Text a task cleans: small enough for many tasks, large enough for few files of results.
LEAST_TASK_BYTES = 8 * 2**20
MOST_TASK_BYTES = 48 * 2**20
TASK_ADDRESSES = 200


def judged(spark: SparkSession, files: Sequence[ArchiveFile], cleaning: Cleaning) -> DataFrame:
    """The readings of files, cleaned in Spark's tasks."""
    # Workers open the files that they can reach; for many small files, opening them through Hadoop
    # would take most of the time.
    near = [file for file in files if is_local(file.path) or is_web(file.path)]
    far = [file for file in files if not (is_local(file.path) or is_web(file.path))]
    parts = []
    if near:
        task = _tasks(near, spark.sparkContext.defaultParallelism)
        paths = pa.table({"path": [file.path for file in near], "task": pa.array(task, pa.int32())})
        parts.append(
            spark.createDataFrame(paths).repartitionById(max(task) + 1, "task").select("path")
        )
    if far:
        source = spark.read.format("binaryFile")
        parts.append(source.load([file.path for file in far]).select("path", "content"))
    clean = cleaner(cleaning)
    frames = [part.mapInArrow(clean, DDL) for part in parts]
    return reduce(lambda one, other: one.union(other), frames)


def _tasks(files: Sequence[ArchiveFile], parallelism: int) -> list[int]:
    """A task for each file, in order, so that tasks have about as much to read."""
    share = sum(file.bytes for file in files) // (4 * parallelism)
    most = min(max(share, LEAST_TASK_BYTES), MOST_TASK_BYTES)
    tasks: list[int] = []
    task = size = count = 0
    for file in files:
        full = size + file.bytes > most or (file.bytes == 0 and count >= TASK_ADDRESSES)
        if count and full:
            task, size, count = task + 1, 0, 0
        tasks.append(task)
        size, count = size + file.bytes, count + 1
    return tasks
