"""Pareto fronts: nothing on them is beaten, and their ends are the optima of single values."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_problems import random_problem

from nova_core.cli import cli
from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation import evaluate, exact_optimum
from nova_core.evaluation.assignment import AssignmentCosts
from nova_core.evaluation.pareto import pareto_front
from nova_core.model import Problem
from nova_core.model.verify import verify
from nova_workloads.topology import generate


def everything(problem: Problem) -> list[tuple[float, float, int]]:
    """Latency, usage and nodes of every placement of whole joins that fits."""
    costs = {name: AssignmentCosts(problem, name) for name in ("latency", "network-usage")}
    pairs = slice(0, len(problem.matrix))
    latency, usage = (one.rows(pairs) for one in costs.values())
    room, need = costs["latency"].room, problem.required_capacity
    found = []
    for hosts in itertools.product(range(len(room)), repeat=len(need)):
        load = np.bincount(hosts, need, minlength=len(room))
        if (load <= room * (1 + 1e-9)).all():
            each = np.arange(len(need)), np.array(hosts)
            found.append((latency[each].sum(), usage[each].sum(), len(set(hosts))))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_front_of_all_placements(seed: int) -> None:
    problem = random_problem(seed, pairs=4, hosts=5, full=0.4)
    every = np.array(everything(problem))
    front = pareto_front(problem, steps=4)
    assert len(front) >= 2
    for point in front:
        values = np.array([point.latency, point.network_usage, point.nodes])
        as_good = (every <= values * (1 + 1e-5)).all(axis=1)
        assert not (as_good & (every < values * (1 - 1e-5)).any(axis=1)).any()
        told = evaluate(point.plan)
        assert told.estimated.objectives["latency"] == pytest.approx(point.latency)
        assert told.estimated.network_usage == pytest.approx(point.network_usage)
        assert told.nodes_used == point.nodes
        assert verify(point.plan).counts["capacity"] == 0
    ends = np.array([[p.latency, p.network_usage, p.nodes] for p in front]).min(axis=0)
    assert ends == pytest.approx(every.min(axis=0), rel=1e-5)
    assert not any(a.beats(b) for a in front for b in front)


def test_its_ends_are_the_exact_optima() -> None:
    problem = random_problem(7, pairs=8, hosts=8, full=0.6)
    front = pareto_front(problem, steps=3)
    for objective, least in (
        ("latency", min(point.latency for point in front)),
        ("network-usage", min(point.network_usage for point in front)),
    ):
        assert least == pytest.approx(exact_optimum(problem, objective, gap=1e-8).value, rel=1e-5)


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"300 operators, .* 300,000 variables; at most 20,000"):
        pareto_front(generate(1001))
    with pytest.raises(ProblemError, match="steps: 1; use a whole number >= 2"):
        pareto_front(random_problem(0, 2, 3, 0.5), steps=1)
    with pytest.raises(InfeasibleError):
        pareto_front(random_problem(0, 4, 5, 0.5))


def test_the_command_tells_and_writes(tmp_path: Path) -> None:
    def nova(*arguments: str | Path) -> str:
        done = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")
        assert done.exit_code == 0, done.output
        return done.stdout

    problem, output = tmp_path / "town.yaml", tmp_path / "out"
    nova("generate", "--nodes", "16", "--seed", "3", "--heterogeneity", "1", "-o", problem)
    asked = ("pareto", problem, "--steps", "3", "-o", output)
    assert "Placements that none beats" in nova(*asked)
    told = json.loads(nova(*asked, "--json"))
    assert told["written"] == ["pareto.csv", "pareto.png"]
    assert {file.name for file in output.iterdir()} == set(told["written"])
    with (output / "pareto.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["latency"]) for row in rows] == [row["latency"] for row in told["points"]]
    assert [row["strategy"] for row in told["points"]][-2:] == ["", "nova"]
