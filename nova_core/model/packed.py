"""Files that are packed, with gzip or as Parquet, and how large they may get.

A small file can unpack to a thousand times its size. Beyond a size that does no harm, one may
unpack to so many times its own size and to so many MiB, or it is refused. Measurements written as
text are seldom packed to less than a twentieth.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

HARMLESS = 16 * 2**20
# Environment variables and what holds without them.
RATIO = ("NOVA_UNPACKED_RATIO", 100)
MIB = ("NOVA_UNPACKED_MIB", 2048)
_CHUNK = 2**20


class PackedError(ValueError):
    """Content that is no gzip, or unpacks to more than it may; the text says which."""


def unpacked(content: bytes) -> bytes:
    """What packed content holds.

    Raises:
        PackedError: as it says.
    """
    return b"".join(_chunks(io.BytesIO(content), len(content)))


def check_packed(path: Path) -> None:
    """Read a packed file to its end, and keep nothing.

    Raises:
        PackedError: as it says.
        OSError: when the file cannot be read.
    """
    with path.open("rb") as file:
        for _ in _chunks(file, path.stat().st_size):
            pass


def check_size(packed: int, size: int) -> None:
    """Refuse what is out of proportion.

    Args:
        packed: size of the file, bytes.
        size: what it unpacks to, or so far, bytes.

    Raises:
        PackedError: when that is more than may be.
    """
    if size <= HARMLESS:
        return
    ratio, most = _limit(*RATIO), _limit(*MIB)
    if size > min(most * 2**20, ratio * packed):
        raise PackedError(
            f"{packed:,} bytes that unpack to {size:,} or more; {ratio:,} times as many, and "
            f"{most:,} MiB, are accepted ({RATIO[0]} and {MIB[0]} in the environment change that)"
        )


def _chunks(file: IO[bytes], packed: int) -> Iterator[bytes]:
    size = 0
    try:
        with gzip.GzipFile(fileobj=file) as content:
            while chunk := content.read(_CHUNK):
                size += len(chunk)
                check_size(packed, size)
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as cause:
        raise PackedError(f"not gzip, or cut off: {cause}") from None


def _limit(name: str, usual: int) -> int:
    text = os.environ.get(name) or str(usual)
    if not text.isdecimal() or int(text) < 1:
        raise PackedError(f"{name} is {text!r}; a whole number >= 1 is expected")
    return int(text)
