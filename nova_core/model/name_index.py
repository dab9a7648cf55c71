"""Rows of a table by name, for a few names or tens of millions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.problem import Ints, Strings

# From this many names on, a lookup with Arrow is faster than building a Python dictionary.
MANY = 50_000


class NameIndex(Mapping[str, int]):
    """Rows by name; all names are distinct.

    Args:
        ids: (n,) the names.
    """

    def __init__(self, ids: Strings) -> None:
        self._ids = ids

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self._ids.tolist())}

    def __getitem__(self, name: str) -> int:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._ids)

    @cached_property
    def arrow(self) -> Any:
        """(n,) the names as Arrow has them."""
        import pyarrow as pa

        return pa.array(self._ids)


def is_large(index: Mapping[str, int]) -> bool:
    """Whether a lookup with Arrow is faster."""
    return isinstance(index, NameIndex) and len(index) >= MANY


def find_rows(names: Any, index: Mapping[str, int]) -> Ints:
    """(k,) rows of names, a list or an Arrow array of text; -1 for an unknown name."""
    if not is_large(index):
        listed = names if isinstance(names, list) else names.to_pylist()
        return np.array([index.get(name, -1) for name in listed], np.int64)
    import pyarrow as pa
    import pyarrow.compute as pc

    assert isinstance(index, NameIndex)
    values = pa.array(names, pa.string()) if isinstance(names, list) else names
    rows = pc.index_in(values, value_set=index.arrow.cast(values.type))
    return np.asarray(rows.fill_null(-1), np.int64)
