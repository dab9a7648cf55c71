"""Readings of hosts: CPU that others use, lost workers, tuples that sources have.

A shell on every host writes its processes' CPU time every few seconds, over one connection that
stays open, and the tuple counts that sources note (``Orders.java``). So nothing is installed there,
and the readings cost a host next to nothing.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_testbed.host import Host
    from nova_testbed.hosts import Hosts

PERIOD_S = 2.0
# Readings are means over so long, or a little more: when a plan is made, the change counts whole.
WINDOW_S = 5.0
# A reading is outdated after so long.
STALE_S = 3 * PERIOD_S + 1
# Note of a part of a job that was started again (Control.java).
LOST = b" lost"
ARRIVED = re.compile(rb"([0-9]{1,9})\.arrived ([0-9]{1,18}) ([0-9]{1,18})")
# Linux counts CPU time of processes in hundredths of a second.
TICK_S = 0.01
LOOK = f"""
while read -r up idle </proc/uptime; do
  echo "@ $up"; cat /proc/[0-9]*/stat "$ORDERS"/*.arrived "$ORDERS"/*.lost 2>/dev/null; echo .
  sleep {PERIOD_S:g}
done
"""


class Process(NamedTuple):
    """A process at a moment.

    Attributes:
        key: its id and start.
        session: it belongs to.
        used_s: CPU time, s.
    """

    key: tuple[int, int]
    session: int
    used_s: float


@dataclass(frozen=True)
class Processes:
    """A host's processes at a moment.

    Attributes:
        at_s: the host's clock, seconds since it started.
        processes: by the line that describes each.
        arrived: of each source, tuples that were due, and when that was, ms since the epoch.
        lost: jobs of which a part was started again there, without its state.
    """

    at_s: float = 0.0
    processes: Mapping[bytes, Process] = field(default_factory=dict)
    arrived: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    lost: Set[str] = frozenset()

    @classmethod
    def parse(cls, lines: Iterable[bytes], before: Processes | None = None) -> Processes:
        """Parse what `LOOK` writes between two dots.

        Most processes sleep, so their lines equal those of the previous reading and are reused.
        """
        at, processes, arrived, lost = 0.0, {}, {}, set()
        known = {} if before is None else before.processes
        for line in lines:
            process = known.get(line)
            if process is None:
                if line.startswith(b"@ "):
                    at = float(line[2:])
                    continue
                if match := ARRIVED.fullmatch(line):
                    source, count, at_ms = map(int, match.groups())
                    arrived[source] = count, at_ms
                    continue
                if line.endswith(LOST):
                    lost.add(line.removesuffix(LOST).decode())
                    continue
                # A process's name may hold any characters, also brackets and blanks.
                number, _, _ = line.partition(b" ")
                rest = line.rpartition(b") ")[2].split()
                if not (number.isdigit() and len(rest) > 19):
                    continue
                used = (int(rest[11]) + int(rest[12])) * TICK_S
                process = Process((int(number), int(rest[19])), int(rest[3]), used)
            processes[line] = process
        return cls(at, processes, arrived, lost)

    @property
    def sessions(self) -> set[int]:
        """Sessions of all processes."""
        return {one.session for one in self.processes.values()}

    def cores_since(self, before: Processes, own: Iterable[int]) -> float:
        """Mean cores that processes outside the ``own`` sessions have used since ``before``."""
        passed = self.at_s - before.at_s
        if passed <= 0:
            return 0.0
        # A process that has used nothing has the same line in both.
        then = [before.processes[line] for line in before.processes.keys() - self.processes.keys()]
        now = [self.processes[line] for line in self.processes.keys() - before.processes.keys()]
        earlier, sessions = {one.key: one.used_s for one in then}, set(own)
        used = sum(
            one.used_s - earlier.get(one.key, 0.0) for one in now if one.session not in sessions
        )
        return max(0.0, used / passed)


class Rate(NamedTuple):
    """What a source emits.

    Attributes:
        value: tuples/s between its last two notes.
        at_s: of the last one, s since the epoch.
    """

    value: float
    at_s: float


@dataclass
class HostView:
    """The latest state of a host.

    Attributes:
        cores: it may use.
        taken: cores that others than the engine use, a mean over `WINDOW_S`; None while unknown.
        alive: whether the engine's processes run; None while unknown.
        works: whether the job's own processes run, and none was restarted; None while unknown.
        read_at: `time.monotonic` of the last reading.
        rates: of its sources with a new note, by their index in `Sources`.
    """

    cores: float
    taken: float | None = None
    alive: bool | None = None
    works: bool | None = None
    read_at: float = 0.0
    rates: Mapping[int, Rate] = field(default_factory=dict)

    def silent(self, now: float) -> bool:
        """Whether the last reading is outdated."""
        return now - self.read_at > STALE_S

    @property
    def share(self) -> float:
        """The share of the host's cores that is left for the engine."""
        return 1.0 if self.taken is None else max(0.0, 1 - self.taken / self.cores)


@dataclass
class HostWatch:
    """Follows a host's readings.

    Attributes:
        view: the resulting state.
        sessions: of the engine's processes; empty before it has any.
        recent: between the latest readings: s that passed, CPU time of others than the engine, s.
    """

    view: HostView
    sessions: set[int]
    last: Processes | None = None
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    pending: list[bytes] = field(default_factory=list)
    rest: bytes = b""
    arrived: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, data: bytes) -> None:
        """Take more of the shell's output."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if line != b".":
                self.pending.append(line)
                continue
            self._read(Processes.parse(self.pending, self.last))
            self.pending = []

    def _read(self, processes: Processes) -> None:
        view = self.view
        view.alive = bool(self.sessions) and self.sessions <= processes.sessions
        if self.last is not None:
            passed = processes.at_s - self.last.at_s
            self.recent.append((passed, passed * processes.cores_since(self.last, self.sessions)))
            while sum(s for s, _ in self.recent) - self.recent[0][0] >= WINDOW_S:
                self.recent.popleft()
            passed, used = map(sum, zip(*self.recent, strict=True))
            view.taken = used / passed if passed > 0 else 0.0
        view.rates = self._rates(processes.arrived)
        # In this order: another thread calls `works`.
        self.last = processes
        view.read_at = time.monotonic()

    def works(self, jobs: Set[str], workers: Set[int]) -> bool:
        """Whether the processes of jobs run, and none was restarted, by the last reading.

        True before the first reading.

        Args:
            jobs: their ids.
            workers: ids of their processes.
        """
        if self.last is None:
            return True
        running = {one.key[0] for one in self.last.processes.values()} if workers else set()
        return jobs.isdisjoint(self.last.lost) and workers <= running

    def _rates(self, arrived: Mapping[int, tuple[int, int]]) -> dict[int, Rate]:
        """Rates of sources with a new note."""
        rates = {}
        for source, (count, at_ms) in arrived.items():
            count_then, then_ms = self.arrived.get(source, (count, at_ms))
            if at_ms > then_ms:
                rate = 1000 * (count - count_then) / (at_ms - then_ms)
                rates[source] = Rate(rate, at_ms / 1000)
        self.arrived.update(arrived)
        return rates


class HostSensor:
    """Watches hosts until `close`.

    Args:
        hosts: connected.
        sessions: of the engine's processes, by host.
        orders: directory where sources note how many tuples were due.
    """

    def __init__(self, hosts: Hosts, sessions: Mapping[str, set[int]], orders: str) -> None:
        self.hosts = hosts
        self.follow(frozenset(), {})
        self._look = f"ORDERS={shlex.quote(orders)}\n{LOOK}"
        self._watches = {
            host.name: HostWatch(
                HostView(host.spec.cpu or _cores(host), read_at=time.monotonic()),
                set(sessions[host.name]),
            )
            for host in hosts
        }
        self._ended = threading.Event()
        for host in hosts:
            threading.Thread(target=self._watch, args=(host,), daemon=True).start()

    def view(self) -> dict[str, HostView]:
        """The latest state, by host."""
        for name, watch in self._watches.items():
            known = watch.view.read_at > self._since
            watch.view.works = (
                watch.works(self._jobs, self._workers.get(name, set())) if known else None
            )
        return {name: watch.view for name, watch in self._watches.items()}

    def expect(self, host: str, sessions: set[int]) -> None:
        """Set new sessions of the engine's processes on a host."""
        watch = self._watches[host]
        watch.sessions, watch.view.alive = set(sessions), None

    def follow(self, jobs: Set[str], workers: Mapping[str, set[int]]) -> None:
        """Set the running jobs, and their own processes by host."""
        self._jobs, self._workers, self._since = jobs, workers, time.monotonic()

    def close(self) -> None:
        """Stop watching; the shells on hosts end when they write their next line."""
        self._ended.set()

    def _watch(self, host: Host) -> None:
        watch = self._watches[host.name]
        while not self._ended.is_set():
            watch.last, watch.pending, watch.rest = None, [], b""
            # Any fault of a host shows as its silence.
            with suppress(NovaError, OSError, EOFError, _EndedError):
                host.stream(self._look, None, self._sink(watch), None)
            self._ended.wait(PERIOD_S)

    def _sink(self, watch: HostWatch) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            if self._ended.is_set():
                raise _EndedError
            watch.take(data)

        return take


class _EndedError(Exception):
    """Leaves a host's stream."""


def _cores(host: Host) -> float:
    return float(host.run("nproc").stdout)
