"""Fuzzy clusters, their heads by Sugeno rules, and the placements on them: cl-sf, cl-tree-sf."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from nova_core.errors import ProblemError
from nova_core.evaluation import evaluate
from nova_core.io import read_problem
from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Joins, Nodes, Problem, Sources
from nova_core.strategies import create
from nova_core.strategies.clusters import (
    ClusterParameters,
    cluster_heads,
    fuzzy_c_means,
    head_priority,
)
from nova_workloads.topology import generate

# --- fuzzy c-means --------------------------------------------------------------------------------


def memberships(position: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """(n, c) by the definition: 1 / sum over k of (d_j / d_k)^2."""
    distance = np.linalg.norm(position[:, None] - centre, axis=2)
    return 1 / (distance[:, :, None] / distance[:, None, :]).__pow__(2).sum(axis=2)


def test_centres_are_the_means_weighted_by_squared_memberships() -> None:
    position = np.random.default_rng(1).normal(size=(300, 3)) * [1, 20, 5] + 1000
    found = fuzzy_c_means(position, 7, seed=2, tolerance=1e-9)
    weight = memberships(position, found.centre) ** 2
    expected = weight.T @ position / weight.sum(axis=0)[:, None]
    assert found.centre == pytest.approx(expected, abs=1e-5)
    belongs = memberships(position, found.centre).argmax(axis=1)
    assert found.label.tolist() == belongs.tolist()


def test_clusters_that_are_far_apart_are_told_apart() -> None:
    random = np.random.default_rng(0)
    blob = np.repeat(np.arange(5), 60)
    position = np.array([[0, 0], [90, 0], [0, 90], [90, 90], [45, 45]])[blob]
    found = fuzzy_c_means(position + random.normal(size=(300, 2)), 5, seed=0)
    assert len({(a, b) for a, b in zip(blob.tolist(), found.label.tolist(), strict=True)}) == 5


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_no_more_clusters_than_places(count: int) -> None:
    position = np.repeat([[0.0, 1.0], [5.0, 5.0], [9.0, 0.0]], 10, axis=0)
    found = fuzzy_c_means(position, count, seed=0)
    assert len(found.centre) == min(count, 3)
    assert np.isfinite(found.centre).all()
    if count >= 3:
        assert len(set(found.label.tolist())) == 3


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    position = np.random.default_rng(3).uniform(size=(200, 2))
    whole = fuzzy_c_means(position, 9, seed=1)
    monkeypatch.setattr("nova_core.strategies.clusters._BLOCK", 50)
    parts = fuzzy_c_means(position, 9, seed=1)
    assert parts.centre == pytest.approx(whole.centre)


# --- Sugeno rules ---------------------------------------------------------------------------------


def priority(*values: float, **weights: float) -> float:
    inputs = (np.array([value]) for value in values)
    return float(head_priority(*inputs, ClusterParameters(**weights))[0])


def test_where_a_single_rule_fires_its_conclusion_holds() -> None:
    # In the corners and middles of the inputs, one term of each holds wholly.
    assert priority(0, 0, 1) == pytest.approx(1)
    assert priority(1, 1, 0) == 0
    assert priority(0.5, 0.5, 0.5) == pytest.approx(0.5)
    # Near the centre, medium to the sink, weak: (2 * 1 + 1 * 0.5 + 1 * 0) / 4.
    assert priority(0, 0.5, 0, centre=2, sink=1, capacity=1) == pytest.approx(2.5 / 4)


def test_several_rules_are_weighed_by_their_weakest_premise() -> None:
    # How much each input is near or strong at level 0, 0.5 and 1.
    centre, sink, capacity = {0.5: 0.5, 1.0: 0.5}, {0.0: 0.8, 0.5: 0.2}, {0.5: 0.2, 1.0: 0.8}
    rules = [
        (min(centre[a], sink[b], capacity[c]), (a + b + c) / 3)
        for a, b, c in product(centre, sink, capacity)
    ]
    expected = sum(fires * says for fires, says in rules) / sum(fires for fires, _ in rules)
    found = priority(0.25, 0.9, 0.9, centre=1, sink=1, capacity=1)
    assert found == pytest.approx(expected)


def test_better_inputs_never_make_it_worse() -> None:
    grid = np.linspace(0, 1, 21)
    axes = (axis.ravel() for axis in np.meshgrid(grid, grid, grid, indexing="ij"))
    for weights in ({}, {"centre": 3.0}, {"sink": 0.2, "capacity": 2.0}):
        axes = [axis.ravel() for axis in np.meshgrid(grid, grid, grid, indexing="ij")]
        level = head_priority(*axes, ClusterParameters(**weights)).reshape(21, 21, 21)
        assert (np.diff(level, axis=2) >= -0.05).all()
        assert (level >= 0).all()
        assert (level <= 1).all()
        ends = level[:, :, -1] - level[:, :, 0]
        assert (ends > 0).all()


# --- heads ----------------------------------------------------------------------------------------


def two_clusters(capacity: list[float]) -> Problem:
    """The sink 0 between nodes 1 to 4 on the left and 5 to 8 on the right.

    Joins: sources on 1 and 2; 5 and 6; 1 and 5.
    """
    position = [
        [0, 0],
        [-20, 1],
        [-20, -1],
        [-21, 0],
        [-19, 0],
        [20, 1],
        [20, -1],
        [21, 0],
        [19, 0],
    ]
    return validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array([f"n{i}" for i in range(9)]),
                position=np.array(position, float),
                capacity=np.array([100.0, *capacity]),
                worker=np.arange(9) > 0,
            ),
            sources=Sources(
                ids=np.array([f"s{i}" for i in range(6)]),
                node=np.array([1, 2, 5, 6, 1, 5]),
                stream=np.array(["left", "right"] * 3),
                rate=np.array([1.0, 2, 3, 4, 5, 6]),
            ),
            joins=Joins(np.array(["j"]), np.array(["left"]), np.array(["right"]), np.array([0])),
            matrix=JoinMatrix(np.zeros(3, int), np.arange(0, 6, 2), np.arange(1, 6, 2), np.ones(3)),
        )
    )


def heads(problem: Problem, **parameters: float) -> list[int]:
    found = cluster_heads(problem, ClusterParameters(share=2 / 9, **parameters))
    return sorted({int(found[n]) for n in (1, 5)})


def test_heads_are_chosen_by_what_the_weights_say() -> None:
    even = two_clusters([10] * 8)
    assert heads(even, centre=0, sink=1, capacity=0) == [4, 8]
    strong = two_clusters([10, 10, 30, 10, 10, 10, 30, 10])
    assert heads(strong, centre=0, sink=0, capacity=1) == [3, 7]
    # Place first, capacity where places are alike: 1 and 2 mirror each other, as do 5 and 6.
    tie = two_clusters([10, 20, 0, 0, 10, 20, 0, 0])
    assert heads(tie, centre=0, sink=0, capacity=1) == [2, 6]


def test_what_may_not_host_counts_as_weak_and_unlimited_as_strong() -> None:
    problem = two_clusters([10, 20, 99, 5, 10, 20, np.inf, 5])
    worker = problem.nodes.worker.copy()
    worker[3] = False
    problem = replace(problem, nodes=replace(problem.nodes, worker=worker))
    assert heads(problem, centre=0, sink=0, capacity=1) == [2, 7]


def test_sinks_never_lead() -> None:
    problem = generate(300, seed=4)
    head = cluster_heads(problem, ClusterParameters(share=0.3))
    sink = int(problem.joins.sink[0])
    members = np.arange(300) != sink
    assert (head[members] != sink).all()
    assert (head[head[members]] == head[members]).all()


# --- placements -----------------------------------------------------------------------------------


def legs(problem: Problem, strategy: str) -> tuple[list[int], list[list[int]]]:
    plan = create(strategy, share=2 / 9, centre=0, sink=1, capacity=0).place(problem)
    routes = plan.routes
    assert routes is not None
    parts = np.split(routes.node, routes.offset[1:-1])
    return plan.instances.node.tolist(), [part.tolist() for part in parts]


def test_cl_sf_joins_at_the_head_of_one_cluster_or_at_the_sink() -> None:
    hosts, routes = legs(two_clusters([10] * 8), "cl-sf")
    assert hosts == [4, 8, 0]
    assert routes == [
        *([1, 4], [2, 4], [4, 0]),
        *([5, 8], [6, 8], [8, 0]),
        *([1, 4, 0], [5, 8, 0], [0]),
    ]


def test_cl_tree_sf_relays_along_the_tree_of_heads() -> None:
    problem = two_clusters([10] * 8)
    # With the sink on the far left, the right head sends by way of the left one.
    position = problem.nodes.position.copy()
    position[0] = [-60, 0]
    nodes = replace(problem.nodes, position=position)
    hosts, routes = legs(replace(problem, nodes=nodes), "cl-tree-sf")
    assert hosts == [3, 8, 3]
    assert routes == [
        *([1, 3], [2, 3], [3, 0]),
        *([5, 8], [6, 8], [8, 3, 0]),
        *([1, 3], [5, 8, 3], [3, 0]),
    ]


def test_sources_on_one_node_still_meet_at_the_head() -> None:
    problem = two_clusters([10] * 8)
    node = np.array([1, 1, 4, 4, 0, 5])
    hosts, routes = legs(replace(problem, sources=replace(problem.sources, node=node)), "cl-sf")
    # Node 4 is a head itself, and what is produced at the sink is joined there.
    assert hosts == [4, 4, 0]
    assert routes[:3] == [[1, 4], [1, 4], [4, 0]]
    assert routes[3:] == [[4], [4], [4, 0], [0], [5, 8, 0], [0]]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"share": 0}, "share is 0; expected above 0 to 1"),
        ({"share": 1.5}, "share is 1.5"),
        ({"share": float("nan")}, "share is nan"),
        ({"centre": -1}, "weight centre is -1; expected 0 or more"),
        ({"capacity": float("inf")}, "weight capacity is inf"),
        ({"centre": 0, "sink": 0, "capacity": 0}, "all weights are 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
@pytest.mark.parametrize("strategy", ["cl-sf", "cl-tree-sf"])
def test_bad_parameters_are_refused(strategy: str, wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        create(strategy, **wrong)


# --- published figures ----------------------------------------------------------------------------


# The clusters depend on their first centres, so several are tried.


@pytest.mark.data
@pytest.mark.parametrize(
    ("strategy", "published"),
    [("cl-sf", [90, 88, 89, 86, 91, 95]), ("cl-tree-sf", [99, 96, 94, 98, 99, 97])],
)
def test_published_overload(shared_data: Path, strategy: str, published: list[int]) -> None:
    percent = []
    for column in range(6):
        asked = read_problem(shared_data / "instances" / "sim1000", f"capacity_{column}")
        plans = (create(strategy, seed=seed).place(asked) for seed in range(3))
        percent.append([int(evaluate(plan).arriving.overloaded_percent) for plan in plans])
    assert np.abs(np.mean(percent, axis=1) - published).max() <= 6


@pytest.mark.data
@pytest.mark.parametrize(
    ("strategy", "published", "within"), [("cl-sf", 66.7, 0.5), ("cl-tree-sf", 135.2, 8)]
)
def test_published_latency(
    shared_data: Path, strategy: str, published: float, within: float
) -> None:
    asked = read_problem(shared_data / "instances" / "sim1000", "unlimited")
    plans = (create(strategy, seed=seed).place(asked) for seed in range(15))
    p90 = [evaluate(plan).estimated.p90 for plan in plans]
    assert np.median(p90) == pytest.approx(published, abs=within)
