"""Placements of whole operators that nothing beats in latency, network usage and nodes at once.

By mixed-integer programs: for every number of nodes and a series of limits of network usage, the
least latency, and then the least usage with that latency (the epsilon-constraint method).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation.assignment import AssignmentCosts
from nova_core.evaluation.bounds import require_total_capacity
from nova_core.evaluation.exact import lacking
from nova_core.evaluation.mip import Program, check_limits
from nova_core.model.expansion import graph_of
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Problem

MOST_COLUMNS = 20_000
# Relative difference below which two values are the same, and by which a limit is loosened.
SAME = 1e-6
# Relative gap at which a program counts as solved.
GAP = 1e-8


@dataclass(frozen=True, eq=False)
class Point:
    """A placement that no other one beats.

    Attributes:
        latency: sum over links of their latencies, ms; of a join of a pair, its three legs'.
        network_usage: sum over links of rate times latency, tuples/s * ms.
        nodes: that host an operator.
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


class _Placements:
    """Placements of whole operators, as the program of them.

    Its variables are those of `AssignmentCosts.add`, then whether a host is used.
    """

    def __init__(self, problem: Problem, time_limit: float) -> None:
        self.problem = problem
        self._program = Program(time_limit, GAP)
        costs = self._costs = AssignmentCosts(problem, "latency")
        bodies, hosts = self._shape = len(costs.need), len(costs.hosts)
        if costs.columns > MOST_COLUMNS:
            links = len(costs.inner.weight)
            raise ProblemError(
                f"pareto: {bodies} operators, {links} links between them and {hosts} nodes make "
                f"{costs.columns:,} variables; at most {MOST_COLUMNS:,} are supported; use a "
                "smaller problem"
            )
        require_total_capacity(costs.need, costs.room)
        usage = self._usage = AssignmentCosts(problem, "network-usage")
        unused = np.zeros(hosts)
        self.latency, self.usage = (
            np.concatenate([one.rows(slice(None)).ravel(), one.products(one.inner), unused])
            for one in (costs, usage)
        )
        self.count = np.append(np.zeros(len(self.latency) - hosts), np.ones(hosts))
        if bodies:
            self._limit(costs)

    def _limit(self, costs: AssignmentCosts) -> None:
        """Every operator on a used host with what it needs and requires, none over its room."""
        from scipy.sparse import eye_array, kron

        (bodies, hosts), graph = self._shape, graph_of(self.problem)
        fits = costs.fits(costs.need)
        of_body = graph.requirement[graph.bodies]
        fits &= graph.requirements.fits(of_body[:, None], costs.hosts[None, :])
        placed = costs.add(self._program, fits)
        used = self._program.variables(np.zeros(hosts))
        opens = kron(-np.ones((bodies, 1)), eye_array(hosts))
        self._program.limit({placed: eye_array(fits.size), used: opens}, most=0.0)
        costs.keep_room(self._program, placed, used)

    def lacking(self) -> InfeasibleError:
        """What is missing where whole operators do not fit."""
        return lacking(self._costs.need, self._costs.room)

    def minimum(self, cost: Floats, *limits: tuple[Floats, float]) -> Floats | None:
        """(c,) the variables with the least cost, each limit kept; None where none keeps them.

        Raises:
            ProblemError: when the time is over.
        """
        # Rows and costs are scaled to about 1, so that the solver's tolerances apply equally.
        scales = [max(limit, SAME * float(row.max()), 1e-300) for row, limit in limits]
        below = [
            (row / s, limit / s + SAME / 10) for (row, limit), s in zip(limits, scales, strict=True)
        ]
        values = self._program.solve(cost / max(float(cost.max()), 1e-300), below)
        if self._program.infeasible:
            return None
        if values is None or self._program.remaining < 0:
            limit = self._program.time_limit
            raise ProblemError(f"pareto: not done in {limit:g} s; allow more time or fewer steps")
        return np.round(values)

    def settled(self, first: Floats, second: Floats, *limits: tuple[Floats, float]) -> Point:
        """The least of one cost, of all these the least of another, of these the fewest nodes."""
        bounds = list(limits)
        x: Floats | None = None
        for cost in (first, second, self.count):
            # Rounding may make a limit at the optimum infeasible; then the previous x remains.
            better = self.minimum(cost, *bounds)
            x = x if better is None else better
            if x is None:
                raise RuntimeError("mixed-integer program: no solution within limits that one kept")
            bounds.append((cost, float(cost @ x)))
        assert x is not None  # there are three costs
        return self.point(x)

    def point(self, x: Floats) -> Point:
        """A solution as a placement."""
        bodies, hosts = self._shape
        host = np.empty(0, np.int64)
        if bodies:
            host = x[: bodies * hosts].reshape(bodies, hosts).argmax(axis=1)
        return Point(
            self._costs.total(host),
            self._usage.total(host),
            len(np.unique(host)),
            Plan.whole(self.problem, self._costs.hosts[host], "ilp", breaks=("link",)),
        )


def pareto_front(
    problem: Problem,
    steps: int = 5,
    time_limit: float = 300.0,
    advance: Callable[[int, int], None] = lambda *_: None,
) -> list[Point]:
    """Placements of whole operators that nothing beats, by number of nodes, then by latency.

    With each number of nodes these are the one of least latency, the one of least network usage,
    and some between; so the least value of each of the three is among them.

    Args:
        problem: what is placed; queries as they are written. Budgets of links are left out.
        steps: limits of network usage for each number of nodes, from none to the least; 2 or more.
        time_limit: seconds for all programs together.
        advance: called with numbers of nodes done and in all.

    Raises:
        InfeasibleError: when whole operators do not fit.
        ProblemError: for a problem that is too large, a value out of range, or when the time ran
            out.
    """
    check_limits(time_limit, GAP)
    if steps < 2:
        raise ProblemError(f"steps: {steps}; use a whole number >= 2")
    placements = _Placements(problem, time_limit)
    latency, usage, count = placements.latency, placements.usage, placements.count
    if not graph_of(problem).bodies.size:
        return [placements.point(count)]
    fewest = placements.minimum(count)
    if fewest is None:
        raise placements.lacking()
    points = [placements.settled(latency, usage), placements.settled(usage, latency)]
    first, last = placements.point(fewest).nodes, max(point.nodes for point in points)
    for nodes in range(first, last + 1):
        advance(nodes - first, last - first + 1)
        limit = (count, float(nodes))
        cheap = placements.settled(usage, latency, limit)
        fast = placements.settled(latency, usage, limit)
        points += [cheap, fast]
        for most in np.linspace(cheap.network_usage, fast.network_usage, steps)[1:-1].tolist():
            if fast.network_usage > cheap.network_usage * (1 + SAME):
                points.append(placements.settled(latency, usage, limit, (usage, most)))
    advance(1, 1)
    front: list[Point] = []
    for point in sorted(points, key=lambda one: (one.nodes, one.latency)):
        beaten = any(other.beats(point) for other in points)
        if not beaten and not any(point.same_as(other) for other in front):
            front.append(point)
    return front
