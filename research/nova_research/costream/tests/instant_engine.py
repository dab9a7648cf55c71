"""An engine in this process: what a corpus asks of one, with results at even times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nova_engines.flow import Flow
from nova_engines.results import ROW, QueryRows, ResultRecords, dtype, together
from nova_engines.sources import Sources
from nova_engines.verification import RUNNING, Verification, compare
from nova_harness.engines.base import RunError
from nova_harness.results.schema import OperatorCounts
from nova_research.costream.corpus.runner import Batch

DELAY_US = 7000
RESULTS_PER_S = 50


class InstantClock:
    """What rounds use of the module `time`: whoever sleeps moves the clock on."""

    def __init__(self) -> None:
        self._slept_s = 0.0

    def time(self) -> float:
        """See `time.time`."""
        return time.time() + self._slept_s

    def sleep(self, seconds: float) -> None:
        """See `time.sleep`; only one thread of a round does."""
        self._slept_s += seconds


class InstantJob:
    """A job whose results are as old as `DELAY_US` when they arrive."""

    def __init__(self, engine: InstantEngine, flow: Flow, sources: Sources, name: str):
        self.engine, self.flow, self.sources, self.name = engine, flow, sources, name
        self.document = flow.to_json()
        self.hosts = set(flow.nodes)
        self.ended: float | None = None

    def await_running(self) -> None:
        """At once, unless it is one of those that never run."""
        if any(one in self.name for one in self.engine.broken):
            raise RunError(f"{self.name}: cannot be scheduled")

    def verify(self) -> Verification:
        """As planned, unless it is one of those that are misplaced."""
        misplaced = any(one in self.name for one in self.engine.misplaced)
        nodes = {one.name: one.node for one in self.flow.operators}
        where = {name: "elsewhere" if misplaced else node for name, node in nodes.items()}
        return compare(nodes, [(name, node, RUNNING) for name, node in where.items()])

    def look(self) -> bool:
        """It does not end by itself."""
        if any(one in self.name for one in self.engine.failing):
            raise RunError(f"{self.name}: the job failed")
        return False

    def counters(self) -> float:
        """Time."""
        return self.engine.clock.time()

    def operators(self, before: float, after: float) -> list[OperatorCounts]:
        """Each as a vertex of its own."""
        return [
            OperatorCounts(name=one.name, node=one.node, records_in=10, records_out=5)
            for one in self.flow.operators
        ]

    def end(self) -> None:
        """End it."""
        self.ended = self.engine.clock.time()
        self.engine.stop(self)

    def results(self, scratch: Path) -> ResultRecords:
        """A result every 20 ms until it was ended."""
        assert self.ended is not None
        assert all(one.encoded() for one in self.sources.sources)
        start, many = self.sources.start_ms, RESULTS_PER_S
        late = any(one in self.name for one in self.engine.late)
        silent = any(one in self.name for one in self.engine.silent)
        count = 0 if silent else max(0, int((self.ended - start / 1000) * many))
        due = start * 1000 + np.arange(count) * 1_000_000 // many
        made = np.zeros(count, dtype(ROW))
        made["oldest_ms"] = self.sources.begin_ms + (due - start * 1000) // 1000
        made["oldest_us"] = due + 2000 + 10**6 * late
        made["arrive_us"] = due + DELAY_US + 10**6 * late
        of_one = ResultRecords(made, announced=count)
        of_query = {one.query: of_one for one in self.flow.sinks}
        return together(QueryRows(of_query), list(of_query.values()))

    def behind_s(self) -> dict[str, float]:
        """A second, of those that are late."""
        late = any(one in self.name for one in self.engine.late)
        return {one.source: 1.0 if late else 0.0 for one in self.sources.sources}

    def discard(self) -> None:
        """Nothing to remove."""
        self.engine.discarded += 1


class InstantEngine:
    """Runs several jobs at once, of which no two may share a host.

    Attributes:
        broken: parts of names of jobs that do not run.
        misplaced: of jobs that run elsewhere.
        failing: of jobs that end with an error.
        late: of jobs whose sources fall behind.
        silent: of jobs without results.
        interrupt_at: number of the job, from 1, at whose start Ctrl-C is pressed.
        started: names of jobs, in order.
        most: how many ran at once.
    """

    def __init__(self, clock: InstantClock) -> None:
        self.clock = clock
        self.broken: set[str] = set()
        self.misplaced: set[str] = set()
        self.failing: set[str] = set()
        self.late: set[str] = set()
        self.silent: set[str] = set()
        self.interrupt_at = 0
        self.started: list[str] = []
        self.most = self.discarded = self.healed = 0
        self.running: list[InstantJob] = []
        self.lifted: set[str] = set()
        self.imposed: list[Mapping[str, float]] = []
        self.links: list[Mapping[tuple[str, str], Any]] = []
        self.batches: list[Mapping[str, int]] = []
        self._lock = threading.Lock()

    def start(
        self, flow: Flow, sources: Callable[[int], Sources], name: str, results: str
    ) -> InstantJob:
        """Have a flow run."""
        self.started.append(name)
        if len(self.started) == self.interrupt_at:
            raise KeyboardInterrupt
        job = InstantJob(self, flow, sources(0), name)
        assert not any(job.hosts & other.hosts for other in self.running)
        self.running.append(job)
        self.most = max(self.most, len(self.running))
        return job

    def stop(self, job: InstantJob) -> None:
        """A job has ended."""
        with self._lock:
            self.running.remove(job)

    # --- limits ---------------------------------------------------------------------------------

    def lift(self, busy: set[str]) -> None:
        """Note it."""
        self.lifted = busy

    def impose(self, cpu: Mapping[str, float]) -> None:
        """Note it."""
        self.imposed.append(cpu)

    def connect(self, links: Mapping[tuple[str, str], Any]) -> None:
        """Note it."""
        self.links.append(links)

    @contextmanager
    def batch(self, memory: Mapping[str, int]) -> Iterator[Batch]:
        """Up for one batch; everything has ended afterwards."""
        self.batches.append(memory)

        def heal() -> bool:
            self.healed += 1
            return False

        yield Batch(self, self, "1.0", heal)
        assert not self.running
