"""Uniting pieces of one join that met on a node: they share input and become one instance."""

from __future__ import annotations

from numba import njit

from nova_core.model.problem import Ints
from nova_core.placement.kernels.items import Items, Pairs, write_rectangle


@njit(cache=True, nogil=True)
def merge_pieces(pairs: Pairs, items: Items, order: Ints, keep: Ints) -> int:
    """Unite pieces of one pair that met on a node and form a rectangle together.

    Args:
        pairs: what is placed.
        items: the state; rectangles grow, residents' lists and free capacities are left alone.
        order: (m,) items sorted by pair.
        keep: (m,) filled with 1 for items that remain, 0 for those united into another.

    Returns:
        How many items remain.
    """
    keep[: len(order)] = 1
    remaining = len(order)
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and items.pair[order[end]] == items.pair[order[begin]]:
            end += 1
        changed = end - begin > 1
        while changed:
            changed = False
            for i in range(begin, end):
                for j in range(begin, end):
                    a, b = order[i], order[j]
                    if i == j or not keep[a] or not keep[b] or items.slot[a] != items.slot[b]:
                        continue
                    ra, rb = items.rectangle[a], items.rectangle[b]
                    below = ra[1] == rb[0] and ra[2] == rb[2] and ra[3] == rb[3]
                    beside = ra[3] == rb[2] and ra[0] == rb[0] and ra[1] == rb[1]
                    # Sizes add up but for the input both pieces receive.
                    side = 1 if below else 0
                    size = items.size[a] + items.size[b] - items.rate[a, side]
                    if (below or beside) and size <= pairs.largest:
                        write_rectangle(
                            pairs,
                            items,
                            a,
                            items.pair[a],
                            ra[0],
                            max(ra[1], rb[1]),
                            ra[2],
                            max(ra[3], rb[3]),
                        )
                        keep[b] = 0
                        remaining -= 1
                        changed = True
        begin = end
    return remaining
