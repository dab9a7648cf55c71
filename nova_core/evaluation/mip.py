"""Mixed-integer programs, put together from blocks of variables, and their solver, HiGHS."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints


class _Variables(NamedTuple):
    cost: Floats
    most: Floats
    whole: Ints


class _Limits(NamedTuple):
    terms: Mapping[int, Any]
    least: Floats
    most: Floats


class Program:
    """Minimize the cost of variables between 0 and their greatest values, within limits of sums.

    Args:
        time_limit: seconds from now on after which the solver returns the best so far.
        gap: relative gap at which a solution counts as optimal.

    Attributes:
        time_limit: seconds, as given.
        bound: proven lower bound of the cost of any solution; ``inf`` where there is none.
        infeasible: whether it is proven that there is no solution.

    Raises:
        ProblemError: for a time limit or gap out of range.
    """

    def __init__(self, time_limit: float, gap: float) -> None:
        check_limits(time_limit, gap)
        self.time_limit, self._gap = time_limit, gap
        self._deadline = time.monotonic() + time_limit
        self.bound, self.infeasible = -np.inf, False
        self._variables: list[_Variables] = []
        self._limits: list[_Limits] = []

    def clear(self) -> None:
        """Forget all variables and limits, but not the time."""
        self._variables, self._limits = [], []

    def variables(self, cost: Floats, most: Floats | float = 1.0, whole: bool = True) -> int:
        """Add a block of (c,) variables.

        Args:
            cost: (c,) cost of each.
            most: (c,) greatest values.
            whole: whether they take whole numbers only.

        Returns:
            The block's number.
        """
        limits = np.full(len(cost), most, np.float64)
        self._variables.append(_Variables(cost, limits, np.full(len(cost), int(whole))))
        return len(self._variables) - 1

    def limit(
        self, terms: Mapping[int, Any], least: float = -np.inf, most: Floats | float = np.inf
    ) -> None:
        """Add a block of (r,) limits ``least <= sum of terms @ variables <= most``.

        Args:
            terms: sparse (r, c) array by number of the block of variables it is multiplied with.
            least: lower limit of all.
            most: (r,) upper limits.
        """
        count = next(iter(terms.values())).shape[0]
        self._limits.append(_Limits(terms, np.full(count, least), np.full(count, most, np.float64)))

    def value(self, values: Floats) -> float:
        """Cost of some values of all variables."""
        return float(np.concatenate([block.cost for block in self._variables]) @ values)

    @property
    def remaining(self) -> float:
        """Seconds until the time limit."""
        return self._deadline - time.monotonic()

    def solve(
        self, cost: Floats | None = None, below: Sequence[tuple[Floats, float]] = ()
    ) -> Floats | None:
        """Run HiGHS; the best values of all variables found, None for none.

        Args:
            cost: (c,) costs in place of the variables' own.
            below: further limits: (c,) factors, and the greatest value of the sum.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import block_array, csr_array, vstack

        variables = [np.concatenate(column) for column in zip(*self._variables, strict=True)]
        least = np.concatenate([*(block.least for block in self._limits), [-np.inf] * len(below)])
        most = np.concatenate([*(block.most for block in self._limits), [b for _, b in below]])
        if len(variables[0]) == 0:  # the solver refuses a program without variables
            self.bound, self.infeasible = 0.0, bool((least > 0).any())
            return None if self.infeasible else np.empty(0)
        blocks = range(len(self._variables))
        rows: Any = block_array([[block.terms.get(b) for b in blocks] for block in self._limits])
        rows = vstack([rows, *(csr_array(row[None, :]) for row, _ in below)], format="csr")
        result = milp(
            variables[0] if cost is None else cost,
            integrality=variables[2],
            bounds=Bounds(0.0, variables[1]),
            constraints=LinearConstraint(rows, least, most),
            options={"time_limit": max(self.remaining, 0.1), "mip_rel_gap": self._gap},
        )
        if result.status not in (0, 1, 2):
            raise ProblemError(f"the solver of mixed-integer programs gives up: {result.message}")
        self.infeasible = result.status == 2
        bound = -np.inf if result.mip_dual_bound is None else float(result.mip_dual_bound)
        self.bound = np.inf if self.infeasible else bound
        return None if self.infeasible else result.x


def check_limits(time_limit: float, gap: float) -> None:
    """Refuse limits a solver cannot use.

    Raises:
        ProblemError: naming the parameter and its range.
    """
    if not time_limit > 0:
        raise ProblemError(f"time_limit: {time_limit!r}; use seconds above 0")
    if not 0 <= gap < 1:
        raise ProblemError(f"gap: {gap!r}; use a share from 0 up to 1")
