"""Compiling in the background: ``python -m nova_core.compile_kernels PACKAGE FUNCTION CACHE``.

`nova_core.kernel_cache` starts it, in a session of its own. At most one process compiles and one
more per package waits, at the lowest priority. What goes wrong is in a log beside the kernels, and
not tried again before that is gone.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO

from nova_core.kernel_cache import compiled_for, packages

UNFINISHED_S = 60.0


def compile_package(package: str, function: str, cache: Path) -> None:
    """Compile and mark all kernels of a package, unless another process does or has.

    Args:
        package: of the kernels.
        function: ``module:function`` that runs all of them.
        cache: where they are kept.
    """
    with (cache / f"{package}.waits").open("w") as waits, (cache / "compiles").open("w") as turn:
        if not _lock(waits, wait=False) or not _lock(turn, wait=True):
            return
        os.nice(19)
        _remove_unfinished(cache)
        module, _, name = function.partition(":")
        getattr(import_module(module), name)()
        kernels = packages[package]
        if kernels.compiled_mark is not None and not kernels.are_compiled():
            part = kernels.compiled_mark.with_suffix(".part")
            part.write_text(compiled_for())
            part.replace(kernels.compiled_mark)


def _remove_unfinished(cache: Path) -> None:
    """Remove what numba was writing when a process was killed; writing takes no second."""
    for path in cache.rglob("*.tmp.*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > UNFINISHED_S:
                path.unlink()


def _lock(file: IO[str], *, wait: bool) -> bool:
    """Whether the lock was taken; it ends with the process."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def placement() -> None:
    """Compile what `nova_core.strategies` needs for joins."""
    from nova_core.errors import InfeasibleError
    from nova_core.io.examples import load_example
    from nova_core.strategies import place

    problem = load_example("running-example")
    place(problem)
    for more in ({"index": "kdtree"}, {"on_full": "spread", "sigma": 1.0}):
        with suppress(InfeasibleError):
            place(problem, **more)


if __name__ == "__main__":
    compile_package(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
