"""The placement plan in memory: what was decided, engine-neutral, as columns.

What is placed is an *operator*: a body of the problem's graph (`nova_core.model.graph`). That is a
pair of sources that may join, or an operator of a query. It has its inputs cut into partitions.
Every left partition meets every right one in exactly one *instance*: a rectangle of the operator's
partition grid that runs on one node. Two paper replicas that merge on a node are simply one larger
rectangle. An operator with one input has a single right partition, of no rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.arrays import NARROW, Bools, Codes, Floats, Ints, Strings, runs
from nova_core.model.expansion import AS_WRITTEN, Rewriting, graph_of
from nova_core.model.graph import Graph, groups
from nova_core.model.key_ranges import KeyRanges
from nova_core.model.objectives import link_weights
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.problem import Problem


@dataclass(frozen=True, eq=False)
class Routes:
    """Multi-hop routes of a strategy that relays (``tree``); others send directly.

    Row ``l`` of ``offset`` starts the route of link ``l`` (`Plan.links`). A route lists its nodes,
    both ends included.
    """

    offset: Ints
    node: Ints


class InstanceLinks(NamedTuple):
    """Links between instances, sources and sinks.

    Those of an instance stand together, in the order of instances: what it receives from sources
    and instances of other operators, then what it sends to sinks. Of a join of two sources these
    are its left input, its right input and its results. Links from a source to a sink, and from
    parts of an operator to what combines them, come last.

    Attributes:
        producer: (l,) instance, or -1 - node of a source.
        consumer: (l,) instance, or -1 - node of a sink.
        logical: (l,) link of the graph, -1 between instances of one operator.
        side: (l,) of the consumer: 0 for its left or only input, 1 for its right one.
        rate: (l,) tuples/s; replicas that share a partition receive it each.
        share: (l,) of the logical link's replicas, how many it stands for: 0 to 1.
    """

    producer: Ints
    consumer: Ints
    logical: Ints
    side: Codes
    rate: Floats
    share: Floats


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
    """Where every operator of a problem runs, and in how many pieces.

    Attributes:
        problem: the problem it answers.
        strategy: name of the strategy that made it.
        objective: name of what was minimized.
        parameters: the strategy's parameters, as written in documents.
        partitions: how inputs are cut.
        instances: what runs where.
        virtual_position: (b, d) Phase II's optimum of each operator, ms, or None; a row of NaN
            where an operator has none.
        routes: multi-hop routes, or None when every link is direct.
        breaks: names of the constraints the strategy knowingly ignores (``capacity``, ...);
            `verify` reports those as accepted. See `nova_core.model.verify.CONSTRAINTS`.
        notes: free-form facts, e.g. how often no node had room.
        rewriting: how queries were rewritten; pairs are placed as they are.
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
    rewriting: Rewriting = AS_WRITTEN

    @classmethod
    def whole(
        cls, problem: Problem, hosts: Ints, strategy: str, objective: str = "latency", **more: Any
    ) -> Plan:
        """A plan that runs every operator uncut, on the node that ``hosts`` ((b,)) names.

        Args:
            problem: what is placed.
            hosts: (b,) node of each operator: of pairs, or of queries as they are written.
            strategy: name of what chose them.
            objective: name of what was minimized.
            more: further attributes, such as ``routes`` or ``breaks``.
        """
        parts, instances = Partitions.whole(problem), Instances.whole(hosts)
        return cls(problem, strategy, objective, parts, instances, **more)

    # --- operators --------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The operators, and which of them feeds which."""
        return graph_of(self.problem, self.rewriting)

    @property
    def operator_count(self) -> int:
        """b, how many operators the problem has to place."""
        return len(self.graph.bodies)

    def operator_name(self, operator: int) -> str:
        """A readable, unique name, such as ``tw/t1*w1`` or ``wear/strain(heat-1*force-1)``."""
        graph = self.graph
        return graph.ids[int(graph.bodies[operator])]

    def operator_names(self) -> Strings:
        """(b,) names of all operators."""
        return self.graph.names

    def whole_rate(self, side: int) -> Floats:
        """(b,) tuples/s of every operator's left (0) or right (1) input."""
        return self.graph.input_rate[side::2]

    # --- per instance ---------------------------------------------------------------------------

    def _input_range(self, side: int) -> tuple[Ints, Ints]:
        i = self.instances
        return (i.left_begin, i.left_end) if side == 0 else (i.right_begin, i.right_end)

    def _input_rate(self, side: int) -> Floats:
        pair, (begin, end) = self.instances.pair, self._input_range(side)
        # The whole input has its exact rate, without the rounding of a sum.
        rate = self.whole_rate(side)[pair]
        cut = np.flatnonzero((begin != 0) | (end != self.partitions.count[side::2][pair]))
        start = self.partitions.offset[2 * pair[cut] + side]
        rate[cut] = self.partitions.range_rate(start + begin[cut], start + end[cut])
        if side == 1:
            rows, right, _ = self._key_shares
            rate[rows] *= right
        return rate

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
    def _key_shares(self) -> tuple[Ints, Floats, Floats]:
        """Instances that are cut by key, and their shares of the right input and of the results."""
        rows = np.flatnonzero(self.by_key)
        right, emitted = np.ones(len(rows)), np.ones(len(rows))
        pair = self.instances.pair[rows]
        begin, end = self.instances.left_begin[rows], self.instances.left_end[rows]
        for operator in np.unique(pair).tolist():
            join = self.graph.joins.get(int(self.graph.bodies[operator]))
            if join is not None:
                mine = pair == operator
                ranges = KeyRanges.of(join, self.partitions.rates(operator, 0))
                right[mine], emitted[mine] = ranges.shares(begin[mine], end[mine])
        return rows, right, emitted

    @cached_property
    def uncut(self) -> Bools:
        """(k,) whether the instance is its whole operator."""
        i, cells = self.instances, self.partitions.count[0::2] * self.partitions.count[1::2]
        uncut: Bools = (self.replica_count == 1)[i.pair] & (i.replicas == cells[i.pair])
        return uncut

    @cached_property
    def _feeds(self) -> Ints:
        feeds = self.instances.feeds
        return np.broadcast_to(-1, len(self.instances)) if feeds is None else feeds

    @cached_property
    def _combined(self) -> Bools:
        """(k,) whether the instance's operator is computed of parts of its inputs."""
        combined = np.zeros(self.operator_count, bool)
        if self.instances.feeds is not None:
            combined[self.instances.pair[self._feeds >= 0]] = True
        return combined[self.instances.pair]

    def taken_share(self, side: int) -> Floats:
        """(k,) share of its operator's left (0) or right (1) input that each instance takes."""
        needed = self.left_rate if side == 0 else self.right_rate
        whole = self.whole_rate(side)[self.instances.pair]
        return np.divide(needed, whole, out=np.ones(len(needed)), where=whole > 0)

    @cached_property
    def emitted_share(self) -> Floats:
        """(k,) share of its operator's results that each instance emits, perhaps to what combines.

        What has no rate still emits: a share of nothing.
        """
        share = self.taken_share(0) * self.taken_share(1)
        rows, _, emitted = self._key_shares
        share[rows] = emitted
        return np.where(self._combined, self._feeds < 0, share)

    @cached_property
    def replica_share(self) -> Floats:
        """(k,) share of its operator's replicas that each instance stands for."""
        i = self.instances
        total = np.bincount(i.pair, i.replicas, self.operator_count)[i.pair]
        share = np.divide(i.replicas, total, out=np.ones(len(i)), where=total > 0)
        return np.where(self._combined, 1.0, share)

    @cached_property
    def output_rate(self) -> Floats:
        """(k,) tuples/s each instance emits: its operator's results by its share of both inputs."""
        graph = self.graph
        return graph.rate[graph.bodies[self.instances.pair]] * self.emitted_share

    @cached_property
    def replica_number(self) -> Ints:
        """(k,) r: the instance's number among those of its operator, from 0."""
        pair = self.instances.pair
        first = np.searchsorted(pair, pair)
        return np.arange(len(pair), dtype=np.int64) - first

    @cached_property
    def replica_count(self) -> Ints:
        """(b,) rho: instances of each operator."""
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
        sides, mates = [], self.node_mates
        for side, needed in enumerate((self.left_rate, self.right_rate)):
            if len(mates) == 0:
                sides.append(needed)
                continue
            rate = needed.copy()
            begin, end = (bound[mates] for bound in self.new_range(side))
            start = self.partitions.offset[2 * self.instances.pair[mates] + side]
            added = self.partitions.range_rate(start + begin, start + end)
            was_begin, was_end = (bound[mates] for bound in self._input_range(side))
            changed = (begin != was_begin) | (end != was_end)
            rate[mates[changed]] = added[changed]
            sides.append(rate)
        return sides[0], sides[1]

    # --- links ----------------------------------------------------------------------------------

    @cached_property
    def links(self) -> InstanceLinks:
        """What goes where between sources, instances and sinks."""
        graph, i = self.graph, self.instances
        offset, at_body = graph.at_body
        # A row for every instance and each of its operator's links ...
        many = np.diff(offset)[i.pair]
        instance = np.repeat(np.arange(len(i), dtype=NARROW), many)
        logical: Ints = at_body[runs(offset[i.pair], many)]
        start = graph.node[graph.links.producer[logical]]
        stop = graph.node[graph.links.consumer[logical]]
        producer = instance
        if len(graph.inner):
            # ... and each instance of the operator that sends there.
            sender = graph.body_of[graph.links.producer[logical]]
            inner = (sender >= 0) & (stop < 0)
            senders = np.where(inner, self.replica_count[sender], 1)
            rows = np.repeat(np.arange(len(logical)), senders)
            number = runs(np.zeros(len(senders), np.int64), senders)
            first = np.searchsorted(i.pair, np.arange(self.operator_count + 1))
            instance, logical, start, stop = instance[rows], logical[rows], start[rows], stop[rows]
            producer = np.where(inner[rows], first[sender[rows]] + number, instance)
        producer = np.where(start >= 0, -1 - start, producer)
        consumer = np.where(stop >= 0, -1 - stop, instance)
        if i.feeds is not None:
            # Parts of an operator take whole inputs, and send to what combines them only.
            sends, into = np.maximum(producer, 0), np.maximum(consumer, 0)
            number = logical - np.searchsorted(graph.links.consumer, graph.links.consumer[logical])
            takes = (i.left_begin[into] <= number) & (number < i.left_end[into])
            takes |= (consumer < 0) | ~self._combined[into]
            carries = ((producer < 0) | (self._feeds[sends] < 0)) & takes
            producer, consumer, logical = producer[carries], consumer[carries], logical[carries]
        side, rate = graph.links.side[logical], graph.links.rate[logical]
        share = np.broadcast_to(1.0, len(logical))
        cut = np.append(~self.uncut, False)
        if cut.any():
            rows = cut[np.maximum(producer, -1)] | cut[np.maximum(consumer, -1)]
            share = share.copy()
            rate[rows], share[rows] = self._amounts(
                producer[rows], consumer[rows], side[rows], rate[rows]
            )
        return self._with_rest(InstanceLinks(producer, consumer, logical, side, rate, share))

    def _amounts(
        self, producer: Ints, consumer: Ints, side: Codes, rate: Floats
    ) -> tuple[Floats, Floats]:
        """Tuples/s of links, and their shares of the logical links' replicas.

        Args:
            producer: (r,) of some links, as `links` has it.
            consumer: (r,) of the same.
            side: (r,) of the same.
            rate: (r,) tuples/s of their logical links; it is changed.
        """
        graph, i, share = self.graph, self.instances, np.ones(len(rate))
        sends = producer >= 0
        sender = producer[sends]
        emitted = self.emitted_share[sender]
        # Ranges of keys differ in what they take and emit, and count by that.
        share[sends] = np.where(self.by_key[sender], emitted, self.replica_share[sender])
        rate[sends] *= emitted
        takes = (consumer >= 0) & ~self._combined[np.maximum(consumer, 0)]
        taker, sides = consumer[takes], side[takes]
        # Exactly what the instance needs where nothing else feeds it.
        needs = np.where(sides == 0, self.left_rate[taker], self.right_rate[taker])
        whole = graph.input_rate[2 * i.pair[taker] + sides]
        taken = np.divide(needs, whole, out=np.ones(len(taker)), where=whole > 0)
        share[takes] *= np.where(self.by_key[taker], taken, self.replica_share[taker])
        rate[takes] = needs * np.divide(
            rate[takes], whole, out=np.ones(len(taker)), where=whole > 0
        )
        return rate, share

    def _with_rest(self, links: InstanceLinks) -> InstanceLinks:
        """Links with those from sources to sinks, and from parts to what combines them."""
        graph, i, k = self.graph, self.instances, len(self.instances)
        producer, consumer, _, rate = graph.links
        straight = graph.straight
        part = np.flatnonzero(self._feeds >= 0)
        if len(straight) + len(part) == 0:
            return links
        inner = links.consumer >= 0
        received = np.bincount(links.consumer[inner], links.rate[inner], k)[part]
        most = graph.rate[graph.bodies[i.pair[part]]]
        rest = InstanceLinks(
            producer=np.append(-1 - graph.node[producer[straight]], part),
            consumer=np.append(-1 - graph.node[consumer[straight]], self._feeds[part]),
            logical=np.append(straight, np.full(len(part), -1)),
            side=np.zeros(len(straight) + len(part), np.int8),
            rate=np.append(rate[straight], np.minimum(received, most)),
            share=np.ones(len(straight) + len(part)),
        )
        columns: list[Any] = list(links)
        more: list[Any] = list(rest)
        return InstanceLinks(*(np.append(*both) for both in zip(columns, more, strict=True)))

    @cached_property
    def sent(self) -> Floats:
        """(l,) tuples/s sent over each link: replicas on one node receive what they share once."""
        links, mates = self.links, self.node_mates
        if len(mates) == 0:
            return links.rate
        shares = np.zeros(len(self.instances) + 1, bool)
        shares[mates] = True
        rows = np.flatnonzero(shares[np.maximum(links.consumer, -1)] & (links.logical >= 0))
        taker, side, sent = links.consumer[rows], links.side[rows], links.rate.copy()
        needs = np.where(side == 0, self.left_rate[taker], self.right_rate[taker])
        adds = np.where(side == 0, self.received[0][taker], self.received[1][taker])
        less = adds != needs
        sent[rows[less]] = adds[less] * (sent[rows[less]] / needs[less])
        return sent

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """((l,), (l,)) nodes at which links begin, and at which they end."""
        nodes, links = np.append(self.instances.node, 0).astype(NARROW), self.links
        start, stop = (
            np.where(side >= 0, nodes.take(side, mode="clip"), -1 - side)
            for side in (links.producer, links.consumer)
        )
        return start, stop

    @property
    def flows(self) -> Flows:
        """What is sent: every link."""
        (start, stop), links = self.ends, self.links
        instance = np.where(links.consumer >= 0, links.consumer, np.maximum(links.producer, -1))
        return Flows(start, stop, self.sent, instance, links.consumer < 0)

    @cached_property
    def _from_parts(self) -> Floats:
        """(k,) tuples/s each instance receives of the parts that it combines."""
        links, k = self.links, len(self.instances)
        inner = links.logical < 0
        return np.bincount(links.consumer[inner], links.rate[inner], k).astype(np.float64)

    def _with_parts(self, rate: Floats) -> Floats:
        return rate if self.instances.feeds is None else rate + self._from_parts

    @cached_property
    def required_capacity(self) -> Floats:
        """(k,) C_r of each instance, tuples/s, without sharing inputs with others on its node."""
        return self._with_parts(self.left_rate + self.right_rate)

    @cached_property
    def added_load(self) -> Floats:
        """(k,) tuples/s each instance adds to its node, each distinct partition once."""
        left, right = self.received
        return self._with_parts(left + right)

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
        link = np.repeat(np.arange(len(r.offset) - 1), np.diff(r.offset))
        position = np.arange(len(r.node)) - r.offset[link]
        inner = (position > 0) & (position < (np.diff(r.offset) - 1)[link])
        np.add.at(load, r.node[inner], self.sent[link[inner]])
        return load

    # --- latency ----------------------------------------------------------------------------------

    def link_latency(self, latency: Floats | None = None) -> Floats:
        """(l,) ms of each link by a measured (n, n) matrix, or by coordinates when None."""
        return self._estimated_latency if latency is None else self._latency_by(latency)

    @cached_property
    def _estimated_latency(self) -> Floats:
        return self._latency_by(None)

    def _latency_by(self, latency: Floats | None) -> Floats:
        def between(a: Ints, b: Ints) -> Floats:
            if latency is None:
                return self.problem.distance(a, b)
            return np.asarray(latency[a, b], np.float64)

        if self.routes is None:
            return between(*self.ends)
        r = self.routes
        hop = between(r.node[:-1], r.node[1:])
        hop[r.offset[1:-1] - 1] = 0.0  # from the end of one route to the start of the next
        sums = np.concatenate(([0.0], np.cumsum(hop)))
        return np.asarray(sums[r.offset[1:] - 1] - sums[r.offset[:-1]])

    @cached_property
    def _steps(self) -> list[Ints]:
        """Links in groups, so that what an instance receives comes before what it emits."""
        links, graph = self.links, self.graph
        depth = 2 * graph.depth[graph.links.consumer][links.logical]
        inner = np.flatnonzero(links.logical < 0)
        own = graph.bodies[self.instances.pair[links.producer[inner]]]
        depth[inner] = 2 * graph.depth[own] + 1
        return [rows.astype(NARROW) for rows in groups(depth)]

    def _latest(self, ms: Floats) -> Floats:
        """(k + 1,) ms from the farthest source until each instance has its input; 0 at the end."""
        links, latest = self.links, np.zeros(len(self.instances) + 1)
        for rows in self._steps:
            rows = rows[links.consumer[rows] >= 0]
            arrive = ms[rows] + latest[np.maximum(links.producer[rows], -1)]
            np.maximum.at(latest, links.consumer[rows], arrive)
        return latest

    def query_latency(self, latency: Floats | None = None) -> Floats:
        """(q,) ms on the longest way from a source to the sink of each query, or join of pairs.

        Args:
            latency: (n, n) measured ms; None takes coordinates.
        """
        links, graph, ms = self.links, self.graph, self.link_latency(latency)
        out = links.consumer < 0
        arrive = ms[out] + self._latest(ms)[np.maximum(links.producer[out], -1)]
        longest = np.zeros(graph.queries)
        np.maximum.at(longest, graph.query[graph.links.consumer[links.logical[out]]], arrive)
        return longest

    def path_latency_by(self, latency: Floats | None = None) -> Floats:
        """(k,) ms of the longest way from a source to a sink through each instance.

        Args:
            latency: (n, n) measured ms; None takes coordinates.
        """
        links, ms = self.links, self.link_latency(latency)
        after = np.zeros(len(self.instances) + 1)
        for rows in reversed(self._steps):
            rows = rows[links.producer[rows] >= 0]
            rest = ms[rows] + after[np.maximum(links.consumer[rows], -1)]
            np.maximum.at(after, links.producer[rows], rest)
        return np.asarray((self._latest(ms) + after)[:-1])

    @cached_property
    def path_latency(self) -> Floats:
        """(k,) estimated ms of the longest way from a source to a sink through each instance."""
        return self.path_latency_by(None)

    def source_latency(self, latency: Floats | None = None) -> Floats:
        """(s,) mean ms from each source to sinks, over its ways; NaN for one that feeds nothing.

        A way through an instance counts once for each replica merged in it.

        Args:
            latency: (n, n) measured ms; None takes coordinates.
        """
        links, graph, ms = self.links, self.graph, self.link_latency(latency)
        replicas = np.append(np.where(self._combined, 1, self.instances.replicas), 1)
        # Of each instance: how many ways lead to sinks, and the sum of their latencies.
        ways = np.zeros(len(self.instances) + 1)
        total = ways.copy()
        ways[-1] = 1.0
        all_ways, sums = np.zeros((2, len(self.problem.sources)))
        for rows in reversed(self._steps):
            producer, end = links.producer[rows], np.maximum(links.consumer[rows], -1)
            count, onward = replicas[end], ways[end]
            longer = count * (ms[rows] * onward + total[end])
            more = count * onward
            inner = producer >= 0
            np.add.at(ways, producer[inner], more[inner])
            np.add.at(total, producer[inner], longer[inner])
            source = graph.source[graph.links.producer[links.logical[rows[~inner]]]]
            np.add.at(all_ways, source, more[~inner])
            np.add.at(sums, source, longer[~inner])
        mean: Floats = np.divide(sums, all_ways, out=np.full(len(sums), np.nan), where=all_ways > 0)
        return mean

    def objective_value(self, objective: str, latency: Floats | None = None) -> float:
        """What an objective adds up to, by a measured (n, n) matrix or by coordinates when None.

        Network usage is the sum over links of what is sent times latency, tuples/s * ms (SBON,
        section 2). In the other objectives, ms, an operator that is cut counts with the mean of its
        replicas, so that plans that cut compare with others.
        """
        return float(self.link_weight(objective) @ self.link_latency(latency))

    def link_weight(self, objective: str) -> Floats:
        """(l,) what each ms of a link counts; results of parts count once."""
        if objective == "network-usage":
            return self.sent
        links = self.links
        weight = link_weights(self.graph, objective)[links.logical]
        weight[links.logical < 0] = 1.0
        weight *= links.share
        return weight

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
                plan.rewriting,
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
