"""Random plans deliver what the reference join must, from where the plan says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from needs import skip_or_fail
from random_plans import NODES as NUMBER
from random_plans import match_of, plan_of, random_plan, seeds, sources_of
from random_queries import START_MS, random_problem, random_query_plan
from random_queries import seeds as query_seeds
from spark_reference import compare

from nova_core.model import Plan, Problem
from nova_engines import results as records
from nova_engines.documents import from_json, write_json
from nova_engines.flow import Flow, Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import READINGS, Source, Sources, through
from nova_harness.commands.cluster import cluster
from nova_kafka import topics
from nova_kafka.broker import local_broker
from nova_kafka.home import broker_home
from nova_spark import realtime, results, tasks
from nova_spark.driver import ENDED, FAILED, FINISHED, FLOWING, READY, State
from nova_spark.engine import SPARK
from nova_spark.extension import kafka_client
from nova_spark.local_cluster import LocalCluster
from nova_spark.rest import Rest
from nova_spark.verification import Record, verify
from nova_workloads.queries.readings import connection, load, write_encoded
from nova_workloads.queries.reference import compare as compare_rows
from nova_workloads.queries.reference import expected

pytestmark = pytest.mark.e2e
NODES = [f"n_{i}.x" for i in range(NUMBER)]
DONE_S = 150.0
# Code that runs for seconds only is not worth optimizing.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass
class Driver:
    """The process that an experiment starts on the sink's host."""

    addresses: dict[str, str]
    orders: Path
    process: subprocess.Popen[bytes]
    numbers: Iterator[int]

    def await_state(self, name: str, *states: str) -> State:
        until = time.monotonic() + DONE_S
        while True:
            file = self.orders / name
            found = from_json(file.read_text(), State, name) if file.exists() else None
            if found is not None and found.state in states:
                return found
            assert found is None or found.state != FAILED, found.why
            assert self.process.poll() is None, (self.orders / "log").read_text()[-2000:]
            assert time.monotonic() < until, found
            time.sleep(0.1)

    def order(self, flow: Flow, sources: Sources) -> tuple[str, Path]:
        """Its state's file, and the directory of results."""
        number = next(self.numbers)
        order = {
            "flow": flow.to_json(),
            "sources": sources.to_json(),
            "results": str(self.orders / f"results-{number}"),
            "checkpoints": str(self.orders / f"state-{number}"),
        }
        unfinished = self.orders / "order.part"
        unfinished.write_text(json.dumps(order))
        unfinished.replace(self.orders / f"{number}.order.json")
        return f"{number}.state.json", self.orders / f"results-{number}"

    def run(
        self, plan: Plan, match: Match, sources: Sources, *states: str
    ) -> tuple[Flow, State, Path]:
        flow = flow_of(plan, match)
        name, directory = self.order(flow, sources)
        return flow, self.await_state(name, *states), directory


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    if not SPARK.installed() and not os.environ.get("CI"):
        skip_or_fail("PySpark and Java are missing: pip install 'nova-placement[spark]'")
    home = broker_home()
    if os.environ.get("CI"):
        home.install()
    client = kafka_client() if home.installed else None
    settings = realtime.settings(512, client, queries=True)
    directory = tmp_path_factory.mktemp("cluster")
    slots = tasks.SLOTS
    with LocalCluster(NODES, directory, python=sys.executable, slots=slots) as cluster:
        settings |= {
            **cluster.settings,
            "spark.driver.extraJavaOptions": f"{QUICK} -Xss8m",
            "spark.executor.extraJavaOptions": QUICK,
        }
        addresses = cluster.configuration.addresses
        orders = tmp_path_factory.mktemp("orders")
        command = [
            *(sys.executable, "-m", "nova_spark.driver", "--directory", str(orders)),
            *("--master", cluster.configuration.master_url, "--set", json.dumps(settings)),
            *("--addresses", json.dumps(addresses)),
        ]
        # What a user's shell says of another Spark must not matter.
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
        with (orders / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        made = Driver(addresses, orders, process, count())
        try:
            made.await_state("driver.json", READY)
            yield made
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("seed", seeds(2))
def test_random_plans_deliver_the_reference_from_their_nodes(
    driver: Driver, tmp_path: Path, seed: int
) -> None:
    plan = plan_of(seed)
    sources = sources_of(plan.problem, 0)
    flow, state, results = driver.run(plan, match_of(seed), sources, FINISHED)
    compared = compare(plan, flow, sources, state.start_ms, results)
    assert compared.ok, compared
    assert compared.expected > 0

    told = driver.await_state("driver.json", READY)
    rest, planned = Rest(told.url, told.application), _nodes(flow)
    found = verify(rest, state.steps, planned)
    assert found.ok, found
    assert len(found.rows) == len(flow.operators)
    assert all(row.actual for row in found.rows)
    record = tmp_path / "record.json"
    write_json(record, Record(told.url, told.application, tuple(state.steps)))
    asked = ["verify", "-e", "spark", "--at", "record", str(record)]
    plain = CliRunner().invoke(cluster, asked)
    assert plain.exit_code == 0, plain.output
    assert "every operator is where the plan has it" in plain.output
    # A wrong expectation is noticed.
    name, node = next(iter(planned.items()))
    other = next(one for one in NODES if one != node)
    wrong = verify(rest, state.steps, {**planned, name: other})
    assert [row.operator for row in wrong.rows if not row.ok] == [name]

    # A plan that leaves nodes out is not blamed for what the one before it ran there.
    alone = random_plan(seed, nodes=1, regions=1)
    assert alone.problem.nodes.ids.tolist() == NODES[:1] != sorted(set(planned.values()))
    one_second = sources_of(alone.problem, 0, seconds=1)
    flow, state, _ = driver.run(alone, Match(100), one_second, FINISHED)
    planned = _nodes(flow)
    found = verify(rest, state.steps, planned, driver.addresses)
    assert found.ok, found
    assert len(found.rows) == len(flow.operators)
    assert all(row.actual for row in found.rows)
    assert not verify(rest, state.steps, planned).ok


# Every query is at least three batches of 5 s.
@pytest.mark.parametrize("seed", query_seeds(2))
def test_random_queries_deliver_the_reference_from_their_nodes(
    driver: Driver, tmp_path: Path, seed: int
) -> None:
    problem = random_problem(seed, tmp_path)
    flow = flow_of(random_query_plan(seed, problem))
    database = connection()
    load(database, problem, tmp_path)
    files = write_encoded(database, problem, tmp_path)
    # As fast as it is taken, or at twice the speed it was read.
    made_of = tuple(Source(one, kind=READINGS, path=file) for one, file in files.items())
    sources = Sources(made_of, first_ms=START_MS, speed=2.0 * (seed % 2))
    name, directory = driver.order(flow, sources)
    state = driver.await_state(name, FINISHED)
    _check_rows(problem, flow, database, directory)
    told = driver.await_state("driver.json", READY)
    placed = verify(Rest(told.url, told.application), state.steps, flow.placement)
    assert placed.ok, placed
    assert len(placed.rows) == len(flow.operators)
    assert all(row.actual for row in placed.rows)


def test_queries_through_kafka(driver: Driver, tmp_path: Path) -> None:
    if not broker_home().installed:
        skip_or_fail("needs Kafka: run `nova engines install kafka`")
    problem = random_problem(21, tmp_path)
    flow = flow_of(random_query_plan(21, problem))
    database = connection()
    load(database, problem, tmp_path)
    files = write_encoded(database, problem, tmp_path)
    streams = dict(zip(problem.sources.ids, problem.sources.stream, strict=True))
    made_of = (Source(a, stream=streams[a], kind=READINGS, path=b) for a, b in files.items())
    with local_broker(tmp_path / "broker") as broker:
        start_ms = int(time.time() * 1000)
        sources = through(Sources(tuple(made_of), start_ms, first_ms=START_MS), broker.servers)
        topics.create(broker.servers, topics.topics_of(sources.sources))
        (tmp_path / "sources.json").write_text(sources.to_json())
        (tmp_path / "flow.json").write_text(flow.to_json())
        produce = [sys.executable, "-m", "nova_kafka.produce", str(tmp_path / "sources.json")]
        produce += [*files, "--flow", str(tmp_path / "flow.json")]
        with subprocess.Popen(produce, stdout=subprocess.DEVNULL) as sending:
            name, directory = driver.order(flow, sources)
            state = driver.await_state(name, FINISHED)
            assert sending.wait(30) == 0
    _check_rows(problem, flow, database, directory)
    told = driver.await_state("driver.json", READY)
    placed = verify(Rest(told.url, told.application), state.steps, flow.placement)
    assert placed.ok, placed


def _check_rows(problem: Problem, flow: Flow, database: Any, directory: Path) -> None:
    """All results of all queries are there, once, and right."""
    written = flow.result_files(str(directory / realtime.ROWS))
    for query, sink in zip(problem.queries, flow.sinks, strict=True):
        assert sink.query == query.id
        found = records.read(Path(written[sink.name]), records.fields_of(sink))
        assert found.loss(finished=True) is None
        compared = compare_rows(expected(database, problem, query), found.rows())
        assert compared.ok, compared
        assert compared.expected > 0


def _nodes(flow: Flow) -> dict[str, str]:
    return {one.name: one.node for one in flow.operators}


@pytest.mark.parametrize("seed", [1, 2])
def test_plans_through_kafka(driver: Driver, tmp_path: Path, seed: int) -> None:
    if not broker_home().installed:
        skip_or_fail("needs Kafka: run `nova engines install kafka`")
    plan = plan_of(seed)
    with local_broker(tmp_path / "broker") as broker:
        start_ms = int(time.time() * 1000)
        sources = through(sources_of(plan.problem, start_ms), broker.servers)
        topics.create(broker.servers, topics.topics_of(sources.sources))
        flow = flow_of(plan, match_of(seed))
        # What is due before Spark is ready waits in the broker.
        (tmp_path / "sources.json").write_text(sources.to_json())
        ids = [one.source for one in sources.sources]
        produce = [sys.executable, "-m", "nova_kafka.produce", str(tmp_path / "sources.json")]
        with subprocess.Popen([*produce, *ids], stdout=subprocess.DEVNULL) as sending:
            name, results = driver.order(flow, sources)
            state = driver.await_state(name, FINISHED)
            assert sending.wait(30) == 0
    compared = compare(plan, flow, sources, start_ms, results)
    assert compared.ok, compared
    assert compared.expected > 0
    assert state.read == dict.fromkeys(ids, sources.count)


@pytest.mark.parametrize("strict", [False, True])
def test_a_message_that_is_no_tuple(driver: Driver, tmp_path: Path, strict: bool) -> None:
    if not broker_home().installed:
        skip_or_fail("needs Kafka: run `nova engines install kafka`")
    from kafka import KafkaProducer

    from nova_kafka.produce import MESSAGE

    plan = random_plan(1, nodes=1, regions=1)
    given = replace(sources_of(plan.problem, 0), strict=strict, count=3)
    with local_broker(tmp_path / "broker") as broker:
        sources = through(given, broker.servers)
        topics.create(broker.servers, topics.topics_of(sources.sources))
        producer = KafkaProducer(bootstrap_servers=broker.servers)
        for one in sources.sources:
            for number in range(3):
                good = MESSAGE.pack(number, 1000, 1.0)
                message = b"short" if number == 1 and one.stream == "pressure" else good
                producer.send(one.topic, message, partition=one.partition, timestamp_ms=1000)
        producer.flush()
        producer.close()
        flow = flow_of(plan, Match(1000))
        name, directory = driver.order(flow, sources)
        if strict:
            with pytest.raises(AssertionError, match="offset 1: 5 bytes are no tuple"):
                driver.await_state(name, FINISHED)
            return
        driver.await_state(name, FINISHED)
    found = results.read(directory / "0")
    assert set(found["left_sequence"].tolist()) == {0, 2}
    assert set(found["right_sequence"].tolist()) == {0, 1, 2}


def test_an_order_that_cannot_run_leaves_the_driver(driver: Driver) -> None:
    plan = random_plan(2, nodes=NUMBER)
    given = sources_of(plan.problem, 0)
    sockets = tuple(replace(one, kind="socket", address="a:1") for one in given.sources)
    _, state, _ = driver.run(plan, match_of(2), replace(given, sources=sockets), FAILED)
    assert "Spark replays, or reads Kafka" in state.why
    assert driver.process.poll() is None


def test_an_order_is_ended(driver: Driver) -> None:
    plan = random_plan(1, nodes=1, regions=1)
    flow = flow_of(plan, match_of(1))
    endless = replace(sources_of(plan.problem, 0), count=None)
    name, _ = driver.order(flow, endless)
    driver.await_state(name, FLOWING)
    (driver.orders / name.replace("state.json", "end")).touch()
    driver.await_state(name, ENDED)
