"""Reading ahead what placing several joins will need, so that one wait for memory serves all.

Join by join, each step would wait for memory that the one before has told the place of. Step by
step, the processor fetches that of all joins at once, as no branch depends on what comes. The
kernels return sums of no meaning, lest the compiler leave the reading out.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.live.columns import HOST, LEFT, LEFT_NODE, RIGHT
from nova_core.placement.kernels.live.residents import AFTER, BEFORE, FIRST
from nova_core.placement.kernels.live.tree import LEAF

# Joins whose memory stays in the nearer caches together.
AHEAD = 32
# Levels of a tree that a host's new room is likely to change.
_LEVELS = 4


@njit(cache=True, nogil=True)
def read_joins(
    extra: Floats, chain: Ints, table: Ints, rate: Floats, pairs: Ints, hosts: Ints
) -> float:
    """Read what `settle.settle` will need of joins.

    Args:
        extra: (n, 2) height and penalty of nodes, ms.
        chain: (p, 2) see `residents`.
        table: (p, 8) columns of pairs.
        rate: rates of sources, tuples/s.
        pairs: (k,) the joins.
        hosts: (k,) filled with where they run, 0 for nowhere.
    """
    seen = 0.0
    for k in range(len(pairs)):
        pair = pairs[k]
        hosts[k] = max(table[pair, HOST], 0)
        seen += rate[table[pair, LEFT]] + rate[table[pair, RIGHT]]
        for i in range(3):
            seen += extra[table[pair, LEFT_NODE + i], 0]
    for pair in pairs:
        seen += chain[max(chain[pair, BEFORE], 0), 0] + chain[max(chain[pair, AFTER], 0), 0]
    return seen


@njit(cache=True, nogil=True)
def read_hosts(
    rows: Floats,
    slot: Ints,
    box: Floats,
    parent: Ints,
    owner: Ints,
    position: Floats,
    extra: Floats,
    capacity: Floats,
    free: Floats,
    hosted: Ints,
    chain: Ints,
    hosts: Ints,
) -> float:
    """Read what `hosts.move` will need of hosts.

    Args:
        rows: of a `Forest`, as the next four.
        slot: its slots.
        box: its boxes.
        parent: its parents.
        owner: its owners.
        position: (n, d) coordinates of all nodes, ms.
        extra: (n, 2) their height and penalty, ms.
        capacity: (n,) tuples/s.
        free: (n,) what is left of it.
        hosted: (n, 2) see `residents`.
        chain: (p, 2) see `residents`.
        hosts: (k,) the hosts.
    """
    trees, count = len(rows), len(hosts)
    at = np.empty((trees, count), np.int64)
    last, room = rows.shape[2] - 1, box.shape[2] - 3
    seen = 0.0
    for k in range(count):
        host = hosts[k]
        seen += extra[host, 0] + position[host, 0] + free[host] + capacity[host]
        seen += hosted[host, FIRST]
        for h in range(trees):
            at[h, k] = max(slot[h, host], 0)
    for k in range(count):
        seen += chain[max(hosted[hosts[k], FIRST], 0), 0]
    for h in range(trees):
        for k in range(count):
            seen += rows[h, at[h, k], last]
            at[h, k] = owner[h, at[h, k] // LEAF]
    for _ in range(_LEVELS):
        for h in range(trees):
            for k in range(count):
                t = at[h, k]
                # Siblings are 1 and 2, 3 and 4, and so on.
                seen += box[h, t, room] + box[h, max((t - 1 ^ 1) + 1, 0), room]
                at[h, k] = max(parent[h, t], 0)
    return seen
