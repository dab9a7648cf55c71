"""Figures of other packages, and `nova reproduce all`: the example of docs/new-figure.md runs."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nova_core import kernel_cache
from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_research.figures import base
from nova_research.figures import commands as reproduce

PAGE = (Path(__file__).parents[4] / "docs" / "new-figure.md").read_text()


def nova(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")


def block(fence: str) -> str:
    found = re.search(rf"^```{re.escape(fence)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "near_far.py").write_text(block("python near_far.py"))
    listed = tomllib.loads(block("text"))["project"]["entry-points"]["nova.figures"]
    listed["broken"] = "near_far:Nothing"
    package = tmp_path / "near_far-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: near-far\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in listed.items()]
    (package / "entry_points.txt").write_text("\n".join(["[nova.figures]", *lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_the_example_is_a_figure_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    # As on a fresh installation: what places thousands of problems waits for the compiler.
    monkeypatch.delenv(kernel_cache.SETTING, raising=False)
    monkeypatch.setattr(kernel_cache, "_decided", None)
    done = nova("reproduce", "near-far", "--nodes", "30", "-o", output)
    assert done.exit_code == 0, done.output
    assert kernel_cache._decided == "compile"
    assert {file.name for file in output.iterdir()} == {
        f"near-far.{s}" for s in ("csv", "json", "png")
    }
    with (output / "near-far.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["0", "1", "2"]
    assert all(0 < float(row["near"]) < float(row["far"]) for row in rows)
    document = json.loads((output / "near-far.json").read_text())
    assert document["parameters"] == {"nodes": 30, "seeds": 3}
    file = tmp_path / "own.yaml"
    file.write_text("{figure: near-far, nodes: 40, seeds: 1}")
    own = nova(
        "reproduce", "near-far", "--parameters", file, "--nodes", "20", "-o", output, "--json"
    )
    assert json.loads(own.stdout)["parameters"] == {"nodes": 20, "seeds": 1}
    assert "--seeds INTEGER" in nova("reproduce", "near-far", "--help").stdout

    def refused(*arguments: str | Path) -> str:
        done = nova("reproduce", "near-far", *arguments, "-o", output)
        assert done.exit_code == 2
        return done.stderr

    assert "reproduce near-far: nodes: 3 is not" in refused("--nodes", "3")
    file.write_text("{figure: fig8}")
    assert "'figure: near-far' is missing" in refused("--parameters", file)
    file.write_text("{figure: near-far, node: 5}")
    assert "did you mean 'nodes'?" in refused("--parameters", file)


@pytest.mark.usefixtures("installed")
def test_all_goes_on_after_a_broken_figure_and_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "names", lambda: ["broken", "near-far"])
    assert "(cannot be loaded; run it to see why)" in nova("reproduce", "--help").stdout
    assert "cannot load near_far:Nothing" in nova("reproduce", "broken", "-o", "x").stderr
    for words in ("near-far ...", "near-far: finished before"):
        done = nova("reproduce", "all", "--quick", "-o", tmp_path / "out")
        assert done.exit_code == 1
        assert words in done.stderr
        assert "figure broken: cannot load near_far:Nothing" in done.stderr
        assert "without a result: broken" in done.stderr
    document = json.loads((tmp_path / "out" / "near-far" / "near-far.json").read_text())
    assert document["parameters"]["seeds"] == 1


@pytest.mark.parametrize("name", base.names())
def test_a_figure_declares_what_it_reproduces(name: str) -> None:
    figure: base.Figure[Any, Any] = base.load(name)
    assert figure.name == name
    assert figure.source
    assert figure.published
    assert figure.__doc__
    # What --quick takes is accepted, and differs from the default.
    quick = reproduce._parameters_of(figure, True, None, {})
    assert quick != figure.Parameters()
    assert f"Reproduces: {figure.source.split(',')[0]}" in nova("reproduce", name, "--help").stdout


def test_unknown_figures_are_refused() -> None:
    known = "costream, fig6, fig7, fig8, fig9, fig10"
    with pytest.raises(
        NovaError, match=f"unknown 'fig99'; did you mean 'fig9'\\?; installed are {known}"
    ):
        base.load("fig99")
