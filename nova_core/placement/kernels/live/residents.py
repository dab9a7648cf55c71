"""Who runs whole on each node, as lists that cost no memory of their own: one link per pair."""

from __future__ import annotations

from numba import njit

from nova_core.model.problem import Ints
from nova_core.placement.kernels.live.tree import NONE

# Columns of ``hosted``: the first pair that runs whole on a node, and how many run there in pieces.
FIRST, PIECES = 0, 1
# Columns of ``chain``: the pairs before and after one in its node's list.
BEFORE, AFTER = 0, 1


@njit(cache=True, nogil=True)
def enter(hosted: Ints, chain: Ints, node: int, pair: int) -> None:
    """A pair runs whole on a node from now on.

    Args:
        hosted: (n, 2), see `FIRST`.
        chain: (p, 2) neighbours of each pair in its list, `NONE` at the ends.
        node: the node.
        pair: the pair, in no list.
    """
    first = hosted[node, FIRST]
    chain[pair, BEFORE], chain[pair, AFTER] = NONE, first
    if first != NONE:
        chain[first, BEFORE] = pair
    hosted[node, FIRST] = pair


@njit(cache=True, nogil=True)
def leave(hosted: Ints, chain: Ints, node: int, pair: int) -> None:
    """The opposite of `enter`."""
    before, after = chain[pair, BEFORE], chain[pair, AFTER]
    if before == NONE:
        hosted[node, FIRST] = after
    else:
        chain[before, AFTER] = after
    if after != NONE:
        chain[after, BEFORE] = before


@njit(cache=True, nogil=True)
def enter_all(hosted: Ints, chain: Ints, nodes: Ints, pairs: Ints) -> None:
    """`enter` of each pair on its node."""
    for row in range(len(pairs)):
        enter(hosted, chain, nodes[row], pairs[row])
