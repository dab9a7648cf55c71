"""The rule ``sequence-share`` in integers, so that both query languages can say it exactly.

`nova_core.model.partitioner` multiplies a sequence number by a constant modulo 2^64 and compares
the top 53 bits, divided by 2^53, with sums of shares. Unsigned 64-bit multiplication wraps by
itself, and s <= (h >> 11) / 2^53 is ceil(s 2^53) 2^11 <= h: two comparisons of integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nova_core.model.partitioner import reached
from nova_core.model.problem import Floats

STEP = 0x9E3779B97F4A7C15
END = 2**64


@dataclass(frozen=True)
class Share:
    """Tuples whose sequence number times `STEP`, modulo 2^64, is in [low, high)."""

    low: int = 0
    high: int = END

    @property
    def whole(self) -> bool:
        """Whether it is every tuple."""
        return self.low == 0 and self.high == END

    def holds(self, sequence: int) -> bool:
        """Whether it has the tuple of that sequence number."""
        return self.low <= sequence * STEP % END < self.high

    def sql(self, field: str) -> str:
        """A condition on a UINT64 field, in the current generation's SQL; empty for all tuples."""
        spread = f"({field} * UINT64({STEP}))"
        parts = [f"{spread} >= UINT64({self.low})"] if self.low else []
        parts += [f"{spread} < UINT64({self.high})"] if self.high < END else []
        return " AND ".join(parts)

    def cpp(self, field: str) -> str:
        """The same in 0.x's C++ query text."""
        spread = f'(Attribute("{field}") * {STEP}u)'
        parts = [f"({spread} >= {self.low}u)"] if self.low else []
        parts += [f"({spread} < {self.high}u)"] if self.high < END else []
        return " && ".join(parts)


def share(rates: Floats, begin: int, end: int) -> Share:
    """What partitions ``begin`` to ``end`` of an input hold.

    Args:
        rates: (m,) rates of the input's partitions, tuples/s.
        begin: first partition.
        end: one past the last.
    """
    ends: list[float] = reached(rates).tolist()

    def bound(partitions: int) -> int:
        return min(END, math.ceil(ends[partitions - 1] * 2**53) << 11)

    return Share(bound(begin) if begin else 0, bound(end) if end < len(ends) else END)
