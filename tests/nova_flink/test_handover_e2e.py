"""Jobs that are handed over, also from a failed one, deliver exactly the reference join."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from needs_kafka import kafka
from random_plans import random_plan, sources_of

from nova_core.model import Plan
from nova_engines import results
from nova_engines.flow import Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.handover import Handover, HandoverError, Ledger, Share, only_one
from nova_engines.source_orders import ControlledJob, LocalFiles, Order, complete_ms, tell
from nova_engines.sources import Sources, through
from nova_flink.client import Client
from nova_flink.controlled_jobs import FlinkJobs
from nova_flink.local_cluster import LocalCluster
from nova_flink.verification import await_running
from nova_kafka import topics
from nova_kafka.home import connectors_home
from nova_kafka.messages import read_back
from nova_workloads.reference import Reference, Results
from nova_workloads.schedule import Schedule, Tuples, all_tuples
from nova_workloads.streams import Stream

pytestmark = pytest.mark.e2e
NODES = [f"n_{i}.x" for i in range(3)]
# What is killed leaves the list of TaskManagers by this.
ARGUMENTS = {"settings": {"heartbeat.timeout": "20 s"}, "extra_jars": connectors_home().jars}
WINDOW_MS = 100
MATCH = Match(WINDOW_MS, 7)
PATIENCE_S = 120


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def boundary(ahead_ms: int) -> int:
    return (now_ms() + ahead_ms) // WINDOW_MS * WINDOW_MS


def placed(plan: Plan, node: list[int]) -> Plan:
    """A plan with its instances on the given nodes in turn; sources and sink are on the first."""
    p = plan.problem
    problem = replace(
        p,
        sources=replace(p.sources, node=p.sources.node % 2),
        joins=replace(p.joins, sink=np.zeros_like(p.joins.sink)),
    )
    where = np.resize(np.array(node), len(plan.instances))
    return replace(plan, problem=problem, instances=replace(plan.instances, node=where))


class Jobs:
    """Deploys plans whose sources wait to be told."""

    def __init__(
        self, cluster: LocalCluster, client: Client, directory: Path, sources: Sources
    ) -> None:
        self.cluster, self.client, self.sources = cluster, client, sources
        self.directory = directory

    def deploy(self, plan: Plan, name: str, from_ms: int | None = None) -> ControlledJob:
        flow = flow_of(plan, MATCH)
        file = str(self.directory / name)
        sources = self.sources.read_from(now_ms() if from_ms is None else from_ms)
        job = self.client.submit(flow, sources, file, name)
        await_running(self.cluster.rest, job, flow, PATIENCE_S)
        return ControlledJob.of(job, flow, self.sources, file)


def expected(sources: Sources, begin_ms: int, end_ms: int) -> tuple[list[Stream], Tuples]:
    """What the sources must emit in a time, by the reference's own schedule."""
    streams, blocks = [], []
    for number, one in enumerate(sources.sources):
        value = np.array(one.values)
        stream = Stream(one.sensor, one.region, one.stream, np.arange(len(value)), value)
        count = int((end_ms - sources.start_ms) / 1000 * one.rate) + 2
        schedule = Schedule(rate=one.rate, start_ms=sources.start_ms, count=count, endless=True)
        emitted = all_tuples(schedule, [stream])
        streams.append(stream)
        mine = (emitted.time_ms >= begin_ms) & (emitted.time_ms < end_ms)
        block = {f.name: getattr(emitted, f.name)[mine] for f in fields(Tuples)}
        block[fields(Tuples)[0].name] = np.full(int(mine.sum()), number)
        blocks.append(block)
    joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return streams, Tuples(**joined)


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.2)


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def sent_to_kafka(sources: Sources, directory: Path) -> Iterator[Sources]:
    """The same, read from a broker that producers send to all the time."""
    with kafka(directory) as broker:
        read = through(sources, broker.servers)
        topics.create(broker.servers, topics.topics_of(read.sources))
        (directory / "sources.json").write_text(read.to_json())
        command = [sys.executable, "-m", "nova_kafka.produce", str(directory / "sources.json")]
        producer = subprocess.Popen([*command, *(one.source for one in read.sources)])
        try:
            yield read
            assert producer.poll() is None, "the producer has ended"
        finally:
            producer.kill()
            producer.wait()


@pytest.mark.parametrize("transport", ["direct", "kafka"])
def test_planned_broken_off_and_after_a_failure(
    cluster: LocalCluster,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
) -> None:
    made = random_plan(3, nodes=len(NODES))
    flows = sources_of(made.problem, boundary(0))
    flows = replace(flows, count=None, control=str(tmp_path / "orders"))
    if transport == "direct":
        hand_over(cluster, client, tmp_path, monkeypatch, made, flows)
        return
    with sent_to_kafka(flows, tmp_path) as read:
        begin, end = hand_over(cluster, client, tmp_path, monkeypatch, made, read)
        _, tuples = expected(read, begin, end)
        for number, one in enumerate(read.sources):
            mine = tuples.stream == number
            sequence, time_ms, value = read_back(one, begin, end)
            assert sequence.tolist() == tuples.sequence[mine].tolist()
            assert time_ms.tolist() == tuples.time_ms[mine].tolist()
            assert value.tolist() == tuples.value[mine].tolist()


