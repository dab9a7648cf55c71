"""Random placement problems small enough to solve exactly."""

from __future__ import annotations

import numpy as np

from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Joins, Links, Nodes, Problem, Sources


def synthetic_problem(
    seed: int,
    *,
    nodes: int = 12,
    joins: int = 8,
    headroom: float = 1.5,
    dimensions: int = 2,
    links: int = 0,
) -> Problem:
    """A sink, two sources per join on random nodes, ``headroom`` times the capacity needed."""
    rng = np.random.default_rng(seed)
    rate = rng.integers(1, 60, 2 * joins).astype(float)
    share = rng.exponential(size=nodes)
    capacity = np.floor(share / share.sum() * rate.sum() * headroom)
    capacity[0] = 1e9
    worker = np.ones(nodes, bool)
    worker[0] = False
    ends = rng.integers(0, nodes, (links, 2))
    budgets = Links.none()
    if links:
        pairs = np.unique(ends, axis=0)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        budgets = Links(pairs[:, 0], pairs[:, 1], rng.integers(1, 100, len(pairs)).astype(float))
    return validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array([f"n{i}" for i in range(nodes)]),
                position=rng.uniform(0, 100, (nodes, dimensions)),
                capacity=capacity,
                worker=worker,
            ),
            sources=Sources(
                ids=np.array([f"s{i}" for i in range(2 * joins)]),
                node=rng.integers(1, nodes, 2 * joins),
                stream=np.array(["left", "right"] * joins),
                rate=rate,
            ),
            joins=Joins(
                ids=np.array(["j"]),
                left=np.array(["left"]),
                right=np.array(["right"]),
                sink=np.array([0]),
            ),
            matrix=JoinMatrix(
                join=np.zeros(joins, np.int64),
                left=np.arange(0, 2 * joins, 2),
                right=np.arange(1, 2 * joins, 2),
                output_rate=rng.uniform(0.5, 5, joins),
            ),
            links=budgets,
            name=f"synthetic {seed}",
        )
    )
