"""How fast `nova serve` is: one client sends random events at a fixed rate, and times the answers.

The client times each event from when it was due, so that the latency of a slow server includes its
backlog. A second connection follows the deltas as a server-sent stream; deltas that do not arrive
there are lost. Before that, the client uploads the problem as tables, and the service places it:
that is what pytest-benchmark times.
"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.io.files import write_problem
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.placement.live import Event, LivePlacement
from nova_core.strategies import create
from nova_harness.bench.base import ONE_THREAD
from nova_harness.bench.live import live_problem
from nova_workloads.live_events import RandomEvents


class Case(NamedTuple):
    """Nodes of the generated topology, events/s that the client sends, and for how many s."""

    nodes: int
    rate: float
    seconds: float


CASES, SMALL = (Case(10_000, 1000, 60),), Case(200, 100, 1)
NOVA = (sys.executable, "-P", "-c", "from nova_core.cli import main; main()")
# Connections of the client; events may overtake each other only where all may happen in any order.
CONNECTIONS = 8
WARM_UP = 200
# How the problem is placed, here and by the service.
UNREFINED = {"refine": False}
_START = 120.0


def test_events(benchmark: BenchmarkFixture, case: Case, tmp_path: Path) -> None:
    """Times in seconds, memory in bytes; no event may fail, and no delta be lost."""
    problem = live_problem(case.nodes, seed=0)
    count = WARM_UP + round(case.rate * case.seconds)
    events, library = _events(problem, create("nova", **UNREFINED).place(problem), count)
    with service(tmp_path / "data") as (url, process):
        with _watched(process.pid) as memory:
            benchmark.pedantic(upload, (url, tmp_path / "problem", problem))
        client = _Client(url, [msgspec.json.encode(event) for event in events])
        # The client shares the machine: its garbage collections, which would scan all drawn
        # events, must not disturb the measurement.
        gc.collect()
        gc.freeze()
        try:
            uvloop.run(client.warm_up())
            used = _processor_time(process.pid)
            uvloop.run(client.send(case.rate))
            used = _processor_time(process.pid) - used
        finally:
            gc.unfreeze()
    sent, took = len(client.due), client.ended - client.began
    times = (client.due, client.sent_at, client.answered_at)
    due, sent_at, answered_at = (np.array(one) for one in times)
    waited = answered_at - due
    benchmark.extra_info |= {
        "joins": len(problem.matrix),
        "memory": max(memory),
        "answered": client.answered,
        "refused": client.refused,
        "rate": sent / took,
        "median": float(np.median(waited)),
        "p99": float(np.quantile(waited, 0.99)),
        # The client's own lateness left out.
        "p99_sent": float(np.quantile(answered_at - sent_at, 0.99)),
        "longest": float(waited.max()),
        # Processor time of the server per event, of the same events without a service, and the
        # share of one core that the server took.
        "cpu": used / sent,
        "library": library,
        "busy": used / took,
    }
    assert sent == count - WARM_UP == client.answered + client.refused
    assert (client.failed, client.lost) == (0, 0)
    assert np.median(waited) > 0 and used > 0 and max(memory) > 2**26


def _events(problem: Problem, plan: Plan, count: int) -> tuple[list[Event], float]:
    """Events that a placement can apply in turn, and processor time of one, seconds."""
    live = LivePlacement(problem, plan)
    draw = RandomEvents(problem, 0)
    events: list[Event] = []
    used = 0.0
    while len(events) < count:
        event = draw.next()
        begin = time.thread_time()
        try:
            live.apply(event)
        except (InfeasibleError, ProblemError):
            continue
        used += time.thread_time() - begin
        draw.happened(event)
        events.append(event)
    return events, used / count


@contextmanager
def service(
    data: Path, nova: Sequence[str | Path] = NOVA
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`nova serve` on a free port, and on a core of its own where there are two; its URL."""
    cores = os.sched_getaffinity(0)
    own = {max(cores)} if len(cores) > 1 else set()
    # A process inherits the cores of its parent.
    os.sched_setaffinity(0, own or cores)
    with subprocess.Popen(
        [*nova, "serve", data, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD},
    ) as process:
        try:
            os.sched_setaffinity(0, cores - own)
            assert process.stdout is not None
            yield msgspec.json.decode(process.stdout.readline())["url"], process
        finally:
            os.sched_setaffinity(0, cores)
            process.send_signal(signal.SIGTERM)
            process.wait()


