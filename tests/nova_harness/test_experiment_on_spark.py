"""Where tasks ran, of what Spark answers; it is asked for real in the end-to-end tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from random_plans import random_plan, sources_of

from nova_engines.flow import Match
from nova_engines.flow_of_plan import flow_of
from nova_harness.engines.spark import SparkDeployment, SparkEngine, SparkJob
from nova_spark.driver import FLOWING, READY, State
from nova_spark.pairs import job_of
from nova_spark.verification import Step
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import read_inventory

APPLICATION = "app-20261122122823-0000"
ADDRESSES = {f"n_{i}.x": f"127.194.65.{i + 1}" for i in range(3)}
# Recorded of one driver in Real-Time Mode: a batch of a plan on all three nodes, then one of a plan
# on the first alone. Which executor (its number) ran the tasks of each stage.
EXECUTORS = {"0": "n_2.x", "1": "n_1.x", "2": "n_0.x"}
EARLIER = {9: "22200", 10: "2001", 11: "1"}
LATER = {12: "222", 13: "22", 14: "2"}
# Where the second plan's sources, joins and sink ran.
STAGES = {"source": 12, "join": 13, "sink": 14}


def answers(stages: dict[int, str]) -> dict[str, object]:
    """Documents of the REST interface by path, as far as they are read."""
    found: dict[str, object] = {
        "/allexecutors": [
            {"id": number, "hostPort": f"{ADDRESSES[node]}:35069", "resources": {}}
            for number, node in EXECUTORS.items()
        ],
        "/stages": [
            {
                "stageId": stage,
                "attemptId": 0,
                "status": "COMPLETE",
                "name": "start at NativeMethodAccessorImpl.java:0",
            }
            for stage in stages
        ],
    }
    for stage, ran in stages.items():
        found[f"/stages/{stage}/0/taskList"] = [
            {"index": index, "executorId": executor} for index, executor in enumerate(ran)
        ]
    return found


@pytest.fixture
def told() -> dict[str, object]:
    """What the server answers."""
    return {}


@pytest.fixture
def url(told: dict[str, object]) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            document = told[path.removeprefix(f"/api/v1/applications/{APPLICATION}")]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Told(SparkDeployment):
    """A deployment whose driver's files are here."""

    states: dict[str, State]

    def state(self, name: str) -> State | None:
        return self.states[name]


def job_on_the_first_node(url: str) -> SparkJob:
    found = read_inventory("virtual-8")
    hosts = [
        replace(host, name=name, address=address)
        for host, (name, address) in zip(found.hosts, ADDRESSES.items(), strict=False)
    ]
    deployment = Told(Hosts(replace(found, hosts=tuple(hosts))))
    plan = random_plan(1, nodes=1, regions=1)
    sources = sources_of(plan.problem, 0, seconds=1)
    flow = flow_of(plan, Match(100))
    host = ADDRESSES["n_0.x"]
    tasks = job_of(flow, flow.sinks[0], sources, ADDRESSES).tasks
    steps = tuple(
        Step(name, "n_0.x", (STAGES[part],), task, host) for name, (part, task) in tasks.items()
    )
    deployment.states = {
        "driver.json": State(READY, url=url, application=APPLICATION),
        "0.state.json": State(FLOWING, steps=steps),
    }
    return SparkJob(SparkEngine(deployment), 0, flow, sources)


def test_what_an_earlier_strategy_ran_elsewhere_is_not_held_against_a_later_one(
    told: dict[str, object], url: str
) -> None:
    job = job_on_the_first_node(url)
    told |= answers(EARLIER | LATER)
    placed = job.verify()
    assert placed.ok, placed
    assert [row.actual for row in placed.rows] == ["n_0.x"] * len(job.flow.operators)
    # Its own tasks elsewhere are noticed still.
    told |= answers(EARLIER | LATER | {13: "12"})
    wrong = [row for row in job.verify().rows if not row.ok]
    # Instances of one pair on one node, and what selects for them, are one task.
    assert {row.operator.split("#0")[0].split("#1")[0].split(" ", 1)[1] for row in wrong} == {
        "climate/pressure-0*humidity-1"
    }
    assert {row.actual for row in wrong} == {"n_1.x"}
    # As are tasks on a host that is no node's.
    told["/allexecutors"] = [
        {"id": number, "hostPort": "127.194.66.9:1" if number == "0" else f"{ADDRESSES[node]}:1"}
        for number, node in EXECUTORS.items()
    ]
    told |= {path: what for path, what in answers(EARLIER | LATER).items() if "task" in path}
    assert {row.actual for row in job.verify().rows if not row.ok} == {
        "host 127.194.66.9, n_0.x",
        "host 127.194.66.9, n_0.x, n_1.x",
    }
