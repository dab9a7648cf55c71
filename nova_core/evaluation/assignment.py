"""What whole operators cost on each node, and programs of all their placements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nova_core.evaluation.mip import Program
from nova_core.model.expansion import graph_of
from nova_core.model.objectives import link_weights
from nova_core.model.problem import Bools, Floats, Ints, Problem


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The optimum of the fractional assignment, where only links between operators and nodes count.

    Attributes:
        value: its cost: no placement of whole operators is cheaper, in the objective's unit.
        body_price: (b,) dual of placing each operator.
        node_price: (n,) dual of each node's capacity, at most 0; 0 where a node cannot host.
    """

    value: float
    body_price: Floats
    node_price: Floats


# Columns of each operator that a linear program gets per round, at most.
_NEW_COLUMNS = 8
# Reduced costs above minus this share of the largest cost count as zero.
_OPTIMAL = 1e-9
# Entries of the cost matrix worked on at a time.
_CHUNK_ENTRIES = 4_000_000


class Inner(NamedTuple):
    """Links from one operator that is placed to another; several between the same two are one.

    Attributes:
        producer: (l,) operator, by its row in the graph's bodies.
        consumer: (l,) operator, likewise.
        weight: (l,) what each ms between their nodes costs.
    """

    producer: Ints
    consumer: Ints
    weight: Floats


