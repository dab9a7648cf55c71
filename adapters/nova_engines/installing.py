"""Where engines are installed, and what installing any of them needs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nova_core.errors import NovaError
from nova_core.programs import PROGRAMS, install_command

JAVA = 17
STAMP = "home.json"

Progress = Callable[[str], None]


class EngineError(NovaError):
    """An engine that is not installed, or cannot be."""


def engines_directory() -> Path:
    """Where engine homes are kept: ``$NOVA_HOME/engines``, by default under ``~/.local/share``."""
    base = os.environ.get("NOVA_HOME")
    if base:
        return Path(base).expanduser().absolute() / "engines"
    return Path.home() / ".local" / "share" / "nova" / "engines"


def java(engine: str = "Flink") -> str:
    """The Java program on this machine, ``$JAVA_HOME/bin/java`` or the first on the path.

    Raises:
        EngineError: when there is none, or it is too old for an engine.
    """
    need = f"{engine} needs Java {JAVA}: `{install_command([PROGRAMS['java']])}`"
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if program is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "java: not found"
        raise EngineError(f"{where}; {need}")
    completed = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', completed.stderr)
    if match is None or int(match[1]) < JAVA:
        version = match[1] if match else "unknown"
        raise EngineError(f"{program}: version {version}; {need}")
    return program


@dataclass(frozen=True)
class EngineHome(ABC):
    """A directory with an engine's software, made once and shared by everything.

    Attributes:
        path: the directory, absolute.
        name: what `nova engines install` calls it.
        title: what people call it.
        version: of the software.
    """

    path: Path
    name: str
    title: str
    version: str

    @property
    @abstractmethod
    def required_files(self) -> Sequence[Path]:
        """What an installation must hold."""

    @abstractmethod
    def _contents(self) -> dict[str, object]:
        """What this version of Nova installs; an installation's stamp has the same."""

    @property
    def _stamp(self) -> dict[str, object]:
        return {"engine": self.name, "version": self.version, **self._contents()}

    def write_stamp(self, directory: Path) -> None:
        """Mark an installation in a directory as complete."""
        temporary = directory / f"{STAMP}.new"
        temporary.write_text(json.dumps(self._stamp, indent=1))
        temporary.replace(directory / STAMP)

    @property
    def installed(self) -> bool:
        """Whether an installation with the requirements of this version of Nova is complete."""
        try:
            stamp = json.loads((self.path / STAMP).read_text())
        except (OSError, ValueError, RecursionError):
            return False
        return bool(stamp == self._stamp) and all(file.exists() for file in self.required_files)

    @property
    def usable(self) -> bool:
        """Whether it can be used as it is."""
        return self.installed

    def check(self) -> None:
        """Check that the home can be used.

        Raises:
            EngineError: when it is absent, incomplete, or of another version.
        """
        if not self.usable:
            exists = self.path.exists()
            what = "is incomplete or of another version" if exists else "is not installed"
            raise EngineError(
                f"{self.title} {self.version} {what} at {self.path}: "
                f"run `nova engines install {self.name}`"
            )

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Let concurrent installations wait for each other."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_name(f".{self.path.name}.lock"), progress):
            yield


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file; report when waiting for another installation."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another installation to end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
