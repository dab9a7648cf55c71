"""What tests need of the machine: without it they skip, saying so, and fail where `CI` is set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """Skip, saying why; in continuous integration everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI this must run, but {reason}")
    pytest.skip(reason)


def need_namespaces() -> None:
    """Skip or fail where there can be no virtual rack."""
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        skip_or_fail("a virtual rack needs root and namespaces")


def run_with_mounts(script: Path, *arguments: str) -> str:
    """Run a Python script that mounts file systems nobody else sees; what it prints.

    Skips or fails where that takes root, which is not there.
    """
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        skip_or_fail("mounting a small file system needs root and namespaces")
    command = ["unshare", "-m", "sh", "-c", 'mount --make-rprivate / && exec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, str(script), *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
