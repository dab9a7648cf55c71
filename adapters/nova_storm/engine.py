"""Apache Storm as one of Nova's engines (entry point ``nova.engines``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_storm.home import VERSION, StormHome

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem


class Storm:
    """See `nova_core.engines.Engine`."""

    name = "storm"

    @property
    def path(self) -> Path:
        """Of the engine home."""
        return StormHome.default().path

    def describe(self) -> str:
        """What it is, in a line."""
        return f"Apache Storm {VERSION}: every executor on the node the plan says, by a scheduler"

    def installed(self) -> bool:
        """Whether the engine home is complete."""
        return StormHome.default().installed

    def install(self, progress: Callable[[str], None]) -> None:
        """Make the engine home."""
        StormHome.default().install(progress)

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Write configuration, a topology and scripts for a plan into a directory."""
        from nova_storm.translate import translate

        return translate(plan, problem, directory, **options)


STORM = Storm()
