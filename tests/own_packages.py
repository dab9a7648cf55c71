"""Packages of the tests that bring an engine or a workload, installed where this process looks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


@contextmanager
def installed(target: Path, *names: str) -> Iterator[None]:
    """Packages beside this file, installed in an empty directory while the block lasts."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    install += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*install, *(str(HERE / name) for name in names)], check=True)
    sys.path.append(str(target))
    try:
        yield
    finally:
        sys.path.remove(str(target))
