"""The plan of whole queries: a plan whose operators are those of a query graph, and its links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.key_ranges import KeyRanges
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.plan import Flows, Instances, Partitions, Plan
from nova_core.model.problem import Floats, Ints, Strings
from nova_core.model.query_graph import QueryGraph


class Links(NamedTuple):
    """Links between instances, by their consumer's operator; those that combine come last.

    Attributes:
        producer: (l,) instance, or -1 - node of a source.
        consumer: (l,) instance, or -1 - node of a sink.
        logical: (l,) link of the graph, -1 between instances of one operator.
        side: (l,) of the consumer: 0 for its left or only input, 1 for its right one.
        rate: (l,) tuples/s.
    """

    producer: Ints
    consumer: Ints
    logical: Ints
    side: Ints
    rate: Floats


def link_weights(graph: QueryGraph, objective: str) -> Floats:
    """(e,) weights of the graph's links; those of a two-way join are those of a problem's pair.

    ``latency`` weighs each link once (paper, Eq. 1), ``network-usage`` by its tuples/s, and
    ``source-latency`` by the source-to-sink paths it is part of.

    Raises:
        ProblemError: for an unknown objective.
    """
    producer, _, _, rate = graph.links
    if objective == "latency":
        return np.ones(len(producer))
    if objective == "network-usage":
        return rate
    if objective == "source-latency":
        return graph.paths
    raise ProblemError(f"objective: unknown {objective!r}; use one of {', '.join(OBJECTIVES)}")


def input_shares(graph: QueryGraph, instances: Instances, parts: Partitions) -> tuple[Floats, ...]:
    """((k,), (k,), (k,)) shares of each instance, 0 to 1.

    Of its operator's left and right input, what it takes; of its results, what it emits.
    """
    shares = []
    bounds = (
        (instances.left_begin, instances.left_end),
        (instances.right_begin, instances.right_end),
    )
    for side, (begin, end) in enumerate(bounds):
        row = 2 * instances.pair + side
        taken = parts.range_rate(parts.offset[row] + begin, parts.offset[row] + end)
        whole = (begin == 0) & (end == parts.count[row])
        total = np.where(whole, 1.0, graph.input_rate[row])
        shares.append(np.where(whole, 1.0, taken / np.where(total > 0, total, 1.0)))
    left, right = shares
    emitted = left * right
    rows, right[rows], emitted[rows] = key_shares(graph, instances, parts)
    return left, right, emitted


def key_shares(
    graph: QueryGraph, instances: Instances, parts: Partitions
) -> tuple[Ints, Floats, Floats]:
    """Instances that are cut by key, and their shares of the right input and of the results.

    Returns:
        (r,) rows of the instances, (r,) and (r,) shares, 0 to 1.
    """
    if parts.by_key is None:
        return np.empty(0, np.int64), np.empty(0), np.empty(0)
    rows = np.flatnonzero(parts.by_key[instances.pair])
    pair, begin, end = (c[rows] for c in (instances.pair, instances.left_begin, instances.left_end))
    right, emitted = np.ones(len(rows)), np.ones(len(rows))
    for operator in np.unique(pair).tolist():
        join = graph.joins.get(int(graph.bodies[operator]))
        if join is not None:
            mine = pair == operator
            ranges = KeyRanges.of(join, parts.rates(operator, 0))
            right[mine], emitted[mine] = ranges.shares(begin[mine], end[mine])
    return rows, right, emitted


def instance_links(graph: QueryGraph, instances: Instances, parts: Partitions) -> Links:
    """All links between instances, with what they carry.

    Args:
        graph: the operators.
        instances: of its bodies, in any order.
        parts: how the bodies' inputs are cut. An operator with instances that feed another one has
            a partition per input; of others every partition has its share of all inputs.
    """
    kinds = [one.kind == "join" for one in graph.graph.operators]
    pinned = np.append(graph.graph.pinned(), -1)
    *taken_shares, emitted = input_shares(graph, instances, parts)
    shares = np.stack(taken_shares)
    feeds, combined = instances.feeds, np.zeros(len(graph.bodies), bool)
    if feeds is not None:
        combined[instances.pair[feeds >= 0]] = True
        inner = combined[instances.pair]
        emitted[inner] = feeds[inner] < 0
    operator = graph.bodies[instances.pair]
    order = np.append(np.argsort(operator, kind="stable"), -1)
    first = np.searchsorted(operator[order[:-1]], np.arange(len(graph.root) + 1))
    # A row for every instance of a link's producer and every one of its consumer.
    producer, consumer, side, rate = graph.links
    ends = np.stack([producer, consumer])
    count = np.where(pinned[ends] >= 0, 1, np.diff(first)[ends])
    many = count[0] * count[1]
    link = np.repeat(np.arange(len(rate)), many)
    within = np.arange(len(link)) - np.repeat(np.cumsum(many) - many, many)
    wide = np.maximum(count[1], 1)[link]
    fixed, start = pinned[ends[:, link]], first[ends[:, link]]
    row = order[np.minimum(start + np.stack([within // wide, within % wide]), len(order) - 1)]
    begin, end = np.where(fixed >= 0, -1 - fixed, row)
    is_join = np.array(kinds)[consumer[link]]
    into = np.where(is_join, side[link], 0)
    padded = np.concatenate([shares, np.ones((2, 1))], axis=1)
    at, to = np.maximum(begin, -1), np.maximum(end, -1)
    sent, taken = np.append(emitted, 1.0)[at], padded[into, to]
    if combined.any():
        mine = (end >= 0) & np.append(combined[instances.pair], False)[to]
        number = side[link]
        low, high = (np.append(c, 0)[to] for c in (instances.left_begin, instances.left_end))
        taken = np.where(mine, (low <= number) & (number < high), taken)
    carries = np.flatnonzero((sent > 0) & (taken > 0))
    amount = (rate[link] * sent * taken)[carries]
    begin, end, link, into = begin[carries], end[carries], link[carries], into[carries]
    if feeds is None or not combined.any():
        return Links(begin, end, link, into, amount)
    part = np.flatnonzero(feeds >= 0)
    received = np.bincount(end[end >= 0], amount[end >= 0], len(instances))[part]
    most = np.array([graph.graph[one].output_rate for one in operator[part].tolist()])
    none = np.full(len(part), -1)
    return Links(
        np.append(begin, part),
        np.append(end, feeds[part]),
        np.append(link, none),
        np.append(into, np.zeros(len(part), np.int64)),
        np.append(amount, np.minimum(received, most)),
    )


def instance_weights(graph: QueryGraph, links: Links, objective: str) -> Floats:
    """(l,) what each ms of a link counts: a logical link's weight, split by what is carried.

    Results of partial instances count like the least of the aggregate's inputs.
    """
    if objective == "network-usage":
        return links.rate
    weight = link_weights(graph, objective)
    outer = links.logical >= 0
    row = links.logical[outer]
    sent = np.bincount(row, links.rate[outer], len(weight))[row]
    weights = np.ones(len(links.rate))
    share = np.divide(links.rate[outer], sent, out=np.ones(len(row)), where=sent > 0)
    weights[outer] = weight[row] * share
    return weights


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryPlan(Plan):
    """Where every operator of every query runs, and in how many pieces.

    Latencies of legs, and routes, are those of joins of pairs only; here `links` say what goes
    where.

    Attributes:
        graph: the queries' physical operators; `Instances.pair` counts its bodies.
    """

    graph: QueryGraph

    @property
    def operator_count(self) -> int:
        """b, how many operators are placed."""
        return len(self.graph.bodies)

    def operator_name(self, operator: int) -> str:
        """The operator's id in the graph, such as ``wear/strain(heat-1*force-1)``."""
        return self.graph.names[operator]

    def operator_names(self) -> Strings:
        """(b,) names of all operators."""
        return np.array(self.graph.names, np.str_)

    def whole_rate(self, side: int) -> Floats:
        """(b,) tuples/s of every operator's left (0) or right (1) input."""
        return self.graph.input_rate[side::2]

    def _input_rate(self, side: int) -> Floats:
        rate = super()._input_rate(side)
        if side == 1:
            rows, right, _ = key_shares(self.graph, self.instances, self.partitions)
            rate[rows] *= right
        return rate

    @cached_property
    def links(self) -> Links:
        """Links between instances; replicas that share a partition receive it each."""
        return instance_links(self.graph, self.instances, self.partitions)

    @cached_property
    def sent(self) -> Floats:
        """(l,) tuples/s sent over each link: replicas on one node receive what they share once."""
        links = self.links
        rate = links.rate.copy()
        for side, all_of_it in enumerate((self.left_rate, self.right_rate)):
            mine = np.flatnonzero(
                (links.side == side) & (links.consumer >= 0) & (links.logical >= 0)
            )
            end = links.consumer[mine]
            whole = all_of_it[end]
            rate[mine] *= np.divide(
                self.received[side][end], whole, out=np.ones(len(end)), where=whole > 0
            )
        return rate

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """((l,), (l,)) nodes at which links begin, and at which they end."""
        nodes = np.append(self.instances.node, 0)
        start, stop = (
            np.where(side >= 0, nodes[np.maximum(side, -1)], -1 - side) for side in self.links[:2]
        )
        return start, stop

    @property
    def flows(self) -> Flows:
        """What is sent: every link between instances."""
        (start, stop), links = self.ends, self.links
        instance = np.where(links.consumer >= 0, links.consumer, np.maximum(links.producer, -1))
        return Flows(start, stop, self.sent, instance, links.consumer < 0)

    def link_latency(self, latency: Floats | None = None) -> Floats:
        """(l,) ms of each link by a measured (n, n) matrix, or by coordinates when None."""
        start, stop = self.ends
        if latency is None:
            return self.problem.distance(start, stop)
        return np.asarray(latency[start, stop], np.float64)

    def objective_value(self, objective: str, latency: Floats | None = None) -> float:
        """What an objective adds up to, by a measured (n, n) matrix or by coordinates when None.

        Network usage is that of what is sent, ``tuples/s * ms``; other objectives are in ms.
        """
        usage = objective == "network-usage"
        weight = self.sent if usage else instance_weights(self.graph, self.links, objective)
        return float(weight @ self.link_latency(latency))

    @cached_property
    def _combined(self) -> Floats:
        """(k,) tuples/s each instance receives of those that it combines."""
        links = self.links
        inner = links.logical < 0
        count = len(self.instances)
        return np.bincount(links.consumer[inner], links.rate[inner], count).astype(np.float64)

    @cached_property
    def required_capacity(self) -> Floats:
        """(k,) C_r of each instance, tuples/s, without sharing inputs with others on its node."""
        return self.left_rate + self.right_rate + self._combined

    @cached_property
    def added_load(self) -> Floats:
        """(k,) tuples/s each instance adds to its node, each distinct partition once."""
        left, right = self.received
        return left + right + self._combined

    @cached_property
    def _in_order(self) -> Ints:
        """Links so that what an instance receives comes before what it emits."""
        links = self.links
        _, consumer, _, _ = self.graph.links
        operator = np.append(self.graph.bodies[self.instances.pair], 0)
        inner = links.logical < 0
        key = 2 * np.where(
            inner, operator[np.maximum(links.producer, -1)], np.append(consumer, 0)[links.logical]
        )
        return np.argsort(key + inner, kind="stable")

    def _along(self, latency: Floats | None) -> Iterator[tuple[int, int, float, int]]:
        ms, links = self.link_latency(latency), self.links
        order = self._in_order
        columns = (links.producer[order], links.consumer[order], ms[order], links.logical[order])
        yield from zip(*(column.tolist() for column in columns), strict=True)

    def query_latency(self, latency: Floats | None = None) -> Floats:
        """(q,) ms on the longest way from a source to each query's sink.

        Args:
            latency: (n, n) measured ms; None takes coordinates.
        """
        arrival = [0.0] * len(self.instances)
        longest = np.zeros(len(self.problem.queries))
        operators, targets = self.graph.graph.operators, self.graph.links[1].tolist()
        for begin, end, ms, logical in self._along(latency):
            arrive = ms + (arrival[begin] if begin >= 0 else 0.0)
            if end >= 0:
                arrival[end] = max(arrival[end], arrive)
            else:
                query = operators[targets[logical]].query
                longest[query] = max(longest[query], arrive)
        return longest

    @cached_property
    def path_latency(self) -> Floats:
        """(k,) estimated ms of the longest way from a source to a sink through each instance."""
        before, after = [0.0] * len(self.instances), [0.0] * len(self.instances)
        ways = list(self._along(None))
        for begin, end, ms, _ in ways:
            if end >= 0:
                before[end] = max(before[end], ms + (before[begin] if begin >= 0 else 0.0))
        for begin, end, ms, _ in reversed(ways):
            if begin >= 0:
                after[begin] = max(after[begin], ms + (after[end] if end >= 0 else 0.0))
        return np.asarray(np.array(before) + np.array(after), np.float64)
