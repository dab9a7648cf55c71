"""Readings that queries run over: files of a folder, in DuckDB, and encoded for engines' sources.

A folder has a file for every source, ``SOURCE.csv`` or ``SOURCE.parquet``, or one for every stream
with a column ``source``. Columns are ``time`` (event time, whole ms) and those of the stream. Or it
is a directory of `nova workload prepare`: sources have the names of its sensors, such as
``29791-pressure``, and columns are ``sensor``, ``region`` and ``value``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nova_core import extras
from nova_core.errors import NovaError, first_line

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_core.model.queries import Stream

SUFFIXES = (".parquet", ".csv")
SQL_TYPES = {"int": "BIGINT", "float": "DOUBLE", "text": "VARCHAR"}
_FORMATS = {"int": "q", "float": "d"}
TIME, SOURCE = "time", "source"


def connection() -> Any:
    """A database in memory.

    Raises:
        NovaError: where DuckDB is not installed.
    """
    with extras.needed("readings of queries"):
        import duckdb
    return duckdb.connect(":memory:", config={"threads": 1})


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def table_of(stream: str) -> str:
    """Name of a stream's table, quoted."""
    return quoted(f"stream {stream}")


def load(database: Any, problem: Problem, folder: Path) -> None:
    """Read the readings of all streams that a problem describes into tables.

    A table has the columns ``t`` (ms), ``source``, and ``c0``, ``c1``, ... in the stream's order.

    Args:
        database: a connection of DuckDB.
        problem: with `streams`.
        folder: of the files.

    Raises:
        NovaError: naming the file and what is wrong with it.
    """
    if not folder.is_dir():
        raise NovaError(f"{folder}: no such directory")
    sources = problem.sources
    for stream in problem.streams:
        columns = [f"c{i} {SQL_TYPES[kind]}" for i, kind in enumerate(stream.columns.values())]
        table = table_of(stream.id)
        database.execute(f"CREATE TABLE {table} (t BIGINT, source VARCHAR, {', '.join(columns)})")
        for row, one in enumerate(sources.stream.tolist()):
            if one != stream.id:
                continue
            name = str(sources.ids[row])
            file = _file(folder, name, stream.id)
            _read(database, stream, file, name)
            key = None if sources.key is None else str(sources.key[row])
            _check(database, stream, name, key, file.path)


class _File(NamedTuple):
    """Where a source's readings are.

    Attributes:
        path: of a file, or of the files of a stream of a prepared archive.
        time: SQL of the event time, ms.
        source: SQL of the source's name; empty where the file is the source's own.
        columns: columns that these need.
    """

    path: Path
    time: str
    source: str
    columns: tuple[str, ...]


def _file(folder: Path, source: str, stream: str) -> _File:
    for name, columns in ((source, (TIME,)), (stream, (TIME, SOURCE))):
        for suffix in SUFFIXES:
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return _File(path, TIME, "".join(columns[1:]), columns)
    if any((folder / "readings").glob(f"day=*/stream={stream}")):
        path = folder / "readings" / "day=*" / f"stream={stream}" / "*.parquet"
        name = "concat(sensor, '-', stream)"
        return _File(path, "epoch_ms(timestamp)", name, ("timestamp", "sensor", "stream"))
    raise NovaError(
        f"{folder}: no readings of source {source!r}: expected {source}.csv, {source}.parquet, or "
        f"{stream}.csv or {stream}.parquet with a column {SOURCE!r}"
    )


def _read(database: Any, stream: Stream, file: _File, source: str) -> None:
    import duckdb

    path = str(file.path)
    reader = "read_parquet" if file.path.suffix == ".parquet" else "read_csv"
    try:
        existing = [
            str(one[0])
            for one in database.execute(f"DESCRIBE SELECT * FROM {reader}(?)", [path]).fetchall()
        ]
        missing = [name for name in (*file.columns, *stream.columns) if name not in existing]
        if missing:
            raise NovaError(
                f"{path}: column {missing[0]!r} is missing; there are {', '.join(existing)}"
            )
        columns = [quoted(name) for name in stream.columns]
        where = f"WHERE {file.source} = ?" if file.source else ""
        database.execute(
            f"INSERT INTO {table_of(stream.id)} SELECT {file.time}, ?, {', '.join(columns)} "
            f"FROM {reader}(?) {where}",
            [source, path, *([source] if file.source else [])],
        )
    except duckdb.Error as error:
        raise NovaError(f"{path}: cannot be read: {first_line(error)}") from error


