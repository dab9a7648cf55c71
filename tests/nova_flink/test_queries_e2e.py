"""Random queries under random plans on a real cluster deliver what DuckDB does, row by row."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from random_queries import START_MS, random_problem, random_query_plan, seeds

from nova_core import verify as check
from nova_core.model import Problem
from nova_core.model.query_plan import QueryPlan
from nova_engines.query_flow import Readings, from_plan
from nova_engines.query_results import read_rows
from nova_flink.client import Client
from nova_flink.configuration import QUICK_COMPILER
from nova_flink.local_cluster import LocalCluster
from nova_flink.verification import verify
from nova_workloads.comparison import Comparison
from nova_workloads.queries.readings import connection, load, write_encoded
from nova_workloads.queries.reference import compare, expected

pytestmark = pytest.mark.e2e
DONE_S = 60
NODES = ["n_0.x", "n_1.x", "n_2.x"]
# Random plans have many more operators on a node than it has room for by default.
ARGUMENTS = {
    "settings": {f"taskmanager.memory.network.{bound}": "256m" for bound in ("min", "max")},
    "task_manager_options": (QUICK_COMPILER, "-XX:MaxDirectMemorySize=400m"),
}


def run(
    cluster: LocalCluster,
    client: Client,
    problem: Problem,
    plan: QueryPlan,
    folder: Path,
    speed: float = 0.0,
) -> dict[str, Comparison]:
    """Run a plan's queries to their end, look where everything ran, and compare the results."""
    database = connection()
    load(database, problem, folder)
    flow = from_plan(plan)
    readings = Readings(
        write_encoded(database, problem, folder),
        first_ms=START_MS,
        start_ms=int(time.time() * 1000) + 1000,
        speed=speed,
    )
    job = client.submit_queries(flow, readings, folder / "results", problem.name)
    until = time.monotonic() + DONE_S
    while (state := str(cluster.rest.job(job)["state"])) not in ("FINISHED", "FAILED", "CANCELED"):
        assert time.monotonic() < until, state
        time.sleep(0.1)
    assert state == "FINISHED", cluster.rest.exceptions(job)
    seen = verify(cluster.rest, job, flow)
    assert seen.ok, [row for row in seen.rows if not row.ok]
    files = flow.result_files(str(folder / "results"))
    return {
        one.query: compare(
            expected(database, problem, next(q for q in problem.queries if q.id == one.query)),
            read_rows(Path(files[one.name])).rows,
        )
        for one in flow.of_kind("sink")
    }


@pytest.mark.parametrize("seed", seeds(12))
def test_random_queries_deliver_the_reference(
    cluster: LocalCluster, client: Client, tmp_path: Path, seed: int
) -> None:
    problem = random_problem(seed, tmp_path)
    plan = random_query_plan(seed, problem)
    assert check(plan).ok, check(plan)
    told = run(cluster, client, problem, plan, tmp_path)
    assert all(one.ok for one in told.values()), told
