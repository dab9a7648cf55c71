"""The lines of archive files as columns: opening, decompressing, checking and parsing them.

Runs in Spark's Python workers. Many files of a kind are parsed at once by Arrow's CSV reader. Where
that fails on a text, the file with it is parsed again, value by value.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from nova_core.io.packed import PackedError, unpacked
from nova_workloads.sensor_archive.files import LARGEST, SCHEMAS, TYPES, Schema, content_of

# Texts that sensors write instead of a number, in lower case.
NO_NUMBER = ("nan", "unavailable", "unknown", "none", "null", "inf", "-inf")
_NO_NUMBERS = pa.array(sorted({form for t in NO_NUMBER for form in (t, t.upper(), t.title())}))
_NULLS = ["", *_NO_NUMBERS.to_pylist(), "NaN"]
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_WHOLE = re.compile(r"\s*[-+]?\d{1,18}\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadFileError(Exception):
    """A file that is not what its name claims; the text says how."""


@dataclass
class Lines:
    """Lines of several files of one kind, in order, as columns.

    Attributes:
        file: (n,) index of the file.
        line: (n,) number in its file; 1 is the first after the header.
        whole: (n,) whether it has as many fields as it should; if not, the others mean nothing.
        sensor: (n,) id, or -1 where it is no number.
        type: (n,) index into `TYPES`, or -1 for another type.
        time: (n,) µs since 1970, or sequence numbers; -1 where there is none.
        lat: (n,) degrees or NaN.
        lon: (n,) degrees or NaN.
        temperature: (n,) degrees Celsius or NaN.
        region: (n,) region in sequence files, else empty.
        values: (n, streams) of the kind's streams in order; NaN where there is no number.
        empty: (n, streams) whether there is nothing at all.
    """

    file: np.ndarray[Any, np.dtype[np.int32]]
    line: np.ndarray[Any, np.dtype[np.int32]]
    whole: np.ndarray[Any, np.dtype[np.bool_]]
    sensor: np.ndarray[Any, np.dtype[np.int64]]
    type: np.ndarray[Any, np.dtype[np.int8]]
    time: np.ndarray[Any, np.dtype[np.int64]]
    lat: np.ndarray[Any, np.dtype[np.float64]]
    lon: np.ndarray[Any, np.dtype[np.float64]]
    temperature: np.ndarray[Any, np.dtype[np.float64]]
    region: np.ndarray[Any, np.dtype[np.object_]]
    values: np.ndarray[Any, np.dtype[np.float64]]
    empty: np.ndarray[Any, np.dtype[np.bool_]]

    def __len__(self) -> int:
        return len(self.file)

    @classmethod
    def blank(cls, count: int, streams: int) -> Lines:
        """Lines of which nothing is known."""
        return cls(
            file=np.zeros(count, np.int32),
            line=np.zeros(count, np.int32),
            whole=np.zeros(count, np.bool_),
            sensor=np.full(count, -1, np.int64),
            type=np.full(count, -1, np.int8),
            time=np.full(count, -1, np.int64),
            lat=np.full(count, np.nan),
            lon=np.full(count, np.nan),
            temperature=np.full(count, np.nan),
            region=np.full(count, "", object),
            values=np.full((count, streams), np.nan),
            empty=np.zeros((count, streams), np.bool_),
        )

    @classmethod
    def joined(cls, parts: Sequence[Lines]) -> Lines:
        """All lines of some parts."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def where(self, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> Lines:
        """The lines of which the mask ((n,)) is true."""
        return Lines(*(getattr(self, f.name)[mask] for f in fields(self)))


# --- opening --------------------------------------------------------------------------------------


