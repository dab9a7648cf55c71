"""Improving a whole placement by few moves, those that gain most first."""

from __future__ import annotations

import heapq
import math

import numpy as np

from nova_core.placement.kernels.live import hosts as kernels
from nova_core.placement.live.events import Rebalance
from nova_core.placement.live.hosting import Hosting, NoRoomError
from nova_core.placement.live.tables import IN_PIECES
from nova_core.placement.live.topology_events import relieve

# Near hosts whose residents may make way, and residents of each that are tried.
_SWAPS = 8
_RESIDENTS = 4


def rebalance(hosting: Hosting, event: Rebalance, overload: bool) -> None:
    """Make at most so many moves, each worth more than the policy's threshold.

    Overloaded nodes are relieved first, whatever that costs. Then joins move in the order of what
    they could gain at most: to a host with room, or to one whose resident makes way, which counts
    as two moves.
    """
    s = hosting.state
    budget = event.moves
    for node in list(s.overloaded):
        before = len(s.touched)
        try:
            relieve(hosting, node, False)
        except NoRoomError:
            continue
        budget -= len(s.touched) - before
        if budget <= 0:
            return
    p = s.pairs
    whole = np.flatnonzero(p.alive[: p.used] & (p.host[: p.used] != IN_PIECES))
    weights = _all_weights(hosting, whole)
    loss = kernels.losses(
        s.nodes.position, s.nodes.extra, p.row, p.point, weights, whole, p.host[whole]
    )
    # What a pair could gain at most orders the queue; what it gains replaces that once known.
    queue = [(-value, pair) for value, pair in zip(loss.tolist(), whole.tolist(), strict=True)]
    heapq.heapify(queue)
    while queue and budget > 0:
        most, pair = heapq.heappop(queue)
        if -most <= hosting.threshold(pair, 0.0) or hosting.is_pinned(pair) or hosting.rests(pair):
            continue
        if int(p.host[pair]) == IN_PIECES or pair in s.touched:
            continue
        if hosting.improve(pair):
            budget -= 1
        elif budget > 1 and swap(hosting, pair):
            budget -= 2


def _all_weights(hosting: Hosting, pairs: np.ndarray) -> np.ndarray:
    s, p = hosting.state, hosting.state.pairs
    if s.objective != "network-usage":
        return np.broadcast_to(s.weights(0), (len(pairs), 3))
    rate = s.sources.rate
    return np.stack([rate[p.left[pairs]], rate[p.right[pairs]], p.output[pairs]], axis=1)


def swap(hosting: Hosting, pair: int) -> bool:
    """Move a whole join to a near host whose resident goes elsewhere, if both together gain.

    The resident goes to the cheapest host with room, or to the room the join leaves.
    """
    s, p = hosting.state, hosting.state.pairs
    share, weights = s.whole_share(pair), s.weights(pair)
    here, now = int(p.host[pair]), hosting.search.cost(pair)
    need = hosting.search.need(share.size)
    best, choice = 0.0, None
    for node, cost in hosting.search.near(pair, weights, -math.inf, _SWAPS):
        gain = now - cost
        if gain <= best + hosting.threshold(pair, now):
            break
        if node == here or s.nodes.capacity[node] < need or not s.links_fit(pair, node, share):
            continue
        for other in hosting.movable(node)[:_RESIDENTS]:
            if p.host[other] == IN_PIECES or hosting.rests(other):
                continue
            other_share, other_weights = s.whole_share(other), s.weights(other)
            if s.nodes.free[node] + other_share.size < need:
                continue
            other_now = hosting.search.cost(other)
            margin = hosting.threshold(pair, now) + hosting.threshold(other, other_now)
            places = []
            found = hosting.search.elsewhere(other, node)
            if found is not None:
                places.append(found)
            if s.nodes.free[here] + share.size >= hosting.search.need(other_share.size) and (
                here in s.index_for(other) and s.links_fit(other, here, other_share)
            ):
                places.append((here, hosting.search.cost_on(other, other_weights, here)))
            for target, target_cost in places:
                total = gain + other_now - target_cost - margin
                if total > max(best, 1e-9 * now):
                    best, choice = total, (node, other, target)
    if choice is None:
        return False
    node, other, target = choice
    s.detach(pair)
    s.detach(other)
    s.attach(other, target)
    s.attach(pair, node)
    return True
