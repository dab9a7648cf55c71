"""Baselines: every operator by itself at its sink, a source, or the most capable worker."""

from __future__ import annotations

import heapq

import numpy as np

from nova_core.errors import InfeasibleError
from nova_core.model.expansion import graph_of
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.strategies.base import Strategy


class Sink(Strategy):
    """Run every operator at the sink of its results, NebulaStream's default (section 4.1)."""

    name = "sink"

    def place(self, problem: Problem) -> Plan:
        """Place every operator on its query's sink; ignores capacity and whether it may host."""
        graph = graph_of(problem)
        return self.whole_plan(problem, problem.sinks[graph.query[graph.bodies]])


class Source(Strategy):
    """Run every operator where most of its input comes from, so at a source in the end.

    Of inputs with the same rate, the left one counts.
    """

    name = "source"

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether the source's node may host."""
        graph = graph_of(problem)
        consumer = np.repeat(np.arange(len(graph)), np.diff(graph.input_at))
        order = np.lexsort((-graph.rate[graph.input], consumer))
        receives, first = np.unique(consumer[order], return_index=True)
        heaviest = np.full(len(graph), -1)
        heaviest[receives] = graph.input[order[first]]
        node = graph.node.copy()
        for _ in range(int(graph.depth.max(initial=0))):
            open_ = np.flatnonzero(node < 0)
            node[open_] = node[heaviest[open_]]
        return self.whole_plan(problem, node[graph.bodies])


class TopC(Strategy):
    """Run each operator whole, in the given order, on the worker with most available capacity.

    Available is what earlier ones left. Of nodes with the same, and of unlimited ones the least
    loaded, the first is taken. Nothing is cut, so a large operator can overload even that node.
    """

    name = "top-c"
    ignores = ("capacity", "requirement", "minimum-capacity", "link")

    def place(self, problem: Problem) -> Plan:
        """Place; overloads the most capable node rather than refuse an operator.

        Raises:
            InfeasibleError: when no node may host operators.
        """
        graph = graph_of(problem)
        return self.whole_plan(problem, self._strongest(problem, graph.required[graph.bodies]))

    @staticmethod
    def _strongest(problem: Problem, need: Floats) -> Ints:
        """(p,) node of each operator that needs so many tuples/s."""
        workers = np.flatnonzero(problem.nodes.worker)
        if len(workers) == 0:
            total = float(need.sum())
            raise InfeasibleError("top-c: no node may host operators; make one a worker", total)
        return _assign(need, workers, problem.nodes.capacity[workers])


def _assign(need: Floats, nodes: Ints, capacity: Floats) -> Ints:
    """(p,) node of each operator."""
    # At most as many nodes as operators can reach the top of the heap.
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
