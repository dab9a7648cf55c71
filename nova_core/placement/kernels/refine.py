"""Local search over a placement: relocate, swap and eject, in time linear in the items.

An item moves to a cheaper slot if that has room (*relocate*), or if one resident can make way,
either to the room the item leaves (*swap*) or to another slot with room (*eject*); `improve_deep`
lets that resident eject another one in turn. The best such move of an item is made if it lowers the
total.

The loops name the columns they read once, at the top: reading a column out of a named tuple inside
a loop costs numba a reference count each time, which made these kernels 25 times slower. For the
same reason what an ejected resident looks for is written out, not called: tight problems take four
times as long by a call.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from nova_core.placement.kernels.capacity_tree import NONE, CapacityTree
from nova_core.placement.kernels.items import (
    Candidates,
    Items,
    LinkRoom,
    Pairs,
    access_cost,
    attach,
    detach,
    distance_cost,
    may_host,
    unplaced,
)
from nova_core.placement.kernels.residents import AFTER
from nova_core.placement.kernels.tuning import (
    DEEP_EFFORT,
    DEEP_EFFORT_IN_ALL,
    EPSILON,
    RESIDENTS_TRIED,
    RESIDENTS_TRIED_DEEP,
    UNPLACED_COST,
    WORTHWHILE,
)


@njit(cache=True, nogil=True)
def improve(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    item: int,
) -> float:
    """Make an item's best move, if any lowers the total; the gain."""
    begin, end, opening = items.begin, items.end, items.opening
    slot_of, cost_of, size, pair_of = items.slot, items.cost, items.size, items.pair
    free, first, chain, rate, weights = (
        items.free,
        items.first,
        items.chain,
        items.rate,
        items.weights,
    )
    candidate, candidate_cost = candidates.slot, candidates.cost
    position, anchors, minimum = tree.slot, pairs.anchors, pairs.minimum
    nowhere, limited, high = (
        unplaced(tree),
        len(links.target) + len(pairs.needs) > 0,
        len(pairs.height) > 0,
    )

    here, cost_here = slot_of[item], cost_of[item]
    need = max(size[item], minimum)
    room_here = free[here] + size[item]
    best = EPSILON
    best_slot = best_resident = best_target = NONE
    best_cost = best_target_cost = 0.0
    for k in range(begin[item], end[item]):
        cost, slot = candidate_cost[k], candidate[k]
        gain = cost_here - cost
        if gain <= best:
            break
        if slot == here or (
            limited and not may_host(tree, links, pairs, pair_of[item], rate[item], slot)
        ):
            continue
        if free[slot] >= need:
            best, best_slot, best_cost, best_resident = gain, slot, cost, NONE
            break
        resident, tried = first[slot], 0
        while resident != NONE and tried < RESIDENTS_TRIED:
            other = resident
            resident = chain[other, AFTER]
            tried += 1
            if free[slot] + size[other] < need:
                continue
            other_need = max(size[other], minimum)
            limit = gain - best + cost_of[other]
            if room_here >= other_need and not (
                limited
                and here != nowhere
                and not may_host(tree, links, pairs, pair_of[other], rate[other], here)
            ):
                target_cost = UNPLACED_COST * size[other]
                if here != nowhere:
                    target_cost = distance_cost(
                        position, here, anchors, pair_of[other], weights, other
                    )
                    if high:
                        target_cost += access_cost(
                            tree, pairs, pair_of[other], weights, other, here
                        )
                if target_cost < limit:
                    best, best_slot, best_cost = gain + cost_of[other] - target_cost, slot, cost
                    best_resident, best_target, best_target_cost = other, here, target_cost
                    limit = target_cost
            # The cheapest other candidate with room; the ones before `opening` had none.
            o, last = opening[other], end[other]
            while o < last and (
                candidate_cost[o] < limit
                and (
                    free[candidate[o]] < other_need
                    or candidate[o] == slot
                    or (
                        limited
                        and not may_host(
                            tree, links, pairs, pair_of[other], rate[other], candidate[o]
                        )
                    )
                )
            ):
                o += 1
            opening[other] = o
            if o < last and candidate_cost[o] < limit:
                best = gain + cost_of[other] - candidate_cost[o]
                best_slot, best_cost, best_resident = slot, cost, other
                best_target, best_target_cost = candidate[o], candidate_cost[o]
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
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    item: int,
    effort: int,
) -> float:
    """Make an item's best move in which the ejected resident ejects another one; the gain.

    The cheapest first slots come first; the search ends when ``effort`` last slots were looked at.
    """
    begin, end = items.begin, items.end
    slot_of, cost_of, size, pair_of = items.slot, items.cost, items.size, items.pair
    free, first, chain, rate, weights = (
        items.free,
        items.first,
        items.chain,
        items.rate,
        items.weights,
    )
    candidate, candidate_cost = candidates.slot, candidates.cost
    position, anchors, minimum = tree.slot, pairs.anchors, pairs.minimum
    nowhere, limited, high = (
        unplaced(tree),
        len(links.target) + len(pairs.needs) > 0,
        len(pairs.height) > 0,
    )

    here, cost_here = slot_of[item], cost_of[item]
    need = max(size[item], minimum)
    room_here = free[here] + size[item]
    best = EPSILON
    slots = np.full(3, NONE)
    residents = np.full(2, NONE)
    costs = np.zeros(3)
    looked = 0
    for k in range(begin[item], end[item]):
        cost, slot = candidate_cost[k], candidate[k]
        gain = cost_here - cost
        if gain <= best or looked >= effort:
            break
        if slot == here or (
            limited and not may_host(tree, links, pairs, pair_of[item], rate[item], slot)
        ):
            continue
        resident, tried = first[slot], 0
        while resident != NONE and tried < RESIDENTS_TRIED_DEEP:
            other = resident
            resident = chain[other, AFTER]
            tried += 1
            if free[slot] + size[other] < need:
                continue
            other_need = max(size[other], minimum)
            gain2 = gain + cost_of[other]
            for k2 in range(begin[other], end[other]):
                second_cost, second = candidate_cost[k2], candidate[k2]
                if gain2 - second_cost <= best or looked >= effort:
                    break
                if second == slot:
                    continue
                if second == here:
                    continue
                if limited and not may_host(
                    tree, links, pairs, pair_of[other], rate[other], second
                ):
                    continue
                third, tried_third = first[second], 0
                while third != NONE and tried_third < RESIDENTS_TRIED_DEEP:
                    last = third
                    third = chain[last, AFTER]
                    tried_third += 1
                    if free[second] + size[last] < other_need:
                        continue
                    limit = gain2 - second_cost - best + cost_of[last]
                    if begin[last] < end[last] and candidate_cost[begin[last]] >= limit:
                        continue
                    last_need = max(size[last], minimum)
                    target, target_cost = NONE, limit
                    if room_here >= last_need:
                        target_cost = UNPLACED_COST * size[last]
                        if here != nowhere:
                            target_cost = distance_cost(
                                position, here, anchors, pair_of[last], weights, last
                            )
                            if high:
                                target_cost += access_cost(
                                    tree, pairs, pair_of[last], weights, last, here
                                )
                        if target_cost < limit and not (
                            limited
                            and here != nowhere
                            and not may_host(tree, links, pairs, pair_of[last], rate[last], here)
                        ):
                            target, limit = here, target_cost
                    o = begin[last]
                    while o < end[last] and candidate_cost[o] < limit:
                        third_slot = candidate[o]
                        if (
                            free[third_slot] >= last_need
                            and third_slot != slot
                            and third_slot != second
                            and not (
                                limited
                                and not may_host(
                                    tree, links, pairs, pair_of[last], rate[last], third_slot
                                )
                            )
                        ):
                            target, limit = third_slot, candidate_cost[o]
                            break
                        o += 1
                    looked += 1 + o - begin[last]
                    if target != NONE:
                        best = gain2 - second_cost + cost_of[last] - limit
                        slots[0], slots[1], slots[2] = slot, second, target
                        costs[0], costs[1], costs[2] = cost, second_cost, limit
                        residents[0], residents[1] = other, last
    if slots[0] == NONE:
        return 0.0
    detach(tree, links, pairs, items, item)
    detach(tree, links, pairs, items, residents[0])
    detach(tree, links, pairs, items, residents[1])
    attach(tree, links, pairs, items, item, slots[0], costs[0])
    attach(tree, links, pairs, items, residents[0], slots[1], costs[1])
    attach(tree, links, pairs, items, residents[1], slots[2], costs[2])
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
    only_unplaced: bool,
) -> int:
    """Improve every item in turn until that stops paying, at most ``rounds`` times; how many.

    Args:
        tree: slot positions; its free capacities are not read and not kept.
        links: remaining bandwidth.
        pairs: what is placed.
        items: the state.
        candidates: slots considered for each item.
        rounds: at most this many passes.
        deep: whether to try chains of two ejections where single moves fail.
        only_unplaced: whether only unplaced items are improved.
    """
    begin, end, opening, cost, slot = items.begin, items.end, items.opening, items.cost, items.slot
    candidate_cost, count, nowhere = candidates.cost, items.used[0], unplaced(tree)
    for done in range(rounds):
        gain = total = 0.0
        tried = 0
        for item in range(count):
            opening[item] = begin[item]
            total += cost[item]
            tried += not only_unplaced or slot[item] == nowhere
        effort = max(DEEP_EFFORT, DEEP_EFFORT_IN_ALL // max(tried, 1))
        for item in range(count):
            start = begin[item]
            if start == end[item] or (only_unplaced and slot[item] != nowhere):
                continue
            if cost[item] > candidate_cost[start] + EPSILON:
                step = improve(tree, links, pairs, items, candidates, item)
                if deep and step == 0.0:
                    step = improve_deep(tree, links, pairs, items, candidates, item, effort)
                gain += step
        # Missing room costs more than all latencies: next to it, making room looks like no gain.
        if gain <= WORTHWHILE * total and not _fits_now(tree, links, pairs, items, candidates):
            return done + 1
    return rounds


@njit(cache=True, nogil=True)
def _fits_now(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, candidates: Candidates
) -> bool:
    """Whether a slot has room for an unplaced item, as later moves of a round may have made it."""
    slot_of, begin, end, size = items.slot, items.begin, items.end, items.size
    free, pair_of, rate, candidate = items.free, items.pair, items.rate, candidates.slot
    nowhere, minimum = unplaced(tree), pairs.minimum
    for item in range(items.used[0]):
        if slot_of[item] == nowhere:
            need = max(size[item], minimum)
            for k in range(begin[item], end[item]):
                slot = candidate[k]
                if free[slot] >= need and may_host(
                    tree, links, pairs, pair_of[item], rate[item], slot
                ):
                    return True
    return False
