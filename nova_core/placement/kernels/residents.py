"""Who runs at each place, as lists that cost no memory of their own: two links per resident.

Residents are joins or pieces of joins; places are slots of a tree or nodes of a topology.
"""

from __future__ import annotations

from nova_core.borrowing import borrowing, inlined
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.capacity_tree import NONE

# Columns of ``chain``: the residents before and after one in its place's list.
BEFORE, AFTER = 0, 1


@borrowing
def enter(first: Ints, chain: Ints, place: int, resident: int) -> None:
    """Add a resident to a place.

    Args:
        first: (n,) first resident of each place, `NONE` for none.
        chain: (m, 2) neighbours of each resident in its list, `NONE` at the ends.
        place: where it runs from now on.
        resident: in no list.
    """
    after = first[place]
    chain[resident, BEFORE], chain[resident, AFTER] = NONE, after
    if after != NONE:
        chain[after, BEFORE] = resident
    first[place] = resident


@borrowing
def leave(first: Ints, chain: Ints, place: int, resident: int) -> None:
    """Take a resident out of the list of its place."""
    before, after = chain[resident, BEFORE], chain[resident, AFTER]
    if before == NONE:
        first[place] = after
    else:
        chain[before, AFTER] = after
    if after != NONE:
        chain[after, BEFORE] = before


@inlined
def charge(free: Floats, first: Ints, chain: Ints, place: int, resident: int, size: float) -> None:
    """`enter` a resident, which takes so much of what is free there, tuples/s."""
    enter(first, chain, place, resident)
    free[place] -= size


@inlined
def discharge(
    free: Floats, first: Ints, chain: Ints, place: int, resident: int, size: float
) -> None:
    """`leave`, and give back what was taken."""
    leave(first, chain, place, resident)
    free[place] += size


@borrowing
def enter_all(first: Ints, chain: Ints, places: Ints, residents: Ints) -> None:
    """`enter` each resident at its place."""
    for row in range(len(residents)):
        enter(first, chain, places[row], residents[row])
