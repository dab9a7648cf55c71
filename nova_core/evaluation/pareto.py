"""Placements of whole joins that nothing beats in latency, network usage and nodes used at once.

By mixed-integer programs: for every number of nodes and a series of limits of network usage, the
least latency, and then the least usage with that latency (the epsilon-constraint method).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nova_core.errors import ProblemError
from nova_core.evaluation.bounds import AssignmentCosts, require_total_capacity
from nova_core.evaluation.exact import check_limits, lacking
from nova_core.evaluation.mip import Model, solve
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Bools, Floats, Problem

MOST_COLUMNS = 20_000
# Relative difference below which two values are the same, and by which a limit is loosened.
SAME = 1e-6
# Relative gap at which a program counts as solved.
GAP = 1e-8


@dataclass(frozen=True, eq=False)
class Point:
    """A placement that no other one beats.

    Attributes:
        latency: sum over joins of the latencies of their three legs, ms.
        network_usage: sum over legs of rate times latency, tuples/s * ms.
        nodes: that host a join.
        plan: the placement; its strategy is ``ilp``.
    """

    latency: float
    network_usage: float
    nodes: int
    plan: Plan

    def beats(self, other: Point) -> bool:
        """Whether this one is better in something and worse in nothing."""
        mine, its = self._values(), other._values()
        return all(a <= b * (1 + SAME) for a, b in zip(mine, its, strict=True)) and any(
            a < b * (1 - SAME) for a, b in zip(mine, its, strict=True)
        )

    def same_as(self, other: Point) -> bool:
        """Whether all three values are the other's."""
        return bool(np.allclose(self._values(), other._values(), rtol=SAME, atol=0.0))

    def _values(self) -> tuple[float, float, float]:
        return self.latency, self.network_usage, float(self.nodes)


class _Programs:
    """The programs of one problem: which variables there are, and what limits them.

    Variables are each pair on each host, then whether a host is used.
    """

    def __init__(self, problem: Problem, time_limit: float) -> None:
        self.problem = problem
        self._deadline = time.monotonic() + time_limit
        self._time_limit = time_limit
        costs = AssignmentCosts(problem, "latency")
        pairs, hosts = len(problem.matrix), len(costs.hosts)
        if pairs * hosts > MOST_COLUMNS:
            raise ProblemError(
                f"pareto: {pairs} joins on {hosts} nodes; at most {MOST_COLUMNS:,} pairs of them "
                "can be looked at, use a smaller problem"
            )
        need, room = problem.required_capacity, costs.room
        require_total_capacity(need, room)
        self.hosts, self._fits = costs.hosts, self._fit(need, room, costs)
        everything = slice(0, pairs)
        used = np.zeros(hosts)
        self.latency = np.concatenate([costs.rows(everything).ravel(), used])
        usage = AssignmentCosts(problem, "network-usage").rows(everything)
        self.usage = np.concatenate([usage.ravel(), used])
        self.count = np.concatenate([np.zeros(pairs * hosts), used + 1.0])
        self._rows, self._least, self._most = self._assignment(need, room)

    def _fit(self, need: Floats, room: Floats, costs: AssignmentCosts) -> Bools:
        """(p, h) whether a node has room for a join, and what it requires."""
        fits: Bools = need[:, None] <= room * (1.0 + 1e-12)
        of_pair = self.problem.requirements.of_pairs(self.problem)
        asking = of_pair >= 0
        fits[asking] &= self.problem.requirements.met[of_pair[asking]][:, costs.hosts]
        return fits

    def _assignment(self, need: Floats, room: Floats) -> tuple[Any, Floats, Floats]:
        """Every pair on one used host, no host over its room."""
        from scipy.sparse import block_array, csr_array, diags_array, eye_array, kron

        pairs, hosts = len(need), len(room)
        once = kron(eye_array(pairs), np.ones((1, hosts)))
        limited = np.flatnonzero(np.isfinite(room))
        load = csr_array(kron(need[None, :], eye_array(hosts)))[limited]
        opened = csr_array(-diags_array(np.where(np.isfinite(room), room, 0.0)))[limited]
        rows = block_array(
            [
                [once, None],
                [eye_array(pairs * hosts), kron(-np.ones((pairs, 1)), eye_array(hosts))],
                [load, opened],
            ],
            format="csr",
        )
        below = rows.shape[0] - pairs
        least = np.concatenate([np.ones(pairs), np.full(below, -np.inf)])
        return rows, least, np.concatenate([np.ones(pairs), np.zeros(below)])

    def minimum(self, cost: Floats, *limits: tuple[Floats, float]) -> Floats | None:
        """(c,) the variables with the least cost, each limit kept; None where none keeps them.

        Raises:
            ProblemError: when the time is over.
        """
        from scipy.sparse import csr_array, vstack

        hosts = self._fits.shape[1]
        # Rows and costs about 1, so that the solver's tolerances mean the same of all.
        scales = [max(limit, SAME * float(row.max()), 1e-300) for row, limit in limits]
        rows = [csr_array((row / s)[None, :]) for (row, _), s in zip(limits, scales, strict=True)]
        bounds = [limit / s + SAME / 10 for (_, limit), s in zip(limits, scales, strict=True)]
        scale = max(float(cost.max()), 1e-300)
        model = Model(
            cost=cost / scale,
            rows=vstack([self._rows, *rows], format="csr"),
            least=np.concatenate([self._least, np.full(len(limits), -np.inf)]),
            most=np.concatenate([self._most, bounds]),
            integral=np.ones(len(cost), bool),
            upper=np.concatenate([self._fits.ravel().astype(np.float64), np.ones(hosts)]),
        )
        found = solve(model, self._deadline - time.monotonic(), GAP)
        if found.infeasible:
            return None
        if found.x is None or time.monotonic() > self._deadline:
            raise ProblemError(
                f"pareto: not done in {self._time_limit:g} s; allow more time or fewer steps"
            )
        return np.round(found.x)

    def point(self, x: Floats) -> Point:
        """What a solution is as a placement."""
        pairs, hosts = self._fits.shape
        host = x[: pairs * hosts].reshape(pairs, hosts).argmax(axis=1)
        chosen = np.arange(pairs) * hosts + host
        plan = Plan(
            problem=self.problem,
            strategy="ilp",
            objective="latency",
            partitions=Partitions.whole(self.problem),
            instances=Instances.whole(self.hosts[host]),
            breaks=("link",),
        )
        return Point(
            float(self.latency[chosen].sum()),
            float(self.usage[chosen].sum()),
            len(np.unique(host)),
            plan,
        )


