"""The paper's candidate selection: k nearest nodes by a k-d tree or Annoy (section 3.4).

For comparison only: the search is limited to k nodes. Replicas go to the nearest candidates with
room; a join that fits on none of them whole is cut over several of them. Distance is by coordinates
alone: heights only count when costs are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nova_core import extras
from nova_core.model.problem import Floats, Ints
from nova_core.placement.assignment import Assigner
from nova_core.placement.kernels.fill import fill
from nova_core.placement.kernels.items import leave_unplaced

# From a virtual position and k to the nearest slots, nearest first.
Query = Callable[[Floats, int], Ints]
ANNOY_TREES = 10


def assign_nearest(state: Assigner, index: str, k: int | None, on_full: str, seed: int) -> None:
    """Place every join on its k nearest candidates, in the order of the join matrix.

    Args:
        state: the start of Phase III; joins without room are unplaced afterwards.
        index: ``kdtree`` or ``annoy``.
        k: candidates per join; None: ratio of its required capacity to the median capacity of all
            candidates, at least 2.
        on_full: ``expand`` doubles k until the join fits or every node was tried.
        seed: of Annoy's random trees.

    Raises:
        NovaError: when ``annoy`` is chosen and not installed.
    """
    pairs = state.pairs
    query = _kdtree(state) if index == "kdtree" else _annoy(state, seed)
    count = len(state.tree.node)
    median = max(float(np.median(state.capacity)), 1e-12)
    for item in np.argsort(state.order):
        requested = min(k or max(2, math.ceil(state.items.size[item] / median)), count)
        while True:
            slots = _available(query, item, requested, state)
            while state.items.used[0] + len(slots) + 1 > len(state.items.size):
                state.grow()
            placed = fill(state.tree, state.links, pairs, state.items, item, slots)
            if placed or len(slots) < requested or requested == count or on_full == "spread":
                break
            requested = min(2 * requested, count)
        if not placed:
            leave_unplaced(state.tree, state.links, pairs, state.items, item)


def _available(query: Query, pair: int, k: int, state: Assigner) -> Ints:
    """The k nearest slots that meet the requirement and have capacity, and C_min of it (Eq. 3)."""
    count, requested, pairs = len(state.tree.node), k, state.pairs
    while True:
        slots = query(pairs.point[pair], requested)
        free = state.items.free[slots]
        good = (free > 0) & (free >= pairs.minimum)
        if len(pairs.needs) and pairs.needs[pair]:
            good &= state.tree.offer[slots] >> (pairs.needs[pair] - 1) & 1 == 1
        slots = slots[good]
        if len(slots) >= k or requested == count:
            return slots[:k]
        requested = min(2 * requested, count)


def _kdtree(state: Assigner) -> Query:
    from scipy.spatial import cKDTree

    tree = cKDTree(state.tree.slot[:, :-1])

    def query(point: Floats, k: int) -> Ints:
        return np.atleast_1d(tree.query(point, k=k)[1]).astype(np.int64)

    return query


def _annoy(state: Assigner, seed: int) -> Query:
    with extras.needed("index annoy (kdtree and capacity-tree need no extra)"):
        from annoy import AnnoyIndex
    position = state.tree.slot[:, :-1]
    index = AnnoyIndex(position.shape[1], "euclidean")
    index.set_seed(seed)
    for slot, vector in enumerate(position):
        index.add_item(slot, vector)
    index.build(ANNOY_TREES, n_jobs=1)

    def query(point: Floats, k: int) -> Ints:
        return np.array(index.get_nns_by_vector(point, k), np.int64)

    return query
