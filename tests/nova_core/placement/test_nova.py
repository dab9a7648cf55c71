"""Nova's plans: every constraint kept, close to the optimum, the same for one seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import synthetic_problem

from nova_core.commands.figures import finer_cuts
from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.evaluation import evaluate, exact_optimum
from nova_core.io.validation import validate_problem
from nova_core.model import Links
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.assignment import Assigner
from nova_core.placement.kernels import tuning
from nova_core.strategies import create, place
from nova_workloads.topology import generate


def objective(plan: Plan) -> float:
    return evaluate(plan).estimated.objectives[plan.objective]


def place_or_none(problem: Problem, **parameters: object) -> Plan | None:
    try:
        return place(problem, "nova", **parameters)
    except InfeasibleError as error:
        assert error.missing > 0
        return None


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    nodes=st.integers(3, 30),
    joins=st.integers(1, 25),
    headroom=st.floats(0.5, 8),
    dimensions=st.integers(1, 4),
    links=st.sampled_from([0, 0, 30]),
    sigma=st.sampled_from([None, 0.0, 0.2, 0.4, 1.0]),
    bandwidth=st.sampled_from([None, None, 40.0]),
    c_min=st.sampled_from([0.0, 0.0, 10.0]),
    objective=st.sampled_from(["latency", "network-usage", "source-latency"]),
    index=st.sampled_from(["capacity-tree", "capacity-tree", "kdtree"]),
    refine=st.booleans(),
)
def test_every_plan_verifies(
    seed: int,
    nodes: int,
    joins: int,
    headroom: float,
    dimensions: int,
    links: int,
    **parameters: object,
) -> None:
    problem = synthetic_problem(
        seed, nodes=nodes, joins=joins, headroom=headroom, dimensions=dimensions, links=links
    )
    plan = place_or_none(problem, **parameters)
    if plan is not None:
        report = verify(plan)
        assert report.ok, report.summary()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    headroom=st.floats(0.2, 2),
    index=st.sampled_from(["capacity-tree", "kdtree"]),
    refine=st.booleans(),
)
def test_spread_always_answers_and_admits_what_it_overloads(
    seed: int, headroom: float, index: str, refine: bool
) -> None:
    problem = synthetic_problem(seed, headroom=headroom)
    if not (problem.nodes.worker & (problem.nodes.capacity > 0)).any():
        return
    plan = place(problem, "nova", on_full="spread", index=index, refine=refine)
    report = verify(plan)
    assert report.honest, report.summary()
    assert report.ok == (plan.notes["spread_pieces"] == 0) or report.ok


def test_small_problems_are_within_5_percent_of_the_optimum_on_average() -> None:
    ratios, refused = [], 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        problem = synthetic_problem(
            seed, nodes=int(rng.integers(4, 13)), joins=int(rng.integers(1, 9)), headroom=2.5
        )
        try:
            optimum = exact_optimum(problem).value
        except InfeasibleError:
            continue
        plan = place_or_none(problem)
        if plan is None:
            refused += 1
            continue
        ratios.append(objective(plan) / optimum)
    assert len(ratios) >= 120
    assert refused <= 2
    assert np.mean(ratios) <= 1.05


def test_one_seed_gives_one_plan_in_every_process() -> None:
    program = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "from synthetic import synthetic_problem\n"
        "from nova_core.strategies import place\n"
        "plan = place(synthetic_problem(5, nodes=40, joins=30), 'nova', seed=3)\n"
        "print(json.dumps([c.tolist() for c in (plan.instances.pair, plan.instances.node,"
        " plan.instances.left_begin, plan.instances.right_begin)]))"
    )
    here = str(Path(__file__).parent)
    output = subprocess.run(
        [sys.executable, "-c", program, here], capture_output=True, text=True, check=True
    ).stdout
    plan = place(synthetic_problem(5, nodes=40, joins=30), "nova", seed=3)
    i = plan.instances
    ours = [c.tolist() for c in (i.pair, i.node, i.left_begin, i.right_begin)]
    assert json.loads(output) == ours


def test_a_join_is_cut_only_when_that_beats_moving_it_whole() -> None:
    problem = synthetic_problem(1, nodes=30, joins=10, headroom=4)
    whole = objective(place(problem, "nova", cut_gain=1.0))
    cut = objective(place(problem, "nova"))
    assert whole >= cut * (1 - 1e-9)
    roomy = problem.with_capacity(np.where(problem.nodes.worker, np.inf, 1e9))
    assert place(roomy, "nova").notes["cut_joins"] == 0


@pytest.mark.parametrize("on_full", ["expand", "spread"])
@pytest.mark.parametrize("seed", [20, 93, 0])
def test_what_finds_no_room_is_cut_finer_unless_sigma_is_chosen(seed: int, on_full: str) -> None:
    problem = synthetic_problem(seed, nodes=12, joins=6, headroom=1.3 if seed else 4.0)
    chosen = place_or_none(problem, sigma=0.4)
    plan = place(problem, "nova", on_full=on_full)
    assert verify(plan).ok and plan.notes["spread_pieces"] == 0
    assert plan.parameters["sigma"] is None
    if seed:
        assert chosen is None and plan.notes["finest_sigma"] == 0.2
        assert place_or_none(problem, refine=False) is None  # the paper's pieces
        assert any("sigma 0.2" in line for line in finer_cuts(plan))
    else:
        assert chosen is not None and objective(chosen) == objective(plan)
        assert finer_cuts(plan) == []


@pytest.mark.parametrize("on_full", ["expand", "spread"])
def test_many_joins_are_refined_only_where_that_finds_room(
    monkeypatch: pytest.MonkeyPatch, on_full: str
) -> None:
    roomy = synthetic_problem(0, headroom=2)
    assert place(roomy, "nova").parameters["refine"] is None
    monkeypatch.setattr("nova_core.placement.kernels.tuning.REFINED_JOINS", 0)
    assert place(roomy, "nova").parameters["refine"] is False
    found = 0
    for seed in range(15):
        tight = synthetic_problem(seed, nodes=30, joins=40, headroom=1.1)
        try:
            plan = place(tight, "nova", on_full=on_full)
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                place(tight, "nova", refine=True)
            continue
        refined = plan.parameters["refine"] is not False
        found += refined and not plan.breaks
        assert objective(plan) == objective(place(tight, "nova", on_full=on_full, refine=refined))
    assert found


def test_link_budgets_move_a_join_elsewhere() -> None:
    problem = synthetic_problem(2, nodes=12, joins=1, headroom=20)
    free = place(problem, "nova")
    host, left = int(free.instances.node[0]), int(problem.left_node[0])
    if host == left:
        left = int(problem.right_node[0])
    budget = Links(np.array([left]), np.array([host]), np.array([0.5]))
    narrowed = validate_problem(replace(problem, links=budget))
    plan = place(narrowed, "nova")
    assert verify(plan).ok
    assert host not in plan.instances.node


def test_bandwidth_bounds_every_instance() -> None:
    problem = synthetic_problem(3, nodes=40, joins=5, headroom=10)
    plan = place(problem, "nova", bandwidth=20.0)
    assert plan.required_capacity.max() <= 20.0
    assert verify(plan).ok


def test_spread_admits_a_bandwidth_no_replica_can_keep() -> None:
    # The smallest replica receives 1 + 1 tuples/s.
    problem = synthetic_problem(0, nodes=6, joins=2, headroom=1.0)
    report = verify(place(problem, "nova", on_full="spread", bandwidth=1.5))
    assert not report.ok
    assert report.honest, report.summary()


def test_infeasible_says_how_much_is_missing() -> None:
    problem = synthetic_problem(4, headroom=0.5)
    needed = problem.required_capacity.sum()
    available = problem.nodes.capacity[1:].sum()
    with pytest.raises(InfeasibleError, match="tuples/s are missing") as caught:
        place(problem, "nova")
    assert caught.value.missing == pytest.approx(needed - available)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sigma": 1.5}, "sigma is 1.5; expected 0 to 1"),
        ({"sigma": float("nan")}, "sigma is nan"),
        ({"bandwidth": 0.0}, "bandwidth is 0"),
        ({"objective": "speed"}, "objective is 'speed'; expected one of latency"),
        ({"index": "ball"}, "index is 'ball'"),
        ({"on_full": "pray"}, "on_full is 'pray'"),
        ({"k": 0}, "k is 0"),
        ({"colour": 1}, "unknown parameter 'colour'"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        create("nova", **parameters)


def test_annoy_finds_room_too() -> None:
    problem = synthetic_problem(6, nodes=60, joins=20, headroom=4)
    try:
        plan = place(problem, "nova", index="annoy")
    except NovaError as error:
        assert "CI" not in os.environ, "CI must run this: install the extra annoy"
        pytest.skip(str(error))
    assert verify(plan).ok


def test_joins_find_far_room_once_near_nodes_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last resort lists few candidates first, and more where these do not do."""
    problem = generate(40, seed=12)
    needed, nodes = problem.required_capacity.sum(), problem.nodes
    factor = 1.5 * needed / nodes.capacity[nodes.worker].sum()
    tight = problem.with_capacity(np.where(nodes.worker, factor, 1.0) * nodes.capacity)
    for name, value in (("MOST_STARTS", 1), ("CANDIDATES", 4), ("LAST_CANDIDATES", (0,))):
        monkeypatch.setattr(tuning, name, value)
    with pytest.raises(InfeasibleError):
        place(tight, "nova", neighbours=4)
    monkeypatch.setattr(tuning, "LAST_CANDIDATES", (0, 10_000))
    assert verify(place(tight, "nova", neighbours=4)).ok


def test_no_room_is_made_where_more_is_missing_than_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Moving others cannot help then, and looking for such moves took minutes."""
    problem = generate(200, seed=3, rate_max=173, heterogeneity=0.5)
    moved: list[bool] = []
    improve = Assigner.improve

    def watched(self: Assigner, *, deep: bool = False, only_unplaced: bool = False) -> None:
        moved.append(only_unplaced)
        improve(self, deep=deep, only_unplaced=only_unplaced)

    monkeypatch.setattr(Assigner, "improve", watched)
    plan = place(problem, "nova", on_full="spread")
    assert "capacity" in plan.breaks
    assert moved and not any(moved)
