"""Random queries under random plans on a real cluster deliver what DuckDB does, row by row."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from local_storm import LocalCluster
from needs_storm import require
from random_queries import (
    START_MS,
    compared,
    random_problem,
    random_query_plan,
    seeds,
    sources_file,
)

from nova_engines.flow_of_plan import flow_of
from nova_engines.results import COMPLETE, END, fields_of, read
from nova_engines.sources import READINGS, Source, Sources
from nova_storm.flux import topology
from nova_storm.translate import translate
from nova_storm.verification import await_running
from nova_workloads.queries.readings import connection, load, write_encoded
from nova_workloads.queries.reference import compare, expected

pytestmark = pytest.mark.e2e
NODES = ["n_0.x", "n_1.x", "n_2.x"]
DONE_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("storm") / "cluster"
    with LocalCluster(require(), NODES, directory) as running:
        yield running


# Every worker is two processes: ten queries take minutes.
@pytest.mark.parametrize("seed", seeds(3))
def test_random_queries_deliver_the_reference(
    cluster: LocalCluster, tmp_path: Path, seed: int
) -> None:
    problem = random_problem(seed, tmp_path)
    flow = flow_of(random_query_plan(seed, problem))
    database = connection()
    load(database, problem, tmp_path)
    files = write_encoded(database, problem, tmp_path)
    # As fast as it is taken, or at twice the speed it was read.
    start_ms, speed = int(time.time() * 1000) + 15_000, 2.0 * (seed % 2)
    made_of = tuple(Source(one, kind=READINGS, path=file) for one, file in files.items())
    sources = Sources(made_of, start_ms, first_ms=START_MS, speed=speed)
    name, file = f"queries-{seed}", tmp_path / "out" / "results"
    document = tmp_path / "topology.yaml"
    made = topology(flow, sources, str(file), name)
    document.write_text(yaml.safe_dump(made, sort_keys=False, allow_unicode=True), "utf-8")
    cluster.nimbus.submit(document)
    try:
        placed = await_running(cluster.nimbus, name, flow.placement, cluster.addresses, DONE_S)
        assert placed.ok, placed
        files = flow.result_files(str(file))
        written = {one.query: (files[one.name], one) for one in flow.sinks}
        until = time.monotonic() + DONE_S
        while not all(Path(path + END).exists() for path, _ in written.values()):
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        cluster.nimbus.kill(name)
    for query in problem.queries:
        path, one = written[query.id]
        came = read(Path(path), fields_of(one))
        assert came.loss(finished=True) is None and came.starts == 1
        assert int(Path(path + COMPLETE).read_text()) >= START_MS
        told = compare(expected(database, problem, query), came.rows())
        assert told.ok, told


def test_a_bundle_has_all_that_its_topology_needs(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(11, tmp_path)
    plan, results, made = random_query_plan(11, problem), tmp_path / "results", tmp_path / "made"
    sources = sources_file(tmp_path / "problem.yaml", tmp_path)
    translate(plan, problem, made, sources=sources, results=str(results), name="bundle")
    shutil.rmtree(sources.parent)
    flow = flow_of(plan)
    files = flow.result_files(str(results))
    # What submit.sh tells; the tests' cluster has other ports.
    monkeypatch.setenv("NOVA_JOB", str(made / "job"))
    cluster.nimbus.submit(made / "job" / "topology.yaml", int(time.time() * 1000) + 10_000)
    try:
        until = time.monotonic() + DONE_S
        while not all(Path(path + END).exists() for path in files.values()):
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        cluster.nimbus.kill("bundle")
    for one in flow.sinks:
        compared(tmp_path / "problem.yaml", tmp_path, one.query, Path(files[one.name]))
