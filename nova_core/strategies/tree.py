"""Tree placement: relaying along the minimum spanning tree (paper, section 4.1, WSN style)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.plan import Instances, Partitions, Plan, Routes
from nova_core.model.problem import Problem
from nova_core.strategies.spanning_tree import minimum_spanning_tree, rooted

# Routes of more hops than this in total would not fit in memory (8 bytes each).
_MOST_HOPS = 200_000_000


@dataclass(frozen=True)
class TreeParameters:
    """Nothing to choose."""


class Tree:
    """Run every join where its sources' ways to the sink meet in the minimum spanning tree.

    Tuples travel along the tree's edges, so every node between receives them to pass them on.
    """

    name: ClassVar[str] = "tree"
    Parameters: ClassVar[type[TreeParameters]] = TreeParameters

    def __init__(self, parameters: TreeParameters | None = None) -> None:
        self.parameters = parameters or TreeParameters()

    def place(self, problem: Problem) -> Plan:
        """Place; ignores capacity and whether a node may host.

        Raises:
            ProblemError: when the routes would be too long to write down.
        """
        count = len(problem.nodes)
        edges = minimum_spanning_tree(problem.latency_position, problem.nodes.height)
        start = np.stack([problem.left_node, problem.right_node, problem.left_node], axis=1)
        end = np.empty_like(start)
        length = np.empty_like(start)
        trees = {int(sink): rooted(edges, count, int(sink)) for sink in set(problem.sink_node)}
        rows = {sink: np.flatnonzero(problem.sink_node == sink) for sink in trees}
        for sink, tree in trees.items():
            mine = rows[sink]
            host = tree.meeting_point(problem.left_node[mine], problem.right_node[mine])
            start[mine, 2] = end[mine, 0] = end[mine, 1] = host
            end[mine, 2] = sink
            length[mine] = tree.depth[start[mine]] - tree.depth[end[mine]] + 1
        hops = int(length.sum())
        if hops > _MOST_HOPS:
            raise ProblemError(
                f"strategy tree: routes along the tree have {hops} hops in total, at most "
                f"{_MOST_HOPS} can be kept; use a smaller topology or another strategy"
            )
        offset = np.concatenate(([0], np.cumsum(length)))
        node = np.empty(hops, np.int64)
        first = offset[:-1].reshape(-1, 3)
        for sink, tree in trees.items():
            mine = rows[sink]
            tree.climb(start[mine].ravel(), end[mine].ravel(), first[mine].ravel(), node)
        return Plan(
            problem=problem,
            strategy=self.name,
            objective="latency",
            partitions=Partitions.whole(problem),
            instances=Instances.whole(start[:, 2]),
            routes=Routes(offset, node),
            breaks=("capacity", "worker", "requirement", "minimum-capacity", "link"),
        )
