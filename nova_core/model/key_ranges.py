"""Joins that are cut by key: which tuples a range of their partitions stands for.

Keys that are frequent ("hot") come first, each with partitions of its own; the others share what is
left by their hash. A tuple whose key is hot goes to one of that key's partitions by its number, if
it is of the left input, and to all of them, if it is of the right one. So every two tuples of one
key meet exactly once, however many hosts a key is spread over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from nova_core.model.partitioner import reached

if TYPE_CHECKING:
    from nova_core.model.problem import Floats, Ints
    from nova_core.model.queries import Join


KEY_RANGES = 64
"""Into about so many ranges a join is cut by key; a key with the share of one, or more, is hot."""
COMPARING = 0.1
"""What comparing two tuples of one key costs, in tuples received (docs/results.md, on Flink)."""


@dataclass(frozen=True, eq=False)
class KeyRanges:
    """How a join's partitions are dealt to its keys.

    Attributes:
        first: (h + 2,) first partition of each hot key, of the others, and their end.
        left: (h + 1,) shares of the left input: of each hot key, of the others.
        right: (h + 1,) shares of the right input.
        emitted: (h + 1,) shares of the results.
    """

    first: Ints
    left: Floats
    right: Floats
    emitted: Floats

    @classmethod
    def of(cls, join: Join, rates: Floats) -> KeyRanges:
        """Those of a join with these partitions.

        A hot key has the partitions up to that whose end is nearest to the sum of the shares so
        far; one that has none that way counts as the others.

        Args:
            join: with its keys.
            rates: (m,) of the left input's partitions, tuples/s.
        """
        left, right = shares(join)
        ends = np.concatenate(([0.0], reached(rates)))
        nearest = np.abs(ends[:, None] - np.cumsum(left[:-1])).argmin(axis=0)
        first = np.concatenate(([0], np.maximum.accumulate(nearest), [len(rates)])).astype(np.int64)
        # Keys without partitions of their own are dealt with the others.
        none = np.append(np.diff(first[:-1]) == 0, False)
        for column in (left, right):
            column[-1] += column[none].sum()
            column[none] = 0.0
        emitted = _met(join, left, right, int((~none[:-1]).sum()))
        emitted = emitted / emitted.sum() if emitted.sum() > 0 else left
        return cls(first, left, right, emitted)

    @property
    def whole(self) -> bool:
        """Whether the keys that are not hot have a partition."""
        return bool(self.first[-2] < self.first[-1])

    def shares(self, begin: Ints, end: Ints) -> tuple[Floats, Floats]:
        """Shares of the right input that partition ranges receive, and of the results they emit.

        Args:
            begin: (k,) first partition of each range.
            end: (k,) one past the last.
        """
        low, high = self.first[:-1], self.first[1:]
        inside = np.minimum(end[:, None], high) - np.maximum(begin[:, None], low)
        part = np.maximum(inside, 0) / np.maximum(high - low, 1)
        received = np.append(np.ceil(part[:, :-1]), part[:, -1:], axis=1)
        return received @ self.right, part @ self.emitted


def required(
    join: Join, left: float, right: float, rates: Floats, comparing: float = COMPARING
) -> Callable[[int, int], float]:
    """What a range of partitions requires of a node, by its begin and end: tuples/s.

    A node's capacity is for tuples of average keys. Each tuple of a frequent key meets more others,
    so a range of such keys counts as more than its tuples.

    Args:
        join: with its keys.
        left: rate of its left input, tuples/s.
        right: of its right one.
        rates: (m,) of the left input's partitions, tuples/s.
        comparing: what comparing two tuples costs; 0 for ranges that count as their tuples.
    """
    ranges = KeyRanges.of(join, rates)
    compared = comparing * float(_pairs(join, left, right).sum())
    ends = np.concatenate(([0.0], np.cumsum(rates))).tolist()
    average = (left + right) / (left + right + compared)

    def of_range(begin: int, end: int) -> float:
        ((received,), (emitted,)) = ranges.shares(np.array([begin]), np.array([end]))
        tuples = ends[end] - ends[begin] + right * received
        return float(max(tuples, (tuples + compared * emitted) * average))

    return of_range


def _pairs(join: Join, left: float, right: float) -> Floats:
    """(h + 1,) pairs/s of tuples of one key and window: of each hot key, of the others."""
    window = 0.0 if join.window is UNSET else join.window
    return _met(join, *shares(join), len(join.hot)) * (left * right * window)


def _met(join: Join, left: Floats, right: Floats, hot: int) -> Floats:
    """(h + 1,) pairs of tuples of each hot key, and pairs with equal keys among the others.

    The other keys count as equally frequent; the more frequent ones among them have more pairs.
    """
    met = left * right
    met[-1] /= max(1, join.keys - hot)
    return met


def shares(join: Join) -> tuple[Floats, Floats]:
    """((h + 1,), (h + 1,)) shares of a join's left and right input: each hot key, the others."""
    sides = []
    for side in ("left", "right"):
        hot = [getattr(one, side) for one in join.hot]
        sides.append(np.array([*hot, max(0.0, 1.0 - sum(hot))]))
    return sides[0], sides[1]


def cut(join: Join, left: float, right: float, ranges: int) -> Floats:
    """Rates of the left input's partitions, about so many in all: (m,), tuples/s.

    Args:
        join: with its keys.
        left: rate of its left input, tuples/s.
        right: of its right one.
        ranges: how many are wanted; a hot key has as many of them as its share, and one at least.
    """
    of_left, of_right = shares(join)
    weight = of_left * left + of_right * right
    weight = weight + COMPARING * _pairs(join, left, right)
    total = float(weight.sum())
    count = np.maximum(1, np.rint(ranges * weight / (total if total > 0 else 1.0))).astype(np.int64)
    return np.repeat(of_left * left / count, count)


def intervals(
    join: Join, rates: Floats
) -> tuple[Sequence[tuple[tuple[str, ...], float, float]], float]:
    """Data for engines: hot keys with begin and end in [0, 1), and begin of the others.

    Args:
        join: with its keys.
        rates: (m,) of the left input's partitions, tuples/s.
    """
    ends = [0.0, *reached(rates).tolist()]
    first = KeyRanges.of(join, rates).first.tolist()
    hot = [
        (tuple(map(str, one.values)), ends[begin], ends[end])
        for one, begin, end in zip(join.hot, first, first[1:], strict=False)
        if begin < end
    ]
    return hot, ends[first[-2]]
