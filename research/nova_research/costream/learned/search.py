"""Choosing among candidate placements by predictions of an ensemble (Costream, section V).

Queries, or pairs of a join, are placed one after the other. Each host keeps the sum of the encoded
operators placed on it, and of the links that flows take from it. Through these sums the network
sees other queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_research.costream.learned.candidates import Candidates, Enumerator, plan_of_nodes
from nova_research.costream.learned.graph import (
    Batch,
    Demand,
    Graph,
    GraphBuilder,
    Hosts,
    Layout,
    Singles,
    stack,
)
from nova_research.costream.learned.model import Model, Predictions
from nova_research.costream.learned.network import METRICS

_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class Query:
    """What all placements of one query share.

    Attributes:
        graph: of the query, wherever its operators run.
        order: (o,) operators of the graph by their place in the layout.
        layout: types of operators, group by group.
        batch: features (scaled) and flows; placement and hosts are those of the graph.
        encoded: per member (o, h) states of operators, in the order of the layout.
    """

    graph: Graph
    order: Ints
    layout: Layout
    batch: Batch
    encoded: list[Singles]

    @classmethod
    def of(cls, graph: Graph, model: Model) -> Query:
        """A query's graph, with one sink."""
        stacked = stack([graph])
        order = np.array(sorted(range(len(graph)), key=graph.groups.__getitem__), np.int64)
        batch = model.scale.scaled(stacked.layout, stacked.batch)
        return cls(graph, order, stacked.layout, batch, model.encoded(stacked.layout, batch))


