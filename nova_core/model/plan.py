"""The placement plan in memory: what was decided, engine-neutral, as columns.

A pair of sources that may join (a row of the problem's join matrix) has both inputs cut into
partitions. Every left partition meets every right one in exactly one *instance*: a rectangle of the
pair's partition grid that runs on one node. Two paper replicas that merge on a node are simply one
larger rectangle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.problem import Floats, Ints, Problem


@dataclass(frozen=True, eq=False)
class Partitions:
    """How both inputs of every pair are cut.

    Row ``2 * pair`` of ``offset`` starts the left input's partitions, row ``2 * pair + 1`` the right
    one's. A tuple finds its partition from its sequence number and the rates as weights.

    Attributes:
        offset: (2p + 1,) start of each input's run in ``rate``.
        rate: rate of each partition, tuples/s; each input's run sums to the source's rate.
    """

    offset: Ints
    rate: Floats

    @classmethod
    def whole(cls, problem: Problem) -> Partitions:
        """Every input in one piece."""
        rate = np.empty(2 * len(problem.matrix))
        rate[0::2], rate[1::2] = problem.left_rate, problem.right_rate
        return cls(np.arange(len(rate) + 1, dtype=np.int64), rate)

    @cached_property
    def count(self) -> Ints:
        """(2p,) partitions of each input: m of the left at ``2 * pair``, n of the right after it."""
        return np.diff(self.offset)

    def rates(self, pair: int, side: int) -> Floats:
        """Rates of one input's partitions; ``side`` is 0 for left, 1 for right."""
        return self.rate[self.offset[2 * pair + side] : self.offset[2 * pair + side + 1]]


@dataclass(frozen=True, eq=False)
class Instances:
    """Operator instances, one row each, ordered by pair.

    Attributes:
        pair: (k,) row of the join matrix the instance works on.
        node: (k,) where it runs.
        left_begin: (k,) first left partition it receives.
        left_end: (k,) one past the last left partition.
        right_begin: (k,) first right partition.
        right_end: (k,) one past the last right partition.
    """

    pair: Ints
    node: Ints
    left_begin: Ints
    left_end: Ints
    right_begin: Ints
    right_end: Ints

    @classmethod
    def whole(cls, node: Ints) -> Instances:
        """One uncut instance per pair on the given nodes ((p,))."""
        count = len(node)
        zero, one = np.zeros(count, np.int64), np.ones(count, np.int64)
        return cls(np.arange(count, dtype=np.int64), np.asarray(node, np.int64), zero, one, zero, one)

    def __len__(self) -> int:
        return len(self.pair)

    @cached_property
    def replicas(self) -> Ints:
        """(k,) paper replicas merged in each instance: left times right partitions."""
        return (self.left_end - self.left_begin) * (self.right_end - self.right_begin)


@dataclass(frozen=True, eq=False)
class Routes:
    """Multi-hop routes of a strategy that relays (``tree``); others send directly.

    Row ``3 * instance + leg`` of ``offset`` starts a route; legs are 0 left source to node, 1 right
    source to node, 2 node to sink. A route lists its nodes, both ends included.
    """

    offset: Ints
    node: Ints


