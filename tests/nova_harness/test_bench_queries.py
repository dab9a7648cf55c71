"""`nova bench queries` prints figures of plans that overload nothing; what `bench keys` takes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from nova_harness.bench.commands import bench


def test_figures() -> None:
    result = CliRunner().invoke(bench, ["queries", "--sizes", "100", "--repeat", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["measurements"]
    assert [one["objective"] for one in found] == ["latency", "network-usage"]
    for one in found:
        assert one["queries"] == 30 and one["overloaded"] == 0
        assert 1 - 1e-6 <= one["over_virtual"] < 1.5 and one["place"] > 0


@pytest.mark.parametrize("hosts", ["", "0", "1,x", "33", "1,,2"])
def test_numbers_of_hosts(hosts: str) -> None:
    done = CliRunner().invoke(bench, ["keys", "--hosts", hosts])
    assert done.exit_code == 2
    assert "expected numbers from 1 to 32" in done.output
