"""A live placement that several clients use at once: one writer, any number that follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import msgspec

from nova_core import console
from nova_core.errors import InfeasibleError, NovaError, ProblemError, UnwritableError
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta
from nova_core.placement.live import Event, Journal
from nova_core.placement.live.segment_log import SegmentLog
from nova_core.service.documents import PlacementSummary
from nova_core.service.metrics import Metrics
from nova_core.service.refusals import RefusedError

T = TypeVar("T")

# Journal entries between checkpoints of the state, and deltas per file.
CHECKPOINT = 100_000
# Files of deltas kept besides the current one.
OLD_SEGMENTS = 2
# An event that may move more joins is followed in a thread, so that other clients need not wait
# for it; a thread costs as much as moving some.
MANY_JOINS = 30
# Seconds after which an idle stream sends a heartbeat, which detects clients that have left.
HEARTBEAT = 15.0
_CHUNK = 256
# Seconds between two pieces of a stream: many deltas go out together when many come.
_PACE = 0.005


class HostedPlacement:
    """A placement with its journal and its deltas on disk.

    Requests run in one event loop; what takes long runs in a thread, and keeps the lock meanwhile.
    An event's delta is written to disk before the event, so every journaled event has its delta.

    Attributes:
        name: what clients call it.
        version: events so far; a batch is one.
        used: when it was in use last, by the monotonic clock.
    """

    def __init__(self, name: str, directory: Path, sync: bool, metrics: Metrics) -> None:
        """Resume a placement from its directory.

        Raises:
            NovaError: when its journal cannot be read.
        """
        self.name = name
        self.used = time.monotonic()
        self._sync = sync
        replayed: list[PlanDelta] = []
        self._journal = Journal.resume(directory, sync=sync, heard=replayed.append)
        try:
            self.version = self._journal.live.version
            # Without the delta that leads to a checkpoint, earlier deltas are useless.
            begin = self.version - len(replayed)
            self._deltas = SegmentLog(directory / "deltas", "deltas-", begin)
            texts = [msgspec.json.encode(delta) for delta in replayed]
            pairs = zip(self._deltas.lines(begin), texts, strict=False)
            right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            self._deltas.cut(begin + right)
            for text in texts[right:]:
                self._deltas.append(text)
        except BaseException:
            self._journal.close()
            raise
        # Why the last event could not be written.
        self._unwritable: str | None = None
        self._checkpoint_due = CHECKPOINT
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._snapshot: tuple[int, Plan] | None = None
        self._warm = False
        self._ended: str | None = None
        self._closed = False
        self._events = metrics.events
        self._seconds = metrics.event_seconds.labels(name)
        self._moves = metrics.moves.labels(name)
        self._version = metrics.version.labels(name)
        self._streams = metrics.streams.labels(name)
        self._following = 0
        self._version.set(self.version)

    # --- state ------------------------------------------------------------------------------------

    @property
    def failed(self) -> str | None:
        """Why the last event was not accepted; None where it was."""
        return self._journal.broken or self._deltas.broken or self._unwritable

    @property
    def loaded(self) -> bool:
        """Whether it is in memory; otherwise the next use reads it from disk."""
        return self._journal.loaded

    @property
    def summary(self) -> PlacementSummary:
        """A few figures."""
        return PlacementSummary(
            name=self.name,
            version=self.version,
            oldest=self._deltas.first,
            streams=self._following,
            loaded=self.loaded,
            failed=self.failed,
        )

    async def plan(self) -> Plan:
        """The plan as it is, with its problem; its version is in its notes."""
        return await self._exclusively(self._read_out, apart=True)

    def _read_out(self) -> Plan:
        self._load()
        if self._snapshot is None or self._snapshot[0] != self.version:
            self._snapshot = (self.version, self._journal.live.plan())
        return self._snapshot[1]

    def _load(self) -> None:
        """Load the placement into memory.

        Raises:
            RefusedError: when it cannot be read from disk.
        """
        self.used = time.monotonic()
        try:
            _ = self._journal.live
        except NovaError as error:
            self._unwritable = f"cannot be read: {error}"
            raise RefusedError(503, f"{self.name}: {self._unwritable}") from None

    def deltas(self, after: int, limit: int) -> list[bytes]:
        """Up to ``limit`` deltas after a version, as JSON.

        Raises:
            RefusedError: when they are no longer kept, or not there yet.
        """
        texts: list[bytes] = []
        while more := self._read(after + len(texts), limit - len(texts)):
            texts += more
        return texts

    def _read(self, after: int, limit: int) -> list[bytes]:
        # The log has the delta of an event that may still be refused.
        version, first = self.version, self._deltas.first
        if after < first:
            raise RefusedError(
                410,
                f"deltas after version {after} are no longer kept, only those after {first}; "
                "read the plan and continue from its version",
            )
        if after > version:
            raise RefusedError(410, f"version {after} has not been reached; the last is {version}")
        return self._deltas.read(after, min(limit, version - after))

    # --- events -----------------------------------------------------------------------------------

    async def follow(self, event: Event, expected: int | None) -> tuple[bytes, int]:
        """Follow an event; its delta as JSON, and the version it leads to.

        Args:
            event: what happened.
            expected: the version that the client knows; None for any.

        Raises:
            RefusedError: when it is another, or no more events are taken.
            InfeasibleError: as `LivePlacement.apply`.
            ProblemError: as `LivePlacement.apply`.
            UnwritableError: when it cannot be written; it has not happened then.
        """
        # Reading it from disk takes longer than many joins. While a thread changes the placement,
        # nothing else may read it.
        long = not self._warm or self._sync or not self.loaded or self._lock.locked()
        long = long or self._journal.live.reach(event) > MANY_JOINS
        answer = await self._exclusively(lambda: self._apply(event, expected), apart=long)
        self._wake()
        if self._journal.since_checkpoint >= self._checkpoint_due and not self._tasks:
            task = asyncio.create_task(self._checkpoint())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    def _apply(self, event: Event, expected: int | None) -> tuple[bytes, int]:
        if self._ended is not None:
            raise RefusedError(503, f"{self.name}: {self._ended}")
        if expected is not None and expected != self.version:
            raise RefusedError(412, f"{self.name} is at version {self.version}, not {expected}")
        self._load()
        begin = time.perf_counter()
        kind = str(event.__struct_config__.tag)
        text = b""

        def record(delta: PlanDelta) -> None:
            nonlocal text
            text = msgspec.json.encode(delta)
            self._deltas.append(text)

        try:
            delta = self._journal.apply(event, record=record)
        except BaseException as error:
            self._deltas.cut(self.version)
            if isinstance(error, UnwritableError):
                self._unwritable = str(error)
            elif isinstance(error, InfeasibleError | ProblemError):
                self._unwritable = None
                self._events.labels(self.name, kind, "refused").inc()
            raise
        finally:
            self._warm = True
        self._unwritable = None
        self.version = delta.new_version
        self._seconds.observe(time.perf_counter() - begin)
        self._events.labels(self.name, kind, "followed").inc()
        self._moves.inc(len(delta.move))
        self._version.set(delta.new_version)
        return text, delta.new_version

    async def _checkpoint(self) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(self._write_state)
                self._checkpoint_due = CHECKPOINT
            except NovaError as error:
                # Nothing is lost, but restarts take longer; not retried at every event.
                self._checkpoint_due = self._journal.since_checkpoint + CHECKPOINT
                console.warn(f"placement {self.name}: {error}")

    def _write_state(self) -> None:
        # A restart recomputes only the deltas since the checkpoint.
        self._deltas.sync()
        self._journal.checkpoint()
        if self._deltas.newest >= CHECKPOINT:
            self._deltas.rotate(OLD_SEGMENTS)

    async def unload(self, idle: float) -> None:
        """Free its memory if it has been unused for ``idle`` seconds.

        The next event or reader loads it from disk.
        """
        async with self._lock:
            if not self.loaded or self._closed or time.monotonic() - self.used < idle:
                return
            try:
                # Every load replays the events after the checkpoint.
                await asyncio.to_thread(self._write_state)
            except NovaError as error:
                console.warn(f"placement {self.name}: stays in memory: {error}")
                self.used = time.monotonic()
                return
            self._snapshot = None
            self._journal.unload()

    async def _exclusively(self, work: Callable[[], T], *, apart: bool) -> T:
        """Run work under the lock; ``apart``: in a thread, always to its end."""
        if not apart:
            async with self._lock:
                return work()

        async def guarded() -> T:
            async with self._lock:
                return await asyncio.to_thread(work)

        return await asyncio.shield(asyncio.create_task(guarded()))

    # --- streams ----------------------------------------------------------------------------------

    async def stream(self, after: int) -> AsyncIterator[bytes]:
        """Server-sent events: each delta after a version, as they come, until the service ends.

        A slow client gets deltas later, from disk; it never misses one.
        """
        self._following += 1
        self._streams.inc()
        try:
            yield b"retry: 1000\n: from version %d\n\n" % after
            while not self._closed:
                try:
                    texts = self._read(after, _CHUNK)
                except RefusedError as error:
                    yield b"event: gone\ndata: %s\n\n" % msgspec.json.encode({"error": str(error)})
                    return
                if texts:
                    yield b"".join(
                        b"id: %d\nevent: delta\ndata: %s\n\n" % (number, text)
                        for number, text in enumerate(texts, after + 1)
                    )
                    after += len(texts)
                    if len(texts) < _CHUNK:
                        await asyncio.sleep(_PACE)
                elif self._ended is not None:
                    return
                elif not await self._changed_in_time():
                    yield b": version %d\n\n" % after
        finally:
            self._following -= 1
            self._streams.dec()

    async def _changed_in_time(self) -> bool:
        """Wait until something has happened; False when nothing has for a while."""
        try:
            async with asyncio.timeout(HEARTBEAT):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def end_streams(self, reason: str) -> None:
        """End all streams after their last delta, and accept no more events."""
        self._ended = reason
        self._wake()

    async def close(self, reason: str) -> None:
        """End streams, wait for running work and close the files."""
        self.end_streams(reason)
        async with self._lock:
            self._closed = True
            self._journal.close()
            self._deltas.close()