def hand_over(
    cluster: LocalCluster,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: Plan,
    flows: Sources,
) -> tuple[int, int]:
    """Hand over in all ways; the time that was joined, ms since the epoch."""
    one, other, without = (placed(made, node) for node in ([0, 1, 2], [1, 2, 0], [0, 1]))
    # The one that the other transport's test has killed is back.
    cluster.rest.wait_task_managers(NODES, PATIENCE_S)
    jobs, rest, files = Jobs(cluster, client, tmp_path, flows), cluster.rest, LocalFiles()
    ledger = tmp_path / "ledger"
    control = Handover(FlinkJobs(rest), files, ledger)
    first = jobs.deploy(one, "first")
    begin = boundary(500)
    control.first(first, WINDOW_MS, begin)

    # Killed before it was final: sources wait at the boundary, and go on when it is taken back.
    dropped = jobs.deploy(other, "dropped")
    wait_until(lambda: complete_ms(files, first, begin) > begin + WINDOW_MS)
    assert tell(files, first, Order(begin, begin + WINDOW_MS)) is not None  # too late
    with monkeypatch.context() as patch, only_one(ledger):
        patch.setattr(Handover, "settle", killed)
        patch.setattr(Handover, "_agreed", killed)
        with pytest.raises(KeyboardInterrupt):
            control.plan(dropped)
    with pytest.raises(HandoverError, match="has to be settled first"):
        control.plan(dropped)
    at = boundary(1000)
    assert tell(files, first, Order(begin, at)) is None
    time.sleep(1.5)
    assert control.settle() and not control.settle()
    assert rest.job(dropped.job)["state"] == "CANCELED"

    # Killed when it was final: it is finished.
    second = jobs.deploy(other, "second")
    with monkeypatch.context() as patch:
        patch.setattr(Handover, "tell_end", killed)
        with pytest.raises(KeyboardInterrupt):
            control.plan(second)
    assert Handover(FlinkJobs(rest), files, ledger).settle()
    assert rest.job(first.job)["state"] == "FINISHED"

    # Undisturbed, back to the first plan.
    third = jobs.deploy(one, "third")
    control.plan(third)
    time.sleep(1)

    # As if it were far behind: it is ended at once, and what was not complete is joined anew.
    late = jobs.deploy(other, "late", control.incomplete())
    with monkeypatch.context() as patch:
        patch.setattr(FlinkJobs, "behind_ms", 0)
        assert control.plan(late) < now_ms()
    assert rest.job(third.job)["state"] == "CANCELED"
    time.sleep(1)

    # A worker is killed: what was not complete is joined anew.
    with pytest.raises(HandoverError, match="has not failed"):
        control.after_failure(late)
    cluster.kill(NODES[2])
    assert rest.wait_ended(late.job, PATIENCE_S) == "FAILED"
    wait_until(lambda: f"tm-{NODES[2]}" not in rest.task_managers())
    fourth = jobs.deploy(without, "fourth", control.incomplete())
    assert control.after_failure(fourth) < now_ms()

    end = boundary(4000)
    last = Ledger.read(ledger).shares[-1]
    assert tell(files, fourth, Order(last.begin_ms, end)) is None
    assert tell(files, fourth, Order(last.begin_ms, end, committed=True)) is None
    assert rest.wait_ended(fourth.job, PATIENCE_S) == "FINISHED"
    cluster.restart(NODES[2])

    found = Ledger.read(ledger)
    assert [share.job for share in found.shares] == [first, second, third, late, fourth]
    came = [results.read(Path(share.job.results[0][1])) for share in found.shares]
    kept = found.own(came)
    # New jobs begin before the boundary, so that there is something to drop.
    assert sum(map(len, kept)) < sum(map(len, came))
    assert all(len(part) for part in kept)
    streams, tuples = expected(flows, begin, end)
    m = one.problem.matrix
    pairs = list(zip(m.left.tolist(), m.right.tolist(), strict=True))
    reference = Reference(streams, tuples, WINDOW_MS, keys=MATCH.keys, pairs=pairs)
    delivered = [
        Results(
            part["left_source"].astype(np.int64),
            part["left_sequence"],
            part["right_source"].astype(np.int64),
            part["right_sequence"],
            part["time_ms"],
        )
        for part in kept
    ]
    compared = reference.compare(delivered)
    assert compared.ok and compared.expected > 1000, compared
    return begin, end


def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with (
        only_one(ledger),
        pytest.raises(HandoverError, match="another controller uses it"),
        only_one(ledger),
    ):
        pass
    job = ControlledJob("j", "/o", ((0, "a"),), (("a", "/r"),))
    Ledger(WINDOW_MS, (Share(job, 0, 0),)).write(ledger)
    assert Ledger.read(ledger).shares == (Share(job, 0, 0),)
    ledger.write_text("{")
    with pytest.raises(HandoverError.__mro__[1], match="ledger"):
        Ledger.read(ledger)
