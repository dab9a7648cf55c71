"""Readings as files and messages have them: each with its event time, then its columns.

Little-endian: the time in ms, then every column: 64 bits, or of a text its length in 32 bits and
its UTF-8. `nova_workloads.queries.readings.encode` writes them, `nova.engines.query.ReadingTable`
reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from nova_core.errors import NovaError

TIME, LENGTH = struct.Struct("<q"), struct.Struct("<i")
TEXT = "text"


def readings_in(data: bytes, types: Sequence[str], where: str) -> Iterator[tuple[int, bytes]]:
    """Event time, ms, and encoding of each of the readings that follow each other.

    Args:
        data: all of them.
        types: of the columns.
        where: what errors name.

    Raises:
        NovaError: where one is cut off.
    """
    at = 0
    try:
        while at < len(data):
            begin = at
            (time_ms,) = TIME.unpack_from(data, at)
            at += TIME.size
            for kind in types:
                at += LENGTH.size + LENGTH.unpack_from(data, at)[0] if kind == TEXT else TIME.size
            if not begin < at <= len(data):
                raise struct.error
            yield time_ms, data[begin:at]
    except struct.error:
        raise NovaError(f"{where}: the reading at byte {begin} is cut off") from None
