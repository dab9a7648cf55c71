"""Pairs that an event has touched, and what they were before it."""

from __future__ import annotations

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live import touched as kernels
from nova_core.placement.kernels.live.columns import TOUCHED
from nova_core.placement.live.tables import IN_PIECES, PairRows

Arrays = tuple[Ints, Floats, Ints, Floats, Ints]


class Touched:
    """What pairs were before the first change of an event, kept by kernels, too."""

    def __init__(self, pairs: PairRows) -> None:
        """Keep nothing yet.

        Args:
            pairs: the pairs; their rows tell which event touched them last.
        """
        self._pairs = pairs
        self._kept = np.empty((0, kernels.KEPT), np.int64)
        self._points = np.empty((0, pairs.point.shape[1]))
        self._count = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return self._count.item(kernels.USED)

    def __contains__(self, pair: int) -> bool:
        return self._pairs.row.item(pair, TOUCHED) == self._count.item(kernels.EVENT)

    def arrays(self, more: int) -> Arrays:
        """What kernels take to keep so many pairs more."""
        used, room = len(self), len(self._kept)
        if used + more > room:
            grown = 2 * (used + more)
            for name in ("_kept", "_points"):
                old = getattr(self, name)
                new = np.empty((grown, old.shape[1]), old.dtype)
                new[:used] = old[:used]
                setattr(self, name, new)
        return self._pairs.row, self._pairs.point, self._kept, self._points, self._count

    def keep(self, pair: int) -> None:
        """A pair is about to change."""
        if pair not in self:
            kernels.touch(*self.arrays(1), pair)

    def keep_all(self, pairs: list[int]) -> None:
        """Pairs are about to change: one wait for memory in place of many."""
        kernels.touch_all(*self.arrays(len(pairs)), np.array(pairs, np.int64))

    def begin(self, pair: int) -> None:
        """A pair with a row of its own was not there before."""
        _, _, kept, _, count = self.arrays(1)
        used = len(self)
        self._pairs.row[pair, TOUCHED] = count[kernels.EVENT]
        kept[used, kernels.PAIR], kept[used, kernels.OLD_HOST] = pair, kernels.ABSENT
        count[kernels.USED] = used + 1

    def redirect(self, pairs: list[int], sink: int) -> float:
        """Give pairs another sink; what they emit together, tuples/s."""
        rows = np.array(pairs, np.int64)
        arrays = self.arrays(len(pairs))
        total: float = kernels.redirect(*arrays, rows, self._pairs.output, sink)
        return total

    def changes(self, version: int) -> tuple[Ints, Floats]:
        """What has changed since, see `kernels.live.touched.changes`."""
        found: tuple[Ints, Floats] = kernels.changes(
            *self.arrays(0), self._pairs.alive, IN_PIECES, version
        )
        return found

    def put_back(self) -> None:
        """Take back sinks, virtual positions and when pairs moved; hosts are none of this."""
        kernels.put_back(*self.arrays(0))

    def clear(self) -> None:
        """The event is over."""
        self._count[kernels.USED] = 0
        self._count[kernels.EVENT] += 1
