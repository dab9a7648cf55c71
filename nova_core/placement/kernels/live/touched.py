"""What pairs were before an event touched them: kept once, compared with what they are after it."""

from __future__ import annotations

import numpy as np
from numba import njit

from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels.live.columns import HOST, MOVED, SINK, TOUCHED

# Value of a host for a pair that is not there, before an event or after it.
ABSENT = -3
# Columns of ``kept``: a pair, and what was in its row.
PAIR, OLD_HOST, OLD_SINK, OLD_MOVED = range(4)
KEPT = 4
# Entries of ``count``: rows of ``kept`` in use, and the number of the event.
USED, EVENT = 0, 1


@njit(cache=True, nogil=True)
def touch(
    table: Ints, points: Floats, kept: Ints, old_points: Floats, count: Ints, pair: int
) -> None:
    """Keep what a pair was, before its first change in an event.

    Args:
        table: (p, 8) columns of pairs; marked.
        points: (p, d) virtual positions, ms.
        kept: (m, `KEPT`) what was kept so far; has room for one more.
        old_points: (m, d) virtual positions then, ms.
        count: (2,) see `USED` and `EVENT`; changed.
        pair: row of ``table``.
    """
    if table[pair, TOUCHED] == count[EVENT]:
        return
    table[pair, TOUCHED] = count[EVENT]
    row = count[USED]
    count[USED] = row + 1
    kept[row, PAIR], kept[row, OLD_HOST] = pair, table[pair, HOST]
    kept[row, OLD_SINK], kept[row, OLD_MOVED] = table[pair, SINK], table[pair, MOVED]
    old_points[row] = points[pair]


@njit(cache=True, nogil=True)
def touch_all(
    table: Ints, points: Floats, kept: Ints, old_points: Floats, count: Ints, pairs: Ints
) -> None:
    """`touch` each of (k,) pairs; there is room for all."""
    for pair in pairs:
        touch(table, points, kept, old_points, count, pair)


@njit(cache=True, nogil=True)
def redirect(
    table: Ints,
    points: Floats,
    kept: Ints,
    old_points: Floats,
    count: Ints,
    pairs: Ints,
    output: Floats,
    sink: int,
) -> float:
    """`touch` pairs and give them another sink; what they emit together, tuples/s.

    Args:
        table: as for `touch`, like the four after it.
        points: virtual positions.
        kept: what was kept so far.
        old_points: virtual positions then.
        count: changed.
        pairs: (k,) those to redirect.
        output: (p,) what each emits, tuples/s.
        sink: node index.
    """
    total = 0.0
    for pair in pairs:
        touch(table, points, kept, old_points, count, pair)
        table[pair, SINK] = sink
        total += output[pair]
    return total


@njit(cache=True, nogil=True)
def put_back(table: Ints, points: Floats, kept: Ints, old_points: Floats, count: Ints) -> None:
    """Take back sinks, virtual positions and when pairs moved; hosts are none of this."""
    for row in range(count[USED]):
        pair = kept[row, PAIR]
        table[pair, TOUCHED] = -1
        if kept[row, OLD_HOST] != ABSENT:
            table[pair, SINK], table[pair, MOVED] = kept[row, OLD_SINK], kept[row, OLD_MOVED]
            points[pair] = old_points[row]


@njit(cache=True, nogil=True)
def changes(
    table: Ints,
    points: Floats,
    kept: Ints,
    old_points: Floats,
    count: Ints,
    alive: Bools,
    in_pieces: int,
    version: int,
) -> tuple[Ints, Floats]:
    """Touched pairs that are not what they were, by row; whole ones are noted to have moved.

    Args:
        table: as for `touch`, like the four after it.
        points: virtual positions.
        kept: what was kept.
        old_points: virtual positions then.
        count: how much that is.
        alive: (p,) whether pairs are there.
        in_pieces: the host of a pair that runs in pieces; those are always told.
        version: of the plan after the event, kept for pairs that start or move.

    Returns:
        (k, 6) of each the pair, its host and its sink before and after, `ABSENT` hosts being those
        of pairs that are not there, and whether its virtual position differs; and (k, 2, d) those
        positions, ms.
    """
    used, d = count[USED], points.shape[1]
    order = np.argsort(kept[:used, PAIR])
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
