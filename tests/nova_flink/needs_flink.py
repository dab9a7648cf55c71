"""Tests that drive Flink, where it is installed; in CI they install it."""

from __future__ import annotations

import os

import pytest

from nova_flink.home import FlinkHome


def require(home: FlinkHome) -> None:
    """Skip, loudly, where Flink is not installed; make what has changed since it was."""
    if not home.installed and not os.environ.get("CI"):
        pytest.skip("needs Flink: run `nova engines install flink`")
    home.install()
