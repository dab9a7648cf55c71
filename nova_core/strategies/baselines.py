"""Baselines that place every join by itself: at its sink, a source, or the most capable worker."""

from __future__ import annotations

import heapq

import numpy as np

from nova_core.errors import InfeasibleError
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.model.query_graph import QueryGraph
from nova_core.strategies.base import Strategy


class Sink(Strategy):
    """Run every join at the sink that wants its result, NebulaStream's default (section 4.1)."""

    name = "sink"

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the sink may host."""
        return self.whole_plan(problem, problem.sink_node)

    def place_queries(self, problem: Problem) -> Plan:
        """Place every operator on its query's sink, likewise."""

        def hosts(queries: QueryGraph) -> Ints:
            operators = queries.graph.operators
            sinks = {one.query: one.node for one in operators if one.kind == "sink"}
            return np.array([sinks.get(one.query, one.node) for one in operators], np.int64)

        return self.whole_query_plan(problem, hosts)


class Source(Strategy):
    """Run every join on its source with the highest data rate; of equal ones, the left."""

    name = "source"

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the source's node may host."""
        left = problem.left_rate >= problem.right_rate
        return self.whole_plan(problem, np.where(left, problem.left_node, problem.right_node))

    def place_queries(self, problem: Problem) -> Plan:
        """Place every operator where most of its input comes from, so at a source in the end."""

        def hosts(queries: QueryGraph) -> Ints:
            nodes: list[int] = []
            graph = queries.graph
            for one in graph.operators:
                heaviest = max(one.inputs, key=lambda n: graph[n].output_rate, default=0)
                nodes.append(nodes[heaviest] if one.node is None else one.node)
            return np.array(nodes, np.int64)

        return self.whole_query_plan(problem, hosts)


class TopC(Strategy):
    """Run each join whole, in the given order, on the worker with the highest available capacity.

    Available is what earlier joins left. Of nodes with the same, and of unlimited ones the least
    loaded, the first takes the join. Nothing is cut, so a large join can overload even that node.
    """

    name = "top-c"
    ignores = ("capacity", "requirement", "minimum-capacity", "link")

    def place(self, problem: Problem) -> Plan:
        """Place; overloads the most capable node rather than refuse a join.

        Raises:
            InfeasibleError: when no node may host joins.
        """
        return self.whole_plan(problem, self._strongest(problem, problem.required_capacity))

    def place_queries(self, problem: Problem) -> Plan:
        """Place every operator likewise, in the order of the queries."""

        def hosts(queries: QueryGraph) -> Ints:
            nodes = np.zeros(len(queries.root), np.int64)
            nodes[queries.bodies] = self._strongest(problem, queries.required[queries.bodies])
            return nodes

        return self.whole_query_plan(problem, hosts)

    @staticmethod
    def _strongest(problem: Problem, need: Floats) -> Ints:
        """(p,) node of each operator that needs so many tuples/s."""
        workers = np.flatnonzero(problem.nodes.worker)
        if len(workers) == 0:
            total = float(need.sum())
            raise InfeasibleError("top-c: no node may host joins; make one a worker", total)
        return _assign(need, workers, problem.nodes.capacity[workers])


def _assign(need: Floats, nodes: Ints, capacity: Floats) -> Ints:
    """(p,) node of each join."""
    # At most as many nodes as joins can reach the top of the heap.
    top = np.argsort(-capacity, kind="stable")[: len(need)]
    # Each heap entry is minus what is available, the load of an unlimited node, and the node.
    # Sorted entries are a heap already.
    available = zip((-capacity[top]).tolist(), nodes[top].tolist(), strict=True)
    heap = [(key, 0.0, node) for key, node in available]
    chosen = []
    for rate in need.tolist():
        key, load, node = heap[0]
        chosen.append(node)
        load = load + rate if key == -np.inf else 0.0
        heapq.heapreplace(heap, (key + rate, load, node))
    return np.array(chosen, np.int64)
