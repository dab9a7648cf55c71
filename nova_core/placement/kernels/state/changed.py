"""What operators were before an event changed them: kept once, compared with what they are now."""

from __future__ import annotations

import numpy as np

from nova_core.borrowing import inlined
from nova_core.kernel_cache import njit
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels.state.tables import CHANGED, HOST, MOVED

# Value of a host for an operator that does not exist, before an event or after it.
ABSENT = -3
# Columns of `Kept.row`.
OPERATOR, OLD_HOST, OLD_MOVED = range(3)
KEPT = 3
# Entries of `Kept.counts`.
USED, EVENT = 0, 1


@njit(cache=True, nogil=True)
def keep(
    table: Ints, points: Floats, kept: Ints, old_points: Floats, counts: Ints, operators: Ints
) -> None:
    """Keep what operators were, before their first change in an event.

    Args:
        table: (o, 8) rows of operators, see `tables.Operators`; marked.
        points: (o, d) virtual positions, ms.
        kept: (m, `KEPT`) what was kept so far, see `tables.Kept`; has room for all.
        old_points: (m, d) virtual positions then, ms.
        counts: (2,) see `USED` and `EVENT`; changed.
        operators: (k,) those about to change.
    """
    for operator in operators:
        keep_one(table, points, kept, old_points, counts, operator, table[operator, HOST])


@inlined
def keep_one(
    table: Ints,
    points: Floats,
    kept: Ints,
    old_points: Floats,
    counts: Ints,
    operator: int,
    host: int,
) -> None:
    """`keep` one, which had a host, or is `ABSENT`."""
    if table[operator, CHANGED] == counts[EVENT]:
        return
    table[operator, CHANGED] = counts[EVENT]
    row = counts[USED]
    counts[USED] = row + 1
    kept[row, OPERATOR], kept[row, OLD_HOST] = operator, host
    kept[row, OLD_MOVED] = table[operator, MOVED]
    for i in range(points.shape[1]):
        old_points[row, i] = points[operator, i]


@njit(cache=True, nogil=True)
def put_back(table: Ints, points: Floats, kept: Ints, old_points: Floats, counts: Ints) -> None:
    """Restore virtual positions and when operators moved; hosts are none of this."""
    for row in range(counts[USED]):
        operator = kept[row, OPERATOR]
        table[operator, CHANGED] = -1
        if kept[row, OLD_HOST] != ABSENT:
            table[operator, MOVED] = kept[row, OLD_MOVED]
            points[operator] = old_points[row]


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
    row: Ints,
    point: Floats,
) -> int:
    """Kept operators that are not what they were, by row; that whole ones moved is noted.

    Args:
        table: as for `keep`, like the four after it.
        points: virtual positions.
        kept: what was kept.
        old_points: virtual positions then.
        counts: how much that is.
        alive: (o,) whether operators exist.
        in_pieces: the host of one that runs in pieces; those are always reported.
        version: of the plan after the event, noted for operators that start or move.
        row: (m, 4) filled with the operator, its host before and after, `ABSENT` of one that does
            not exist, and whether its virtual position differs, for each that is reported.
        point: (m, 2, d) filled with its virtual positions before and after, ms.

    Returns:
        How many are reported.
    """
    used, d = counts[USED], points.shape[1]
    found = 0
    for k in np.argsort(kept[:used, OPERATOR]):  # all are different
        operator, was = kept[k, OPERATOR], kept[k, OLD_HOST]
        host = table[operator, HOST] if alive[operator] else ABSENT
        differs = was == ABSENT or host == ABSENT
        for i in range(d):
            differs |= old_points[k, i] != points[operator, i]
            point[found, 0, i], point[found, 1, i] = old_points[k, i], points[operator, i]
        same = was == host and not differs
        if (same and host != in_pieces) or (was == ABSENT and host == ABSENT):
            continue
        if was != host and host >= 0 and was != in_pieces:
            table[operator, MOVED] = version
        row[found, 0], row[found, 1], row[found, 2], row[found, 3] = operator, was, host, differs
        found += 1
    return found
