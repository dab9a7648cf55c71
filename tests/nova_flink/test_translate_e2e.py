"""A translated plan is started by its own scripts and delivers results."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from needs_flink import require
from random_plans import random_plan, sources_of
from random_queries import compared, random_problem, random_query_plan, sources_file

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
    files = bundle_of_queries(tmp_path, host, flow.sinks[0].node)
    try:
        for node in nodes:
            subprocess.run([node / "start.sh"], check=True, timeout=30)
        _await_task_managers(rest, list(flow.nodes))
        _run(rest, target)
        # Another bundle's job runs on the same cluster.
        _run(rest, tmp_path / "queries" / "out")
    finally:
        for node in nodes:
            subprocess.run([node / "stop.sh"], check=True, timeout=30)
    assert len(results.read(tmp_path / "results")) > 0
    for query, file in files.items():
        compared(tmp_path / "queries" / "problem.yaml", tmp_path / "queries", query, file)


def bundle_of_queries(directory: Path, host: np.ndarray, coordinator: str) -> dict[str, Path]:
    """Translate a random plan of queries to ``queries/out``; their files of results."""
    there = directory / "queries"
    there.mkdir()
    problem = random_problem(11, there)
    problem = replace(problem, nodes=replace(problem.nodes, host=host))
    plan = random_query_plan(11, problem)
    # Everything in a bundle travels with it.
    sources = sources_file(there / "problem.yaml", there)
    results_file = directory / "rows"
    options = {"sources": sources, "results": str(results_file), "coordinator": coordinator}
    translate(plan, problem, there / "out", **options)
    shutil.rmtree(sources.parent)
    flow = Flow.read(there / "out" / "job" / "flow.json")
    files = flow.result_files(str(results_file))
    return {one.query: Path(files[one.name]) for one in flow.sinks}


def _run(rest: Rest, bundle: Path) -> None:
    """Run a bundle's job to its end."""
    done = subprocess.run(
        [bundle / "job" / "submit.sh"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[-1]
    until = time.monotonic() + DONE_S
    while rest.job(job)["state"] != "FINISHED" and time.monotonic() < until:
        time.sleep(0.2)
    assert rest.job(job)["state"] == "FINISHED", rest.exceptions(job)


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
