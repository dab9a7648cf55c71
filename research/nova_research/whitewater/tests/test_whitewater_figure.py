"""nova reproduce whitewater: its tables on few queries, going on where it stopped, bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli
from nova_core.errors import ProblemError
from nova_research.whitewater.figure import WhitewaterParameters
from nova_research.whitewater.random_queries import LARGE, SMALL, QueryShape, random_query

PARAMETERS = """{figure: whitewater, small: 3, large: 2,
 small_shape: {sources: [1, 2], operators: 6, nodes: 4, options: 2},
 large_shape: {sources: [2, 3], operators: 9, nodes: 4, options: 2},
 small_searches: [exhaustive, greedy, random],
 large_searches: [reactive-tabu, reactive-tabu 2-phase, tabu, annealing]}
"""


def nova(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")


@pytest.fixture
def parameters(tmp_path: Path) -> Path:
    file = tmp_path / "whitewater.yaml"
    file.write_text(PARAMETERS)
    return file


def test_tables_and_figure_are_written_and_runs_kept(parameters: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    asked = ("reproduce", "whitewater", "--parameters", parameters, "-o", output)
    done = nova(*asked)
    assert done.exit_code == 0, done.output
    assert "times as fast as tabu (published: 23)" in " ".join(done.stdout.split())
    parts = ("small", "large", "ratios")
    names = [*(f"whitewater-{p}.csv" for p in parts), "whitewater.json", "whitewater.png"]
    assert {file.name for file in output.iterdir()} == {*names, "runs.jsonl"}
    assert (output / "whitewater.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / "whitewater.json").read_text())
    with (output / "whitewater-small.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["search"] for row in rows] == ["exhaustive", "greedy", "random"]
    assert rows[0]["optimal"] == "100.0"
    for row in numbers["result"]["small"]:
        parts = [row[name] for name in ("optimal", "up_to_1_5", "up_to_2", "up_to_4", "worse")]
        assert sum(parts) == pytest.approx(100)
    reference = numbers["result"]["large"][0]
    assert (reference["same"], reference["ratio"]) == (100, 1)
    # Again, with one run missing and one cut short: these are done, the others kept.
    kept = output / "runs.jsonl"
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 3 * 3 + 2 * 4
    kept.write_bytes(b"".join(lines[:-2]) + lines[-2][:20])
    again = nova(*asked, "--json")
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    assert told["written"] == names
    assert told["result"]["small"] == numbers["result"]["small"]
    now = kept.read_bytes().splitlines()
    assert now[: len(lines) - 2] == [line.rstrip(b"\n") for line in lines[:-2]]
    assert sum(line.endswith(b"}") for line in now) == len(lines)
    quality = ("search", "better", "same", "worse", "evaluations")
    for one, other in zip(told["result"]["large"], numbers["result"]["large"], strict=True):
        assert [one[name] for name in quality] == [other[name] for name in quality]


def test_bad_input_is_refused(parameters: Path, tmp_path: Path) -> None:
    def refused(text: str) -> str:
        parameters.write_text(text)
        output = tmp_path / "out"
        result = nova("reproduce", "whitewater", "--parameters", parameters, "-o", output)
        assert result.exit_code == 2, result.output
        assert result.stderr.count("\n") == 1
        assert not (output / "whitewater.json").exists()
        return result.stderr

    assert "unknown search 'climbing'" in refused(PARAMETERS.replace("greedy", "climbing"))
    assert "exhaustive is missing" in refused(PARAMETERS.replace("[exhaustive, ", "["))
    assert "options is 9" in refused(PARAMETERS.replace("options: 2", "options: 9"))
    assert "small: 0 is not" in refused(PARAMETERS.replace("small: 3", "small: 0"))
    kept = tmp_path / "out" / "runs.jsonl"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("{}\n")
    assert "holds runs of other parameters" in refused(PARAMETERS)


def test_the_projects_own_parameters_are_the_texts() -> None:
    own = WhitewaterParameters()
    assert (own.small_shape, own.small) == (SMALL, 100)
    assert (own.large_shape, own.large) == (LARGE, 1000)


def test_queries_are_of_the_size_asked_for() -> None:
    sizes, sources = [], []
    for seed in range(60):
        query, network = random_query(LARGE, seed)
        again, _ = random_query(LARGE, seed)
        assert query.operators == again.operators
        kinds = [one.kind for one in query.operators]
        sizes.append(len(query))
        sources.append(kinds.count("source"))
        assert kinds.count("join") == sources[-1] - 1
        assert len(network) == 11
        assert {len(one.hosts) for one in query.operators if one.kind != "source"} == {5}
    assert 30 < max(sizes) <= 40
    assert (min(sources), max(sources)) == (3, 13)
    assert np.mean([len(random_query(SMALL, seed)[0]) for seed in range(30)]) > 3
    with pytest.raises(ProblemError, match="options is 5; expected 1 to the 4 nodes"):
        QueryShape((1, 2), 7, 4, 5)
