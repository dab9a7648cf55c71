from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_harness.bench import costspace as measure
from nova_harness.bench.commands import bench


def test_every_step_is_measured() -> None:
    found = measure.measure(measure.Case(nodes=300, neighbours=16))
    assert [m.step for m in found] == [*measure.STEPS, measure.ADD]
    by_step = {m.step: m for m in found}
    assert all(0 < m.mae < 60 and 0 < m.median_relative < 0.5 for m in found)
    assert all(m.wall > 0 and m.cpu >= 0 for m in found)
    assert by_step[measure.HEIGHTS].mae < by_step[measure.VIVALDI].mae
    assert by_step[measure.SOLVER].pairs == 300 * 16
    # A node that joins is as well placed as those that were there.
    assert by_step[measure.ADD].mae < 1.5 * by_step[measure.HEIGHTS].mae


def test_command(tmp_path: Path) -> None:
    table = tmp_path / "costspace.csv"
    arguments = ["costspace", "--sizes", "100", "--neighbours", "12", "--json", "-o", str(table)]
    done = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    shown = json.loads(done.stdout)["measurements"]
    rows = list(csv.DictReader(table.open()))
    assert [row["step"] for row in rows] == [m["step"] for m in shown]
    assert float(rows[0]["mae"]) == shown[0]["mae"]
    assert "measuring 100 nodes x 12 neighbours" in done.stderr


def test_table_has_a_row_per_step() -> None:
    row = measure.Measurement(1000, 20_000, measure.SOLVER, 1.5, 2.5, None, 12.0, 0.1, 0.5)
    shown = measure.summary_table([row, row])
    assert shown.row_count == 2


@pytest.mark.parametrize("sizes", ["0", "x", "-5"])
def test_sizes_that_cannot_be(sizes: str) -> None:
    done = CliRunner().invoke(bench, ["costspace", "--sizes", sizes])
    assert done.exit_code == 2
    assert "expected numbers of nodes" in done.stderr
