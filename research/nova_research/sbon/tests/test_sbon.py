"""SBON: springs come to rest, the optimum is one, the comparators are where the text says."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_graphs import brute_force, random_graph, space
from problem_families import FAMILIES, with_nodes

from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.evaluation import evaluate
from nova_core.model.expansion import graph_of
from nova_core.model.objectives import leg_weights
from nova_core.strategies import create, place
from nova_research.operators import Operator, OperatorGraph
from nova_research.sbon.comparators import (
    consumer,
    ip_multicast,
    neighbour_routes,
    optimal,
    producer,
    random_nodes,
)
from nova_research.sbon.mapping import Mapper
from nova_research.sbon.relaxation import Damping, Springs, needs, relaxation
from nova_workloads.topology import generate

SEEDS = st.integers(0, 10_000)
few = settings(deadline=None, max_examples=20)


def force(graph: OperatorGraph, point: np.ndarray) -> np.ndarray:
    """(m, d) the force on every movable operator where all are at (o, d) points."""
    pull = np.zeros_like(point)
    for a, b, rate in zip(*graph.edges, strict=True):
        pull[a] += rate * (point[b] - point[a])
        pull[b] += rate * (point[a] - point[b])
    return pull[graph.movable]


@few
@given(seed=SEEDS, dimensions=st.integers(1, 4))
def test_at_rest_there_is_no_force_and_no_energy_to_win(seed: int, dimensions: int) -> None:
    position, _ = space(seed, 12, dimensions)
    graph = random_graph(seed, 12, 6)
    springs = Springs(graph)
    point = springs.relax(position, Damping(force_threshold=1e-9))
    assert np.abs(force(graph, point)).max() < 1e-6
    fixed = graph.pinned()
    np.testing.assert_array_equal(point[fixed >= 0], position[fixed[fixed >= 0]])

    def energy(where: np.ndarray) -> float:
        a, b, rate = graph.edges
        return float((rate * ((where[a] - where[b]) ** 2).sum(axis=1)).sum())

    random = np.random.default_rng(seed)
    for _ in range(10):
        other = point.copy()
        other[graph.movable] += random.normal(0, 5, (len(graph.movable), dimensions))
        assert energy(other) > energy(point)
    # Other rates of the same proportions pull to the same place (units do not matter).
    again = springs.relax(position, Damping(force_threshold=1e-9, seed=seed, damping=0.05))
    np.testing.assert_allclose(again, point, atol=1e-6)


def test_the_thresholds_are_the_texts() -> None:
    """A single aggregator rests at the weighted mean, within F_t of it, from anywhere."""
    position = np.array([[0.0, 0.0], [90.0, 0.0], [0.0, 90.0], [300.0, 300.0]])
    graph = OperatorGraph(
        [
            *(Operator(f"p{i}", "source", output_rate=2.0, node=i) for i in range(3)),
            Operator("a", "aggregate", (0, 1, 2), 3.0),
            Operator("c", "sink", (3,), node=3),
        ]
    )
    point = Springs(graph).relax(position, Damping())[3]
    rest = np.array([120.0, 120.0])
    assert 0 < np.linalg.norm(point - rest) < 1 / 9
    wide = Springs(graph).relax(position, Damping(force_threshold=90.0))[3]
    assert 1 < np.linalg.norm(wide - rest) < 10


@few
@given(seed=SEEDS, tree=st.booleans())
def test_optimal_is_the_least_of_all_placements(seed: int, tree: bool) -> None:
    _, latency = space(seed, 5)
    latency = latency * np.random.default_rng(seed).uniform(0.5, 1.5, latency.shape)
    graph = random_graph(seed, 5, 4, tree=tree)
    hosts = np.ones(5, bool)
    hosts[seed % 5] = False
    nodes = optimal(graph, latency, hosts)
    assert hosts[nodes[graph.movable]].all()
    assert graph.network_usage(nodes, latency) == pytest.approx(
        brute_force(graph, latency, np.flatnonzero(hosts))
    )


@few
@given(seed=SEEDS)
def test_nothing_is_better_than_optimal(seed: int) -> None:
    position, latency = space(seed, 30, 3)
    graph = random_graph(seed, 30, 6)
    best = graph.network_usage(optimal(graph, latency), latency)
    for nodes in (
        relaxation(graph, Mapper(position)).nodes,
        producer(graph, seed),
        consumer(graph),
        random_nodes(graph, 30, seed),
        ip_multicast(graph, neighbour_routes(position, None, 3)),
    ):
        assert (nodes >= 0).all()
        fixed = graph.pinned()
        np.testing.assert_array_equal(nodes[fixed >= 0], fixed[fixed >= 0])
        assert graph.network_usage(nodes, latency) >= best - 1e-9 * best


def test_every_comparator_is_where_the_text_says() -> None:
    """Two producers behind one router, a third behind another, on the way to the consumer."""
    # 0, 1 - 3 - 4 - 5; 2 - 4
    position = np.array([[0, 10], [0, -10], [20, 12], [10, 0], [20, 0], [30, 0]], float)
    graph = OperatorGraph(
        [
            *(Operator(f"p{i}", "source", output_rate=1.0, node=i) for i in range(3)),
            Operator("f", "filter", (0,), 0.5),
            Operator("j", "join", (3, 1), 1.0),
            Operator("a", "aggregate", (4, 2), 0.1),
            Operator("c", "sink", (5,), node=5),
        ]
    )
    assert sorted(graph.upstream_sources(5)) == [0, 1, 2]
    assert consumer(graph).tolist() == [0, 1, 2, 5, 5, 5, 5]
    routes = neighbour_routes(position, None, 0)
    assert ip_multicast(graph, routes).tolist() == [0, 1, 2, 0, 3, 4, 5]
    seen = np.array([producer(graph, seed)[3:6] for seed in range(40)])
    assert [set(column.tolist()) for column in seen.T] == [{0}, {0, 1}, {0, 1, 2}]
    hosts = np.array([False, True, False, True, False, False])
    assert set(random_nodes(graph, 6, 0, hosts)[3:6].tolist()) <= {1, 3}


def test_mapping_takes_the_nearest_with_room() -> None:
    position = np.arange(40.0)[:, None]
    room = np.column_stack([np.full(40, 1.0), np.full(40, 8.0)])
    room[25] = 50.0, 8.0
    mapper = Mapper(position, room=room, k=3)
    point = np.array([10.2])
    assert mapper.place(point, np.array([1.0, 8.0])) == 10
    assert mapper.place(point, np.array([0.5, 8.0])) == 11  # no memory is left on 10
    assert mapper.place(point, np.array([20.0, 8.0])) == 25  # far beyond the k nearest
    assert mapper.overloaded == 0
    assert mapper.place(point, np.array([40.0, 0.0])) == 25  # overloaded, but most is left there
    assert mapper.overloaded == 1
    mapper.release(10, np.array([1.0, 8.0]))
    allowed = np.arange(40) % 2 == 1
    assert mapper.place(point, np.array([1.0, 1.0]), allowed) == 9
    assert mapper.place(point, np.array([1.0, 1.0])) == 10
    with pytest.raises(InfeasibleError, match="no node that may run operators meets"):
        mapper.place(point, np.array([1.0, 1.0]), np.zeros(40, bool))


@pytest.mark.parametrize("enough", [3.0, 0.5])
def test_mapping_all_is_mapping_one_after_the_other(enough: float) -> None:
    random = np.random.default_rng(4)
    room = np.stack([random.exponential(size=80), np.full(80, np.inf)], axis=1)
    points, axes = random.uniform(0, 9, (60, 2)), random.exponential(size=(80, 1))
    needs = np.stack([random.random(60), np.zeros(60)], axis=1)
    needs[:, 0] *= room[:, 0].sum() / needs[:, 0].sum() / enough
    nodes = random.uniform(0, 9, (80, 2))
    hosts = random.random(80) < 0.9
    together = Mapper(nodes, axes=axes, hosts=hosts, room=room)
    apart = Mapper(nodes, axes=axes, hosts=hosts, room=room)
    found = together.place_all(points, needs, [None] * 60)
    assert found.tolist() == [apart.place(*row) for row in zip(points, needs, strict=True)]
    assert together.overloaded == apart.overloaded
    np.testing.assert_allclose(together.room, apart.room)


def test_loaded_nodes_move_away_in_the_cost_space() -> None:
    position = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 50.0]])
    load = np.array([[10.0], [0.0], [0.0]])
    point = np.array([[1.0, 0.0]])
    assert Mapper(position).nearest(point, 1)[0, 0] == 0
    assert Mapper(position, axes=load).nearest(point, 1)[0, 0] == 1
    assert Mapper(position, axes=10 * load).nearest(point, 3)[0].tolist() == [1, 2, 0]


def test_relaxation_respects_capacity_while_there_is_room() -> None:
    problem = FAMILIES["roomy"](3)
    tight = place(problem, "sbon-relaxation")
    assert tight.notes["overloading_joins"] == 0
    assert tight.breaks == ("link",)
    assert not evaluate(tight).load.overloaded.any()
    crowded = place(FAMILIES["crowded"](3), "sbon-relaxation")
    assert crowded.notes["overloading_joins"] > 0
    assert "capacity" in crowded.breaks


@pytest.mark.parametrize("family", ["unlimited", "measured latencies", "heights"])
def test_a_problems_plan_is_never_better_than_the_optimum(family: str) -> None:
    problem = FAMILIES[family](2)

    def usage(strategy: str) -> float:
        found = evaluate(place(problem, strategy))
        return (found.measured or found.estimated).network_usage

    best = usage("sbon-optimal")
    for name in ("relaxation", "producer", "consumer", "random", "ip-multicast"):
        assert usage(f"sbon-{name}") >= best * (1 - 1e-12)


@pytest.mark.parametrize(
    "family", ["four dimensions", "heights", "few hosts", "requirements", "all at one place"]
)
def test_a_problems_optimum_is_the_least_of_all_nodes(family: str) -> None:
    for seed in range(5):
        problem = FAMILIES[family](seed)
        every = np.arange(len(problem.nodes))
        chosen = place(problem, "sbon-optimal").instances.node
        graph = graph_of(problem)
        for pair, weight in enumerate(leg_weights(problem, "network-usage")):
            ends = (problem.left_node[pair], problem.right_node[pair], problem.sink_node[pair])
            cost = sum(
                w * problem.distance(np.full(len(every), end), every)
                for w, end in zip(weight, ends, strict=True)
            )
            fit = problem.nodes.worker & graph.allowed(pair)
            assert fit[chosen[pair]]
            assert cost[chosen[pair]] == pytest.approx(cost[fit].min(), abs=1e-9)


def test_a_problem_is_the_operator_graph_of_it() -> None:
    """Strategies on a problem, and functions on its graph, agree."""
    problem = FAMILIES["unlimited"](1)
    graph = OperatorGraph.of_graph(graph_of(problem))
    latency = np.linalg.norm(problem.nodes.position[:, None] - problem.nodes.position, axis=2)
    found = graph.network_usage(optimal(graph, latency, problem.nodes.worker), latency)
    plan = evaluate(place(problem, "sbon-optimal")).estimated.network_usage
    assert plan == pytest.approx(found)
    moved = relaxation(graph, Mapper(problem.nodes.position, hosts=problem.nodes.worker))
    mine = graph.network_usage(moved.nodes, latency)
    assert evaluate(place(problem, "sbon-relaxation")).estimated.network_usage == pytest.approx(
        mine
    )
    np.testing.assert_array_equal(needs(graph)[:, 0], graph.demand)


def test_ten_thousand_joins_are_placed() -> None:
    problem = generate(33_335, seed=1)
    problem = with_nodes(problem, capacity=problem.nodes.capacity * 20)
    plan = place(problem, "sbon-relaxation")
    assert len(plan.instances) == len(problem.matrix) == 10_000
    assert plan.notes["overloading_joins"] == 0
    assert not evaluate(plan).load.overloaded.any()


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("sbon-relaxation", {"damping": 0.2}, "damping is 0.2; expected more than 0, up to 1/9"),
        ("sbon-relaxation", {"damping": float("nan")}, "damping is nan"),
        ("sbon-relaxation", {"force_threshold": 0.0}, "force_threshold is 0; expected more than 0"),
        ("sbon-relaxation", {"iterations": 0}, "iterations is 0; expected 1 or more"),
        ("sbon-relaxation", {"k": 0}, "k is 0; expected 1 or more"),
        ("sbon-random", {"seed": -1}, "seed is -1; expected 0 to "),
        ("sbon-ip-multicast", {"degree": -1}, "degree is -1; expected 0 or more"),
    ],
)
def test_bad_parameters_are_refused(name: str, parameters: dict, said: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(said)):
        create(name, **parameters)


def test_what_cannot_be_is_refused() -> None:
    position, latency = space(0, 6)
    graph = random_graph(0, 6)
    nobody = np.zeros(6, bool)
    for call in (
        lambda: optimal(graph, latency, nobody),
        lambda: random_nodes(graph, 6, 0, nobody),
        lambda: relaxation(graph, Mapper(position, hosts=nobody)),
    ):
        with pytest.raises(InfeasibleError, match="no node may run operators"):
            call()
    with pytest.raises(ProblemError, match="axes has 2 rows; expected 6, one a node"):
        Mapper(position, axes=np.zeros((2, 1)))
    with pytest.raises(ProblemError, match="mapping: k is 0"):
        Mapper(position, k=0)
    lost = OperatorGraph([graph[0], Operator("lost", "filter", (0,), 1.0)])
    with pytest.raises(ProblemError, match="'lost': its output reaches no sink"):
        consumer(lost)
    # Everything joined with everything: as many cycles as can be.
    dense = [
        Operator("s", "source", output_rate=1.0, node=0),
        *(Operator(f"j{i}", "join", tuple(range(i)), 1.0) for i in range(1, 7)),
        Operator("k", "sink", (6,), node=1),
    ]
    with pytest.raises(NovaError, match="linked in too many cycles"):
        optimal(OperatorGraph(dense), np.ones((400, 400)))
