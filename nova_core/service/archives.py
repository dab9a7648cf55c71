"""Problems as tables in one body: a tar of the files that `nova generate -o DIRECTORY` writes.

Read here, because tar and Python's tarfile also make links, devices, directories and sparse files,
and take sizes and names from records of their own. Nothing of that is needed.
"""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path

from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.io.assembly import Assembly
from nova_core.io.problem_document import ROWS, VERSION, ProblemDocument
from nova_core.io.syntax import read_typed
from nova_core.model.problem import Problem

TAR = "application/x-tar"
DOCUMENTS = ("problem.yaml", "problem.json")
TABLES = tuple(f"{name}.parquet" for name in (*ROWS, "latency"))
_BLOCK = 512
_END = bytes(_BLOCK)


def problem_of_tables(content: bytes, directory: Path) -> Problem:
    """The problem in an archive.

    Args:
        content: the archive.
        directory: an empty one, for its files.

    Raises:
        ProblemError: for an archive that holds anything else; or naming the file in it, the row and
            column, the value and what would be accepted.
    """
    names = unpack(content, directory)
    documents = [name for name in DOCUMENTS if name in names]
    if len(documents) != 1:
        raise _error(f"{len(documents)} of {' and '.join(DOCUMENTS)}; one is expected")
    path = Path(documents[0])
    with chdir(directory):  # errors name the files as the archive does
        document = read_typed(path, ProblemDocument, "nova", VERSION, ProblemError)
        for part, fields in (
            (document.tables, ROWS),
            (document.latency, ("file",)),
        ):
            for field in fields:
                file = getattr(part, field, UNSET)
                if file is not UNSET and file not in names:
                    raise ProblemError(f"{path}: {field}: no file {file!r:.60} in the archive")
        return Assembly(document, path).problem()


def unpack(content: bytes, directory: Path) -> set[str]:
    """Write the files of an archive to a directory; their names.

    Raises:
        ProblemError: for an archive that is cut off, or holds anything but plain files of a
            problem, once each.
    """
    names: set[str] = set()
    place = 0
    while (header := content[place : place + _BLOCK]) != _END:
        if len(header) < _BLOCK:
            raise _error("it is cut off, or no tar")
        name, kind, size = _entry(header)
        begin = place + _BLOCK
        place = begin + -(-size // _BLOCK) * _BLOCK
        if place > len(content):
            raise _error(f"{name!r} is cut off: of {size:,} bytes, {len(content) - begin:,} came")
        if kind in "xg" or (kind == "5" and name in (".", "./")):
            continue  # times of files, and the directory that `tar -C DIRECTORY -c .` names
        name = name.removeprefix("./")
        if kind not in "0\0":
            raise _error(f"{name!r:.60} is no plain file, but of type {kind!r}")
        if name not in (*DOCUMENTS, *TABLES):
            expected = ", ".join((*DOCUMENTS, *TABLES))
            raise _error(f"{name!r:.60} is no file of a problem; expected are {expected}")
        if name in names:
            raise _error(f"{name!r} is there twice")
        names.add(name)
        (directory / name).write_bytes(content[begin : begin + size])
    return names


def _entry(header: bytes) -> tuple[str, str, int]:
    """Name, type and size of what follows a header (POSIX.1-1988, ustar)."""
    if header[257:262] != b"ustar":
        raise _error("it is no tar")
    # A long name has its directories in a field of their own.
    parts = [field.partition(b"\0")[0] for field in (header[345:500], header[:100])]
    name = b"/".join(filter(None, parts)).decode("ascii", "replace")
    size = header[124:136].strip(b" \0").decode("ascii", "replace")
    if not re.fullmatch("[0-7]+", size):
        raise _error(f"{name!r:.60} has the size {size!r}")
    return name, chr(header[156]), int(size, 8)


def _error(message: str) -> ProblemError:
    return ProblemError(f"archive: {message}")