def pareto_front(
    problem: Problem,
    steps: int = 5,
    time_limit: float = 300.0,
    advance: Callable[[int, int], None] = lambda *_: None,
) -> list[Point]:
    """Placements of whole joins that nothing beats, by number of nodes, then by latency.

    With each number of nodes these are the one of least latency, the one of least network usage,
    and some between; so the least of each value there is, is among them.

    Args:
        problem: what is placed; budgets of links are left out.
        steps: limits of network usage for each number of nodes, from none to the least; 2 or more.
        time_limit: seconds for all programs together.
        advance: called with numbers of nodes done and in all.

    Raises:
        InfeasibleError: when whole joins do not fit.
        ProblemError: for a problem that is too large, a value out of range, or when the time ran
            out.
    """
    check_limits(time_limit, GAP)
    if steps < 2:
        raise ProblemError(f"steps: {steps}; use a whole number >= 2")
    programs = _Programs(problem, time_limit)
    fewest = programs.minimum(programs.count)
    if fewest is None:
        raise lacking(problem.required_capacity, problem.nodes.capacity[programs.hosts])
    least_latency = _settled(programs, programs.latency, programs.usage)
    least_usage = _settled(programs, programs.usage, programs.latency)
    first = programs.point(fewest).nodes
    last = max(least_latency.nodes, least_usage.nodes)
    found = [least_latency, least_usage]
    for nodes in range(first, last + 1):
        advance(nodes - first, last - first + 1)
        limit = (programs.count, float(nodes))
        cheap = _settled(programs, programs.usage, programs.latency, limit)
        fast = _settled(programs, programs.latency, programs.usage, limit)
        found += [cheap, fast]
        for usage in np.linspace(cheap.network_usage, fast.network_usage, steps)[1:-1].tolist():
            if fast.network_usage > cheap.network_usage * (1 + SAME):
                bound = (programs.usage, usage)
                found.append(_settled(programs, programs.latency, programs.usage, limit, bound))
    advance(1, 1)
    front: list[Point] = []
    for point in sorted(found, key=lambda one: (one.nodes, one.latency)):
        beaten = any(other.beats(point) for other in found)
        if not beaten and not any(point.same_as(other) for other in front):
            front.append(point)
    return front


def _settled(
    programs: _Programs, first: Floats, second: Floats, *limits: tuple[Floats, float]
) -> Point:
    """The least of one cost, of all these the least of another, of these the fewest nodes."""
    costs = [first, second, programs.count]
    bounds = list(limits)
    x: Floats | None = None
    for cost in costs:
        # A limit at the very optimum may be lost to rounding; then what was found stands.
        better = programs.minimum(cost, *bounds)
        x = x if better is None else better
        if x is None:
            raise RuntimeError("mixed-integer program: no solution within limits that one kept")
        bounds.append((cost, float(cost @ x)))
    assert x is not None  # there are three costs
    return programs.point(x)


__all__ = ["Point", "pareto_front"]
