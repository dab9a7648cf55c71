"""A translated plan is started by its own scripts and delivers results."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from needs import skip_or_fail
from random_plans import random_plan, sources_of
from random_queries import compared, random_problem, random_query_plan, sources_file
from spark_reference import compare

from nova_engines.documents import read
from nova_engines.flow import Flow
from nova_spark import results
from nova_spark.engine import SPARK
from nova_spark.realtime import ROWS
from nova_spark.rest import registered
from nova_spark.translate import translate
from nova_spark.verification import Record

pytestmark = pytest.mark.e2e
UP_S = 90


def test_scripts_start_the_plan(tmp_path: Path) -> None:
    if not SPARK.installed() and not os.environ.get("CI"):
        skip_or_fail("PySpark and Java are missing: pip install 'nova-placement[spark]'")
    plan = random_plan(8, nodes=3, regions=1, routes=True)
    network = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
    host = np.array([f"{network}.{i + 1}" for i in range(3)])
    problem = replace(plan.problem, nodes=replace(plan.problem.nodes, host=host))
    plan = replace(plan, problem=problem)
    sources = sources_of(problem, 0, seconds=2)
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
    sink = host[int(problem.joins.sink[0])]
    nodes = sorted((target / "nodes").iterdir(), key=lambda one: not (one / "master.sh").exists())
    query, files = bundle_of_queries(tmp_path / "queries", host, flow.sinks[0].node)
    try:
        for node in nodes:
            subprocess.run([node / "start.sh"], check=True, timeout=30)
        until = time.monotonic() + UP_S
        while len(registered(f"http://{sink}:8080")) < len(nodes):
            assert time.monotonic() < until
            time.sleep(0.2)
        done = _run(target, sink, tmp_path / "record.json")
        # Another bundle's job runs on the same cluster.
        _run(tmp_path / "queries" / "out", sink, tmp_path / "queries.json")
    finally:
        for node in nodes:
            subprocess.run([node / "stop.sh"], check=True, timeout=30)
    for one in query.sinks:
        path = Path(files[one.name])
        compared(tmp_path / "queries" / "problem.yaml", tmp_path / "queries", one.query, path)
    start_ms = int(done.stderr.partition("tuples flow from ")[2].split()[0])
    told = compare(plan, flow, sources, start_ms, tmp_path / "results")
    assert told.ok, told
    assert told.expected > 0
    assert len(results.read(tmp_path / "results" / "0"))
    for record, planned in (("record.json", flow), ("queries.json", query)):
        steps = read(tmp_path / record, Record).steps
        assert {step.name: step.node for step in steps if step.stages} == planned.placement
    assert sys.executable in (target / "job" / "run.sh").read_text()


def bundle_of_queries(
    there: Path, host: np.ndarray, coordinator: str
) -> tuple[Flow, dict[str, str]]:
    """Translate a random plan of queries to ``out``; its flow, and its files of results."""
    there.mkdir()
    problem = random_problem(21, there)
    problem = replace(problem, nodes=replace(problem.nodes, host=host))
    plan = random_query_plan(21, problem)
    options = {
        "sources": sources_file(there / "problem.yaml", there),
        "results": str(there / "results"),
        "coordinator": coordinator,
    }
    translate(plan, problem, there / "out", **options)
    flow = Flow.read(there / "out" / "job" / "flow.json")
    return flow, flow.result_files(str(there / "results" / ROWS))


def _run(bundle: Path, sink: str, record: Path) -> subprocess.CompletedProcess[str]:
    """Run a bundle's job to its end."""
    address = [f"spark.driver.host={sink}", f"spark.driver.bindAddress={sink}"]
    options = [word for one in address for word in ("--set", one)]
    done = subprocess.run(
        [bundle / "job" / "run.sh", "--record", record, *options],
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done
