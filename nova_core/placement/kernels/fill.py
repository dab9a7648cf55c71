"""Filling given candidates in turn, as the paper's Phase III does (section 3.4)."""

from __future__ import annotations

from nova_core.kernel_cache import njit
from nova_core.model.problem import Ints
from nova_core.placement.kernels.capacity_tree import NONE, CapacityTree
from nova_core.placement.kernels.items import (
    Items,
    LinkRoom,
    Pairs,
    attach,
    cost_on,
    detach,
    may_host,
    write_halves,
    write_rectangle,
)
from nova_core.placement.kernels.rules import fits, needed


@njit(cache=True, nogil=True)
def fill(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, item: int, slots: Ints
) -> bool:
    """Place a whole join on given candidates, nearest first, cut over several when none has room.

    Each candidate takes as many partitions of one input, with all of the other, as it has room for.
    Without room for everything nothing is placed and false is returned.
    """
    for slot in slots:
        if _has_room(tree, links, pairs, items, item, slot):
            attach(tree, links, pairs, items, item, slot, cost_on(tree, pairs, items, item, slot))
            return True
    first = items.used[0]
    rest = item
    for slot in slots:
        a, b, c, d = items.rectangle[rest]
        other = items.used[0]
        best_side = best_at = NONE
        best_cells = 0
        for side in range(2):
            begin, end = (a, b) if side == 0 else (c, d)
            across = (d - c) if side == 0 else (b - a)
            at = end
            # The last cut always leaves something: the join did not fit whole.
            while at > begin and (at - begin) * across > best_cells:
                write_rectangle(
                    pairs,
                    items,
                    rest,
                    items.pair[item],
                    a,
                    at if side == 0 else b,
                    c,
                    d if side == 0 else at,
                )
                if _has_room(tree, links, pairs, items, rest, slot):
                    best_side, best_at, best_cells = side, at, (at - begin) * across
                    break
                at -= 1
        write_rectangle(pairs, items, rest, items.pair[item], a, b, c, d)
        if best_side == NONE:
            continue
        done = best_cells == (b - a) * (d - c)
        if not done:
            items.pair[other] = items.pair[item]
            write_halves(pairs, items, rest, other, best_side, best_at)
            items.used[0] = other + 1
        attach(tree, links, pairs, items, rest, slot, cost_on(tree, pairs, items, rest, slot))
        if done:
            return True
        rest = other
    # Undo: the join goes back to one unplaced item.
    for piece in range(first, items.used[0]):
        if items.slot[piece] != NONE:
            detach(tree, links, pairs, items, piece)
    if items.slot[item] != NONE:
        detach(tree, links, pairs, items, item)
    items.used[0] = first
    grid = pairs.grid[items.pair[item]]
    write_rectangle(pairs, items, item, items.pair[item], 0, grid[0], 0, grid[1])
    return False


@njit(cache=True, nogil=True)
def _has_room(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, item: int, slot: int
) -> bool:
    """Whether a slot can take an item within every constraint."""
    size = items.size[item]
    if not fits(items.free[slot], size, needed(size, pairs.minimum, 1.0), pairs.largest):
        return False
    return may_host(tree, links, pairs, items.pair[item], items.rate[item], slot)
