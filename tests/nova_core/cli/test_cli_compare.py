"""`nova compare`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_core.evaluation import evaluate, lower_bound
from nova_core.io.files import read_problem
from nova_core.strategies import names, place


def test_all_strategies_in_one_table(nova, problem: Path) -> None:
    result = nova("compare", problem, "--bound", "--set", "nova.sigma=0")
    assert result.exit_code == 0
    for name in names():
        assert f"\n{name} " in result.stdout
    assert "/ bound" in result.stdout
    assert "sending straight to the sink" in result.stdout


def test_figures_are_the_evaluations(ask, problem: Path) -> None:
    answer = ask("compare", problem, "nova", "sink", "--bound", "--set", "nova.sigma=0")
    asked = read_problem(problem)
    assert answer["lower_bound"] == pytest.approx(lower_bound(asked, "latency"))
    assert list(answer["strategies"]) == ["nova", "sink"]
    for name, parameters in (("nova", {"sigma": 0.0}), ("sink", {})):
        told = answer["strategies"][name]["evaluation"]
        assert told == evaluate(place(asked, name, **parameters)).to_dict()


def test_measured_latency_is_shown_where_there_is_a_matrix(nova, ask, problem: Path) -> None:
    assert "measured" not in nova("compare", problem, "sink").stdout
    ids = ["n1", "n2", "nw", "s1", "sw", "A", "B", "C", '"[red]$G$"', "cloud", "sink"]
    rows = [[0 if i == j else 10 + i + j for j in range(11)] for i in range(11)]
    matrix = "".join(f"    - {row}\n" for row in rows)
    problem.write_text(
        f"{problem.read_text()}latency:\n  nodes: [{', '.join(ids)}]\n  matrix:\n{matrix}"
    )
    assert "measured mean" in nova("compare", problem, "sink").stdout
    answer = ask("compare", problem, "sink")
    measured = answer["strategies"]["sink"]["evaluation"]["measured"]
    assert measured["mean"] == pytest.approx(sum(10 + i + 10 for i in range(5)) / 5)


def test_the_objective_reaches_those_that_can_choose(ask, problem: Path) -> None:
    answer = ask(
        *("compare", problem, "nova", "sink", "--objective", "network-usage"),
        *("--set", "nova.sigma=0"),
    )
    assert answer["strategies"]["nova"]["objective"] == "network-usage"
    assert answer["strategies"]["sink"]["objective"] == "latency"


def test_a_strategy_that_fails_leaves_the_others(nova, ask, problem: Path) -> None:
    text = problem.read_text().replace("unlimited", "1").replace("capacity: 200", "capacity: 20")
    problem.write_text(text)
    answer = ask("compare", problem)
    assert "tuples/s" in answer["strategies"]["nova"]["error"]
    assert "evaluation" in answer["strategies"]["sink"]
    assert nova("compare", problem).exit_code == 0


def test_bad_input_is_refused(refused, problem: Path, tmp_path: Path) -> None:
    assert "installed are nova" in refused("compare", problem, "hope")
    assert "STRATEGY.KEY=VALUE" in refused("compare", problem, "--set", "sigma=1")
    assert "unknown parameter 'size'" in refused("compare", problem, "--set", "nova.size=1")
    assert "nix.yaml" in refused("compare", tmp_path / "nix.yaml")
    text = problem.read_text().replace("unlimited", "1").replace("capacity: 200", "capacity: 20")
    (tmp_path / "full.yaml").write_text(text)
    assert "tuples/s" in refused("compare", tmp_path / "full.yaml", "nova")
