"""Which rows of one table refer to a row of another, as both change."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from nova_core.model.problem import Ints

# A key with more rows than this becomes a dict when the incidence is made, not when it changes.
_MANY = 256


class Incidence:
    """A table of rows by key: compact as built, a dict per key that has changed since."""

    def __init__(self, keys: Ints, rows: Ints) -> None:
        """Index rows.

        Args:
            keys: (k,) what each entry refers to.
            rows: (k,) row of each entry; no entry occurs twice.
        """
        order = np.argsort(keys, kind="stable")
        self._rows = rows[order]
        self._offset = np.searchsorted(keys[order], np.arange(int(keys.max(initial=-1)) + 2))
        self._changed: dict[int, dict[int, None]] = {}
        for key in np.flatnonzero(np.diff(self._offset) > _MANY).tolist():
            self.own(key)

    def of(self, key: int) -> Collection[int]:
        """Rows that refer to a key; not to be kept while rows change."""
        own = self._changed.get(key)
        return own if own is not None else self._base(key)

    def own(self, key: int) -> dict[int, None]:
        """Rows that refer to a key, to be changed by the caller."""
        own = self._changed.get(key)
        if own is None:
            own = self._changed[key] = dict.fromkeys(self._base(key))
        return own

    def _base(self, key: int) -> list[int]:
        if not 0 <= key < len(self._offset) - 1:
            return []
        rows: list[int] = self._rows[self._offset[key] : self._offset[key + 1]].tolist()
        return rows


__all__ = ["Incidence"]
