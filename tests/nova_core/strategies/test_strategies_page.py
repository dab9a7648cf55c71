"""docs/strategies.md: every strategy has its row, and the one it adds works and is tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from problem_families import FAMILIES

from nova_core.errors import InfeasibleError
from nova_core.model.verify import CONSTRAINTS
from nova_core.strategies import load, place

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "strategies.md").read_text()
OURS = sorted(
    entry.name
    for entry in entry_points(group="nova.strategies")
    if entry.dist is not None and entry.dist.name == "nova-placement"
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


def test_the_example_is_a_strategy_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "near_sink.py").write_text(block("python near_sink.py"))
    listed = tomllib.loads(block("text"))["project"]["entry-points"]["nova.strategies"]
    installed = tmp_path / "near_sink-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: near-sink\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in listed.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[nova.strategies]", *lines, ""]))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    tests = ROOT / "tests/nova_core/strategies/test_every_strategy.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, "-k", "near-sink"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed.group(1)) > len(FAMILIES)
