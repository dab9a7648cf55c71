"""One round: a few plans at once on an engine, each on its own hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nova_core.errors import NovaError
from nova_engines.flow import Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import READINGS, Source, Sources
from nova_harness.engines.base import Job, RunError
from nova_research.costream.corpus.measured import idle_share, labels, operator_counts
from nova_research.costream.corpus.prepared import Prepared, Settings
from nova_research.costream.corpus.random_queries import FIRST_MS
from nova_research.costream.training.traces import Labels

if TYPE_CHECKING:
    from nova_testbed.inventory import Link

# From submitting the first job to the first reading, s: in the first round, and at least.
FIRST_LEAD_S, LEAST_LEAD_S = 20.0, 2.0
# Limits may take effect so much after the begin of the measured time, s.
OVERDUE_S = 0.2
# Below this idle share of the machine, hosts may have had less than their limits.
LEAST_IDLE = 0.04
STAT = Path("/proc/stat")


class ReadingsJob(Job, Protocol):
    """A job of an engine that reports how far its sources were behind."""

    def behind_s(self) -> dict[str, float]:
        """How far each source was behind when it ended, s; those that are unknown are missing."""
        ...

    def discard(self) -> None:
        """Remove its result files."""
        ...


class SharedEngine(Protocol):
    """An engine that runs several jobs of queries at once."""

    def start(
        self, flow: Flow, sources: Callable[[int], Sources], name: str, results: str
    ) -> ReadingsJob:
        """Run a flow; see `nova_harness.engines.base.Engine`.

        Args:
            flow: what runs where.
            sources: of readings.
            name: of the job.
            results: name of its result file.
        """
        ...


class Limiting(Protocol):
    """Limits and links of the hosts; see `nova_research.costream.corpus.hardware.RackLimits`."""

    def lift(self, busy: set[str]) -> None:
        """Let hosts share the machine."""
        ...

    def impose(self, cpu: Mapping[str, float]) -> None:
        """Limit the cores of hosts."""
        ...

    def connect(self, links: Mapping[tuple[str, str], Link]) -> None:
        """Apply links."""
        ...


class LateError(RunError):
    """The measured time had begun before everything was ready for it."""


class ContendedError(RunError):
    """The machine had no time left, so that hosts may have had less than their limits."""


@dataclass(frozen=True)
class Ran:
    """One plan of a round.

    Attributes:
        prepared: what ran.
        labels: of the results of each query, by its id.
        operators: see `operator_counts`; None where the engine does not report them.
        idle: idle share of the machine while it was measured.
    """

    prepared: Prepared
    labels: dict[str, Labels]
    operators: dict[str, Any] | None
    idle: float


@dataclass
class Rounds:
    """Runs rounds on one engine.

    Attributes:
        engine: running.
        limits: of its hosts.
        settings: of the corpus.
        scratch: directory for readings and results.
        leads_s: from submitting the first job to the first reading, by the number of jobs.
    """

    engine: SharedEngine
    limits: Limiting
    settings: Settings
    scratch: Path
    leads_s: dict[int, float] = field(default_factory=dict)
    _number: int = field(default=0)

    def run(self, together: Sequence[Prepared], *, limited: bool = True) -> list[Ran]:
        """Run queries at once and measure them.

        Args:
            together: on disjoint hosts, measured equally long.
            limited: whether their limits are in force while they are measured.

        Raises:
            LateError: where it took too long to start them; the next round is given more time.
            ContendedError: where the machine was too busy.
            NovaError: where one could not be started, or ran elsewhere than planned.
        """
        s, seconds = self.settings, together[0].seconds
        busy = set[str]().union(*(one.busy for one in together))
        self._number += 1
        self.limits.lift(busy)
        links: dict[tuple[str, str], Link] = {}
        for one in together:
            links |= one.hardware.links()
        self.limits.connect(links)
        files = [self._readings(one, number) for number, one in enumerate(together)]
        with self._started(together, files) as (jobs, start_ms):
            flows = [Flow.from_json(job.document) for job in jobs]
            counters = [job.counters() for job in jobs]
            start = start_ms / 1000
            tightened, begin = start + s.warm_up_s / 2, start + s.warm_up_s
            if time.time() > tightened:
                self.leads_s[len(jobs)] += time.time() - start
                raise LateError(f"queries ran {time.time() - start:.1f} s after their start")
            _sleep_until(tightened)
            if limited:
                cpu: dict[str, float] = {}
                for one in together:
                    cpu |= one.hardware.cpu()
                self.limits.impose(cpu)
            if time.time() > begin + OVERDUE_S:
                raise LateError("limits were in force too late")
            _sleep_until(begin)
            before = STAT.read_text()
            _sleep_until(begin + seconds)
            idle = idle_share(before, STAT.read_text())
            _sleep_until(begin + seconds + s.drain_s)
            failed = [_failed(job) for job in jobs]
        try:
            if limited and idle < LEAST_IDLE and len(together) > 1:
                raise ContendedError(f"{idle:.0%} of the machine's time were left")
            begin_us = start_ms * 1000 + round(s.warm_up_s * 1e6)
            measured_us = begin_us, begin_us + round(seconds * 1e6)
            counted = list(zip(together, jobs, flows, counters, failed, strict=True))
            with ThreadPoolExecutor(len(together)) as pool:
                ran = partial(self._ran, measured_us=measured_us, idle=idle)
                return list(pool.map(lambda row: ran(*row), counted))
        finally:
            for job in jobs:
                with suppress(NovaError):
                    job.discard()

    def _readings(self, one: Prepared, number: int) -> dict[str, str]:
        directory = self.scratch / str(number)
        directory.mkdir(exist_ok=True)
        length_s = self.settings.warm_up_s + one.seconds
        files: dict[str, str] = {}
        for query in one.queries:
            files |= query.write_encoded(directory, length_s)
        return files

    @contextmanager
    def _started(
        self, together: Sequence[Prepared], files: Sequence[dict[str, str]]
    ) -> Iterator[tuple[list[ReadingsJob], int]]:
        """Running jobs, and when their sources begin, ms since the epoch; ends the jobs."""
        jobs: list[ReadingsJob] = []
        submitted = time.time()
        # The lead of more jobs is enough for these.
        known = max(self.leads_s.values(), default=FIRST_LEAD_S)
        lead_s = self.leads_s.setdefault(len(together), known)
        start_ms = round(1000 * (submitted + lead_s))
        try:
            for number, (one, of_one) in enumerate(zip(together, files, strict=True)):
                made = tuple(Source(of, kind=READINGS, path=file) for of, file in of_one.items())
                sources = Sources(made, start_ms, first_ms=FIRST_MS)
                name = f"nova {one.item.id(self.settings.seed)}"
                results = f"corpus-{self._number}-{number}"
                start, flow = self.engine.start, flow_of(one.plan)
                jobs.append(start(flow, _always(sources), name, results))
            for job in jobs:
                job.await_running()
            took = time.time() - submitted
            self.leads_s[len(together)] = max(LEAST_LEAD_S, 0.5 * lead_s, 1.25 * took + 0.5)
            yield jobs, start_ms
        finally:
            with suppress(NovaError):
                self.limits.lift(set[str]().union(*(one.busy for one in together)))
            _at_once(jobs, lambda job: job.end())

    def _ran(
        self,
        one: Prepared,
        job: ReadingsJob,
        flow: Flow,
        before: Any,
        failed: bool,
        measured_us: tuple[int, int],
        idle: float,
    ) -> Ran:
        # Verified after the measurement, to save time before it: the job has been cancelled.
        if not failed and not (verification := job.verify()).placed:
            row = next(row for row in verification.rows if not row.ok)
            raise RunError(f"{row.operator} ran on {row.actual or 'no host'}, not on {row.node}")
        rows: Any = job.results(self.scratch).records
        behind_s = job.behind_s()
        length_s = self.settings.warm_up_s + one.seconds
        of_query: dict[str, Labels] = {}
        arrived: dict[str, int] = {}
        emitted: dict[str, int] = {}
        for query in one.queries:
            late = [behind_s[name] for name in query.sources if name in behind_s]
            if len(late) < len(query.sources) and not failed:
                raise RunError(f"{job.name}: a source has not said how far it was behind")
            results = rows.of_query[query.id]
            slowest_s = max(late, default=None)
            of_query[query.id] = labels(results, job.sources, measured_us, slowest_s, failed=failed)
            arrived[query.id] = len(results)
            if slowest_s is not None and slowest_s < self.settings.drain_s:
                emitted |= query.emitted(length_s)
        counts = [] if failed else job.operators(before, job.counters())
        operators = operator_counts(flow, counts, arrived, emitted) if counts else None
        return Ran(one, of_query, operators, idle)


def _always(sources: Sources) -> Callable[[int], Sources]:
    """Sources with their own start time, whatever the engine proposes."""
    return lambda start_ms: sources


def _failed(job: ReadingsJob) -> bool:
    """Whether a job has ended with an error."""
    try:
        job.look()
    except RunError:
        return True
    return False


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def _at_once(jobs: Sequence[ReadingsJob], work: Callable[[ReadingsJob], None]) -> None:
    if jobs:
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(work, jobs))
