"""Compiled kernels (numba): the loops that outgrow numpy. Orchestration lives one level up.

Compiled code is cached per state of all kernel sources together. Numba alone looks at one file at a
time, so a kernel that calls an edited one in another file would go on running the old code.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numba


def _cache_directory() -> Path:
    """Where compiled kernels go: beside the sources, or the user's cache if that is read-only."""
    here = Path(__file__).parent
    sources = sorted(here.glob("*.py"))
    digest = hashlib.blake2b(b"".join(s.read_bytes() for s in sources), digest_size=8).hexdigest()
    base = here / "__pycache__"
    if not os.access(base if base.exists() else here, os.W_OK):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nova"
    return base / f"kernels-{digest}"


# Numba picks a kernel's cache when it is defined; other code in the process keeps its own setting.
_elsewhere = numba.config.CACHE_DIR
numba.config.CACHE_DIR = _elsewhere or str(_cache_directory())
try:
    from nova_core.placement.kernels import (
        assign,
        capacity_tree,
        cut,
        fill,
        items,
        median,
        merge,
        refine,
    )
finally:
    numba.config.CACHE_DIR = _elsewhere

__all__ = ["assign", "capacity_tree", "cut", "fill", "items", "median", "merge", "refine"]
