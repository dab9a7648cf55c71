"""nova reproduce fig6, fig7 and fig10: published figures, cells of their own, bad input."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from click.testing import CliRunner, Result

from nova_core import kernel_cache
from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies import create
from nova_harness.measurement import Case
from nova_research.figures.base import Run
from nova_research.nova import cells
from nova_research.nova.cells import Limits, Placing, place, run_cells
from nova_research.nova.fig6 import Fig6, Fig6Parameters
from nova_research.nova.fig7 import Fig7, Fig7Parameters
from nova_research.nova.isolated import BEGIN, END, Limited, isolated


def nova(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")


def work(task: str, tell: Callable[[str], None]) -> str:
    """What the processes of these tests do."""
    tell(BEGIN)
    if task == "sleep":
        time.sleep(60)
    if task == "work":
        while True:
            pass
    if task == "fill":
        np.ones(10**9).sum()
    if task == "die":
        raise SystemExit(3)
    if task == "refuse":
        raise NovaError("no")
    tell(END)
    return task + " done"


def test_work_runs_apart() -> None:
    assert isolated(work, "all", 60, 1) == "all done"
    for task, limit, told in (
        ("sleep", 0.2, "over 0.2 s"),
        ("work", 0.2, "over 0.2 s"),
        ("fill", 60, "over 1 GB"),
        ("die", 60, "ended by itself, exit code 3"),
    ):
        with pytest.raises(Limited, match=told):
            isolated(work, task, limit, 1)
    with pytest.raises(NovaError, match="no"):
        isolated(work, "refuse", 60, 1)


@pytest.mark.parametrize("compiles", [True, False])
def test_compiling_is_no_part_of_the_time(monkeypatch: pytest.MonkeyPatch, compiles: bool) -> None:
    monkeypatch.setattr(cells, "SECOND_RUN_BELOW", 0.0)
    monkeypatch.setattr(cells, "MEASURED_FOR", 0.0)
    sink, runs = create("sink"), []
    kernel = numba.njit(lambda x: x + 1)

    class Strategy:
        def place(self, problem: Problem) -> Plan:
            runs.append(kernel(1.0) if compiles else 2.0)
            return sink.place(problem)

    monkeypatch.setattr(cells, "create", lambda *_: Strategy())
    assert place(Placing(Case(30), "any", timed=True), lambda _: None)["nodes"] == 30
    assert len(runs) == 1 + compiles


def test_cells_time_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh installation placed small problems as plain Python, and published those times."""
    monkeypatch.delenv(kernel_cache.SETTING, raising=False)
    monkeypatch.setattr(kernel_cache, "_decided", None)
    place(Placing(Case(30), "sink", timed=True), lambda _: None)
    assert kernel_cache._decided == "compile"


def test_kept_cells_stand_within_their_limits(tmp_path: Path) -> None:
    kept, steps = tmp_path / cells.CELLS, []
    wanted = [Placing(Case(n), s) for n in (30, 40) for s in ("sink", "source")]

    def run(seconds: float) -> list[Any]:
        given = Run(kept=tmp_path, advance=lambda *n: steps.append(n))
        return run_cells(wanted, Limits(seconds), given, growing=True)

    short = run(1e-6)
    assert [one.error for one in short[:2]] == ["over 1e-06 s"] * 2
    assert [one.error for one in short[2:]] == ["not tried: over 1e-06 s on fewer nodes"] * 2
    assert steps == [(n, 4) for n in range(5)]
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 2
    # In less time no other outcome is to be had.
    assert run(1e-7)[:2] == short[:2]
    assert kept.read_bytes().splitlines(keepends=True) == lines
    long = run(600)
    assert not any(one.error for one in long)
    assert [one.nodes for one in long] == [30, 30, 40, 40]
    assert run(600) == long
    assert run(1) == long
    # A line that an interruption cut short is a cell not finished.
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 2 + 4
    kept.write_bytes(b"".join(lines[:-1]) + lines[-1][:30] + b"\n")
    again = run(600)
    assert again[:3] == long[:3]
    assert again[3].overloaded == long[3].overloaded
    assert len(kept.read_bytes().splitlines()) == len(lines) + 1
    # What is to be timed was not, before.
    assert {one.seconds for one in again} == {None}
    wanted = [replace(one, timed=True) for one in wanted]
    timed = run(600)
    assert all(one.seconds for one in timed)
    assert run(600) == timed


