"""Size limits for packed files: gzip and Parquet.

A small file can unpack to a thousand times its size. Content above a harmless size is refused when
it exceeds a multiple of the packed size, or a number of MiB. Measurements written as text are
seldom packed to less than a twentieth.
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
# Environment variables and their defaults.
RATIO = ("NOVA_UNPACKED_RATIO", 100)
MIB = ("NOVA_UNPACKED_MIB", 2048)
_CHUNK = 2**20


class PackedError(ValueError):
    """Content that is not gzip, or unpacks to more than the limits; the text says which."""


def unpacked(content: bytes) -> bytes:
    """Packed content, unpacked.

    Raises:
        PackedError: when it is not gzip or exceeds the limits.
    """
    return b"".join(_chunks(io.BytesIO(content), len(content)))


def check_packed(path: Path) -> None:
    """Read a packed file to its end and discard the content.

    Raises:
        PackedError: when it is not gzip or exceeds the limits.
        OSError: when the file cannot be read.
    """
    with path.open("rb") as file:
        for _ in _chunks(file, path.stat().st_size):
            pass


def check_size(packed: int, size: int) -> None:
    """Refuse a file whose content exceeds the limits.

    Args:
        packed: size of the file, bytes.
        size: of its content, or of the part unpacked so far, bytes.

    Raises:
        PackedError: when it exceeds them.
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
