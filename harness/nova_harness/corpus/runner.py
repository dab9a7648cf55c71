"""A corpus from beginning to end: batches of hosts' memory, rounds of queries, rows of Parquet.

Everything is written round by round and depends on the seed alone, or on batches that are finished:
whatever interrupts a run loses the round that runs, and the same command goes on.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_harness.corpus.hardware import RackLimits, groups_of, with_memory
from nova_harness.corpus.measured import failing_share
from nova_harness.corpus.prepared import (
    Item,
    Prepared,
    Preparing,
    Settings,
    begin_corpus,
    fill,
    items_of,
    next_load,
)
from nova_harness.corpus.rounds import (
    ContendedError,
    LateError,
    Limiting,
    Ran,
    Rounds,
    SharedEngine,
)
from nova_harness.engines.base import running
from nova_learn.traces import Trace, append, compact, now, read_traces, trace_of

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory

ENGINE = "flink"
WANTED = (0.25, 0.5)
"""Least and greatest share of traces that fail or have back-pressure."""
FIRST_LOAD = 8.0
"""Of the first batch: at a third of it, 13 % of 60 traces failed or had back-pressure."""
WARM_UP_ROUNDS = 4
"""Before a batch, so that all classes are loaded on all hosts, and what they do is compiled."""
LOOKAHEAD = 6
"""Traces per group that a round is chosen from."""
ATTEMPTS = 3
"""How often a trace is tried."""
MOST_FAILURES = 6
"""Rounds in a row that may fail before the run is given up."""


@dataclass
class Watcher:
    """Progress callbacks; they do nothing unless something is put in.

    Attributes:
        phase: what is being done.
        done: traces that are finished, and how many there will be.
    """

    phase: Callable[[str], None] = lambda text: None
    done: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class Batch:
    """What is up for one batch.

    Attributes:
        engine: with its processes.
        limits: of its hosts.
        version: of the engine.
        heal: brings up what has ended; whether anything had.
    """

    engine: SharedEngine
    limits: Limiting
    version: str
    heal: Callable[[], bool]


OpenBatch = Callable[[Mapping[str, int]], Any]
"""Gives a context manager of a `Batch`, for bytes of memory by host."""


@dataclass
class CorpusRun:
    """The directory of a corpus, and how far it is.

    Attributes:
        path: of the directory.
        settings: of the corpus.
        traces: how many there are to be, without repetitions.
        watcher: progress callbacks.
        dropped: traces that were given up in this run, and why.
    """

    path: Path
    settings: Settings
    traces: int
    watcher: Watcher
    dropped: dict[str, str] = field(default_factory=dict)

    def finished(self) -> set[str]:
        """Ids of the traces that are there."""
        return set(read_traces([self.path], ["id"], begun=True).column("id").to_pylist())

    def load(self, batch: int) -> float:
        """Of a batch, as the shares of failures in those before it ask for."""
        table = read_traces([self.path], ["batch", "success", "back_pressure"], begun=True)
        rows = table.to_pydict()
        load = FIRST_LOAD
        for number in range(batch):
            mine = [row for row, of in enumerate(rows["batch"]) if of == number]
            share = failing_share(
                {name: [rows[name][row] for row in mine] for name in ("success", "back_pressure")}
            )
            load = load if share is None else next_load(load, share, WANTED)
        return load

    def run(self, groups: Sequence[Sequence[str]], open_batch: OpenBatch) -> None:
        """Run what is not there yet.

        Args:
            groups: of hosts, for a query each.
            open_batch: brings an engine up on them.

        Raises:
            NovaError: naming what failed, again and again; what is finished is kept.
        """
        s = self.settings
        batches = list(items_of(self.traces, s.batch, s.plans))
        total = sum(map(len, batches))
        with tempfile.TemporaryDirectory(prefix="nova-corpus-") as scratch:
            for number, items in enumerate(batches):
                finished = self.finished()
                self.watcher.done(len(finished), total)
                missing = [item for item in items if item.id(s.seed) not in finished]
                if not missing:
                    continue
                preparing = Preparing(s, number, groups, self.load(number), Path(scratch))
                self.watcher.phase(f"batch {number + 1} of {len(batches)}")
                with open_batch(preparing.memory) as batch:
                    _Running(self, number, preparing, batch, total, Path(scratch)).run(missing)

    def note(self, item: Item, reason: str) -> None:
        """A trace is given up."""
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
        began, had = time.monotonic(), len(self.corpus.finished())
        done = had
        while todo or waiting:
            while todo and len(waiting) < LOOKAHEAD * len(groups):
                item = todo.popleft()
                try:
                    waiting.append((self.preparing.trace(item), 0))
                except NovaError as error:
                    self.corpus.note(item, str(error))
            if not waiting:
                break
            tries = {id(one): count for one, count in waiting}
            together = fill([one for one, _ in waiting], s.cores, group_of)
            # Whatever was the matter with it, the others need not suffer from it.
            together = together[:1] if tries[id(together[0])] else together
            chosen = {id(one) for one in together}
            waiting = deque(pair for pair in waiting if id(pair[0]) not in chosen)
            pace = 3600 * (done - had) / max(time.monotonic() - began, 1.0)
            watcher.phase(
                f"batch {self.number + 1}, {done:,} of {self.total:,} traces, {pace:.0f} an hour: "
                f"{len(together)} at once"
            )
            try:
                ran = rounds.run(together)
            except NovaError as error:
                watcher.phase(str(error))
                # Being late is no query's fault: they run together again.
                blamed = 0 if isinstance(error, LateError) else 1
                again = [(one, tries[id(one)] + blamed) for one in together]
                for one, count in again:
                    if count >= ATTEMPTS:
                        self.corpus.note(one.item, str(error))
                waiting.extendleft([pair for pair in again if pair[1] < ATTEMPTS][::-1])
                self._failed(error, rounds)
                continue
            self.failures = 0
            append(self.corpus.path, self.number, [self._trace(one) for one in ran])
            done += len(ran)
            watcher.done(done, self.total)
            if any(one.labels.behind_s is None for one in ran):
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

    def _trace(self, one: Ran) -> Trace:
        s, prepared = self.corpus.settings, one.prepared
        item = prepared.item
        return trace_of(
            prepared.plan,
            id=item.id(s.seed),
            query=prepared.problem.name,
            structure=prepared.query.structure,
            operators=None if one.operators is None else compact(one.operators),
            origin="rack",
            engine=ENGINE,
            engine_version=self.batch.version,
            nova_version=version("nova-placement"),
            made=now(),
            seed=s.seed,
            batch=self.number,
            repeat_of=Item(item.number).id(s.seed) if item.again else None,
            duration_s=prepared.seconds,
            window_s=prepared.query.window_s,
            idle=one.idle,
            **asdict(one.labels),
        )


def run_corpus(
    path: Path, settings: Settings, traces: int, inventory: Inventory, watcher: Watcher
) -> CorpusRun:
    """Run what is missing of a corpus on a virtual rack with Flink.

    Args:
        path: directory of the corpus; an interrupted one is gone on with.
        settings: of it.
        traces: how many there are to be, without repetitions.
        inventory: of the rack.
        watcher: progress callbacks.

    Raises:
        NovaError: naming what failed; what is finished is kept.
    """
    from nova_harness.engines.base import DIRECT, runner
    from nova_harness.experiment.bed import hosts_up, reserved

    groups = groups_of(inventory, settings.hosts)
    corpus = CorpusRun(path, settings, traces, watcher)
    with reserved(inventory):
        begin_corpus(path, settings)
        batches = items_of(traces, settings.batch, settings.plans)
        wanted = {one.id(settings.seed) for of in batches for one in of}
        if wanted <= corpus.finished():
            return corpus
        found = runner(ENGINE)
        found.prepare(watcher.phase, DIRECT)
        with hosts_up(inventory, watcher.phase) as reachable:
            corpus.run(groups, lambda memory: _rack_batch(reachable, memory, watcher))
    return corpus


@contextmanager
def _rack_batch(
    inventory: Inventory, memory: Mapping[str, int], watcher: Watcher
) -> Iterator[Batch]:
    """Flink on a rack whose hosts have other memory; its limits are put back at the end."""
    from nova_harness.engines.base import DIRECT, runner
    from nova_harness.engines.flink import FlinkEngine
    from nova_testbed.hosts import connect
    from nova_testbed.rack import VirtualRack

    with ExitStack() as stack:
        limits = RackLimits(inventory, VirtualRack(inventory))
        stack.enter_context(limits.changed(memory))
        limits.lift({host.name for host in inventory.hosts})
        hosts = stack.enter_context(connect(with_memory(inventory, memory)))
        engine = runner(ENGINE).engine(hosts, DIRECT, "")
        assert isinstance(engine, FlinkEngine)
        engine.deployment.take_memory()
        stack.enter_context(running(engine, watcher.phase, keep=False))

        def heal() -> bool:
            with suppress(NovaError):  # of a coordinator that is gone
                if all(engine.hosts().values()):
                    return False
            limits.lift({host.name for host in inventory.hosts})
            engine.up(watcher.phase)
            return True

        yield Batch(engine, limits, engine.deployment.version, heal)
