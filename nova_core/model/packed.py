"""Files packed with gzip, and how large they may get.

A small file can unpack to a thousand times its size. Beyond a size that does no harm, one may unpack
to so many times its own size and to so many MiB, or it is refused. Measurements written as text
are seldom packed to less than a twentieth.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

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


def _chunks(file: io.BufferedIOBase, size: int) -> Iterator[bytes]:
    ratio, most = _limit(*RATIO), _limit(*MIB) * 2**20
    total = 0
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            while chunk := packed.read(_CHUNK):
                total += len(chunk)
                if total > max(HARMLESS, min(most, ratio * size)):
                    raise PackedError(
                        f"{size:,} bytes that unpack to more than {total - 1:,}; {ratio:,} times as "
                        f"many and {most >> 20:,} MiB are accepted (see {RATIO[0]}, {MIB[0]})"
                    )
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as cause:
        raise PackedError(f"not gzip, or cut off: {cause}") from None


def _limit(name: str, usual: int) -> int:
    text = os.environ.get(name) or str(usual)
    if not text.isdecimal() or int(text) < 1:
        raise PackedError(f"{name} is {text!r}; a whole number >= 1 is expected")
    return int(text)
