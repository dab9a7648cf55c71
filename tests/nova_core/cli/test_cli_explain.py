"""`nova explain`, and what `nova_core.explain` finds out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nova_core.explain import Explainer
from nova_core.io.files import read_plan, read_problem
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.plan import Plan
from nova_core.strategies import place

CUT = "tw/n2*nw"


def test_a_pair_is_explained(nova, problem: Path, plan: Path) -> None:
    result = nova("explain", plan, "-p", problem, "--join", CUT)
    assert result.exit_code == 0
    out = result.stdout
    assert "n2 on n2 (25/s) and nw on nw (25/s) to sink; needs 50 tuples/s" in out
    assert "25 x 25 partitions, 625 pieces on 2 nodes" in out
    assert "- cut because on [red]$G$, the cheapest worker with room" in out
    assert "Candidates by cost, of 10 workers" in out
    assert "too small for 50 tuples/s" in out


def test_json_of_a_join_has_all_its_pairs(ask, problem: Path, plan: Path) -> None:
    answer = ask("explain", plan, "-p", problem, "--join", "tw")
    assert [one["operator"] for one in answer["operators"]] == ["tw/n1*nw", CUT, "tw/s1*sw"]
    assert answer["more"] == 0
    for one in answer["operators"]:
        assert one["ideal_cost"] <= one["cost"]
        assert sum(host["pieces"] for host in one["hosts"]) == np.prod(one["partitions"])
        costs = [candidate["cost"] for candidate in one["candidates"]]
        assert costs == sorted(costs)
        chosen = {c["node"] for c in one["candidates"] if c["verdict"].startswith("chosen")}
        assert chosen == {host["node"] for host in one["hosts"]}


def test_pairs_are_found_by_source(ask, problem: Path, plan: Path) -> None:
    answer = ask("explain", plan, "-p", problem, "--join", "nw", "--rows", "1")
    assert [one["operator"] for one in answer["operators"]] == ["tw/n1*nw"]
    assert answer["more"] == 1


def test_without_a_name_the_farthest_pairs_come(ask, problem: Path, plan: Path) -> None:
    operators = ask("explain", plan, "-p", problem)["operators"]
    above = [one["cost"] - one["ideal_cost"] for one in operators]
    assert above == sorted(above, reverse=True)
    assert len(operators) == 3


def test_a_node_is_explained(nova, ask, problem: Path, plan: Path) -> None:
    result = nova("explain", plan, "-p", problem, "--node", "A")
    assert result.exit_code == 0
    assert "receives 50.0 of 55.0 tuples/s; 5.0 free" in result.stdout
    answer = ask("explain", plan, "-p", problem, "--node", "A")
    assert answer["hosted"] == [{"operator": "tw/n1*nw", "rate": 50.0}]
    (wish,) = answer["wishes"]  # the cut join would cost less on A
    assert wish["operator"] == CUT
    assert wish["runs_on"] == ["B", "C"]
    sink = nova("explain", plan, "-p", problem, "--node", "sink").stdout
    assert "may not host operators" in sink
    assert "consumes the results of tw" in sink


def test_an_overloaded_node_says_by_how_much(nova, problem: Path, overloaded: Path) -> None:
    out = nova("explain", overloaded, "-p", problem, "--node", "sink").stdout
    assert "overloaded by 50.0" in out
    out = nova("explain", overloaded, "-p", problem, "--join", CUT).stdout
    assert "the plan may break on purpose: capacity, worker, requirement" in out
    assert "chosen, may not host operators, overloaded" in out


def test_relayed_tuples_are_told(nova, problem: Path, tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    nova("plan", problem, "--strategy", "tree", "--no-baselines", "-o", path)
    tree = read_plan(path, read_problem(problem))
    relay = int(np.argmax(tree.relay_load))
    name = str(tree.problem.nodes.ids[relay])
    out = nova("explain", path, "-p", problem, "--node", name).stdout
    assert "only to forward" in out


def test_unknown_names_are_refused_with_a_suggestion(refused, problem: Path, plan: Path) -> None:
    assert "did you mean tw/n1*nw" in refused("explain", plan, "-p", problem, "--join", "tw/n1nw")
    assert "did you mean cloud" in refused("explain", plan, "-p", problem, "--node", "clout")
    assert "one of them" in refused("explain", plan, "-p", problem, "--join", "tw", "--node", "A")


# --- against a plain calculation -----------------------------------------------------------------


@pytest.fixture
def placed(problem: Path) -> Plan:
    return place(read_problem(problem), "nova", sigma=0.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_costs_are_those_of_the_evaluation(placed: Plan, objective: str) -> None:
    from nova_core.evaluation import evaluate

    explainer = Explainer(replace(placed, objective=objective))
    told = sum(explainer.operator(pair).cost for pair in range(len(placed.problem.matrix)))
    assert told == pytest.approx(evaluate(placed).estimated.objectives[objective])


def test_candidates_are_all_cheaper_nodes(placed: Plan) -> None:
    problem = placed.problem
    x = problem.nodes.position
    for pair in range(len(problem.matrix)):
        ends = (problem.left_node[pair], problem.right_node[pair], problem.sink_node[pair])
        cost = sum(np.linalg.norm(x - x[end], axis=1) for end in ends)
        order = [v for v in np.argsort(cost, kind="stable") if problem.nodes.worker[v]]
        told = Explainer(placed).operator(pair, nearest=100).candidates
        assert [one.node for one in told] == [str(problem.nodes.ids[v]) for v in order]
        assert [one.rank for one in told] == list(range(1, len(order) + 1))
        for one, v in zip(told, order, strict=True):
            assert one.cost == pytest.approx(cost[v])
            assert one.free == problem.nodes.capacity[v] - placed.load[v]


def test_verdicts_are_true(placed: Plan) -> None:
    problem = placed.problem
    told = Explainer(placed).operator(0, nearest=100)
    for one in told.candidates:
        if one.verdict.startswith("too small"):
            assert one.capacity < told.required_capacity
        elif one.verdict.startswith("full"):
            assert one.capacity >= told.required_capacity > one.free
        elif one.verdict.startswith("has room"):
            assert one.free >= told.required_capacity
        else:
            assert one.verdict == "chosen"
    poor = Explainer(replace(placed, parameters={"c_min": 15.0})).operator(0, nearest=100)
    small = problem.nodes.capacity < 15
    said = {one.node for one in poor.candidates if one.verdict == "capacity below C_min = 15"}
    assert said == set(problem.nodes.ids[small & problem.nodes.worker].tolist())


def test_reasons_for_cutting(problem: Path) -> None:
    asked = read_problem(problem)
    cut = next(p for p in range(3) if asked.pair_name(p) == CUT)

    def why(capacity: dict[str, float]) -> str:
        changed = asked.nodes.capacity.copy()
        for name, amount in capacity.items():
            changed[asked.node_index[name]] = amount
        plan = place(asked.with_capacity(changed), "nova", sigma=0.0)
        return " ".join(Explainer(plan).operator(cut).reasons)

    small = dict.fromkeys(("cloud", "[red]$G$", "A", "B", "C", "n1", "s1"), 45.0)
    assert "no worker takes 50 tuples/s: the greatest capacity is 45" in why(small)
    assert "the cheapest worker with room for it in one piece, it would cost" in why({})
    assert "not cut" in why({"A": 500.0})
