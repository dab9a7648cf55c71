"""NebulaStream as one of Nova's engines (entry point ``nova.engines``)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

CLI = "nes-cli"


class NebulaStream:
    """See `nova_core.engines.Engine`."""

    name = "nebulastream"

    @property
    def path(self) -> Path:
        """Of ``nes-cli``: where it is on the PATH; its bare name where it is not."""
        return Path(shutil.which(CLI) or CLI)

    def describe(self) -> str:
        """What it is, in a line."""
        return "NebulaStream, current and 0.x: one query per join instance, placed by its topology"

    def installed(self) -> bool:
        """Whether ``nes-cli`` is on the PATH; what Nova writes needs no NebulaStream."""
        return shutil.which(CLI) is not None

    def install(self, progress: Callable[[str], None]) -> None:
        """Nothing where it is installed; Nova cannot install it.

        Raises:
            NovaError: where it is not.
        """
        if not self.installed():
            raise NovaError(
                f"nebulastream: no {CLI} on the PATH, and Nova cannot install it: build it from "
                "https://github.com/nebulastream/nebulastream; `nova translate` works without"
            )
        progress(f"{self.path} is there")

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Write topologies (or configuration and REST calls), queries and scripts for a plan."""
        from nova_nebulastream.translate import translate

        return translate(plan, problem, directory, **options)


NEBULASTREAM = NebulaStream()
