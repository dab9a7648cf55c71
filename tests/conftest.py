"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of shared measurements beside the repository; absent on most machines."""
    directory = ROOT.parent / "shared" / "data"
    if not (directory / "README.md").is_file():
        pytest.skip(f"the shared measurement data is not here: no {directory}")
    return directory
