"""A live placement that several clients use at once: one writer, any number that follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta
from nova_core.placement.live import Event, Journal, LivePlacement
from nova_core.service.deltas import DeltaLog, ForgottenError
from nova_core.service.documents import PlacementSummary
from nova_core.service.metrics import Metrics

T = TypeVar("T")

# Journal entries after which the state is written anew.
CHECKPOINT = 100_000
# An event that may move more joins is followed in a thread, so that other clients need not wait
# for it; a thread costs as much as moving some.
MANY_JOINS = 30
# Seconds after which a stream that has nothing to tell says so, to find out who has left.
HEARTBEAT = 15.0
_CHUNK = 256
# Seconds between two pieces of a stream: many deltas go out together when many come.
_PACE = 0.005


class StaleError(NovaError):
    """A client expected another version than there is."""


class UnwritableError(NovaError):
    """A placement whose journal could not be written; it takes no events until a restart."""


class HostedPlacement:
    """A placement with its journal and its deltas on disk.

    Requests run in one event loop; what takes long runs in a thread, and keeps the lock meanwhile.

    Attributes:
        name: what clients call it.
        failed: why it takes no events, or None.
    """

    def __init__(
        self, name: str, journal: Journal, deltas: DeltaLog, sync: bool, metrics: Metrics
    ) -> None:
        """Use `create` or `resume`."""
        self.name = name
        self.failed: str | None = None
        self._journal = journal
        self._deltas = deltas
        self._sync = sync
        self._lock = asyncio.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._snapshot: tuple[int, Plan] | None = None
        self._warm = False
        self._ended: str | None = None
        self._closed = False
        self._events = {
            outcome: lambda kind, outcome=outcome: metrics.events.labels(name, kind, outcome)
            for outcome in ("followed", "refused")
        }
        self._seconds = metrics.event_seconds.labels(name)
        self._moves = metrics.moves.labels(name)
        self._version = metrics.version.labels(name)
        self._streams = metrics.streams.labels(name)
        self._following = 0
        self._version.set(self.version)

    @classmethod
    def create(
        cls, name: str, directory: Path, live: LivePlacement, sync: bool, metrics: Metrics
    ) -> HostedPlacement:
        """Begin one; it is there when its state has been written."""
        deltas = DeltaLog(directory / "deltas", live.version)
        return cls(name, Journal.create(directory, live, sync=sync), deltas, sync, metrics)

    @classmethod
    def resume(cls, name: str, directory: Path, sync: bool, metrics: Metrics) -> HostedPlacement:
        """Go on with one, as if nothing had happened.

        Raises:
            NovaError: when its journal cannot be read.
        """
        replayed: list[PlanDelta] = []
        journal = Journal.resume(directory, sync=sync, heard=replayed.append)
        version = journal.live.version
        deltas = DeltaLog(directory / "deltas", version - len(replayed))
        deltas.cut(version)
        for delta in replayed[len(replayed) - (version - deltas.last) :]:
            deltas.append(msgspec.json.encode(delta))
        return cls(name, journal, deltas, sync, metrics)

    # --- what there is ----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Events so far; a batch is one."""
        # Not the journal's: that is ahead until the delta can be read.
        return self._deltas.last

    @property
    def summary(self) -> PlacementSummary:
        """A few figures."""
        return PlacementSummary(
            name=self.name,
            version=self.version,
            oldest=self._deltas.first,
            streams=self._following,
            failed=self.failed,
        )

    async def plan(self) -> Plan:
        """The plan as it is, with its problem; its version is in its notes."""
        return await self._exclusively(self._read_out, apart=True)

    def _read_out(self) -> Plan:
        if self._snapshot is None or self._snapshot[0] != self.version:
            self._snapshot = (self.version, self._journal.live.plan())
        return self._snapshot[1]

    def deltas(self, after: int, limit: int) -> list[bytes]:
        """Up to ``limit`` deltas after a version, as JSON.

        Raises:
            ForgottenError: when they are no longer kept, or not there yet.
        """
        found: list[bytes] = []
        while len(found) < limit:
            more = self._deltas.read(after + len(found), limit - len(found))
            if not more:
                break
            found += more
        return found

    # --- what happens -----------------------------------------------------------------------------

    async def follow(self, event: Event, expected: int | None) -> tuple[bytes, int]:
        """Follow an event; its delta as JSON, and the version it leads to.

        Args:
            event: what happened.
            expected: the version that the client knows; None for any.

        Raises:
            StaleError: when it is another.
            InfeasibleError: as `LivePlacement.apply`.
            ProblemError: as `LivePlacement.apply`.
            UnwritableError: when the journal cannot be written.
        """
        long = not self._warm or self._sync or self._journal.live.reach(event) > MANY_JOINS
        answer = await self._exclusively(lambda: self._apply(event, expected), apart=long)
        self._wake()
        if self._journal.since_checkpoint >= CHECKPOINT and not self._tasks:
            task = asyncio.create_task(self._checkpoint())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    def _apply(self, event: Event, expected: int | None) -> tuple[bytes, int]:
        self._require_writable()
        if expected is not None and expected != self.version:
            raise StaleError(f"{self.name} is at version {self.version}, not {expected}")
        begin = time.perf_counter()
        kind = str(event.__struct_config__.tag)
        try:
            delta = self._journal.apply(event)
            text = msgspec.json.encode(delta)
            self._deltas.append(text)
        except (InfeasibleError, ProblemError):
            self._events["refused"](kind).inc()
            raise
        except OSError as error:
            raise self._fail(error) from error
        finally:
            self._warm = True
        self._seconds.observe(time.perf_counter() - begin)
        self._events["followed"](kind).inc()
        self._moves.inc(len(delta.move))
        self._version.set(delta.new_version)
        return text, delta.new_version

    def _require_writable(self) -> None:
        if self._ended is not None:
            raise UnwritableError(f"{self.name}: {self._ended}")
        if self.failed is not None:
            raise UnwritableError(f"{self.name} takes no events until a restart: {self.failed}")

    def _fail(self, error: OSError | NovaError) -> UnwritableError:
        # What is in memory may be ahead of the disk now: going on would diverge from a restart.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        self.failed = f"its journal cannot be written: {reason}"
        return UnwritableError(f"{self.name} takes no events until a restart: {self.failed}")

    async def _checkpoint(self) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(self._journal.checkpoint)
                self._deltas.rotate()
            except (OSError, NovaError) as error:
                self._fail(error)

    async def _exclusively(self, work: Callable[[], T], *, apart: bool) -> T:
        """Work that nothing else disturbs; ``apart``: in a thread, to its end in any case."""
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

        A client that is slow is told later, from disk; it never misses one.
        """
        self._following += 1
        self._streams.inc()
        try:
            yield b"retry: 1000\n: from version %d\n\n" % after
            while not self._closed:
                try:
                    found = self._deltas.read(after, _CHUNK)
                except ForgottenError as error:
                    yield b"event: gone\ndata: %s\n\n" % msgspec.json.encode({"error": str(error)})
                    return
                if found:
                    yield b"".join(
                        b"id: %d\nevent: delta\ndata: %s\n\n" % (number, text)
                        for number, text in enumerate(found, after + 1)
                    )
                    after += len(found)
                    if len(found) < _CHUNK:
                        await asyncio.sleep(_PACE)
                elif self._ended is not None:
                    return
                elif not await self._news(HEARTBEAT):
                    yield b": version %d\n\n" % after
        finally:
            self._following -= 1
            self._streams.dec()

    async def _news(self, seconds: float) -> bool:
        """Wait until something has happened; False when nothing has."""
        news = asyncio.get_running_loop().create_future()
        self._waiting.add(news)
        try:
            async with asyncio.timeout(seconds):
                await news
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(news)
        return True

    def _wake(self) -> None:
        for news in self._waiting:
            if not news.done():
                news.set_result(None)
        self._waiting.clear()

    def end_streams(self, reason: str) -> None:
        """End all streams when they have told all there is, and take no more events."""
        self._ended = reason
        self._wake()

    async def close(self, reason: str) -> None:
        """End streams, wait for what is under way and close the files."""
        self.end_streams(reason)
        async with self._lock:
            self._closed = True
            self._journal.close()
            self._deltas.close()


__all__ = ["CHECKPOINT", "HostedPlacement", "StaleError", "UnwritableError"]
