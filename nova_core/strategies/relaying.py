"""Joins along a tree: every join runs where its inputs' ways to the sink meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.plan import Instances, Partitions, Plan, Routes
from nova_core.model.problem import Ints, Problem
from nova_core.strategies.spanning_tree import RootedTree

# Routes of more hops than this in total would not fit in memory (8 bytes each).
MOST_HOPS = 200_000_000

BREAKS = ("capacity", "worker", "requirement", "minimum-capacity", "link")
"""What a strategy that takes no notice of resources may break."""


def relayed_plan(
    problem: Problem,
    strategy: str,
    trees: Mapping[int, RootedTree],
    entry: Ints | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Plan:
    """Run every join where its inputs meet in the tree of its sink; tuples travel along the tree.

    Args:
        problem: what is placed.
        strategy: name of the strategy.
        trees: a tree over all nodes for every sink, rooted there.
        entry: (n,) first node on each node's way that may join, itself or an ancestor of it in all
            trees but the one it is the root of; None where every node may.
        parameters: what the plan says the strategy's parameters are.

    Raises:
        ProblemError: when the routes would be too long to write down.
    """
    start = np.stack([problem.left_node, problem.right_node, problem.left_node], axis=1)
    end = np.empty_like(start)
    length = np.empty_like(start)
    rows = {sink: np.flatnonzero(problem.sink_node == sink) for sink in trees}
    for sink, tree in trees.items():
        mine = rows[sink]
        first = start[mine, :2]
        if entry is not None:
            first = np.where(first == sink, sink, entry[first])
        host = tree.meeting_point(first[:, 0], first[:, 1])
        start[mine, 2] = end[mine, 0] = end[mine, 1] = host
        end[mine, 2] = sink
        length[mine] = tree.depth[start[mine]] - tree.depth[end[mine]] + 1
    hops = int(length.sum())
    if hops > MOST_HOPS:
        raise ProblemError(
            f"strategy {strategy}: routes along the tree have {hops} hops in total, at most "
            f"{MOST_HOPS} can be kept; use a smaller topology or another strategy"
        )
    offset = np.concatenate(([0], np.cumsum(length)))
    node = np.empty(hops, np.int64)
    begin = offset[:-1].reshape(-1, 3)
    for sink, tree in trees.items():
        mine = rows[sink]
        tree.climb(start[mine].ravel(), end[mine].ravel(), begin[mine].ravel(), node)
    return Plan(
        problem=problem,
        strategy=strategy,
        objective="latency",
        partitions=Partitions.whole(problem),
        instances=Instances.whole(start[:, 2]),
        parameters=parameters or {},
        routes=Routes(offset, node),
        breaks=BREAKS,
    )


__all__ = ["BREAKS", "MOST_HOPS", "relayed_plan"]
