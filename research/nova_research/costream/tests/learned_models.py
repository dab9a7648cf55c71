"""Models of random parameters: for what holds whatever a model has learnt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nova_research.costream.learned.graph import Graph
from nova_research.costream.learned.model import Model, Scale
from nova_research.costream.learned.network import initial


def random_model(hidden: int = 16, layers: int = 1, members: int = 3, seed: int = 0) -> Model:
    """An ensemble that nobody has trained, whose regressions are some tens of ms or results/s."""
    parameters = [initial(hidden, layers, seed + member) for member in range(members)]
    for one in parameters:
        for name in one:
            if name.endswith(f".{layers}.bias") and "latency" in name:
                one[name] = one[name] + np.float32(1.5)
            if name.endswith(f".{layers}.bias") and "throughput" in name:
                one[name] = one[name] + np.float32(4.5)
    return Model(parameters, hidden, layers, Scale.of({}))


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with operators and hosts in another order."""
    from dataclasses import replace

    random = np.random.default_rng(seed)
    order, hosts = random.permutation(len(graph)), random.permutation(len(graph.hosts))
    place, slot = np.argsort(order), np.argsort(hosts)
    sinks: Sequence[int] = [row for row in order.tolist() if row in set(graph.sinks.tolist())]
    names = dict(zip(graph.sinks.tolist(), graph.queries, strict=True))
    return replace(
        graph,
        names=[graph.names[row] for row in order.tolist()],
        kind=graph.kind[order],
        table=graph.table[order],
        operator=graph.operator[order],
        demand=replace(
            graph.demand,
            ends=(place[graph.ends[0]], place[graph.ends[1]]),
            asked=graph.demand.asked[:, order],
        ),
        stage=graph.stage[order],
        host=slot[graph.host[order]],
        nodes=graph.nodes[hosts],
        hosts=graph.hosts[hosts],
        queries=[names[row] for row in sinks],
    )
