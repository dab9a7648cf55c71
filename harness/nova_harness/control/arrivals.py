"""Results as they arrive at the sinks while a job runs: how many a second, and how late."""

from __future__ import annotations

import shlex
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_engines.results import Fields, ResultRecords, dtype
from nova_harness.results.latencies import percentiles

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts

PERIOD_S = 2.0
# At most so many of the newest results of a file are read, and so many looks are stored.
NEWEST = 1000
MOST_LOOKS = 900
# Of one look; slower hosts are left out of it.
TIMEOUT_S = 10.0


class Arrival(msgspec.Struct, frozen=True):
    """Results since the previous look.

    Attributes:
        at: s since the epoch.
        per_second: results/s; during a hand-over, only those of the older job count.
        p50_ms: median of the newest results' latency, from the newest input's emission; None
            without any.
        p99_ms: its 99th percentile.
    """

    at: float
    per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None


class ArrivalsWatch:
    """Looks at the sinks' files every few seconds until it is closed.

    Args:
        hosts: connected.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._files: Mapping[tuple[str, str], Fields] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._looked = time.monotonic()
        self._history: deque[Arrival] = deque(maxlen=MOST_LOOKS)
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def follow(self, files: Mapping[tuple[str, str], Fields]) -> None:
        """Look at these from now on: the fields of results by host and path."""
        self._files = files

    def history(self) -> list[Arrival]:
        """All stored looks, oldest first."""
        return list(self._history)

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            self._look()

    def _look(self) -> None:
        files, known = self._files, self._sizes
        read = {}
        record = {file: dtype(fields) for file, fields in files.items()}
        for file in files:
            with suppress(NovaError, OSError, EOFError):
                size = record[file].itemsize
                read[file] = newest(self._hosts, file, known.get(file, 0), size)
        if not read:
            return
        # Results before the first look do not count.
        came = sum(
            (size - known.get(file, size)) / record[file].itemsize
            for file, (size, _) in read.items()
        )
        parts = [
            ResultRecords(np.frombuffer(data, record[file])) for file, (_, data) in read.items()
        ]
        sizes = {file: known[file] for file in files if file in known}
        sizes |= {file: size for file, (size, _) in read.items()}
        now = time.monotonic()
        passed, self._looked, self._sizes = now - self._looked, now, sizes
        late = percentiles(np.concatenate([one["arrive_us"] - one.emitted_us for one in parts]))
        self._history.append(Arrival(time.time(), came / passed, late.p50, late.p99))


def newest(hosts: Hosts, file: tuple[str, str], since: int, record: int) -> tuple[int, bytes]:
    """The newest whole records of a sink's file.

    Args:
        hosts: connected.
        file: host and path.
        since: bytes that are already known.
        record: bytes of each.

    Returns:
        The size of all whole records, bytes, and at most `NEWEST` records that are not known.

    Raises:
        NovaError: when the host does not answer.
    """
    host, path = file[0], shlex.quote(file[1])
    # In records. Each process that it starts costs a weak host a millisecond or two.
    command = (
        f"n=0; [ -e {path} ] && n=$(($(stat -c %s {path}) / {record})); "
        f"b=$((n - {NEWEST})); [ $b -ge {since // record} ] || b={since // record}; "
        f"echo $((n * {record})); [ $n -le $b ] || "
        f"dd if={path} bs={record} skip=$b count=$((n - b)) status=none"
    )
    output = bytearray()
    hosts[host].stream(command, None, output.extend, TIMEOUT_S)
    size, _, data = bytes(output).partition(b"\n")
    return int(size or 0), data[: len(data) - len(data) % record]
