"""How long a disturbance was felt, of cells whose every result is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from report_runs import BEHAVIOURS, START_US, write_run

from nova_harness.report import make_report, write_report
from nova_harness.report.recovery import Course, course_of
from nova_harness.results.run_folder import CellFolder
from nova_harness.results.schema import CellEvent, CellFacts

BEGIN_US = 1_700_000_000_000_000
SECONDS, RATE = 60, 20


def event(at: float, kind: str, text: str = "") -> CellEvent:
    return CellEvent(BEGIN_US / 1e6 + at, kind, text)


def cell_of(
    folder: Path,
    latency_ms: np.ndarray,
    events: list[CellEvent],
    *,
    pair: int = 0,
    repeated: int = 0,
    window_ms: int = 100,
) -> CellFolder:
    """A finished cell of one join whose k-th result is due k / RATE s after the begin.

    Args:
        folder: its directory.
        latency_ms: of each result; NaN of one that never came.
        events: what happened.
        pair: of the join.
        repeated: so many of the first results came again, 30 s later.
        window_ms: length of windows.
    """
    facts = CellFacts(
        strategy="nova",
        engine="flink",
        transport="direct",
        window_ms=window_ms,
        rate=RATE,
        stress=False,
        repetition=1,
        duration_s=SECONDS,
        warm_up_s=0,
        drain_s=0,
        sources=2,
        expected_rate=RATE,
        measured_us=(BEGIN_US, BEGIN_US + SECONDS * 1_000_000),
        events=events,
    )
    cell = CellFolder(folder)
    cell.begin(facts)
    came = np.flatnonzero(np.isfinite(latency_ms))
    due = BEGIN_US + came * 1_000_000 // RATE
    arrive = due + (1000 * latency_ms[came]).astype(np.int64)
    number = np.concatenate((came, came[:repeated]))
    due = np.concatenate((due, due[:repeated]))
    arrive = np.concatenate((arrive, arrive[:repeated] + 30_000_000))
    table = {
        "pair": np.full(len(number), pair, np.int32),
        "left_sequence": number,
        "right_sequence": number,
        "left_due_us": due,
        "right_due_us": due - 10,
        "arrive_us": arrive,
        "measured": np.ones(len(number), np.bool_),
    }
    cell.write_table("samples", pa.table(table))
    cell.finish()
    return CellFolder(folder)


def course(cell: CellFolder) -> Course:
    found = course_of(cell)
    assert found is not None
    return found


def steady(ms: float = 100) -> np.ndarray:
    return np.full(SECONDS * RATE, ms)


def due_s() -> np.ndarray:
    return np.arange(SECONDS * RATE) / RATE


def test_results_that_stopped_and_came_again(tmp_path: Path) -> None:
    # What is due from 20 s to 26 s comes at 26.5 s.
    latency = np.where((due_s() >= 20) & (due_s() < 26), 1000 * (26.5 - due_s()), steady())
    events = [event(20, "disturbed", "killed"), event(20.7, "failed"), event(26.4, "recovered")]
    found = course(cell_of(tmp_path / "cell", latency, events))
    (one,) = found.recoveries
    assert (one.text, one.at_s) == ("killed", pytest.approx(20, abs=1e-3))
    assert one.noticed_s == pytest.approx(0.7, abs=1e-3)
    # Two results of before 20 s arrive after it; the silence is from the last of them on.
    assert one.results_s == pytest.approx(6.1, abs=0.06)
    assert one.normal_s == pytest.approx(6, abs=1e-3)
    assert one.worst_ms == pytest.approx(6500, abs=1)
    assert found.before_ms[0] == pytest.approx(100) == found.settled_ms[1]
    assert found.late == int((latency > 1000).sum())
    assert found.per_s[19] == RATE and found.per_s[23] == 0
    assert [at for at, _ in found.events] == pytest.approx([20, 20.7, 26.4], abs=1e-3)


def test_results_of_long_windows_have_not_stopped_between_two_windows(tmp_path: Path) -> None:
    second = np.floor(due_s())
    # Every other one comes a little late.
    latency = 1000 * (second + 1 - due_s()) + np.where(second % 2, 150, 50)
    events = [event(20, "disturbed", "load")]
    found = course(cell_of(tmp_path / "cell", latency, events, window_ms=1000))
    assert found.recoveries[0].results_s is None
    latency[(second >= 20) & (second < 24)] += 4000
    found = course(cell_of(tmp_path / "other", latency, events, window_ms=1000))
    assert found.recoveries[0].results_s == pytest.approx(5, abs=0.2)


def test_repeated_results_count_once(tmp_path: Path) -> None:
    events = [event(20, "disturbed", "killed")]
    latency = steady()
    once = course(cell_of(tmp_path / "once", latency, events))
    twice = course(cell_of(tmp_path / "twice", latency, events, repeated=300))
    assert np.array_equal(once.per_s, twice.per_s)
    assert once.recoveries == twice.recoveries and twice.late == 0
    (one,) = once.recoveries
    assert (one.noticed_s, one.results_s, one.normal_s) == (None, None, 0.0)


def test_what_never_becomes_normal_before_the_next_disturbance(tmp_path: Path) -> None:
    latency = np.where((due_s() >= 10) & (due_s() < 30), 150.0, steady())
    latency[(due_s() >= 40)] = math.nan
    events = [
        event(10, "disturbed", "load on a"),
        event(10.4, "disturbed", "load on b"),
        event(25, "over", "load on a"),
        event(30, "disturbed", "less"),
        event(40, "disturbed", "gone"),
    ]
    found = course(cell_of(tmp_path / "cell", latency, events))
    load, less, gone = found.recoveries
    assert load.text == "load on a; load on b"
    assert (load.results_s, load.normal_s) == (None, math.inf)
    assert less.normal_s == 0.0
    assert gone.results_s == math.inf and gone.normal_s == math.inf
    assert all(map(math.isnan, found.settled_ms))


def test_cells_without_disturbances_have_no_course(tmp_path: Path) -> None:
    assert course_of(cell_of(tmp_path / "calm", steady(), [])) is None
    cell = cell_of(tmp_path / "open", steady(), [event(1, "disturbed")])
    (cell.path / "DONE").unlink()
    assert course_of(cell) is None


def test_the_page_shows_them(tmp_path: Path) -> None:
    behaviours = {name: BEHAVIOURS[name] for name in ("nova", "sink")}
    run = write_run(tmp_path / "run", behaviours, windows=(100,), stress=(False,))
    happened = [(3.0, "disturbed", "load on <b>"), (5.0, "handed-over", ""), (8.0, "over", "")]
    for number, folder in enumerate(sorted((run / "cells").iterdir())):
        cell = CellFolder(folder)
        begin = START_US + round(1e6 * cell.facts.warm_up_s)
        events = [CellEvent(begin / 1e6 + at, kind, text) for at, kind, text in happened]
        # The second one was not disturbed.
        events = events[: 0 if number else None]
        measured = begin, begin + round(1e6 * cell.facts.duration_s)
        cell.write("cell", replace(cell.facts, measured_us=measured, events=events))
    page = tmp_path / "report.html"
    written = write_report(make_report([run]), page, tmp_path / "figures")
    text = page.read_text()
    assert "What hosts went through" in text and "load on &lt;b&gt;" in text
    assert tmp_path / "figures" / "over-time.png" in written


def test_a_query_that_stopped(tmp_path: Path) -> None:
    """Of two queries, whose results are told apart by their names alone."""
    latency = np.where((due_s() >= 20) & (due_s() < 26), np.nan, steady())
    events = [event(20, "disturbed", "killed")]
    cell = cell_of(tmp_path / "cell", latency, events)
    pairs = pq.read_table(cell.samples).drop(["pair", "left_sequence", "right_sequence"])
    names = ["stops"] * len(pairs)
    whole = pq.read_table(cell_of(tmp_path / "other", steady(), events).samples)
    goes_on = whole.drop(["pair", "left_sequence", "right_sequence"])
    names += ["goes-on"] * len(goes_on)
    both = pa.concat_tables([pairs, goes_on])
    assert not cell.of_queries
    cell.write_table("samples", both.append_column("query", pa.array(names)))
    assert cell.of_queries
    found = course(cell)
    (one,) = found.recoveries
    assert one.results_s == pytest.approx(6.1, abs=0.1)
    assert found.per_s[15] == 2 * RATE and found.per_s[23] == RATE
