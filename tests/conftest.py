"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Directories whose tests share something costly or name things on this machine.
TOGETHER = ("nova_testbed",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, tests of one file (or of such a directory) stay on one worker."""
    for item in items:
        parts = item.path.relative_to(ROOT / "tests").parts
        group = parts[0] if parts[0] in TOGETHER else "/".join(parts)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of shared measurements beside the repository; absent on most machines."""
    directory = ROOT.parent / "shared" / "data"
    if not (directory / "README.md").is_file():
        pytest.skip(f"the shared measurement data is not here: no {directory}")
    return directory
