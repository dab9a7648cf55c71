"""The engine home: Flink in an environment of its own, made once and shared by everything.

The requirements of Flink and PySpark conflict, and joins need nothing of Flink's Python UDF stack.
So a home is a separate virtual environment with pip's own wheels, without dependencies that the
client does not need.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.installing import EngineError, EngineHome, Progress, engines_directory, java

VERSION = "2.3.0"
# Holds the hashes of all wheels that pip may install, and says how to renew them.
REQUIREMENTS = "flink-requirements.txt"
# flink-dist comes last, as in Flink's own scripts.
JARS = (
    f"flink-cep-{VERSION}.jar",
    f"flink-connector-files-{VERSION}.jar",
    f"flink-csv-{VERSION}.jar",
    f"flink-json-{VERSION}.jar",
    f"flink-scala_2.12-{VERSION}.jar",
    f"flink-table-api-java-uber-{VERSION}.jar",
    f"flink-table-planner-loader-{VERSION}.jar",
    f"flink-table-runtime-{VERSION}.jar",
    "log4j-1.2-api-2.25.3.jar",
    "log4j-api-2.25.3.jar",
    "log4j-core-2.25.3.jar",
    "log4j-layout-template-json-2.25.3.jar",
    "log4j-slf4j-impl-2.25.3.jar",
    f"flink-dist-{VERSION}.jar",
)
EXTENSION = "nova-flink.jar"
PROCESSES = ("taskmanager", "jobmanager")
PYTHONS = ((3, 11), (3, 12))


def requirements() -> list[str]:
    """What pip installs into a home, as ``NAME==VERSION``."""
    text = (files("nova_flink") / REQUIREMENTS).read_text("utf-8")
    return [line.split()[0] for line in text.splitlines() if line[:1].isalpha()]


@dataclass(frozen=True)
class FlinkHome(EngineHome):
    """An engine home of Flink."""

    name: str = "flink"
    title: str = "Flink"
    version: str = VERSION

    @classmethod
    def default(cls) -> FlinkHome:
        """The home that `nova engines install flink` makes."""
        return cls(engines_directory() / f"flink-{VERSION}")

    @property
    def python(self) -> Path:
        """The Python that can import pyflink."""
        return self.path / "bin" / "python"

    @property
    def flink(self) -> Path:
        """What Flink calls FLINK_HOME: pyflink's directory (a link, the same on every Python)."""
        return self.path / "flink"

    @property
    def jars(self) -> list[Path]:
        """Flink's jars in the order of the class path."""
        return [self.flink / "lib" / name for name in JARS]

    @property
    def extension_jar(self) -> Path:
        """Nova's own sources, filters and sinks."""
        return self.path / EXTENSION

    @property
    def class_data(self) -> dict[str, Path]:
        """Usable archives of loaded classes, by process; they make every start cheaper.

        Java refuses an archive that is older than a jar it was made with.
        """
        jar = self.extension_jar
        newest = jar.stat().st_mtime if jar.is_file() else 0.0
        archives = {name: self.path / f"{name}.jsa" for name in PROCESSES}
        return {
            name: path
            for name, path in archives.items()
            if path.is_file() and path.stat().st_mtime >= newest
        }

    @property
    def task_manager_options(self) -> tuple[str, ...]:
        """Options of Java for TaskManagers that use this home."""
        return self._options("taskmanager")

    @property
    def job_manager_options(self) -> tuple[str, ...]:
        """Options of Java for JobManagers that use this home."""
        return self._options("jobmanager")

    def _options(self, process: str) -> tuple[str, ...]:
        archive = self.class_data.get(process)
        return () if archive is None else (f"-XX:SharedArchiveFile={archive}",)

    @property
    def runtime_files(self) -> list[Path]:
        """What a host needs of the home to run Flink's processes (no Python)."""
        return [*self.jars, self.extension_jar, *self.class_data.values()]

    @property
    def required_files(self) -> list[Path]:
        """The Python, and Flink's directory."""
        return [self.python, self.flink]

    def _contents(self) -> dict[str, object]:
        return {"requirements": requirements()}

    def install(self, progress: Progress = lambda message: None) -> None:
        """Make the home, unless it exists; about 385 MB on disk.

        An interrupted installation lacks the stamp and is repeated.

        Args:
            progress: called with each step, as a line of text.

        Raises:
            EngineError: without a Python or Java that Flink can use, or when pip fails.
        """
        java()
        with self.locked(progress):
            if not self.installed:
                self._environment(progress)
            self._extension(progress)
            if len(self.class_data) < len(PROCESSES):
                self._archives(progress)

    def _environment(self, progress: Progress) -> None:
        python = _python()
        # A virtual environment knows its own path, so it is made in place; the stamp comes last.
        if self.path.exists():
            shutil.rmtree(self.path)
        progress("making a Python environment")
        _run([python, "-P", "-m", "venv", str(self.path)])
        progress(f"installing Flink {VERSION} with pip (330 MB to download when not cached)")
        pip = [str(self.python), "-P", "-m", "pip", "install", "--quiet"]
        pip.append("--disable-pip-version-check")
        with as_file(files("nova_flink") / REQUIREMENTS) as file:
            _run([*pip, "--no-deps", "--require-hashes", "--requirement", str(file)])
        package = next(iter(self.path.glob("lib/python3*/site-packages/pyflink")), None)
        missing = [n for n in JARS if package is None or not (package / "lib" / n).is_file()]
        if package is None or missing:
            raise EngineError(f"pip's Flink {VERSION} lacks {missing[0]}")
        self.flink.symlink_to(package.relative_to(self.path))
        self.write_stamp(self.path)

    def _extension(self, progress: Progress) -> None:
        from nova_engines.compiling import compiled

        compiled("nova_flink", "Flink", self.version, self.jars, self.extension_jar, progress)

    def _archives(self, progress: Progress) -> None:
        from nova_flink.class_data import archive

        progress("archiving loaded classes, so that hosts start faster")
        try:
            archive(self)
        except NovaError as error:
            progress(f"no archive, hosts start slower: {error}")


def _python() -> str:
    """A Python of a version that Flink publishes wheels for."""
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    for major, minor in PYTHONS:
        program = shutil.which(f"python{major}.{minor}")
        if program is not None:
            return program
    names = " or ".join(f"{major}.{minor}" for major, minor in PYTHONS)
    raise EngineError(f"Flink {VERSION} needs Python {names}, which is not on this machine")


def _run(command: list[str]) -> None:
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        lines = (completed.stderr.strip() or completed.stdout.strip() or "no output").splitlines()
        last = lines[-1]
        if "Expected sha256" in completed.stderr:
            last = "not what was checked: " + " ".join(line.strip() for line in lines[-3:])
        raise EngineError(f"{' '.join(command[:4])} failed: {last}")
