"""Other ways to place the same queries, whole, whatever overloads: what Nova is compared with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nova_core.model.problem import Ints, Problem
from nova_core.queries.document import Queries
from nova_core.queries.expansion import QueryGraph, expand
from nova_core.queries.plan import Instance, QueryPlan


def _at_sink(problem: Problem, graph: QueryGraph) -> Ints:
    """Every operator on its query's sink."""
    sinks = {one.query: one.node for one in graph.graph.operators if one.kind == "sink"}
    nodes = [
        one.node if one.node is not None else sinks[one.query] for one in graph.graph.operators
    ]
    return np.array(nodes, np.int64)


def _at_source(problem: Problem, graph: QueryGraph) -> Ints:
    """Every operator where most of its input comes from, so at a source in the end."""
    nodes: list[int] = []
    for one in graph.graph.operators:
        if one.node is not None:
            nodes.append(one.node)
        else:
            heaviest = max(one.inputs, key=lambda n: graph.graph[n].output_rate)
            nodes.append(nodes[heaviest])
    return np.array(nodes, np.int64)


def _relaxation(problem: Problem, graph: QueryGraph) -> Ints:
    """SBON's RELAXATION on the links Nova places, filters with what they read from."""
    from nova_core.model.operator_graph import OperatorGraph
    from nova_core.strategies.sbon.mapping import Mapper
    from nova_core.strategies.sbon.relaxation import RelaxationParameters, relaxation

    whole = OperatorGraph(graph.graph.operators)
    return relaxation(whole, Mapper.of(problem), RelaxationParameters()).nodes


BASELINES: dict[str, Callable[[Problem, QueryGraph], Ints]] = {
    "sink": _at_sink,
    "source": _at_source,
    "sbon-relaxation": _relaxation,
}


def place_baseline(problem: Problem, queries: Queries, name: str, objective: str) -> QueryPlan:
    """A plan of a baseline: queries as they are written, every operator whole.

    Args:
        problem: nodes and sources.
        queries: what to place.
        name: one of `BASELINES`.
        objective: what the plan's cost is measured by.

    Raises:
        ProblemError: for queries that do not fit the problem.
    """
    rewriting = {"push_filters": False, "split_aggregates": False}
    graph = expand(problem, queries, **rewriting)
    nodes = BASELINES[name](problem, graph)
    instances = []
    for one in graph.bodies.tolist():
        operator = graph.graph[one]
        taken = (0, 1) if operator.kind == "join" else (0, len(operator.inputs))
        instances.append(Instance(one, int(nodes[one]), taken))
    return QueryPlan(
        problem=problem,
        queries=queries,
        graph=graph,
        instances=tuple(instances),
        shares={},
        strategy=name,
        objective=objective,
        rewriting=rewriting,
        breaks=("capacity", "worker", "link"),
    )
