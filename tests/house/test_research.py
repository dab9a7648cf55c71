"""The distribution nova-research: of the same version, and named where it is not installed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nova_core import extensions, research
from nova_core.cli import cli
from nova_core.errors import NovaError, ProblemError
from nova_core.extensions import Extensions
from nova_core.io.examples import load_example
from nova_core.io.files import write_problem
from nova_core.strategies import create

ROOT = Path(__file__).parents[2]


def project(folder: str) -> dict[str, Any]:
    told: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return told


PRODUCT, RESEARCH = project("."), project("research")


def test_both_have_one_version_and_want_it_of_each_other() -> None:
    version = PRODUCT["version"]
    assert RESEARCH["version"] == version
    assert f"nova-placement=={version}" in RESEARCH["dependencies"]
    extras = PRODUCT["optional-dependencies"]
    assert extras["research"] == [f"nova-research=={version}"]
    wanted = [line for lines in extras.values() for line in lines if "nova-research" in line]
    assert wanted and all(line.endswith(f"=={version}") for line in wanted)
    # Its files can be no links to others, which an archive would lose.
    assert (ROOT / "research" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_all_that_may_be_missing_is_known_by_name() -> None:
    added = RESEARCH["entry-points"]
    for group, names in research.NAMES.items():
        assert sorted(names) == sorted(added[group])
    # What else it adds is found by these commands only.
    assert set(added) - set(research.NAMES) == {"nova.figures"}


@pytest.fixture
def without_research(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def product(**asked: str) -> EntryPoints:
        group = asked.get("group", "")
        if not group.startswith("nova."):
            return entry_points(**asked)
        named = PRODUCT["entry-points"].get(group, {})
        return EntryPoints(EntryPoint(name, place, group) for name, place in named.items())

    monkeypatch.setattr("importlib.metadata.entry_points", product)
    monkeypatch.setattr(extensions, "entry_points", product)
    extensions._installed.cache_clear()
    yield
    extensions._installed.cache_clear()


@pytest.mark.usefixtures("without_research")
@pytest.mark.parametrize("name", research.NAMES["nova.strategies"])
def test_a_missing_strategy_says_what_to_install(name: str) -> None:
    text = f"strategy {name}: is part of nova-research; pip install 'nova-placement[research]'"
    with pytest.raises(ProblemError) as caught:
        create(name)
    assert str(caught.value) == text


@pytest.mark.usefixtures("without_research")
def test_a_strategy_that_nobody_has_is_unknown() -> None:
    with pytest.raises(NovaError, match=r"unknown 'surce'; did you mean 'source'\?; installed are"):
        create("surce")
    with pytest.raises(NovaError, match="unknown 'sbon-relax'; did you mean 'sbon-relaxation'"):
        create("sbon-relax")
    assert "nes-bottom-up" not in Extensions("nova.strategies", "strategy").names()


@pytest.mark.usefixtures("without_research")
@pytest.mark.parametrize("name", research.NAMES["nova.commands"])
def test_a_missing_command_says_what_to_install(name: str) -> None:
    done = CliRunner().invoke(cli, [*name.split("."), "--help", "more"])
    assert done.exit_code == 2
    shown = name.replace(".", " ")
    text = f"command {shown}: is part of nova-research; pip install 'nova-placement[research]'"
    assert done.stderr == f"nova: error: {text}\n"
    assert done.stdout == ""


@pytest.mark.usefixtures("without_research")
def test_a_plan_of_queries_is_compared_with_what_there_is(tmp_path: Path) -> None:
    operators = [{"id": "j", "kind": "join", "inputs": ["a", "b"], "selectivity": 0.5}]
    document = {
        "nova": 1,
        "nodes": [{"id": "n", "position": [0, 0], "capacity": 100}],
        "sources": [{"id": x, "node": "n", "stream": x, "rate": 9, "key": "k"} for x in "ab"],
        "queries": [{"id": "q", "sink": "n", "operators": operators}],
    }
    (tmp_path / "queries.json").write_text(json.dumps(document))
    done = CliRunner().invoke(cli, ["plan", str(tmp_path / "queries.json"), "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["baselines"]) == {"sink", "source"}


@pytest.mark.usefixtures("without_research")
def test_plans_are_compared_without_predictions(tmp_path: Path) -> None:
    write_problem(load_example("running-example"), tmp_path / "problem.yaml")
    words = ["compare", str(tmp_path / "problem.yaml"), "nova", "sink", "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["strategies"]
    assert set(found) == {"nova", "sink"}
    assert not any("predicted" in one for one in found.values())
    (tmp_path / "model.npz").touch()
    done = CliRunner().invoke(cli, [*words, "--model", str(tmp_path / "model.npz")])
    assert done.exit_code == 2
    text = "predictor costream: is part of nova-research; pip install 'nova-placement[research]'"
    assert done.stderr == f"nova: error: {text}\n"
