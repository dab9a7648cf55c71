"""Where numba keeps compiled kernels: one cache per state of all kernel sources of a package.

Numba checks one file at a time, so a kernel that calls an edited one in another file would still
run the old code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numba

from nova_core import borrowing


@contextmanager
def kernel_cache(package: str, *called: str) -> Iterator[None]:
    """Cache the kernels defined inside, in ``__pycache__`` or the user's cache if read-only.

    Args:
        package: the ``__file__`` of the kernels' ``__init__``; all ``*.py`` beside it count.
        called: likewise, of other packages whose kernels they call.
    """
    here = Path(package).parent
    sources = [Path(borrowing.__file__)]
    for each in (package, *called):
        sources += sorted(Path(each).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(s.read_bytes() for s in sources), digest_size=8).hexdigest()
    base = here / "__pycache__"
    if not os.access(base if base.exists() else here, os.W_OK):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nova"
    # Numba picks a kernel's cache when it is defined; other code keeps its own setting.
    settings = vars(numba.config)
    elsewhere = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = elsewhere or str(base / f"kernels-{digest}")
    try:
        yield
    finally:
        settings["CACHE_DIR"] = elsewhere
