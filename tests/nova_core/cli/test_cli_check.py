"""`nova check`."""

from __future__ import annotations

import json
from pathlib import Path


def test_a_good_plan_passes(nova, ask, problem: Path, plan: Path) -> None:
    result = nova("check", plan, "--problem", problem)
    assert result.exit_code == 0
    assert "keeps all" in result.stdout
    answer = ask("check", plan, "-p", problem)
    assert answer["holds"]
    assert answer["ok"]
    assert answer["violations"] == []


def test_broken_on_purpose_fails_unless_accepted(
    nova, ask, problem: Path, overloaded: Path
) -> None:
    result = nova("check", overloaded, "-p", problem)
    assert result.exit_code == 1
    assert "on purpose" in result.stdout
    assert "node sink receives 150 tuples/s" in result.stdout
    assert nova("check", overloaded, "-p", problem, "--accept").exit_code == 0
    answer = ask("check", overloaded, "-p", problem, code=1)
    assert not answer["holds"]
    assert answer["honest"]


def test_a_plan_that_lies_fails_even_if_accepted(
    nova, problem: Path, overloaded: Path, tmp_path: Path
) -> None:
    document = json.loads(overloaded.read_text())
    document["breaks"] = []
    liar = tmp_path / "liar.json"
    liar.write_text(json.dumps(document))
    for options in ([], ["--accept"]):
        result = nova("check", liar, "-p", problem, *options)
        assert result.exit_code == 1
        assert "capacity" in result.stdout


def test_bad_input_is_refused(refused, problem: Path, plan: Path, tmp_path: Path) -> None:
    assert "nix.json" in refused("check", tmp_path / "nix.json", "-p", problem)
    assert "nix.yaml" in refused("check", plan, "-p", tmp_path / "nix.yaml")
    assert "--problem" in refused("check", plan)
    other = tmp_path / "other.yaml"
    other.write_text(problem.read_text().replace("rate: 25", "rate: 24"))
    assert "made for" in refused("check", plan, "-p", other)
    (tmp_path / "cut.json").write_text(plan.read_text()[:100])
    assert "cut.json" in refused("check", tmp_path / "cut.json", "-p", problem)
