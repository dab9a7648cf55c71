"""Where the tuples of a job come from and when they are due, independent of any placement."""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError
from nova_engines.documents import from_json, read, to_json
from nova_engines.flow import SOURCE, Flow

REPLAY, READINGS, SOCKET, KAFKA = KINDS = ("replay", "readings", "socket", "kafka")
EARLIEST, LATEST, COMMITTED = BEGINS = ("earliest", "latest", "committed")
PORTS = 1 << 16
LONGEST_S = 86400.0
INTEGER = 2**31 - 1  # the largest that engines hold in 32 bits
EXACT = 2**53 - 1  # the largest that a float holds without rounding
SECOND_US = 1_000_000

# Begin and end, s after the start, and the factor of the rate in between.
Surge = tuple[float, float, float]


@dataclass(frozen=True)
class Pace:
    """When the tuples of a replay are due: parts of different rates, one after the other.

    Attributes:
        first: number of the first tuple of each part.
        due_us: when it is due, us after the start.
        rate: of the part, tuples/s.
    """

    first: tuple[int, ...]
    due_us: tuple[int, ...]
    rate: tuple[float, ...]

    @classmethod
    def of(cls, rate: float, surges: Sequence[Surge] = ()) -> Pace:
        """Of a rate with surges; factors of overlapping surges are multiplied."""
        pace = cls((0,), (0,), (rate,))
        for at in sorted({moment for begin, end, _ in surges for moment in (begin, end)}):
            times = math.prod(times for begin, end, times in surges if begin <= at < end)
            first = pace.before(round(at * SECOND_US))
            pace = cls(
                (*pace.first, first),
                (*pace.due_us, pace.due(first)),
                (*pace.rate, rate * times),
            )
        return pace

    def due(self, sequence: int) -> int:
        """When a tuple is due, us after the start."""
        part = bisect_right(self.first, sequence) - 1
        since = (sequence - self.first[part]) * float(SECOND_US) / self.rate[part]
        return self.due_us[part] + int(since)

    def before(self, us: int) -> int:
        """How many tuples are due before a time, us after the start."""
        part = max(bisect_right(self.due_us, us) - 1, 0)
        since = max(us - self.due_us[part], 0) * self.rate[part] / SECOND_US
        sequence = self.first[part] + int(since)
        # Rounding may put a tuple on either side.
        while sequence > 0 and self.due(sequence - 1) >= us:
            sequence -= 1
        while self.due(sequence) < us:
            sequence += 1
        return sequence

    @property
    def numbers(self) -> list[float]:
        """For engines: first, due_us and rate of each part."""
        parts = zip(self.first, self.due_us, self.rate, strict=True)
        return [float(number) for part in parts for number in part]

    def pack(self) -> bytes:
        """The same as little-endian 64-bit floats."""
        return struct.pack(f"<{3 * len(self.first)}d", *self.numbers)


@dataclass(frozen=True)
class Clock:
    """Event time and the time of day: both run on from a moment, one ``speed`` times as fast.

    The same sums as in EventClock.java. Without arguments, both are the same.

    Attributes:
        first_ms: event time of the moment.
        start_ms: its time of day, ms since the epoch.
        speed: ms of event time per ms; more than 0.
    """

    first_ms: int = 0
    start_ms: int = 0
    speed: float = 1.0

    def event_ms(self, time_ms: int) -> int:
        """Event time at a time of day, ms."""
        return self.first_ms + math.floor((time_ms - self.start_ms) * self.speed)

    def time_ms(self, event_ms: int) -> int:
        """Time of day at an event time, ms since the epoch."""
        return self.start_ms + math.ceil((event_ms - self.first_ms) / self.speed)

    def event_span_ms(self, ms: int) -> int:
        """Event time that passes in so many ms."""
        return math.ceil(ms * self.speed)


