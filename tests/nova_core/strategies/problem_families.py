"""Families of problems every strategy has to cope with; a function of a seed each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Joins, Links, Problem
from nova_core.model.requirements import Asks, RequiresPart
from nova_workloads.topology import generate

Family = Callable[[int], Problem]


def near_uniform(seed: int) -> Problem:
    return generate(40, heterogeneity=0.0, seed=seed)


def heterogeneous(seed: int) -> Problem:
    return generate(40, heterogeneity=1.0, seed=seed)


def smallest(seed: int) -> Problem:
    return generate(4, seed=seed)


def four_dimensions(seed: int) -> Problem:
    return generate(30, dimensions=4, seed=seed)


def unlimited(seed: int) -> Problem:
    return with_nodes(near_uniform(seed), capacity=np.full(40, np.inf))


def roomy(seed: int) -> Problem:
    problem = near_uniform(seed)
    return with_nodes(problem, capacity=problem.nodes.capacity * 20)


def crowded(seed: int) -> Problem:
    """Everything together does not fit."""
    problem = near_uniform(seed)
    capacity = problem.nodes.capacity / 5
    capacity[problem.joins.sink] = problem.nodes.capacity[problem.joins.sink]
    return with_nodes(problem, capacity=capacity)


def few_hosts(seed: int) -> Problem:
    """Only three nodes may host, unlimited; most others have no capacity at all."""
    problem, random = near_uniform(seed), np.random.default_rng(seed)
    worker = np.zeros(40, bool)
    worker[random.choice(np.setdiff1d(np.arange(40), problem.joins.sink), 3, False)] = True
    sink = problem.joins.sink
    capacity = np.where(worker, np.inf, 0.0)
    capacity[sink] = problem.nodes.capacity[sink]
    return with_nodes(problem, worker=worker, capacity=capacity)


def all_at_one_place(seed: int) -> Problem:
    return with_nodes(near_uniform(seed), position=np.full((40, 2), 7.0))


def on_a_line(seed: int) -> Problem:
    problem = near_uniform(seed)
    return with_nodes(problem, position=problem.nodes.position * [1.0, 0.0])


def heights(seed: int) -> Problem:
    height = np.random.default_rng(seed).exponential(10, 40)
    return with_nodes(near_uniform(seed), height=height)


def penalties_and_metrics(seed: int) -> Problem:
    penalty = np.random.default_rng(seed).exponential(10, 30)
    problem = with_nodes(generate(30, dimensions=3, seed=seed), penalty=penalty)
    return validate_problem(replace(problem, metrics=("load",)))


def requirements(seed: int) -> Problem:
    """Hosts need a tag and memory that half of the nodes have."""
    problem, random = roomy(seed), np.random.default_rng(seed)
    fit = random.random(40) < 0.5
    fit[random.integers(40)] = True
    problem = with_nodes(
        problem,
        tags=np.where(fit, "gpu,arm64", "arm64"),
        memory=np.where(fit, 4e9, np.nan),
    )
    asks = Asks(requires=RequiresPart(tags=["gpu"], memory=1e9))
    joins = replace(problem.joins, asks=(asks,))
    return validate_problem(replace(problem, joins=joins))


def link_budgets(seed: int) -> Problem:
    """A third of all links carry little."""
    problem, random = roomy(seed), np.random.default_rng(seed)
    source, target = np.nonzero((random.random((40, 40)) < 0.3) & ~np.eye(40, dtype=bool))
    links = Links(source, target, random.uniform(0, 50, len(source)))
    return validate_problem(replace(problem, links=links))


def measured_latencies(seed: int) -> Problem:
    """A matrix that violates the triangle inequality."""
    half = np.triu(np.random.default_rng(seed).exponential(50, (40, 40)), 1)
    return validate_problem(replace(near_uniform(seed), latency=half + half.T))


def many_to_many(seed: int) -> Problem:
    """Every source joins several others."""
    problem, random = roomy(seed), np.random.default_rng(seed)
    half = len(problem.sources) // 2
    left, right = np.nonzero(random.random((half, half)) < 0.3)
    left, right = np.append(left, 0), np.append(right, 0)
    cells = np.unique(np.stack([left, right + half]), axis=1)
    count = cells.shape[1]
    matrix = JoinMatrix(np.zeros(count, np.int64), cells[0], cells[1], random.uniform(1, 9, count))
    return validate_problem(replace(problem, matrix=matrix))


def several_joins_and_sinks(seed: int) -> Problem:
    """Two joins over the same streams with results for different nodes, one of them a source's."""
    problem = roomy(seed)
    sinks = np.array([problem.joins.sink[0], problem.sources.node[0]])
    joins = Joins(np.array(["a", "b"]), *(np.repeat(s, 2) for s in streams(problem)), sinks)
    m = problem.matrix
    matrix = JoinMatrix(
        np.repeat([0, 1], len(m)), *(np.tile(c, 2) for c in (m.left, m.right, m.output_rate))
    )
    capacity = problem.nodes.capacity.copy()
    capacity[sinks] = np.inf
    return validate_problem(
        replace(
            problem, joins=joins, matrix=matrix, nodes=replace(problem.nodes, capacity=capacity)
        )
    )


def sources_together(seed: int) -> Problem:
    """Several sources on each producing node, some at the sink itself."""
    problem = roomy(seed)
    some = np.append(problem.sources.node[:3], problem.joins.sink)
    node = np.random.default_rng(seed).choice(some, len(problem.sources))
    return validate_problem(replace(problem, sources=replace(problem.sources, node=node)))


def tiny_and_huge_rates(seed: int) -> Problem:
    problem, random = unlimited(seed), np.random.default_rng(seed)
    rate = 10.0 ** random.uniform(-3, 9, len(problem.sources))
    return validate_problem(replace(problem, sources=replace(problem.sources, rate=rate)))


def with_nodes(problem: Problem, **columns: np.ndarray) -> Problem:
    return validate_problem(replace(problem, nodes=replace(problem.nodes, **columns)))


def streams(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    return problem.joins.left, problem.joins.right


FAMILIES: dict[str, Family] = {
    family.__name__.replace("_", " "): family
    for family in (
        near_uniform,
        heterogeneous,
        smallest,
        four_dimensions,
        unlimited,
        roomy,
        crowded,
        few_hosts,
        all_at_one_place,
        on_a_line,
        heights,
        penalties_and_metrics,
        requirements,
        link_budgets,
        measured_latencies,
        many_to_many,
        several_joins_and_sinks,
        sources_together,
        tiny_and_huge_rates,
    )
}
