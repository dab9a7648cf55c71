"""The best placement of whole joins under capacities, by mixed-integer programming."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation.bounds import AssignmentCosts, relaxation
from nova_core.evaluation.mip import Model, solve
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Floats, Ints, Problem

# Seconds spent on how much is lacking where nothing fits.
_LACKING_TIME = 10.0


@dataclass(frozen=True, eq=False)
class Optimum:
    """The outcome of an exact search.

    Attributes:
        value: cost of the best placement found, in the objective's unit.
        bound: proven lower bound of the cost of any such placement.
        plan: the placement.
    """

    value: float
    bound: float
    plan: Plan

    @property
    def gap(self) -> float:
        """How far the value may be from the optimum, as a share of it."""
        return max(0.0, self.value - self.bound) / max(abs(self.value), 1e-300)


def exact_optimum(
    problem: Problem, objective: str = "latency", time_limit: float = 60.0, gap: float = 1e-4
) -> Optimum:
    """The cheapest placement of whole joins that overloads no node.

    A placement that uses a column of reduced cost r costs at least r more than the relaxation. So
    columns by which it would cost more than a greedy placement are left out beforehand.

    Args:
        problem: what is placed; links, requirements, C_min and t_b are left out.
        objective: a name of `nova_core.placement.objectives`.
        time_limit: seconds for all programs together.
        gap: relative gap at which a placement counts as optimal.

    Raises:
        InfeasibleError: when whole joins do not fit, with the capacity that is lacking at least.
        ProblemError: when the time ran out before any placement was found, or for a limit out of
            range.
    """
    check_limits(time_limit, gap)
    deadline = time.monotonic() + time_limit
    duals = relaxation(problem, objective)
    costs = AssignmentCosts(problem, objective)
    need, room = problem.required_capacity, costs.room
    # What these very duals prove: of costs too small for the solver they are 0, its value is not.
    price, limited = duals.node_price[costs.hosts], np.isfinite(room)
    proven = float(duals.pair_price.sum() + price[limited] @ room[limited])
    columns = costs.below(_greedy(costs, need) - min(proven, duals.value), duals)
    cost = costs.of(*columns)
    model = _assignment(cost, *columns, need, room)
    found = solve(model, deadline - time.monotonic(), gap)
    if found.infeasible:
        raise lacking(need, room)
    if found.x is None:
        raise ProblemError(f"exact optimum: nothing found in {time_limit:g} s; allow more time")
    chosen = found.x > 0.5
    node = np.empty(len(need), np.int64)
    node[columns[0][chosen]] = costs.hosts[columns[1][chosen]]
    value = float(cost[chosen].sum())
    plan = Plan(
        problem=problem,
        strategy="ilp",
        objective=objective,
        partitions=Partitions.whole(problem),
        instances=Instances.whole(node),
        parameters={"time_limit": time_limit, "gap": gap},
        breaks=("requirement", "link"),
    )
    return Optimum(value, min(max(found.bound, duals.value), value), plan)


def _greedy(costs: AssignmentCosts, need: Floats) -> float:
    """Cost of placing the largest first, each where it is cheapest; ``inf`` when one finds no room.

    Only a limit for the search; the placement itself is not used.
    """
    room, total = costs.room.copy(), 0.0
    for pair in np.argsort(-need, kind="stable").tolist():
        cost = np.where(room >= need[pair], costs.rows(slice(pair, pair + 1))[0], np.inf)
        host = int(np.argmin(cost))
        total += float(cost[host])
        room[host] -= need[pair]
    # A little more, so that rounding does not leave out the columns of this very placement.
    return total * (1.0 + 1e-9)


def check_limits(time_limit: float, gap: float) -> None:
    """Refuse limits a solver cannot use.

    Raises:
        ProblemError: naming the parameter and its range.
    """
    if not time_limit > 0:
        raise ProblemError(f"time_limit: {time_limit!r}; use seconds above 0")
    if not 0 <= gap < 1:
        raise ProblemError(f"gap: {gap!r}; use a share from 0 up to 1")


def _assignment(cost: Floats, pair: Ints, host: Ints, need: Floats, room: Floats) -> Model:
    """Every pair on a host of one of its columns, no host over its room."""
    from scipy.sparse import csr_array, vstack

    column = np.arange(len(pair))
    limited = np.flatnonzero(np.isfinite(room))
    once = csr_array((np.ones(len(pair)), (pair, column)), shape=(len(need), len(pair)))
    load = csr_array((need[pair], (host, column)), shape=(len(room), len(pair)))
    return Model(
        cost=cost,
        rows=vstack([once, load[limited]], format="csr"),
        least=np.concatenate([np.ones(len(need)), np.full(len(limited), -np.inf)]),
        most=np.concatenate([np.ones(len(need)), room[limited]]),
        integral=np.ones(len(pair), bool),
        upper=np.ones(len(pair)),
    )


def lacking(need: Floats, room: Floats) -> InfeasibleError:
    """Says how much must be added to the room, at the right hosts, for whole joins to fit."""
    from scipy.sparse import eye_array, hstack, vstack

    pairs, hosts = len(need), len(room)
    pair, host = np.divmod(np.arange(pairs * hosts), hosts)
    fit = _assignment(np.zeros(len(pair)), pair, host, need, room)
    none = np.zeros(hosts)
    added = vstack([0.0 * eye_array(pairs, hosts), -eye_array(hosts)])
    elastic = Model(
        cost=np.concatenate([fit.cost, none + 1.0]),
        rows=hstack([fit.rows, added], format="csr"),
        least=fit.least,
        most=fit.most,
        integral=np.concatenate([fit.integral, none > 0]),
        upper=np.concatenate([fit.upper, none + np.inf]),
    )
    missing = max(0.0, solve(elastic, _LACKING_TIME, 1e-6).bound)
    return InfeasibleError(
        f"capacity: whole joins do not fit on the nodes that may host; at least {missing:.6g} "
        "tuples/s are missing on them",
        missing,
    )


__all__ = ["Optimum", "check_limits", "exact_optimum", "lacking"]
