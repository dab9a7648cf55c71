"""`nova bench keys` runs a join over one host and over two, and checks every result."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from needs_rack import require

from nova_harness.bench.commands import bench

pytestmark = pytest.mark.e2e


def test_one_host_and_two() -> None:
    require()
    arguments = ["keys", "--hosts", "1,2", "--readings", "4000", "--skew", "1.2", "--json"]
    done = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    one, two = json.loads(done.stdout)["measurements"]
    assert (one["hosts"], one["largest"], one["sent"], one["ratio"]) == (1, 1, 1, 1)
    assert two["largest"] < 0.6
    assert two["sent"] < 1.2
    assert two["rate"] > 0