def _check(database: Any, stream: Stream, source: str, key: str | None, file: Path) -> None:
    """Refuse readings that engines cannot take."""
    for i, (name, kind) in enumerate([(TIME, "int"), *stream.columns.items()]):
        column = "t" if i == 0 else f"c{i - 1}"
        wrong = f"{column} IS NULL" + (f" OR NOT isfinite({column})" if kind == "float" else "")
        if i and name == stream.key and key:
            wrong += f" OR {column} <> '" + key.replace("'", "''") + "'"
        bad = database.execute(
            f"SELECT {column} FROM {table_of(stream.id)} WHERE source = ? AND ({wrong}) LIMIT 1",
            [source],
        ).fetchone()
        if bad is not None:
            accepted = f"the source's key {key!r}" if name == stream.key else f"a {kind}"
            raise NovaError(f"{file}: {name} of {source!r} is {bad[0]!r}: expected {accepted}")


def encode(database: Any, stream: Stream, source: str) -> bytes:
    """The readings of a source by event time, encoded for engines' sources.

    Little-endian, one after the other: the time in ms, then every column: 64 bits, or for a text
    its length in 32 bits and its UTF-8.
    """
    columns = ", ".join(f"c{i}" for i in range(len(stream.columns)))
    rows = database.execute(
        f"SELECT t, {columns} FROM {table_of(stream.id)} WHERE source = ? ORDER BY t, rowid",
        [source],
    ).fetchall()
    return b"".join(_encoded(row, list(stream.columns.values())) for row in rows)


def _encoded(row: Sequence[Any], types: Sequence[str]) -> bytes:
    parts = [struct.pack("<q", row[0])]
    for value, kind in zip(row[1:], types, strict=True):
        if kind == "text":
            text = value.encode()
            parts.append(struct.pack("<i", len(text)) + text)
        else:
            parts.append(struct.pack(f"<{_FORMATS[kind]}", value))
    return b"".join(parts)


def write_encoded(database: Any, problem: Problem, directory: Path) -> dict[str, str]:
    """Write the readings of every source into a file of its own.

    Returns:
        The file of every source.
    """
    streams = {one.id: one for one in problem.streams}
    files = {}
    sources = problem.sources
    for number, (name, stream) in enumerate(
        zip(sources.ids.tolist(), sources.stream.tolist(), strict=True)
    ):
        if stream in streams:
            path = directory / f"{number}.readings"
            path.write_bytes(encode(database, streams[stream], name))
            files[name] = str(path)
    return files


def bounds_ms(database: Any, problem: Problem) -> tuple[int, int]:
    """Event times of the first and the last reading of all, ms; 0 where there is none."""
    tables = " UNION ALL ".join(f"SELECT t FROM {table_of(one.id)}" for one in problem.streams)
    first, last = database.execute(f"SELECT min(t), max(t) FROM ({tables})").fetchone()
    return (0, 0) if first is None else (int(first), int(last))


def first_ms(database: Any, problem: Problem) -> int:
    """Event time of the first reading of all, ms; 0 where there is none."""
    return bounds_ms(database, problem)[0]


def span_ms(database: Any, problem: Problem) -> int:
    """Time from the first reading of all to after the last, in whole seconds, ms."""
    first, last = bounds_ms(database, problem)
    return -(-(last - first + 1) // 1000) * 1000


def forget(database: Any, problem: Problem, source: str, from_ms: int) -> None:
    """Remove the readings of a source from an event time on, ms."""
    for stream in problem.streams:
        table = table_of(stream.id)
        database.execute(f"DELETE FROM {table} WHERE source = ? AND t >= ?", [source, from_ms])


def repeat(database: Any, problem: Problem, length_ms: int) -> None:
    """Make readings last so long: repeat them from the first, or cut them off."""
    first, span = first_ms(database, problem), span_ms(database, problem)
    for stream in problem.streams:
        table = table_of(stream.id)
        database.execute(
            f"CREATE TABLE repeated AS SELECT * EXCLUDE (i) REPLACE (t + i * {span} AS t) FROM "
            f"{table}, range({-(-length_ms // span)}) AS copies(i) "
            f"WHERE t + i * {span} < {first + length_ms} ORDER BY i, {table}.rowid"
        )
        database.execute(f"DROP TABLE {table}")
        database.execute(f"ALTER TABLE repeated RENAME TO {table}")
