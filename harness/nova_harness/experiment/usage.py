"""Hosts' use of CPU and memory by second: virtual ones read from outside, real ones on the host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from nova_testbed.hosts import Hosts
    from nova_testbed.inventory import Inventory
    from nova_testbed.jobs import BackgroundJob

EVERY_SECONDS = 1.0
JOB = "nova_usage"
# Name of the processes of artificial load.
LOAD = "stress-ng"
# One line per second: time, ticks of CPU by kind, memory total and available in kB, ticks of load.
NOTE = r"""while sleep 1; do
  echo $(date +%s.%N) $(head -n 1 /proc/stat) \
    $(awk '/^(MemTotal|MemAvailable):/ {print $2}' /proc/meminfo) \
    $(cat /proc/[0-9]*/stat 2>/dev/null |
      awk '/^[0-9]+ \(stress-ng/ {sub(/^.*\) /, ""); s += $12 + $13} END {print s + 0}')
done"""
# Words of such a line: the time, "cpu" with ten kinds, memory twice, load.
NOTED_WORDS = 15
TICKS_PER_SECOND = 100.0


@dataclass
class Reading:
    """Counters of a host at a moment.

    Attributes:
        time: s since the epoch.
        cpu_seconds: used so far.
        throttled_seconds: throttled by the CPU limit so far.
        memory_bytes: in use.
        load_seconds: CPU time of artificial load so far.
    """

    time: float
    cpu_seconds: float
    throttled_seconds: float
    memory_bytes: int
    load_seconds: float = 0.0


Series = dict[str, list[Reading]]

COLUMNS = ("t_s", "host", "cpu_cores", "throttled_share", "memory_bytes", "load_cores")


class UsageRecorder(Protocol):
    """Records the resources that hosts use between `start` and `stop`."""

    series: Series

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; then `series` is complete."""


@dataclass
class RackUsage:
    """Counters of a virtual rack's control groups, read from outside the hosts.

    Attributes:
        inventory: of the rack.
        loaded: hosts whose load is counted separately.
        series: readings by host.
    """

    inventory: Inventory
    loaded: Collection[str] = ()
    series: Series = field(default_factory=dict)

    def __post_init__(self) -> None:
        from nova_testbed.rack.cgroups import detect
        from nova_testbed.rack.state import StateDirectory, default_state_root

        record = StateDirectory(default_state_root() / self.inventory.name).read()
        self._groups = detect()
        self._prefix = record.names.prefix if record is not None else ""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self) -> dict[str, Reading]:
        """Counters of all hosts now."""
        if self._groups is None or not self._prefix:
            return {}
        readings = {}
        for host in self.inventory.hosts:
            usage = self._groups.usage(self._prefix, host.name)
            readings[host.name] = Reading(
                time.time(),
                usage.cpu_seconds or 0.0,
                usage.throttled_seconds or 0.0,
                usage.memory_bytes or 0,
                self._load_seconds(host.name) if host.name in self.loaded else 0.0,
            )
        return readings

    def _load_seconds(self, host: str) -> float:
        """CPU time of artificial load on a host, s."""
        assert self._groups is not None
        total = 0.0
        for process in self._groups.processes(self._prefix, host):
            try:
                text = Path(f"/proc/{process}/stat").read_text()
            except OSError:
                continue  # it has ended
            begin, _, rest = text.partition("(")[2].rpartition(")")
            if begin.startswith(LOAD):
                words = rest.split()
                total += (int(words[11]) + int(words[12])) / TICKS_PER_SECOND
        return total

    def start(self) -> None:
        """Read once a second from now on."""
        self.series = {host.name: [] for host in self.inventory.hosts}
        self._end.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            for name, reading in self.read().items():
                self.series[name].append(reading)
            due += EVERY_SECONDS
            if self._end.wait(max(0.0, due - time.monotonic())):
                return

    def stop(self) -> None:
        """Stop reading."""
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None


@dataclass
class NotedUsage:
    """Counters that real hosts record in the background; fetched at the end.

    Attributes:
        hosts: connected.
        series: readings by host, after `stop`.
    """

    hosts: Hosts
    series: Series = field(default_factory=dict)
    _jobs: dict[str, BackgroundJob] = field(default_factory=dict)

    def start(self) -> None:
        """Begin on all hosts."""
        self.series = {}
        self._jobs = self.hosts.map(lambda host: host.start(NOTE, name=JOB))

    def stop(self) -> None:
        """End on all hosts, and fetch."""
        jobs, self._jobs = self._jobs, {}
        texts = self.hosts.map(lambda host: jobs[host.name].output(), list(jobs))
        self.hosts.map(lambda host: jobs[host.name].end(), list(jobs))
        self.series = {name: noted(text) for name, text in texts.items()}


def noted(text: str) -> list[Reading]:
    """Readings from a host's notes; incomplete lines do not count."""
    readings = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < NOTED_WORDS or words[1] != "cpu":
            continue
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = [int(word) for word in words[2:10]]
        busy = sum(ticks) - ticks[3] - ticks[4]
        total, available, load = (int(word) for word in words[-3:])
        readings.append(
            Reading(
                float(words[0]),
                busy / TICKS_PER_SECOND,
                0.0,
                1024 * (total - available),
                load / TICKS_PER_SECOND,
            )
        )
    return readings


def usage_table(series: Series, origin: float) -> pa.Table:
    """Resources that hosts used between readings.

    Args:
        series: readings by host.
        origin: s since the epoch that ``t_s`` counts from.

    Returns:
        Columns t_s (end of the interval), host, cpu_cores, throttled_share, memory_bytes,
        load_cores (the part of cpu_cores that artificial load used).
    """
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for host, readings in series.items():
        for before, after in pairwise(readings):
            seconds = after.time - before.time
            if seconds <= 0:
                continue
            columns["t_s"].append(after.time - origin)
            columns["host"].append(host)
            columns["cpu_cores"].append((after.cpu_seconds - before.cpu_seconds) / seconds)
            columns["throttled_share"].append(
                (after.throttled_seconds - before.throttled_seconds) / seconds
            )
            columns["memory_bytes"].append(after.memory_bytes)
            columns["load_cores"].append((after.load_seconds - before.load_seconds) / seconds)
    types = [pa.float64(), pa.string(), pa.float64(), pa.float64(), pa.int64(), pa.float64()]
    return pa.table(
        {
            name: pa.array(values, t)
            for (name, values), t in zip(columns.items(), types, strict=True)
        }
    )


def mean_cores(series: Series, begin: float, end: float) -> dict[str, float]:
    """Mean cores that each host used between two times, s since the epoch, by its readings."""
    return _means(series, begin, end, lambda reading: reading.cpu_seconds)


def engine_cores(series: Series, begin: float, end: float) -> dict[str, float]:
    """The same without artificial load."""
    return _means(series, begin, end, lambda reading: reading.cpu_seconds - reading.load_seconds)


def _means(
    series: Series, begin: float, end: float, value: Callable[[Reading], float]
) -> dict[str, float]:
    means = {}
    for host, readings in series.items():
        inside = [r for r in readings if begin - EVERY_SECONDS / 2 <= r.time <= end + EVERY_SECONDS]
        if len(inside) >= 2 and inside[-1].time > inside[0].time:
            used = value(inside[-1]) - value(inside[0])
            means[host] = used / (inside[-1].time - inside[0].time)
    return means
