"""Merging pieces of one join that met on a node: they share input and become one instance."""

from __future__ import annotations

from nova_core.kernel_cache import njit
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.placement.kernels.items import range_rate


@njit(cache=True, nogil=True)
def merge_rectangles(
    pair: Ints,
    place: Ints,
    rectangle: Ints,
    rate: Floats,
    maximum: Floats,
    grid: Ints,
    largest: float,
    keep: Bools,
) -> None:
    """Merge pieces of one pair that met at a place and form a rectangle together.

    Args:
        pair: (m,) row of the next three tables for each piece, ascending.
        place: (m,) where pieces run.
        rectangle: (m, 4) left begin, left end, right begin, right end in the pair's grid, ordered
            within each pair; those that remain grow.
        rate: (p, 2) or wider: rates of left and right source, tuples/s.
        maximum: (p,) p_max of each pair, tuples/s.
        grid: (p, 2) partitions of both inputs.
        largest: what an instance may receive, tuples/s.
        keep: (m,) filled with whether pieces remain; the others are merged into one that does.
    """
    keep[:] = True
    begin = 0
    while begin < len(pair):
        row, end = pair[begin], begin + 1
        while end < len(pair) and pair[end] == row:
            end += 1
        changed = end - begin > 1
        while changed:
            changed = False
            for a in range(begin, end):
                for b in range(begin, end):
                    if a == b or not (keep[a] and keep[b]) or place[a] != place[b]:
                        continue
                    i, j = rectangle[a], rectangle[b]
                    below = i[1] == j[0] and i[2] == j[2] and i[3] == j[3]
                    beside = i[3] == j[2] and i[0] == j[0] and i[1] == j[1]
                    if not (below or beside):
                        continue
                    size = range_rate(
                        rate[row, 0], maximum[row], grid[row, 0], i[0], j[1]
                    ) + range_rate(rate[row, 1], maximum[row], grid[row, 1], i[2], j[3])
                    if size <= largest:
                        i[1], i[3] = j[1], j[3]
                        keep[b] = False
                        changed = True
        begin = end
