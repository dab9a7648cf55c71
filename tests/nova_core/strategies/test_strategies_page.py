"""docs/strategies.md: every strategy has its row, and the one it adds works and is tested."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import test_every_strategy
from problem_families import FAMILIES

from nova_core.errors import InfeasibleError
from nova_core.model.verify import CONSTRAINTS
from nova_core.strategies import load, names, place

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "strategies.md").read_text()
OURS = sorted(
    entry.name
    for entry in entry_points(group="nova.strategies")
    if entry.dist is not None and entry.dist.name in ("nova-placement", "nova-research")
)


def rows() -> dict[str, list[str]]:
    """Cells of the first table by strategy."""
    table = PAGE.split("| may break |\n")[1].split("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {name.strip("`"): rest for name, *rest in cells}


def block(fence: str) -> str:
    found = re.search(rf"^```{re.escape(fence)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


def test_every_strategy_has_one_row() -> None:
    assert sorted(rows()) == OURS
    for what, source, _ in rows().values():
        assert what
        assert source


@pytest.mark.parametrize("strategy", OURS)
def test_the_row_names_what_it_breaks(strategy: str) -> None:
    told = re.findall(r"`([a-z-]+)`", rows()[strategy][2])
    assert set(told) <= set(CONSTRAINTS)
    for family in ("unlimited", "roomy", "few hosts"):
        try:
            plan = place(FAMILIES[family](1), strategy)
        except InfeasibleError:
            continue
        assert sorted(plan.breaks) == sorted(told)


@pytest.mark.parametrize("strategy", ["cl-sf", "cl-tree-sf", "nes-bottom-up", "ifcop"])
def test_parameters_shown_are_those_there_are(strategy: str) -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", PAGE, re.MULTILINE))
    for field in fields(load(strategy).Parameters):
        assert float(shown[field.name]) == field.default


def test_the_example_is_a_strategy_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes what every strategy has to pass that is registered."""
    (tmp_path / "near_sink.py").write_text(block("python near_sink.py"))
    listed = tomllib.loads(block("text"))["project"]["entry-points"]["nova.strategies"]
    installed = tmp_path / "near_sink-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: near-sink\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in listed.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[nova.strategies]", *lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    assert "near-sink" in names()
    for family in FAMILIES:
        test_every_strategy.test_it_verifies_or_says_what_it_breaks("near-sink", family)
    for shape in test_every_strategy.QUERIES:
        test_every_strategy.test_it_places_whole_queries("near-sink", shape)
    test_every_strategy.test_it_can_do_what_is_easy("near-sink")
    test_every_strategy.test_parameters_are_frozen_documented_and_have_defaults("near-sink")
