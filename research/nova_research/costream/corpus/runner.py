"""A corpus from beginning to end: batches of hosts' memory, rounds of queries, rows of Parquet.

Rows are written round by round and depend only on the seed and on finished batches: an interrupted
run loses only its current round, and the same command resumes it.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nova_core.errors import NovaError
from nova_engines.flow import Flow
from nova_engines.sources import READINGS, Sources
from nova_harness.engines.base import Engine, runner, running
from nova_research.costream.corpus.hardware import RackLimits, groups_of, with_memory
from nova_research.costream.corpus.measured import failing_share
from nova_research.costream.corpus.prepared import (
    Item,
    Prepared,
    Preparing,
    Settings,
    begin_corpus,
    fill,
    items_of,
    next_load,
    run_of,
    traces_of,
)
from nova_research.costream.corpus.ranges import FIRST_LOAD, TRIAL_LOAD
from nova_research.costream.corpus.rounds import (
    ContendedError,
    LateError,
    Limiting,
    Ran,
    ReadingsJob,
    Rounds,
    SharedEngine,
)
from nova_research.costream.training.traces import Trace, append, compact, read_traces

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory

ENGINE = "flink"
TARGET = (0.25, 0.5)
"""Least and greatest share of traces that fail or have back-pressure."""
WARM_UP_ROUNDS = 4
"""Before a batch, so that all hosts have loaded all classes and compiled their code."""
LOOKAHEAD = 6
"""Runs per group that a round is chosen from."""
ATTEMPTS = 3
"""How often a run is tried."""
MOST_FAILURES = 6
"""Rounds in a row that may fail before the run is given up."""


@dataclass
class Watcher:
    """Progress callbacks; by default, they do nothing.

    Attributes:
        phase: the current activity.
        finished: number of finished runs, and their total.
    """

    phase: Callable[[str], None] = lambda text: None
    finished: Callable[[int, int], None] = lambda count, total: None


@runtime_checkable
class CorpusEngine(Engine, Protocol):
    """An engine on hosts that a corpus can be measured on; see also `SharedEngine`."""

    def start(
        self, flow: Flow, sources: Callable[[int], Sources], name: str, results: str = ...
    ) -> ReadingsJob:
        """See `SharedEngine`."""
        ...

    def take_memory(self) -> None:
        """Let its processes use all memory of their hosts; called before `up`."""
        ...


@dataclass(frozen=True)
class Batch:
    """The running engine of one batch.

    Attributes:
        engine: with its processes.
        limits: of its hosts.
        version: of the engine.
        heal: restarts ended processes; returns whether there were any.
    """

    engine: SharedEngine
    limits: Limiting
    version: str
    heal: Callable[[], bool]


OpenBatch = Callable[[Mapping[str, int]], Any]
"""Returns a context manager of a `Batch`, for bytes of memory by host."""


@dataclass
class CorpusRun:
    """The directory of a corpus, and its progress.

    Attributes:
        path: of the directory.
        settings: of the corpus.
        runs: how many in all, without repetitions.
        watcher: progress callbacks.
        dropped: runs that were left out, and why.
        absent: number of runs of a trial whose problem has fewer different plans.
    """

    path: Path
    settings: Settings
    runs: int
    watcher: Watcher
    dropped: dict[str, str] = field(default_factory=dict)
    absent: int = 0

    def finished(self) -> set[str]:
        """Ids of the finished runs."""
        ids = read_traces([self.path], ["id"], begun=True).column("id").to_pylist()
        return {run_of(one) for one in ids}

    def load(self, batch: int) -> float:
        """The load of a batch, by the shares of failures in earlier batches."""
        table = read_traces([self.path], ["batch", "success", "back_pressure"], begun=True)
        rows = table.to_pydict()
        load = TRIAL_LOAD if self.settings.strategies else FIRST_LOAD
        for number in range(batch):
            mine = [row for row, of in enumerate(rows["batch"]) if of == number]
            share = failing_share(
                {name: [rows[name][row] for row in mine] for name in ("success", "back_pressure")}
            )
            load = load if share is None else next_load(load, share, TARGET)
        return load

    def run(self, groups: Sequence[Sequence[str]], open_batch: OpenBatch) -> None:
        """Carry out the missing runs.

        Args:
            groups: of hosts, for a problem each.
            open_batch: starts an engine on them.

        Raises:
            NovaError: after repeated failures, naming the last; finished traces are kept.
        """
        s = self.settings
        batches = list(items_of(self.runs, s.batch, s.plans))
        total = sum(map(len, batches))
        with tempfile.TemporaryDirectory(prefix="nova-corpus-") as scratch:
            for number, items in enumerate(batches):
                finished = self.finished()
                self.watcher.finished(len(finished), total)
                missing = [item for item in items if item.id(s.seed) not in finished]
                if not missing:
                    continue
                preparing = Preparing(s, number, groups, self.load(number), Path(scratch))
                possible = [item for item in missing if preparing.has(item)]
                self.absent += len(missing) - len(possible)
                if not possible:
                    continue
                self.watcher.phase(f"batch {number + 1} of {len(batches)}")
                with open_batch(preparing.memory) as batch:
                    _Running(self, number, preparing, batch, total, Path(scratch)).run(possible)

    def note(self, item: Item, reason: str) -> None:
        """Leave a run out."""
        self.dropped[item.id(self.settings.seed)] = reason
        self.watcher.phase(f"{item.id(self.settings.seed)} is left out: {reason}")


@dataclass
class _Running:
    """One batch while it runs."""

    corpus: CorpusRun
    number: int
    preparing: Preparing
    batch: Batch
    total: int
    scratch: Path
    failures: int = 0

    def run(self, missing: Sequence[Item]) -> None:
        s, watcher = self.corpus.settings, self.corpus.watcher
        rounds = Rounds(self.batch.engine, self.batch.limits, s, self.scratch)
        groups = self.preparing.groups
        group_of = {name: i for i, group in enumerate(groups) for name in group}
        self._warm(rounds)
        todo, waiting = deque(missing), deque[tuple[Prepared, int]]()
        began, before = time.monotonic(), len(self.corpus.finished())
        finished = before
        while todo or waiting:
            while todo and len(waiting) < LOOKAHEAD * len(groups):
                item = todo.popleft()
                try:
                    waiting.append((self.preparing.plan(item), 0))
                except NovaError as error:
                    self.corpus.note(item, str(error))
            if not waiting:
                break
            tries = {id(one): count for one, count in waiting}
            together = fill([one for one, _ in waiting], s.cores, group_of)
            # A run that failed before runs alone, so that it cannot fail the others.
            together = together[:1] if tries[id(together[0])] else together
            chosen = {id(one) for one in together}
            waiting = deque(pair for pair in waiting if id(pair[0]) not in chosen)
            pace = 3600 * (finished - before) / max(time.monotonic() - began, 1.0)
            watcher.phase(
                f"batch {self.number + 1}, {finished:,} of {self.total:,} runs, "
                f"{pace:.0f} an hour: {len(together)} at once"
            )
            try:
                ran = rounds.run(together)
            except NovaError as error:
                watcher.phase(str(error))
                # No query is to blame for lateness: all run together again.
                blamed = 0 if isinstance(error, LateError) else 1
                again = [(one, tries[id(one)] + blamed) for one in together]
                for one, count in again:
                    if count >= ATTEMPTS:
                        self.corpus.note(one.item, str(error))
                waiting.extendleft([pair for pair in again if pair[1] < ATTEMPTS][::-1])
                self._failed(error, rounds)
                continue
            self.failures = 0
            append(self.corpus.path, self.number, [row for one in ran for row in self._traces(one)])
            finished += len(ran)
            watcher.finished(finished, self.total)
            if any(of.behind_s is None for one in ran for of in one.labels.values()):
                # A worker process may have ended with its query.
                self._heal(rounds)

    def _warm(self, rounds: Rounds) -> None:
        for turn in range(WARM_UP_ROUNDS):
            self.corpus.watcher.phase(f"warming up, {turn + 1} of {WARM_UP_ROUNDS}")
            try:
                rounds.run(self.preparing.warming(turn), limited=False)
            except NovaError as error:
                self.corpus.watcher.phase(str(error))
                self._failed(error, rounds, warm=False)

    def _failed(self, error: NovaError, rounds: Rounds, *, warm: bool = True) -> None:
        self.failures += 1
        if self.failures >= MOST_FAILURES:
            raise NovaError(f"corpus: {self.failures} rounds in a row failed: {error}") from error
        if not isinstance(error, ContendedError):
            self._heal(rounds, warm=warm)

    def _heal(self, rounds: Rounds, *, warm: bool = True) -> None:
        if self.batch.heal() and warm:
            self._warm(rounds)

    def _traces(self, one: Ran) -> list[Trace]:
        s, prepared = self.corpus.settings, one.prepared
        return traces_of(
            prepared,
            s.seed,
            one.labels,
            operators=None if one.operators is None else compact(one.operators),
            origin="rack",
            engine=ENGINE,
            engine_version=self.batch.version,
            batch=self.number,
            idle=one.idle,
        )


def run_corpus(
    path: Path, settings: Settings, runs: int, inventory: Inventory, watcher: Watcher
) -> CorpusRun:
    """Carry out the missing runs of a corpus on a virtual rack.

    Args:
        path: directory of the corpus; an interrupted corpus is resumed.
        settings: of the corpus.
        runs: how many in all, without repetitions.
        inventory: of the rack.
        watcher: progress callbacks.

    Raises:
        NovaError: naming what failed; finished traces are kept.
    """
    from nova_harness.experiment.bed import hosts_up, reserved

    groups = groups_of(inventory, settings.hosts)
    corpus = CorpusRun(path, settings, runs, watcher)
    with reserved(inventory):
        begin_corpus(path, settings)
        batches = items_of(runs, settings.batch, settings.plans)
        required = {one.id(settings.seed) for of in batches for one in of}
        if required <= corpus.finished():
            return corpus
        runner(ENGINE).prepare(watcher.phase, READINGS)
        with hosts_up(inventory, watcher.phase) as reachable:
            corpus.run(groups, lambda memory: _rack_batch(reachable, memory, watcher))
    return corpus


@contextmanager
def _rack_batch(
    inventory: Inventory, memory: Mapping[str, int], watcher: Watcher
) -> Iterator[Batch]:
    """The engine on a rack whose hosts have other memory; all limits are restored at the end."""
    from nova_testbed.hosts import connect
    from nova_testbed.rack import VirtualRack

    with ExitStack() as stack:
        limits = RackLimits(inventory, VirtualRack(inventory))
        stack.enter_context(limits.changed(memory))
        limits.lift({host.name for host in inventory.hosts})
        hosts = stack.enter_context(connect(with_memory(inventory, memory)))
        engine = runner(ENGINE).engine(hosts, READINGS)
        assert isinstance(engine, CorpusEngine)
        engine.take_memory()
        stack.enter_context(running(engine, watcher.phase, keep=False))

        def heal() -> bool:
            with suppress(NovaError):  # raised where the coordinator has ended
                if all(engine.hosts().values()):
                    return False
            limits.lift({host.name for host in inventory.hosts})
            engine.up(watcher.phase)
            return True

        yield Batch(engine, limits, engine.deployment.version, heal)
