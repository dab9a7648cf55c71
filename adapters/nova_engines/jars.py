"""An engine home that is a directory of pinned jars, fetched by their Maven coordinates."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nova_core import scratch
from nova_engines.installing import EngineHome, Progress
from nova_engines.maven import Artifact, fetch


@dataclass(frozen=True)
class JarsHome(EngineHome):
    """Jars of one purpose.

    Attributes:
        artifacts: exactly the required jars.
        megabytes: to download, when nothing is cached.
    """

    artifacts: Sequence[Artifact]
    megabytes: int

    @property
    def jars(self) -> list[Path]:
        """All jars."""
        return [self.path / "lib" / artifact.file for artifact in self.artifacts]

    @property
    def required_files(self) -> list[Path]:
        """All jars."""
        return self.jars

    def _contents(self) -> dict[str, object]:
        return {"jars": {artifact.coordinates: artifact.sha256 for artifact in self.artifacts}}

    def install(self, progress: Progress = lambda message: None) -> None:
        """Make the home, unless it exists.

        Args:
            progress: called with each step, as a line of text.

        Raises:
            EngineError: without Maven, when it fails, or for a wrong checksum.
        """
        with self.locked(progress):
            if not self.installed:
                self.fetch(progress)

    def fetch(self, progress: Progress) -> None:
        """Make the home in a directory beside it, then rename that: it is complete or absent."""
        progress(
            f"getting {self.title} {self.version} with Maven "
            f"({self.megabytes} MB to download when not cached)"
        )
        with scratch.beside(self.path) as place:
            staging = place / "home"
            fetch(self.artifacts, staging / "lib", progress, self.title)
            self.arrange(staging)
            self.write_stamp(staging)
            if self.path.exists():
                shutil.rmtree(self.path)
            staging.rename(self.path)

    def arrange(self, home: Path) -> None:
        """Add what an engine needs beside its jars: nothing."""
