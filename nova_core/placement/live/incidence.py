"""Which rows of one table refer to a row of another, as both change."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from nova_core.model.problem import Ints

# A key with more rows than this becomes a dict when the incidence is made, not when it changes.
_MANY = 256


class Incidence:
    """A table of rows by key: compact as built, a dict per key that has changed since.

    Rows that a key gains are kept apart until someone asks for its rows: in a large table, finding
    what it had before is a wait for memory.
    """

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
        self._gained: dict[int, dict[int, None]] = {}
        for key in np.flatnonzero(np.diff(self._offset) > _MANY).tolist():
            self._own(key)

    def of(self, key: int) -> Collection[int]:
        """Rows that refer to a key; not to be kept while rows change."""
        own = self._changed.get(key)
        if own is not None:
            return own
        return self._own(key) if key in self._gained else self._base(key)

    def add(self, key: int, row: int) -> None:
        """A row refers to a key from now on."""
        own = self._changed.get(key)
        if own is not None:
            own[row] = None
        elif key in self._gained:
            self._gained[key][row] = None
        else:
            self._gained[key] = {row: None}

    def discard(self, key: int, row: int) -> None:
        """A row refers to a key no longer."""
        own = self._changed.get(key)
        if own is None:
            gained = self._gained.get(key)
            if gained is not None and row in gained:
                del gained[row]
                return
            own = self._own(key)
        del own[row]

    def _own(self, key: int) -> dict[int, None]:
        own = self._changed[key] = dict.fromkeys(self._base(key))
        own.update(self._gained.pop(key, {}))
        return own

    def _base(self, key: int) -> list[int]:
        offset = self._offset
        if not 0 <= key < len(offset) - 1:
            return []
        rows: list[int] = self._rows[offset.item(key) : offset.item(key + 1)].tolist()
        return rows


__all__ = ["Incidence"]
