"""A translated plan is started by its own scripts and delivers results."""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from needs_flink import require
from random_plans import random_plan, sources_of

from nova_engines import results
from nova_engines.flow import Flow
from nova_flink.home import FlinkHome
from nova_flink.rest import FlinkError, Rest
from nova_flink.translate import translate

pytestmark = pytest.mark.e2e
UP_S = 120
DONE_S = 90


def test_scripts_start_the_plan(tmp_path: Path) -> None:
    require(FlinkHome.default())
    plan = random_plan(2, nodes=3, regions=1)
    network = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
    host = np.array([f"{network}.{i + 1}" for i in range(3)])
    problem = replace(plan.problem, nodes=replace(plan.problem.nodes, host=host))
    plan = replace(plan, problem=problem)
    sources = sources_of(problem, (int(time.time()) - 5) * 1000, seconds=3)
    (tmp_path / "w.json").write_text(sources.to_json())
    target = tmp_path / "out"
    translate(
        plan,
        problem,
        target,
        sources=tmp_path / "w.json",
        window_ms=100,
        work=str(tmp_path / "work" / "{node}"),
        results=str(tmp_path / "results"),
    )
    flow = Flow.read(target / "job" / "flow.json")
    rest = Rest(f"http://{host[int(problem.joins.sink[0])]}:8081")
    nodes = sorted((target / "nodes").iterdir())
    try:
        for node in nodes:
            subprocess.run([node / "start.sh"], check=True, timeout=30)
        _await_task_managers(rest, list(flow.nodes))
        done = subprocess.run(
            [target / "job" / "submit.sh"], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        job = done.stdout.split()[-1]
        until = time.monotonic() + DONE_S
        while rest.job(job)["state"] != "FINISHED" and time.monotonic() < until:
            time.sleep(0.2)
        assert rest.job(job)["state"] == "FINISHED"
    finally:
        for node in nodes:
            subprocess.run([node / "stop.sh"], check=True, timeout=30)
    assert len(results.read(tmp_path / "results")) > 0


def _await_task_managers(rest: Rest, nodes: list[str]) -> None:
    until = time.monotonic() + UP_S
    while True:
        try:
            rest.wait_task_managers(nodes, 1.0)
        except FlinkError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return