@pytest.mark.parametrize(
    ("figure", "other", "options", "rows"),
    [
        ("fig6", "sbon-producer", ("--nodes", 40, "--seeds", 2), 2 * 6),
        ("fig7", "nova", ("--nodes", 40), 3),
        ("fig10", "nova", ("--nodes", 40, "--nodes", 30), 4 * 2),
    ],
)
def test_a_figure_is_written_and_told(
    tmp_path: Path, figure: str, other: str, options: tuple[Any, ...], rows: int
) -> None:
    output = tmp_path / "out"
    asked = map(str, ("reproduce", figure, *options, "-o", output))
    common = [*asked, "--strategy", "sink", "--strategy", other]
    done = nova(*common)
    assert done.exit_code == 0, done.output
    written = [f"{figure}.csv", f"{figure}.json", f"{figure}.png"]
    assert {file.name for file in output.iterdir()} == {*written, "cells.jsonl"}
    assert (output / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / f"{figure}.json").read_text())
    found_rows = numbers["result"]["rows"]
    assert len(found_rows) == rows
    assert not any(row["error"] for row in found_rows)
    with (output / f"{figure}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == rows
    found = {row["strategy"]: row for row in found_rows}
    if figure == "fig7":
        assert found["sink"]["delta"] == 0
        assert 0 <= found["nova"]["delta"] <= found["nova(p)"]["delta"]
    else:
        assert {row["overloaded"] for row in found_rows if row["strategy"] == "sink"} == {100}
        assert found[other]["overloaded"] < 100
    if figure == "fig6":
        assert (found["sink"]["runs"], found["sink"]["spread"]) == (1, None)
        assert found["sbon-producer"]["runs"] == 2
        assert found["sbon-producer"]["spread"] > 0
    if figure == "fig10":
        assert found["nova, not refined"]["overloaded"] == 0
        assert found["nova, refined"]["overloaded"] == 0
    # Everything is finished, so the times, too, are those of before.
    again = nova(*common, "--json")
    assert json.loads(again.stdout) == {**numbers, "written": written}


@pytest.mark.data
def test_published_figures_come_out_again(shared_data: Path) -> None:
    """On the published instances, of strategies that need no random numbers."""
    names = ("nova", "sink", "source", "top-c", "tree")
    ends = ("capacity_0", "capacity_5")
    asked = Fig6Parameters(strategies=names, capacities=ends, limit=120)
    for row in Fig6().run(asked, Run(shared_data)).rows:
        assert row.overloaded == pytest.approx(row.published, abs=1.05), row
    asked7 = Fig7Parameters(strategies=names, instances=("sim1000",), limit=120)
    for seventh in Fig7().run(asked7, Run(shared_data)).rows:
        if seventh.strategy == "nova(p)":  # better than published
            assert seventh.delta is not None
            assert seventh.delta < 28
        else:
            assert seventh.delta == pytest.approx(seventh.published, abs=1.5), seventh


def test_bad_input_is_refused(tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        result = nova("reproduce", *arguments, "-o", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert not (tmp_path / "out").exists()
        return result.stderr

    assert "unknown 'best'; installed are" in refused("fig10", "--strategy", "best")
    assert "sim1000: no such instance" in refused("fig6", "--data", tmp_path)
    assert "exclude each other" in refused("fig7", "--data", tmp_path, "--nodes", "40")
    assert "reproduce fig10: limit: 0.0 is not" in refused("fig10", "--limit", "0")
