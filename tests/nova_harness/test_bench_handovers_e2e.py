"""`nova bench handovers` hands a job over to other hosts, and checks every result."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from needs_rack import require

from nova_harness.bench.commands import bench

pytestmark = pytest.mark.e2e


def test_one_hand_over() -> None:
    require()
    where = ["--inventory", "virtual-5", "--regions", "1", "--rate", "200"]
    arguments = ["handovers", *where, "--handovers", "1", "--calm", "5", "--json"]
    done = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (one,) = json.loads(done.stdout)["measurements"]
    assert (one["handovers"], one["lost"], one["doubled"], one["wrong"]) == (1, 0, 0, 0)
    # At least the time that is compared: before the hand-over, after it, and while it is done.
    assert one["results"] > 200 * (5 + 5 + one["decided_s"][0])
    assert 0 < one["told_s"][0] < one["decided_s"][0]
    assert one["silence_ms"][0] > 0
    # Twice the 4 s that fit into the calm 5 s: before the decision, and before the end.
    assert len(one["steady_silence_ms"]) == 2
    assert min(one["steady_silence_ms"]) > 0
    assert 0 < one["after_p99_ms"] < 30_000
    assert 0 < one["steady_p99_ms"] < 30_000
    assert one["deploying_p9999_ms"] > 0
    assert one["steady_p9999_ms"] > 0
