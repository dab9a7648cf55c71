"""nova reproduce fig6, fig7 and fig10: published figures, cells of their own, bad input."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_harness import fig6, fig7
from nova_harness.figure_inputs import read_parameters
from nova_harness.isolated import BEGIN, END, Limited, isolated
from nova_harness.measurement import Case
from nova_harness.simulation import Limits, run_cells


def nova(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")


def work(task: str, tell: Callable[[str], None]) -> str:
    """What the processes of these tests do."""
    tell(BEGIN)
    if task == "sleep":
        time.sleep(60)
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
        ("fill", 60, "over 1 GB"),
        ("die", 60, "ended by itself, exit code 3"),
    ):
        with pytest.raises(Limited, match=told):
            isolated(work, task, limit, 1)
    with pytest.raises(NovaError, match="no"):
        isolated(work, "refuse", 60, 1)


def test_kept_cells_stand_within_their_limits(tmp_path: Path) -> None:
    kept, steps = tmp_path / "cells.jsonl", []
    # Clusters of 2,000 nodes take some tenths of a second, and more than a millisecond anywhere.
    wanted = [(Case(n), s) for n in (2000, 2100) for s in ("sink", "cl-sf")]

    def run(seconds: float) -> list[Any]:
        advance = lambda done, of: steps.append((done, of))  # noqa: E731
        return run_cells(wanted, Limits(seconds), kept, advance, growing=True)

    short = run(0.001)
    assert [one.limited for one in short] == [False, True, False, True]
    assert short[1].error == "over 0.001 s"
    assert short[3].error == "not tried: over 0.001 s on fewer nodes"
    assert steps == [(n, 4) for n in range(5)]
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 3
    assert run(0.0005) == short[:3] + run(0.0005)[3:]
    assert kept.read_bytes().splitlines(keepends=True) == lines
    # More time: only what ran out of it is done again. A line that was cut short is, too.
    kept.write_bytes(b"".join(lines[:3]) + lines[3][:30])
    kept.write_bytes(kept.read_bytes() + b"\n")
    long = run(60)
    assert not any(one.error for one in long)
    assert (long[0], long[2].seconds != short[2].seconds) == (short[0], True)
    assert len(kept.read_bytes().splitlines()) == 4 + 3


@pytest.mark.parametrize(
    ("figure", "options", "rows"),
    [
        ("fig6", ("--nodes", 40), 2 * 6),
        ("fig7", ("--nodes", 40), 3),
        ("fig10", ("--nodes", 40, "--nodes", 30), 2 * 2),
    ],
)
def test_a_figure_is_written_and_told(
    tmp_path: Path, figure: str, options: tuple[Any, ...], rows: int
) -> None:
    output = tmp_path / "out"
    asked = map(str, ("reproduce", figure, *options, "-o", output))
    common = [*asked, "--strategy", "nova", "--strategy", "sink"]
    done = nova(*common)
    assert done.exit_code == 0, done.output
    written = [f"{figure}.csv", f"{figure}.json", f"{figure}.png"]
    assert {file.name for file in output.iterdir()} == {*written, "cells.jsonl"}
    assert (output / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / f"{figure}.json").read_text())
    assert len(numbers["rows"]) == rows
    assert not any(row["error"] for row in numbers["rows"])
    with (output / f"{figure}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == rows
    found = {row["strategy"]: row for row in numbers["rows"]}
    if figure == "fig7":
        assert found["sink"]["delta"] == 0
        assert 0 <= found["nova"]["delta"] <= found["nova(p)"]["delta"]
    else:
        assert {row["overloaded"] for row in numbers["rows"]} == {0, 100}
    # Everything is finished, so the times, too, are those of before.
    again = nova(*common, "--json")
    assert json.loads(again.stdout) == {**numbers, "written": written}


@pytest.mark.data
def test_published_figures_come_out_again(shared_data: Path) -> None:
    """On the published instances, of strategies that need no random numbers."""
    import msgspec

    names = ["nova", "sink", "source", "top-c", "tree"]
    limits = Limits(120)
    own = read_parameters("fig6", fig6.Fig6, None)
    asked = msgspec.structs.replace(own, strategies=names, capacities=["capacity_0", "capacity_5"])
    for row in fig6.run(asked, shared_data, limits).rows:
        assert row.overloaded == pytest.approx(row.published, abs=1.05), row
    seven = read_parameters("fig7", fig7.Fig7, None)
    asked7 = msgspec.structs.replace(seven, strategies=names, instances=["sim1000"])
    for seventh in fig7.run(asked7, shared_data, limits).rows:
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
    assert "'--limit'" in refused("fig10", "--limit", "0")
