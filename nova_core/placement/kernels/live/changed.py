"""What pairs were before an event changed them: kept once, compared with what they are after it."""

from __future__ import annotations

import numpy as np

from nova_core.kernel_cache import njit
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels.live.tables import CHANGED, HOST, MOVED, SINK

# Value of a host for a pair that does not exist, before an event or after it.
ABSENT = -3
# Columns of `Kept.row`.
PAIR, OLD_HOST, OLD_SINK, OLD_MOVED = range(4)
KEPT = 4
# Entries of `Kept.counts`.
USED, EVENT = 0, 1


@njit(cache=True, nogil=True)
def keep(
    table: Ints, points: Floats, kept: Ints, old_points: Floats, counts: Ints, pairs: Ints
) -> None:
    """Keep what pairs were, before their first change in an event.

    Args:
        table: (p, 8) rows of pairs, see `tables.Joins`; marked.
        points: (p, d) virtual positions, ms.
        kept: (m, `KEPT`) what was kept so far, see `tables.Kept`; has room for all.
        old_points: (m, d) virtual positions then, ms.
        counts: (2,) see `USED` and `EVENT`; changed.
        pairs: (k,) those about to change.
    """
    for pair in pairs:
        if table[pair, CHANGED] == counts[EVENT]:
            continue
        table[pair, CHANGED] = counts[EVENT]
        row = counts[USED]
        counts[USED] = row + 1
        kept[row, PAIR], kept[row, OLD_HOST] = pair, table[pair, HOST]
        kept[row, OLD_SINK], kept[row, OLD_MOVED] = table[pair, SINK], table[pair, MOVED]
        old_points[row] = points[pair]


@njit(cache=True, nogil=True)
def put_back(table: Ints, points: Floats, kept: Ints, old_points: Floats, counts: Ints) -> None:
    """Restore sinks, virtual positions and when pairs moved; hosts are none of this."""
    for row in range(counts[USED]):
        pair = kept[row, PAIR]
        table[pair, CHANGED] = -1
        if kept[row, OLD_HOST] != ABSENT:
            table[pair, SINK], table[pair, MOVED] = kept[row, OLD_SINK], kept[row, OLD_MOVED]
            points[pair] = old_points[row]


@njit(cache=True, nogil=True)
def changes(
    table: Ints,
    points: Floats,
    kept: Ints,
    old_points: Floats,
    counts: Ints,
    alive: Bools,
    in_pieces: int,
    version: int,
) -> tuple[Ints, Floats]:
    """Kept pairs that are not what they were, by row; that whole ones moved is noted.

    Args:
        table: as for `keep`, like the four after it.
        points: virtual positions.
        kept: what was kept.
        old_points: virtual positions then.
        counts: how much that is.
        alive: (p,) whether pairs exist.
        in_pieces: the host of a pair that runs in pieces; those are always reported.
        version: of the plan after the event, noted for pairs that start or move.

    Returns:
        (k, 6) of each the pair, its host and its sink before and after, `ABSENT` hosts being those
        of pairs that do not exist, and whether its virtual position differs; and (k, 2, d) those
        positions, ms.
    """
    used, d = counts[USED], points.shape[1]
    order = np.argsort(kept[:used, PAIR])  # all are different
    row, point = np.empty((used, 6), np.int64), np.empty((used, 2, d))
    found = 0
    for k in order:
        pair, was = kept[k, PAIR], kept[k, OLD_HOST]
        host = table[pair, HOST] if alive[pair] else ABSENT
        differs = was == ABSENT or host == ABSENT
        for i in range(d):
            differs |= old_points[k, i] != points[pair, i]
            point[found, 0, i], point[found, 1, i] = old_points[k, i], points[pair, i]
        sink = table[pair, SINK]
        old_sink = sink if was == ABSENT else kept[k, OLD_SINK]
        same = was == host and old_sink == sink and not differs
        if (same and host != in_pieces) or (was == ABSENT and host == ABSENT):
            continue
        if was != host and host >= 0 and was != in_pieces:
            table[pair, MOVED] = version
        row[found, 0], row[found, 1], row[found, 2] = pair, was, host
        row[found, 3], row[found, 4], row[found, 5] = old_sink, sink, differs
        found += 1
    return row[:found], point[:found]
