"""Tables in memory: named columns, which become the rows of a document or the columns of a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nova_core.io.columnar import lists_of, names_of, position_columns, write_columns
from nova_core.io.safe_files import UNLIMITED
from nova_core.io.syntax import Row, number
from nova_core.model.name_index import arrow_numbers
from nova_core.model.problem import Floats, Ints, Strings
from nova_core.model.requirements import LABELS


@dataclass(frozen=True, eq=False)
class Named:
    """A column of names, ``ids[codes]``; a code below 0 stands for no name."""

    codes: Ints
    ids: Strings


@dataclass(frozen=True, eq=False)
class Lists:
    """A column of lists: row r is ``values[offset[r]:offset[r + 1]]``; with ids, of names."""

    offset: Ints
    values: Ints | Floats
    ids: Strings | None = None


@dataclass(frozen=True, eq=False)
class Ranges:
    """A column of ranges of partitions."""

    begin: Ints
    end: Ints


# Whole numbers below 0, NaN and empty text stand for no value.
Column = Named | Lists | Ranges | NDArray[Any]
Table = Mapping[str, Column]


def length(column: Column) -> int:
    """Rows of a column."""
    if isinstance(column, Lists):
        return len(column.offset) - 1
    if isinstance(column, Ranges):
        return len(column.begin)
    return len(column.codes if isinstance(column, Named) else column)


def rows(columns: Table, keep_missing: bool = False) -> list[Row]:
    """The rows of a table in a document.

    Args:
        columns: by name.
        keep_missing: whether a field without a value is null rather than left out.
    """
    values = [list(_values(name, column)) for name, column in columns.items()]
    names = list(columns)
    if keep_missing or not any(None in column for column in values):
        return [Row(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    return [
        Row({name: v for name, v in zip(names, row, strict=True) if v is not None})
        for row in zip(*values, strict=True)
    ]


def _values(name: str, column: Column) -> Iterable[Any]:
    """A column's values as a document has them, None where there is none."""
    if isinstance(column, Named):
        ids = column.ids.tolist()
        return (ids[code] if code >= 0 else None for code in column.codes.tolist())
    if isinstance(column, Ranges):
        return map(list, zip(column.begin.tolist(), column.end.tolist(), strict=True))
    if isinstance(column, Lists):
        values = column.values.tolist()
        if column.ids is not None:
            values = [str(column.ids[code]) for code in values]
        elif column.values.dtype.kind == "f":
            values = [number(value) for value in values]
        bounds = column.offset.tolist()
        whole = (values[b:e] for b, e in pairwise(bounds))
        return (each or None for each in whole)
    listed = column.tolist()
    if column.ndim == 2:
        return ([number(value) for value in row] for row in listed)
    kind = column.dtype.kind
    if kind == "f" and name == "capacity":
        return (UNLIMITED if math.isinf(v) else number(v) for v in listed)
    if kind == "f":
        return (None if math.isnan(v) else number(v) for v in listed)
    if name in LABELS:
        return ([tag for tag in text.split(",") if tag] for text in listed)
    if kind == "U":
        return (text or None for text in listed)
    return listed if kind == "b" else (None if v < 0 else v for v in listed)


def write_tables(tables: Mapping[str, Table], directory: Path, suffix: str) -> dict[str, str]:
    """Write a file per table; the files' names by table.

    Args:
        tables: by name.
        directory: an existing directory.
        suffix: ``parquet``, ``arrow`` or ``csv``.

    Raises:
        NovaError: when one cannot be written.
    """
    files = {name: f"{name}.{suffix}" for name in tables}
    for name, columns in tables.items():
        write_columns(directory / files[name], file_columns(columns))
    return files


def file_columns(columns: Table) -> dict[str, Any]:
    """A table's columns as those of a file, arrays of numpy or Arrow."""
    written: dict[str, Any] = {}
    for name, column in columns.items():
        written |= _file_columns(name, column)
    return written


def _file_columns(name: str, column: Column) -> dict[str, Any]:
    import pyarrow as pa

    if isinstance(column, Ranges):
        return {f"{name}_begin": column.begin, f"{name}_end": column.end}
    if isinstance(column, Named):
        return {name: names_of(column.codes, column.ids)}
    if isinstance(column, Lists):
        if column.ids is not None:
            return {name: lists_of(column.offset, column.values.astype(np.int64), column.ids)}
        offset = arrow_numbers(column.offset.astype(np.int32))
        return {name: pa.ListArray.from_arrays(offset, arrow_numbers(column.values))}
    if column.ndim == 2:
        return dict(zip(position_columns(column.shape[1]), column.T, strict=True))
    if column.dtype.kind == "i" and len(column) and column.min() < 0:
        return {name: arrow_numbers(column, column >= 0)}
    return {name: column}
