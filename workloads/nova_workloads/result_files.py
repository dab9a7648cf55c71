"""Result files of a join: expected results are written, delivered ones read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError, first_line
from nova_core.io.columnar import open_input
from nova_core.io.safe_files import atomic_write
from nova_workloads.reference import Results

if TYPE_CHECKING:
    import pyarrow as pa

    from nova_core.model.problem import Ints
    from nova_workloads.reference import Reference

NEEDED = ("left_sensor", "left_sequence", "right_sensor", "right_sequence")
WINDOW = "window_ms"


def write_results(reference: Reference, path: Path) -> None:
    """Write every expected result.

    Args:
        reference: the join.
        path: a ``.csv`` or ``.parquet`` file.

    Raises:
        NovaError: for another suffix, or when it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    if path.suffix not in (".csv", ".parquet"):
        raise NovaError(f"{path}: expected a .csv or .parquet file")
    sensors = pa.array([s.sensor for s in reference.streams])
    regions = pa.array([s.region for s in reference.streams])
    t = reference.tuples

    def table(left: Ints, right: Ints) -> pa.Table:
        return pa.table(
            {
                WINDOW: reference.window_of(left),
                "region": regions.take(pa.array(t.stream[left])),
                "left_sensor": sensors.take(pa.array(t.stream[left])),
                "left_sequence": t.sequence[left],
                "left_value": t.value[left],
                "right_sensor": sensors.take(pa.array(t.stream[right])),
                "right_sequence": t.sequence[right],
                "right_value": t.value[right],
            }
        )

    none = np.empty(0, np.int64)
    schema = table(none, none).schema
    make = pq.ParquetWriter if path.suffix == ".parquet" else pacsv.CSVWriter
    with atomic_write(path) as file, make(file, schema) as writer:
        for left, right in reference.batches():
            writer.write_table(table(left, right))


def read_results(
    paths: Sequence[Path], reference: Reference, columns: Sequence[str] = ()
) -> Iterator[Results]:
    """The results a run delivered, in batches.

    Args:
        paths: ``.parquet``, ``.csv`` or ``.jsonl`` files with the columns left_sensor,
            left_sequence, right_sensor, right_sequence and, if they have it, window_ms. Others are
            ignored. An empty file holds no result.
        reference: whose streams the sensors are.
        columns: names of the columns of CSV files without header.

    Raises:
        NovaError: naming the file and what it lacks.
    """
    left, right = (
        {s.sensor: i for i, s in enumerate(reference.streams) if s.stream == name}
        for name in (reference.left_stream, reference.right_stream)
    )
    for path in paths:
        for batch in _batches(path, columns):
            try:
                names = batch.schema.names
            except UnicodeDecodeError:
                raise NovaError(f"{path}: the name of a column is not UTF-8 text") from None
            missing = [name for name in NEEDED if name not in names]
            if missing:
                raise NovaError(
                    f"{path}: no column {missing[0]!r}; results have {', '.join(NEEDED)}"
                )
            twice = [name for name in (*NEEDED, WINDOW) if names.count(name) > 1]
            if twice:
                raise NovaError(f"{path}: has {names.count(twice[0])} columns {twice[0]!r}")
            window = _numbers(batch, WINDOW, path) if WINDOW in names else None
            yield Results(
                left=_indices(batch, "left_sensor", path, left),
                left_sequence=_numbers(batch, "left_sequence", path),
                right=_indices(batch, "right_sensor", path, right),
                right_sequence=_numbers(batch, "right_sequence", path),
                window_ms=window,
            )


def _batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.json as pajson
    import pyarrow.parquet as pq

    if not path.is_file():
        raise NovaError(f"{path}: there is no such file")
    if path.stat().st_size == 0:
        return
    integers = dict.fromkeys(("left_sequence", "right_sequence", WINDOW), pa.int64())
    types = integers | dict.fromkeys(("left_sensor", "right_sensor"), pa.string())
    try:
        if path.suffix == ".parquet":
            yield from pq.ParquetFile(pa.OSFile(os.fsencode(path), "rb")).iter_batches(1 << 18)
        elif path.suffix in (".jsonl", ".json"):
            schema = pa.schema(list(types.items()))
            # What is not looked into may be nested as deep as it likes; Arrow's reader of that has
            # no bound and ends the process.
            options = pajson.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            )
            yield from pajson.read_json(open_input(path), parse_options=options).to_batches(1 << 18)
        elif path.suffix == ".csv":
            with pacsv.open_csv(
                open_input(path),
                read_options=pacsv.ReadOptions(column_names=list(columns) or None),
                convert_options=pacsv.ConvertOptions(column_types=types),
            ) as reader:
                yield from reader
        else:
            raise NovaError(f"{path}: expected a .csv, .jsonl or .parquet file")
    except (pa.ArrowException, OSError) as error:
        raise NovaError(f"{path}: {first_line(error)}") from error


def _numbers(batch: pa.RecordBatch, name: str, path: Path) -> Ints:
    import pyarrow as pa

    column = batch.column(name)
    if name == WINDOW and pa.types.is_null(column.type):
        raise NovaError(f"{path}: column {name!r} is empty")
    if column.null_count:
        raise NovaError(f"{path}: {column.null_count} rows have no {name}")
    whole = _cast(batch, name, path, pa.int64(), "whole numbers")
    return np.asarray(whole.to_numpy(zero_copy_only=False), np.int64)


def _indices(batch: pa.RecordBatch, name: str, path: Path, index: dict[str, int]) -> Ints:
    """(k,) stream of each sensor, -1 for a name there is none of."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = _cast(batch, name, path, pa.string(), "names of sensors").dictionary_encode()
    known = np.array([index.get(name, -1) for name in encoded.dictionary.to_pylist()] + [-1])
    rows = pc.fill_null(encoded.indices, len(known) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(known[rows], np.int64)


def _cast(batch: pa.RecordBatch, name: str, path: Path, kind: pa.DataType, expected: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(name)
    try:
        return pc.cast(column, kind)
    except pa.ArrowException as error:
        raise NovaError(f"{path}: column {name!r} is {column.type}; expected {expected}") from error
