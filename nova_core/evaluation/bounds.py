"""Lower bounds on what any placement of whole operators costs, by linear programming."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation.assignment import AssignmentCosts, Relaxation
from nova_core.evaluation.mip import Program
from nova_core.model.problem import Floats, Ints, Problem

# Cheapest nodes of each operator that the first linear program knows.
_FIRST_COLUMNS = 10
# Most variables of a linear program of operators that feed each other, and its seconds.
_MOST_LINKED, _LINKED_TIME = 1_000_000, 600.0


def lower_bound(problem: Problem, objective: str = "latency") -> float:
    """Cost below which no placement of whole operators can come: fractions of them are allowed.

    Minimizes ``sum c_ij x_ij`` under ``sum_j x_ij = 1`` and ``sum_i C_r(i) x_ij <= C_a(j)`` over
    nodes that may host, plus what links between operators cost (`AssignmentCosts.add_products`).
    Queries stay as they are written. Links, requirements, C_min and t_b are left out, which keeps
    it a lower bound.

    Args:
        problem: what is placed.
        objective: a name of `nova_core.model.objectives`.

    Raises:
        InfeasibleError: when all nodes together have too little capacity.
        ProblemError: when the solver gives up, as it does on costs of 1e19, and for a problem of
            operators that feed each other that is too large.
    """
    costs = AssignmentCosts(problem, objective)
    if not len(costs.inner.weight):
        return costs.constant + relaxation(problem, objective).value
    if costs.columns > _MOST_LINKED:
        raise ProblemError(
            f"lower bound: {len(costs.need):,} operators, {len(costs.inner.weight):,} links "
            f"between them and {len(costs.hosts):,} nodes make {costs.columns:,} variables; at "
            f"most {_MOST_LINKED:,} are supported; use a smaller problem"
        )
    require_total_capacity(costs.need, costs.room)
    program = Program(_LINKED_TIME, 0.0)
    costs.keep_room(program, costs.add(program))
    values = program.solve()
    if values is None:
        raise ProblemError(
            "lower bound: the solver of linear programs found none; is a cost right?"
        )
    return costs.constant + program.value(values)


def relaxation(
    problem: Problem, objective: str = "latency", placed: Ints | None = None
) -> Relaxation:
    """The linear program of `lower_bound`, solved exactly by column generation.

    Only columns that may matter enter the program: the cheapest nodes of every operator, then any
    that the duals show to pay, until none does. Only links between an operator and a node count.

    Args:
        problem: what is placed.
        objective: a name of `nova_core.model.objectives`.
        placed: (b,) a placement of whole operators that overloads nothing, as indices of the nodes
            that may host. With it, fractions of one only go to nodes with room for all of it, which
            gives a higher bound of whole operators.
    """
    costs = AssignmentCosts(problem, objective, whole=placed is not None)
    need, hosts, room = costs.need, costs.hosts, costs.room
    require_total_capacity(need, room)
    if not len(need):
        return Relaxation(0.0, np.empty(0), np.zeros(len(problem.nodes)))
    possible = _filling(need, room) if placed is None else (np.arange(len(need)), placed)
    body, host = merged(costs.cheapest(_FIRST_COLUMNS), possible, len(hosts))
    while True:
        value, body_price, host_price = _solve(costs.of(body, host), body, host, need, room)
        new_body, new_host = costs.paying(body_price, host_price)
        if len(new_body) == 0:
            break
        before = len(body)
        body, host = merged((body, host), (new_body, new_host), len(hosts))
        if len(body) == before:  # rounding of the duals brought only known columns
            break
    node_price = np.zeros(len(problem.nodes))
    node_price[hosts] = host_price
    return Relaxation(value, body_price, node_price)


def require_total_capacity(need: Floats, room: Floats) -> None:
    """Refuse a problem whose nodes together cannot receive what its operators need.

    Raises:
        InfeasibleError: with what is lacking.
    """
    missing = float(need.sum() - room.sum())
    if missing > 1e-9 * need.sum():
        raise InfeasibleError(
            f"capacity: operators need {need.sum():.6g} tuples/s, nodes that may host have "
            f"{room.sum():.6g}; {missing:.6g} are missing",
            missing,
        )


def _filling(need: Floats, room: Floats) -> tuple[Ints, Ints]:
    """Columns with which the program has a solution: operators poured over hosts in turn."""
    body_end, host_end = np.cumsum(need), np.cumsum(room)
    cuts = np.unique(np.concatenate([body_end, host_end[host_end < body_end[-1]]]))
    middle = (np.concatenate(([0.0], cuts[:-1])) + cuts) / 2
    body = np.minimum(np.searchsorted(body_end, middle), len(need) - 1)
    host = np.minimum(np.searchsorted(host_end, middle), len(room) - 1)
    return body, host


def merged(first: tuple[Ints, Ints], second: tuple[Ints, Ints], hosts: int) -> tuple[Ints, Ints]:
    """Columns of both, each once, given as operators and hosts of so many."""
    keys = [body * hosts + host for body, host in (first, second)]
    key = np.unique(np.concatenate(keys))
    return key // hosts, key % hosts


def _solve(
    cost: Floats, body: Ints, host: Ints, need: Floats, room: Floats
) -> tuple[float, Floats, Floats]:
    """Value and duals of the program over the given columns."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    column = np.arange(len(body))
    limited = np.flatnonzero(np.isfinite(room))
    # Typed loosely: the solver takes sparse arrays, its published types do not say so.
    load: Any = csr_array((need[body], (host, column)), shape=(len(room), len(body)))
    once: Any = csr_array((np.ones(len(body)), (body, column)), shape=(len(need), len(body)))
    solution = linprog(
        cost,
        A_ub=load[limited] if len(limited) else None,
        b_ub=room[limited] if len(limited) else None,
        A_eq=once,
        b_eq=np.ones(len(need)),
        bounds=(0, None),
        method="highs",
    )
    if solution.status != 0 or solution.fun is None:
        raise ProblemError(
            f"lower bound: the solver of linear programs gives up: {solution.message}; is a cost "
            f"of {np.abs(cost).max(initial=0.0):g} right?"
        )
    price = np.zeros(len(room))
    if len(limited):
        price[limited] = solution.ineqlin.marginals
    return float(solution.fun), np.asarray(solution.eqlin.marginals), price
