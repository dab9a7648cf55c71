"""Nothing that a sink had is lost in silence, and no job but Nova's own is ended."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs_flink import SHARED_NODES, require

from nova_engines import results
from nova_engines.flow import Flow, Operator
from nova_engines.sources import Source, Sources
from nova_flink.client import Client
from nova_flink.home import FlinkHome
from nova_flink.local_cluster import LocalCluster
from nova_flink.verification import await_running
from nova_harness.engines.flink import FlinkCluster

pytestmark = pytest.mark.e2e
NODES = FIRST, SECOND = SHARED_NODES[:2]
DONE_S = 60
AGAIN = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "60",
    "restart-strategy.fixed-delay.delay": "1 s",
}
FLOW = Flow(
    (
        Operator("source left", SECOND, "source", source="left"),
        Operator("source right", SECOND, "source", source="right"),
        Operator(
            "join",
            SECOND,
            "join",
            inputs=("source left",),
            right=("source right",),
            window=(100, 100),
            match=(1000, 1),
        ),
        Operator("results", FIRST, "sink", inputs=("join",)),
    )
)


def sources(count: int | None, rate: float = 100.0, lead_s: int = 0) -> Sources:
    streams = tuple(Source(name, rate, values=(1.0, 2.0)) for name in ("left", "right"))
    start_ms = (int(time.time()) + lead_s) * 1000
    return Sources(streams, start_ms, count=count)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster that starts jobs again."""
    home = FlinkHome.default()
    require(home)
    with LocalCluster(home, NODES, tmp_path_factory.mktemp("again"), settings=AGAIN) as running:
        yield running


def test_a_job_whose_results_cannot_be_written_fails(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "results"
    # What does not fit is what the sink still has in memory when the job ends: it is written at
    # 512 results, then at the end. Logs are shorter.
    process, limit = cluster.processes[FIRST].pid, 1 << 16
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        job = client.submit(FLOW, sources(count=900, lead_s=-60), file, "nova full")
        state = cluster.rest.wait_ended(job, DONE_S)
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)
    assert state == "FAILED"
    assert f"{file}: results cannot be written: " in "; ".join(cluster.rest.exceptions(job))
    found = results.read(file)
    assert found.failure == "File too large" and found.announced is None
    assert "could not write" in str(found.loss(finished=False))


def test_a_write_that_fails_long_before_the_end_is_not_forgotten(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "results"
    # Of different rates, sources have equal numbers in the first window alone: its ten results are
    # written by a thread of their own, and no other result comes that could be told of its failure.
    streams = [
        Source(name, rate, values=(1.0,)) for name, rate in (("left", 100.0), ("right", 300.0))
    ]
    flows = Sources(tuple(streams), int(time.time()) * 1000 + 5000, count=300)
    process, limit = cluster.processes[FIRST].pid, 6 * results.PAIR_BYTES + 40
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        job = client.submit(FLOW, flows, file, "nova forgotten")
        state = cluster.rest.wait_ended(job, DONE_S)
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)
    assert state == "FAILED"
    assert len(results.read(file)) == 6


def test_results_are_announced_and_those_of_another_job_kept(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "results"
    jobs = []
    for count in (10, 20):
        jobs.append(client.submit(FLOW, sources(count), file, "nova announced"))
        assert cluster.rest.wait_ended(jobs[-1], DONE_S) == "FINISHED"
        found = results.read(file)
        assert found.announced == len(found) == count
        assert found.loss(finished=True) is None and found.starts == 1
    kept = results.read(tmp_path / f"results.{jobs[0]}")
    assert kept.announced == len(kept) == 10


def test_a_job_that_is_started_again_keeps_what_it_had(again: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "results"
    # Some seconds of tuples, so that it is ended in the midst of them.
    flows = sources(count=600, rate=50.0)
    with Client(again.home, again.rest.url) as client:
        job = client.submit(FLOW, flows, file, "nova again")
        until = time.monotonic() + 2 * DONE_S
        while not file.exists() or file.stat().st_size < 50 * results.PAIR_BYTES:
            assert time.monotonic() < until
            time.sleep(0.1)
        # With what it has not written yet, it writes it in the end.
        again.kill(SECOND)
        before = file.read_bytes()
        # The JobManager does not talk to one that comes back at the same port before it is missed.
        while f"tm-{SECOND}" in again.rest.task_managers():
            assert time.monotonic() < until
            time.sleep(0.2)
        again.restart(SECOND)
        assert again.rest.wait_ended(job, 3 * DONE_S) == "FINISHED"
    assert file.read_bytes().startswith(before)
    found = results.read(file)
    # The sink is started in vain as long as the other node is away.
    assert found.starts >= 2 and found.announced == len(found)
    # Sources begin anew, so that each result is there at least once, and early ones twice.
    assert set(found["left_sequence"].tolist()) == set(range(600))
    assert len(found) > 600


def test_jobs_of_others_go_on(cluster: LocalCluster, client: Client, tmp_path: Path) -> None:
    names = {"nova plan": "", "somebody else's": "", "novae": ""}
    for name in names:
        names[name] = client.submit(FLOW, sources(None), tmp_path / name, name)
        await_running(cluster.rest, names[name], FLOW, DONE_S)
    flink = FlinkCluster(cluster.rest)
    own = [one.job for one in flink.jobs() if one.runs and one.own]
    assert {job: flink.stop(job) for job in own} == {names["nova plan"]: "canceled"}
    others = [names["somebody else's"], names["novae"]]
    assert [cluster.rest.job(job)["state"] for job in others] == ["RUNNING", "RUNNING"]
    left = [one.job for one in flink.jobs() if one.runs]
    assert {job: flink.stop(job) for job in left} == dict.fromkeys(others, "canceled")
