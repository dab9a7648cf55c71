"""Live figures of a run: results per second, their latency, the busiest host."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_engines.results import FIELDS, ResultRecords, dtype, parse_fields
from nova_harness.control.arrivals import NEWEST, newest

if TYPE_CHECKING:
    from nova_harness.engines.deployment import EngineDeployment

# Real hosts are read less often, as each look costs them CPU.
VIRTUAL_SECONDS, REAL_SECONDS = 1.0, 5.0


@dataclass(frozen=True)
class Figures:
    """Figures of the last seconds.

    Attributes:
        results_per_s: arriving at the sink.
        latency_ms: median of the last results, arrival minus the later emission; None without any.
        busiest: host with the highest share of its CPU limit in use, and that share; None where
            unknown.
    """

    results_per_s: float
    latency_ms: float | None
    busiest: tuple[str, float] | None

    def __str__(self) -> str:
        parts = [f"{self.results_per_s:,.0f} results/s"]
        if self.latency_ms is not None:
            parts.append(f"{self.latency_ms:,.0f} ms")
        if self.busiest is not None:
            parts.append(f"{self.busiest[0]} {100 * self.busiest[1]:.0f} % CPU")
        return ", ".join(parts)


class LiveFigures:
    """Reads the sink's file and the hosts' counters, from outside where possible."""

    def __init__(self, deployment: EngineDeployment) -> None:
        from nova_harness.experiment.usage import RackUsage

        self.deployment = deployment
        inventory = deployment.hosts.inventory
        self.every = VIRTUAL_SECONDS if inventory.virtual else REAL_SECONDS
        self._usage = RackUsage(inventory) if inventory.virtual else None
        self._file = _outside(deployment) if inventory.virtual else None
        self._size = 0
        self._looked = time.monotonic()
        self._cpu: dict[str, tuple[float, float]] = {}

    def read(self) -> Figures | None:
        """Figures since the last call; None while there are none."""
        tail = self._tail()
        if tail is None:
            return None
        size, data, record = tail
        grown, self._size = max(0, size - self._size), size
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        newest_ones = ResultRecords(np.frombuffer(data, record))
        latency = None
        if len(newest_ones):
            waited = newest_ones["arrive_us"] - newest_ones.emitted_us
            latency = float(np.median(waited)) / 1000
        return Figures(grown / record.itemsize / passed, latency, self._busiest())

    def _tail(self) -> tuple[int, bytes, np.dtype[np.void]] | None:
        """The size of all whole records, bytes, the newest of them, and what each is."""
        if self._file is not None:
            try:
                fields = self._file.with_name(self._file.name + FIELDS).read_bytes()
                record = dtype(parse_fields(fields, str(self._file)))
                with self._file.open("rb") as file:
                    size = file.seek(0, 2) // record.itemsize * record.itemsize
                    most = NEWEST * record.itemsize
                    file.seek(max(0, size - most))
                    return size, file.read(min(size, most)), record
            except OSError:
                return None
        if self._usage is not None:
            return None
        hosts, sink = self.deployment.hosts, self.deployment.sink
        path = self.deployment.result_file("results")
        fields = hosts[sink].run(f"cat {shlex.quote(path + FIELDS)}").stdout.encode()
        record = dtype(parse_fields(fields, path))
        return *newest(hosts, (sink, path), 0, record.itemsize), record

    def _busiest(self) -> tuple[str, float] | None:
        if self._usage is None:
            return None
        shares = {}
        for name, reading in self._usage.read().items():
            before = self._cpu.get(name)
            self._cpu[name] = (reading.time, reading.cpu_seconds)
            limit = self.deployment.hosts.inventory.host(name).cpu
            if before is not None and limit and reading.time > before[0]:
                used = (reading.cpu_seconds - before[1]) / (reading.time - before[0])
                shares[name] = used / limit
        if not shares:
            return None
        name = max(shares, key=lambda host: shares[host])
        return name, shares[name]


def _outside(deployment: EngineDeployment) -> Path | None:
    """The path of the sink's result file on this machine; None where unknown."""
    from nova_testbed.rack.state import StateDirectory, default_state_root

    record = StateDirectory(default_state_root() / deployment.hosts.inventory.name).read()
    if record is None:
        return None
    inside = Path(deployment.result_file("results"))
    disk = Path(record.disks) / deployment.sink
    # A host's /tmp is a directory of its own beside its disk.
    return disk / "tmp" / inside.relative_to("/tmp")


class Ticker:
    """Reports live figures every few seconds, in a thread, until the block ends."""

    def __init__(self, figures: LiveFigures, tell: Callable[[str], None]) -> None:
        self.figures, self._tell = figures, tell
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=self.figures.every + 1)

    def _run(self) -> None:
        while not self._end.wait(self.figures.every):
            try:
                figures = self.figures.read()
            except NovaError:
                # The run itself notices and reports the error.
                continue
            if figures is not None:
                self._tell(str(figures))
