"""The queries of SBON's evaluation, as operator graphs on a transit-stub topology."""

from __future__ import annotations

import numpy as np

from nova_core.errors import NovaError
from nova_core.model.problem import Floats, Ints
from nova_research.operators import Operator, OperatorGraph
from nova_research.sbon.transit_stub import TransitStub


def aggregations(
    nodes: int, queries: int, producers: int, rate: float, selectivity: float, seed: int
) -> OperatorGraph:
    """Queries of several producers, one aggregator and a consumer at random nodes (section 4.1).

    Args:
        nodes: n; the ends of a query are on different ones.
        queries: how many.
        producers: of each query.
        rate: what each sends, KB/s.
        selectivity: input over output of an aggregator.
        seed: of the nodes.

    Raises:
        NovaError: when there are too few nodes.
    """
    if nodes <= producers:
        raise NovaError(f"sbon: {producers} producers and a consumer do not fit on {nodes} nodes")
    random = np.random.default_rng([seed, 1])
    operators: list[Operator] = []
    for query in range(queries):
        *sources, sink = random.choice(nodes, producers + 1, replace=False).tolist()
        operators += _query(query, sources, sink, rate, producers * rate / selectivity)
    return OperatorGraph(operators)


def _query(
    query: int, sources: list[int], sink: int, rate: float, output_rate: float
) -> list[Operator]:
    first = query * (len(sources) + 2)
    middle = first + len(sources)
    return [
        *(
            Operator(f"q{query} p{i}", "source", output_rate=rate, node=node, query=query)
            for i, node in enumerate(sources)
        ),
        Operator(f"q{query} a", "aggregate", tuple(range(first, middle)), output_rate, query=query),
        Operator(f"q{query} c", "sink", (middle,), node=sink, query=query),
    ]


def same_aggregation(
    network: TransitStub, queries: int, rate: float, output_rate: float, seed: list[int]
) -> OperatorGraph:
    """Queries that all aggregate the same two producers, for consumers far away (section 4.2.2).

    Producers are stub nodes of one region, consumers of the region farthest from it.

    Raises:
        NovaError: when the regions have too few nodes.
    """
    random = np.random.default_rng(seed)
    regions = np.unique(network.region)
    here = int(random.choice(regions))
    mean = [network.latency[network.region == here][:, network.region == r].mean() for r in regions]
    farthest = int(regions[int(np.argmax(mean))])
    ends = [np.flatnonzero((network.region == r) & ~network.transit) for r in (here, farthest)]
    if here == farthest or len(ends[0]) < 2 or len(ends[1]) < queries:
        raise NovaError(f"sbon: reuse: no two regions with stub nodes enough for {queries} queries")
    producers = random.choice(ends[0], 2, replace=False).tolist()
    consumers = random.choice(ends[1], queries, replace=False).tolist()
    sources = [
        Operator(f"p{i}", "source", output_rate=rate, node=n) for i, n in enumerate(producers)
    ]
    aggregators = [
        Operator(f"q{q} a", "aggregate", (0, 1), output_rate, query=q, expression="aggregate")
        for q in range(queries)
    ]
    sinks = [
        Operator(f"q{q} c", "sink", (2 + q,), node=n, query=q) for q, n in enumerate(consumers)
    ]
    return OperatorGraph([*sources, *aggregators, *sinks])


def usage_by_query(graph: OperatorGraph, nodes: Ints, latency: Floats) -> Floats:
    """(q,) network usage of each query, by the query of the receiving operator, rate * ms."""
    producers, consumers, rates = graph.edges
    query = np.array([operator.query for operator in graph.operators], np.int64)
    usage = rates * latency[nodes[producers], nodes[consumers]]
    return np.bincount(query[consumers], usage).astype(np.float64)


def delays(graph: OperatorGraph, nodes: Ints, latency: Floats) -> tuple[Floats, Floats]:
    """((q,), (q,)) delay of each query, and of the longest route from its producers to its sink.

    Queries are numbered from 0 and have their own sink and sources. In ms.
    """
    kind = np.array([operator.kind for operator in graph.operators])
    query = np.array([operator.query for operator in graph.operators], np.int64)
    sinks, sources = np.flatnonzero(kind == "sink"), np.flatnonzero(kind == "source")
    sink_of = np.empty(len(sinks), np.int64)
    sink_of[query[sinks]] = nodes[sinks]
    arrival, direct = np.empty(len(sinks)), np.zeros(len(sinks))
    arrival[query[sinks]] = graph.arrival(nodes, latency)[sinks]
    np.maximum.at(direct, query[sources], latency[nodes[sources], sink_of[query[sources]]])
    return arrival, direct
