"""``nova control`` of a job that reads Kafka, on a virtual rack: a worker is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs_rack import require

from nova_core import place
from nova_core.io.files import write_plan
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import through
from nova_harness.engines.kafka import KafkaDeployment
from nova_harness.experiment.problem import problem_document, problem_of
from nova_kafka import topics
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, read_inventory
from nova_testbed.rack import VirtualRack
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload, measured_by
from nova_workloads.joined_streams import JoinedStreams
from nova_workloads.streams import synthetic

pytestmark = pytest.mark.e2e
INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.25, memory: 512 MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 0.6, memory: 1 GiB}}
  - {{name: left, role: source, cpu: 0.4, memory: 768 MiB}}
  - {{name: right, role: source, cpu: 0.4, memory: 768 MiB}}
  - {{name: near, role: worker}}
  - {{name: far, role: worker}}
  - {{name: broker, role: worker, cpu: 0.5, memory: 768 MiB}}
network: {{rtt_ms: 20}}
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    require()
    file = tmp_path / "rack.yaml"
    file.write_text(INVENTORY.format(name=f"novakafka-{os.getpid()}"))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        with connect(rack.reachable()) as connected:
            yield connected
    finally:
        rack.down()


def test_a_killed_worker(hosts: Hosts, tmp_path: Path) -> None:
    inventory: Inventory = hosts.inventory
    capacity = dict.fromkeys(("hub", "near", "far"), 600.0)
    capacity |= {"left": 10.0, "right": 10.0, "broker": 10.0}
    traffic = Traffic(200, 100, 7)
    workload = DebsWorkload(regions=1)
    document = problem_document(inventory, capacity, workload, traffic, sink_hosts=False)
    problem = problem_of(document, tmp_path / "problem.yaml")
    plan = place(problem, "nova")
    write_plan(plan, tmp_path / "plan.json")
    names = problem.nodes.ids.tolist()
    (first,) = {names[node] for node in plan.instances.node.tolist()}
    kafka = KafkaDeployment(hosts, "broker")
    kafka.up()
    try:
        streams = JoinedStreams(problem, measured_by(problem, synthetic(2, regions=1)), traffic)
        read = through(streams.sources(time.time_ns() // 1_000_000, None), kafka.broker.servers)
        topics.create(kafka.broker.servers, topics.topics_of(read.sources))
        (tmp_path / "sources.json").write_text(read.to_json())
        kafka.produce(flow_of(plan, traffic.match), read)
        (tmp_path / "script.yaml").write_text(
            f"nova_disturbances: 1\nevents: [{{at: 10, what: kill, host: {first}}}]\n"
        )
        command = [sys.executable, "-c", "from nova_core.cli import main; main()", "control", "run"]
        command += ["problem.yaml", "plan.json", "-i", "rack.yaml", "--sources", "sources.json"]
        command += ["--keys", "7"]
        # A busy machine is no lost host.
        command += ["--for", "40", "--disturb", "script.yaml", "--miss-after", "30", "--json"]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, timeout=300)
        assert kafka.complaints() == []
    finally:
        kafka.end_producers()
        kafka.down()
    answer = json.loads(done.stdout)
    log = (tmp_path / "nova-control" / "decisions.jsonl").read_text()
    assert done.returncode == 0 and answer["exact"], (answer, log)
    assert (answer["lost"], answer["doubled"], answer["wrong"]) == (0, 0, 0)
    assert answer["jobs"] >= 2 and answer["expected"] > 5000, log
    assert '"recovered"' in log
