"""NebulaStream as one of Nova's engines (entry point ``nova.engines``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_nebulastream.home import CLI, HOME, NesHome

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem


class NebulaStream:
    """See `nova_core.engines.Engine`."""

    name = "nebulastream"

    @property
    def path(self) -> Path:
        """The home that the user names; its program's name where there is none."""
        return NesHome.default().path or Path(CLI)

    def describe(self) -> str:
        """What it is, in a line."""
        return f"NebulaStream, as the user has built it ({HOME})"

    def installed(self) -> bool:
        """Whether its programs are there; what Nova writes needs no NebulaStream."""
        return NesHome.default().complete

    def install(self, progress: Callable[[str], None]) -> None:
        """Nothing where it is installed; Nova cannot install it.

        Raises:
            NovaError: where it is not.
        """
        progress(f"{NesHome.default().program(CLI)} is there")

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Write queries, each with its topology, and scripts for a plan."""
        from nova_nebulastream.translate import translate

        return translate(plan, problem, directory, **options)


NEBULASTREAM = NebulaStream()
