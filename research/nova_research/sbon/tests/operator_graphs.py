"""Random operator graphs in random cost spaces."""

from __future__ import annotations

import numpy as np

from nova_research.operators import Operator, OperatorGraph


def space(seed: int, nodes: int, dimensions: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates, and the latencies they stand for."""
    position = 100 * np.random.default_rng([seed, 1]).random((nodes, dimensions))
    return position, np.linalg.norm(position[:, None] - position, axis=2)


def random_graph(
    seed: int, nodes: int, movable: int = 4, *, tree: bool = False, queries: int = 1
) -> OperatorGraph:
    """Queries of filters, aggregates and joins over common sources, each with a sink.

    Without ``tree``, output may go to several operators. Rates follow from the operators, so that
    those that do the same emit the same.
    """
    random = np.random.default_rng([seed, 2])
    operators = [
        Operator(f"s{i}", "source", output_rate=float(r), node=int(random.integers(nodes)))
        for i, r in enumerate(random.integers(1, 20, 3))
    ]
    sources = list(range(len(operators)))
    for query in range(queries):
        # What nobody receives yet, and all that there is to receive from.
        open_, within = [], list(sources)
        for _ in range(movable):
            kind = ("filter", "aggregate", "join")[int(random.integers(3))]
            choice = [*sources, *open_] if tree else within
            inputs = sorted(random.choice(choice, 1 + (kind == "join"), replace=False).tolist())
            share = 0.25 * int(random.integers(1, 5))
            rate = share * sum(operators[i].output_rate for i in inputs)
            number = len(operators)
            operators.append(
                Operator(
                    f"o{number}", kind, tuple(inputs), rate, query=query, expression=f"x{share}"
                )
            )
            open_ = [o for o in open_ if o not in inputs] + [number]
            within.append(number)
        for last in open_:
            node = int(random.integers(nodes))
            operators.append(
                Operator(f"k{len(operators)}", "sink", (last,), node=node, query=query)
            )
    return OperatorGraph(operators)


def brute_force(graph: OperatorGraph, latency: np.ndarray, hosts: np.ndarray) -> float:
    """Least network usage over all placements."""
    from itertools import product

    best, nodes = np.inf, graph.pinned()
    for choice in product(hosts.tolist(), repeat=len(graph.movable)):
        nodes[graph.movable] = choice
        best = min(best, graph.network_usage(nodes, latency))
    return best
