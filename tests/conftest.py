"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair.
settings.register_profile("nova", deadline=None)
settings.load_profile("nova")

ROOT = Path(__file__).resolve().parent.parent
# Directories whose tests name things on this machine, and so must not run side by side.
ONE_AT_A_TIME = ("tests/nova_testbed/",)
# End-to-end tests that wait more than they work; the others, on one worker, can go on meanwhile.
WAITING = (
    "tests/nova_harness/test_experiment_e2e.py",
    "tests/nova_harness/test_experiment_engines_e2e.py",
    "tests/nova_harness/test_flink_commands_e2e",
    "tests/nova_kafka/",
    "tests/nova_spark/",
    "tests/nova_storm/",
)

# Workers of pytest-xdist are told of a terminal 80 columns wide.
os.environ.pop("COLUMNS", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers, tests of one file (or of such a directory) stay on one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if config.getoption("markexpr") == "e2e":
                return "waiting" if nodeid.startswith(WAITING) else "working"
            together = (name for name in ONE_AT_A_TIME if nodeid.startswith(name))
            return next(together, nodeid.partition("::")[0])

    return ByFile(config, log)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of shared measurements beside the repository; absent on most machines."""
    directory = ROOT.parent / "shared" / "data"
    if not (directory / "README.md").is_file():
        pytest.skip(f"the shared measurement data is not here: no {directory}")
    return directory
