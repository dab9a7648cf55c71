"""Adapters of engines that can run a plan, by the entry points ``nova.engines``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nova_core.extensions import Extensions

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

_INSTALLED = Extensions("nova.engines", "engine")


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


def names() -> list[str]:
    """Names of all engines with an adapter, sorted."""
    return _INSTALLED.names()


def load(name: str) -> Engine:
    """The engine of that name.

    Raises:
        NovaError: for a name without an adapter, or an adapter that cannot be loaded.
    """
    engine: Engine = _INSTALLED.load(name)
    return engine
