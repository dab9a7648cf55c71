"""The engine home: Storm's jars by Maven coordinates, arranged as Storm's own directory is."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from nova_engines.installing import EngineError, Progress, engines_directory, java, locked
from nova_engines.maven import Artifact, fetch, read_artifacts

VERSION = "2.8.3"
EXTENSION = "nova-storm.jar"
STAMP = "home.json"
HINT = "run `nova engines install storm`"
# Storm 2.8 is compiled for it.
RELEASE = "17"


@cache
def artifacts() -> tuple[tuple[Artifact, bool], ...]:
    """Every jar, and whether workers need it as well as nimbus and supervisors."""
    listed = read_artifacts((files("nova_storm") / "artifacts.txt").read_text("utf-8"))
    return tuple((artifact, use == "worker") for artifact, use in listed)


@dataclass(frozen=True)
class StormHome:
    """An engine home of Storm.

    Attributes:
        path: its directory, absolute; what Storm calls ``storm.home``.
    """

    path: Path

    @classmethod
    def default(cls) -> StormHome:
        """The home that `nova engines install storm` makes."""
        return cls(engines_directory() / f"storm-{VERSION}")

    @property
    def jars(self) -> list[Path]:
        """Storm's jars and what they need."""
        return [self.path / "lib" / artifact.file for artifact, _ in artifacts()]

    @property
    def extension_jar(self) -> Path:
        """Nova's scheduler, spouts and bolts; also what is submitted as a topology's code."""
        return self.path / "extlib-daemon" / EXTENSION

    @property
    def installed(self) -> bool:
        """Whether an installation with the requirements of this version of Nova is complete."""
        try:
            stamp = json.loads((self.path / STAMP).read_text())
        except (OSError, ValueError):
            return False
        return bool(stamp == _stamp()) and all(jar.is_file() for jar in self.jars)

    def check(self) -> None:
        """Check that the home can be used.

        Raises:
            EngineError: when it is absent, incomplete, or of another version.
        """
        if not self.installed or not self.extension_jar.is_file():
            what = "is incomplete or of another version" if self.path.exists() else "not installed"
            raise EngineError(f"Storm {VERSION} {what} at {self.path}: {HINT}")

    def install(self, progress: Progress = lambda message: None) -> None:
        """Make the home, unless it exists; 137 MB on disk.

        It is made in a directory beside it and then renamed, so that it is complete or absent.
        Concurrent installations wait for each other.

        Args:
            progress: called with each step, as a line of text.

        Raises:
            EngineError: without Java or Maven, when Maven fails, or for a wrong checksum.
            CompileError: without a Java compiler.
        """
        from nova_engines.compiling import compiled, compiler

        java("Storm")
        compiler("Storm")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_name(f".{self.path.name}.lock"), progress):
            if not self.installed:
                self._fetch(progress)
            compiled(
                "nova_storm", "Storm", VERSION, self.jars, self.extension_jar, progress, RELEASE
            )

    def _fetch(self, progress: Progress) -> None:
        progress(f"getting Storm {VERSION} with Maven (137 MB to download when not cached)")
        with tempfile.TemporaryDirectory(
            dir=self.path.parent, prefix=f".{self.path.name}."
        ) as scratch:
            staging = Path(scratch) / "home"
            fetch([one for one, _ in artifacts()], staging / "lib", progress, "Storm")
            for directory in ("lib-worker", "extlib", "extlib-daemon", "log4j2"):
                (staging / directory).mkdir()
            for artifact, worker in artifacts():
                if worker:
                    link = staging / "lib-worker" / artifact.file
                    link.symlink_to(Path("..") / "lib" / artifact.file)
            for name in ("worker.xml", "cluster.xml"):
                text = (files("nova_storm") / "log4j2" / name).read_text("utf-8")
                (staging / "log4j2" / name).write_text(text, "utf-8")
            (staging / STAMP).write_text(json.dumps(_stamp(), indent=1))
            if self.path.exists():
                shutil.rmtree(self.path)
            staging.rename(self.path)


def _stamp() -> dict[str, object]:
    jars = {artifact.coordinates: artifact.sha256 for artifact, _ in artifacts()}
    return {"engine": "storm", "version": VERSION, "jars": jars, "layout": 2}
