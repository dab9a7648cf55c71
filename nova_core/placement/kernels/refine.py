"""Local search over a placement: relocate, swap and eject, in time linear in the items.

An item moves to a cheaper slot if that has room (*relocate*), or if one resident can make way,
either to the room the item leaves (*swap*) or to another slot with room (*eject*); `improve_deep`
lets that resident eject another one in turn. The best such move of an item is made if it lowers the
total.

All of these kernels borrow their arrays, and those of a loop are compiled into it: counting
references, or a call of `_elsewhere`, makes refinement three to six times slower.
"""

from __future__ import annotations

from typing import NamedTuple

from nova_core.borrowing import borrowing, inlined
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
from nova_core.placement.kernels.rules import needed
from nova_core.placement.kernels.tuning import (
    DEEP_EFFORT,
    DEEP_EFFORT_IN_ALL,
    EPSILON,
    RESIDENTS_TRIED,
    RESIDENTS_TRIED_DEEP,
    UNPLACED_COST,
    WORTHWHILE,
)


class _Left(NamedTuple):
    """The slot that an ejecting item leaves.

    Attributes:
        slot: it, or that of unplaced items.
        room: what is free there then, tuples/s.
    """

    slot: int
    room: float


@inlined
def _elsewhere(
    tree: CapacityTree,
    links: LinkRoom,
    pairs: Pairs,
    items: Items,
    candidates: Candidates,
    resident: int,
    start: int,
    limit: float,
    left: _Left,
    barred: tuple[int, int],
) -> tuple[int, float, int]:
    """Where a resident that makes room goes: the slot left, or its cheapest one with room.

    Args:
        tree: slot positions.
        links: remaining bandwidth.
        pairs: what is placed.
        items: the state.
        candidates: slots considered for each item.
        resident: the item that makes room.
        start: the first of its candidates to look at.
        limit: what it must stay below.
        left: the slot that the item which ejects leaves.
        barred: slots that it may not take.

    Returns:
        The slot or ``NONE``, its cost, and the candidate at which the search ended.
    """
    free, rate, weights, pair = items.free, items.rate, items.weights, items.pair[resident]
    candidate, candidate_cost = candidates.slot, candidates.cost
    here, nowhere = left.slot, unplaced(tree)
    limited = len(links.target) + len(pairs.needs) > 0
    need = needed(items.size[resident], pairs.minimum, 1.0)
    target = NONE
    if left.room >= need and not (
        limited and here != nowhere and not may_host(tree, links, pairs, pair, rate[resident], here)
    ):
        cost = UNPLACED_COST * items.size[resident]
        if here != nowhere:
            cost = distance_cost(tree.slot, here, pairs.anchors, pair, weights, resident)
            if len(pairs.height) > 0:
                cost += access_cost(tree, pairs, pair, weights, resident, here)
        if cost < limit:
            target, limit = here, cost
    o, end = start, items.end[resident]
    while o < end and candidate_cost[o] < limit:
        other = candidate[o]
        if (
            free[other] >= need
            and other != barred[0]
            and other != barred[1]
            and not (limited and not may_host(tree, links, pairs, pair, rate[resident], other))
        ):
            return other, candidate_cost[o], o
        o += 1
    return target, limit, o


@inlined
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
    free, first, chain, rate = items.free, items.first, items.chain, items.rate
    candidate, candidate_cost, minimum = candidates.slot, candidates.cost, pairs.minimum
    limited = len(links.target) + len(pairs.needs) > 0

    here, cost_here = slot_of[item], cost_of[item]
    need = needed(size[item], minimum, 1.0)
    left = _Left(here, free[here] + size[item])
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
            target, target_cost, opening[other] = _elsewhere(
                tree,
                links,
                pairs,
                items,
                candidates,
                other,
                opening[other],
                gain - best + cost_of[other],
                left,
                (slot, slot),
            )
            if target != NONE:
                best, best_slot, best_cost = gain + cost_of[other] - target_cost, slot, cost
                best_resident, best_target, best_target_cost = other, target, target_cost
    if best_slot == NONE:
        return 0.0
    detach(tree, links, pairs, items, item)
    if best_resident != NONE:
        detach(tree, links, pairs, items, best_resident)
        attach(tree, links, pairs, items, best_resident, best_target, best_target_cost)
    attach(tree, links, pairs, items, item, best_slot, best_cost)
    return best


@inlined
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
    free, first, chain, rate = items.free, items.first, items.chain, items.rate
    candidate, candidate_cost, minimum = candidates.slot, candidates.cost, pairs.minimum
    limited = len(links.target) + len(pairs.needs) > 0

    here, cost_here = slot_of[item], cost_of[item]
    need = needed(size[item], minimum, 1.0)
    left = _Left(here, free[here] + size[item])
    best = EPSILON
    slots = (NONE, NONE, NONE)
    costs = (0.0, 0.0, 0.0)
    residents = (NONE, NONE)
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
            other_need = needed(size[other], minimum, 1.0)
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
                    target, target_cost, reached = _elsewhere(
                        tree,
                        links,
                        pairs,
                        items,
                        candidates,
                        last,
                        begin[last],
                        limit,
                        left,
                        (slot, second),
                    )
                    looked += 1 + reached - begin[last]
                    if target != NONE:
                        best = gain2 - second_cost + cost_of[last] - target_cost
                        slots = (slot, second, target)
                        costs = (cost, second_cost, target_cost)
                        residents = (other, last)
    if slots[0] == NONE:
        return 0.0
    detach(tree, links, pairs, items, item)
    detach(tree, links, pairs, items, residents[0])
    detach(tree, links, pairs, items, residents[1])
    attach(tree, links, pairs, items, item, slots[0], costs[0])
    attach(tree, links, pairs, items, residents[0], slots[1], costs[1])
    attach(tree, links, pairs, items, residents[1], slots[2], costs[2])
    return best


@borrowing
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


@borrowing
def _fits_now(
    tree: CapacityTree, links: LinkRoom, pairs: Pairs, items: Items, candidates: Candidates
) -> bool:
    """Whether a slot has room for an unplaced item, as later moves of a round may have made it."""
    slot_of, begin, end, size = items.slot, items.begin, items.end, items.size
    free, pair_of, rate, candidate = items.free, items.pair, items.rate, candidates.slot
    nowhere, minimum = unplaced(tree), pairs.minimum
    for item in range(items.used[0]):
        if slot_of[item] == nowhere:
            need = needed(size[item], minimum, 1.0)
            for k in range(begin[item], end[item]):
                slot = candidate[k]
                if free[slot] >= need and may_host(
                    tree, links, pairs, pair_of[item], rate[item], slot
                ):
                    return True
    return False
