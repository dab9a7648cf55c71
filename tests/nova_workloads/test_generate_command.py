from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_core.cli import cli
from nova_core.io.files import read_problem
from nova_workloads.topology import generate


@pytest.mark.parametrize("name", ["problem.yaml", "problem.json", "problem"])
def test_writes_what_generate_makes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    arguments = ["--nodes", "50", "--seed", "3", "--heterogeneity", "0.5", "--dimensions", "3"]
    done = CliRunner().invoke(cli, ["generate", *arguments, "-o", str(path)])
    assert done.exit_code == 0, done.output
    expected = generate(50, seed=3, heterogeneity=0.5, dimensions=3)
    assert read_problem(path).same_as(expected)
    assert expected.digest in done.stdout


def test_json_summary(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    arguments = [
        "--nodes",
        "101",
        "--clusters",
        "2",
        "--rate-min",
        "5",
        "--rate-max",
        "9",
        "--json",
    ]
    done = CliRunner().invoke(cli, ["generate", *arguments, "-o", str(path)])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    problem = generate(101, clusters=2, rate_min=5, rate_max=9)
    assert summary["digest"] == problem.digest
    assert summary["sources"] == 60 and summary["pairs"] == 30
    assert summary["rate"] == problem.required_capacity.sum()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "3"], "3 is not in the range 4<=x<=100000000"),
        (["--nodes", str(2**63)], "is not in the range 4<=x<=100000000"),
        (["--nodes", "10", "--heterogeneity", "2"], "2.0 is not in the range 0<=x<=1"),
        (["--nodes", "10", "--rate-min", "9", "--rate-max", "5"], "rate_max 5; expected"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "problem.yaml"
    done = CliRunner().invoke(cli, ["generate", *arguments, "-o", str(path)])
    assert done.exit_code == 2
    assert message in done.stderr
    assert not path.exists()
