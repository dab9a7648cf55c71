"""What a Spark task does with archive files: Arrow batches of files in, batches of readings out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from nova_workloads.archive import SCHEMAS, ArchiveFile, described
from nova_workloads.archive_lines import BadFileError, Lines, body_of, parse, read_content
from nova_workloads.cleaning import Cleaning, Readings, clean

# Text of files that are parsed together: enough to forget what a call costs, little to hold.
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

    It gives the rows `COLUMNS` lists: per reading its code (of `nova_workloads.cleaning.CODES`; 0
    is fine as far as its file can tell) and, in sequence files, its region as ``place``; per file
    one with the code -1, its path as ``place`` and what is wrong with it as ``note``.
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
