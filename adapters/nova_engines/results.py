"""The result records that sinks write, one per result, and reading them.

A file has records of one size, little endian (ResultFile.java). `FILE.fields` beside it has name
and type of every field in order, so one reader reads the files of all sinks.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nova_engines.flow import Operator

Fields = tuple[tuple[str, str], ...]
"""Name and type, one of `TYPES`, of each field."""

TEXT = "text"
# A text is where it begins in `FILE.texts`: its length, bytes, and UTF-8.
TYPES = {"i4": "<i4", "i8": "<i8", "f8": "<f8", TEXT: "<i8"}
LENGTH = struct.Struct("<i")
FIRST: Fields = (
    ("instance", "i4"),  # index into the flow's joins; -1 where it is not known
    # From when the earlier tuple was emitted to when the first of both was taken in by the engine.
    ("waited_us", "i4"),  # 0 where the engine's own sources emit
    ("time_ms", "i8"),  # begin of the window of a pair, event time of a row; ms since the epoch
    ("arrive_us", "i8"),  # when the result reached the sink, us since the epoch
)
"""What every record begins with."""
PAIR: Fields = (
    *FIRST,
    ("left_source", "i4"),  # index into the job's sources
    ("right_source", "i4"),
    ("left_sequence", "i8"),
    ("right_sequence", "i8"),
    ("left_emit_us", "i8"),  # when the source emitted the tuple, us since the epoch
    ("right_emit_us", "i8"),
    ("left_value", "f8"),
    ("right_value", "f8"),
)
"""Results of pairs."""
PAIR_BYTES = 80
ROW: Fields = (
    *FIRST,
    ("oldest_ms", "i8"),  # event time of the oldest reading that the row is made of
    ("oldest_us", "i8"),  # when that was emitted, us since the epoch
    ("newest_ms", "i8"),  # the same of the newest one
    ("newest_us", "i8"),
)
"""What rows of queries begin with; their columns follow."""
COLUMN_TYPES = {"int": "i8", "float": "f8", "text": TEXT}
# Files beside that of the results, see ResultFile.java.
FIELDS, TEXTS = ".fields", ".texts"
JOB, END, FAILED, COMPLETE = ".job", ".end", ".failed", ".complete"
BESIDE = (FIELDS, TEXTS, JOB, END, FAILED, COMPLETE)


def row_fields(columns: Sequence[str], types: Sequence[str]) -> Fields:
    """Fields of rows.

    Args:
        columns: their names.
        types: ``int``, ``float`` or ``text`` each.
    """
    kinds = [COLUMN_TYPES[one] for one in types]
    return *ROW, *zip(columns, kinds, strict=True)


def fields_of(sink: Operator) -> Fields:
    """Fields of what a sink writes."""
    return row_fields(sink.columns, sink.types) if sink.types else PAIR


def dtype(fields: Fields) -> np.dtype[np.void]:
    """Of the records with these fields."""
    import numpy as np

    return np.dtype([(name, TYPES[kind]) for name, kind in fields])


@dataclass(frozen=True)
class Texts:
    """Texts of a file's records.

    Attributes:
        path: of the file that has them, for errors.
        data: its content.
        fields: that are texts.
    """

    path: Path
    data: bytes
    fields: frozenset[str]

    def at(self, begins: NDArray[np.int64]) -> NDArray[np.object_]:
        """(k,) the texts that begin there.

        Raises:
            NovaError: where none begins.
        """
        import numpy as np

        distinct, which = np.unique(begins, return_inverse=True)
        texts = np.empty(len(distinct), object)
        texts[:] = [self._at(one) for one in distinct.tolist()]
        found: NDArray[np.object_] = texts[which.reshape(-1)]
        return found

    def _at(self, begin: int) -> str:
        first = begin + LENGTH.size
        if begin >= 0 and first <= len(self.data):
            (length,) = LENGTH.unpack_from(self.data, begin)
            if 0 <= length <= len(self.data) - first:
                try:
                    return self.data[first : first + length].decode()
                except UnicodeDecodeError:
                    pass
        raise NovaError(f"{self.path}: no text at {begin}, where a result has one")


@dataclass(frozen=True, eq=False)
class ResultRecords:
    """What a result file holds.

    Attributes:
        records: (k,) structured array of the file's fields; of a job of queries, `QueryRows`.
        truncated_bytes: of a record at the end of the file that was not written in full.
        starts: how often the sink was started for its job. An engine that restarts it may deliver
            results twice: Flink does, without checkpoints.
        announced: number of results that the sink reported at its end; None before.
        failure: why some could not be written; None where all could.
        dead_letters: number of inputs that were no tuples of their source, where that is known.
        texts: of the records; None where no field is a text.
    """

    records: Any
    truncated_bytes: int = 0
    starts: int = 1
    announced: int | None = None
    failure: str | None = None
    dead_letters: int = 0
    texts: Texts | None = None

    def __len__(self) -> int:
        return len(self.records)

    def loss(self, *, finished: bool) -> str | None:
        """Which of the sink's results are missing, in a line; None where none are.

        Args:
            finished: whether the job has come to its end.
        """
        if self.failure is not None:
            return f"the sink could not write its results: {self.failure or 'is the disk full?'}"
        if finished and self.announced is None:
            return "the sink has not said that its results are complete"
        if self.announced is not None and self.announced != len(self):
            return f"the sink wrote {self.announced:,} results, {len(self):,} are there"
        if self.announced is not None and self.truncated_bytes:
            return f"{self.truncated_bytes} bytes behind the last result are none"
        return None

    def __getitem__(self, field: str) -> NDArray[Any]:
        """(k,) a field of all records; of texts, an array of these.

        Raises:
            NovaError: where texts are missing.
        """
        column: NDArray[Any] = self.records[field]
        if self.texts is None or field not in self.texts.fields:
            return column
        return self.texts.at(column)

    @property
    def emitted_us(self) -> NDArray[np.int64]:
        """(k,) when the newest input of each was emitted, us since the epoch."""
        import numpy as np

        if isinstance(self.records, QueryRows) or "newest_us" in (self.records.dtype.names or ()):
            return self["newest_us"]
        newest: NDArray[np.int64] = np.maximum(self["left_emit_us"], self["right_emit_us"])
        return newest

    def between(self, begin_ms: int, end_ms: int | None) -> ResultRecords:
        """Those whose ``time_ms`` is in [begin, end); None is without end."""
        if isinstance(self.records, QueryRows):
            parts = self.records.of_query.items()
            rows = QueryRows({query: part.between(begin_ms, end_ms) for query, part in parts})
            return replace(self, records=rows)
        inside = self.records["time_ms"] >= begin_ms
        if end_ms is not None:
            inside &= self.records["time_ms"] < end_ms
        return replace(self, records=self.records[inside])

    def rows(self) -> list[tuple[Any, ...]]:
        """Event time (ms) and columns of each row of a query.

        Raises:
            NovaError: where texts are missing.
        """
        names = ["time_ms", *(self.records.dtype.names or ())[len(ROW) :]]
        return list(zip(*(self[name].tolist() for name in names), strict=True))


@dataclass(frozen=True)
class QueryRows:
    """What all sinks of a job of queries received.

    Attributes:
        of_query: by the query's id.
    """

    of_query: Mapping[str, ResultRecords]

    def __len__(self) -> int:
        return sum(map(len, self.of_query.values()))

    def __getitem__(self, field: str) -> NDArray[Any]:
        """(k,) one of the fields `ROW` of all queries, one after the other."""
        import numpy as np

        return np.concatenate([one[field] for one in self.of_query.values()])


def together(records: Any, parts: Sequence[ResultRecords]) -> ResultRecords:
    """What several sinks wrote, as one.

    Args:
        records: all of theirs.
        parts: of each sink.
    """
    announced = [part.announced for part in parts]
    failures = [part.failure for part in parts if part.failure is not None]
    return ResultRecords(
        records,
        sum(part.truncated_bytes for part in parts),
        starts=max((part.starts for part in parts), default=1),
        announced=None if None in announced else sum(one or 0 for one in announced),
        failure="; ".join(failures) if failures else None,
    )


def joined(parts: Sequence[ResultRecords]) -> ResultRecords:
    """What several sinks with the same fields wrote, one after the other, as one."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]  # without a copy
    records = np.concatenate([part.records for part in parts])
    texts = [part.texts for part in parts if part.texts is not None]
    merged = together(records, parts)
    if not texts:
        return merged
    # Texts are named by where they begin.
    begin = np.cumsum([0, *(len(one.data) for one in texts[:-1])])
    for field in texts[0].fields:
        records[field] += np.repeat(begin, [len(part) for part in parts])
    return replace(merged, texts=replace(texts[0], data=b"".join(one.data for one in texts)))


