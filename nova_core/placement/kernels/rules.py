"""The rules of placement, each once: what fits, what a leg costs, and where an operator is cut.

They take numbers and rows, so that first plans and live placement, which keep them in tables of
different shape, compile the same rule into their loops.
"""

from __future__ import annotations

import math

from nova_core.borrowing import inlined
from nova_core.model.problem import Floats


@inlined
def needed(size: float, minimum: float, enough: float) -> float:
    """Tuples/s that a host must have free for an instance (paper, Eqs. 2 and 3).

    Args:
        size: C_r of the instance, tuples/s.
        minimum: C_min, tuples/s.
        enough: share of it that counts as all, for rounding's sake.
    """
    return max(size, minimum) * enough


@inlined
def fits(free: float, size: float, need: float, largest: float) -> bool:
    """Whether a host has room for an instance, and the instance may be as large (Eqs. 2 to 4).

    Args:
        free: what the host has, tuples/s.
        size: C_r of the instance, tuples/s.
        need: what it needs there, see `needed`.
        largest: t_b, the largest that an instance may be, tuples/s.
    """
    return size <= largest and free >= need


@inlined
def distance(one: Floats, other: Floats) -> float:
    """How far apart two places are, ms; of ``one``, only as many numbers count as ``other`` has."""
    square = 0.0
    for k in range(len(other)):
        away = one[k] - other[k]
        square += away * away
    return math.sqrt(square)


@inlined
def leg_cost(away: float, far: float, height: float, penalty: float, same: bool) -> float:
    """What a leg costs per unit of its weight, see `nova_core.model.objectives.leg_cost`.

    Args:
        away: distance of its ends, ms.
        far: height of its other end, ms.
        height: of the host, ms.
        penalty: of the host, ms per leg.
        same: whether it ends on the host, where it needs no access.
    """
    return away + penalty if same else away + penalty + far + height


@inlined
def cut_step(count: int, positions: int) -> int:
    """Partitions from one position at which an input is cut to the next, of so many at most."""
    return max(1, (count + positions - 1) // positions)


@inlined
def halved_side(left: int, right: int) -> int:
    """The input that is halved where no cut finds a host: the one with more partitions."""
    return 0 if left >= right else 1
