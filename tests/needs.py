"""What tests need of the machine: without it they skip, saying so, and fail where `CI` is set."""

from __future__ import annotations

import os
import subprocess
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