def read(path: Path, fields: Fields | None = None) -> ResultRecords:
    """Read a result file, which may still be written to, and the files beside it.

    Args:
        path: of the file.
        fields: that it must have; None for any. An empty file that has not said which it has, as
            that of a sink that was never started, has these.

    Raises:
        NovaError: where there is no such file, or it does not say what its fields are, or has
            others.
    """
    import numpy as np

    # Before the records: a sink may end in between.
    job, end, failure = (_beside(path, suffix) for suffix in (JOB, END, FAILED))
    data = _bytes(path, "; a sink makes it when its job starts")
    # Both are written before the records that need them.
    own = _fields(path) if data or fields is None or _file(path, FIELDS).exists() else fields
    if fields is not None and own != fields:
        raise NovaError(f"{_file(path, FIELDS)}: {_difference(own, fields)}")
    kind = dtype(own)
    whole = len(data) // kind.itemsize
    announced = end.strip() if end is not None else ""
    return ResultRecords(
        np.frombuffer(data, kind, count=whole),
        len(data) - whole * kind.itemsize,
        starts=max(1, len((job or "").splitlines())),
        announced=int(announced) if announced.isdecimal() and len(announced) < 20 else None,
        failure=None if failure is None else failure.strip(),
        texts=_texts(path, own, whole),
    )


