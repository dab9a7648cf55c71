"""Tables written out in a document, row by row, read like the columns of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from nova_core.errors import NovaError, ProblemError
from nova_core.model.name_index import find_rows
from nova_core.model.problem import Bools, Floats, Ints, Strings
from nova_core.model.requirements import no_label


class ReadTable(ABC):
    """What `Rows` and the `Columns` of a file have in common."""

    @abstractmethod
    def fail(self, name: str, message: str, row: int | None = None) -> NovaError:
        """An error that names the cell."""

    @abstractmethod
    def coded(self, name: str, missing: str | None = None) -> tuple[Ints, Strings]:
        """((k,), (v,)): a text column as codes into values.

        Args:
            name: the column.
            missing: what stands for an empty cell; None refuses one.
        """

    def text(self, name: str, missing: str | None = None) -> Strings:
        """(k,) a text column."""
        codes, values = self.coded(name, missing)
        return values[codes]

    def find(self, name: str, index: Mapping[str, int], what: str) -> Ints:
        """(k,) where ``index`` has the names of a column; errors call them ``what``."""
        return self.find_codes(name, *self.coded(name), index, what)

    def find_codes(
        self, name: str, codes: Ints, values: Strings, index: Mapping[str, int], what: str
    ) -> Ints:
        """`find` for codes into values."""
        from nova_core.suggestions import unknown

        if len(codes) == 0:
            return np.empty(0, np.int64)
        rows = find_rows(values, index)[codes]
        if (rows < 0).any():
            row = int(np.argmax(rows < 0))
            raise self.fail(name, unknown(what, str(values[int(codes[row])]), index), row)
        return rows


class Rows(ReadTable):
    """A table written out in the document, with the methods of `Columns`.

    Attributes:
        path: the document.
        name: the table's name there.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        rows: Sequence[Any],
        error: type[NovaError] = ProblemError,
    ) -> None:
        self.path = path
        self.name = name
        self._rows = rows
        self._error = error

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, column: str) -> bool:
        return any(value is not UNSET for value in self._values(column))

    def _values(self, column: str) -> list[Any]:
        attribute = {"from": "source", "to": "target"}.get(column, column)
        return [UNSET if row is UNSET else getattr(row, attribute) for row in self._rows]

    def fail(self, column: str, message: str, row: int | None = None) -> NovaError:
        """An error that names the cell."""
        place = self.name if row is None else f"{self.name}[{row}]"
        return self._error(f"{self.path}: {place}.{column}: {message}")

    def empty(self, column: str) -> Bools:
        """(k,) whether a value was left out."""
        return np.array([value is UNSET or value is None for value in self._values(column)], bool)

    def coded(self, column: str, missing: str | None = None) -> tuple[Ints, Strings]:
        """((k,), (k,)): text as codes into values."""
        values: list[str] = []
        for row, value in enumerate(self._values(column)):
            if isinstance(value, list):
                for tag in value:
                    if not tag or "," in tag:
                        raise self.fail(column, no_label(column, tag), row)
                value = ",".join(value)
            text = (missing or "") if value is UNSET or value is None else value
            if "\0" in text:
                raise self.fail(column, f"{text!r} has a NUL character", row)
            values.append(text)
        return np.arange(len(values)), np.array(values, np.str_)

    def floats(self, column: str, missing: float = np.nan) -> Floats:
        """(k,) numbers; ``missing`` where one was left out."""
        values = self._values(column)
        return np.array([missing if v is UNSET or v is None else v for v in values], np.float64)

    def whole(self, column: str, missing: int = -1) -> Ints:
        """(k,) whole numbers; ``missing`` where one was left out."""
        values = self._values(column)
        try:
            return np.array([missing if v is UNSET or v is None else v for v in values], np.int64)
        except OverflowError:
            row = next(r for r, v in enumerate(values) if abs(v) >= 2**63)
            raise self.fail(column, f"{values[row]} is beyond 64 bits", row) from None

    def ranges(self, column: str) -> tuple[Ints, Ints]:
        """((k,), (k,)) begin and end of ranges."""
        bounds = self.number_lists(column)[1].astype(np.int64)
        return bounds[0::2], bounds[1::2]

    def lists(self, column: str) -> tuple[Ints, Ints, Strings]:
        """((k + 1,), (v,), (v,)): lists of text as offsets and codes; none where left out."""
        offset, values = self._flat(column)
        return offset, np.arange(len(values)), np.array(values, np.str_)

    def number_lists(self, column: str, whole: bool = True) -> tuple[Ints, Ints | Floats]:
        """((k + 1,), (v,)) offsets and values of lists of (whole) numbers; none where left out."""
        offset, values = self._flat(column)
        try:
            return offset, np.array(values, np.int64) if whole else np.array(values, np.float64)
        except OverflowError:
            raise self.fail(column, "a number is beyond 64 bits") from None

    def _flat(self, column: str) -> tuple[Ints, list[Any]]:
        lists = [[] if value is UNSET else value for value in self._values(column)]
        offset = np.concatenate(([0], np.cumsum([len(each) for each in lists], dtype=np.int64)))
        return offset, [value for each in lists for value in each]

    def capacity(self, column: str) -> Floats:
        """(k,) numbers, with ``unlimited`` as infinity."""
        values = self._values(column)
        return np.array([np.inf if v == "unlimited" else v for v in values], np.float64)

    def flags(self, column: str, missing: Bools) -> Bools:
        """(k,) true and false; where left out, the value of ``missing``."""
        values = self._values(column)
        filled = [m if v is UNSET else v for v, m in zip(values, missing.tolist(), strict=True)]
        return np.array(filled, np.bool_)

    def position(self) -> Floats | None:
        """(k, d) coordinates, or None when no row has any."""
        values = self._values("position")
        positions = [value for value in values if value is not UNSET]
        if not positions:
            return None
        for row, value in enumerate(values):
            if value is UNSET:
                message = "left out, but other nodes have one; all nodes need coordinates, or none"
                raise self.fail("position", message, row)
            if len(value) != len(positions[0]) or not value:
                raise self.fail(
                    "position",
                    f"{value} has {len(value)} coordinates, other nodes have {len(positions[0])}; "
                    "all nodes need as many, at least one",
                    row,
                )
        return np.array(positions, np.float64)
