"""A user's own SQL job obeys a plan, and one that does not match it is refused."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from needs_flink import SHARED_NODES

import nova_core
import nova_engines
import nova_flink
from nova_flink import names
from nova_flink.local_cluster import LocalCluster

pytestmark = pytest.mark.e2e
NODES = A, B, C, SINK = SHARED_NODES[:4]
# A job is accepted before its subtasks have found their slots.
SCHEDULED_S = 60.0


def plan_of(places: dict[str, tuple[str, str, str]]) -> dict[str, Any]:
    """A plan's document: per region, the nodes of pressure, humidity and their join."""
    instances, edges = [], []
    for region, (left, right, join) in places.items():
        sources = {"left": f"pressure-{region}", "right": f"humidity-{region}"}
        number = len(instances)
        operator = f"climate/{sources['left']}*{sources['right']}"
        instances.append({"operator": operator, "node": join, "replica": 0})
        for side, node in (("left", left), ("right", right)):
            edge = {"from": node, "to": join, "consumer": number, "input": side}
            edges.append(edge | {"carries": sources[side]})
        edges.append({"from": join, "to": SINK, "producer": number})
    return {"nova_plan": 2, "instances": instances, "edges": edges}


def run(cluster: LocalCluster, tmp_path: Path, plan: dict[str, Any], regions: str) -> Any:
    modules = tmp_path / "modules"
    modules.mkdir()
    for package in (nova_core, nova_engines, nova_flink):
        source = Path(str(package.__file__)).parent
        (modules / source.name).symlink_to(source)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [
            str(cluster.home.python),
            str(Path(__file__).with_name("pinned_sql_job.py")),
            cluster.rest.url,
            str(tmp_path / "plan.json"),
            regions,
        ],
        env={**os.environ, "PYTHONPATH": str(modules), "FLINK_HOME": str(cluster.home.flink)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def nodes_of_job(cluster: LocalCluster, job: str) -> dict[str, set[str | None]]:
    """Nodes of a job's vertices; None for a subtask that has not been scheduled yet."""
    where: dict[str, set[str | None]] = {}
    for vertex in cluster.rest.job(job)["vertices"]:
        for row in cluster.rest.subtasks(job, vertex["id"]):
            node = names.node_of_task_manager(row["taskmanager-id"])
            where.setdefault(vertex["name"], set()).add(node)
    return where


def test_a_sql_job_runs_where_the_plan_says(cluster: LocalCluster, tmp_path: Path) -> None:
    plan = plan_of({"1": (A, B, C), "2": (C, A, B)})
    found = run(cluster, tmp_path, plan, "1,2")
    assert "error" not in found, found
    job = found["job"]
    try:
        until = time.monotonic() + SCHEDULED_S
        while None in set().union(*(where := nodes_of_job(cluster, job)).values()):
            assert time.monotonic() < until, where
            time.sleep(0.1)
    finally:
        cluster.rest.cancel(job)

    def nodes_of(part: str) -> set[str | None]:
        return set().union(*(nodes for name, nodes in where.items() if part in name))

    assert nodes_of("source pressure-1") == {A}
    assert nodes_of("source humidity-1") == {B}
    assert nodes_of("join climate/pressure-1*humidity-1#0") == {C}
    assert nodes_of("source pressure-2") == {C}
    assert nodes_of("source humidity-2") == {A}
    assert nodes_of("join climate/pressure-2*humidity-2#0") == {B}
    assert nodes_of("results") == {SINK}


@pytest.mark.parametrize(
    ("planned", "regions", "complaint"),
    [
        (("1", "2"), "1", "the job lacks source pressure-2, source humidity-2, join climate/"),
        (("1",), "1,2", "_2' is not in the plan; the plan's sources are pressure-1"),
    ],
)
def test_a_job_that_does_not_match_is_refused(
    cluster: LocalCluster, tmp_path: Path, planned: tuple[str, ...], regions: str, complaint: str
) -> None:
    plan = plan_of(dict.fromkeys(planned, (A, B, C)))
    found = run(cluster, tmp_path, plan, regions)
    assert complaint in found["error"]
