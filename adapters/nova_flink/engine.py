"""Apache Flink as one of Nova's engines (entry point ``nova.engines``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_flink.home import VERSION, FlinkHome

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem


class Flink:
    """See `nova_core.engines.Engine`."""

    name = "flink"

    @property
    def path(self) -> Path:
        """Of the engine home."""
        return FlinkHome.default().path

    def describe(self) -> str:
        """What it is, in a line."""
        return f"Apache Flink {VERSION}: every operator on the node the plan says, unmodified Flink"

    def installed(self) -> bool:
        """Whether the engine home is complete."""
        return FlinkHome.default().installed

    def install(self, progress: Callable[[str], None]) -> None:
        """Make the engine home."""
        FlinkHome.default().install(progress)

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Write configuration, job and scripts for a plan into a directory."""
        from nova_flink.translate import translate

        return translate(plan, problem, directory, **options)


FLINK = Flink()