def _file(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _bytes(path: Path, hint: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NovaError(f"{path}: {error.strerror}{hint}") from error


def _beside(path: Path, suffix: str) -> str | None:
    file = _file(path, suffix)
    return file.read_text("utf-8", "replace") if file.is_file() else None


def _fields(path: Path) -> Fields:
    file = _file(path, FIELDS)
    return parse_fields(_bytes(file, "; it says what the fields of the results are"), str(file))


def parse_fields(content: bytes, file: str) -> Fields:
    """The fields that a file of `FIELDS` names.

    Args:
        content: of the file.
        file: what errors name.

    Raises:
        NovaError: where these are no fields.
    """
    try:
        rows = json.loads(content)
        fields = tuple((name, kind) for name, kind in rows)
        good = all(isinstance(name, str) and name and kind in TYPES for name, kind in fields)
        good = good and len({name for name, _ in fields}) == len(fields)
    except (TypeError, ValueError, RecursionError):
        good = False
    if not good:
        raise NovaError(
            f"{file}: expected a list of fields: a name of its own and one of "
            f"{', '.join(TYPES)} each"
        )
    if fields[: len(FIRST)] != FIRST:
        raise NovaError(f"{file}: {_difference(fields, FIRST)}")
    return fields


def _difference(fields: Fields, expected: Fields) -> str:
    """How fields differ from those that are expected."""
    for number, (name, kind) in enumerate(expected):
        if fields[number : number + 1] != ((name, kind),):
            own = " ".join(fields[number]) if number < len(fields) else "nothing"
            return f"field {number + 1} is {own!r}; expected {name} {kind}"
    return f"has {len(fields)} fields; expected {len(expected)}"


def _texts(path: Path, fields: Fields, count: int) -> Texts | None:
    names = frozenset(name for name, kind in fields if kind == TEXT)
    if not names:
        return None
    file = _file(path, TEXTS)
    hint = "; it has the texts of the results"
    return Texts(file, _bytes(file, hint) if count else b"", names)