def read_content(path: str) -> bytes:
    """The bytes of a file of this machine or of the web.

    Raises:
        BadFileError: when it cannot be read.
    """
    try:
        return content_of(path)
    except OSError as error:
        raise BadFileError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def body_of(path: str, content: bytes, kind: str) -> bytes:
    """The lines after the header, each with its end.

    Raises:
        BadFileError: for a file that is empty, no gzip, cut off, or has another header.
    """
    if path.endswith(".gz"):
        try:
            content = unpacked(content)
        except PackedError as error:
            raise BadFileError(str(error)) from None
    if len(content) > LARGEST:
        raise BadFileError(f"{len(content) >> 20:,} MiB; {LARGEST >> 20} are accepted at most")
    content = content.removeprefix(codecs.BOM_UTF8)
    if not content.strip():
        raise BadFileError("empty")
    schema = SCHEMAS[kind]
    first = content[: content.find(b"\n") + 1] or content
    start = first[:60].decode("utf-8", "replace").strip()
    shown = f"begins {start}" if start.isascii() and start.isprintable() else "is binary"
    if schema.sequence:
        if first.count(schema.separator.encode()) != len(schema.columns) - 1:
            raise BadFileError(f"not {schema.separator.join(schema.columns)}, but {shown}")
        body = content
    else:
        if first.strip() != schema.separator.join(schema.columns).encode():
            raise BadFileError(f"not the columns of a {kind} file, but {shown}")
        body = content[len(first) :]
    if body.count(b"\n") * len(schema.columns) > len(body):
        # Lines with all their separators are longer. A line takes far more memory than its text.
        raise BadFileError(f"most lines have fewer than {len(schema.columns)} fields")
    if not body or body.endswith(b"\n"):
        return body
    last = body[body.rfind(b"\n") + 1 :]
    if last.count(schema.separator.encode()) != len(schema.columns) - 1:
        raise BadFileError("cut off: it ends within a line")
    return body + b"\n"


# --- parsing --------------------------------------------------------------------------------------


class _UnclearError(Exception):
    """The result of Arrow's reader may be wrong."""


def parse(kind: str, bodies: Sequence[bytes], first: int = 0) -> Lines:
    """The lines of files of one kind, as `body_of` gives them.

    Args:
        kind: of `SCHEMAS`.
        bodies: at least one.
        first: index of the first file.
    """
    schema = SCHEMAS[kind]
    try:
        return _parse_with_arrow(schema, bodies, first)
    except (pa.ArrowInvalid, _UnclearError):
        if len(bodies) == 1:
            return _parse_by_value(schema, bodies[0], first)
    middle = len(bodies) // 2
    parts = parse(kind, bodies[:middle], first), parse(kind, bodies[middle:], first + middle)
    return Lines.joined(parts)


def _parse_with_arrow(schema: Schema, bodies: Sequence[bytes], first: int) -> Lines:
    text = bodies[0] if len(bodies) == 1 else b"".join(bodies)
    counts = [body.count(b"\n") for body in bodies]
    if b"\n\n" in text or text.startswith(b"\n"):
        raise _UnclearError
    torn: list[int] = []

    def tear(row: Any) -> str:
        torn.append(row.number - 1)
        return "skip"

    columns = {name: _arrow_type(schema, name) for name in schema.columns}
    used = {name: kind for name, kind in columns.items() if kind is not None}
    table = (
        csv.read_csv(
            pa.py_buffer(text),
            read_options=csv.ReadOptions(
                column_names=list(schema.columns), use_threads=False, block_size=max(len(text), 1)
            ),
            parse_options=csv.ParseOptions(
                delimiter=schema.separator, quote_char=False, invalid_row_handler=tear
            ),
            convert_options=csv.ConvertOptions(
                column_types=used,
                include_columns=list(used),
                null_values=_NULLS,
                strings_can_be_null=False,
            ),
        )
        if text
        else None
    )
    rows = 0 if table is None else table.num_rows
    total = sum(counts)
    if rows + len(torn) != total:
        raise _UnclearError
    lines = Lines.blank(total, len(schema.streams))
    lines.file[:] = first + np.repeat(np.arange(len(bodies)), counts)
    begins = np.cumsum([0, *counts[:-1]])
    lines.line[:] = np.arange(total) - np.repeat(begins, counts) + 1
    if table is None:
        return lines
    lines.whole[:] = True
    lines.whole[torn] = False
    here: Any = lines.whole if torn else slice(None)

    def column(name: str) -> Any:
        return table.column(name).combine_chunks()

    lines.sensor[here] = _filled(column("sensor_id"), -1)
    if schema.sequence:
        lines.time[here] = _filled(column("sequence"), -1)
        lines.region[here] = column("region").to_numpy(zero_copy_only=False)
        lines.type[here] = -1 if schema.type is None else TYPES.index(schema.type)
    else:
        lines.time[here] = _filled(column("timestamp").cast(pa.int64()), -1)
        lines.lat[here] = _filled(column("lat"), np.nan)
        lines.lon[here] = _filled(column("lon"), np.nan)
        lines.temperature[here] = _filled(column("temperature"), np.nan)
        types = column("sensor_type")
        of_code = np.array([_type_index(t) for t in types.dictionary.to_pylist()] or [-1], np.int8)
        lines.type[here] = of_code[types.indices.to_numpy(zero_copy_only=False)]
    for place, stream in enumerate(schema.streams):
        texts = column(schema.value or stream)
        empty = pc.equal(texts, "")
        absent = pc.or_(empty, pc.is_in(texts, _NO_NUMBERS))
        numbers = pc.if_else(absent, pa.scalar(None, pa.string()), texts).cast(pa.float64())
        lines.values[here, place] = _filled(numbers, np.nan)
        lines.empty[here, place] = empty.to_numpy(zero_copy_only=False)
    return lines


