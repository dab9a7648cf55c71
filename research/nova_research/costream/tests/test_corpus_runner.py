"""A corpus is made round by round, and goes on wherever it was interrupted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from instant_engine import DELAY_US, RESULTS_PER_S, InstantClock, InstantEngine

from nova_core.errors import NovaError
from nova_core.io.files import read_plan, read_problem
from nova_flink.home import FlinkHome
from nova_harness.engines.flink import FlinkDeployment, FlinkEngine
from nova_research.costream.corpus import rounds, runner
from nova_research.costream.corpus.check import check_corpus
from nova_research.costream.corpus.prepared import Settings, begin_corpus, items_of, run_of
from nova_research.costream.corpus.runner import CorpusEngine, CorpusRun, Watcher
from nova_research.costream.training.traces import read_traces
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import read_inventory

GROUPS = [[f"h{group}{host}" for host in range(4)] for group in range(3)]
SETTINGS = Settings(
    seed=4, batch=8, inventory="none", hosts=4, warm_up_s=0.3, duration_s=0.25, drain_s=0.0,
    cores=1.4,
)  # fmt: skip


CLOCK = InstantClock()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits, and tests may run on a busy machine."""
    monkeypatch.setattr(rounds, "time", CLOCK)
    monkeypatch.setattr(rounds, "LEAST_IDLE", -1.0)
    monkeypatch.setattr(rounds, "OVERDUE_S", 60.0)
    monkeypatch.setattr(runner, "WARM_UP_ROUNDS", 1)


def run(path: Path, engine: InstantEngine, traces: int, **changes: object) -> CorpusRun:
    """Run a corpus on the engine."""
    said: list[str] = []
    settings = msgspec.structs.replace(SETTINGS, **changes)
    corpus = CorpusRun(path, settings, traces, Watcher(said.append))
    begin_corpus(path, settings)
    corpus.run(GROUPS, engine.batch)
    return corpus


def test_a_corpus_has_a_row_for_every_trace_and_every_tenth_twice(tmp_path: Path) -> None:
    engine = InstantEngine(CLOCK)
    engine.silent, engine.late = {"000003"}, {"000004"}
    corpus = run(tmp_path / "c", engine, 12)
    rows = {row["id"]: row for row in read_traces([corpus.path]).to_pylist()}
    assert len({run_of(name) for name in rows}) == 13 and not corpus.dropped
    repeats = [row for row in rows.values() if row["repeat_of"] is not None]
    assert {run_of(row["repeat_of"]) for row in repeats} == {"4-000009"}
    for again in repeats:
        assert again["id"].startswith("4-000009-again")
        first = rows[again["repeat_of"]]
        same = ("problem", "plan", "query", "measured_query", "structure", "batch")
        assert all(again[name] == first[name] for name in same)
    assert {row["batch"] for row in rows.values()} == {0, 1} and len(engine.batches) == 2
    assert 1 < engine.most <= 3 and engine.discarded >= 13
    assert all(sum(cpu.values()) <= 3 * 4 * 0.6 for cpu in engine.imposed)
    several = False
    for row in rows.values():
        problem = tmp_path / "problem.json"
        problem.write_text(row["problem"])
        plan = tmp_path / "plan.json"
        plan.write_text(row["plan"])
        read = read_plan(plan, read_problem(problem))
        together = [other for other in rows.values() if run_of(other["id"]) == run_of(row["id"])]
        queries = {one["measured_query"] for one in together}
        assert {one.id for one in read.problem.queries} == queries
        assert len(queries) == len(together) and row["id"].partition("/")[2] in {"", *queries}
        assert all(one["problem"] == row["problem"] for one in together)
        several = several or len(queries) > 1
        memory = engine.batches[row["batch"]]
        for node in json.loads(row["problem"])["nodes"]:
            assert node["memory"] == memory[node["id"]]
        operators = json.loads(row["operators"])
        assert operators[f"{row['measured_query']}/sink"]["records_in"] is not None
        assert (row["engine"], row["engine_version"], row["origin"]) == ("flink", "1.0", "rack")
        assert row["duration_s"] == 0.25
        if run_of(row["id"]) == "4-000003":
            assert not row["success"] and row["throughput"] == 0 and row["results"] == 0
            assert row["e2e_latency_ms"] is row["processing_latency_ms"] is None
        elif run_of(row["id"]) == "4-000004":
            assert row["back_pressure"] and row["behind_s"] == 1
        else:
            assert row["success"] and not row["back_pressure"]
            assert row["throughput"] == pytest.approx(RESULTS_PER_S, abs=5)
            assert row["e2e_latency_ms"] == DELAY_US / 1000
            assert row["processing_latency_ms"] == DELAY_US / 1000 - 2
    report = check_corpus([corpus.path])
    assert report.noise["e2e_latency_ms"].q95 == 1 and report.balance["all"].traces == len(rows)
    assert several


