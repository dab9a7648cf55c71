"""Engines and how the command line shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_core.commands.engines import engines
from nova_core.commands.translate import translate
from nova_core.engines import load, names
from nova_core.errors import NovaError
from nova_core.io.files import write_plan, write_problem
from nova_core.strategies import place
from nova_workloads.topology import generate


def test_flink_is_found_and_described() -> None:
    assert "flink" in names()
    engine = load("flink")
    assert engine.name == "flink"
    assert "Flink" in engine.describe()


def test_unknown_engine_names_those_there_are() -> None:
    with pytest.raises(NovaError, match=r"engine: unknown 'x'; installed are .*flink"):
        load("x")


def test_list_says_what_is_installed(tmp_path: Path) -> None:
    told = CliRunner(env={"NOVA_HOME": str(tmp_path)}).invoke(engines, ["list", "--json"])
    rows = {row["name"]: row for row in json.loads(told.stdout)}
    assert rows["flink"]["installed"] is False
    assert rows["flink"]["path"].startswith(str(tmp_path))
    table = CliRunner(env={"NOVA_HOME": str(tmp_path)}).invoke(engines, ["list"])
    assert "flink" in table.stdout


def test_path_of_what_is_not_installed(tmp_path: Path) -> None:
    told = CliRunner(env={"NOVA_HOME": str(tmp_path)}).invoke(engines, ["path", "flink"])
    assert isinstance(told.exception, NovaError)
    assert "run `nova engines install flink`" in str(told.exception)
    assert told.stdout == ""


TOY = '''
from pathlib import Path


class Toy:
    """Writes where every join runs, a line each."""

    name = "toy"
    path = Path("/somewhere")

    def describe(self):
        return "a toy"

    def installed(self):
        return True

    def install(self, progress):
        progress("nothing to do")

    def translate(self, plan, problem, directory, options):
        directory.mkdir()
        file = directory / "joins.txt"
        nodes = problem.nodes.ids[plan.instances.node]
        file.write_text("".join(f"{options.get('prefix', '')}{node}\\n" for node in nodes))
        return [file]


TOY = Toy()
'''


def test_an_adapter_from_outside_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of somebody else's, installed beside Nova, adds an engine by being there."""
    site = tmp_path / "site"
    metadata = site / "nova_toy-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "nova_toy.py").write_text(TOY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: nova-toy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[nova.engines]\ntoy = nova_toy:TOY\n")
    monkeypatch.syspath_prepend(str(site))

    assert {"toy", "flink"} <= set(names())
    told = CliRunner().invoke(engines, ["list", "--json"])
    assert {"name": "toy", "installed": True, "path": "/somewhere", "description": "a toy"} in (
        json.loads(told.stdout)
    )
    problem = generate(nodes=20, seed=1)
    write_problem(problem, tmp_path / "problem.yaml")
    plan = place(problem)
    write_plan(plan, tmp_path / "plan.json")
    arguments = [str(tmp_path / "plan.json"), "-p", str(tmp_path / "problem.yaml")]
    told = CliRunner().invoke(
        translate,
        [*arguments, "--engine", "toy", "-o", str(tmp_path / "out"), "--set", "prefix=on:"],
        catch_exceptions=False,
    )
    assert told.exit_code == 0
    lines = (tmp_path / "out" / "joins.txt").read_text().splitlines()
    assert lines == [f"on:{node}" for node in problem.nodes.ids[plan.instances.node]]
