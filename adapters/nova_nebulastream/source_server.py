"""Serves the tuples of a host's sources over TCP, as NebulaStream's TCP sources read them.

``python3 source_server.py CONFIGURATION``: it runs on hosts, where only the standard library is.
Every query reads its sources itself, so each connection gets all tuples of its source, each when it
is due. A connection that comes late gets what was due before at once. The configuration is a JSON
document.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

BACKLOG = 512
# Lines that wait are written together.
STEP_S = 0.005
# Of what is read as fast as it is taken.
CHUNK = 1000


def replayed(one: dict[str, Any], start_us: int) -> Iterator[tuple[int, str]]:
    """When each tuple of a replay is due (us since the epoch), and its line."""
    data = Path(one["file"]).read_bytes()
    values = [repr(value) for value in struct.unpack(f"<{len(data) // 8}d", data)]
    numbers = one["pace"]
    parts = [numbers[at : at + 3] for at in range(0, len(numbers), 3)]
    part, k, count = 0, 0, one["count"]
    while count is None or k < count:
        while part + 1 < len(parts) and k >= parts[part + 1][0]:
            part += 1
        first, due_us, rate = parts[part]
        due = start_us + int(due_us) + int((k - first) * 1e6 / rate)
        yield due, f"{due // 1000},{k},{due},{values[k % len(values)]}\n"
        k += 1


def readings(one: dict[str, Any], clock: list[float]) -> Iterator[tuple[int, str]]:
    """The same of readings: little-endian event time (ms), then the columns."""
    data, at, k = Path(one["file"]).read_bytes(), 0, 0
    first_ms, start_ms, speed = clock
    while at < len(data):
        (time_ms,) = struct.unpack_from("<q", data, at)
        at += 8
        fields = [str(time_ms), *([str(k)] if one["numbered"] else [])]
        hashes = []
        for kind in one["types"]:
            if kind == "text":
                (length,) = struct.unpack_from("<i", data, at)
                encoded = data[at + 4 : at + 4 + length]
                text = encoded.decode()
                if any(mark in text for mark in ',"\r\n'):
                    raise ValueError(f"text {text!r}: has a comma, a quote or a line end")
                fields.append(text)
                hashes.append(encoded)
                at += 4 + length
            else:
                (value,) = struct.unpack_from("<q" if kind == "int" else "<d", data, at)
                fields.append(repr(value))
                if kind == "float":
                    # 0.0 and -0.0 are equal.
                    hashes.append(struct.pack("<d", value + 0.0))
                at += 8
        if one["hashed"]:
            fields += [str(int.from_bytes(blake2b(b, digest_size=8).digest())) for b in hashes]
        due_ms = 0 if speed == 0 else start_ms + math.ceil((time_ms - first_ms) / speed)
        yield 1000 * int(due_ms), ",".join(fields) + "\n"
        k += 1


class Stream:
    """A source's lines: made once, sent to all that read it.

    Args:
        lines: when each is due, us since the epoch.
        start_us: when the first may be sent.
        readers: how many will read it; what all have read is forgotten.
    """

    def __init__(self, lines: Iterator[tuple[int, str]], start_us: int, readers: int) -> None:
        self._lines, self._start_us, self._readers = lines, start_us, readers
        self._next = next(lines, None)
        self._chunks: dict[int, bytes] = {}
        self._made = 0
        self._at: list[int] = []

    def _make(self, now_us: int) -> None:
        """Make a chunk of what is due."""
        lines: list[str] = []
        while self._next is not None and max(self._next[0], self._start_us) <= now_us:
            lines.append(self._next[1])
            self._next = next(self._lines, None)
            if len(lines) >= CHUNK:
                break
        if lines:
            self._chunks[self._made] = "".join(lines).encode()
            self._made += 1

    async def serve(self, writer: asyncio.StreamWriter) -> None:
        """Send everything, then close."""
        reader, at = len(self._at), 0
        self._at.append(0)
        try:
            while True:
                if at == self._made:
                    self._make(time.time_ns() // 1000)
                if at < self._made:
                    writer.write(self._chunks[at])
                    await writer.drain()
                    at += 1
                    self._passed(reader, at)
                elif self._next is None:
                    break
                else:
                    wait = (max(self._next[0], self._start_us) - time.time_ns() // 1000) / 1e6
                    await asyncio.sleep(max(wait, STEP_S))
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, OSError):
            # Its query has ended.
            self._passed(reader, sys.maxsize)

    def _passed(self, reader: int, at: int) -> None:
        self._at[reader] = at
        if len(self._at) >= self._readers:
            least = min(self._at)
            for number in [one for one in self._chunks if one < least]:
                del self._chunks[number]


async def main(configuration: Path) -> None:
    """Serve until ended."""
    told = json.loads(configuration.read_text("utf-8"))
    start_us, servers = 1000 * told["start_ms"], []
    for one in told["sources"]:
        # All readings, so that one that cannot be a line is told before a query starts.
        made = (
            replayed(one, start_us) if "pace" in one else iter(list(readings(one, told["clock"])))
        )
        stream = Stream(made, start_us, one["readers"])

        async def serve(
            _: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: Stream = stream
        ) -> None:
            await stream.serve(writer)

        servers.append(
            await asyncio.start_server(serve, told["address"], one["port"], backlog=BACKLOG)
        )
    configuration.with_name("ready").touch()
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
