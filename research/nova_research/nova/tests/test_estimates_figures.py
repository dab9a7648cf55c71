"""nova reproduce: the figures' orderings on the measurements, and the machinery without them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli
from nova_research.figures.base import Run
from nova_research.figures.inputs import SpaceParameters
from nova_research.nova.fig8 import Fig8, Fig8Parameters
from nova_research.nova.fig9 import Fig9, Fig9Parameters


def nova(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")


@pytest.mark.data
def test_figure_8_has_the_papers_ordering(shared_data: Path) -> None:
    asked = Fig8Parameters(
        workloads=2,
        spaces=(SpaceParameters(height=False), SpaceParameters(height=True)),
        objectives=("latency",),
        strategies=("sink", "source", "top-c", "tree"),
    )
    result = Fig8().run(asked, Run(shared_data))
    assert result.nodes == 419
    rows = {row.strategy: row for row in result.strategies}
    for name in ("nova", "nova(p)"):
        row = rows[name]
        assert row.measured_mean == pytest.approx(row.estimated_mean, rel=0.1)
        assert row.measured_p90 == pytest.approx(row.estimated_p90, rel=0.15)
        assert row.measured_mean < min(rows[n].measured_mean for n in ("source", "top-c", "tree"))
    assert rows["nova"].measured_mean < rows["nova(p)"].measured_mean
    tree = rows["tree"]
    assert tree.measured_mean > 1.5 * tree.estimated_mean
    assert tree.measured_mean > 2 * rows["nova(p)"].measured_mean
    flat, tall = result.spaces
    assert tall.mae < 0.9 * flat.mae
    assert tall.measured_p90 < 0.98 * flat.measured_p90
    assert tall.measured_mean < 0.98 * flat.measured_mean


@pytest.mark.data
def test_figure_9_stays_within_5_percent(shared_data: Path) -> None:
    result = Fig9().run(Fig9Parameters(workloads=2), Run(shared_data))
    assert (result.nodes, len(result.hours)) == (631, 6)
    assert result.p90_range < 0.05
    assert result.worst_workload < 0.05
    assert result.hours[0].changed == 0
    assert all(hour.changed > 10_000 for hour in result.hours[1:])


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Path]:
    """Parameter files of small experiments."""
    (tmp_path / "fig8.yaml").write_text(
        "{figure: fig8, latencies: a.csv, synthetic_nodes: 40, neighbours: 12, workloads: 2,"
        " space: {dimensions: 2, height: true}, heterogeneity: 1.0, objectives: [latency],"
        " strategies: [source, tree],"
        " spaces: [{height: false}, {heights: axis}]}"
    )
    (tmp_path / "fig9.yaml").write_text(
        "{figure: fig9, latencies: [a.csv], synthetic_nodes: 40, synthetic_hours: 3,"
        " neighbours: 12, workloads: 2, space: {}, heterogeneity: 1.0, threshold: 10}"
    )
    return {name: tmp_path / f"{name}.yaml" for name in ("fig8", "fig9")}


@pytest.mark.parametrize("figure", ["fig8", "fig9"])
def test_a_figure_is_written_and_told(small: dict[str, Path], tmp_path: Path, figure: str) -> None:
    output = tmp_path / "out"
    common = ("reproduce", figure, "--synthetic", "--parameters", small[figure], "-o", output)
    result = nova(*common)
    assert result.exit_code == 0, result.output
    assert "synthetic internet of 40 hosts" in " ".join(result.stdout.split())
    files = {f"{figure}.csv", f"{figure}.json", f"{figure}.png"}
    files |= {"fig8-spaces.csv"} if figure == "fig8" else set()
    assert {file.name for file in output.iterdir()} == files
    assert (output / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / f"{figure}.json").read_text())
    rows = numbers["result"]["strategies" if figure == "fig8" else "hours"]
    with (output / f"{figure}.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows)
    key = "measured_mean" if figure == "fig8" else "mean"
    assert [float(row[key]) for row in table] == [row[key] for row in rows]
    # The same again, for programs; one seed gives one result.
    again = nova(*common, "--json")
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    assert set(told.pop("written")) == files
    assert told == numbers


def test_every_installed_strategy_is_shown() -> None:
    from nova_core.strategies import names

    own = Fig8Parameters()
    assert set(own.shown()) == set(names()) - {"nova", *own.leave_out}
    assert Fig8Parameters(strategies=("nova", "tree", "ilp")).shown() == ["tree", "ilp"]


def test_bad_input_is_refused(small: dict[str, Path], tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        result = nova("reproduce", *arguments, "-o", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert result.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()
        return result.stderr

    said = refused("fig8", "--data", tmp_path)
    assert "ripe-atlas-418.csv.gz: no such file; --data names" in said
    assert "--synthetic needs none" in said
    assert "rack: '' is not accepted" in refused("costream", "--rack", "")
    assert "exclude each other" in refused("fig9", "--data", tmp_path, "--synthetic")
    (tmp_path / "a.csv").write_text("x,y\n0,1\n1,0\n")
    (tmp_path / "b.csv").write_text("x,z\n0,1\n1,0\n")
    text = small["fig9"].read_text().replace("[a.csv]", "[a.csv, b.csv]")
    small["fig9"].write_text(text)
    said = refused("fig9", "--data", tmp_path, "--parameters", small["fig9"])
    assert "b.csv: other nodes than a.csv" in said
    small["fig9"].write_text(text.replace("workloads: 2", "workload: 2"))
    said = refused("fig9", "--data", tmp_path, "--parameters", small["fig9"])
    assert "unknown field 'workload'; did you mean 'workloads'?" in said
