"""Temporary files that nobody finds later: removed when their run ends, else by the next one.

Whoever makes one holds a lock on it, which ends with the process, however that ends. One without a
lock was left by a process that was killed.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

RUN = "nova-run-"
SUFFIX = ".tmp"
# The system's directory of temporary files, while those of this process go elsewhere.
_system: str | None = None


def lasting() -> str:
    """The system's directory of temporary files, for what must outlive this run."""
    return _system or tempfile.gettempdir()


def run_folder() -> None:
    """Have all temporary files of this process in one folder, which goes when the process ends."""
    global _system
    place = folder(Path(tempfile.gettempdir()), RUN)
    path = place.__enter__()
    atexit.register(_end, place)
    _system, tempfile.tempdir = lasting(), str(path)


def _end(place: AbstractContextManager[Path]) -> None:
    if util := sys.modules.get("multiprocessing.util"):
        util._exit_function()  # it removes its own temporary files, and misses any that are gone
    place.__exit__(None, None, None)


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A folder next to where something will be, to make it in; it goes when the block ends.

    Raises:
        OSError: when nothing can be written there.
    """
    with folder(target.parent, f".{target.name}.") as path:
        yield path


@contextmanager
def folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder that goes when the block ends; before, those that killed processes left.

    Raises:
        OSError: when it cannot be made.
    """
    held, path = _made(parent, prefix, _make_folder)
    maker = os.getpid()
    try:
        yield path
    finally:
        if os.getpid() == maker:  # a forked child leaves the block, too
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


@contextmanager
def file_for(target: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A new file next to a target, to rename to it; `folder` says what goes.

    Raises:
        OSError: when it cannot be made.
    """
    held, path = _made(target.parent, f".{target.name}.", tempfile.mkstemp)
    try:
        with os.fdopen(held, "wb") as file:
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def _make_folder(suffix: str, prefix: str, parent: Path) -> tuple[int, str]:
    path = tempfile.mkdtemp(suffix, prefix, parent)
    return os.open(path, os.O_RDONLY), path


def _made(
    parent: Path, prefix: str, make: Callable[[str, str, Path], tuple[int, str]]
) -> tuple[int, Path]:
    """Make something and lock it; before, remove what was left there."""
    _remove_abandoned(parent, prefix)
    while True:
        held, path = make(SUFFIX, prefix, parent)
        with suppress(OSError):  # some file systems have no locks: there, nothing is removed
            fcntl.flock(held, fcntl.LOCK_SH)
        if Path(path).exists():
            return held, Path(path)
        os.close(held)  # another process took it for abandoned before it was locked


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove files and folders of this user that processes left that were killed."""
    with suppress(OSError), os.scandir(parent) as entries:
        left = [e.path for e in entries if e.name.startswith(prefix) and e.name.endswith(SUFFIX)]
        for path in left:
            with suppress(OSError):
                _remove_unlocked(Path(path))


def _remove_unlocked(path: Path) -> None:
    held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(held)
        if status.st_uid != os.geteuid():
            return
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            path.unlink()
    finally:
        os.close(held)
