"""Streams from outside, over real connections of a replay, joined by a real cluster."""

from __future__ import annotations

import base64
import re
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from needs_flink import SHARED_NODES
from random_plans import random_plan, sources_of
from test_builder_e2e import compare, tuples_of

from nova_engines import results
from nova_engines.flow import Flow, Match, Operator
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import Source, Sources
from nova_flink.client import Client
from nova_flink.local_cluster import LocalCluster
from nova_flink.verification import verify
from nova_workloads.outputs import Target
from nova_workloads.replay import Lane, Replay
from nova_workloads.schedule import Schedule
from nova_workloads.streams import Stream
from nova_workloads.tuple_text import TupleText

pytestmark = pytest.mark.e2e
HOST = "127.0.0.1"
NODES = SHARED_NODES[:3]
DONE_S = 120


def reserved() -> socket.socket:
    """A port that nobody else gets and that refuses connections."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, 0))
    return held


class Server(threading.Thread):
    """What `nova workload replay --to tcp-listen://...` does for one stream."""

    def __init__(self, port: int, stream: Stream, schedule: Schedule) -> None:
        super().__init__(daemon=True)
        self.port, self.stream, self.schedule = port, stream, schedule
        self.sent = 0

    def run(self) -> None:
        target = Target.parse(f"tcp-listen://{HOST}:{self.port}")
        (output,) = target.open([""], [""], 60, lambda _: None)
        lane = Lane("", [self.stream], output, TupleText([self.stream], "csv"))
        summary = Replay([lane], self.schedule).run(self.schedule.start_ms)
        assert summary.error is None
        self.sent = summary.total.tuples


def test_flink_joins_what_comes_over_sockets(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    plan = random_plan(1, nodes=3, regions=1)
    assert len(plan.instances) > len(plan.problem.matrix.left)  # some pair is cut
    start = (int(time.time()) + 4) * 1000
    given = sources_of(plan.problem, start, seconds=3)
    held = [reserved() for _ in given.sources]
    ports = [one.getsockname()[1] for one in held]
    there = tuple(
        replace(one, kind="socket", address=f"{HOST}:{port}")
        for one, port in zip(given.sources, ports, strict=True)
    )
    sources = replace(given, sources=there)
    flow = flow_of(plan, Match(50))
    file = tmp_path / "results"
    job = client.submit(flow, sources, file, "sockets")
    until = time.monotonic() + DONE_S
    # Nobody listens yet: sources run and try again.
    while not (placed := verify(cluster.rest, job, flow)).ok:
        assert time.monotonic() < until, placed
        time.sleep(0.2)
    for one in held:
        one.close()
    streams, _ = tuples_of(sources)
    servers = [
        Server(port, stream, Schedule(rate=one.rate, start_ms=start, count=sources.count))
        for port, stream, one in zip(ports, streams, sources.sources, strict=True)
    ]
    for server in servers:
        server.start()
    while (state := cluster.rest.job(job)["state"]) not in ("FINISHED", "FAILED"):
        assert time.monotonic() < until, state
        time.sleep(0.2)
    assert state == "FINISHED", cluster.rest.exceptions(job)
    for server in servers:
        server.join(30)
        assert server.sent == sources.count

    compared = compare(plan, flow, sources, file)
    assert compared.ok, compared
    assert compared.expected > 0
    # Nothing is read before it is sent.
    assert (results.read(file)["waited_us"] > 0).all()


SENSOR = "p, 1"  # quoted in CSV
LINE = b'"p, 1",r,pressure,%d,%d,-1.5e-05,0|2,1700000000000000\n'


def reading(address: str, count: int | None, *, strict: bool = False) -> tuple[Flow, Sources]:
    """A job that reads and does nothing else."""
    stream = Source("one", 1.0, SENSOR, "pressure", kind="socket", address=address, connect_s=1.0)
    flow = Flow((Operator("source one", NODES[1], "source", source="one"),))
    return flow, Sources((stream,), count=count, strict=strict)


@pytest.mark.parametrize("count", [3, None])
def test_a_connection_that_ends_is_made_again(
    cluster: LocalCluster, client: Client, tmp_path: Path, count: int | None
) -> None:
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(DONE_S)
        address = f"{HOST}:{listener.getsockname()[1]}"
        job = client.submit(*reading(address, count), tmp_path / "results", "again")
        first, _ = listener.accept()
        with first:
            first.sendall(LINE % (0, 10) + LINE % (1, 20))
        connection, _ = listener.accept()
        connection.settimeout(DONE_S)
        connection.sendall(LINE % (2, 30))
        if count is None:
            # Nothing comes any more, and it waits.
            time.sleep(0.5)
            assert cluster.rest.job(job)["state"] == "RUNNING"
            assert cluster.rest.cancel(job) == "CANCELED"
        else:
            assert cluster.rest.wait_ended(job, DONE_S) == "FINISHED"
        # The reader has left.
        with connection:
            assert connection.recv(1) == b""


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (None, r"cannot connect for 1\.0 s: .*Connection refused; 0 of 3 tuples came"),
        (LINE % (0, 10), r"cannot connect for 1\.0 s: .*; 1 of 3 tuples came"),
        (LINE % (0, 10) + b"p1,r,pressure,1,11\n", "line 2: no tuple: 'p1,r,pressure,1,11'"),
        (LINE % (0, 10) + b"x,r,humidity,0,10,1.0,1\n", r"line 2: a tuple of 'x' \(humidity\)"),
        (LINE % (0, 10) + LINE[:-2] % (1, 11), "line 2 is cut short"),
        (LINE % (0, 120) + LINE % (1, 99), "line 2: time_ms 99: its window has ended"),
    ],
    ids=["refused", "left", "garbage", "other", "cut", "late"],
)
def test_what_is_wrong_fails_a_strict_job(
    cluster: LocalCluster, client: Client, tmp_path: Path, sent: bytes | None, complaint: str
) -> None:
    held = reserved()
    address = f"{HOST}:{held.getsockname()[1]}"
    if sent is not None:
        held.listen()
        threading.Thread(target=send_once, args=(held, sent), daemon=True).start()
    job = client.submit(*reading(address, count=3, strict=True), tmp_path / "results", "wrong")
    assert cluster.rest.wait_ended(job, DONE_S) == "FAILED"
    told = "; ".join(cluster.rest.exceptions(job))
    held.close()
    assert re.search(rf"source of 'p, 1' \(pressure\): {address}: {complaint}", told), told


def test_what_is_no_tuple_is_kept_aside(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    wrong = {
        b"\xff\x00p1,r,pressure,1,11": "line 2: no tuple",
        b"x,r,humidity,0,10,1.0,1": "line 3: a tuple of 'x' (humidity)",
        LINE[:-1] % (1, 5): "line 5: time_ms 5: its window has ended",
        b"x" * 70_000: "line 6 is longer than 65536 bytes",
    }
    lines = [one + b"\n" for one in wrong]
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(DONE_S)
        address = f"{HOST}:{listener.getsockname()[1]}"
        job = client.submit(*reading(address, count=7), tmp_path / "results", "aside")
        first, _ = listener.accept()
        with first:
            first.sendall(LINE % (0, 10) + b"".join(lines[:2]) + LINE % (1, 120))
            # The last one is cut short: it has not come.
            first.sendall(b"".join(lines[2:]) + (LINE % (2, 130))[:-3])
        second, _ = listener.accept()
        with second:
            second.sendall(LINE % (2, 130))
            assert cluster.rest.wait_ended(job, DONE_S) == "FINISHED"
    (file,) = cluster.directory.glob(f"node*/log/dead-letters/{job}.0")
    kept = [line.split("\t") for line in file.read_text().splitlines()]
    assert len(kept) == len(wrong) + 1
    for (reason, letter), (data, expected) in zip(kept, wrong.items(), strict=False):
        assert f"source of 'p, 1' (pressure): {address}: {expected}" in reason
        assert base64.b64decode(letter) == data[: 1 << 16]
    assert kept[-1][0].endswith("line 7 is cut short")
    # The second time it came in full.
    assert base64.b64decode(kept[-1][1]) == (LINE % (2, 130))[:-3]


def send_once(listener: socket.socket, data: bytes) -> None:
    """Serve one reader, and nobody after it."""
    connection, _ = listener.accept()
    listener.close()
    with connection:
        connection.sendall(data)
