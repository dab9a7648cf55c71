"""Directories that survive crashes and power cuts whole, and that one process at a time uses."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from nova_core.errors import NovaError, UnwritableError
from nova_core.io.safe_files import make_directory

LOCK = "lock"


def lock_directory(directory: Path) -> IO[bytes]:
    """A file in a directory that one process holds at a time; closing it lets the next one in.

    Raises:
        NovaError: naming the process that holds it.
    """
    path = directory / LOCK
    try:
        # Not truncated before the lock is held: the file names the holding process.
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b", 0)
    except OSError as error:
        raise NovaError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with file:
            holder = file.read(20).decode("ascii", "replace").strip()
        process = f"process {holder}" if holder.isdecimal() else "another process"
        raise NovaError(f"{directory}: {process} uses it; end that first, or use another") from None
    # The lock holds on a full disk, too.
    with suppress(OSError):
        file.truncate(0)
        file.write(b"%d\n" % os.getpid())
    return file


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory that appears under ``target`` complete and on the disk, or not at all.

    Yields a directory beside it to write to; it is renamed at the end.

    Raises:
        UnwritableError: when it cannot be written.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        yield make_directory(temporary)
        for path in (*temporary.rglob("*"), temporary):
            sync_path(path)
        temporary.rename(target)
        try:
            sync_path(target.parent)
        except OSError:
            target.rename(temporary)
            raise
    except OSError as error:
        raise UnwritableError(f"{target}: cannot be written: {error.strerror or error}") from error
    except NovaError as error:
        # Writers of documents and tables wrap the OSError.
        if isinstance(error.__cause__, OSError):
            raise UnwritableError(str(error)) from error.__cause__
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory atomically: after a crash or a power cut, ``path`` is whole or missing.

    Raises:
        UnwritableError: when it cannot be removed.
    """
    leaving = path.with_name(f".{path.name}.leaving.tmp")
    shutil.rmtree(leaving, ignore_errors=True)
    try:
        path.rename(leaving)
        sync_path(path.parent)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be removed: {error.strerror or error}") from error
    shutil.rmtree(leaving, ignore_errors=True)


def remove_leftovers(directory: Path, names: str = "*") -> None:
    """Delete temporary directories with such names that a crash left behind."""
    for path in directory.glob(f".{names}.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def sync_path(path: Path) -> None:
    """Wait until the disk has a file, or the entries of a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
