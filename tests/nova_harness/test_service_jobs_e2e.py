"""A job on a virtual rack, controlled by a client of `nova serve`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from test_control_e2e import running_rack, write_placed
from test_service_jobs import serving, until

from nova_harness.control.state import ControlState

pytestmark = pytest.mark.e2e
PATIENCE_S = 120.0
JOBS = """
nova_jobs: 1
jobs:
  field: {problem: problem.yaml, plan: plan.json, inventory: rack.yaml, keys: 7, miss-after: 30}
"""


def wait(ready: Callable[[], Any], client: httpx.Client) -> Any:
    """What is true, once it is."""
    end = time.monotonic() + PATIENCE_S
    while not (answer := ready()):
        report = client.get("/jobs/field").json()
        assert report["exit_code"] is None and time.monotonic() < end, report
        time.sleep(0.2)
    return answer


def test_start_pause_stop_and_resume(tmp_path: Path) -> None:
    with running_rack(tmp_path, "flink") as reachable:
        write_placed(reachable, tmp_path)
        (tmp_path / "jobs.yaml").write_text(JOBS)
        with serving(tmp_path / "data", tmp_path / "jobs.yaml") as client:

            def state() -> ControlState | None:
                content = client.get("/jobs/field/watch/state").content
                return msgspec.json.decode(content, type=ControlState | None)

            assert client.get("/jobs/field").json()["status"] == "never started"
            assert client.post("/jobs/field/start").json()["status"] == "running"
            seen = wait(state, client)
            assert {host.name for host in seen.hosts} == {"hub", "left", "right", "near", "far"}
            assert sum(host.joins for host in seen.hosts) >= 1
            assert client.post("/jobs/field/pause").json()["status"] == "paused"
            assert client.post("/jobs/field/resume").json()["status"] == "running"
            assert client.post("/jobs/field/stop").is_success
            stopped = until(client, "field", "stopped")
            assert stopped["exit_code"] == 0
            assert "the job keeps running" in stopped["log"][-1]

            assert client.post("/jobs/field/start").json()["status"] == "running"
            again = wait(state, client)
            # The same job: control of it was resumed.
            assert again.jobs == seen.jobs and again.kinds["resumed"] == 1
            assert "nova_control_host_up" in client.get("/jobs/field/watch/metrics").text
            assert client.post("/jobs/field/stop").is_success
            assert until(client, "field", "stopped")["exit_code"] == 0
