"""IFCOP: candidates, its cost function, and how good the best candidate is."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nes_example import FILTER_6, FILTER_7, QUERY, TOPOLOGY, UNION
from problem_families import FAMILIES

from nova_core.errors import ProblemError
from nova_core.evaluation import evaluate, exact_optimum
from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Joins, Nodes, Problem, Sources
from nova_core.strategies import create
from nova_research.nebulastream.ifcop import Candidates, IfcopParameters

ROOMY = [9.0] * 9


def search(capacity: list[float] = ROOMY, **parameters: float) -> Candidates:
    return Candidates(TOPOLOGY, QUERY, capacity, IfcopParameters(**parameters))


# --- candidates -----------------------------------------------------------------------------------


def valid(nodes: tuple[int, ...]) -> bool:
    """Whether sources and sink are where they are pinned, and what consumes is never below."""
    reachable = all(
        nodes[number] in TOPOLOGY.hops(nodes[below])
        for number, operator in enumerate(QUERY.operators)
        for below in operator.inputs
    )
    pinned = all(o.node in (None, n) for o, n in zip(QUERY.operators, nodes, strict=True))
    return reachable and pinned


def test_candidates_are_all_valid_placements_and_only_these() -> None:
    possible = {
        (6, a, 7, b, union, 0)
        for a, b, union in product(range(9), repeat=3)
        if valid((6, a, 7, b, union, 0))
    }
    look, random = search(), Random(0)
    drawn = {tuple(look.candidate(random)) for _ in range(20_000)}
    assert drawn == possible


def test_the_sink_takes_what_found_no_other_node() -> None:
    class Tails(Random):
        def random(self) -> float:
            return 0.75

    assert search().candidate(Tails(0)) == [6, 0, 7, 0, 0, 0]


def test_a_node_is_offered_one_operator_after_the_other() -> None:
    class Heads(Random):
        def random(self) -> float:
            return 0.0

    nodes = search().candidate(Heads(0))
    assert (nodes[FILTER_6], nodes[FILTER_7]) == (6, 7)
    # The union is only offered to what both sources can reach.
    assert nodes[UNION] in TOPOLOGY.common([6, 7])


# --- costs ----------------------------------------------------------------------------------------


def test_network_cost_is_what_crosses_hops_relative_to_sending_all_to_the_sink() -> None:
    look = search()
    # 8 and 6 tuples/s over three hops each, if nothing is filtered on the way.
    assert look.network_cost([6, 0, 7, 0, 0, 0]) == 1.0
    # 8 over one hop to 4 and 4 stay there; 3 from 7 over one hop; the union's 7 over two to 0.
    assert look.network_cost([6, 4, 7, 7, 4, 0]) == pytest.approx((8 + 3 + 2 * 7) / (3 * 14))


def test_hops_may_cost_differently() -> None:
    look = Candidates(TOPOLOGY, QUERY, ROOMY, IfcopParameters(), lambda node, parent: float(node))
    # From 6 by 3 and 1, from 7 by 4 and 1: the first of several shortest ways.
    direct = 8 * (6 + 3 + 1) + 6 * (7 + 4 + 1)
    assert look.network_cost([6, 4, 7, 7, 4, 0]) == pytest.approx(
        (8 * 6 + 3 * 7 + 7 * (4 + 1)) / direct
    )


def test_overload_cost_is_what_goes_beyond_capacity() -> None:
    look = search([1.0] * 9)
    assert look.overload_cost([6, 4, 7, 5, 1, 0]) == 0
    # Two on 6, four on 0: one and three beyond, of six operators.
    assert look.overload_cost([6, 6, 7, 0, 0, 0]) == pytest.approx((1 + 2) / 6)


def test_costs_are_weighed() -> None:
    look = search([1.0] * 9, network_weight=2.0, overload_weight=5.0)
    nodes = [6, 6, 7, 0, 0, 0]
    expected = 2 * look.network_cost(nodes) + 5 * look.overload_cost(nodes)
    assert look.cost(nodes) == pytest.approx(expected)


# --- the search -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    iterations=st.integers(1, 30),
    room=st.lists(st.floats(0, 3), min_size=9, max_size=9),
)
def test_the_result_is_the_cheapest_of_all_candidates(
    seed: int, iterations: int, room: list[float]
) -> None:
    look = search(room, iterations=iterations)
    random = Random(seed)
    costs = [look.cost(look.candidate(random)) for _ in range(iterations)]
    nodes, cost = look.cheapest(Random(seed))
    assert cost == min(costs) <= costs[0]
    assert look.cost(nodes) == cost


@pytest.mark.parametrize("family", ["heterogeneous", "several joins and sinks", "many to many"])
def test_more_iterations_never_make_it_worse(family: str) -> None:
    problem = FAMILIES[family](4)
    for seed in range(5):
        costs = [
            create("ifcop", iterations=n, seed=seed).place(problem).notes["cost"]
            for n in (1, 10, 100)
        ]
        if len(problem.joins) == 1:
            assert costs[0] >= costs[1] >= costs[2]
        assert costs[2] < costs[0]


def on_a_tree(seed: int) -> Problem:
    """The sink in the middle of a line, with two hosts and two joins on each arm of it.

    On such a tree no way is a detour. Each host is at most half as far from the sink as what is
    farther out, so that it can be its parent. The sink has room for everything.
    """
    random = np.random.default_rng(seed)
    far = random.uniform(90, 99, (2, 4)) * [[1], [-1]]
    place = np.concatenate(([0.0], [12.0, 40.0, -12.0, -40.0], far.ravel()))
    rate = random.integers(5, 40, 8).astype(float)
    # Some joins emit more than they receive, and want to be near the sink.
    output = rate.mean() * random.uniform(0.1, 4.0, 4)
    # Outer hosts have room for one join or both, inner ones for none or more.
    room = rate.mean() * random.uniform(0.5, 4.0, 4)
    return validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array([f"n{i}" for i in range(13)]),
                position=np.stack([place, np.zeros(13)], axis=1),
                capacity=np.concatenate(([1e4], room, np.zeros(8))),
                worker=np.arange(13) < 5,
            ),
            sources=Sources(
                ids=np.array([f"s{i}" for i in range(8)]),
                node=np.arange(5, 13),
                stream=np.array(["left", "right"] * 4),
                rate=rate,
            ),
            joins=Joins(np.array(["j"]), np.array(["left"]), np.array(["right"]), np.array([0])),
            matrix=JoinMatrix(np.zeros(4, int), np.arange(0, 8, 2), np.arange(1, 8, 2), output),
        )
    )


def test_with_enough_iterations_it_matches_the_exact_optimum() -> None:
    used, first = set(), 0
    for seed in range(10):
        problem = on_a_tree(seed)
        optimum = exact_optimum(problem, "network-usage")
        parameters = {"overload_weight": 1000.0, "seed": seed}
        plan = create("ifcop", iterations=2000, **parameters).place(problem)
        assert evaluate(plan).estimated.network_usage == pytest.approx(optimum.value)
        taken = plan.load - plan.relay_load
        assert (taken <= problem.nodes.capacity * (1 + 1e-9)).all()
        used |= set(plan.instances.node.tolist())
        single = create("ifcop", iterations=1, **parameters).place(problem)
        first += evaluate(single).estimated.network_usage == pytest.approx(optimum.value)
    # These problems differ, and are not solved by chance.
    assert len(used) >= 4
    assert first <= 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"iterations": 0}, "iterations is 0; expected a whole number >= 1"),
        ({"network_weight": -1}, "network_weight is -1; expected 0 or more"),
        ({"overload_weight": float("nan")}, "overload_weight is nan"),
    ],
)
def test_bad_parameters_are_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        create("ifcop", **wrong)
