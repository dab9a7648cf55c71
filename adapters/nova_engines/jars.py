"""An engine home that is a directory of pinned jars, fetched by their Maven coordinates."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nova_engines.installing import EngineError, Progress, engines_directory, locked
from nova_engines.maven import Artifact, fetch

STAMP = "home.json"


@dataclass(frozen=True)
class JarsHome:
    """Jars of one purpose.

    Attributes:
        path: the directory, absolute.
        name: what `nova engines install` calls it.
        title: what people call it.
        version: of the software in the jars.
        artifacts: exactly the required jars.
        megabytes: to download, when nothing is cached.
    """

    path: Path
    name: str
    title: str
    version: str
    artifacts: Sequence[Artifact]
    megabytes: int

    @classmethod
    def default(
        cls, name: str, title: str, version: str, artifacts: Sequence[Artifact], megabytes: int
    ) -> JarsHome:
        """The one that `nova engines install` makes."""
        path = engines_directory() / f"{name}-{version}"
        return cls(path, name, title, version, artifacts, megabytes)

    @property
    def jars(self) -> list[Path]:
        """All jars."""
        return [self.path / "lib" / artifact.file for artifact in self.artifacts]

    @property
    def installed(self) -> bool:
        """Whether an installation with the requirements of this version of Nova is complete."""
        try:
            stamp = json.loads((self.path / STAMP).read_text())
        except (OSError, ValueError):
            return False
        return bool(stamp == self._stamp()) and all(jar.is_file() for jar in self.jars)

    def check(self) -> None:
        """Check that the home can be used.

        Raises:
            EngineError: when it is absent, incomplete, or of another version.
        """
        if self.installed:
            return
        what = "is incomplete or of another version" if self.path.exists() else "not installed"
        raise EngineError(
            f"{self.title} {self.version} {what} at {self.path}: "
            f"run `nova engines install {self.name}`"
        )

    def install(self, progress: Progress = lambda message: None) -> None:
        """Make the home, unless it exists.

        It is made in a directory beside it and then renamed, so that it is complete or absent.
        Concurrent installations wait for each other.

        Args:
            progress: called with each step, as a line of text.

        Raises:
            EngineError: without Maven, when it fails, or for a wrong checksum.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_name(f".{self.path.name}.lock"), progress):
            if self.installed:
                return
            progress(
                f"getting {self.title} {self.version} with Maven "
                f"({self.megabytes} MB to download when not cached)"
            )
            with tempfile.TemporaryDirectory(
                dir=self.path.parent, prefix=f".{self.path.name}."
            ) as scratch:
                staging = Path(scratch) / "home"
                fetch(self.artifacts, staging / "lib", progress, self.title)
                (staging / STAMP).write_text(json.dumps(self._stamp(), indent=1))
                if self.path.exists():
                    shutil.rmtree(self.path)
                staging.rename(self.path)

    def _stamp(self) -> dict[str, object]:
        jars = {artifact.coordinates: artifact.sha256 for artifact in self.artifacts}
        return {"engine": self.name, "version": self.version, "jars": jars}
