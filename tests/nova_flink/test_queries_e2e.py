"""Random queries under random plans on a real cluster deliver what DuckDB does, row by row."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs_flink import SHARED_NODES
from random_queries import START_MS, random_problem, random_query_plan, seeds

from nova_core import place, read_problem
from nova_core import verify as check
from nova_core.io.syntax import dump
from nova_core.model import Problem
from nova_core.model.plan import Plan
from nova_engines.flow import Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.results import fields_of, read
from nova_engines.sources import READINGS, Source, Sources
from nova_flink.client import Client
from nova_flink.local_cluster import LocalCluster
from nova_flink.verification import operators_in, verify
from nova_workloads.comparison import Comparison
from nova_workloads.queries.readings import connection, load, write_encoded
from nova_workloads.queries.reference import compare, expected

pytestmark = pytest.mark.e2e
DONE_S = 60
NODES = SHARED_NODES[:3]


@dataclass(frozen=True)
class Ended:
    """A job that has come to its end.

    Attributes:
        told: how the results of each query compare with the reference.
        job: what Flink tells of it.
        flow: what it runs.
    """

    told: Mapping[str, Comparison]
    job: dict[str, Any]
    flow: Flow


def run(cluster: LocalCluster, client: Client, problem: Problem, plan: Plan, folder: Path) -> Ended:
    """Run a plan's queries to their end, look where everything ran, and compare the results."""
    database = connection()
    load(database, problem, folder)
    flow = flow_of(plan)
    files = write_encoded(database, problem, folder)
    sources = Sources(
        tuple(Source(one, kind=READINGS, path=file) for one, file in files.items()),
        int(time.time() * 1000) + 1000,
        first_ms=START_MS,
    )
    job = client.submit(flow, sources, folder / "results", problem.name)
    until = time.monotonic() + DONE_S
    while (state := str(cluster.rest.job(job)["state"])) not in ("FINISHED", "FAILED", "CANCELED"):
        assert time.monotonic() < until, state
        time.sleep(0.1)
    assert state == "FINISHED", cluster.rest.exceptions(job)
    seen = verify(cluster.rest, job, flow)
    assert seen.ok, [row for row in seen.rows if not row.ok]
    files = flow.result_files(str(folder / "results"))
    told = {}
    for one in flow.sinks:
        file, query = Path(files[one.name]), next(q for q in problem.queries if q.id == one.query)
        came = read(file, fields_of(one))
        assert came.loss(finished=True) is None and came.starts == 1
        assert int(file.with_name(f"{file.name}.complete").read_text()) > START_MS
        told[one.query] = compare(expected(database, problem, query), came.rows())
    return Ended(told, cluster.rest.job(job), flow)


def crossed(ended: Ended) -> int:
    """Tuples that vertices have sent to other nodes."""
    total, flow = 0, ended.flow
    for vertex in ended.job["vertices"]:
        held = operators_in(vertex["name"], [one.name for one in flow.operators])
        far = {
            one.node != producer.node
            for producer in flow.operators
            for one in flow.operators
            if producer.name in held
            and producer.name in (*one.inputs, *one.right)
            and one.name not in held
        }
        assert len(far) < 2, "some of what it sends stays on its node"
        if far == {True}:
            total += vertex["metrics"]["write-records"]
    return total


@pytest.mark.parametrize("seed", seeds(12))
def test_random_queries_deliver_the_reference(
    cluster: LocalCluster, client: Client, tmp_path: Path, seed: int
) -> None:
    problem = random_problem(seed, tmp_path)
    plan = random_query_plan(seed, problem)
    assert check(plan).ok, check(plan)
    told = run(cluster, client, problem, plan, tmp_path).told
    assert all(one.ok for one in told.values()), told


@pytest.mark.parametrize("split", [True, False])
def test_aggregates_send_what_the_plan_says(
    cluster: LocalCluster, client: Client, tmp_path: Path, split: bool
) -> None:
    seconds, rate, groups = 20, 100, 8
    rng = np.random.default_rng(3)
    sources = [
        {"id": f"heat-{number}", "node": node, "stream": "heat", "rate": rate}
        for number, node in enumerate(["n_0.x", "n_0.x", "n_1.x"])
    ]
    for one in sources:
        times = START_MS + np.arange(seconds * rate) * 1000 // rate
        rows = [f"{t},{rng.integers(0, 800) / 8},{rng.integers(0, groups)}" for t in times]
        (tmp_path / f"{one['id']}.csv").write_text("\n".join(["time,value,n", *rows, ""]))
    mean: dict[str, Any] = {"id": "a", "kind": "aggregate", "input": "heat", "group_by": ["heat.n"]}
    mean |= {"compute": {"mean": "mean(heat.value)"}, "window": 1.0, "groups": groups}
    document = {
        "nova": 1,
        "name": "means",
        "nodes": [
            {"id": name, "position": [at, 0], "capacity": 1000} | {"worker": True}
            for name, at in zip(NODES, (0, 1, 50), strict=True)
        ],
        "sources": sources,
        "streams": [{"id": "heat", "columns": {"value": "float", "n": "int"}}],
        "queries": [{"id": "q", "sink": NODES[2], "operators": [mean]}],
    }
    (tmp_path / "problem.yaml").write_text(dump(document, ".yaml"))
    problem = read_problem(tmp_path / "problem.yaml")
    plan = place(problem, "nova", split_aggregates=split)
    ended = run(cluster, client, problem, plan, tmp_path)
    assert all(one.ok for one in ended.told.values()), ended.told
    start, stop = plan.ends
    said = plan.sent[start != stop].sum() * seconds
    print(f"{crossed(ended):,} tuples crossed, {said:,.0f} by the plan")
    assert crossed(ended) == pytest.approx(said, rel=0.05)
