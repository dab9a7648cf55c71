"""Which rows of one table refer to a row of another, as both change."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from nova_core.model.problem import Ints

# A key with more rows than this becomes a dict when the incidence is made, not when it changes.
_MANY = 256


class Incidence:
    """A table of rows by key: compact as built, a dict per key that has changed since.

    What a key gains and loses is kept apart until someone asks for its rows: in a large table,
    finding what it had before is a wait for memory.
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
        # Whether each row is gained or lost, by key.
        self._pending: dict[int, dict[int, bool]] = {}
        for key in np.flatnonzero(np.diff(self._offset) > _MANY).tolist():
            self._own(key)

    def of(self, key: int) -> Collection[int]:
        """Rows that refer to a key; not to be kept while rows change."""
        own = self._changed.get(key)
        if own is not None:
            return own
        return self._own(key) if key in self._pending else self._base(key)

    def add(self, key: int, row: int) -> None:
        """A row refers to a key from now on."""
        own = self._changed.get(key)
        if own is not None:
            own[row] = None
        else:
            self._differ(key, row, True)

    def discard(self, key: int, row: int) -> None:
        """A row refers to a key no longer."""
        own = self._changed.get(key)
        if own is not None:
            del own[row]
        else:
            self._differ(key, row, False)

    def _differ(self, key: int, row: int, gained: bool) -> None:
        pending = self._pending.get(key)
        if pending is None:
            self._pending[key] = {row: gained}
        elif pending.pop(row, gained) is gained:
            pending[row] = gained

    def _own(self, key: int) -> dict[int, None]:
        own = self._changed[key] = dict.fromkeys(self._base(key))
        for row, gained in self._pending.pop(key, {}).items():
            if gained:
                own[row] = None
            else:
                del own[row]
        return own

    def _base(self, key: int) -> list[int]:
        offset = self._offset
        if not 0 <= key < len(offset) - 1:
            return []
        rows: list[int] = self._rows[offset.item(key) : offset.item(key + 1)].tolist()
        return rows
