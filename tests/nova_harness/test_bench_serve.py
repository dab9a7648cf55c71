"""`nova bench serve`."""

from __future__ import annotations

import json

import msgspec
from click.testing import CliRunner

from nova_core.cli import cli
from nova_harness.bench.serve import Measurement, summary_table


def test_events_over_http_are_timed_and_none_is_lost() -> None:
    arguments = ["--nodes", "200", "--rate", "100", "--seconds", "1", "--json"]
    result = CliRunner().invoke(cli, ["bench", "serve", *arguments])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["measurements"][0]
    assert (found["sent"], found["failed"], found["lost"]) == (100, 0, 0)
    assert found["answered"] + found["refused"] == 100
    assert 0 < found["median"] <= found["p99"] <= found["longest"]
    assert found["cpu"] > 0 and found["loading"] > 0 and found["memory"] > 2**26
    table = summary_table([msgspec.convert(found, Measurement)])
    assert table.row_count == 15