def test_an_interrupted_corpus_goes_on_and_grows(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", InstantEngine(CLOCK), 6)
    engine = InstantEngine(CLOCK)
    engine.interrupt_at = 3 + 4  # behind the three that warm up
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "c", engine, 6)
    before = read_traces([tmp_path / "c"]).to_pylist()
    assert 0 < len({run_of(row["id"]) for row in before}) < 6 and not engine.running
    # What kill -9 may leave behind.
    (tmp_path / "c" / ".part-0000-000009.parquet.tmp").write_bytes(b"PAR1")
    resumed = run(tmp_path / "c", InstantEngine(CLOCK), 6)
    after = {row["id"]: row for row in read_traces([resumed.path]).to_pylist()}
    assert all(after[row["id"]] == row for row in before)
    expected = {row["id"]: row for row in read_traces([whole.path]).to_pylist()}
    assert after.keys() == expected.keys()
    for name, row in after.items():
        assert (row["problem"], row["plan"]) == (expected[name]["problem"], expected[name]["plan"])
    idle = InstantEngine(CLOCK)
    run(tmp_path / "c", idle, 6)
    assert not idle.started and not idle.batches
    assert len(run(tmp_path / "c", InstantEngine(CLOCK), 8).finished()) == 8


def test_another_corpus_is_not_gone_on_with(tmp_path: Path) -> None:
    run(tmp_path / "c", InstantEngine(CLOCK), 2)
    with pytest.raises(NovaError, match="is a corpus with seed 4, not 5"):
        run(tmp_path / "c", InstantEngine(CLOCK), 2, seed=5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    with pytest.raises(NovaError, match="holds no corpus"):
        run(tmp_path / "other", InstantEngine(CLOCK), 2)


def test_what_cannot_be_run_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    engine = InstantEngine(CLOCK)
    engine.broken, engine.misplaced = {"000001"}, {"000002"}
    corpus = run(tmp_path / "c", engine, 6)
    assert corpus.finished() == {f"4-{n:06d}" for n in (0, 3, 4, 5)}
    assert "cannot be scheduled" in corpus.dropped["4-000001"]
    assert "ran on elsewhere, not on" in corpus.dropped["4-000002"]
    assert engine.healed
    # It is tried again in the next run.
    assert len(run(tmp_path / "c", InstantEngine(CLOCK), 6).finished()) == 6


def test_a_query_that_ends_with_an_error_has_back_pressure(tmp_path: Path) -> None:
    engine = InstantEngine(CLOCK)
    engine.failing = {"000000"}
    rows = read_traces([run(tmp_path / "c", engine, 2).path]).to_pylist()
    assert {run_of(row["id"]): row["back_pressure"] for row in rows} == {
        "4-000000": True,
        "4-000001": False,
    }
    assert all((row["operators"] is None) == row["back_pressure"] for row in rows)


def test_a_run_in_which_nothing_works_ends(tmp_path: Path) -> None:
    engine = InstantEngine(CLOCK)
    engine.broken = {"nova"}
    with pytest.raises(NovaError, match=r"6 rounds in a row failed: .*cannot be scheduled"):
        run(tmp_path / "c", engine, 40, batch=40)


def test_the_load_follows_the_share_of_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "FIRST_LOAD", 8.0)
    corpus = run(tmp_path / "c", InstantEngine(CLOCK), 4, batch=2)
    assert [corpus.load(batch) for batch in range(3)] == [8.0, 12.0, 18.0]


def test_strategies_beside_other_plans_of_their_queries(tmp_path: Path) -> None:
    corpus = run(
        tmp_path / "c", InstantEngine(CLOCK), 24, batch=12, plans=6, strategies=("nova", "sink")
    )
    rows = [row for row in read_traces([corpus.path]).to_pylist() if row["repeat_of"] is None]
    assert not corpus.dropped
    items = sum(map(len, items_of(24, 12, 6)))
    assert len(read_traces([corpus.path])) + corpus.absent == items
    again = run(
        tmp_path / "c", InstantEngine(CLOCK), 24, batch=12, plans=6, strategies=("nova", "sink")
    )
    assert again.absent == corpus.absent and not again.dropped
    by_query: dict[str, list[dict[str, object]]] = {}
    for row in sorted(rows, key=lambda row: str(row["id"])):
        by_query.setdefault(str(row["query"]), []).append(row)
    assert len(by_query) == 4
    for mine in by_query.values():
        plans = [json.loads(str(row["plan"])) for row in mine]
        assert len({row["problem"] for row in mine}) == 1
        assert [plan["strategy"] for plan in plans[-2:]] == ["nova", "sink"]
        others = [json.dumps(plan) for plan in plans[:-2]]
        assert 1 <= len(set(others)) == len(others) <= 4
        assert {plan["strategy"] for plan in plans[:-2]} == {"candidate"}


def test_a_corpus_can_be_measured_on_flink(tmp_path: Path) -> None:
    found = read_inventory("virtual-8")
    hosts = [replace(host, address=f"10.0.0.{i}") for i, host in enumerate(found.hosts, 1)]
    inventory = replace(found, hosts=tuple(hosts))
    engine = FlinkEngine(FlinkDeployment(Hosts(inventory), FlinkHome(tmp_path / "flink")))
    assert isinstance(engine, CorpusEngine)
    before = engine.deployment.configuration.task_manager
    engine.take_memory()
    assert engine.deployment.configuration.task_manager >= before
