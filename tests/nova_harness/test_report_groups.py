"""What a report compares: reading run folders, pooling cells, ratios."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import Behaviour, change, write_run

from nova_core.errors import NovaError
from nova_harness.report import make_report
from nova_harness.report.comparison import Value, ratios, relative, subject_of, value
from nova_harness.report.facts import run_facts
from nova_harness.report.figures import Trend
from nova_harness.report.groups import (
    LEVELS,
    distributions,
    finished_cells,
    groups_of,
    latency_of,
)
from nova_harness.report.summary import notes
from nova_harness.results.run_folder import CALIBRATIONS, read_run, write_json
from nova_harness.results.schema import (
    CalibratedSetting,
    Calibration,
    Calibrations,
    FoundRate,
    OperatorCounts,
    RunState,
    Verdict,
    Verification,
    VerifiedRow,
)

TWO = {"nova": Behaviour(40), "sink": Behaviour(60, climb_ms=400)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    return write_run(path, TWO, windows=(10,), stress=(False,), repetitions=2, duration_s=5)


def cell(run: Path, strategy: str, repetition: int = 1) -> Path:
    return run / "cells" / f"{strategy}-w10ms-r20-calm-{repetition}"


def fresh(tmp_path: Path, repetitions: int = 1) -> Path:
    return write_run(
        tmp_path / "run", TWO, windows=(10,), stress=(False,), repetitions=repetitions, duration_s=3
    )


def test_repetitions_are_pooled_from_their_samples(run: Path) -> None:
    nova = next(g for g in make_report([run]).groups if g.strategy == "nova")
    latencies = []
    for repetition in (1, 2):
        c = pq.read_table(cell(run, "nova", repetition) / "samples.parquet").to_pandas()
        c = c[c["measured"]]
        later = np.maximum(c["left_due_us"], c["right_due_us"])
        latencies.append((c["arrive_us"] - later) / 1000)
    together = np.concatenate(latencies)
    assert nova.cells == 2 and nova.results == len(together)
    assert nova.latency is not None and nova.from_emit is not None
    assert nova.latency.mean == pytest.approx(together.mean())
    assert nova.latency.at(0.99) == pytest.approx(np.percentile(together, 99))
    assert nova.latency.most == together.max()
    # Emission is 1.2 ms after the due time in these runs.
    assert nova.latency.mean - nova.from_emit.mean == pytest.approx(1.2)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300))
def test_a_distribution_never_falls_and_ends_at_the_longest(latencies: list[int]) -> None:
    found = latency_of(np.array(latencies))
    assert found is not None
    assert len(found.levels) == len(LEVELS)
    assert (np.diff(found.levels) >= 0).all()
    assert (found.levels[0], found.most) == (min(latencies) / 1000, max(latencies) / 1000)


def test_nothing_has_no_distribution() -> None:
    assert latency_of(np.array([], np.int64)) is None


def test_what_did_not_arrive_makes_percentiles_bounds(run: Path) -> None:
    groups = {g.strategy: g for g in make_report([run]).groups}
    assert not groups["nova"].is_bound(0.9999)
    late = groups["sink"]
    assert late.cut_off > 0 and late.lost == 0
    assert late.is_bound(0.9999) and not late.is_bound(0.5)
    assert value(late, "p9999").bound and value(late, "mean").bound


def test_ratios_are_to_the_best_of_the_others(run: Path) -> None:
    report = make_report([run])
    found = {r.metric: r for r in report.ratios}
    groups = {g.strategy: g for g in report.groups}
    nova, sink = groups["nova"].latency, groups["sink"].latency
    assert nova is not None and sink is not None
    assert found["mean"].factor == pytest.approx(sink.mean / nova.mean)
    assert found["mean"].sign == "≥"
    expected = groups["nova"].results_per_s / groups["sink"].results_per_s
    assert found["throughput"].factor == pytest.approx(expected)
    assert {r.outcome for r in report.ratios} == {"better"}
    assert {r.best_other for r in report.ratios} == {"sink"}
    # Turned around, the sink loses.
    assert {r.outcome for r in ratios(report.groups, "sink")} == {"worse"}


def test_ratios_of_nothing_and_of_what_never_arrived() -> None:
    assert relative(Value(math.inf, True), Value(math.inf, True)) == 1
    assert relative(Value(math.inf, True), Value(2.0)) == math.inf
    assert relative(Value(2.0), Value(math.inf, True)) == 0
    assert relative(Value(0.0), Value(0.0)) == 1


def test_catching_up_is_no_merit(tmp_path: Path) -> None:
    """Results beyond what is due had been late: the strategy that was on time is not behind."""
    run = fresh(tmp_path)
    due = make_report([run]).groups[0].expected_per_s
    change(cell(run, "nova") / "summary.json", throughput_results_per_s=due)
    change(cell(run, "sink") / "summary.json", throughput_results_per_s=1.2 * due)
    report = make_report([run])
    found = next(r for r in report.ratios if r.metric == "throughput")
    assert (found.factor, found.outcome) == (1.0, "equal")
    assert found.other.amount == pytest.approx(1.2 * due)


def test_the_report_is_about_nova_unless_asked_otherwise(run: Path) -> None:
    assert subject_of(["sink", "nova-wide", "nova"]) == "nova"
    assert subject_of(["sink", "nova-wide"]) == "nova-wide"
    assert subject_of(["sink"]) is None
    assert make_report([run], subject="sink").strategies == ["sink", "nova"]
    with pytest.raises(NovaError, match="'tree': did not run; nova, sink did"):
        make_report([run], subject="tree")


def test_a_strategy_of_which_nothing_arrived_has_no_latency(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    empty = cell(run, "sink")
    table = pq.read_table(empty / "samples.parquet")
    pq.write_table(table.slice(0, 0), empty / "samples.parquet")
    change(empty / "summary.json", throughput_results_per_s=0.0, results=0, latency_ms={})
    report = make_report([run])
    sink = next(g for g in report.groups if g.strategy == "sink")
    assert sink.latency is None and sink.results == 0
    assert {r.metric: r.factor for r in report.ratios}["mean"] == math.inf


# --- what is said openly ----------------------------------------------------------------------


def told(run: Path) -> dict[str, list[str]]:
    report = make_report([run])
    found: dict[str, list[str]] = {"good": [], "bad": [], "plain": []}
    for note in notes(report.runs, report.groups, report.ratios, report.subject):
        found[note.kind].append(note.text)
    return found


def test_a_clean_run_is_called_clean_and_cut_off_results_are_named(run: Path) -> None:
    said = told(run)
    assert said["bad"] == []
    assert any("none lost, none delivered twice, none wrong" in text for text in said["good"])
    assert any("had not arrived when their run was ended" in text for text in said["plain"])


# Of the CPU limits, what load leaves the engine: without load, and with it.
LEFT = ((False, None), (True, 0.55))


def test_the_rate_that_was_found_for_a_load_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TWO, windows=(10,), repetitions=1, duration_s=3)
    first, last = (Calibration(0.01, 0.05, 0.1, 15.0, rate, 0, 100, {}) for rate in (9000, 16800))
    found = FoundRate(1.2, 17000, "fog-1", 28300, 1.201, [first, last])
    rows = [
        CalibratedSetting(rate=17000, stress=stress, costs=replace(last, left=left))
        for stress, left in LEFT
    ]
    write_json(run / CALIBRATIONS, Calibrations(load=found, rates=rows))
    (text,) = (text for text in told(run)["plain"] if "17,000 readings" in text)
    assert "1.20 times" in text and "(fog-1)" in text and "2 calibrations" in text
    (fact,) = (text for name, text in run_facts(read_run(run)) if name == "rate found")
    assert fact.endswith("calibrated at 9000, 16800")
    assert any("leaves the engine 55 % of a host's CPU limit" in t for t in told(run)["plain"])
    assert "settled" not in text
    write_json(run / CALIBRATIONS, Calibrations(load=replace(found, settled=False), rates=rows))
    assert any("search has not settled" in text for text in told(run)["plain"])


def test_what_is_lost_misplaced_or_unfinished_is_said_first(tmp_path: Path) -> None:
    run = fresh(tmp_path, repetitions=2)
    change(cell(run, "nova") / "check.json", lost=3)
    rows = [VerifiedRow(operator="join 0", node="fog-1", actual="sink")]
    write_json(cell(run, "sink") / "verification.json", Verification(ok=False, rows=rows))
    (cell(run, "nova", 2) / "DONE").unlink()
    failed = Verdict("failed", "host fog-1: unreachable")
    write_json(cell(run, "nova", 2) / "verdict.json", failed)
    write_json(run / "run.json", RunState(state="interrupted", verdict="Ctrl-C"))
    bad = " ".join(told(run)["bad"])
    for part in (
        "3 lost",
        "1 operator did not run where the plan says (sink)",
        "3 of 4 planned cells finished",
        "The run is interrupted. Ctrl-C",
    ):
        assert part in bad


@pytest.mark.parametrize(("used", "said"), [(0.7, True), (0.95, False)])
def test_what_was_held_back_without_need_for_cpu_is_said(
    tmp_path: Path, used: float, said: bool
) -> None:
    run = fresh(tmp_path)
    # Counted for 3.5 s.
    source = OperatorCounts(name="source", node="edge-1", back_pressured_ms=1400)
    write_json(cell(run, "sink") / "operators.json", [source])
    hosts = {"fog-1": {"cpu_cores_mean": used / 10, "limit_cores": 0.1}, "edge-1": {}}
    change(cell(run, "sink") / "summary.json", hosts=hosts)
    found = [text for text in told(run)["bad"] if "links or the engine's buffers" in text]
    assert bool(found) == said
    if said:
        (text,) = found
        assert "sink, 10 ms" in text and "source on edge-1 waited 40 %" in text
        assert "(fog-1) used 70 % of its CPU limit" in text and "nova" not in text


def test_where_nova_is_not_best_is_said(tmp_path: Path) -> None:
    slow = {"nova": Behaviour(80), "source": Behaviour(20)}
    run = write_run(tmp_path / "run", slow, windows=(10,), stress=(False,), duration_s=3)
    bad = " ".join(told(run)["bad"])
    assert "nova does not have the best mean latency" in bad
    assert "(source)" in bad


def test_an_interrupted_run_without_cells_has_no_figures(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    for mark in run.glob("cells/*/DONE"):
        mark.unlink()
    assert "No cell was finished, so there are no figures." in told(run)["bad"]


# --- folders that cannot be used --------------------------------------------------------------


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NovaError, match="no folder of a run"):
        read_run(tmp_path)


def test_a_run_of_another_version(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    change(run / "run.json", nova_run=7)
    with pytest.raises(NovaError, match=r"run\.json: nova_run: format version 7; 1 is read here"):
        read_run(run)


def test_a_run_given_twice(run: Path) -> None:
    with pytest.raises(NovaError, match="given twice"):
        make_report([run, run / "cells" / ".."])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cell.json", '{"strategy": "nova"}', "field `engine`"),
        ("summary.json", '{"throughput_results_per_s": "many"}', "throughput_results_per_s"),
        ("check.json", "{", "check.json"),
        ("check.json", "[" * 20_000, "check.json"),
        ("samples.parquet", "not parquet", "samples.parquet: cannot be read"),
        ("check.json", None, "cannot be read: No such file"),
    ],
)
def test_broken_files_are_named(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    run = fresh(tmp_path)
    file = cell(run, "nova") / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(NovaError, match=message) as caught:
        make_report([run])
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trend_counts_all_results() -> None:
    trend = Trend.of(np.arange(1000) * 1000)
    assert trend.results[-1] == 1000
    assert (np.diff(trend.middle) > 0).all()
    assert (trend.low <= trend.middle).all() and (trend.middle <= trend.high).all()
    assert len(Trend.of(np.array([], np.int64)).results) == 0


def test_groups_of_two_runs(run: Path, tmp_path: Path) -> None:
    cells = finished_cells([read_run(run), read_run(fresh(tmp_path))])
    groups = groups_of(cells, distributions(cells))
    assert [(g.strategy, g.runs, g.cells) for g in groups] == [("nova", 2, 3), ("sink", 2, 3)]
