"""`nova bench control`."""

from __future__ import annotations

import json

import msgspec
from click.testing import CliRunner

from nova_core.cli import cli
from nova_harness.bench.control import Measurement, summary_table


def test_what_control_of_many_hosts_takes() -> None:
    asked = ["bench", "control", "--sizes", "300", "--seconds", "60", "--json"]
    result = CliRunner().invoke(cli, asked)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["measurements"]
    found = msgspec.convert(row, Measurement)
    assert found.hosts == 300 and found.reading > 0 and found.deciding > 0
    assert found.longest_s > found.deciding * 0.5
    assert summary_table([found]).row_count == 1
