"""The placement plan in memory: what was decided, engine-neutral, as columns.

What is placed is an *operator*: a pair of sources that may join (a row of the problem's join
matrix), or an operator of a query (`nova_core.model.query_plan`). It has its inputs cut into
partitions. Every left partition meets every right one in exactly one *instance*: a rectangle of the
operator's partition grid that runs on one node. Two paper replicas that merge on a node are simply
one larger rectangle. An operator with one input has a single right partition, of no rate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.objectives import leg_weights
from nova_core.model.problem import Bools, Floats, Ints, Problem, Strings


@dataclass(frozen=True, eq=False)
class Partitions:
    """How both inputs of every operator are cut.

    Row ``2 * pair`` of ``offset`` starts the left input's partitions, row ``2 * pair + 1`` the
    right one's. A tuple finds its partition from its sequence number and the rates as weights
    (`nova_core.model.partitioner`).

    Joins of queries may be cut by key instead (`nova_core.model.key_ranges`). The left input's
    partitions are ranges of keys then, and the right input has a single partition, of which each
    range takes the tuples of its keys.

    Attributes:
        offset: (2p + 1,) start of each input's run in ``rate``.
        rate: rate of each partition, tuples/s; each input's run sums to the input's rate.
        by_key: (p,) operators that are cut by key; None where none is.
    """

    offset: Ints
    rate: Floats
    by_key: Bools | None = None

    @classmethod
    def whole(cls, problem: Problem) -> Partitions:
        """Every input of a problem's pairs in one piece."""
        rate = np.empty(2 * len(problem.matrix))
        rate[0::2], rate[1::2] = problem.left_rate, problem.right_rate
        return cls.uncut(rate)

    @classmethod
    def uncut(cls, rate: Floats) -> Partitions:
        """Inputs of these rates ((2p,), tuples/s), each in one piece."""
        return cls(np.arange(len(rate) + 1, dtype=np.int64), rate)

    def with_cuts(self, cuts: Mapping[int, Floats], by_key: Collection[int] = ()) -> Partitions:
        """The same, none of it cut by key, with other partitions of some inputs.

        Args:
            cuts: input (``2 * operator + side``) to the rates of its partitions.
            by_key: operators that are cut by key.
        """
        if not cuts:
            return self
        count = self.count.copy()
        count[list(cuts)] = [len(rates) for rates in cuts.values()]
        offset = np.concatenate(([0], np.cumsum(count)))
        unchanged = np.ones(len(count), bool)
        unchanged[list(cuts)] = False
        rate = np.empty(int(offset[-1]))
        rate[np.repeat(unchanged, count)] = self.rate[np.repeat(unchanged, self.count)]
        for each, rates in cuts.items():
            rate[offset[each] : offset[each + 1]] = rates
        keyed = None
        if by_key:
            keyed = np.zeros(len(count) // 2, bool)
            keyed[list(by_key)] = True
        return Partitions(offset, rate, keyed)

    @cached_property
    def count(self) -> Ints:
        """(2p,) partitions of each input: left at ``2 * pair``, right at ``2 * pair + 1``."""
        return np.diff(self.offset)

    def rates(self, pair: int, side: int) -> Floats:
        """Rates of one input's partitions; ``side`` is 0 for left, 1 for right."""
        return self.rate[self.offset[2 * pair + side] : self.offset[2 * pair + side + 1]]

    def range_rate(self, begin: Ints, end: Ints) -> Floats:
        """(k,) sums of ``rate[begin:end]``, tuples/s; an empty range sums to 0.

        Summed range by range: differences of one running sum over a million partitions would carry
        its rounding, some 1e-8 tuples/s, into every range.
        """
        if len(begin) == 0:
            return np.empty(0)
        bounds = np.stack([begin, end], axis=1).ravel()
        sums = np.add.reduceat(np.append(self.rate, 0.0), bounds)[::2]
        return np.where(end > begin, sums, 0.0)


@dataclass(frozen=True, eq=False)
class Instances:
    """Operator instances, one row each, ordered by operator.

    Attributes:
        pair: (k,) the operator: a row of the join matrix, or of `QueryGraph.bodies`.
        node: (k,) where it runs.
        left_begin: (k,) first left partition it receives.
        left_end: (k,) one past the last left partition.
        right_begin: (k,) first right partition.
        right_end: (k,) one past the last right partition.
        feeds: (k,) row of the instance of the same operator that combines its results, or -1; None
            where no instance has one. What combines others may take no partition itself.
    """

    pair: Ints
    node: Ints
    left_begin: Ints
    left_end: Ints
    right_begin: Ints
    right_end: Ints
    feeds: Ints | None = None

    @classmethod
    def whole(cls, node: Ints) -> Instances:
        """One uncut instance per pair on the given nodes ((p,))."""
        count = len(node)
        zero, one = np.zeros(count, np.int64), np.ones(count, np.int64)
        return cls(
            np.arange(count, dtype=np.int64), np.asarray(node, np.int64), zero, one, zero, one
        )

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


class Flows(NamedTuple):
    """What is sent between sources, instances and sinks.

    Attributes:
        source: (f,) node it leaves.
        target: (f,) node it enters, perhaps the same.
        rate: (f,) tuples/s.
        instance: (f,) that receives it, or that sends it to a sink; -1 from a source to a sink.
        to_sink: (f,) whether it ends at a sink.
    """

    source: Ints
    target: Ints
    rate: Floats
    instance: Ints
    to_sink: Bools


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
        virtual_position: (p, d) Phase II's optimum of each pair, ms, or None; a row of NaN where a
            pair has none.
        routes: multi-hop routes, or None when every edge is direct.
        breaks: names of the constraints the strategy knowingly ignores (``capacity``, ...);
            `verify` reports those as accepted. See `nova_core.model.verify.CONSTRAINTS`.
        notes: free-form facts, e.g. how often no node had room.
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

    @classmethod
    def whole(
        cls, problem: Problem, hosts: Ints, strategy: str, objective: str = "latency", **more: Any
    ) -> Plan:
        """A plan that runs every pair uncut, on the node that ``hosts`` ((p,)) names.

        Args:
            problem: what is placed.
            hosts: (p,) node of each pair.
            strategy: name of what chose them.
            objective: name of what was minimized.
            more: further attributes, such as ``routes`` or ``breaks``.
        """
        parts, instances = Partitions.whole(problem), Instances.whole(hosts)
        return cls(problem, strategy, objective, parts, instances, **more)

    # --- operators --------------------------------------------------------------------------------

    @property
    def operator_count(self) -> int:
        """p, how many operators the problem has to place."""
        return len(self.problem.matrix)

    def operator_name(self, operator: int) -> str:
        """A readable, unique name, such as ``tw/t1*w1``."""
        return self.problem.pair_name(operator)

    def operator_names(self) -> Strings:
        """(p,) names of all operators."""
        return self.problem.pair_names()

    def whole_rate(self, side: int) -> Floats:
        """(p,) tuples/s of every operator's left (0) or right (1) input."""
        return self.problem.left_rate if side == 0 else self.problem.right_rate

    # --- per instance ---------------------------------------------------------------------------

    def _input_range(self, side: int) -> tuple[Ints, Ints]:
        i = self.instances
        return (i.left_begin, i.left_end) if side == 0 else (i.right_begin, i.right_end)

    def _input_rate(self, side: int) -> Floats:
        pair, (begin, end) = self.instances.pair, self._input_range(side)
        start = self.partitions.offset[2 * pair + side]
        rate = self.partitions.range_rate(start + begin, start + end)
        # The whole input has its exact rate, without the rounding of the sum.
        whole = (begin == 0) & (end == self.partitions.count[2 * pair + side])
        return np.where(whole, self.whole_rate(side)[pair], rate)

    @cached_property
    def by_key(self) -> Bools:
        """(k,) whether the instance's operator is cut by key."""
        pair, by_key = self.instances.pair, self.partitions.by_key
        return np.zeros(len(pair), bool) if by_key is None else by_key[pair]

    @cached_property
    def left_rate(self) -> Floats:
        """(k,) tuples/s each instance needs of its operator's left input."""
        return self._input_rate(0)

    @cached_property
    def right_rate(self) -> Floats:
        """(k,) tuples/s each instance needs of its operator's right input."""
        return self._input_rate(1)

    @cached_property
    def required_capacity(self) -> Floats:
        """(k,) C_r of each instance, tuples/s, without sharing inputs with others on its node."""
        return self.left_rate + self.right_rate

    @cached_property
    def output_rate(self) -> Floats:
        """(k,) tuples/s each instance emits: the pair's output by its share of both inputs."""
        p, pair = self.problem, self.instances.pair
        share = (self.left_rate / p.left_rate[pair]) * (self.right_rate / p.right_rate[pair])
        return p.matrix.output_rate[pair] * share

    @cached_property
    def replica_number(self) -> Ints:
        """(k,) r: the instance's number among those of its operator, from 0."""
        pair = self.instances.pair
        first = np.searchsorted(pair, pair)
        return np.arange(len(pair), dtype=np.int64) - first

    @cached_property
    def replica_count(self) -> Ints:
        """(p,) rho: instances of each operator."""
        return np.bincount(self.instances.pair, minlength=self.operator_count)

    @cached_property
    def nodes_used(self) -> int:
        """How many nodes host an instance."""
        return int(np.count_nonzero(np.bincount(self.instances.node)))

    # --- sums -----------------------------------------------------------------------------------

    @cached_property
    def node_mates(self) -> Ints:
        """Instances that run on a node with another one of their operator, grouped by both."""
        i = self.instances
        cut = np.flatnonzero(self.replica_count[i.pair] > 1)
        order = cut[np.lexsort((i.node[cut], i.pair[cut]))]
        same = (np.diff(i.pair[order]) == 0) & (np.diff(i.node[order]) == 0)
        return order[np.append(same, False) | np.concatenate(([False], same))[: len(order)]]

    def new_range(self, side: int) -> tuple[Ints, Ints]:
        """((k,), (k,)) begin and end of the partitions each instance *adds* to its node.

        Instances of one pair on one node share input: a partition is sent to a node once, and
        counts for the instance whose range begins first (of equal ones, the first in the table).

        Args:
            side: 0 for the left input, 1 for the right.
        """
        i, (begin, end) = self.instances, self._input_range(side)
        begin, end = begin.copy(), end.copy()
        mates = self.node_mates
        if side == 1:
            # What is cut by key shares nothing.
            mates = mates[~self.by_key[mates]]
        if len(mates) == 0:
            return begin, end
        mates = mates[np.lexsort((begin[mates], i.node[mates], i.pair[mates]))]
        change = (np.diff(i.pair[mates]) != 0) | (np.diff(i.node[mates]) != 0)
        # Shifting every group beyond the one before lets one running maximum serve all of them.
        shift = np.concatenate(([0], np.cumsum(change))) * (int(end.max()) + 1)
        reached = np.maximum.accumulate(end[mates] + shift)
        reached = np.concatenate(([0], reached[:-1])) - shift
        begin[mates] = np.minimum(np.maximum(begin[mates], reached), end[mates])
        return begin, end

    @cached_property
    def received(self) -> tuple[Floats, Floats]:
        """((k,), (k,)) left and right tuples/s each instance adds to its node (`new_range`)."""
        sides = []
        for side, needed in enumerate((self.left_rate, self.right_rate)):
            rate, mates = needed.copy(), self.node_mates
            begin, end = (bound[mates] for bound in self.new_range(side))
            start = self.partitions.offset[2 * self.instances.pair[mates] + side]
            added = self.partitions.range_rate(start + begin, start + end)
            was_begin, was_end = (bound[mates] for bound in self._input_range(side))
            changed = (begin != was_begin) | (end != was_end)
            rate[mates[changed]] = added[changed]
            sides.append(rate)
        return sides[0], sides[1]

    @cached_property
    def leg_rate(self) -> Floats:
        """(k, 3) tuples/s on each instance's legs: left and right input (`received`), output."""
        return np.stack([*self.received, self.output_rate], axis=1)

    @property
    def flows(self) -> Flows:
        """What is sent: the three legs of every instance."""
        i = self.instances
        left, right, sink = self.problem.pair_ends[i.pair].T
        return Flows(
            np.stack([left, right, i.node], axis=1).ravel(),
            np.stack([i.node, i.node, sink], axis=1).ravel(),
            self.leg_rate.ravel(),
            np.repeat(np.arange(len(i)), 3),
            np.tile([False, False, True], len(i)),
        )

    @cached_property
    def added_load(self) -> Floats:
        """(k,) tuples/s each instance adds to its node, each distinct partition once."""
        left, right = self.received
        return left + right

    @cached_property
    def load(self) -> Floats:
        """(n,) tuples/s each node receives for what runs on it, each distinct partition once.

        Relays on a multi-hop route receive what they forward as well.
        """
        count = len(self.problem.nodes)
        load = np.bincount(self.instances.node, self.added_load, count).astype(np.float64)
        return load if self.routes is None else load + self.relay_load

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
        np.add.at(load, r.node[inner], self.leg_rate.ravel()[legs[inner]])
        return load

    # --- latency ----------------------------------------------------------------------------------

    @cached_property
    def path_latency(self) -> Floats:
        """(k,) estimated ms of the slowest path from a source to the sink through each instance."""
        legs = self.leg_latency
        return np.asarray(legs[:, :2].max(axis=1) + legs[:, 2])

    @cached_property
    def leg_latency(self) -> Floats:
        """(k, 3) estimated ms of left source to node, right source to node, node to sink."""
        return self.leg_latency_by(None)

    def leg_latency_by(self, latency: Floats | None) -> Floats:
        """(k, 3) latency of each leg by a measured (n, n) matrix, or by coordinates when None."""
        p, i = self.problem, self.instances

        def between(a: Ints, b: Ints) -> Floats:
            return p.distance(a, b) if latency is None else np.asarray(latency[a, b], np.float64)

        if self.routes is not None:
            r = self.routes
            hop = between(r.node[:-1], r.node[1:])
            hop[r.offset[1:-1] - 1] = 0.0  # from the end of one route to the start of the next
            sums = np.concatenate(([0.0], np.cumsum(hop)))
            per_route = sums[r.offset[1:] - 1] - sums[r.offset[:-1]]
            return np.asarray(per_route.reshape(-1, 3))
        left, right, sink = (end[i.pair] for end in (p.left_node, p.right_node, p.sink_node))
        legs = between(left, i.node), between(right, i.node), between(i.node, sink)
        return np.stack(legs, axis=1)

    def objective_value(self, objective: str, latency: Floats | None = None) -> float:
        """What an objective adds up to, by a measured (n, n) matrix or by coordinates when None.

        Network usage is the sum over legs of rate times latency, tuples/s * ms (SBON, section 2).
        In the other objectives, ms, a pair that is cut counts with the mean of its replicas, so
        that plans that cut compare with others.
        """
        legs = self.leg_latency if latency is None else self.leg_latency_by(latency)
        i = self.instances
        if objective == "network-usage":
            return float((self.leg_rate * legs).sum())
        share = i.replicas / np.bincount(i.pair, i.replicas, self.operator_count)[i.pair]
        return float(share @ (leg_weights(self.problem, objective)[i.pair] * legs).sum(axis=1))

    # --- identity -------------------------------------------------------------------------------

    def same_as(self, other: Plan) -> bool:
        """Whether both plans decide exactly the same for the same problem, in every column."""

        def columns(plan: Plan) -> list[Any]:
            routes = plan.routes
            tables: list[Any] = [
                plan.partitions,
                plan.instances,
                *([] if routes is None else [routes]),
            ]
            values = [getattr(table, f.name) for table in tables for f in fields(table)]
            return [plan.virtual_position, *values]

        def facts(plan: Plan) -> tuple[Any, ...]:
            return (
                plan.problem.digest,
                plan.strategy,
                plan.objective,
                dict(plan.parameters),
                plan.breaks,
                dict(plan.notes),
            )

        mine, theirs = columns(self), columns(other)
        return (
            facts(self) == facts(other)
            and len(mine) == len(theirs)
            and all(_same_column(a, b) for a, b in zip(mine, theirs, strict=True))
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


def _same_column(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
