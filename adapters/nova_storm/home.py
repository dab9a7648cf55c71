"""The engine home: Storm's jars by Maven coordinates, arranged as Storm's own directory is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from nova_engines.installing import Progress, engines_directory, java
from nova_engines.jars import JarsHome
from nova_engines.maven import Artifact, read_artifacts

VERSION = "2.8.3"
EXTENSION = "nova-storm.jar"
# Storm 2.8 is compiled for it.
RELEASE = "17"


@cache
def artifacts() -> tuple[tuple[Artifact, bool], ...]:
    """Every jar, and whether workers need it as well as nimbus and supervisors."""
    listed = read_artifacts((files("nova_storm") / "artifacts.txt").read_text("utf-8"))
    return tuple((artifact, use == "worker") for artifact, use in listed)


@dataclass(frozen=True)
class StormHome(JarsHome):
    """An engine home of Storm; its directory is what Storm calls ``storm.home``."""

    name: str = "storm"
    title: str = "Storm"
    version: str = VERSION
    artifacts: Sequence[Artifact] = field(default_factory=lambda: [one for one, _ in artifacts()])
    megabytes: int = 137

    @classmethod
    def default(cls) -> StormHome:
        """The home that `nova engines install storm` makes."""
        return cls(engines_directory() / f"storm-{VERSION}")

    @property
    def extension_jar(self) -> Path:
        """Nova's scheduler, spouts and bolts; also what is submitted as a topology's code."""
        return self.path / "extlib-daemon" / EXTENSION

    @property
    def usable(self) -> bool:
        """Whether it has all jars, Nova's too."""
        return self.installed and self.extension_jar.is_file()

    def _contents(self) -> dict[str, object]:
        return {**super()._contents(), "layout": 2}

    def install(self, progress: Progress = lambda message: None) -> None:
        """Make the home, unless it exists; 137 MB on disk.

        Args:
            progress: called with each step, as a line of text.

        Raises:
            EngineError: without Java or Maven, when Maven fails, or for a wrong checksum.
            CompileError: without a Java compiler.
        """
        from nova_engines.compiling import compiled, compiler

        java("Storm")
        compiler("Storm")
        with self.locked(progress):
            if not self.installed:
                self.fetch(progress)
            compiled(
                "nova_storm", "Storm", VERSION, self.jars, self.extension_jar, progress, RELEASE
            )

    def arrange(self, home: Path) -> None:
        """Add the directories of Storm's class paths and its configuration of logging."""
        for directory in ("lib-worker", "extlib", "extlib-daemon", "log4j2"):
            (home / directory).mkdir()
        for artifact, worker in artifacts():
            if worker:
                link = home / "lib-worker" / artifact.file
                link.symlink_to(Path("..") / "lib" / artifact.file)
        for name in ("worker.xml", "cluster.xml"):
            text = (files("nova_storm") / "log4j2" / name).read_text("utf-8")
            (home / "log4j2" / name).write_text(text, "utf-8")
