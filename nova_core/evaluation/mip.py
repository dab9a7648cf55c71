"""Mixed-integer programs and their solver, HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nova_core.model.problem import Bools, Floats


@dataclass(frozen=True, eq=False)
class Model:
    """Minimize ``cost @ x`` under ``least <= rows @ x <= most`` and ``0 <= x <= upper``.

    Attributes:
        cost: (c,) cost of each variable.
        rows: (r, c) sparse array.
        least: (r,) lower limits, ``-inf`` for none.
        most: (r,) upper limits, ``inf`` for none.
        integral: (c,) which variables take whole numbers only.
        upper: (c,) greatest values.
    """

    cost: Floats
    rows: Any
    least: Floats
    most: Floats
    integral: Bools
    upper: Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """What the solver found in its time.

    Attributes:
        x: (c,) the best solution, or None.
        bound: proven lower bound of the cost of any; ``inf`` where there is none.
        infeasible: whether it is proven that there is no solution.
    """

    x: Floats | None
    bound: float
    infeasible: bool


def solve(model: Model, time_limit: float, gap: float) -> Solution:
    """Run HiGHS.

    Args:
        model: the program.
        time_limit: seconds after which to return the best so far.
        gap: relative gap at which a solution counts as optimal.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    if len(model.cost) == 0:  # the solver refuses a program without variables
        infeasible = bool((model.least > 0).any())
        return Solution(None if infeasible else np.empty(0), 0.0, infeasible)
    found = milp(
        model.cost,
        integrality=model.integral.astype(np.int64),
        bounds=Bounds(0.0, model.upper),
        constraints=LinearConstraint(model.rows, model.least, model.most),
        options={"time_limit": max(time_limit, 0.1), "mip_rel_gap": gap},
    )
    if found.status == 2:
        return Solution(None, np.inf, infeasible=True)
    if found.status not in (0, 1):
        raise RuntimeError(f"mixed-integer program: {found.message}")
    bound = -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
    return Solution(found.x, bound, infeasible=False)


__all__ = ["Model", "Solution", "solve"]