def upload(url: str, tables: Path, problem: Problem) -> None:
    """Let the service place a problem, under the name `bench`."""
    write_problem(problem, tables)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in tables.iterdir():
            tar.add(path, path.name)
    uploaded = _post(f"{url}/problems", archive.getvalue(), "application/x-tar")
    request = {"name": "bench", "problem": uploaded["id"], "parameters": UNREFINED}
    _post(f"{url}/placements", msgspec.json.encode(request))


@contextmanager
def _watched(pid: int) -> Iterator[list[int]]:
    """Bytes that a process and its children have in memory, now and every tenth of a second."""
    sizes, ended = [_resident(pid)], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            sizes.append(_resident(pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield sizes
    finally:
        ended.set()
        watching.join()


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        threads = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for thread in threads for child in thread.read_text().split()]
    except OSError:  # it has just ended
        return 0
    return pages * os.sysconf("SC_PAGESIZE") + sum(map(_resident, children))


def _post(url: str, content: bytes, kind: str = "application/json") -> dict[str, Any]:
    """The answer to a document."""
    request = urllib.request.Request(url, content, {"Content-Type": kind})
    # The service is on this machine: use no proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_START) as answer:
        return msgspec.json.decode(answer.read(), type=dict[str, Any])


class _Client:
    """Sends events over several connections and follows the deltas.

    Attributes:
        due: when each event was to be sent.
        sent_at: when it was sent.
        answered_at: when it was answered.
        began: when the first was due.
        ended: when the last was answered.
        answered: events with a delta.
        refused: events with a reason.
        failed: events with anything else.
        lost: deltas that did not arrive on the stream.
    """

    def __init__(self, url: str, events: list[bytes]) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        head = (
            b"POST /placements/bench/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        self._requests = [head % len(text) + text for text in events]
        self.due: list[float] = []
        self.sent_at: list[float] = []
        self.answered_at: list[float] = []
        self.began = self.ended = 0.0
        self.answered = self.refused = self.failed = self.lost = 0

    async def warm_up(self) -> None:
        """Send the first events, one after the other, which do not count."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        for request in self._requests[:WARM_UP]:
            writer.write(request)
            await _answer(reader)
        writer.close()

    async def send(self, rate: float) -> None:
        """Send the rest at a rate, and follow."""
        requests = self._requests[WARM_UP:]
        self.due = [0.0] * len(requests)
        self.sent_at, self.answered_at = self.due.copy(), self.due.copy()
        ids: list[int] = []
        stream = asyncio.create_task(self._follow(ids))
        await asyncio.sleep(0.2)
        queue: asyncio.Queue[int] = asyncio.Queue()
        links = [asyncio.create_task(self._link(queue, requests)) for _ in range(CONNECTIONS)]
        self.began = time.perf_counter()
        for number in range(len(requests)):
            self.due[number] = self.began + number / rate
            wait = self.due[number] - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            queue.put_nowait(number)
        await queue.join()
        self.ended = time.perf_counter()
        for link in links:
            link.cancel()
        deadline = time.perf_counter() + 10
        while len(ids) < self.answered and time.perf_counter() < deadline:
            await asyncio.sleep(0.05)
        stream.cancel()
        expected = set(range(WARM_UP + 1, WARM_UP + 1 + self.answered))
        self.lost = len(expected - set(ids)) + len(ids) - len(set(ids))

    async def _link(self, queue: asyncio.Queue[int], requests: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while True:
            number = await queue.get()
            self.sent_at[number] = time.perf_counter()
            writer.write(requests[number])
            status = await _answer(reader)
            self.answered_at[number] = time.perf_counter()
            self.answered += status == 200
            self.refused += status == 409
            self.failed += status not in (200, 409)
            queue.task_done()

    async def _follow(self, ids: list[int]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(b"GET /placements/bench/deltas/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        rest = b""
        while text := await reader.read(2**16):
            *lines, rest = (rest + text).split(b"\n")
            ids += [int(line[4:]) for line in lines if line.startswith(b"id: ")]


async def _answer(reader: asyncio.StreamReader) -> int:
    """Read one response; its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head[9:12])


def _processor_time(pid: int) -> float:
    """User and system time of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
