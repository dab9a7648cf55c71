"""Adapters of engines that can run a plan, by the entry points ``nova.engines``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

GROUP = "nova.engines"


class Engine(Protocol):
    """A stream processing engine, as an adapter presents it."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def path(self) -> Path:
        """Where it is, or would be, installed."""
        ...

    def describe(self) -> str:
        """The engine, and what Nova can do with it, in a line."""
        ...

    def installed(self) -> bool:
        """Whether it can be used as it is."""
        ...

    def install(self, progress: Callable[[str], None]) -> None:
        """Install the engine unless it is usable; ``progress`` is called with lines of text."""
        ...

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Write the files to deploy a plan by hand.

        Args:
            plan: what runs where.
            problem: the one it answers.
            directory: is created; must be absent or empty.
            options: of the engine; numbers may be text.

        Returns:
            The files written.

        Raises:
            NovaError: for an option that is unknown or of the wrong type, a directory that holds
                something, a plan of another problem, or one that the engine cannot run.
        """
        ...


def _entry_points() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """Names of all engines with an adapter, sorted."""
    return sorted(_entry_points())


def load(name: str) -> Engine:
    """The engine of that name.

    Raises:
        NovaError: for a name without an adapter, or an adapter that cannot be loaded.
    """
    entry = _entry_points().get(name)
    if entry is None:
        known = ", ".join(names()) or "none"
        raise NovaError(f"engine: unknown {name!r}; there are adapters for {known}")
    try:
        engine: Engine = entry.load()
    except (ImportError, AttributeError) as error:
        raise NovaError(f"engine {name}: cannot load {entry.value}: {error}") from error
    return engine