@dataclass(frozen=True)
class Source:
    """One physical stream.

    Attributes:
        source: id of the problem's source.
        rate: tuples/s; tuple k of a replay is due ``floor(k * 1e6 / rate)`` us after the start,
            but for surges. Readings have their own times; those that come through Kafka have 0.
        sensor: name of the sensor; the source's id where it is empty.
        stream: the logical stream, ``pressure`` or ``humidity``.
        region: what it is joined within; the engine compares it.
        values: what a replay emits, from the first again when they are used up.
        path: file on the client's host: of a replay little-endian 64-bit floats, instead of
            ``values``; of readings encoded tuples (`nova_workloads.queries.readings.encode`). In a
            file of sources, it is relative to that file.
        kind: ``replay``; ``readings``, tuples with columns and their own event times; ``socket``
            reads lines of `nova_workloads.tuple_text` (CSV) from ``address``, ``kafka`` a topic.
        address: ``host:port`` to connect to, or Kafka's bootstrap servers.
        topic: of Kafka.
        partition: of the topic; holds tuples of this source alone, in order.
        begin: where reading it begins: ``earliest``, ``latest``, ``committed`` (by the group;
            the first message where it has committed none), or the first message of a time, ms since
            the epoch.
        group: Kafka's consumer group, whose offsets are committed; none if empty.
        connect_s: for how long to try to connect to a socket, s; then the job fails.
        surges: times in which a replay has another rate; on Flink and Storm.
    """

    source: str
    rate: float = 0.0
    sensor: str = ""
    stream: str = ""
    region: str = ""
    values: tuple[float, ...] = ()
    path: str | None = None
    kind: str = REPLAY
    address: str = ""
    topic: str = ""
    partition: int = 0
    begin: str = EARLIEST
    group: str = ""
    connect_s: float = 60.0
    surges: tuple[Surge, ...] = ()

    def __post_init__(self) -> None:
        where = f"source {self.source!r}"
        if self.kind not in KINDS:
            raise NovaError(f"{where}: kind {self.kind!r}: expected one of {', '.join(KINDS)}")
        if not (self.of_readings or (math.isfinite(self.rate) and self.rate > 0)):
            raise NovaError(f"{where}: rate {self.rate:g}: expected more than 0 tuples/s")
        if self.surges and self.kind != REPLAY:
            # Readings that came faster would be ahead of the other sources from then on.
            raise NovaError(f"{where}: surges: only a replay has any, others have their own times")
        for begin, end, times in self.surges:
            if not (0 <= begin < end < math.inf and 0 < times < math.inf):
                raise NovaError(
                    f"{where}: surge {begin:g}, {end:g}, {times:g}: expected a begin, a later end, "
                    "s, and a number above 0"
                )
        if self.kind == REPLAY and not self.values and self.path is None:
            raise NovaError(f"{where}: nothing to replay: give values or path")
        if self.kind == READINGS and self.path is None:
            raise NovaError(f"{where}: path is missing: where are its readings?")
        if not all(map(math.isfinite, self.values)):
            raise NovaError(f"{where}: values: expected finite numbers")
        if self.kind in (SOCKET, KAFKA) and ":" not in self.address:
            raise NovaError(f"{where}: address {self.address!r}: expected host:port")
        if self.kind == SOCKET:
            host, port = self.endpoint
            if not host or not 0 < port < PORTS:
                raise NovaError(f"{where}: address {self.address!r}: expected host:port")
            if not 0 < self.connect_s <= LONGEST_S:
                raise NovaError(
                    f"{where}: connect_s {self.connect_s:g}: expected 0 to {LONGEST_S:g} s"
                )
        if self.kind == KAFKA and not self.topic:
            raise NovaError(f"{where}: topic is missing")
        if self.begin not in BEGINS and not re.fullmatch("[0-9]{1,15}", self.begin):
            raise NovaError(
                f"{where}: begin {self.begin!r}: expected {', '.join(BEGINS)}, or a time in ms "
                "since the epoch"
            )
        if self.begin == COMMITTED and not self.group:
            raise NovaError(f"{where}: begin {COMMITTED}: whose? give a group as well")
        if self.partition < 0:
            raise NovaError(f"{where}: partition {self.partition}: expected 0 or more")

    def encoded(self) -> bytes:
        """What engines' sources hold: of readings their file, of a replay 64-bit floats.

        Raises:
            NovaError: where there is nothing, for a file that cannot be read, or that is no
                sequence of such numbers.
        """
        if self.path is None and not self.values:
            raise NovaError(f"source {self.source!r}: no values to send, and no path")
        if self.path is None:
            return struct.pack(f"<{len(self.values)}d", *self.values)
        try:
            data = Path(self.path).read_bytes()
        except OSError as error:
            raise NovaError(f"{self.path}: {error.strerror}") from error
        if not self.of_readings and (not data or len(data) % 8):
            raise NovaError(f"{self.path}: {len(data)} bytes: expected 64-bit floats")
        return data

    def replayed_values(self) -> tuple[float, ...]:
        """What a replay emits, over and over; errors as of `encoded`."""
        data = self.encoded()
        return struct.unpack(f"<{len(data) // 8}d", data)

    @property
    def of_readings(self) -> bool:
        """Whether its tuples are readings: they have columns, and their own event times."""
        return self.kind == READINGS or (self.kind == KAFKA and self.rate == 0)

    @cached_property
    def pace(self) -> Pace:
        """When the tuples of a replay are due."""
        return Pace.of(self.rate, self.surges)

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of a socket; port 0 where the address has no number."""
        return host_and_port(self.address)


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of HOST:PORT, without brackets; port 0 where it is no number."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port) if port.isascii() and port.isdigit() else 0


@dataclass(frozen=True)
class Sources:
    """All sources of a job, and what holds for them together.

    Event time and the time of day run alike, at the same speed, from ``first_ms`` and ``start_ms``
    on. Of replays, sockets and Kafka both are the same.

    Attributes:
        sources: the physical streams; results of pairs name them by their index here.
        start_ms: when the first tuple of all is emitted, ms since the epoch; at once where that has
            passed. Replays begin together.
        count: tuples per source, after which the job ends by itself; None is without end. A
            socket that is closed earlier is reconnected. Sources with surges emit for as long as
            they would without. Readings end with their files.
        first_ms: of readings: event time of the first tuple of all; None for ``start_ms``.
        last_ms: of readings: event time of the last tuple of all. Sources that take orders end
            after it together, as each has to answer until then.
        speed: of readings: ms of event time per ms; 0 emits them as fast as they are taken.
        watermark_ms: watermarks are as far apart in event time, or as windows end, whichever is
            rarer.
        buffer_timeout_ms: how long a tuple may wait for the watermark with which it is sent.
        strict: whether input from a socket or broker that is no tuple of its source ends the job;
            otherwise it is counted and kept aside.
        control: absolute path of a directory on the sources' hosts with orders to sources when to
            begin and end (`nova_engines.handover`); if empty, they begin at ``start_ms``. Sockets
            take no orders: what one job has read from them, another one cannot read again.
        checkpoint_ms: interval of checkpoints, from which Flink restarts a failed job of replays;
            0: a failed job ends.
    """

    sources: tuple[Source, ...]
    start_ms: int = 0
    count: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    speed: float = 1.0
    watermark_ms: int = 10
    buffer_timeout_ms: int = 100
    strict: bool = False
    control: str = ""
    checkpoint_ms: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("watermark_ms", 1, INTEGER),
            ("buffer_timeout_ms", 0, INTEGER),
            ("checkpoint_ms", 0, INTEGER),
            ("start_ms", 0, EXACT),
            ("count", 0, EXACT),
            ("speed", 0, EXACT),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise NovaError(f"sources: {name} {value}: expected {least} to {most}")
        if not self.sources:
            raise NovaError("sources: there are none")
        if len({one.of_readings for one in self.sources}) > 1:
            raise NovaError("sources: expected only readings, or none")
        own = (self.first_ms, self.last_ms) != (None, None) or self.speed != 1
        if not self.of_readings and own:
            raise NovaError("sources: first_ms, last_ms, speed: only readings have their own time")
        if self.of_readings and self.count is not None:
            raise NovaError("sources: count: readings end with their files")
        self._check_control()
        seen: set[str] = set()
        for one in self.sources:
            if one.source in seen:
                raise NovaError(f"sources: {one.source!r} is there twice")
            seen.add(one.source)

    def _check_control(self) -> None:
        if self.of_readings and self.checkpoint_ms:
            raise NovaError(
                "sources: checkpoint_ms: jobs of readings are not started again: what their "
                "operators have gathered is in memory only"
            )
        if not self.control:
            return
        if not self.control.startswith("/"):
            raise NovaError(f"sources: control {self.control!r}: expected an absolute path")
        if self.checkpoint_ms:
            raise NovaError("sources: checkpoint_ms: jobs under control are not started again")
        if SOCKET in self.kinds or (self.of_readings and READINGS not in self.kinds):
            what = "sockets" if SOCKET in self.kinds else "readings through Kafka"
            raise NovaError(
                f"sources: control: those of {what} cannot be told when to begin and end"
            )
        if READINGS in self.kinds and (self.last_ms is None or not self.speed):
            raise NovaError(
                "sources: control: readings that can be told when to begin and end need last_ms, "
                "and a speed above 0"
            )
        if len(self.kinds) > 1:
            raise NovaError("sources: control: expected only replays, or only Kafka")

    @cached_property
    def kinds(self) -> set[str]:
        """Kinds of sources that there are."""
        return {one.kind for one in self.sources}

    @cached_property
    def of_readings(self) -> bool:
        """Whether their tuples are readings, see `Source`."""
        return any(one.of_readings for one in self.sources)

    @property
    def begin_ms(self) -> int:
        """Event time of the first tuple of all, ms."""
        return self.start_ms if self.first_ms is None else self.first_ms

    @property
    def clock(self) -> Clock:
        """Event time by the time of day; there is none at speed 0."""
        return Clock(self.begin_ms, self.start_ms, self.speed)

    def due_us(self, time_ms: Any) -> Any:
        """When tuples are due, us after the start: all at once at speed 0.

        Args:
            time_ms: event time, ms; a number, or an array of them.
        """
        return (time_ms - self.begin_ms) * 1000 / (self.speed or math.inf)

    def index(self, source: str) -> int:
        """Number of a source.

        Raises:
            NovaError: where there is none of that id.
        """
        number = self._numbers.get(source)
        if number is None:
            known = ", ".join(self._numbers)
            raise NovaError(f"sources: {source!r} is not there; there are {known}")
        return number

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {one.source: number for number, one in enumerate(self.sources)}

    def require(self, flow: Flow) -> None:
        """Refuse to do without a flow's sources.

        Raises:
            NovaError: where one is not there.
        """
        for one in flow.of_kind(SOURCE):
            self.index(one.source)

    def count_of(self, number: int) -> int | None:
        """Tuples of a source, by its index, after which it ends; None is without end."""
        one = self.sources[number]
        if self.count is None or not one.surges:
            return self.count
        return one.pace.before(int(self.count * float(SECOND_US) / one.rate))

    def read_from(self, time_ms: int) -> Sources:
        """The same, with Kafka's messages read from a time on, ms since the epoch."""
        sources = tuple(
            replace(one, begin=str(time_ms)) if one.kind == KAFKA else one for one in self.sources
        )
        return replace(self, sources=sources)

    def to_json(self) -> str:
        """As JSON text."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str, where: str = "sources") -> Sources:
        """From JSON text; errors name ``where``.

        Raises:
            NovaError: naming the field and what it should hold.
        """
        return from_json(text, cls, where)

    @classmethod
    def read(cls, path: Path) -> Sources:
        """From a file of JSON.

        Raises:
            NovaError: naming the file, the field and what it should hold.
        """
        there = read(path, cls)
        return there.with_paths(
            {
                one.source: str(path.parent / one.path)
                for one in there.sources
                if one.path is not None
            }
        )

    def with_paths(self, paths: Mapping[str, str]) -> Sources:
        """The same, with the files of some sources elsewhere."""
        moved = (replace(one, path=paths.get(one.source, one.path)) for one in self.sources)
        return replace(self, sources=tuple(moved))


def partitions_of(streams: Sequence[str]) -> list[tuple[str, int]]:
    """The topic and partition of every source, by the names of their logical streams."""
    count: dict[str, int] = {}
    partitions = []
    for stream in streams:
        number = count.get(stream, 0)
        count[stream] = number + 1
        partitions.append((stream, number))
    return partitions


def through(
    sources: Sources,
    servers: str,
    topics: Mapping[str, tuple[str, int]] | None = None,
    begin: str = EARLIEST,
    group: str = "",
) -> Sources:
    """The same streams, read from a broker; they keep what producers send there.

    Args:
        sources: any.
        servers: Kafka's bootstrap servers.
        topics: topic and partition of sources that are not where `partitions_of` has them.
        begin: where reading begins.
        group: of the readers.
    """
    placed = partitions_of([one.stream or one.source for one in sources.sources])
    read = []
    for one, at in zip(sources.sources, placed, strict=True):
        topic, number = (topics or {}).get(one.source, at)
        rate = 0.0 if one.of_readings else one.rate
        there = replace(one, kind=KAFKA, rate=rate, address=servers, topic=topic, partition=number)
        read.append(replace(there, begin=begin, group=group))
    return replace(sources, sources=tuple(read))
