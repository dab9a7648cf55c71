"""What tests of the command line share: a small problem and a way to run commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli

# Two regions; A and B are too small for both of the north's joins, C has room but is far.
PROBLEM = """\
nova: 1
name: two regions
nodes:
  - {id: n1, capacity: 5, position: [-60, 60]}
  - {id: n2, capacity: 5, position: [-35, 75]}
  - {id: nw, capacity: 5, position: [-55, 40]}
  - {id: s1, capacity: 5, position: [60, 70]}
  - {id: sw, capacity: 5, position: [75, 35]}
  - {id: A, capacity: 55, position: [-32, 38]}
  - {id: B, capacity: 40, position: [-24, 34]}
  - {id: C, capacity: 40, position: [-10, 42]}
  - {id: "[red]$G$", capacity: 200, position: [35, 30]}
  - {id: cloud, capacity: unlimited, position: [10, 210]}
  - {id: sink, capacity: 100, position: [0, -10], worker: false}
sources:
  - {id: n1, node: n1, stream: T, rate: 25, key: north}
  - {id: n2, node: n2, stream: T, rate: 25, key: north}
  - {id: nw, node: nw, stream: W, rate: 25, key: north}
  - {id: s1, node: s1, stream: T, rate: 25, key: south}
  - {id: sw, node: sw, stream: W, rate: 25, key: south}
query:
  operators:
    - {id: tw, left: T, right: W, sink: sink, selectivity: 0.2}
"""

Nova = Callable[..., Result]


@pytest.fixture
def nova() -> Nova:
    """Runs a command in this process; stdout and stderr come apart."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")

    return run


@pytest.fixture
def ask(nova: Nova) -> Callable[..., Any]:
    """Runs a command with --json, which must say nothing else on stdout; its answer."""

    def run(*arguments: str | Path, code: int = 0) -> Any:
        result = nova(*arguments, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    return run


@pytest.fixture
def refused(nova: Nova, tmp_path: Path) -> Callable[..., str]:
    """Runs a command that must fail: exit code 2, one line on stderr, no new files; that line."""

    def run(*arguments: str | Path) -> str:
        before = sorted(tmp_path.rglob("*"))
        result = nova(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("nova: error: ")
        assert result.stderr.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before
        return result.stderr

    return run


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A small problem that cannot be placed without cutting a join or sending it far."""
    path = tmp_path / "problem.yaml"
    path.write_text(PROBLEM)
    return path


@pytest.fixture
def plan(nova: Nova, problem: Path, tmp_path: Path) -> Path:
    """Nova's plan of it, cut as finely as can be."""
    path = tmp_path / "plan.json"
    result = nova("plan", problem, "--sigma", "0", "-o", path, "--no-baselines")
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture
def overloaded(nova: Nova, problem: Path, tmp_path: Path) -> Path:
    """A plan that breaks constraints on purpose: all joins on the sink."""
    path = tmp_path / "sink.json"
    result = nova("plan", problem, "--strategy", "sink", "-o", path, "--no-baselines")
    assert result.exit_code == 0, result.output
    return path
