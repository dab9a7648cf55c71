"""Rows of a table by name, for a few or for millions, and names as numpy and Arrow hold them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nova_core.model.arrays import Bools, Ints, Strings

# From this many names on, arrays are faster than Python's strings and dictionaries.
MANY = 50_000
_SEED = secrets.randbits(64)


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
    def hashed(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]] | None:
        """((n,), (m,)) names' hashes, and their rows in the slots of a table with open addressing.

        None where two names have the same hash; equal names always do.
        """
        hashes = _hashes(self.ids)
        table = np.full(1 << (2 * len(hashes)).bit_length(), -1, np.int32)
        rows, slots = np.arange(len(hashes)), _slots(hashes, table)
        while len(rows):  # each takes the next slot until it has one of its own
            free = table[slots] < 0
            table[slots[free]] = rows[free]
            there = table[slots]
            lost = there != rows
            rows, slots, there = rows[lost], slots[lost], there[lost]
            if (hashes[there] == hashes[rows]).any():
                return None
            slots = (slots + 1) & (len(table) - 1)
        return hashes, table


def find_rows(names: Strings, index: Mapping[str, int]) -> Ints:
    """(k,) rows of names; -1 for an unknown name."""
    few = not len(index) or max(len(index), len(names)) < MANY
    if few or not isinstance(index, NameIndex) or index.hashed is None:
        return np.array([index.get(name, -1) for name in names.tolist()], np.int64)
    (hashes, table), wanted = index.hashed, _hashes(names)
    found = np.full(len(names), -1)
    rows, slots = np.arange(len(names)), _slots(wanted, table)
    while len(rows):
        there = table[slots]
        same = (there >= 0) & (hashes[there] == wanted[rows])
        found[rows[same]] = there[same]
        on = (there >= 0) & ~same
        rows, slots = rows[on], (slots[on] + 1) & (len(table) - 1)
    found[index.ids[found] != names] = -1
    return found


def _hashes(names: Strings) -> NDArray[np.uint64]:
    """(k,) 64 bits of each name (multilinear hashing), which nobody can foresee."""
    points = code_points(names)
    factors = np.random.default_rng(_SEED).integers(2**64, size=points.shape[1], dtype=np.uint64)
    hashes = np.zeros(len(points), np.uint64)
    for column, factor in zip(points.T, factors, strict=True):
        hashes += column * factor
    return hashes


def _slots(hashes: NDArray[np.uint64], table: NDArray[np.int32]) -> Ints:
    """(k,) where the search for each hash begins: its upper bits, which are the good ones."""
    return (hashes >> np.uint64(65 - len(table).bit_length())).astype(np.int64)


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
    if len(names) >= MANY and NameIndex(names).hashed is not None:
        return False
    return len(set(names.tolist())) < len(names)


def joined(names: Strings) -> bytes:
    """Names without NUL as UTF-8, with a NUL between two."""
    points = code_points(names)
    if len(points) == 0 or points.max() >= 0x80:
        return "\0".join(names.tolist()).encode()
    marked = np.full((len(points), points.shape[1] + 1), 0xFF, np.uint8)  # no byte of UTF-8
    marked[:, :-1] = points
    return marked.tobytes().translate(None, b"\0").replace(b"\xff", b"\0")[:-1]
