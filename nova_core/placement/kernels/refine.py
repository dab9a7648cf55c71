"""Local search over a placement: relocate, swap and eject, in time linear in the items.

An item moves to a cheaper slot if that has room (*relocate*), or if one resident can make way, either
to the room the item leaves (*swap*) or to another slot with room (*eject*); `improve_deep` lets that
resident eject another one in turn. The best such move of an item is made if it lowers the total.
"""

from __future__ import annotations

from numba import njit

from nova_core.placement.kernels.capacity_tree import CapacityTree
from nova_core.placement.kernels.items import (
    NONE,
    Candidates,
    Items,
    LinkRoom,
    Pairs,
    attach,
    cost_on,
    detach,
    fits,
)

# Gains below this are rounding, not improvement (ms).
EPSILON = 1e-9
# A round that gains less than this share of the total is the last.
_WORTHWHILE = 1e-5


@njit(cache=True, nogil=True)
def _opening(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, candidates: Candidates,
    item: int,
) -> int:
    """Index of the cheapest candidate with room, other than where the item is; or the run's end."""
    k, end = items.opening[item], items.end[item]
    while k < end:
        slot = candidates.slot[k]
        if slot != items.slot[item] and fits(tree, links, pairs, items, item, slot, 0.0):
            break
        k += 1
    items.opening[item] = k
    return k


@njit(cache=True, nogil=True)
def improve(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, candidates: Candidates,
    item: int,
) -> float:
    """Make an item's best move, if any lowers the total; the gain."""
    here, cost_here = items.slot[item], items.cost[item]
    best = EPSILON
    best_slot = best_resident = best_target = NONE
    best_cost = best_target_cost = 0.0
    for k in range(items.begin[item], items.end[item]):
        cost, slot = candidates.cost[k], candidates.slot[k]
        gain = cost_here - cost
        if gain <= best:
            break
        if slot == here:
            continue
        if fits(tree, links, pairs, items, item, slot, 0.0):
            best, best_slot, best_cost, best_resident = gain, slot, cost, NONE
            break
        resident = items.head[slot]
        while resident != NONE:
            other = resident
            resident = items.following[other]
            if not fits(tree, links, pairs, items, item, slot, items.size[other]):
                continue
            limit = gain - best + items.cost[other]
            if fits(tree, links, pairs, items, other, here, items.size[item]):
                target_cost = cost_on(tree, pairs, items, other, here)
                if target_cost < limit:
                    best, best_slot, best_cost = gain + items.cost[other] - target_cost, slot, cost
                    best_resident, best_target, best_target_cost = other, here, target_cost
                    limit = target_cost
            start = items.begin[other]
            if start == items.end[other] or candidates.cost[start] >= limit:
                continue
            opening = _opening(tree, links, pairs, items, candidates, other)
            if opening == items.end[other]:
                continue
            target_cost = candidates.cost[opening]
            if target_cost < limit:
                best, best_slot, best_cost = gain + items.cost[other] - target_cost, slot, cost
                best_resident = other
                best_target, best_target_cost = candidates.slot[opening], target_cost
    if best_slot == NONE:
        return 0.0
    detach(tree, links, pairs, items, item)
    if best_resident != NONE:
        detach(tree, links, pairs, items, best_resident)
        attach(tree, links, pairs, items, best_resident, best_target, best_target_cost)
    attach(tree, links, pairs, items, item, best_slot, best_cost)
    return best


@njit(cache=True, nogil=True)
def improve_deep(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, candidates: Candidates,
    item: int,
) -> float:
    """Make an item's best move in which the ejected resident ejects another one; the gain."""
    here, cost_here, size = items.slot[item], items.cost[item], items.size[item]
    best = EPSILON
    slot1 = resident1 = slot2 = resident2 = slot3 = NONE
    cost1 = cost2 = cost3 = 0.0
    for k in range(items.begin[item], items.end[item]):
        cost, slot = candidates.cost[k], candidates.slot[k]
        gain = cost_here - cost
        if gain <= best:
            break
        if slot == here:
            continue
        resident = items.head[slot]
        while resident != NONE:
            other = resident
            resident = items.following[other]
            if not fits(tree, links, pairs, items, item, slot, items.size[other]):
                continue
            gain2 = gain + items.cost[other]
            for k2 in range(items.begin[other], items.end[other]):
                second_cost, second = candidates.cost[k2], candidates.slot[k2]
                if gain2 - second_cost <= best:
                    break
                if second == slot or second == here:
                    continue
                third = items.head[second]
                while third != NONE:
                    last = third
                    third = items.following[last]
                    if not fits(tree, links, pairs, items, other, second, items.size[last]):
                        continue
                    limit = gain2 - second_cost - best + items.cost[last]
                    start = items.begin[last]
                    if start == items.end[last] or candidates.cost[start] >= limit:
                        continue
                    target, target_cost = NONE, limit
                    if fits(tree, links, pairs, items, last, here, size):
                        target, target_cost = here, cost_on(tree, pairs, items, last, here)
                    opening = _opening(tree, links, pairs, items, candidates, last)
                    if (
                        opening < items.end[last]
                        and candidates.slot[opening] != slot
                        and candidates.cost[opening] < target_cost
                    ):
                        target, target_cost = candidates.slot[opening], candidates.cost[opening]
                    if target != NONE and target_cost < limit:
                        best += limit - target_cost
                        slot1, cost1, resident1 = slot, cost, other
                        slot2, cost2, resident2 = second, second_cost, last
                        slot3, cost3 = target, target_cost
    if slot1 == NONE:
        return 0.0
    detach(tree, links, pairs, items, item)
    detach(tree, links, pairs, items, resident1)
    detach(tree, links, pairs, items, resident2)
    attach(tree, links, pairs, items, item, slot1, cost1)
    attach(tree, links, pairs, items, resident1, slot2, cost2)
    attach(tree, links, pairs, items, resident2, slot3, cost3)
    return best


@njit(cache=True, nogil=True)
def descend(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    rounds: int,
    deep: bool,
    only_limbo: bool,
) -> int:
    """Improve every item in turn until that stops paying, at most ``rounds`` times; rounds made.

    Args:
        tree: slot positions; its free capacities are not read and not kept.
        links: remaining bandwidth.
        pairs: what is placed.
        items: the state.
        candidates: slots considered for each item.
        rounds: at most this many passes.
        deep: whether to try chains of two ejections where single moves fail.
        only_limbo: whether only items in limbo are improved.
    """
    limbo = len(tree.node)
    for done in range(rounds):
        gain = total = 0.0
        for item in range(items.count[0]):
            items.opening[item] = items.begin[item]
            total += items.cost[item]
        for item in range(items.count[0]):
            start = items.begin[item]
            if start == items.end[item] or (only_limbo and items.slot[item] != limbo):
                continue
            if items.cost[item] > candidates.cost[start] + EPSILON:
                step = improve(tree, links, pairs, items, candidates, item)
                if deep and step == 0.0:
                    step = improve_deep(tree, links, pairs, items, candidates, item)
                gain += step
        if gain <= _WORTHWHILE * total:
            return done + 1
    return rounds
