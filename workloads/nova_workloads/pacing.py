"""Keeping to a schedule: what is due by now, without drift, and how late it was."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

NS = 1_000_000_000
STEPS = 16  # buckets of lateness per factor of two, which makes them 4.4 % wide


@dataclass
class Lateness:
    """How long after they were due tuples were sent, as a histogram of constant size.

    Attributes:
        counts: how many per bucket.
        greatest: us.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (STEPS * 40))
    greatest: float = 0.0

    def add(self, microseconds: float, times: int = 1) -> None:
        """Count tuples that are so late; negative lateness counts as 0."""
        late = max(microseconds, 0.0)
        bucket = int(math.log2(late + 1) * STEPS)
        self.counts[min(bucket, len(self.counts) - 1)] += times
        self.greatest = max(self.greatest, late)

    def merge(self, other: Lateness) -> None:
        """Take in another histogram."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.greatest = max(self.greatest, other.greatest)

    def quantile(self, q: float) -> float:
        """The quantile ``q`` of lateness, us: at most 4.4 % above the true one."""
        rank, seen = q * sum(self.counts), 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= rank:
                return min(2 ** ((bucket + 1) / STEPS) - 1, self.greatest)
        return 0.0


class Clock:
    """An absolute schedule: its ticks never move, even when one is noticed late.

    A time on it is the number of us since the start.

    Attributes:
        start_ms: the start, ms since the epoch.
    """

    def __init__(self, tick_ms: float, start_ms: int | None = None) -> None:
        """Start now, or at a moment.

        Args:
            tick_ms: how often to look at most.
            start_ms: ms since the epoch; a moment in the past makes everything due since.
        """
        monotonic, wall = time.monotonic_ns(), time.time_ns()
        self.start_ms = wall // 1_000_000 if start_ms is None else start_ms
        self._start = monotonic + (self.start_ms * 1_000_000 - wall)
        self._tick = int(tick_ms * 1_000_000)

    def now(self) -> float:
        """Us since the start; negative before it."""
        return (time.monotonic_ns() - self._start) / 1000

    def sleep_until(self, due: float, at_most: float = 0.5) -> None:
        """Sleep to the first tick at or after a time (us), at most so many seconds."""
        tick = -(-int(due * 1000) // self._tick) * self._tick
        rest = (tick + self._start - time.monotonic_ns()) / NS
        if rest > 0:
            time.sleep(min(rest, at_most))

    def sleep_a_tick(self) -> None:
        """Sleep to the next tick."""
        self.sleep_until(self.now() + 1)
