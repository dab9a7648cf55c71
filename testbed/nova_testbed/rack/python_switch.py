"""The switch of `switch.c` in Python, for machines without a C compiler.

The same arguments, configuration, socket and behaviour; `switch.c` explains them. It runs as a
program of its own and imports nothing of Nova's, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import heapq
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from time import monotonic_ns
from types import FrameType

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
PR_SET_TIMERSLACK = 29
BATCH = 32
MOST_BYTES = 256 << 20
MOST_LEAD = 150_000

libc = ctypes.CDLL(None, use_errno=True)


class Line:
    """One direction of a link; times in ns."""

    __slots__ = ("busy", "delay", "jitter", "last", "loss", "ns_per_byte", "queue")

    def __init__(
        self, delay_us: float, rate: float, queue_bytes: float, jitter_us: float, loss_ppm: float
    ) -> None:
        self.delay = int(delay_us * 1000)
        self.ns_per_byte = 8e9 / rate if rate > 0 else 0.0
        self.queue = int(queue_bytes * self.ns_per_byte)
        self.jitter = int(jitter_us * 1000)
        self.loss = loss_ppm / 1e6
        self.busy = self.last = 0


class Config:
    """Hosts (index: namespace, address) and lines (from, to)."""

    def __init__(self, path: str) -> None:
        self.hosts: dict[int, tuple[str, bytes]] = {}
        self.lines: dict[tuple[int, int], Line] = {}
        try:
            content = Path(path).read_text()
        except OSError as error:
            raise SystemExit(f"{path}: {error.strerror}") from None
        for number, text in enumerate(content.splitlines(), 1):
            words = text.split()
            if not words or text.startswith("#"):
                continue
            try:
                if words[0] == "host":
                    _, index, namespace, address = words
                    self.hosts[int(index)] = namespace, socket.inet_aton(address)
                elif words[0] == "link":
                    a, b, *values = words[1:]
                    self.lines[int(a), int(b)] = Line(*map(float, values))
                else:
                    raise ValueError
            except (TypeError, ValueError, OSError):
                raise SystemExit(f"{path}:{number}: neither a host nor a link: {text}") from None


class Switch:
    """Takes packets from every device and delivers them when they are due."""

    def __init__(self, config: str, control: str, priority: int) -> None:
        self.path = config
        self.control_path = control
        self.counters = dict.fromkeys(
            (
                "received",
                "sent",
                "bytes",
                "dropped_queue",
                "dropped_loss",
                "dropped_unroutable",
                "dropped_write",
            ),
            0,
        )
        self.late_sum = self.late_max = self.late_count = self.lead = self.in_flight = 0
        self.ended = False
        self.heap: list[tuple[int, int, int, bytes]] = []
        read = Config(config)
        self.index_of = {address: index for index, (_, address) in read.hosts.items()}
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.tun = {index: open_tun(namespace) for index, (namespace, _) in read.hosts.items()}
        enter(home, "the first namespace")
        os.close(home)
        self.routes: dict[tuple[int, bytes], tuple[int, Line]] = {}
        self.lines: dict[tuple[int, int], Line] = {}
        self.use(read)
        libc.prctl(PR_SET_TIMERSLACK, 1)
        self.realtime = False
        if priority:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
                self.realtime = True
        Path(control).unlink(missing_ok=True)
        os.umask(0o177)
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.control.setblocking(False)
        self.control.bind(control)

    def use(self, config: Config) -> None:
        """Put lines in force; packets under way stay ahead of later ones."""
        for pair, line in config.lines.items():
            if pair in self.lines:
                line.busy, line.last = self.lines[pair].busy, self.lines[pair].last
        self.lines = config.lines
        self.routes = {
            (self.tun[a], address): (self.tun[b], config.lines.get((a, b)) or Line(0, 0, 0, 0, 0))
            for a in self.tun
            for address, b in self.index_of.items()
            if a != b
        }

    def answer(self) -> None:
        """Obey an order."""
        try:
            order, sender = self.control.recvfrom(16)
        except BlockingIOError:
            return
        reply = "ok"
        if order == b"reload":
            try:
                self.use(Config(self.path))
            except SystemExit as error:
                reply = str(error)
        elif order == b"stats":
            usage = resource.getrusage(resource.RUSAGE_SELF)
            reply = json.dumps(
                {
                    "kind": "python",
                    "pid": os.getpid(),
                    "realtime": self.realtime,
                    **self.counters,
                    "waiting": len(self.heap),
                    "late_mean_us": self.late_sum / 1e3 / max(self.late_count, 1),
                    "late_max_us": self.late_max / 1e3,
                    "lead_us": self.lead / 1e3,
                    "cpu_seconds": usage.ru_utime + usage.ru_stime,
                }
            )
            self.late_sum = self.late_max = self.late_count = 0
        else:
            reply = "neither reload nor stats"
        with contextlib.suppress(OSError):
            self.control.sendto(reply.encode(), sender)

    def run(self) -> None:
        """Switch until told to end."""
        heap, counters, pop = self.heap, self.counters, heapq.heappop
        watched: list[int | socket.socket] = [*self.tun.values(), self.control]
        gc.disable()
        while not self.ended:
            now = monotonic_ns()
            while heap and heap[0][0] - self.lead <= now:
                due, _, to, data = pop(heap)
                late = now - due
                self.late_sum += late
                self.late_count += 1
                self.late_max = max(self.late_max, late)
                self.in_flight -= len(data)
                try:
                    os.write(to, data)
                    counters["sent"] += 1
                except OSError:
                    counters["dropped_write"] += 1
                now = monotonic_ns()
            # select takes microseconds, poll and epoll whole milliseconds.
            target = heap[0][0] - self.lead if heap else now + 1_000_000_000
            ready, _, _ = select.select(watched, (), (), max(0, target - monotonic_ns()) / 1e9)
            if not ready and heap:
                error = min(monotonic_ns() - target, MOST_LEAD)
                self.lead = max(self.lead + (error - self.lead) // 16, 0)
            for source in ready:
                if isinstance(source, int):
                    if not self.drain(source):
                        watched.remove(source)
                else:
                    self.answer()
        Path(self.control_path).unlink(missing_ok=True)

    def drain(self, source: int) -> bool:
        """Take what a device has; False when the device is gone."""
        for _ in range(BATCH):
            try:
                data = os.read(source, 65536)
            except BlockingIOError:
                return True
            except OSError as error:
                say(f"data0: {error.strerror}")
                return False
            self.take(source, data)
        return True

    def take(self, source: int, data: bytes) -> None:
        """Put one packet on its way."""
        counters = self.counters
        counters["received"] += 1
        counters["bytes"] += len(data)
        route = self.routes.get((source, data[16:20])) if data[0] >> 4 == 4 else None
        if route is None:
            counters["dropped_unroutable"] += 1
            return
        to, line = route
        if line.loss and random.random() < line.loss:
            counters["dropped_loss"] += 1
            return
        start = now = monotonic_ns()
        if line.ns_per_byte:
            free_at = max(line.busy, now)
            if free_at - now > line.queue:
                counters["dropped_queue"] += 1
                return
            start = line.busy = free_at + int(len(data) * line.ns_per_byte)
        if self.in_flight + len(data) > MOST_BYTES:
            counters["dropped_queue"] += 1
            return
        due = start + line.delay - self.lead
        if line.jitter:
            due += int(random.uniform(-line.jitter, line.jitter))
        line.last = due = max(due, line.last)
        self.in_flight += len(data)
        heapq.heappush(self.heap, (due, counters["received"], to, data))

    def end(self, signal_number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM."""
        self.ended = True


def enter(namespace: int, name: str) -> None:
    """Change this thread's network namespace."""
    if libc.setns(namespace, CLONE_NEWNET):
        raise SystemExit(f"{name}: {os.strerror(ctypes.get_errno())}")


def open_tun(namespace: str) -> int:
    """A device made while in a namespace belongs there."""
    path = f"/run/netns/{namespace}"
    try:
        descriptor = os.open(path, os.O_RDONLY)
        enter(descriptor, path)
        os.close(descriptor)
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"data0", IFF_TUN_NO_PI))
    except OSError as error:
        raise SystemExit(f"data0 in {namespace}: {error.strerror}") from error
    return tun


def say(message: str) -> None:
    """Write a line to the log."""
    sys.stderr.write(f"{message}\n")


def main() -> None:
    """``python_switch.py CONFIG SOCKET PRIORITY``."""
    if len(sys.argv) != 4:
        raise SystemExit(f"usage: {sys.argv[0]} CONFIG SOCKET PRIORITY")
    switch = Switch(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    signal.signal(signal.SIGTERM, switch.end)
    signal.signal(signal.SIGINT, switch.end)
    switch.run()


if __name__ == "__main__":
    main()
