"""A SQL script over Kafka, unmodified: one table's partitions are read on several nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from needs_kafka import kafka
from own_jobs_material import (
    OwnClient,
    Service,
    cluster_of_others,
    joined,
    joining,
    readings,
    written,
)

from nova_flink import own_jobs
from nova_flink.local_cluster import LocalCluster
from nova_flink.rest import ENDED
from nova_kafka import topics
from nova_kafka.broker import Broker
from nova_kafka.home import connectors_home

pytestmark = pytest.mark.e2e
NODES = """\
nova: 1
name: field
nodes:
  - {id: hill, capacity: 10, position: [-60, 60]}
  - {id: shore, capacity: 10, position: [-55, 20]}
  - {id: barn, capacity: 160, position: [-30, 40]}
  - {id: mill, capacity: 160, position: [-28, 30]}
  - {id: hub, capacity: 210, position: [0, 0], worker: false}
"""
MAPPING = """\
sources:
  pressure: {partitions: {hill: [0], shore: [1, 2]}, rate: 150}
  humidity: {node: hub, rate: 50}
sinks: {"*": hub}
"""
PARTITIONS = {"pressure": 3, "humidity": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory, jars = tmp_path_factory.mktemp("cluster"), connectors_home().jars
    with cluster_of_others(directory, extra_jars=jars) as running:
        yield running


def send(broker: Broker, files: dict[str, Path]) -> dict[str, str]:
    """Put tuples into topics, in turn into their partitions; the tables' options."""
    from kafka import KafkaProducer

    topics.create(broker.servers, PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=broker.servers)
    for side, file in files.items():
        for number, line in enumerate(file.read_text().splitlines()):
            producer.send(side, line.encode(), partition=number % PARTITIONS[side])
    producer.flush()
    producer.close()
    return {
        side: f"""'connector' = 'kafka', 'topic' = '{side}',
            'properties.bootstrap.servers' = '{broker.servers}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"""
        for side in files
    }


def test_partitions_of_a_table_are_read_where_they_are_mapped(
    broker: Broker, cluster: LocalCluster, tmp_path: Path
) -> None:
    client = OwnClient(cluster.home, cluster.rest.url, tmp_path / "client", connectors_home().jars)
    files = readings(tmp_path, 3000)
    where = send(broker, files)
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    scripts = {"whole": ("nova.plan", "none"), "parts": ("nova.mapping", "mapping.yaml")}
    with Service(tmp_path / "service") as service:
        tasks = {}
        for name, (key, value) in scripts.items():
            (tmp_path / f"{name}.sql").write_text(joining(where, tmp_path / name))
            more = {key: str(tmp_path / value) if key == "nova.mapping" else value}
            tasks[name] = ["sql-client", *settings(service, tmp_path, more)]
            tasks[name] += ["-f", str(tmp_path / f"{name}.sql")]
        said = client.submit(tasks, timeout_s=600)
    reference = joined(files)
    assert len(reference) > 1000
    for name in scripts:
        assert said[name].startswith("0\n"), said[name]
        assert written(tmp_path / name) == reference, name

    assert all(told["state"] in ENDED for told in cluster.rest.jobs().values())
    where_steps = [
        {
            step: node
            for part in own_jobs.parts(cluster.rest, job)
            for step, node in part.steps.items()
        }
        for job in cluster.rest.jobs()
    ]
    (placed,) = (steps for steps in where_steps if any(steps.values()))
    assert {step: node for step, node in placed.items() if step in ("pressure", "pressure-2")} == {
        "pressure": "hill",
        "pressure-2": "shore",
    }
    # The join of each part is on nodes of its own.
    pieces = {node for step, node in placed.items() if "#" in step}
    assert {"barn", "mill"} <= pieces, placed


def settings(service: Service, folder: Path, more: dict[str, str]) -> list[str]:
    told = {"nova.service": service.url, "nova.nodes": str(folder / "nodes.yaml")} | more
    return [f"-D{key}={value}" for key, value in told.items()]