def _arrow_type(schema: Schema, name: str) -> Any:
    """The type as which a column is read; None for an unused one."""
    if name in (schema.value, *schema.streams):
        return pa.string()
    if name in ("sensor_id", "sequence"):
        return pa.int64()
    if name in ("lat", "lon", "temperature"):
        return pa.float64()
    kinds = {
        "timestamp": pa.timestamp("us"),
        "region": pa.string(),
        "sensor_type": pa.dictionary(pa.int32(), pa.string()),
    }
    return kinds.get(name)


def _filled(column: Any, missing: float) -> Any:
    if column.null_count:
        column = column.fill_null(missing)
    return column.to_numpy(zero_copy_only=False)


def _type_index(text: str) -> int:
    return TYPES.index(text.lower()) if text.lower() in TYPES else -1


def _parse_by_value(schema: Schema, body: bytes, first: int) -> Lines:
    texts = [line.rstrip("\r") for line in body.decode("utf-8", "replace").split("\n")[:-1]]
    lines = Lines.blank(len(texts), len(schema.streams))
    lines.file[:] = first
    lines.line[:] = np.arange(len(texts)) + 1
    place = {name: index for index, name in enumerate(schema.columns)}
    if schema.type is not None and schema.sequence:
        lines.type[:] = TYPES.index(schema.type)
    for row, text in enumerate(texts):
        field = text.split(schema.separator)
        if len(field) != len(schema.columns):
            continue
        lines.whole[row] = True
        lines.sensor[row] = _whole(field[place["sensor_id"]])
        if schema.sequence:
            lines.time[row] = _whole(field[place["sequence"]])
            lines.region[row] = field[place["region"]]
        else:
            lines.time[row] = _time(field[place["timestamp"]])
            lines.type[row] = _type_index(field[place["sensor_type"]])
            for name in ("lat", "lon", "temperature"):
                getattr(lines, name)[row] = _number(field[place[name]])
        for index, stream in enumerate(schema.streams):
            value = field[place[schema.value or stream]]
            lines.values[row, index] = _number(value)
            lines.empty[row, index] = not value.strip()
    filled = np.array([bool(text) for text in texts], np.bool_)
    return lines if filled.all() else lines.where(filled)


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else np.nan


def _whole(text: str) -> int:
    return int(text) if _WHOLE.fullmatch(text) else -1


def _time(text: str) -> int:
    """µs since 1970 of an ISO 8601 time, UTC unless it says otherwise; -1 for another text."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return -1
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
