"""Takes results from NebulaStream's file sinks as they come, and writes result records.

``python3 result_collector.py CONFIGURATION``: it runs on sinks' hosts, where only the standard
library is. Each query writes CSV into a pipe of its own, so that the time of arrival is known.
Records are those of `nova_engines.results`. The configuration is a JSON document.
"""

from __future__ import annotations

import csv
import json
import math
import os
import selectors
import struct
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

PAIR = struct.Struct("<2i2q2i4q2d")
ROW = struct.Struct("<2i6q")
TYPES = {"int": "q", "float": "d", "text": "q"}
READ_BYTES = 1 << 20


class Sink:
    """A sink of the flow: one file, from all queries that write to it."""

    def __init__(self, told: dict[str, Any], clock: list[float]) -> None:
        self.path = Path(told["file"])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.types, self.clock = told["types"], clock
        self.columns = struct.Struct("<" + "".join(TYPES[kind] for kind in self.types))
        self.file: BinaryIO = self.path.open("wb")
        texts = f"{self.path}.texts" if "text" in self.types else os.devnull
        self.texts: BinaryIO = Path(texts).open("wb")  # noqa: SIM115 -- closed with the last result
        self.known: dict[str, int] = {}
        self.size = 0
        Path(f"{self.path}.fields").write_text(json.dumps(told["fields"]))
        Path(f"{self.path}.end").unlink(missing_ok=True)
        self.open = len(told["pipes"])
        self.written = 0

    def take(self, pipe: dict[str, Any], rows: list[list[str]], now_us: int) -> None:
        """Write what has come from a pipe."""
        if self.types or "instance" not in pipe:
            records = [self._row(row, now_us) for row in rows]
        else:
            head = (pipe["instance"], 0)
            sources = (pipe["left"], pipe["right"])
            records = []
            for row in rows:
                begin, a, ea, va, rest_a, b, eb, vb, rest_b = row
                emitted = (int(ea), int(eb))
                values = (_float(va, rest_a), _float(vb, rest_b))
                pair = (int(a), int(b))
                records.append(
                    PAIR.pack(*head, int(begin), now_us, *sources, *pair, *emitted, *values)
                )
        # Records name what is in it.
        self.texts.flush()
        self.file.write(b"".join(records))
        self.file.flush()
        self.written += len(records)

    def _row(self, row: list[str], now_us: int) -> bytes:
        texts = iter(row[1:])
        fields: list[int | float] = []
        for kind in self.types:
            if kind == "text":
                fields.append(self._text(next(texts)))
            else:
                fields.append(int(next(texts)) if kind == "int" else _float(*islice(texts, 2)))
        times = [int(one) for one in texts]
        oldest, newest = min(times[::2]), max(times[1::2])
        spans = (oldest, self._emitted(oldest, now_us), newest, self._emitted(newest, now_us))
        return ROW.pack(-1, 0, int(row[0]), now_us, *spans) + self.columns.pack(*fields)

    def _text(self, text: str) -> int:
        if text not in self.known:
            encoded = text.encode()
            self.known[text] = self.size
            self.size += self.texts.write(struct.pack("<i", len(encoded)) + encoded)
        return self.known[text]

    def _emitted(self, event_ms: int, now_us: int) -> int:
        first_ms, start_ms, speed = self.clock
        if speed == 0:
            return now_us
        return 1000 * int(start_ms + math.ceil((event_ms - first_ms) / speed))

    def ended(self) -> None:
        """A query has ended; after the last, say how many results there are."""
        self.open -= 1
        if self.open == 0:
            self.file.close()
            self.texts.close()
            Path(f"{self.path}.end").write_text(f"{self.written}\n")


def _float(whole: str, rest: str) -> float:
    """A float from its millionths, and the rest in millionths."""
    return (int(whole) + float(rest)) / 1e6


def main(configuration: Path) -> None:
    """Collect until all queries have ended."""
    told = json.loads(configuration.read_text("utf-8"))
    selector = selectors.DefaultSelector()
    for one in told["sinks"]:
        sink = Sink(one, told["clock"])
        for pipe in one["pipes"]:
            Path(pipe["path"]).parent.mkdir(parents=True, exist_ok=True)
            Path(pipe["path"]).unlink(missing_ok=True)
            os.mkfifo(pipe["path"])
            reading = os.open(pipe["path"], os.O_RDONLY | os.O_NONBLOCK)
            selector.register(reading, selectors.EVENT_READ, [sink, pipe, b""])
    configuration.with_name("ready").touch()
    left = sum(len(one["pipes"]) for one in told["sinks"])
    while left:
        for key, _ in selector.select():
            sink, pipe, rest = key.data
            data = os.read(key.fd, READ_BYTES)
            now_us = time.time_ns() // 1000
            if not data:
                selector.unregister(key.fd)
                os.close(key.fd)
                sink.ended()
                left -= 1
                continue
            lines, _, key.data[2] = (rest + data).rpartition(b"\n")
            rows = list(csv.reader(lines.decode().splitlines())) if lines else []
            sink.take(pipe, rows, now_us)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
