"""`nova bench predictions` prints how many candidates a second are predicted."""

from __future__ import annotations

import json

from click.testing import CliRunner

from nova_harness.bench.commands import bench


def test_figures() -> None:
    line = ["predictions", "--filters", "2", "--candidates", "50", "--repeat", "1", "--json"]
    result = CliRunner().invoke(bench, line)
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["measurements"]
    assert found["operators"] == 7 and found["candidates"] == 50
    assert found["rate"] > 0 and found["draw"] > 0
