"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of real measurements beside the checkout; tests that need it skip without."""
    directory = ROOT.parent / "shared" / "data"
    if not directory.is_dir():
        pytest.skip(f"no measurement data: {directory} does not exist")
    return directory
