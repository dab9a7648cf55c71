"""The report of `nova demo`'s three runs: what a stranger sees first, and whether it is right."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from report_runs import BEHAVIOURS, START_US, Behaviour, change, write_run

from nova_harness.report import Report, make_report, write_report
from nova_harness.report.facts import descriptions, title
from nova_harness.report.summary import notes, tiles
from nova_harness.results.run_folder import CellFolder, write_json
from nova_harness.results.schema import CellEvent

FOUR = {name: BEHAVIOURS[name] for name in ("nova", "sink", "source", "top-c")}
FAILURE = {
    "controlled": Behaviour(40, strategy="top-c", scheduled_by="controller"),
    "top-c": Behaviour(40),
}
# The killed host's join delivers nothing for so long, s.
SILENT_S = {"controlled": 2.0, "top-c": 6.0}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs on hosts of two inventories; in the last one, a host is killed."""
    place = tmp_path_factory.mktemp("demo")
    runs = [
        write_run(place / name, some, windows=(100,), stress=(False,), duration_s=9, rate=rate)
        for name, some, rate in (
            ("demo", FOUR, 20),
            ("demo-load", FOUR, 30),
            ("demo-failure", FAILURE, 10),
        )
    ]
    hosts = json.loads((runs[2] / "hosts.json").read_text())
    write_json(runs[2] / "hosts.json", hosts[:5])
    change(runs[2] / "experiment.yaml", disturbances=[{"at": 2, "what": "kill", "host": "near"}])
    for name, silent_s in SILENT_S.items():
        kill(runs[2] / "cells" / f"{name}-w100ms-r10-calm-1", 2.0, silent_s)
    return runs


def kill(folder: Path, at_s: float, silent_s: float) -> None:
    """Hold all results back for a time, as if a host of all joins had been killed."""
    cell = CellFolder(folder)
    begin = START_US + round(1e6 * cell.facts.warm_up_s)
    measured = begin, begin + round(1e6 * cell.facts.duration_s)
    events = [CellEvent(begin / 1e6 + at_s, "disturbed", "fog-1 is killed")]
    cell.write("cell", replace(cell.facts, measured_us=measured, events=events))
    table = pq.read_table(cell.samples)
    arrive = table["arrive_us"].to_numpy().copy()
    held = (arrive >= begin + 1e6 * at_s) & (arrive < begin + 1e6 * (at_s + silent_s))
    arrive[held] = begin + round(1e6 * (at_s + silent_s))
    index = table.column_names.index("arrive_us")
    pq.write_table(table.set_column(index, "arrive_us", pa.array(arrive)), cell.samples)


@pytest.fixture(scope="module")
def report(demo: list[Path]) -> Report:
    return make_report(demo)


def bad_notes(runs: Sequence[Path]) -> str:
    made = make_report(runs)
    found = notes(made.runs, made.groups, made.ratios, made.subject)
    return " ".join(note.text for note in found if note.kind == "bad")


def test_the_title_says_what_was_run(report: Report, demo: list[Path]) -> None:
    assert title(report.runs) == (
        "A stream join placed in 4 ways on 14 hosts, and what happens when a host fails"
    )
    assert title(make_report(demo[:1]).runs) == "A stream join placed in 4 ways on 14 hosts"


def test_the_failure_is_the_first_figure(report: Report) -> None:
    first, *others = tiles(report.ratios, report.subject, report.courses)
    assert (first["figure"], first["unit"]) == ("2.0 s", "against 6.0 s")
    assert "(controlled)" in first["note"] and "fog-1 is killed" in first["note"]
    assert [one["name"] for one in others] == [
        "Mean latency", "99.99th percentile of latency", "Throughput",
    ]  # fmt: skip


def test_labels_of_one_strategy_are_told_apart(report: Report) -> None:
    texts = dict(descriptions(report.strategies, report.runs))
    assert "controller" in texts["controlled"] and "top-c" in texts["controlled"]
    assert len(set(texts.values())) == len(texts)


def test_runs_of_different_settings_need_not_share_hosts(demo: list[Path]) -> None:
    assert "same machine or hosts" not in bad_notes(demo)


def test_what_is_compared_must_share_hosts_and_machine(demo: list[Path], tmp_path: Path) -> None:
    def again(name: str) -> Path:
        return write_run(tmp_path / name, FOUR, windows=(100,), stress=(False,), duration_s=9)

    assert "same machine" not in bad_notes([demo[0], again("same")])
    memory = again("memory")
    hosts = json.loads((memory / "hosts.json").read_text())
    write_json(memory / "hosts.json", [{**host, "memory": 2**28} for host in hosts])
    assert "(100 ms windows, calm, 20 tuples/s, Flink: " in bad_notes([demo[0], memory])
    machine = again("machine")
    change(machine / "environment.json", cores=64)
    assert "not run on the same machine or hosts" in bad_notes([demo[0], machine])


def test_every_ratio_says_whether_both_kept_up(report: Report) -> None:
    groups = {(group.strategy, group.setting): group for group in report.groups}
    assert report.ratios
    for ratio in report.ratios:
        both = [groups[name, ratio.setting] for name in ("nova", ratio.best_other)]
        shares = tuple(group.results_per_s / group.expected_per_s for group in both)
        assert ratio.kept_up == pytest.approx(shares)
    for tile in tiles(report.ratios, report.subject, report.courses)[1:]:
        both_said = r"Kept up with the sensors: nova [\d–]+ %, the other [\d–]+ %"
        assert re.search(both_said, tile["note"])


def test_the_page_has_contents_and_tables_that_sort(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    parts = re.findall(r'<h2 id="([^"]+)">([^<]+)</h2>', text)
    assert re.findall(r'<li><a href="#([^"]+)">([^<]+)</a></li>', text) == parts
    names = {name for _, name in parts}
    assert {"What was run", "Side by side", "What hosts went through"} <= names
    assert text.index("Without results after a failure") < text.index("Mean latency")
    assert text.count('<table class="sorts">') >= 4
