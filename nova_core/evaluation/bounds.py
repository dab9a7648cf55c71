"""Lower bounds on what any placement of whole joins costs, by linear programming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model.objectives import leg_weights
from nova_core.model.problem import Bools, Floats, Ints, Problem

# Cheapest nodes of each pair that the first linear program knows, and how many more each pair may
# bring per round.
_FIRST_COLUMNS = 10
_NEW_COLUMNS = 8
# Reduced costs above minus this share of the largest cost count as zero.
_OPTIMAL = 1e-9
# Entries of the cost matrix worked on at a time.
_CHUNK_ENTRIES = 4_000_000


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The optimum of the fractional assignment.

    Attributes:
        value: its cost: no placement of whole joins is cheaper, in the objective's unit.
        pair_price: (p,) dual of placing each pair.
        node_price: (n,) dual of each node's capacity, at most 0; 0 where a node cannot host.
    """

    value: float
    pair_price: Floats
    node_price: Floats


def lower_bound(problem: Problem, objective: str = "latency") -> float:
    """Cost below which no placement of whole joins can come: fractions of joins are allowed.

    Minimizes ``sum c_ij x_ij`` under ``sum_j x_ij = 1`` and ``sum_i C_r(i) x_ij <= C_a(j)`` over
    nodes that may host. Links, requirements, C_min and t_b are left out, which keeps it a
    lower bound.

    Args:
        problem: what is placed.
        objective: a name of `nova_core.model.objectives`.

    Raises:
        InfeasibleError: when all nodes together have too little capacity.
        ProblemError: when the solver gives up, as it does on costs of 1e19.
    """
    return relaxation(problem, objective).value


def relaxation(
    problem: Problem, objective: str = "latency", placed: Ints | None = None
) -> Relaxation:
    """The linear program of `lower_bound`, solved exactly by column generation.

    Only columns that may matter enter the program: the cheapest nodes of every pair, then any that
    the duals show to pay, until none does.

    Args:
        problem: what is placed.
        objective: a name of `nova_core.model.objectives`.
        placed: (p,) a placement of whole joins that overloads nothing, as indices of the nodes that
            may host. With it, fractions of a join only go to nodes with room for all of it, which
            gives a higher bound of whole joins.
    """
    costs = AssignmentCosts(problem, objective, whole=placed is not None)
    need, hosts, room = problem.required_capacity, costs.hosts, costs.room
    require_total_capacity(need, room)
    possible = _filling(need, room) if placed is None else (np.arange(len(need)), placed)
    pair, host = merged(costs.cheapest(_FIRST_COLUMNS), possible, len(hosts))
    while True:
        value, pair_price, host_price = _solve(costs.of(pair, host), pair, host, need, room)
        new_pair, new_host = costs.paying(pair_price, host_price)
        if len(new_pair) == 0:
            break
        before = len(pair)
        pair, host = merged((pair, host), (new_pair, new_host), len(hosts))
        if len(pair) == before:  # rounding of the duals brought only known columns
            break
    node_price = np.zeros(len(problem.nodes))
    node_price[hosts] = host_price
    return Relaxation(value, pair_price, node_price)


def require_total_capacity(need: Floats, room: Floats) -> None:
    """Refuse a problem whose nodes together cannot receive what its joins need.

    Raises:
        InfeasibleError: with what is lacking.
    """
    missing = float(need.sum() - room.sum())
    if missing > 1e-9 * need.sum():
        raise InfeasibleError(
            f"capacity: joins need {need.sum():.6g} tuples/s, nodes that may host have "
            f"{room.sum():.6g}; {missing:.6g} are missing",
            missing,
        )


