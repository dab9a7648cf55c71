"""The command ``nova report`` and the files it writes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from report_runs import Behaviour, change, write_run

from nova_core.errors import NovaError
from nova_harness.commands.report import report
from nova_harness.results.run_folder import write_json
from nova_harness.results.schema import Verdict

TWO = {"nova": Behaviour(40), "sink": Behaviour(60, climb_ms=400)}


def invoke(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(report, [str(a) for a in arguments], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    run = write_run(place / "run", TWO, windows=(10,), duration_s=4)
    unfinished = run / "cells" / "sink-w10ms-r20-stress-1"
    (unfinished / "DONE").unlink()
    write_json(unfinished / "verdict.json", Verdict("failed", "<b>disk</b> full"))
    for plan in run.glob("cells/sink-*/plan.json"):
        plan.write_text("{}")
    change(run / "experiment.yaml", name="Tests & <reports>")
    result = invoke(run, "-o", place / "out.html", "--json")
    assert result.exit_code == 0
    (place / "answer.json").write_text(result.stdout)
    return place


def test_the_page_needs_nothing_else(place: Path) -> None:
    text = (place / "out.html").read_text()
    assert not re.findall(r"(?:src|href)=\"(?!#)[^\"]*\"", text)
    assert "url(http" not in text and "@import" not in text
    # The only script that the page allows is its own.
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and text.count("<script") == 1
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 100
    referred = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    assert referred and referred <= set(ids)


def test_names_and_verdicts_are_text_not_markup(place: Path) -> None:
    text = (place / "out.html").read_text()
    assert '<p class="facts">Tests &amp; &lt;reports&gt; · ' in text
    assert "failed: &lt;b&gt;disk&lt;/b&gt; full" in text


def test_figures_are_in_the_colours_of_the_page(place: Path) -> None:
    page = (place / "out.html").read_text()
    figures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    # Distributions, trends, percentiles, load, and the map of a strategy.
    assert len(figures) == 5
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", "".join(figures))
    known = set(re.findall(r"(--[a-z]+):", page))
    assert set(re.findall(r"var\((--[a-z]+)\)", page)) <= known


def test_figures_and_numbers_lie_beside_it(place: Path) -> None:
    answer = json.loads((place / "answer.json").read_text())
    names = {Path(path).name for path in answer["written"]}
    for figure in ("latency-cdf", "latency-over-results", "latency-percentiles", "host-load",
                   "placement-nova"):  # fmt: skip
        assert {f"{figure}.png", f"{figure}.svg"} <= names
    assert all(Path(path).stat().st_size > 1000 for path in answer["written"])
    aggregate = json.loads((place / "out-files" / "aggregate.json").read_text())
    rows = pq.read_table(place / "out-files" / "aggregate.parquet").to_pylist()
    assert (
        [(g["strategy"], g["setting"]["stress"]) for g in aggregate["groups"]]
        == [(row["strategy"], row["stress"]) for row in rows]
        == [("nova", False), ("sink", False), ("nova", True)]
    )
    assert rows[0]["latency"]["mean"] == answer["groups"][0]["mean_ms"]


def test_json_is_all_that_is_answered(place: Path) -> None:
    answer = json.loads((place / "answer.json").read_text())
    assert answer["strategy"] == "nova"
    assert {r["metric"] for r in answer["ratios"]} == {"mean", "p9999", "throughput"}
    assert any(note["kind"] == "bad" and "3 of 4" in note["text"] for note in answer["notes"])


def test_a_run_without_finished_cells_has_a_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TWO, windows=(10,), stress=(False,), duration_s=2)
    for mark in run.glob("cells/*/DONE"):
        mark.unlink()
    result = invoke(run, "-o", tmp_path / "out.html")
    assert result.exit_code == 0
    assert "No cell was finished" in (tmp_path / "out.html").read_text()


def test_a_plan_that_cannot_be_read_costs_but_its_map(place: Path) -> None:
    text = (place / "out.html").read_text()
    assert "The placement cannot be drawn" in text
    assert "placement-nova.svg" in (place / "answer.json").read_text()


def test_bad_requests(tmp_path: Path) -> None:
    result = invoke(tmp_path, "-o", tmp_path / "report.pdf")
    assert result.exit_code == 2 and "a report is an .html file" in result.output
    with pytest.raises(NovaError, match="no folder of a run"):
        invoke(tmp_path, "-o", tmp_path / "report.html")
    (tmp_path / "taken.html").mkdir()
    result = invoke(tmp_path, "-o", tmp_path / "taken.html")
    assert result.exit_code == 2 and "is a directory" in result.output
