"""SBON's filter: a low percentile of a link's last measurements is its latency.

Single measurements are late because of load and queues, never early; the low percentile is the
baseline that only a change of route moves. The 20th of the last 10 was found to keep coordinates
stable (Pietzuch et al. 2006, section 3.1.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints

WINDOW = 10
PERCENTILE = 20.0


class PercentileFilter:
    """Filters measurements of many links as they come; a link keeps its last few."""

    def __init__(self, links: int, window: int = WINDOW, percentile: float = PERCENTILE) -> None:
        """Begin without measurements.

        Args:
            links: how many; pairs of nodes, say.
            window: how many measurements of a link count.
            percentile: of them, above 0 up to 100, by nearest rank.

        Raises:
            ProblemError: for a window or percentile out of range.
        """
        if window < 1:
            raise ProblemError(f"window: {window}; expected at least 1 measurement")
        if not 0 < percentile <= 100:
            raise ProblemError(f"percentile: {percentile}; expected above 0 to 100")
        self._percentile = percentile
        self._recent = np.full((links, window), np.nan)
        self._count = np.zeros(links, np.int64)

    def add(self, link: ArrayLike, latency: ArrayLike) -> Floats:
        """Take in measurements, at most one per link; those of NaN (a lost probe) do not count.

        Args:
            link: (k,) which links were measured, each once.
            latency: (k,) ms.

        Returns:
            (k,) their filtered latencies, ms.
        """
        links = np.atleast_1d(np.asarray(link, np.int64))
        values = np.atleast_1d(np.asarray(latency, np.float64))
        came = ~np.isnan(values)
        at = links[came]
        self._recent[at, self._count[at] % self._recent.shape[1]] = values[came]
        self._count[at] += 1
        return self.latency(links)

    def latency(self, link: Ints | None = None) -> Floats:
        """(k,) filtered latencies of some links, or all, ms; NaN where none was measured yet."""
        recent = self._recent if link is None else self._recent[link]
        return _nearest_rank(recent, self._percentile)


def filtered(key: Ints, value: Floats) -> tuple[Ints, Floats]:
    """The filter's result after all measurements.

    Args:
        key: (m,) what was measured, in order of time.
        value: (m,) ms; not NaN.

    Returns:
        (k,) distinct keys, ascending, and (k,) their filtered values.
    """
    order = np.argsort(key, kind="stable")
    distinct, row, count = np.unique(key[order], return_inverse=True, return_counts=True)
    # How many measurements of the same key came later.
    later = np.cumsum(count)[row] - 1 - np.arange(len(key))
    recent = np.full((len(distinct), min(WINDOW, int(count.max(initial=1)))), np.nan)
    in_window = later < WINDOW
    recent[row[in_window], later[in_window]] = value[order][in_window]
    return distinct, _nearest_rank(recent, PERCENTILE)


def _nearest_rank(values: Floats, percentile: float) -> Floats:
    """(k,) percentile of each row of (k, w), NaN left out."""
    ordered = np.sort(values, axis=1)  # NaN last
    count = values.shape[1] - np.isnan(values).sum(axis=1)
    # Rounding may put the product just above a whole number: 0.2 * 10 is exact, 0.07 * 100 is not.
    rank = np.maximum(np.ceil(percentile * count / 100 - 1e-9).astype(np.int64), 1) - 1
    return np.asarray(np.take_along_axis(ordered, rank[:, None], axis=1)[:, 0])
