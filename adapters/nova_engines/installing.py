"""Where engines are installed, and what installing any of them needs."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nova_core.errors import NovaError
from nova_core.programs import PROGRAMS, install_command

JAVA = 17

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
