"""When tuples are due: streams as they were recorded, or scaled to a rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.problem import Floats, Ints
    from nova_workloads.streams import Stream

BLOCK = 1024  # tuples prepared at once: well below a millisecond of work
SECOND = 1_000_000  # us


@dataclass(frozen=True, eq=False)
class Tuples:
    """Some tuples in the order they are due; all arrays are (t,).

    Attributes:
        stream: index into the streams.
        sequence: number of the tuple in its stream.
        time_ms: event time, ms since the epoch.
        value: what was measured.
        due: us after the start.
    """

    stream: Ints
    sequence: Ints
    time_ms: Ints
    value: Floats
    due: Ints

    def __len__(self) -> int:
        return len(self.due)

    def take(self, rows: Any) -> Tuples:
        """Those rows, by their numbers or by a mask."""
        s = self
        return Tuples(s.stream[rows], s.sequence[rows], s.time_ms[rows], s.value[rows], s.due[rows])


@dataclass(frozen=True)
class Schedule:
    """How streams are replayed.

    With a rate, every stream emits its k-th tuple k / rate seconds after the start, and that is its
    event time; values repeat from the first when they are used up. Without, tuples keep their
    recorded times, ``speed`` times as fast.

    Attributes:
        rate: tuples/s of each stream, or None.
        speed: how much faster than recorded, without a rate.
        start_ms: event time of the start, ms since the epoch; None keeps recorded event times, and
            with a rate means 0.
        duration: seconds to emit for, or None.
        count: tuples per stream, or None. With a rate but neither ``duration`` nor ``count``, the
            values are used once.
        endless: with a rate, repeat the values until ``duration`` or ``count``, or for ever.
    """

    rate: float | None = None
    speed: float = 1.0
    start_ms: int | None = None
    duration: float | None = None
    count: int | None = None
    endless: bool = False

    def tuples(self, streams: Sequence[Stream], origin_ms: int) -> Iterator[Tuples]:
        """The tuples of some streams, block by block, in the order they are due.

        Tuples due at the same time are ordered by stream.

        Args:
            streams: any of those replayed together.
            origin_ms: the earliest recorded time of all replayed together.
        """
        if self.rate is not None:
            return self._scaled(streams, self.rate)
        return self._recorded(streams, origin_ms)

    def _scaled(self, streams: Sequence[Stream], rate: float) -> Iterator[Tuples]:
        most: float = np.inf if self.count is None else self.count
        once = not self.endless and self.count is None and self.duration is None
        if self.duration is not None:
            most = min(most, np.ceil(self.duration * rate))
        length = np.array([len(s) for s in streams])
        limit = np.minimum(most, length) if once else np.full(len(streams), most)
        values = np.concatenate([s.value for s in streams])
        offset = np.cumsum(length) - length
        start = self.start_ms or 0
        step = max(1, BLOCK // len(streams))
        first = 0
        while first < limit.max():
            for some in range(0, len(streams), BLOCK):
                indices = np.arange(some, min(some + BLOCK, len(streams)))
                sequence = np.repeat(np.arange(first, first + step), len(indices))
                stream = np.tile(indices, step)
                if first + step > limit.min():
                    keep = sequence < limit[stream]
                    sequence, stream = sequence[keep], stream[keep]
                value = values[offset[stream] + sequence % length[stream]]
                # A quotient of whole numbers is exact where it is whole: 1 kHz has no rounding.
                due = np.floor(sequence * float(SECOND) / rate).astype(np.int64)
                yield Tuples(stream, sequence, start + due // 1000, value, due)
            first += step

    def _recorded(self, streams: Sequence[Stream], origin_ms: int) -> Iterator[Tuples]:
        sizes = [len(s) if self.count is None else min(len(s), self.count) for s in streams]
        stream = np.repeat(np.arange(len(streams)), sizes)
        time = np.concatenate([s.time[:n] for s, n in zip(streams, sizes, strict=True)])
        value = np.concatenate([s.value[:n] for s, n in zip(streams, sizes, strict=True)])
        sequence = np.concatenate(
            [
                np.arange(n) if s.sequence is None else s.sequence[:n]
                for s, n in zip(streams, sizes, strict=True)
            ]
        )
        due = np.floor((time - origin_ms) * 1000.0 / self.speed).astype(np.int64)
        order = np.lexsort((sequence, stream, due))
        if self.duration is not None:
            order = order[due[order] < self.duration * SECOND]
        if self.start_ms is not None:
            time = time - origin_ms + self.start_ms
        for first in range(0, len(order), BLOCK):
            rows = order[first : first + BLOCK]
            yield Tuples(stream[rows], sequence[rows], time[rows], value[rows], due[rows])


def origin_of(streams: Sequence[Stream]) -> int:
    """The earliest recorded time of some streams, ms since the epoch."""
    return min(int(s.time[0]) for s in streams)


def all_tuples(schedule: Schedule, streams: Sequence[Stream]) -> Tuples:
    """Everything a schedule emits, which must end."""
    blocks = list(schedule.tuples(streams, origin_of(streams)))
    return Tuples(
        *(
            np.concatenate([getattr(block, name) for block in blocks])
            for name in ("stream", "sequence", "time_ms", "value", "due")
        )
    )
