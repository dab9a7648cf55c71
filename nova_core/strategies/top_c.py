"""Top-c placement: every join on the node with most capacity to spare (paper, section 4.1)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nova_core.errors import InfeasibleError
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Floats, Ints, Problem


@dataclass(frozen=True)
class TopCParameters:
    """Nothing to choose."""


class TopC:
    """Run each join whole, in the given order, on the worker with the highest available capacity.

    Available is what earlier joins left. Of nodes with the same, and of unlimited ones the least
    loaded, the first takes the join. Nothing is cut, so a large join can overload even that node.
    """

    name: ClassVar[str] = "top-c"
    Parameters: ClassVar[type[TopCParameters]] = TopCParameters

    def __init__(self, parameters: TopCParameters | None = None) -> None:
        self.parameters = parameters or TopCParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; overloads the most capable node rather than refuse a join.

        Raises:
            InfeasibleError: when no node may host joins.
        """
        need = problem.required_capacity
        workers = np.flatnonzero(problem.nodes.worker)
        if len(workers) == 0:
            total = float(need.sum())
            raise InfeasibleError("top-c: no node may host joins; make one a worker", total)
        return Plan(
            problem=problem,
            strategy=self.name,
            objective="latency",
            partitions=Partitions.whole(problem),
            instances=Instances.whole(_assign(need, workers, problem.nodes.capacity[workers])),
            breaks=("capacity", "requirement", "minimum-capacity", "link"),
        )


def _assign(need: Floats, nodes: Ints, capacity: Floats) -> Ints:
    """(p,) node of each join."""
    # No more nodes can come to the top than there are joins.
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
