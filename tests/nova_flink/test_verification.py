"""Where operators really run, asked of a real cluster; deployments that cannot be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from needs_flink import require

from nova_engines.flow import CUT, JOIN, SINK, SOURCE, Flow, Operator
from nova_engines.sources import Source, Sources
from nova_engines.verification import Verification
from nova_flink.client import Client
from nova_flink.home import FlinkHome
from nova_flink.local_cluster import LocalCluster
from nova_flink.rest import Counters, FlinkError
from nova_flink.verification import await_running, operators_in, verify

# "one_slot" has room for a single job at a time.
NODES = ["a", "b.x", "one_slot", "sink"]
RATE = 500.0


@pytest.mark.parametrize(
    ("title", "known", "held"),
    [
        ("Source: source s1", ["source s1", "source s"], ["source s1"]),
        ("Source: source s -> filter f", ["source s", "filter f", "f"], ["source s", "filter f"]),
        ("Source: a -> (b, c -> Sink: d)", ["d", "a", "b", "c"], ["d", "a", "b", "c"]),
        ("sink x: Writer", ["sink x", "sink"], ["sink x"]),
        ("relay a > b", ["relay a", "relay a > b", "b"], ["relay a > b"]),
        ("join l, r#0", ["join l", "join l, r#0", "r#0"], ["join l, r#0"]),
        ("join (l)", ["l", "join (l)"], ["join (l)"]),
        ("Map", ["Ma", "ap"], []),
    ],
)
def test_operators_of_a_vertex(title: str, known: list[str], held: list[str]) -> None:
    assert operators_in(title, known) == held


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    home = FlinkHome.default()
    require(home)
    settings = {"external-resource.node-one_5f_slot.amount": 1}
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(home, NODES, directory, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.home, cluster.rest.url) as found:
        yield found


def pair(join: str = "b.x", right: str = "b.x") -> Flow:
    return Flow(
        (
            Operator("source l", "a", SOURCE, source="l"),
            Operator("source r", right, SOURCE, source="r"),
            Operator("send l", "a", CUT, ("source l",), low=(0.0,), high=(2.0,)),
            Operator(
                "join l/r#0", join, JOIN, ("send l",), ("source r",), window=(20, 20), match=(10, 1)
            ),
            Operator("sink", "sink", SINK, ("join l/r#0",)),
        )
    )  # fmt: skip


def endless() -> Sources:
    streams = tuple(Source(name, RATE, values=(1.0,)) for name in "lr")
    return Sources(streams, int(time.time()) * 1000)


def counted(cluster: LocalCluster, job: str) -> dict[str, Counters]:
    """Counters once the JobManager has fetched those of every vertex."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        found = cluster.rest.counters(job)
        if all(each.known and (each.records_in or each.records_out) for each in found.values()):
            return found
        time.sleep(0.5)
    raise AssertionError(f"no counters of {job}: {found}")


@pytest.mark.e2e
def test_a_running_job_is_verified_and_counted(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    flow, rest = pair(), cluster.rest
    job = client.submit(flow, endless(), tmp_path / "results", "verified")
    await_running(rest, job, flow)
    found = verify(rest, job, flow)
    assert found.ok, found
    assert {row.operator: row.actual for row in found.rows} == {
        operator.name: operator.node for operator in flow.operators
    }
    assert all(row.status == "RUNNING" for row in found.rows)

    # Another plan's flow: one operator elsewhere, one that is not there, one not asked for.
    *others, sink = flow.operators
    changed = [replace(op, node="a") if op.kind == JOIN else op for op in others]
    other = verify(rest, job, Flow((*changed, replace(sink, name="drain"))))
    assert [(row.operator, row.node, row.actual) for row in other.misplaced] == [
        ("join l/r#0", "a", "b.x")
    ]
    assert [row.operator for row in other.missing] == ["drain"]
    assert [(row.operator, row.actual) for row in other.unexpected] == [("Sink: sink", "sink")]
    assert not other.ok
    assert other.to_plain()["ok"] is False

    # Counters go up; the join receives what both sources send.
    (join,) = (name for name in counted(cluster, job) if "join" in name)
    before = counted(cluster, job)[join].records_in or 0
    until = time.monotonic() + 60
    while (counted(cluster, job)[join].records_in or 0) - before <= RATE:
        assert time.monotonic() < until
    assert rest.jobs()[job]["name"] == "verified"
    assert rest.cancel(job) == "CANCELED"
    assert rest.cancel(job) == "CANCELED"


@pytest.mark.e2e
def test_the_node_without_room_is_named_within_seconds(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    flow, rest = pair(join="one_slot"), cluster.rest
    first = client.submit(flow, endless(), tmp_path / "first", "first")
    await_running(rest, first, flow)
    second = client.submit(flow, endless(), tmp_path / "second", "second")
    started = time.monotonic()
    with pytest.raises(FlinkError, match=r"no room on node one_slot \(free: 0 slots") as caught:
        await_running(rest, second, flow)
    assert time.monotonic() - started < 20
    assert "b.x" not in str(caught.value)
    # The one that runs is not harmed.
    assert verify(rest, first, flow).ok
    assert rest.cancel(first) == "CANCELED"
    rest.wait_ended(second, 30)


@pytest.mark.e2e
def test_a_node_without_task_manager_is_named(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    flow = pair(join="nowhere")
    job = client.submit(flow, endless(), tmp_path / "results", "nowhere")
    with pytest.raises(
        FlinkError, match=r"no room on node nowhere \(no TaskManager has registered\)"
    ):
        await_running(cluster.rest, job, flow)
    cluster.rest.cancel(job)


@pytest.mark.e2e
def test_a_job_that_fails_gives_flinks_reason(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    flow, rest = pair(), cluster.rest
    job = client.submit(flow, endless(), "/dev/null/results", "fails")
    with pytest.raises(FlinkError, match=r"is FAIL.*/dev/null"):
        await_running(rest, job, flow)
        rest.wait_ended(job, 30)
        await_running(rest, job, flow)
    assert any("/dev/null" in line for line in rest.exceptions(job))


@pytest.mark.e2e
def test_unknown_jobs_and_silent_clusters(cluster: LocalCluster) -> None:
    with pytest.raises(FlinkError, match=f"{cluster.rest.url}/jobs/"):
        verify(cluster.rest, "0" * 32, pair())


def test_nothing_is_fine_with_nothing() -> None:
    assert Verification(()).ok
