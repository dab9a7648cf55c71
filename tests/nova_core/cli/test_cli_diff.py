"""`nova diff`, and what `nova_core.plan_diff` finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.plan_diff import MOVED, NOWHERE, diff_plans
from nova_core.strategies import place
from nova_workloads.topology import generate


def test_same_plans(nova, ask, problem: Path, plan: Path) -> None:
    result = nova("diff", plan, plan, "-p", problem)
    assert result.exit_code == 0
    assert "no difference: all 4 instances stay" in result.stdout
    answer = ask("diff", plan, plan, "-p", problem)
    assert answer["same"]
    assert answer["changes"] == []
    assert answer["counts"]["unchanged"] == 4


def test_different_plans(nova, ask, problem: Path, plan: Path, overloaded: Path) -> None:
    result = nova("diff", plan, overloaded, "-p", problem)
    assert result.exit_code == 1
    assert "2 moved, 1 started, 2 stopped; 0 stay" in result.stdout
    assert "overloaded nodes" in result.stdout
    assert "3 more" in nova("diff", plan, overloaded, "-p", problem, "--rows", "2").stdout
    answer = ask("diff", plan, overloaded, "-p", problem, code=1)
    assert answer["counts"] == {
        "moved": 2,
        "re-cut": 0,
        "started": 1,
        "stopped": 2,
        "unchanged": 0,
    }
    assert {(c["change"], c["from"], c["to"]) for c in answer["changes"]} == {
        ("moved", "A", "sink"),
        ("moved", "[red]$G$", "sink"),
        ("started", None, "sink"),
        ("stopped", "B", None),
        ("stopped", "C", None),
    }
    assert answer["new"]["evaluation"]["load"]["overloaded_count"] == 1


def test_bad_input_is_refused(refused, problem: Path, plan: Path, tmp_path: Path) -> None:
    assert "nix.json" in refused("diff", plan, tmp_path / "nix.json", "-p", problem)
    other = tmp_path / "other.yaml"
    other.write_text(problem.read_text().replace("rate: 25", "rate: 24"))
    assert "made for" in refused("diff", plan, plan, "-p", other)


# --- properties ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    """Plans of one problem that differ in places, cuts and both."""
    problem = generate(60, heterogeneity=1.0, seed=5)
    return [
        place(problem, "nova", sigma=0.0),
        place(problem, "nova", sigma=0.0, refine=False),
        place(problem, "nova", sigma=0.4),
        place(problem, "nova", sigma=0.1, objective="source-latency"),
        place(problem, "source"),
        place(problem, "top-c"),
    ]


def by_place(plan: Plan) -> np.ndarray:
    """(p, n) tuples/s each pair needs on each node."""
    total = np.zeros((len(plan.problem.matrix), len(plan.problem.nodes)))
    np.add.at(total, (plan.instances.pair, plan.instances.node), plan.required_capacity)
    return total


@given(a=st.integers(0, 5), b=st.integers(0, 5))
@settings(max_examples=36, deadline=None)
def test_changes_lead_from_one_plan_to_the_other(plans: list[Plan], a: int, b: int) -> None:
    old, new = plans[a], plans[b]
    found = diff_plans(old, new)
    state = by_place(old)
    for kind, pair, source, target, before, after in zip(
        found.kind,
        found.operator,
        found.old_node,
        found.new_node,
        found.old_rate,
        found.new_rate,
        strict=True,
    ):
        if kind == MOVED:
            assert source != target
        if source != NOWHERE:
            state[pair, source] -= before
        if target != NOWHERE:
            state[pair, target] += after
    np.testing.assert_allclose(state, by_place(new), atol=1e-9)
    moved = int((found.kind == MOVED).sum())
    assert found.unchanged + moved <= min(len(old.instances), len(new.instances))
    assert found.same == (a == b)


def test_a_swap_is_two_moves(problem: Path) -> None:
    from dataclasses import replace

    from nova_core.io.files import read_problem

    asked: Problem = read_problem(problem)
    plan = place(asked, "top-c")
    node = plan.instances.node.copy()
    node[:] = asked.node_index["A"]
    node[1] = asked.node_index["B"]
    first = replace(plan, instances=replace(plan.instances, node=node))
    other = node.copy()
    other[[0, 1]] = other[[1, 0]]
    second = replace(plan, instances=replace(plan.instances, node=other))
    found = diff_plans(first, second)
    assert found.counts() == {"moved": 2, "re-cut": 0, "started": 0, "stopped": 0}
    assert found.unchanged == 1