class Search:
    """Predicts placements of a problem's queries, and keeps the chosen ones."""

    def __init__(self, problem: Problem, model: Model) -> None:
        self.problem, self.model = problem, model
        self.enumerator = Enumerator(problem)
        graph = self.enumerator.graph
        pinned = graph.node
        anywhere = np.where(pinned >= 0, pinned, problem.sinks[0])
        self.graph = GraphBuilder(problem).graph(
            plan_of_nodes(problem, graph, anywhere, "costream")
        )
        self.nodes, self._pinned = pinned.copy(), pinned
        width = (len(problem.nodes), model.hidden)
        self._sums = [np.zeros(width, np.float32) for _ in model.members]
        self._asked = np.zeros((6, len(problem.nodes)))
        self._counted: set[int] = set()

    def queries(self) -> list[Query]:
        """One per sink, in order."""
        return [Query.of(self.graph.part(sink), self.model) for sink in self.graph.sinks.tolist()]

    def candidates(self, query: Query, count: int, random: np.random.Generator) -> Candidates:
        """Placements of a query."""
        return self.enumerator.draw(np.sort(query.graph.operator), count, random)

    def predict(self, query: Query, placements: Candidates) -> Predictions:
        """Predictions for every placement, beside the queries placed so far."""
        hosts = Hosts.of(self.problem, placements.hosts)
        # Columns of the candidates in the order of the layout.
        column = np.searchsorted(placements.operators, query.graph.operator[query.order])
        rank = np.argsort(query.order)
        demand = query.graph.demand
        ends = rank[demand.ends[0]], rank[demand.ends[1]]
        # Operators that it shares with others are in the hosts' sums already.
        asked = demand.asked[:, query.order] * ~self._is_counted(query)
        demand = Demand(ends, demand.sent, asked)
        parts: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS}
        for begin in range(0, len(placements), _AT_ONCE):
            place = placements.place[begin : begin + _AT_ONCE, column]
            slot, features = hosts.occupied(place, demand, self._asked[:, placements.hosts])
            wide = features.shape[1]
            placement = (slot[:, :, None] == np.arange(wide)).astype(np.float32)
            scaled = self.model.scale.of_hosts(features)
            batch = query.batch._replace(placement=placement, hosts=scaled)
            others = self._others(query, placements.hosts[place], slot, wide)
            outputs = self.model.outputs(query.layout, batch, others)
            for metric in METRICS:
                parts[metric].append(outputs[metric][:, 0])
        return Predictions({m: np.concatenate(p, axis=1) for m, p in parts.items()})

    def doubt(self) -> str:
        """Why predictions of the placed queries may be far off; see `Model.doubt`."""
        return self.model.doubt(replace(self.graph, host=self.nodes[self.graph.operator]))

    def uncrowded(self, placements: Candidates) -> Bools:
        """(b,) whether no host of an operator has more operators than the model is trained with.

        Beyond that, a network that adds up what runs on a host predicts anything.
        """
        if not self.model.crowd:
            return np.ones(len(placements), bool)
        movable = self._pinned[placements.operators] < 0
        nodes = placements.hosts[placements.place][:, movable]
        own = (nodes[:, :, None] == nodes[:, None, :]).sum(axis=2)
        others = np.bincount(self.nodes[self.nodes >= 0], minlength=len(self.problem.nodes))
        calm: Bools = (own + others[nodes] <= self.model.crowd).all(axis=1)
        return calm

    def _others(self, query: Query, nodes: Ints, slot: Ints, wide: int) -> list[Singles] | None:
        """Per member (b, k, h): sums of other queries' encoded operators on each host in use.

        Args:
            query: whose placements these are; sources it shares with others count as its own.
            nodes: (b, o) nodes of its operators, in the order of the layout.
            slot: (b, o) number of the host each runs on.
            wide: k, hosts.
        """
        if not self._counted:
            return None
        rows = np.arange(len(nodes))
        node = np.zeros((len(nodes), wide), np.int64)
        used = np.zeros((len(nodes), wide, 1), np.float32)
        node[rows[:, None], slot] = nodes
        used[rows[:, None], slot] = 1.0
        others = [sums[node] * used for sums in self._sums]
        shared = np.flatnonzero(self._is_counted(query)).tolist()
        for sums, encoded in zip(others, query.encoded, strict=True):
            for column in shared:
                sums[rows, slot[:, column]] -= encoded[column]
        return others

    def _is_counted(self, query: Query) -> Bools:
        """(o,) which operators of a query are in the sums already: shared sources may be."""
        operators = query.graph.operator[query.order].tolist()
        return np.array([one in self._counted for one in operators], bool)

    def keep(self, query: Query, nodes: Ints) -> None:
        """Add a placed query ((o,) nodes of its operators, in ascending order) to the hosts."""
        self.nodes[np.sort(query.graph.operator)] = nodes
        added, new = query.graph.operator[query.order], ~self._is_counted(query)
        self._counted.update(added.tolist())
        for sums, encoded in zip(self._sums, query.encoded, strict=True):
            np.add.at(sums, self.nodes[added[new]], encoded[new])
        start, stop = (self.nodes[query.graph.operator[end]] for end in query.graph.ends)
        used, row = np.unique(np.concatenate([start, stop]), return_inverse=True)
        hosts, demand = Hosts.of(self.problem, used), query.graph.demand
        flows = hosts.leaving(row[: len(start)], row[len(start) :], demand.sent)
        for total, one in zip(self._asked[:4], flows, strict=True):
            np.add.at(total, start, one)
        for total, one in zip(self._asked[4:], demand.asked, strict=True):
            np.add.at(total, self.nodes[added[new]], one[query.order][new])


def accepted(predictions: Predictions) -> Bools:
    """(q,) whether most members expect results and no back-pressure."""
    good: Bools = predictions.holds("success") & ~predictions.holds("back_pressure")
    return good


def ranking(predictions: Predictions, target: str) -> Ints:
    """Rows, best first: accepted ones by the target, then others by how nearly they are accepted.

    Args:
        predictions: of candidates.
        target: a regression metric; throughput is the better the higher, latency the lower.
    """
    value = _comparable(predictions.value(target))
    good = accepted(predictions)
    doubt = _comparable(predictions.value("back_pressure") - predictions.value("success"))
    order: Ints = np.lexsort(
        (-value if target == "throughput" else value, np.where(good, 0.0, doubt), ~good)
    )
    return order


def _comparable(values: Floats) -> Floats:
    """Predictions without the digits in which processors differ, which sum 32-bit floats."""
    return np.array([float(f"{value:.5g}") for value in values.tolist()])
