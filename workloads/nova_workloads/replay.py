"""Replaying streams: every tuple when it is due, and a summary."""

from __future__ import annotations

import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_workloads.pacing import Clock, Lateness
from nova_workloads.schedule import SECOND, Schedule, origin_of

if TYPE_CHECKING:
    from nova_workloads.outputs import Output
    from nova_workloads.streams import Stream
    from nova_workloads.tuple_text import TupleText

# Tuples of one batch, so that a reader that was slow for long gets true times of sending.
MOST_AT_ONCE = 4096
PATIENCE = 1.0  # seconds a reader has to take the rest when a replay is stopped
SPLITS = ("none", "sensor", "stream", "region")


@dataclass
class Progress:
    """The progress of a replay.

    Attributes:
        tuples: sent so far.
        seconds: since the start.
        lag: seconds the tuple most overdue has been waiting.
        waiting: outputs whose reader is slower than the stream.
    """

    tuples: int
    seconds: float
    lag: float
    waiting: list[str]


class Lane:
    """Streams that share an output, in the order their tuples are due."""

    def __init__(
        self, name: str, streams: Sequence[Stream], output: Output, text: TupleText
    ) -> None:
        self.name, self.streams, self.output, self.text = name, streams, output, text
        self.sent = self.bytes = 0
        self.lateness = Lateness()
        self.blocked = 0.0  # us
        self.last = 0.0  # when the last tuple was sent, us
        self.last_due = 0.0  # when it was due
        self.done = False
        self._blocked_since: float | None = None
        self._lines: list[str] = []
        self._due: list[int] = []
        self._next = 0

    def begin(self, schedule: Schedule, origin_ms: int) -> None:
        """Prepare the first tuples."""
        self._blocks = schedule.tuples(self.streams, origin_ms)
        if self.output.is_file and self.text.header:
            self.output.write(self.text.header.encode())
        self._load()

    def _load(self) -> None:
        block = next(self._blocks, None)
        self._next = 0
        if block is None:
            self._lines, self._due = [], []
            self.done = True
        else:
            self._lines, self._due = self.text.lines(block), block.due.tolist()

    @property
    def due(self) -> float:
        """When the next tuple is due, us."""
        return float(self._due[self._next])

    @property
    def waiting(self) -> bool:
        """Whether the reader has not taken all sent tuples."""
        return self._blocked_since is not None

    def emit(self, clock: Clock, paced: bool) -> None:
        """Send due tuples, unless the reader has not taken earlier ones."""
        while not self.done:
            now = clock.now()
            if not self.output.ready():
                if self._blocked_since is None:
                    self._blocked_since = now
                return
            if self._blocked_since is not None:
                self.blocked += now - self._blocked_since
                self._blocked_since = None
            end = bisect_right(self._due, now, self._next) if paced else len(self._due)
            end = min(end, self._next + MOST_AT_ONCE)
            if end > self._next:
                batch = self._lines[self._next : end]
                data = self.text.stamped(batch, time.time_ns() // 1000)
                if paced:
                    self.lateness.add(now - self._due[self._next])
                self.output.write(data)
                self.sent += len(batch)
                self.bytes += len(data)
                self.last, self.last_due = now, float(self._due[end - 1])
                self._next = end
            if self._next < len(self._due):
                return
            self._load()
            if not paced:
                return  # the others' turn


@dataclass(frozen=True)
class Part:
    """Figures of one output.

    Attributes:
        name: of the streams in it; empty for all.
        to: where they went.
        streams: how many.
        tuples: sent.
        bytes: sent.
        seconds: the time it took, until the next tuple would have been due.
        asked: tuples/s of the schedule in that time.
        achieved: tuples/s.
        late_p50_ms: how late a batch was in the median.
        late_p99_ms: 99th percentile.
        late_max_ms: greatest.
        blocked_seconds: how long its reader held it up.
    """

    name: str
    to: str
    streams: int
    tuples: int
    bytes: int
    seconds: float
    asked: float
    achieved: float
    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float
    blocked_seconds: float


@dataclass(frozen=True)
class Summary:
    """Figures of a replay.

    Attributes:
        start_ms: event time of the start, or None where recorded times were kept.
        parts: per output.
        total: over all.
        cpu_share: of one core, of the whole process while it replayed.
        paced: whether it kept to a schedule.
        interrupted: whether it was interrupted.
        error: the error that stopped it, or None.
    """

    start_ms: int | None
    parts: list[Part]
    total: Part
    cpu_share: float
    paced: bool
    interrupted: bool
    error: str | None


@dataclass
class Replay:
    """A replay to be run.

    Attributes:
        lanes: streams with their outputs.
        schedule: when tuples are due.
        tick_ms: how often to check for due tuples.
        paced: send tuples when they are due; else as fast as the readers take them.
        report: called about once a second.
    """

    lanes: list[Lane]
    schedule: Schedule
    tick_ms: float = 1.0
    paced: bool = True
    report: Callable[[Progress], None] | None = None
    _reported: float = field(default=0.0, init=False)
    _stop: bool = field(default=False, init=False)

    def run(self, start_ms: int | None = None) -> Summary:
        """Replay until everything is sent, or until SIGINT or SIGTERM; the second one kills.

        Args:
            start_ms: moment to start at, ms since the epoch; None starts now.

        Returns:
            the summary; after an interrupt or an error of an output as well.
        """
        origin = origin_of([stream for lane in self.lanes for stream in lane.streams])
        failure = None
        clock = Clock(self.tick_ms, start_ms)
        cpu = began = 0.0
        with _signals(self._interrupt):
            try:
                for lane in self.lanes:
                    lane.begin(self.schedule, origin)
                while clock.now() < 0 and not self._stop:
                    clock.sleep_until(0)
                cpu, began = time.process_time(), time.monotonic()
                self._loop(clock)
            except NovaError as error:
                failure = str(error)
            ended, wall = clock.now(), time.monotonic() - began
            for lane in self.lanes:
                try:
                    if failure is None:
                        lane.output.close(PATIENCE if self._stop else None)
                    else:
                        lane.output.abort()
                except NovaError as error:
                    failure = failure or str(error)
            cpu = time.process_time() - cpu
        interrupted = self._stop
        parts = [self._part(lane, ended, interrupted) for lane in self.lanes]
        return Summary(
            start_ms=self.schedule.start_ms,
            parts=parts,
            total=self._total(parts),
            cpu_share=cpu / max(wall, 1e-9),
            paced=self.paced,
            interrupted=interrupted,
            error=failure,
        )

    def _interrupt(self) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True

    def _loop(self, clock: Clock) -> None:
        active = [lane for lane in self.lanes if not lane.done]
        while active and not self._stop:
            for lane in active:
                lane.emit(clock, self.paced)
            if any(lane.done for lane in active):
                active = [lane for lane in active if not lane.done]
            self._tell(clock, active)
            waiting = any(lane.waiting for lane in active)
            if waiting and (self.paced or all(lane.waiting for lane in active)):
                clock.sleep_a_tick()
            elif self.paced and active:
                clock.sleep_until(min(lane.due for lane in active))

    def _tell(self, clock: Clock, active: list[Lane]) -> None:
        now = clock.now()
        if self.report is None or now - self._reported < SECOND:
            return
        self._reported = now
        lag = max((now - lane.due for lane in active), default=0.0) if self.paced else 0.0
        self.report(
            Progress(
                tuples=sum(lane.sent for lane in self.lanes),
                seconds=now / SECOND,
                lag=max(lag, 0.0) / SECOND,
                waiting=[lane.output.name for lane in active if lane.waiting],
            )
        )

    def _part(self, lane: Lane, ended: float, interrupted: bool) -> Part:
        rate = self.schedule.rate
        count = len(lane.streams)
        # The last tuple's turn lasts until the next one would be due.
        turn = lane.sent / count / rate * SECOND if rate else lane.last_due
        until = max(ended if interrupted else lane.last, turn if self.paced else 0.0, 1.0)
        requested_rate = rate * count if rate else lane.sent / max(lane.last_due, 1.0) * SECOND
        late = lane.lateness
        return Part(
            name=lane.name,
            to=lane.output.name,
            streams=count,
            tuples=lane.sent,
            bytes=lane.bytes,
            seconds=until / SECOND,
            asked=requested_rate if self.paced else 0.0,
            achieved=lane.sent / until * SECOND,
            late_p50_ms=late.quantile(0.5) / 1000,
            late_p99_ms=late.quantile(0.99) / 1000,
            late_max_ms=late.greatest / 1000,
            blocked_seconds=lane.blocked / SECOND,
        )

    def _total(self, parts: list[Part]) -> Part:
        late = Lateness()
        for lane in self.lanes:
            late.merge(lane.lateness)
        seconds = max(part.seconds for part in parts)
        tuples = sum(part.tuples for part in parts)
        return Part(
            name="all",
            to="",
            streams=sum(part.streams for part in parts),
            tuples=tuples,
            bytes=sum(part.bytes for part in parts),
            seconds=seconds,
            asked=sum(part.asked for part in parts),
            achieved=tuples / seconds,
            late_p50_ms=late.quantile(0.5) / 1000,
            late_p99_ms=late.quantile(0.99) / 1000,
            late_max_ms=late.greatest / 1000,
            blocked_seconds=max(part.blocked_seconds for part in parts),
        )


@contextmanager
def _signals(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call a function on SIGINT and SIGTERM, between batches rather than within one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda *_: interrupt())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def groups(streams: Sequence[Stream], split: str) -> dict[str, list[Stream]]:
    """Streams that share an output, by its name.

    Args:
        streams: all of them.
        split: one of `SPLITS`.
    """
    names: dict[str, Callable[[Stream], Any]] = {
        "none": lambda s: "",
        "sensor": lambda s: s.sensor,
        "stream": lambda s: s.stream,
        "region": lambda s: s.region,
    }
    by_name: dict[str, list[Stream]] = {}
    for stream in streams:
        by_name.setdefault(names[split](stream), []).append(stream)
    return by_name
