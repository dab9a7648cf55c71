"""What installed packages add to Nova by entry points: engines, strategies, workloads, figures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from nova_core import extras, research
from nova_core.errors import NovaError
from nova_core.suggestions import nearest


@cache
def _installed(group: str, places: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Entry points by name; to look through all that is installed takes longer than to place.

    Args:
        group: of the entry points.
        places: ``sys.path``; with another one, other packages are installed.
    """
    return {entry.name: entry for entry in entry_points(group=group)}


@dataclass(frozen=True)
class Extensions:
    """Everything of one kind.

    Attributes:
        group: of the entry points.
        kind: what errors call one.
        error: class of the errors raised.
        order: sort key of names.
    """

    group: str
    kind: str
    error: type[NovaError] = NovaError
    order: Callable[[str], Any] = str

    def _entry_points(self) -> dict[str, EntryPoint]:
        return _installed(self.group, tuple(sys.path))

    def names(self) -> list[str]:
        """Names of all that are installed, in order."""
        return sorted(self._entry_points(), key=self.order)

    def load(self, name: str, where: str | None = None) -> Any:
        """The object that an entry point names.

        Args:
            name: of the entry point.
            where: what the error for an unknown name begins with; None for the kind.

        Raises:
            NovaError: for a name that is not installed, or a package that cannot be loaded.
        """
        entry = self._entry_points().get(name)
        if entry is None:
            if absent := research.absent(self.group, self.kind, name):
                raise self.error(absent)
            known = ", ".join(self.names()) or "none"
            near = nearest(name, [*self.names(), *research.NAMES.get(self.group, ())])
            meant = f"; did you mean {near!r}?" if near else ""
            raise self.error(
                f"{where or self.kind}: unknown {name!r}{meant}; installed are {known}"
            )
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            what = f"{self.kind} {name}"
            text = extras.missing(what, error) or f"{what}: cannot load {entry.value}: {error}"
            raise self.error(text) from error
