"""Files that appear complete or not at all, and files that must hold something."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nova_core.errors import NovaError
from nova_core.scratch import file_for

# Of documents; any other path is a directory of tables.
DOCUMENT_SUFFIXES = (".yaml", ".yml", ".json")
# A capacity without limit, as documents and tables write it.
UNLIMITED = "unlimited"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that appears under ``path`` complete, or not at all.

    It is written under a temporary name in the same directory and renamed at the end.

    Raises:
        NovaError: when the directory is missing or not writable, or the disk is full.
    """
    target = Path(path)
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise NovaError(f"{target}: cannot be written: a pipe or device would be replaced")
    try:
        with file_for(target) as (file, temporary):
            yield file
            file.flush()
            # Temporary files are private; the result gets the permissions of any other file.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
            temporary.replace(target)
    except OSError as error:
        raise NovaError(f"{target}: cannot be written: {error.strerror or error}") from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def read_bytes(path: Path, error: type[NovaError], most: int | None = None) -> bytes:
    """The bytes of a file that must exist and hold something.

    Args:
        path: the file.
        error: class of errors.
        most: bytes that it may have; None for any number.

    Raises:
        NovaError: of the given class, naming the file.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise error(f"{path}: cannot be read: no file; pipes and devices are not read")
    try:
        with path.open("rb") as file:
            content = file.read() if most is None else file.read(most + 1)
    except OSError as cause:
        raise error(f"{path}: cannot be read: {cause.strerror or cause}") from cause
    if not content.strip():
        raise error(f"{path}: empty; a document is expected")
    if most is not None and len(content) > most:
        raise error(f"{path}: larger than it may be: more than {most >> 20} MiB")
    return content


def make_directory(path: Path) -> Path:
    """The directory, made if missing.

    Raises:
        NovaError: when it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NovaError(f"{path}: cannot be made: {error.strerror or error}") from error
    return path
