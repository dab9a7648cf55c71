"""Where numba keeps compiled kernels: by the names of modules, wherever these are installed.

Only numba imports this; `nova_core.kernel_cache` names it to numba.
"""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

from numba import config
from numba.core.caching import UserProvidedCacheLocator


class KernelLocator(UserProvidedCacheLocator):
    """As numba's own for a directory, whose names have the path of the sources in them."""

    def __init__(self, py_func: FunctionType, py_file: str) -> None:
        """See numba."""
        UserProvidedCacheLocator.__init__(self, py_func, py_file)
        self._cache_path = str(Path(vars(config)["CACHE_DIR"]) / py_func.__module__)
