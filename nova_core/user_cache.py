"""Where a user's programs keep what they can make again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Nova's directory there, which may not exist yet.

    Raises:
        RuntimeError: when the user has no home directory.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nova"