class AssignmentCosts:
    """Costs of running each operator whole on each node that may host.

    Operators are the bodies of the problem's graph: pairs, or operators of queries as they are
    written. What an operator costs on a node are its links from sources and to sinks; links between
    two operators, `inner`, cost by the nodes of both.

    Args:
        problem: what is placed.
        objective: a name of `nova_core.model.objectives`.
        hosts: (h,) nodes; None for all that may host and have room.
        latency: (n, n) ms that `rows` and `apart` take; None for those by coordinates.
        whole: whether columns on hosts without room for the whole operator are none.

    Attributes:
        hosts: (h,) nodes.
        room: (h,) their capacity, tuples/s.
        need: (b,) tuples/s that each operator receives.
        inner: links between operators.
        constant: what links from sources to sinks cost, wherever operators run.
    """

    def __init__(
        self,
        problem: Problem,
        objective: str,
        hosts: Ints | None = None,
        latency: Floats | None = None,
        whole: bool = False,
    ) -> None:
        nodes, graph = problem.nodes, graph_of(problem)
        self._problem, self._latency, self._whole = problem, latency, whole
        self.need: Floats = graph.required[graph.bodies]
        self.hosts: Ints = (
            np.flatnonzero(nodes.worker & (nodes.capacity > 0)) if hosts is None else hosts
        )
        self.room: Floats = nodes.capacity[self.hosts]
        weight, (producer, consumer, _, _) = link_weights(graph, objective), graph.links
        sender, receiver = graph.body_of[producer], graph.body_of[consumer]
        # Links between an operator and a node: a run per operator, in the order of plans.
        link = graph.at_body[1]
        link = link[(sender[link] < 0) | (receiver[link] < 0)]
        body = np.maximum(sender[link], receiver[link])
        self._at = np.searchsorted(body, np.arange(len(self.need) + 1))
        self._end = graph.node[np.where(sender[link] < 0, producer[link], consumer[link])]
        self._weight = weight[link]
        pair = np.stack([sender[graph.inner], receiver[graph.inner]])
        ends, row = np.unique(pair, axis=1, return_inverse=True)
        total = np.bincount(row.ravel(), weight[graph.inner], ends.shape[1])
        self.inner = Inner(ends[0], ends[1], total.astype(np.float64))
        straight = np.flatnonzero((sender < 0) & (receiver < 0))
        away = problem.distance(graph.node[producer[straight]], graph.node[consumer[straight]])
        self.constant = float(weight[straight] @ away)

    @property
    def columns(self) -> int:
        """Variables of the program of `add`."""
        hosts = len(self.hosts)
        return len(self.need) * hosts + len(self.inner.weight) * hosts * hosts

    def fits(self, need: Floats) -> Bools:
        """(k, h) whether a host has room for each of some needs ((k,) tuples/s)."""
        return np.asarray(need[:, None] <= self.room * (1.0 + 1e-12))

    def of(self, body: Ints, host: Ints) -> Floats:
        """(c,) costs of single columns, without `inner`; ``host`` indexes `hosts`."""
        count = self._at[body + 1] - self._at[body]
        column = np.repeat(np.arange(len(body)), count)
        within = np.arange(len(column)) - np.repeat(np.cumsum(count) - count, count)
        link = np.repeat(self._at[body], count) + within
        away = self._problem.distance(self._end[link], self.hosts[host[column]])
        return np.bincount(column, self._weight[link] * away, len(body)).astype(np.float64)

    def rows(self, bodies: slice | Ints) -> Floats:
        """(bodies, h) costs of some operators on every host, without `inner`."""
        body = np.arange(len(self.need))[bodies]
        cost = np.zeros((len(body), len(self.hosts)))
        count = self._at[body + 1] - self._at[body]
        for nth in range(int(count.max(initial=0))):
            more = np.flatnonzero(count > nth)
            link = self._at[body[more]] + nth
            distinct, row = np.unique(self._end[link], return_inverse=True)
            cost[more] += self._weight[link, None] * self._away(distinct)[row]
        return cost

    def ends(self, bodies: Ints) -> tuple[Ints, Floats]:
        """((k, l), (k, l)) nodes that operators are linked with, and the weights of these links.

        Of operators with fewer links, some come again with weight 0.
        """
        count = self._at[bodies + 1] - self._at[bodies]
        nth = np.arange(int(count.max(initial=0)))
        real = nth < count[:, None]
        link = self._at[bodies][:, None] + np.where(real, nth, 0)
        return self._end[link], np.where(real, self._weight[link], 0.0)

    @cached_property
    def apart(self) -> Floats:
        """(h, h) ms between hosts."""
        return self._away(self.hosts)

    def total(self, placed: Ints) -> float:
        """What a placement ((b,) indices of `hosts`) of all operators costs."""
        alone = float(self.of(np.arange(len(placed)), placed).sum())
        ends = (self.hosts[placed[end]] for end in self.inner[:2])
        return alone + self.constant + float(self.inner.weight @ self._problem.distance(*ends))

    def add(self, program: Program, fits: Bools | None = None) -> int:
        """Add placements of all operators to a program, and what they cost without `constant`.

        Args:
            program: gets variables of each operator on each host, host by host, and those of
                `add_products`.
            fits: (b, h) whether each operator may run on each host. It runs on one then; where
                None, fractions of it run on any.

        Returns:
            The block of variables of operators on hosts.
        """
        from scipy.sparse import eye_array, kron

        (bodies, hosts), cost = (len(self.need), len(self.hosts)), self.rows(slice(None)).ravel()
        most = 1.0 if fits is None else fits.ravel().astype(np.float64)
        placed = program.variables(cost, most, fits is not None)
        program.limit({placed: kron(eye_array(bodies), np.ones((1, hosts)))}, 1.0, 1.0)
        self.add_products(program, placed, bodies, self.inner)
        return placed

    def keep_room(self, program: Program, placed: int, used: int | None = None) -> None:
        """Let no host receive more than it has room for.

        Args:
            program: what `add` was called with.
            placed: what it returned.
            used: block of variables that tell whether each host may run anything.
        """
        from scipy.sparse import csr_array, diags_array, eye_array, kron

        limited = np.flatnonzero(np.isfinite(self.room))
        load = csr_array(kron(self.need[None, :], eye_array(len(self.hosts))))[limited]
        if used is None:
            program.limit({placed: load}, most=self.room[limited])
            return
        room = np.where(np.isfinite(self.room), self.room, 0.0)
        offered = csr_array(-diags_array(room))[limited]
        program.limit({placed: load, used: offered}, most=0.0)

    def add_products(self, program: Program, placed: int, count: int, inner: Inner) -> None:
        """Add what links cost: for each, a variable of every host of either end.

        Such a variable is the product of two variables of ``placed``. It need not be an integer:
        those of one host at one end sum to whether that end is there, so whole ends leave one 1.
        This is the standard linearization of quadratic assignments (Adams and Johnson, 1994). The
        variables come link by link, producer's host by host, consumer's by host.

        Args:
            program: that has ``placed``.
            placed: block of variables of each of ``count`` things on each host, host by host.
            count: how many things are placed.
            inner: links between them.
        """
        from scipy.sparse import csr_array, eye_array, kron

        links, hosts = len(inner.weight), len(self.hosts)
        if not links:
            return
        product = program.variables(self.products(inner), whole=False)
        each, every = eye_array(hosts), np.ones((1, hosts))
        for end, sums in (
            (inner.producer, kron(eye_array(links * hosts), every)),
            (inner.consumer, kron(eye_array(links), kron(every, each))),
        ):
            chosen = csr_array((-np.ones(links), (np.arange(links), end)), shape=(links, count))
            program.limit({product: sums, placed: kron(chosen, each)}, 0.0, 0.0)

    def products(self, inner: Inner) -> Floats:
        """Costs of the variables of `add_products`."""
        if not len(inner.weight):
            return np.empty(0)
        return np.asarray((inner.weight[:, None, None] * self.apart).ravel())

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

    def chunks(self, bodies: Ints | None = None) -> list[Ints]:
        """Operators, all or some, in runs whose cost rows fit in memory together."""
        step = max(1, _CHUNK_ENTRIES // max(1, len(self.hosts)))
        rows = np.arange(len(self.need)) if bodies is None else bodies
        return [rows[a : a + step] for a in range(0, len(rows), step)]

    def _columns(self, bodies: Ints, values: Floats) -> Floats:
        """(bodies, h) values, infinite where there is no column."""
        if self._whole:
            values[~self.fits(self.need[bodies])] = np.inf
        return values

    def cheapest(self, count: int) -> tuple[Ints, Ints]:
        """Columns of each operator's ``count`` cheapest hosts."""
        count = min(count, len(self.hosts))
        columns: list[tuple[Ints, Ints]] = []
        for chunk in self.chunks():
            cost = self._columns(chunk, self.rows(chunk))
            best = np.argpartition(cost, count - 1, axis=1)[:, :count]
            row, column = np.nonzero(np.take_along_axis(cost, best, axis=1) < np.inf)
            columns.append((chunk[row], best[row, column]))
        return np.concatenate([f[0] for f in columns]), np.concatenate([f[1] for f in columns])

    def reduced(self, bodies: Ints, body_price: Floats, host_price: Floats) -> Floats:
        """(bodies, h) reduced costs: what a column adds to the relaxation's value, at least."""
        alone = self.rows(bodies) - body_price[bodies, None]
        return np.asarray(alone - np.outer(self.need[bodies], host_price))

    def paying(self, body_price: Floats, host_price: Floats) -> tuple[Ints, Ints]:
        """Columns of negative reduced cost, the most negative of each operator."""
        columns: list[tuple[Ints, Ints]] = []
        count = min(_NEW_COLUMNS, len(self.hosts))
        scale = max(1e-300, float(np.abs(body_price).max(initial=0.0)))
        for chunk in self.chunks():
            reduced = self._columns(chunk, self.reduced(chunk, body_price, host_price))
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
            Operators, hosts, and the least reduced cost up to ``limit`` of a column that is left
            out, ``inf`` where none is.
        """
        price = duals.node_price[self.hosts]
        columns: list[tuple[Ints, Ints, Floats]] = []
        for chunk in self.chunks():
            reduced = self._columns(chunk, self.reduced(chunk, duals.body_price, price))
            row, column = np.nonzero((reduced <= limit) & (reduced < np.inf))
            columns.append((chunk[row], column, reduced[row, column]))
        body, host, value = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        if len(body) <= most:
            return body, host, np.inf
        order = np.argpartition(value, most)
        kept = np.sort(order[:most])
        return body[kept], host[kept], float(value[order[most]])
