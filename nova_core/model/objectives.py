"""What a placement minimizes: weights of the three legs of a join.

The cost of running a pair on node v is ``w0 d(left, v) + w1 d(right, v) + w2 d(v, sink)``, with
the distances of `leg_cost`.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.graph import Graph
from nova_core.model.problem import Floats, Ints, Problem

Objective = Literal["latency", "network-usage", "source-latency"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)


def leg_weights(problem: Problem, objective: str) -> Floats:
    """Weights of each uncut pair's legs left-node, right-node, node-sink.

    Args:
        problem: what is placed.
        objective: ``latency`` weighs every leg once (Nova, Eq. 1), so costs are ms;
            ``network-usage`` weighs by rate (SBON, section 2), so costs are tuples in flight times
            1000; ``source-latency`` sums the two paths source-node-sink, so the sink leg counts
            once per source, ms.

    Returns:
        (p, 3) weights.

    Raises:
        ProblemError: for an unknown objective.
    """
    count = len(problem.matrix)
    if objective == "latency":
        return np.ones((count, 3))
    if objective == "source-latency":
        return np.broadcast_to(np.array([1.0, 1.0, 2.0]), (count, 3)).copy()
    if objective == "network-usage":
        return np.stack([problem.left_rate, problem.right_rate, problem.matrix.output_rate], axis=1)
    raise ProblemError(f"objective: unknown {objective!r}; use one of {', '.join(OBJECTIVES)}")


def link_weights(graph: Graph, objective: str) -> Floats:
    """(e,) weights of a graph's links; those of a pair are its `leg_weights`.

    ``latency`` weighs each link once (paper, Eq. 1), ``network-usage`` by its tuples/s, and
    ``source-latency`` by the source-to-sink paths it is part of.

    Raises:
        ProblemError: for an unknown objective.
    """
    producer, _, _, rate = graph.links
    if objective == "latency":
        return np.ones(len(producer))
    if objective == "network-usage":
        return rate
    if objective == "source-latency":
        return graph.paths
    raise ProblemError(f"objective: unknown {objective!r}; use one of {', '.join(OBJECTIVES)}")


def leg_cost(problem: Problem, end: Ints, host: Ints) -> Floats:
    """What a leg between a source or sink and a host costs, before it is weighted.

    That is the distance over all coordinates of the cost space, both heights (unless the leg ends
    where it begins), and the host's penalty. Without metrics and penalties it is the latency.

    Args:
        problem: what is placed.
        end: (k,) nodes at which legs begin or end.
        host: (k,) nodes joins run on; both broadcast.

    Returns:
        (k,) ms.
    """
    cost = link_cost(problem, end, host)
    return cost if problem.nodes.penalty is None else cost + problem.nodes.penalty[host]


def link_cost(problem: Problem, start: Ints, stop: Ints) -> Floats:
    """(k,) `leg_cost` without penalties, ms, between nodes ((k,) each; both broadcast)."""
    nodes = problem.nodes
    cost = np.asarray(np.linalg.norm(nodes.position[start] - nodes.position[stop], axis=-1))
    if nodes.height is not None:
        cost += np.where(start == stop, 0.0, nodes.height[start] + nodes.height[stop])
    return cost
