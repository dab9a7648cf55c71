"""nova topology: from latencies to a cost space that nova plan takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import Result

from nova_core.io import read_problem

Nova = Callable[..., Result]
NODES = 30
NAMES = [f"n{i}" for i in range(NODES)]


@pytest.fixture
def matrix() -> np.ndarray:
    """Distances of points, with heights and a little noise."""
    rng = np.random.default_rng(0)
    where, height = rng.uniform(0, 100, (NODES, 2)), rng.exponential(5, NODES)
    apart = np.linalg.norm(where[:, None] - where[None], axis=2)
    noise = np.triu(1 + 0.01 * rng.normal(size=apart.shape), 1)
    return (apart + np.add.outer(height, height)) * (noise + noise.T)


@pytest.fixture
def latencies(tmp_path: Path, matrix: np.ndarray) -> Path:
    path = tmp_path / "latencies.csv"
    np.savetxt(path, matrix, delimiter=",", header=",".join(NAMES), comments="", fmt="%.3f")
    return path


@pytest.fixture
def pairs(tmp_path: Path, matrix: np.ndarray) -> Path:
    """Rows as `nova testbed measure` writes them."""
    path = tmp_path / "pairs.csv"
    rows = [f"{NAMES[a]},{NAMES[b]},{matrix[a, b]:.3f}" for a in range(NODES) for b in range(a)]
    path.write_text("\n".join(["source,target,latency", *rows]) + "\n")
    return path


@pytest.fixture
def measured(tmp_path: Path, latencies: Path) -> Path:
    """A problem with latencies but no positions."""
    path = tmp_path / "measured.yaml"
    document: dict[str, Any] = {
        "nova": 1,
        "name": "measured",
        "nodes": [{"id": name, "capacity": 100} for name in NAMES],
        "sources": [
            {"id": "l", "node": "n1", "stream": "L", "rate": 9},
            {"id": "r", "node": "n2", "stream": "R", "rate": 9},
        ],
        "query": {"operators": [{"id": "j", "left": "L", "right": "R", "sink": "n0"}]},
        "latency": {"file": latencies.name},
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("source", ["latencies", "pairs"])
def test_latencies_become_a_table_that_is_compared_with_them(
    ask: Callable[..., Any],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    source: str,
    suffix: str,
) -> None:
    given, output = request.getfixturevalue(source), tmp_path / f"space.{suffix}"
    answer = ask("topology", "embed", given, "-o", output)
    assert (answer["nodes"], answer["pairs"], answer["pairs_used"]) == (NODES, 435, 435)
    assert answer["mae"] < 1.0
    assert answer["median_relative"] < 0.02
    assert answer["written"] == str(output)
    compared = ask("topology", "error", output, given, "--rows", "3")
    assert compared["mae"] == pytest.approx(answer["mae"], rel=1e-6)
    assert len(compared["worst_nodes"]) == 3
    assert set(compared["worst_nodes"][0]) == {"node", "mae", "height"}


def test_one_seed_gives_one_space(nova: Nova, latencies: Path, tmp_path: Path) -> None:
    content = []
    for name, options in (("a", []), ("b", []), ("c", ["--neighbours", "8", "--seed", "1"])):
        path = tmp_path / f"{name}.csv"
        result = nova("topology", "embed", latencies, "-o", path, *options)
        assert result.exit_code == 0, result.output
        content.append(path.read_text())
    assert content[0] == content[1] != content[2]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (["--dimensions", "3"], "id,x,y,z,height"),
        (["--no-height", "--dimensions", "4"], "id," + ",".join(f"position_{i}" for i in range(4))),
        (["--method", "vivaldi", "--neighbours", "10", "--near", "0.5"], "id,x,y,height"),
        (["--method", "smacof"], "id,x,y"),
        (["--method", "classical", "--dimensions", "1"], "id,x"),
    ],
)
def test_options(
    nova: Nova, latencies: Path, tmp_path: Path, options: list[str], columns: str
) -> None:
    output = tmp_path / "space.csv"
    result = nova("topology", "embed", latencies, "-o", output, *options)
    assert result.exit_code == 0, result.output
    assert output.read_text().splitlines()[0].replace('"', "") == columns
    assert f"cost space written to {output}" in result.stderr


@pytest.mark.parametrize("output", ["embedded.yaml", "embedded.json", "tables"])
def test_a_problem_gets_positions_and_is_planned(
    nova: Nova, ask: Callable[..., Any], measured: Path, tmp_path: Path, output: str
) -> None:
    path = tmp_path / output
    assert nova("topology", "embed", measured, "-o", path).exit_code == 0
    problem = read_problem(path)
    assert problem.nodes.height is not None
    assert problem.latency is not None
    assert ask("topology", "error", path)["mae"] < 1.0
    figures = ask("plan", path, "--no-baselines")["evaluation"]
    assert figures["measured"]["mean"] == pytest.approx(figures["estimated"]["mean"], rel=0.1)


def test_a_problem_without_positions_is_planned_all_the_same(
    nova: Nova, measured: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    result = nova("plan", measured, "-o", plan, "--no-baselines")
    assert result.exit_code == 0, result.output
    assert "warning" in result.stderr
    assert "embedded into 2 dimensions and heights from 435 measured pairs" in result.stderr
    # Reading it again gives the same positions, so the plan still answers it.
    assert nova("check", plan, "--problem", measured).exit_code == 0
    embedded = tmp_path / "embedded.yaml"
    assert nova("topology", "embed", measured, "-o", embedded).exit_code == 0
    assert nova("check", plan, "--problem", embedded).exit_code == 0


def test_metrics_are_added(
    ask: Callable[..., Any], measured: Path, latencies: Path, pairs: Path, tmp_path: Path
) -> None:
    load = tmp_path / "load.csv"
    load.write_text("id,load\n" + "".join(f"{name},{i}\n" for i, name in enumerate(NAMES)))
    path = tmp_path / "metrics.yaml"
    options = ("--metric", f"load=2:{load}", "--metric", f"energy=0.1:{latencies}")
    answer = ask("topology", "embed", measured, "-o", path, *options)
    assert answer["metrics"] == ["load", "energy"]
    problem = read_problem(path)
    assert problem.metrics == ("energy_0", "energy_1")
    assert problem.nodes.position.shape == (NODES, 4)
    assert problem.nodes.penalty is not None
    assert problem.nodes.penalty.tolist() == [2.0 * i for i in range(NODES)]
    table = tmp_path / "space.csv"
    ask("topology", "embed", pairs, "-o", table, "--metric", f"load=2:{load}")
    assert table.read_text().splitlines()[0].replace('"', "") == "id,x,y,height,penalty"


def test_measure(ask: Callable[..., Any], nova: Nova, latencies: Path) -> None:
    answer = ask("topology", "measure", latencies)
    assert (answer["nodes"], answer["pairs"], answer["both_ways"]) == (NODES, 435, 435)
    assert answer["coverage"] == 1.0
    assert answer["groups"] == 1
    # Distances plus heights are a metric; noise of 1 % breaks it where three nodes are in line.
    assert answer["triangles"]["share"] < 0.05
    assert answer["percentiles"]["p10"] < answer["percentiles"]["p50"]
    shown = nova("topology", "measure", latencies)
    assert "of them violate the triangle inequality" in shown.stdout


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot(nova: Nova, latencies: Path, measured: Path, tmp_path: Path, suffix: str) -> None:
    table, picture = tmp_path / "space.csv", tmp_path / f"space.{suffix}"
    assert nova("topology", "embed", latencies, "-o", table).exit_code == 0
    for arguments in ((table, latencies), (table,), (measured,)):
        picture.unlink(missing_ok=True)
        result = nova("topology", "plot", *arguments, "-o", picture)
        assert result.exit_code == 0, result.output
        content = picture.read_bytes()
        assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
        assert f"plot written to {picture}" in result.stderr


def test_plot_of_a_name_that_is_no_text_and_no_formula(
    nova: Nova, latencies: Path, tmp_path: Path
) -> None:
    table, picture = tmp_path / "\udcff\udcfe $x_$.csv", tmp_path / "space.svg"
    assert nova("topology", "embed", latencies, "-o", table).exit_code == 0
    result = nova("topology", "plot", table, "-o", picture)
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"<?xml")


def test_bad_input_is_refused(
    refused: Callable[..., str],
    problem: Path,
    measured: Path,
    latencies: Path,
    pairs: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.csv"
    embed = ("topology", "embed")
    assert "no such file" in refused(*embed, tmp_path / "absent.csv", "-o", out)
    assert "is read as well" in refused(*embed, latencies, "-o", latencies)
    assert "there is no directory" in refused(*embed, latencies, "-o", tmp_path / "a" / "out.csv")
    assert "latencies alone make a table" in refused(*embed, latencies, "-o", tmp_path / "o.yaml")
    assert "only for a matrix" in refused(*embed, pairs, "-o", out, "--neighbours", "3")
    assert "only for a matrix" in refused(*embed, pairs, "-o", out, "--method", "smacof")
    assert "smacof knows no heights" in refused(
        *embed, latencies, "-o", out, "--method", "smacof", "--height"
    )
    assert "has no place for it" in refused(*embed, latencies, "-o", out, "--metric", "money=1")
    assert "a problem is a .yaml" in refused(*embed, measured, "-o", tmp_path / "out.txt")
    assert "positions are a .csv" in refused(*embed, latencies, "-o", tmp_path / "out.csv.gz")
    assert "no measured latencies" in refused(*embed, problem, "-o", out)
    assert "expected NAME=WEIGHT" in refused(*embed, latencies, "-o", out, "--metric", "load")
    assert "has no place for it" in refused(
        *embed, latencies, "-o", out, "--metric", f"energy=1:{latencies}"
    )
    assert "has no place for it" in refused(
        *embed, measured, "-o", out, "--metric", f"energy=1:{latencies}"
    )
    assert "name a file of them as well" in refused("topology", "error", problem)
    bad = tmp_path / "bad.csv"
    bad.write_text("id,x,y,height\na,1,2,-3\n")
    assert "row 1, node 'a'" in refused("topology", "error", bad, latencies)
    bad.write_text("id,x,y\na,1,2\nb,1e308,2\n")
    for command in (["error"], ["plot", "-o", out.with_suffix(".svg")]):
        assert "row 2, node 'b'" in refused("topology", *command, bad, latencies)
    bad.write_text("id,height\na,3\n")
    assert "no coordinates" in refused("topology", "error", bad, latencies)
    bad.write_text("id,x,y\na,1,2\nb,1,2\n")
    assert "no pair of nodes of the cost space was measured" in refused(
        "topology", "error", bad, latencies
    )
    bad.write_text("source,target,latency\na,b,1\nc,d,1\n")
    assert "2 unconnected groups: 2 nodes (a, b); 2 nodes (c, d)" in refused(*embed, bad, "-o", out)
    assert "a plot is a .png or .svg" in refused("topology", "plot", problem, "-o", out)


def test_nodes_without_coordinates_are_left_out_with_a_warning(
    nova: Nova, latencies: Path, tmp_path: Path
) -> None:
    some = tmp_path / "some.csv"
    some.write_text("id,x,y\nn0,0,0\nn1,10,0\n")
    result = nova("topology", "error", some, latencies)
    assert result.exit_code == 0, result.output
    assert "28 of 30 measured nodes are not in the cost space, the first is 'n2'" in result.stderr
    assert "Errors of 1 measured pairs" in result.stdout
