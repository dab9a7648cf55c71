"""Names as numpy and Arrow hold them, and rows of a table by name, for a few or for millions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.problem import Bools, Ints, Strings

# From this many names on, Arrow is faster than Python's strings and dictionaries.
MANY = 50_000


class NameIndex(Mapping[str, int]):
    """Rows by name; all names are distinct.

    Args:
        ids: (n,) the names.
    """

    def __init__(self, ids: Strings) -> None:
        self.ids = ids

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids.tolist())}

    def __getitem__(self, name: str) -> int:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def arrow(self) -> Any:
        """(n,) the names as Arrow has them."""
        return arrow_text(self.ids)


def find_rows(names: Strings, index: Mapping[str, int]) -> Ints:
    """(k,) rows of names; -1 for an unknown name."""
    if not isinstance(index, NameIndex) or max(len(index), len(names)) < MANY:
        return np.array([index.get(name, -1) for name in names.tolist()], np.int64)
    import pyarrow as pa
    import pyarrow.compute as pc

    ids, wanted = index.arrow, arrow_text(names)
    if len(names) < len(index) // 8:  # a table of the few, in which the many are looked up
        place = pc.index_in(ids, value_set=wanted.cast(ids.type))
        known = numbers_of(place.is_valid())
        rows = np.full(len(names), -1)
        rows[numbers_of(place.drop_null())] = np.flatnonzero(known)
        first: Ints = numbers_of(pc.index_in(wanted, value_set=wanted))
        return rows[first]
    # Encoding all names together is faster than a search for some among others: known names get
    # the codes of their rows, unknown ones codes beyond.
    both = pa.chunked_array([ids, wanted.cast(ids.type)]).dictionary_encode()
    codes = numbers_of(both.combine_chunks().indices)[len(index) :].astype(np.int64)
    return np.where(codes < len(index), codes, -1)


def text_of(column: Any) -> Strings:
    """(k,) an Arrow array of text without empty cells, as numpy holds it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(column) == 0:
        return np.empty(0, np.str_)
    # Text of equal length is a block of memory, in Arrow as in numpy; NUL is what numpy pads with.
    width = max(1, pc.max(pc.utf8_length(column)).as_py())
    padded = pc.utf8_rpad(column.cast(pa.large_string()), width, padding="\0")
    _, offset, data = padded.buffers()
    ends = np.frombuffer(offset, np.int64)[padded.offset : padded.offset + len(padded) + 1]
    text = str(memoryview(data)[ends[0] : ends[-1]], "utf-8")
    return np.frombuffer(text.encode("utf-32-le"), f"<U{width}")


def arrow_text(names: Strings) -> Any:
    """An Arrow array of names in memory.

    Raises:
        UnicodeDecodeError: for half of a surrogate pair.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    points = code_points(names)
    data = points.tobytes().decode("utf-32-le").encode()
    if len(data) == points.size:  # ASCII
        ends = np.arange(len(names) + 1, dtype=np.int64) * points.shape[1]
    else:
        size = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
        ends = np.concatenate(([0], np.cumsum(size.sum(axis=1))))
    buffers = [pa.py_buffer(ends), pa.py_buffer(data)]
    padded = pa.LargeStringArray.from_buffers(len(names), *buffers)
    text = pc.utf8_rtrim(padded, "\0")
    return text.cast(pa.string()) if text.nbytes < 2**31 else text


def code_points(names: Strings) -> Any:
    """(k, w) the characters of names as numbers; 0 beyond the end of a name."""
    width = names.dtype.itemsize // 4
    return np.ascontiguousarray(names).view(np.uint32).reshape(len(names), width)


def numbers_of(column: Any) -> Any:
    """(k,) an Arrow array of numbers without empty cells, as numpy holds it; it may share memory.

    Arrow's own conversion imports pandas where that is installed, which takes 0.3 s.
    """
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        return np.from_dlpack(column.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(column)


def arrow_numbers(values: Any, valid: Bools | None = None) -> Any:
    """A column of numbers as an Arrow array, without Arrow's own conversion (see `numbers_of`).

    Args:
        values: (k,) numbers, or true and false.
        valid: (k,) False for a cell that is empty; None where none is.
    """
    import pyarrow as pa

    flags = values.dtype.kind == "b"
    stored = np.ascontiguousarray(values.view(np.uint8) if flags else values)
    filled = None
    if valid is not None and not valid.all():
        filled = pa.py_buffer(np.packbits(valid, bitorder="little"))
    kind = pa.from_numpy_dtype(stored.dtype)
    column = pa.Array.from_buffers(kind, len(stored), [filled, pa.py_buffer(stored)])
    return column.cast(pa.bool_()) if flags else column


def repeated(names: Strings) -> bool:
    """Whether a name occurs twice."""
    if len(names) < MANY:
        return len(set(names.tolist())) < len(names)
    import pyarrow.compute as pc

    return len(pc.unique(arrow_text(names))) < len(names)


def joined(names: Strings) -> bytes:
    """Names without NUL as UTF-8, with a NUL between two."""
    points = code_points(names)
    if len(points) == 0 or points.max() >= 0x80:
        return "\0".join(names.tolist()).encode()
    marked = np.full((len(points), points.shape[1] + 1), 0xFF, np.uint8)  # no byte of UTF-8
    marked[:, :-1] = points
    return marked.tobytes().translate(None, b"\0").replace(b"\xff", b"\0")[:-1]
