"""A host's worker of the tiny engine: runs the operators of its node; needs Python alone.

``worker.py NODE ADDRESS DIRECTORY`` listens at ADDRESS for tuples from other hosts and runs what
``DIRECTORY/job.json`` says, until ``DIRECTORY/end`` is there.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

PORT = 9311
STEP, SHIFT, SCALE = 0x9E3779B97F4A7C15, 11, 2.0**53
# See `nova_engines.results`: a pair's fields, which the job names.
RECORD = struct.Struct("<2i2q2i4q2d")
FOR_EVER = 1 << 62
# A tuple: source, sequence number, event time in ms, emission in us, value.
Row = list[Any]


class Operator:
    """One operator of the flow, on this host."""

    def __init__(self, job: Job, facts: dict[str, Any]) -> None:
        self.job, self.facts, self.kind = job, facts, facts["kind"]
        inputs = [(name, 0) for name in facts["inputs"]] + [(name, 1) for name in facts["right"]]
        # How far, in ms of event time, each input has come.
        self.marks = dict.fromkeys(inputs, 0)
        self.mark = self.received = self.sent = 0
        # Of a join: tuples by window, side and key.
        self.windows: dict[int, list[dict[int, list[Row]]]] = {}

    async def take(self, producer: str, side: int, rows: list[Row], mark: int) -> None:
        """Work on what has come from an operator, which will send nothing before ``mark``."""
        self.received += len(rows)
        self.marks[producer, side] = mark
        reached = min(self.marks.values())
        if self.kind == "join":
            for row in rows:
                self._keep(row, side)
            rows = [result for begin in self._closed(reached) for result in self._join(begin)]
        elif self.kind == "sink":
            self.job.write(rows)
        elif self.facts["low"]:
            rows = [row for row in rows if self._passes(row)]
        if rows or reached > self.mark:
            self.mark = reached
            await self.job.emit(self, rows, reached)

    def _passes(self, row: Row) -> bool:
        """Whether a tuple is of the partitions that pass: the rule ``sequence-share``."""
        u = (row[1] * STEP % 2**64 >> SHIFT) / SCALE
        parts = zip(self.facts["low"], self.facts["high"], strict=True)
        return any(low <= u < high for low, high in parts)

    def _keep(self, row: Row, side: int) -> None:
        keys, every = self.facts["match"]
        key = row[1] % keys
        if key % every == 0:
            begin = row[2] - row[2] % self.facts["window"][0]
            window = self.windows.setdefault(begin, [defaultdict(list), defaultdict(list)])
            window[side][key].append(row)

    def _closed(self, reached: int) -> list[int]:
        """Windows that nothing more can come for."""
        length = self.facts["window"][0]
        return [begin for begin in sorted(self.windows) if begin + length <= reached]

    def _join(self, begin: int) -> list[Row]:
        left, right = self.windows.pop(begin)
        return [
            [self.facts["number"], 0, begin, a[0], b[0], a[1], b[1], a[3], b[3], a[4], b[4]]
            for key, rows in left.items()
            for a in rows
            for b in right.get(key, ())
        ]


class Job:
    """What runs on this host of one job."""

    def __init__(self, node: str, directory: Path, job: dict[str, Any]) -> None:
        self.node, self.directory = node, directory
        self.sources, self.addresses, self.results = job["sources"], job["addresses"], job["file"]
        self.fields = job["fields"]
        every = job["flow"]["operators"]
        joins = (one for one in every if one["kind"] == "join")
        numbers = {one["name"]: number for number, one in enumerate(joins)}
        for one in every:
            one["number"] = numbers.get(one["name"])
        self.here = {one["name"]: Operator(self, one) for one in every if one["node"] == node}
        self.consumers: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
        for one in every:
            for side, names in enumerate((one["inputs"], one["right"])):
                for name in names:
                    self.consumers[name].append((one["node"], one["name"], side))
        self.streams: dict[str, asyncio.StreamWriter] = {}
        self.written = 0

    async def emit(self, operator: Operator, rows: list[Row], mark: int) -> None:
        """Hand rows on to every consumer, here or on another host."""
        operator.sent += len(rows)
        name = operator.facts["name"]
        for node, consumer, side in self.consumers[name]:
            if node == self.node:
                await self.here[consumer].take(name, side, rows, mark)
            else:
                stream = await self._stream(node)
                message = [self.sources["start_ms"], consumer, name, side, rows, mark]
                stream.write(json.dumps(message).encode() + b"\n")
                await stream.drain()
        if operator.kind == "sink" and mark == FOR_EVER:
            Path(f"{self.results}.end").write_text(f"{self.written}\n")

    async def _stream(self, node: str) -> asyncio.StreamWriter:
        while node not in self.streams:
            try:
                _, self.streams[node] = await asyncio.open_connection(self.addresses[node], PORT)
            except OSError:
                await asyncio.sleep(0.05)
        return self.streams[node]

    def write(self, rows: list[Row]) -> None:
        """Append results to the file, with the time of their arrival."""
        now = time.time_ns() // 1000
        with Path(self.results).open("ab") as file:
            for row in rows:
                file.write(RECORD.pack(*row[:3], now, *row[3:]))
        self.written += len(rows)

    async def source(self, operator: Operator) -> None:
        """Emit a source's tuples when they are due."""
        streams, start = self.sources["sources"], self.sources["start_ms"]
        number = next(
            i for i, one in enumerate(streams) if one["source"] == operator.facts["source"]
        )
        stream, k = streams[number], 0
        count, values = self.sources["count"] or FOR_EVER, stream["values"]

        def due_us(k: int) -> int:
            return int(start * 1000 + k * 1e6 // stream["rate"])

        while k < count:
            rows, now = [], time.time_ns() // 1000
            while k < count and due_us(k) <= now:
                rows.append([number, k, due_us(k) // 1000, due_us(k), values[k % len(values)]])
                k += 1
            if rows:
                await self.emit(operator, rows, due_us(k) // 1000)
            await asyncio.sleep(self.sources["watermark_ms"] / 1000)
        await self.emit(operator, [], FOR_EVER)

    async def run(self) -> None:
        """Run until the file ``end`` is there; say now and then what operators have done."""
        if any(one.kind == "sink" for one in self.here.values()):
            Path(self.results).parent.mkdir(parents=True, exist_ok=True)
            Path(self.results).write_bytes(b"")
            Path(f"{self.results}.fields").write_text(json.dumps(self.fields))
            Path(f"{self.results}.end").unlink(missing_ok=True)
        tasks = [
            asyncio.create_task(self.source(one))
            for one in self.here.values()
            if one.kind == "source"
        ]
        try:
            while not (self.directory / "end").exists():
                counts = {name: [one.received, one.sent] for name, one in self.here.items()}
                part = self.directory / "state.part"
                part.write_text(json.dumps(counts))
                part.replace(self.directory / "state.json")
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.2)
        finally:
            for task in tasks:
                task.cancel()
            for stream in self.streams.values():
                stream.close()


async def main(node: str, address: str, directory: Path) -> None:
    """Run one job after another."""
    running: list[Job] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            start, consumer, producer, side, rows, mark = json.loads(line)
            # The job may not have come to this host yet, or have ended here already.
            while not running or running[0].sources["start_ms"] < start:
                await asyncio.sleep(0.02)
            if running[0].sources["start_ms"] == start:
                await running[0].here[consumer].take(producer, side, rows, mark)
        writer.close()

    directory.mkdir(parents=True, exist_ok=True)
    server = await asyncio.start_server(serve, address, PORT, limit=1 << 24)
    (directory / "ready").touch()
    async with server:
        while True:
            file = directory / "job.json"
            if file.exists() and not (directory / "end").exists():
                running.append(Job(node, directory, json.loads(file.read_text())))
                await running[0].run()
                running.clear()
                (directory / "state.json").unlink(missing_ok=True)
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
