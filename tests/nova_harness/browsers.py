"""A browser without a window, for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from needs import skip_or_fail

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str:
    """Where it is; the test is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        skip_or_fail(f"there is no browser: none of {', '.join(NAMES)} in PATH")
    return found


def chromium(browser: str, place: Path, *arguments: str) -> str:
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [browser, "--headless", *sandbox, "--disable-gpu", "--hide-scrollbars", "--no-first-run",
         "--disable-dev-shm-usage", f"--user-data-dir={place / 'profile'}", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
