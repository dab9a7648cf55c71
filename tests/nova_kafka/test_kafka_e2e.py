"""A real broker between real producers and engines: nothing is lost, and waiting is measured."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from needs_flink import SHARED_ARGUMENTS, require
from needs_kafka import kafka
from random_plans import random_plan, sources_of
from random_queries import START_MS, random_problem, random_query_plan, seeds
from test_builder_e2e import compare

from nova_core.errors import NovaError
from nova_engines import results
from nova_engines.flow import Flow, Operator
from nova_engines.flow_of_plan import flow_of
from nova_engines.results import read
from nova_engines.sources import READINGS, Source, Sources, partitions_of
from nova_engines.sources import through as through_broker
from nova_flink.client import Client
from nova_flink.home import FlinkHome
from nova_flink.local_cluster import LocalCluster
from nova_flink.translate import translate
from nova_flink.verification import verify
from nova_kafka import topics
from nova_kafka.broker import Broker
from nova_kafka.home import connectors_home
from nova_kafka.measures import Sample, back_pressure, end_offsets, latencies
from nova_kafka.messages import read_back
from nova_kafka.produce import MESSAGE
from nova_workloads.queries.readings import connection, load, write_encoded
from nova_workloads.queries.reference import compare as compare_rows
from nova_workloads.queries.reference import expected

pytestmark = pytest.mark.e2e
NODES = [f"n_{i}.x" for i in range(3)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    home = FlinkHome.default()
    require(home)
    directory = tmp_path_factory.mktemp("cluster")
    jars = connectors_home().jars
    with LocalCluster(home, NODES, directory, extra_jars=jars, **SHARED_ARGUMENTS) as running:
        yield running


def through(broker: Broker, sources: Sources, prefix: str) -> Sources:
    """The same streams, from Kafka; topics are made."""
    names = {
        one.source: (f"{prefix}-{topic}", number)
        for one, (topic, number) in zip(
            sources.sources,
            partitions_of([one.stream for one in sources.sources]),
            strict=True,
        )
    }
    made = through_broker(sources, broker.servers, names)
    topics.create(broker.servers, topics.topics_of(made.sources))
    return made


@pytest.mark.parametrize("strict", [False, True])
def test_a_message_that_is_no_tuple(
    broker: Broker, cluster: LocalCluster, tmp_path: Path, strict: bool
) -> None:
    from kafka import KafkaProducer

    topic = f"unreadable-{strict}"
    topics.create(broker.servers, {topic: 1})
    wrong = [b"", b"short", MESSAGE.pack(-1, 0, 0.0), MESSAGE.pack(0, 0, 0.0) + b"x"]
    producer = KafkaProducer(bootstrap_servers=broker.servers)
    for number, message in enumerate([*wrong, MESSAGE.pack(0, 0, 1.0), MESSAGE.pack(1, 0, 1.0)]):
        producer.send(topic, message, partition=0, timestamp_ms=1000 + number)
    producer.flush()
    producer.close()
    stream = Source("one", 1.0, kind="kafka", address=broker.servers, topic=topic)
    sources = Sources((stream,), count=6, strict=strict)
    flow = Flow((Operator("source one", NODES[1], "source", source="one"),))
    with Client(cluster.home, cluster.rest.url, connectors_home().jars) as client:
        job = client.submit(flow, sources, tmp_path / "results", "unreadable")
        state = cluster.rest.wait_ended(job, 60)
    found = list(cluster.directory.glob(f"node*/log/dead-letters/{job}.0"))
    if strict:
        assert state == "FAILED" and found == []
        assert "a message of 0 bytes: a tuple has 24" in "; ".join(cluster.rest.exceptions(job))
        return
    assert state == "FINISHED", cluster.rest.exceptions(job)
    assert [part.tolist() for part in read_back(stream, 1000, 1005)] == [[0], [1004], [1.0]]
    letters = [line.split("\t") for line in found[0].read_text().splitlines()]
    assert [base64.b64decode(letter) for _, letter in letters] == wrong
    assert [reason for reason, _ in letters] == [
        "a message of 0 bytes: a tuple has 24",
        "a message of 5 bytes: a tuple has 24",
        "sequence number -1: a tuple's is 0 or more",
        "a message of 25 bytes: a tuple has 24",
    ]


def test_reading_begins_where_it_is_to(
    broker: Broker, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Messages that are no tuples tell by their dead letters which have been read."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = "begins"
    topics.create(broker.servers, {topic: 1})
    producer = KafkaProducer(bootstrap_servers=broker.servers)

    def send(message: bytes, at: int) -> None:
        producer.send(topic, message, partition=0, timestamp_ms=at)
        producer.flush()

    def letters(until: int, **where: str) -> list[bytes]:
        """Dead letters of a job that reads up to an offset, or commits it."""
        stream = Source("one", 1.0, kind="kafka", address=broker.servers, topic=topic)
        given = Sources((replace(stream, **where),))
        sources = given if "group" in where else replace(given, count=until)
        flow = Flow((Operator("source one", NODES[1], "source", source="one"),))
        with Client(cluster.home, cluster.rest.url, connectors_home().jars) as client:
            job = client.submit(flow, sources, tmp_path / "results", "begins")
        if "group" in where:
            late = time.monotonic() + 60
            reader = KafkaConsumer(bootstrap_servers=broker.servers, group_id=where["group"])
            while reader.committed(TopicPartition(topic, 0)) != until:
                assert time.monotonic() < late, cluster.rest.exceptions(job)
                time.sleep(0.2)
            reader.close()
            cluster.rest.cancel(job)
        else:
            state = cluster.rest.wait_ended(job, 60)
            assert state == "FINISHED", cluster.rest.exceptions(job)
        found = cluster.directory.glob(f"node*/log/dead-letters/{job}.0")
        lines = [line for file in found for line in file.read_text().splitlines()]
        return [base64.b64decode(line.split("\t")[1]) for line in lines]

    send(b"first", 1000)
    send(b"second", 2000)
    send(MESSAGE.pack(0, 0, 1.0), 3000)
    assert letters(3) == [b"first", b"second"]
    assert letters(3, begin="1500") == [b"second"]
    # Nothing is committed yet: from the first message on.
    again = {"begin": "committed", "group": "readers"}
    assert letters(3, **again) == [b"first", b"second"]
    send(b"third", 4000)
    send(MESSAGE.pack(1, 0, 1.0), 5000)
    assert letters(5, **again) == [b"third"]
    assert letters(5, begin="latest") == []
    producer.close()


def test_flink_joins_what_comes_through_kafka(
    broker: Broker, cluster: LocalCluster, tmp_path: Path
) -> None:
    plan = random_plan(1, nodes=3, regions=1)
    # About when the job runs: what is due before waits in the broker. A job that came late to
    # shorter streams would have read all before it tells how far.
    start = (int(time.time()) + 3) * 1000
    given = sources_of(plan.problem, start, seconds=14)
    # As `nova translate` writes it.
    (tmp_path / "given.json").write_text(given.to_json())
    written = {"sources": tmp_path / "given.json", "kafka": broker.servers, "window_ms": 50}
    translate(plan, plan.problem, tmp_path / "made", **written)
    job_file = tmp_path / "made" / "job" / "sources.json"
    sources = Sources.read(job_file)
    flow = Flow.read(job_file.with_name("flow.json"))
    topics.create(broker.servers, topics.topics_of(sources.sources))
    file = tmp_path / "results"
    ids = [one.source for one in sources.sources]
    samples = []
    with Client(cluster.home, cluster.rest.url, connectors_home().jars) as client:
        producer = subprocess.Popen(
            [sys.executable, "-m", "nova_kafka.produce", job_file, *ids],
            stdout=subprocess.PIPE,
            text=True,
        )
        job = client.submit(flow, sources, file, "kafka")
    partitions = [(one.topic, one.partition) for one in sources.sources]
    placed = None
    until = time.monotonic() + 60
    while (state := cluster.rest.job(job)["state"]) not in ("FINISHED", "FAILED"):
        assert time.monotonic() < until, state
        read = cluster.rest.read_offsets(job)
        samples.append(Sample(time.monotonic(), end_offsets(broker.servers, partitions), read))
        if placed is None or not placed.ok:
            placed = verify(cluster.rest, job, flow)
        time.sleep(0.3)
    assert state == "FINISHED", cluster.rest.exceptions(job)
    assert sources.count is not None
    told, _ = producer.communicate(timeout=30)
    assert int(told) == len(ids) * sources.count
    # All the engine's own account: where operators ran.
    assert placed is not None
    assert placed.ok, placed

    compared = compare(plan, flow, sources, file)
    assert compared.ok, compared
    assert compared.expected > 0

    found = results.read(file)
    produced = np.minimum(found["left_emit_us"], found["right_emit_us"])
    measured = latencies(produced, found["arrive_us"], found["waited_us"])
    assert (measured.processing > 0).all()
    # Nothing is read before it is produced, and some waited while the job was being submitted.
    assert (found["waited_us"] > 0).all()
    assert (measured.end_to_end > measured.processing).all()
    assert measured.end_to_end.max() - measured.processing.min() > 1000

    # The broker's account: everything came, and the engine told of offsets up to the last.
    assert end_offsets(broker.servers, partitions) == dict.fromkeys(partitions, sources.count)
    assert all(s.backlog(p) <= sources.count for s in samples for p in partitions)
    assert any(s.read.get(p, 0) > 0 for s in samples for p in partitions)


@pytest.mark.parametrize("seed", seeds(1))
def test_flink_runs_queries_over_what_comes_through_kafka(
    broker: Broker, cluster: LocalCluster, tmp_path: Path, seed: int
) -> None:
    problem = random_problem(seed, tmp_path)
    plan = random_query_plan(seed, problem)
    database = connection()
    load(database, problem, tmp_path)
    files = write_encoded(database, problem, tmp_path)
    readings = Sources(
        tuple(
            Source(one, stream=f"stream-{number}", kind=READINGS, path=file)
            for number, (one, file) in enumerate(files.items())
        ),
        (int(time.time()) + 3) * 1000,
        first_ms=START_MS,
    )
    sources, flow = through(broker, readings, f"rows-{seed}"), flow_of(plan)
    (tmp_path / "sources.json").write_text(sources.to_json())
    (tmp_path / "flow.json").write_text(flow.to_json())
    command = [sys.executable, "-m", "nova_kafka.produce", "sources.json", *files]
    command += ["--flow", "flow.json"]
    with Client(cluster.home, cluster.rest.url, connectors_home().jars) as client:
        producer = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        job = client.submit(flow, sources, tmp_path / "results", "rows")
    state = cluster.rest.wait_ended(job, 90)
    assert state == "FINISHED", cluster.rest.exceptions(job)
    told, _ = producer.communicate(timeout=30)
    partitions = [(one.topic, one.partition) for one in sources.sources]
    assert int(told) == sum(end_offsets(broker.servers, partitions).values()) > 0
    seen = verify(cluster.rest, job, flow)
    assert seen.ok, [row for row in seen.rows if not row.ok]
    paths = flow.result_files(str(tmp_path / "results"))
    for one in flow.sinks:
        query = next(q for q in problem.queries if q.id == one.query)
        rows = read(Path(paths[one.name])).rows()
        compared = compare_rows(expected(database, problem, query), rows)
        assert compared.ok, compared


def test_a_message_that_is_no_row(broker: Broker, cluster: LocalCluster, tmp_path: Path) -> None:
    """Without a file, a source does not know how many there are, and reads what there is."""
    from kafka import KafkaProducer

    problem = random_problem(5, tmp_path)
    source = flow_of(random_query_plan(5, problem)).of_kind("source")[0]
    stream = Source(
        source.source, kind="kafka", address=broker.servers, topic="unreadable-rows", partition=0
    )
    sources = Sources((stream,), (int(time.time()) + 3) * 1000, first_ms=START_MS)
    topics.create(broker.servers, {"unreadable-rows": 1})
    wrong = [b"", b"short", b"x" * 8]
    sender = KafkaProducer(bootstrap_servers=broker.servers)
    for message in wrong:
        sender.send("unreadable-rows", message, partition=0)
    sender.flush()
    sender.close()
    alone = Flow((source, Operator("relay", source.node, "relay", (source.name,))))
    with Client(cluster.home, cluster.rest.url, connectors_home().jars) as client:
        job = client.submit(alone, sources, tmp_path / "none", "unreadable")
    until = time.monotonic() + 60
    letters: list[str] = []
    while len(letters) < len(wrong):
        assert time.monotonic() < until, cluster.rest.exceptions(job)
        time.sleep(0.3)
        found = cluster.directory.glob(f"node*/log/dead-letters/{job}.0")
        letters = [line for file in found for line in file.read_text().splitlines()]
    cluster.rest.cancel(job)
    assert [base64.b64decode(line.split("\t")[1]) for line in letters] == wrong
    count = len(source.types)
    reasons = [f"a message of {len(one)} bytes: no tuple of {count} columns" for one in wrong]
    assert [line.split("\t")[0] for line in letters] == reasons


def test_a_reader_that_does_not_keep_up_is_back_pressure(broker: Broker) -> None:
    """500 tuples/s come and a consumer takes 200 of them."""
    from kafka import KafkaConsumer, TopicPartition

    problem = random_plan(1, nodes=3, regions=1).problem
    given = sources_of(problem, int(time.time() * 1000), seconds=30)
    given = replace(given, sources=(replace(given.sources[0], rate=500.0),), count=2000)
    sources = through(broker, given, "slow")
    one = sources.sources[0]
    partition = (one.topic, one.partition)
    samples = []
    consumer = KafkaConsumer(bootstrap_servers=broker.servers, max_poll_records=50)
    try:
        consumer.assign([TopicPartition(*partition)])
        consumer.seek_to_beginning()
        sending = subprocess.Popen(
            [sys.executable, "-c", SENDS, sources.to_json(), one.source], stdout=subprocess.DEVNULL
        )
        while end_offsets(broker.servers, [partition])[partition] == 0:
            assert sending.poll() is None
        begin = time.monotonic()
        while sending.poll() is None and time.monotonic() < begin + 2.8:
            time.sleep(0.25)
            consumer.poll(timeout_ms=100)
            read = {partition: consumer.position(TopicPartition(*partition))}
            now = time.monotonic()
            samples.append(Sample(now, end_offsets(broker.servers, [partition]), read))
        assert sending.wait(30) == 0
    finally:
        consumer.close()
    found = back_pressure(samples)
    assert found.occurred
    assert found.rate == pytest.approx(300, abs=150)
    assert np.isclose(found.arrivals[partition], 500, atol=150)


SENDS = """
import sys
from nova_engines.sources import Sources
from nova_kafka.produce import produce
produce(Sources.from_json(sys.argv[1]), sys.argv[2:])
"""


def test_what_the_broker_refuses_is_said(broker: Broker) -> None:
    topics.create(broker.servers, {"twice": 1})
    with pytest.raises(NovaError, match=r"topics twice: .*already exists"):
        topics.create(broker.servers, {"twice": 1})
    with pytest.raises(NovaError, match="does not answer after 1 s"):
        topics.wait_ready("127.0.0.1:9", 1)