class AssignmentCosts:
    """Costs of running each pair whole on each node that may host.

    Args:
        problem: what is placed.
        objective: a name of `nova_core.model.objectives`.
        hosts: (h,) nodes; None for all that may host and have room.
        latency: (n, n) ms that `rows` take; None for those by coordinates.
        whole: whether columns on hosts without room for the whole pair are none.

    Attributes:
        hosts: (h,) nodes.
        room: (h,) their capacity, tuples/s.
    """

    def __init__(
        self,
        problem: Problem,
        objective: str,
        hosts: Ints | None = None,
        latency: Floats | None = None,
        whole: bool = False,
    ) -> None:
        nodes = problem.nodes
        self._problem, self._latency, self._whole = problem, latency, whole
        self._weights = leg_weights(problem, objective)
        self.hosts: Ints = (
            np.flatnonzero(nodes.worker & (nodes.capacity > 0)) if hosts is None else hosts
        )
        self.room: Floats = nodes.capacity[self.hosts]

    def fits(self, need: Floats) -> Bools:
        """(k, h) whether a host has room for each of some needs ((k,) tuples/s)."""
        return np.asarray(need[:, None] <= self.room * (1.0 + 1e-12))

    def of(self, pair: Ints, host: Ints) -> Floats:
        """(c,) costs of single columns; ``host`` indexes `hosts`."""
        p = self._problem
        legs = p.distance(p.pair_ends[pair], self.hosts[host][:, None])
        return np.asarray((self._weights[pair] * legs).sum(axis=1))

    def rows(self, pairs: slice | Ints) -> Floats:
        """(pairs, h) costs of some pairs on every host."""
        ends = self._problem.pair_ends[pairs]
        cost = np.zeros((len(ends), len(self.hosts)))
        for leg, node in enumerate(ends.T):
            distinct, row = np.unique(node, return_inverse=True)
            cost += self._weights[pairs, leg, None] * self._away(distinct)[row]
        return cost

    def _away(self, ends: Ints) -> Floats:
        """(e, h) ms between some nodes and every host."""
        if self._latency is not None:
            return np.asarray(self._latency[np.ix_(ends, self.hosts)], np.float64)
        from scipy.spatial.distance import cdist

        position, height = self._problem.latency_position, self._problem.nodes.height
        away = np.asarray(cdist(position[ends], position[self.hosts]))
        if height is not None:
            apart = ends[:, None] != self.hosts
            away += apart * np.add.outer(height[ends], height[self.hosts])
        return away

    def chunks(self, pairs: Ints | None = None) -> list[Ints]:
        """Pairs, all or some, in runs whose cost rows fit in memory together."""
        step = max(1, _CHUNK_ENTRIES // max(1, len(self.hosts)))
        rows = np.arange(len(self._problem.matrix)) if pairs is None else pairs
        return [rows[a : a + step] for a in range(0, len(rows), step)]

    def _columns(self, pairs: Ints, values: Floats) -> Floats:
        """(pairs, h) values, infinite where there is no column."""
        if self._whole:
            values[~self.fits(self._problem.required_capacity[pairs])] = np.inf
        return values

    def cheapest(self, count: int) -> tuple[Ints, Ints]:
        """Columns of each pair's ``count`` cheapest hosts."""
        count = min(count, len(self.hosts))
        columns: list[tuple[Ints, Ints]] = []
        for chunk in self.chunks():
            cost = self._columns(chunk, self.rows(chunk))
            best = np.argpartition(cost, count - 1, axis=1)[:, :count]
            row, column = np.nonzero(np.take_along_axis(cost, best, axis=1) < np.inf)
            columns.append((chunk[row], best[row, column]))
        return np.concatenate([f[0] for f in columns]), np.concatenate([f[1] for f in columns])

    def reduced(self, pairs: Ints, pair_price: Floats, host_price: Floats) -> Floats:
        """(pairs, h) reduced costs: what a column adds to the relaxation's value, at least."""
        need = self._problem.required_capacity[pairs]
        return self.rows(pairs) - pair_price[pairs, None] - np.outer(need, host_price)

    def paying(self, pair_price: Floats, host_price: Floats) -> tuple[Ints, Ints]:
        """Columns of negative reduced cost, the most negative of each pair."""
        columns: list[tuple[Ints, Ints]] = []
        count = min(_NEW_COLUMNS, len(self.hosts))
        scale = max(1e-300, float(np.abs(pair_price).max(initial=0.0)))
        for chunk in self.chunks():
            reduced = self._columns(chunk, self.reduced(chunk, pair_price, host_price))
            best = np.argpartition(reduced, count - 1, axis=1)[:, :count]
            pays = np.take_along_axis(reduced, best, axis=1) < -_OPTIMAL * scale
            row, column = np.nonzero(pays)
            columns.append((chunk[row], best[row, column]))
        return np.concatenate([f[0] for f in columns]), np.concatenate([f[1] for f in columns])

    def below(self, limit: float, duals: Relaxation, most: int) -> tuple[Ints, Ints, float]:
        """Columns of reduced cost up to ``limit``.

        Args:
            limit: of the reduced cost.
            duals: of the relaxation.
            most: how many; of more, those of the least reduced cost.

        Returns:
            Pairs, hosts, and the least reduced cost up to ``limit`` of a column that is left out,
            ``inf`` where none is.
        """
        price = duals.node_price[self.hosts]
        columns: list[tuple[Ints, Ints, Floats]] = []
        for chunk in self.chunks():
            reduced = self._columns(chunk, self.reduced(chunk, duals.pair_price, price))
            row, column = np.nonzero((reduced <= limit) & (reduced < np.inf))
            columns.append((chunk[row], column, reduced[row, column]))
        pair, host, value = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        if len(pair) <= most:
            return pair, host, np.inf
        order = np.argpartition(value, most)
        kept = np.sort(order[:most])
        return pair[kept], host[kept], float(value[order[most]])


def _filling(need: Floats, room: Floats) -> tuple[Ints, Ints]:
    """Columns with which the program has a solution: pairs poured over hosts one after another."""
    pair_end, host_end = np.cumsum(need), np.cumsum(room)
    cuts = np.unique(np.concatenate([pair_end, host_end[host_end < pair_end[-1]]]))
    middle = (np.concatenate(([0.0], cuts[:-1])) + cuts) / 2
    pair = np.minimum(np.searchsorted(pair_end, middle), len(need) - 1)
    host = np.minimum(np.searchsorted(host_end, middle), len(room) - 1)
    return pair, host


def merged(first: tuple[Ints, Ints], second: tuple[Ints, Ints], hosts: int) -> tuple[Ints, Ints]:
    """Columns of both, each once, given as pairs and hosts of so many."""
    keys = [pair * hosts + host for pair, host in (first, second)]
    key = np.unique(np.concatenate(keys))
    return key // hosts, key % hosts


def _solve(
    cost: Floats, pair: Ints, host: Ints, need: Floats, room: Floats
) -> tuple[float, Floats, Floats]:
    """Value and duals of the program over the given columns."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    column = np.arange(len(pair))
    limited = np.flatnonzero(np.isfinite(room))
    # Typed loosely: the solver takes sparse arrays, its published types do not say so.
    load: Any = csr_array((need[pair], (host, column)), shape=(len(room), len(pair)))
    once: Any = csr_array((np.ones(len(pair)), (pair, column)), shape=(len(need), len(pair)))
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
