"""What was decided for queries: instances of operators, their nodes, and all that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nova_core.model.problem import Floats, Ints, Problem
from nova_core.queries.document import Queries
from nova_core.queries.expansion import QueryGraph
from nova_core.queries.virtual import link_weights

WHOLE = -1


class Instance(NamedTuple):
    """One instance of an operator.

    What it takes of its inputs is a range of partitions each, ``left`` and ``right`` of a join,
    ``left`` alone of others; of an aggregate that is combined of partial results, a range of its
    inputs, or nothing but what other instances feed it.

    Attributes:
        operator: number in the graph.
        node: it runs on.
        left: begin and end.
        right: begin and end.
        feeds: instance of the same aggregate that combines its results, -1 for none.
    """

    operator: int
    node: int
    left: tuple[int, int] = (0, 1)
    right: tuple[int, int] = (0, 1)
    feeds: int = WHOLE


class Links(NamedTuple):
    """Links between instances.

    Attributes:
        producer: (l,) instance, or -1 - node of a source.
        consumer: (l,) instance, or -1 - node of a sink.
        logical: (l,) link of the graph, -1 between instances of one aggregate.
        rate: (l,) tuples/s.
    """

    producer: Ints
    consumer: Ints
    logical: Ints
    rate: Floats


Shares = Mapping[int, tuple[Floats, Floats]]


def instance_links(graph: QueryGraph, instances: list[Instance], shares: Shares) -> Links:
    """All links between instances, with what they carry.

    Args:
        graph: the operators.
        instances: of all bodies.
        shares: of every operator that is cut by its inputs, the shares of its partitions on the
            left and on the right.
    """
    of: dict[int, list[int]] = {}
    for number, one in enumerate(instances):
        of.setdefault(one.operator, []).append(number)
    pinned = graph.graph.pinned().tolist()
    producers, consumers, logical, rates = [], [], [], []

    def emits(operator: int) -> list[tuple[int, float]]:
        if pinned[operator] >= 0:
            return [(-1 - pinned[operator], 1.0)]
        mine = of.get(operator, [])
        if operator not in shares:
            return [(number, 1.0) for number in mine if instances[number].feeds == WHOLE]
        left, right = shares[operator]
        return [
            (
                number,
                float(left[slice(*instances[number].left)].sum())
                * float(right[slice(*instances[number].right)].sum()),
            )
            for number in mine
        ]

    def takes(operator: int, side: int) -> list[tuple[int, float]]:
        if pinned[operator] >= 0:
            return [(-1 - pinned[operator], 1.0)]
        mine = of.get(operator, [])
        if operator in shares:
            share, pick = shares[operator][side], ("left", "right")[side]
            return [(n, float(share[slice(*getattr(instances[n], pick))].sum())) for n in mine]
        if len(mine) > 1:
            return [(n, 1.0) for n in mine if instances[n].left[0] <= side < instances[n].left[1]]
        return [(number, 1.0) for number in mine]

    producer, consumer, sides, rate = (column.tolist() for column in graph.links)
    joins = [one.kind == "join" for one in graph.graph.operators]
    for link, (one, other) in enumerate(zip(producer, consumer, strict=True)):
        side = sides[link]
        if other in shares and not joins[other]:
            side = 0
        ends = takes(other, side)
        for begin, given in emits(one):
            for end, taken in ends:
                producers.append(begin)
                consumers.append(end)
                logical.append(link)
                rates.append(rate[link] * given * taken)
    received = [0.0] * len(instances)
    for end, amount in zip(consumers, rates, strict=True):
        if end >= 0:
            received[end] += amount
    for number, one in enumerate(instances):
        if one.feeds != WHOLE:
            producers.append(number)
            consumers.append(one.feeds)
            logical.append(-1)
            rates.append(min(received[number], graph.graph[one.operator].output_rate))
    return Links(
        np.array(producers, np.int64),
        np.array(consumers, np.int64),
        np.array(logical, np.int64),
        np.array(rates, np.float64),
    )


def instance_weights(graph: QueryGraph, links: Links, objective: str) -> Floats:
    """(l,) what each ms of a link counts: a logical link's weight, split by what is carried.

    Results of partial instances count like the least of the aggregate's inputs.
    """
    if objective == "network-usage":
        return links.rate
    weight = link_weights(graph, objective)
    inner = links.logical < 0
    carried = np.bincount(links.logical[~inner], links.rate[~inner], len(weight))
    found = np.ones(len(links.rate))
    row = links.logical[~inner]
    share = np.divide(
        links.rate[~inner], carried[row], out=np.ones(len(row)), where=carried[row] > 0
    )
    found[~inner] = weight[row] * share
    return found


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """Where every operator of every query runs, and in how many pieces.

    Attributes:
        problem: nodes and sources.
        queries: what was placed.
        graph: the queries' physical operators, as `rewriting` has them.
        instances: of all operators that are placed.
        shares: of operators cut by their inputs, the shares of their partitions.
        strategy: who decided.
        objective: what was minimized.
        parameters: of the strategy.
        rewriting: what `expand` was told: push_filters and split_aggregates.
        virtual: (o, d) positions before capacities counted, or None.
        breaks: constraints it breaks on purpose.
        notes: figures on how it came about.
    """

    problem: Problem
    queries: Queries
    graph: QueryGraph
    instances: tuple[Instance, ...]
    shares: Shares
    strategy: str
    objective: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rewriting: Mapping[str, bool] = field(default_factory=dict)
    virtual: Floats | None = None
    breaks: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def links(self) -> Links:
        """Links between instances."""
        return instance_links(self.graph, list(self.instances), self.shares)

    @cached_property
    def node(self) -> Ints:
        """(i,) node of each instance."""
        return np.array([one.node for one in self.instances], np.int64)

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """(l,) nodes at which links begin, and at which they end."""
        nodes = np.append(self.node, 0)
        return tuple(  # type: ignore[return-value]
            np.where(side >= 0, nodes[np.maximum(side, -1)], -1 - side)
            for side in (self.links.producer, self.links.consumer)
        )

    @cached_property
    def latency(self) -> Floats:
        """(l,) ms of each link: measured where the problem has a matrix, else estimated."""
        start, stop = self.ends
        measured = self.problem.latency
        if measured is not None:
            return np.asarray(measured[start, stop])
        return self.problem.distance(start, stop)

    @cached_property
    def cost(self) -> float:
        """The objective, with estimated latencies, other metrics and penalties."""
        weight = instance_weights(self.graph, self.links, self.objective)
        nodes, (start, stop) = self.problem.nodes, self.ends
        way = np.linalg.norm(nodes.position[start] - nodes.position[stop], axis=1)
        if nodes.height is not None:
            way = way + np.where(start == stop, 0.0, nodes.height[start] + nodes.height[stop])
        if nodes.penalty is not None:
            way = way + np.where(self.links.producer >= 0, nodes.penalty[start], 0.0)
            way = way + np.where(self.links.consumer >= 0, nodes.penalty[stop], 0.0)
        return float(weight @ way)

    @cached_property
    def network_usage(self) -> float:
        """Sum of rate times latency, tuples/s * ms."""
        return float(self.links.rate @ self.latency)

    @cached_property
    def required(self) -> Floats:
        """(i,) tuples/s each instance receives."""
        found = np.zeros(len(self.instances))
        inside = self.links.consumer >= 0
        np.add.at(found, self.links.consumer[inside], self.links.rate[inside])
        return found

    @cached_property
    def load(self) -> Floats:
        """(n,) tuples/s instances on each node receive; replicas that share a partition, once."""
        count = len(self.problem.nodes)
        found = np.bincount(self.node, self.required, count).astype(np.float64)
        together: dict[tuple[int, int], list[Instance]] = {}
        for one in self.instances:
            if one.operator in self.shares:
                together.setdefault((one.operator, one.node), []).append(one)
        for (operator, node), group in together.items():
            if len(group) < 2 or self.graph.graph[operator].kind != "join":
                continue
            for side, rate in enumerate(self._input_rates(operator)):
                share = self.shares[operator][side]
                ranges = [(one.left, one.right)[side] for one in group]
                distinct = np.zeros(len(share), bool)
                for begin, end in ranges:
                    distinct[begin:end] = True
                twice = sum(float(share[b:e].sum()) for b, e in ranges) - float(share @ distinct)
                found[node] -= rate * twice
        return found

    def _input_rates(self, operator: int) -> list[float]:
        inputs = self.graph.graph[operator].inputs
        return [self.graph.graph[one].output_rate for one in inputs]

    @cached_property
    def query_latency(self) -> Floats:
        """(q,) ms on the longest way from a source to each query's sink."""
        graph, links = self.graph, self.links
        arrival = [0.0] * len(self.instances)
        found = np.zeros(len(self.queries))
        _, consumer, _, _ = graph.links
        operators = graph.graph.operators
        # Links come by consumers in the order of the graph; those within an aggregate go last.
        inner: dict[int, list[int]] = {}
        for row in np.flatnonzero(links.logical < 0).tolist():
            inner.setdefault(self.instances[links.producer[row]].operator, []).append(row)
        producers, consumers = links.producer.tolist(), links.consumer.tolist()
        latency, logical = self.latency.tolist(), links.logical.tolist()
        targets = consumer.tolist()

        def settle(operator: int) -> None:
            for row in inner.pop(operator, []):
                arrive = arrival[producers[row]] + latency[row]
                arrival[consumers[row]] = max(arrival[consumers[row]], arrive)

        for row, link in enumerate(logical):
            if link < 0:
                continue
            if producers[row] >= 0:
                settle(self.instances[producers[row]].operator)
            before = arrival[producers[row]] if producers[row] >= 0 else 0.0
            if consumers[row] >= 0:
                arrival[consumers[row]] = max(arrival[consumers[row]], before + latency[row])
            else:
                query = operators[targets[link]].query
                found[query] = max(found[query], before + latency[row])
        return found
