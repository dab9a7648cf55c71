"""Changes that record previous values, so that they can be undone."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np

from nova_core.placement.live.tables import Incidence, Residents


class Undoable:
    """An object whose changes can be undone until they are committed."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, ...]] = []

    def set(self, column: Any, row: Any, value: Any) -> None:
        """``column[row] = value`` in a numpy column or a list, remembering the value before."""
        old = column[row]
        self._undo.append((column, row, old.copy() if isinstance(old, np.ndarray) else old))
        column[row] = value

    def assign(self, table: Any, column: str, row: Any, value: Any) -> None:
        """`set` in a column of a table that may grow before that is undone."""
        old = getattr(table, column)[row]
        old = old.copy() if isinstance(old, np.ndarray) else old
        self._undo.append((_assign, table, column, row, old))
        _assign(table, column, row, value)

    def put(self, table: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """``table[key] = value``, remembering the value before."""
        if key in table:
            self._undo.append((table, key, table[key]))
        else:
            self._undo.append((table.pop, key))
        table[key] = value

    def drop(self, table: MutableMapping[Any, Any], key: Any) -> None:
        """Remove a key if present, remembering its value."""
        if key in table:
            self._undo.append((table, key, table.pop(key)))

    def on_undo(self, undo: Callable[..., Any], *arguments: Any) -> None:
        """Register a call that undoes a change of another kind."""
        self._undo.append((undo, *arguments))

    def bind(self, relation: Incidence | Residents, key: int, row: int) -> None:
        """Add a row to a key."""
        relation.add(key, row)
        self._undo.append((relation.discard, key, row))

    def unbind(self, relation: Incidence | Residents, key: int, row: int) -> None:
        """Remove a row from a key."""
        relation.discard(key, row)
        self._undo.append((relation.add, key, row))

    def commit(self) -> None:
        """Make all changes permanent."""
        self._undo.clear()

    def roll_back(self) -> None:
        """Undo all changes since the last commit."""
        while self._undo:
            entry = self._undo.pop()
            if callable(entry[0]):
                entry[0](*entry[1:])
            else:
                entry[0][entry[1]] = entry[2]


def _assign(table: Any, column: str, row: Any, value: Any) -> None:
    getattr(table, column)[row] = value