@dataclass(frozen=True, eq=False)
class Plan:
    """A placement of every join of one problem.

    Attributes:
        problem: the problem it answers.
        strategy: name of the strategy that made it.
        objective: name of what was minimized.
        parameters: the strategy's parameters, as written in documents.
        partitions: how inputs are cut.
        instances: what runs where.
        virtual_position: (p, d) Phase II's optimum of each pair, or None.
        routes: multi-hop routes, or None when every edge is direct.
        breaks: names of the constraints the strategy knowingly ignores (``capacity``, ...); `verify`
            reports those as accepted. See `nova_core.model.verify.CONSTRAINTS`.
        notes: free-form facts worth keeping, e.g. how often nothing fitted.
    """

    problem: Problem
    strategy: str
    objective: str
    partitions: Partitions
    instances: Instances
    parameters: Mapping[str, Any] = field(default_factory=dict)
    virtual_position: Floats | None = None
    routes: Routes | None = None
    breaks: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    # --- per instance ---------------------------------------------------------------------------

    @cached_property
    def _rate_sums(self) -> Floats:
        """Prefix sums of partition rates, so that a range's rate is one subtraction."""
        return np.concatenate(([0.0], np.cumsum(self.partitions.rate)))

    def _input_rate(self, side: int) -> Floats:
        i, offset = self.instances, self.partitions.offset
        begin, end = (i.left_begin, i.left_end) if side == 0 else (i.right_begin, i.right_end)
        start = offset[2 * i.pair + side]
        single = end - begin == 1
        rate = self._rate_sums[start + end] - self._rate_sums[start + begin]
        # A range of one partition has that partition's exact rate, without rounding of the sums.
        rate[single] = self.partitions.rate[(start + begin)[single]]
        whole = (begin == 0) & (end == self.partitions.count[2 * i.pair + side])
        source = self.problem.left_rate if side == 0 else self.problem.right_rate
        return np.where(whole, source[i.pair], rate)

    @cached_property
    def left_rate(self) -> Floats:
        """(k,) tuples/s each instance needs of its pair's left input."""
        return self._input_rate(0)

    @cached_property
    def right_rate(self) -> Floats:
        """(k,) tuples/s each instance needs of its pair's right input."""
        return self._input_rate(1)

    @cached_property
    def required_capacity(self) -> Floats:
        """(k,) C_r of each instance, tuples/s, before inputs shared with another one on its node."""
        return self.left_rate + self.right_rate

    @cached_property
    def output_rate(self) -> Floats:
        """(k,) tuples/s each instance emits: the pair's output by its share of both inputs."""
        p, pair = self.problem, self.instances.pair
        share = (self.left_rate / p.left_rate[pair]) * (self.right_rate / p.right_rate[pair])
        return p.matrix.output_rate[pair] * share

    @cached_property
    def replica_number(self) -> Ints:
        """(k,) r: the instance's number among those of its pair, from 0."""
        pair = self.instances.pair
        first = np.searchsorted(pair, pair)
        return np.arange(len(pair), dtype=np.int64) - first

    @cached_property
    def replica_count(self) -> Ints:
        """(p,) rho: instances of each pair."""
        return np.bincount(self.instances.pair, minlength=len(self.problem.matrix))

    # --- sums -----------------------------------------------------------------------------------

    @cached_property
    def received(self) -> tuple[Floats, Floats]:
        """((k,), (k,)) left and right tuples/s that each instance *adds* to its node.

        Instances of one pair on one node share input: a partition is sent to a node once, and is
        counted at the first of them.
        """
        i = self.instances
        left, right = self.left_rate.copy(), self.right_rate.copy()
        order = np.lexsort((i.node, i.pair))
        same = (np.diff(i.pair[order]) == 0) & (np.diff(i.node[order]) == 0)
        if not same.any():
            return left, right
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        ends = np.append(starts[1:], len(order))
        for begin, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
            group = order[begin:end]
            pair = int(i.pair[group[0]])
            for side, rate in ((0, left), (1, right)):
                first, last = (i.left_begin, i.left_end) if side == 0 else (i.right_begin, i.right_end)
                rates = self.partitions.rates(pair, side)
                seen = np.zeros(len(rates), bool)
                for k in group:
                    span = slice(first[k], last[k])
                    rate[k] = rates[span][~seen[span]].sum()
                    seen[span] = True
        return left, right

    @cached_property
    def load(self) -> Floats:
        """(n,) tuples/s each node receives for joins, each distinct partition of a pair once.

        Relays on a multi-hop route receive what they forward as well.
        """
        left, right = self.received
        count = len(self.problem.nodes)
        load = np.bincount(self.instances.node, left + right, minlength=count)
        if self.routes is not None:
            load += self.relay_load
        return load

    @cached_property
    def relay_load(self) -> Floats:
        """(n,) tuples/s each node receives only to forward; zero without multi-hop routes."""
        load = np.zeros(len(self.problem.nodes))
        if self.routes is None:
            return load
        r = self.routes
        legs = np.repeat(np.arange(len(r.offset) - 1), np.diff(r.offset))
        position = np.arange(len(r.node)) - r.offset[legs]
        inner = (position > 0) & (position < (np.diff(r.offset) - 1)[legs])
        left, right = self.received
        rate = np.stack([left, right, self.output_rate], axis=1).ravel()
        np.add.at(load, r.node[inner], rate[legs[inner]])
        return load

    # --- latency ----------------------------------------------------------------------------------

    @cached_property
    def leg_latency(self) -> Floats:
        """(k, 3) estimated latency, ms, of left source to node, right source to node, node to sink."""
        return self.leg_latency_by(None)

    def leg_latency_by(self, latency: Floats | None) -> Floats:
        """(k, 3) latency of each leg by a measured (n, n) matrix, or by coordinates when None."""
        p, i = self.problem, self.instances

        def between(a: Ints, b: Ints) -> Floats:
            if latency is not None:
                return np.asarray(latency[a, b], np.float64)
            return np.asarray(np.linalg.norm(p.nodes.position[a] - p.nodes.position[b], axis=1))

        if self.routes is not None:
            r = self.routes
            hop = between(r.node[:-1], r.node[1:])
            hop[r.offset[1:-1] - 1] = 0.0  # from the end of one route to the start of the next
            sums = np.concatenate(([0.0], np.cumsum(hop)))
            per_route = sums[r.offset[1:] - 1] - sums[r.offset[:-1]]
            return np.asarray(per_route.reshape(-1, 3))
        return np.stack(
            [
                between(p.left_node[i.pair], i.node),
                between(p.right_node[i.pair], i.node),
                between(i.node, p.sink_node[i.pair]),
            ],
            axis=1,
        )

    def require_problem(self, problem: Problem, where: str = "plan") -> None:
        """Refuse a plan made for another problem.

        Raises:
            PlanError: with both digests.
        """
        if problem.digest != self.problem.digest:
            raise PlanError(
                f"{where}: made for problem {self.problem.digest}, not for {problem.name!r} "
                f"({problem.digest}); plan this problem again"
            )


__all__ = ["Instances", "Partitions", "Plan", "Routes"]
