"""Tests that drive Flink, where it is installed; in CI they install it."""

from __future__ import annotations

import os

import pytest

from nova_flink.configuration import QUICK_COMPILER
from nova_flink.home import FlinkHome

# The cluster that modules share: nodes, and arguments of `LocalCluster`.
SHARED_NODES = [f"n_{i}.x" for i in range(5)]
# Random plans have many more operators on a node than it has room for by default.
SHARED_ARGUMENTS = {
    "settings": {f"taskmanager.memory.network.{bound}": "256m" for bound in ("min", "max")},
    "task_manager_options": (QUICK_COMPILER, "-XX:MaxDirectMemorySize=400m"),
}


def require(home: FlinkHome) -> None:
    """Skip, loudly, where Flink is not installed; make what has changed since it was."""
    if not home.installed and not os.environ.get("CI"):
        pytest.skip("needs Flink: run `nova engines install flink`")
    home.install()
