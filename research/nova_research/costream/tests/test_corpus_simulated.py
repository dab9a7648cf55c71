"""A simulated corpus is one like that of a rack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_core.errors import NovaError
from nova_research.costream.corpus import simulated
from nova_research.costream.corpus.check import check_corpus
from nova_research.costream.corpus.commands import corpus
from nova_research.costream.corpus.prepared import run_of
from nova_research.costream.simulator import simulate
from nova_research.costream.simulator.simulate import fitted_constants
from nova_research.costream.training.traces import read_traces


def test_a_simulated_corpus_goes_on_where_it_ended(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = tmp_path / "s"
    first = ["simulate", str(path), "-n", "4", "--ranges", "rack", "--json"]
    done = CliRunner().invoke(corpus, first)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["runs"] == 4
    before = read_traces([path]).to_pylist()
    assert simulated.simulate_corpus(path, 12, 0, "rack", lambda *at: told.append(at)) == 12
    assert told == [(done, 12) for done in range(5, 13)]
    rows = read_traces([path]).to_pylist()
    assert rows[: len(before)] == before and len({row["id"] for row in rows}) == len(rows)
    assert len({run_of(row["id"]) for row in rows}) == 12 < len(rows)
    assert {row["origin"] for row in rows} == {"simulator"}
    assert {row["query"] for row in rows} == {f"0-q{n:06d}" for n in range(6)}
    report = check_corpus([path])
    assert not any("success is" in one and "results" in one for one in report.problems)
    for row in rows:
        assert json.loads(row["operators"])
        assert row["success"] == (row["throughput"] > 0) == (row["results"] > 0)


def test_the_papers_ranges_are_other_queries(tmp_path: Path) -> None:
    simulated.simulate_corpus(tmp_path / "s", 2, 0, "paper", lambda done, total: None)
    rows = read_traces([tmp_path / "s"]).to_pylist()
    assert {row["query"] for row in rows} == {"paper-0-q000000"}
    cpu = {node["cpu"] for row in rows for node in json.loads(row["problem"])["nodes"]}
    assert min(cpu) >= 0.5
    with pytest.raises(NovaError, match="is a corpus with inventory 'simulated-paper', not"):
        simulated.simulate_corpus(tmp_path / "s", 2, 0, "rack", lambda done, total: None)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(NovaError, match="is there and holds no corpus"):
        simulated.simulate_corpus(tmp_path / "other", 2, 0, "paper", lambda done, total: None)


def test_traces_of_other_constants_go_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.simulate_corpus(tmp_path / "s", 2, 0, "rack", lambda done, total: None)
    fitted = fitted_constants()._replace(wake_us=1.0)
    monkeypatch.setattr(simulate, "fitted_constants", lambda: fitted)
    with pytest.raises(NovaError, match=r"is a corpus with constants '[0-9a-f]{16}', not"):
        simulated.simulate_corpus(tmp_path / "s", 4, 0, "rack", lambda done, total: None)
