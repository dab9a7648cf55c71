"""Random plans on a real cluster deliver what the reference join must, from where the plan says."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from needs import skip_or_fail
from random_plans import flowing, plan_of, random_plan, seeds, workload_of

from nova_core.errors import NovaError
from nova_core.model import Plan
from nova_engines.workload import Workload
from nova_harness.commands.cluster import cluster
from nova_kafka import topics
from nova_kafka.broker import local_broker
from nova_kafka.home import broker_home
from nova_kafka.produce import produce
from nova_spark import results
from nova_spark.engine import SPARK
from nova_spark.flow import Flow, from_plan
from nova_spark.job import run, write_record
from nova_spark.local_cluster import LocalCluster
from nova_spark.place import Placement, PlacementError
from nova_spark.rest import Rest
from nova_spark.session import session
from nova_spark.streaming_join import StreamingJoin
from nova_spark.verification import Record, Step, verify
from nova_workloads.reference import Comparison, Reference, Results
from nova_workloads.schedule import Schedule, Tuples, all_tuples
from nova_workloads.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.e2e
NODES = [f"n_{i}.x" for i in range(3)]
# Code that runs for seconds only is not worth optimizing.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass
class Running:
    spark: SparkSession
    rest: Rest
    master: str

    def placement(self) -> Placement:
        return Placement(self.spark, slots=2)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if not SPARK.installed() and not os.environ.get("CI"):
        skip_or_fail("PySpark and Java are missing: pip install 'nova-placement[spark]'")
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(NODES, directory, python=sys.executable, slots=2) as cluster:
        settings = {
            **cluster.settings,
            "spark.driver.extraJavaOptions": f"{QUICK} -Xss8m",
            "spark.executor.extraJavaOptions": QUICK,
        }
        with session(cluster.configuration.master_url, settings) as spark:
            url, application = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
            rest = Rest(str(url), str(application))
            made = Running(spark, rest, cluster.configuration.master_url)
            made.placement().ready(NODES)
            yield made


def tuples_of(workload: Workload, start_ms: int) -> tuple[list[Stream], Tuples]:
    """What the sources must emit, by the reference's own schedule."""
    streams, blocks = [], []
    for number, one in enumerate(workload.sources):
        value = np.array(one.values)
        stream = Stream(one.sensor, one.region, one.stream, np.arange(len(value)), value)
        schedule = Schedule(rate=one.rate, start_ms=start_ms, count=workload.count)
        emitted = all_tuples(schedule, [stream])
        streams.append(stream)
        blocks.append((np.full(len(emitted), number), emitted))
    return streams, Tuples(
        np.concatenate([number for number, _ in blocks]),
        *(
            np.concatenate([getattr(emitted, name) for _, emitted in blocks])
            for name in ("sequence", "time_ms", "value", "due")
        ),
    )


def compare(
    plan: Plan,
    flow: Flow,
    workload: Workload,
    start_ms: int,
    directory: Path,
    *,
    on_time: bool = True,
) -> Comparison:
    """All that was delivered against the reference; every field of a result is looked at."""
    p = plan.problem
    streams, tuples = tuples_of(workload, start_ms)
    pairs = list(zip(p.matrix.left.tolist(), p.matrix.right.tolist(), strict=True))
    reference = Reference(
        streams,
        tuples,
        workload.window_ms,
        keys=workload.keys,
        every=workload.every,
        pairs=pairs,
    )
    delivered = []
    for number, sink in enumerate(flow.sinks):
        r = results.read(directory / str(number))
        pair = plan.instances.pair[r["instance"]]
        assert set(p.nodes.ids[p.sink_node[pair]].tolist()) <= {sink.node}
        assert (r["left_source"] == p.matrix.left[pair]).all()
        assert (r["right_source"] == p.matrix.right[pair]).all()
        if workload.sources[0].kind == "replay":
            assert (r["waited_us"] == 0).all()
        else:
            assert (r["waited_us"] > 0).all()
        for side in ("left", "right"):
            source, sequence = r[f"{side}_source"], r[f"{side}_sequence"]
            assert (r[f"{side}_value"] == 1000 * source + sequence % 7).all()
            rate = np.array([one.rate for one in workload.sources])[source]
            due = start_ms * 1000 + np.floor(sequence * 1e6 / rate)
            # Micro-batches take a tuple as emitted when due; others emit as soon as they can.
            late = r[f"{side}_emit_us"] - due
            replayed = workload.sources[0].kind == "replay"
            assert (late == 0 if replayed and on_time else late >= 0).all()
            assert (r[f"{side}_emit_us"] <= r["arrive_us"]).all()
        delivered.append(
            Results(
                r["left_source"].astype(np.int64),
                r["left_sequence"],
                r["right_source"].astype(np.int64),
                r["right_sequence"],
                r["window_ms"],
            )
        )
    return reference.compare(delivered)


@pytest.mark.parametrize("seed", seeds(2))
def test_random_plans_deliver_the_reference_from_their_nodes(
    running: Running, tmp_path: Path, seed: int
) -> None:
    plan = plan_of(seed)
    workload = flowing(seed, plan.problem, 0)
    flow = from_plan(plan, plan.problem, workload)
    placement = running.placement()
    join = StreamingJoin(
        placement, flow, workload, str(tmp_path / "results"), str(tmp_path / "state")
    )
    try:
        join.prepare()
        # Half of what is to come is due at once, the other half while the job runs.
        start_ms = int(time.time() * 1000) - 1000
        join.begin(start_ms)
        join.wait(60)
    finally:
        join.stop()
    compared = compare(plan, flow, workload, start_ms, tmp_path / "results")
    assert compared.ok, compared
    assert compared.expected > 0

    record = tmp_path / "record.json"
    write_record(record, placement)
    steps = Record.read(record).steps
    planned = {stage.name: stage.node for stage in flow.stages}
    found = verify(running.rest, steps, planned)
    assert found.ok, found
    assert len(found.rows) == len(flow.stages)
    assert all(row.actual for row in found.rows)
    # A wrong expectation is noticed, as is a step that never was and one nobody planned.
    name, node = next(iter(planned.items()))
    other = next(one for one in NODES if one != node)
    wrong = verify(running.rest, steps, {**planned, name: other, "join x": other})
    assert [row.operator for row in wrong.rows if not row.ok] == [name, "join x"]
    del planned[name]
    assert [r.operator for r in verify(running.rest, steps, planned).rows if not r.ok] == [name]


def test_a_plan_through_kafka(running: Running, tmp_path: Path) -> None:
    home = broker_home()
    if not home.installed and not os.environ.get("CI"):
        pytest.skip("needs Kafka: run `nova engines install kafka`")
    home.install()
    plan = plan_of(1)
    placement = running.placement()
    with local_broker(tmp_path / "broker") as broker:
        # What is due before Spark is ready waits in the broker.
        start_ms = int(time.time() * 1000)
        given = flowing(1, plan.problem, start_ms)
        placed = topics.partitions_of([one.stream for one in given.sources])
        sources = tuple(
            replace(one, kind="kafka", address=broker.servers, topic=topic, partition=number)
            for one, (topic, number) in zip(given.sources, placed, strict=True)
        )
        workload = replace(given, sources=sources)
        topics.create(broker.servers, topics.topics_of(sources))
        flow = from_plan(plan, plan.problem, workload)
        directories = str(tmp_path / "results"), str(tmp_path / "state")
        join = StreamingJoin(placement, flow, workload, *directories)
        sending = threading.Thread(target=produce, args=(workload, [s.source for s in sources]))
        sending.start()
        try:
            join.prepare()
            join.begin()
            join.wait(60)
        finally:
            join.stop()
            sending.join()
    compared = compare(plan, flow, workload, start_ms, tmp_path / "results")
    assert compared.ok, compared
    assert compared.expected > 0
    record = tmp_path / "record.json"
    write_record(record, placement)
    planned = {stage.name: stage.node for stage in flow.stages}
    assert verify(running.rest, Record.read(record).steps, planned).ok


def test_parts_of_a_batch_job_run_where_they_are_placed(running: Running, tmp_path: Path) -> None:
    spark, placement = running.spark, running.placement()
    left = placement.place(spark.range(0, 1000, 1, 3), NODES[1], "left")
    right = placement.place(spark.range(500, 1500, 1, 2), NODES[2], "right")
    joined = placement.place(left.join(right.hint("shuffle_hash"), "id"), NODES[0], "joined")
    moved = placement.move(joined, NODES[2], "moved")
    both = placement.place(placement.union([moved, joined]), NODES[1], "both")
    assert both.count() == 1000
    names = ["left", "right", "joined", "moved", "both"]
    record = tmp_path / "record.json"
    write_record(record, placement)
    found = verify(running.rest, Record.read(record).steps)
    assert found.ok, found
    assert {row.operator: row.node for row in found.rows} == dict(
        zip(names, [*NODES[1:], NODES[0], NODES[2], NODES[1]], strict=True)
    )

    asked = ["verify", "-e", "spark", "--at", "record"]
    plain = CliRunner().invoke(cluster, [*asked, str(record)])
    assert plain.exit_code == 0, plain.output
    assert "every operator is where the plan has it" in plain.output
    record.write_text(record.read_text().replace(NODES[1], NODES[0]))
    elsewhere = CliRunner().invoke(cluster, [*asked, str(record), "--json"])
    assert elsewhere.exit_code == 1
    assert '"ok": false' in elsewhere.output

    with pytest.raises(PlacementError, match="step 'left': is on"):
        placement.place(spark.range(3), NODES[0], "left")


def test_the_examples_of_the_docs_run(running: Running) -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    names = dict(zip(("hill", "shore", "barn"), NODES, strict=True))
    placement = running.placement()
    scope = {"spark": running.spark, "placement": placement}
    for title in ("batch.py", "streaming.py"):
        code = text.partition(f"```text {title}\n")[2].partition("```")[0]
        assert code, title
        for name, node in names.items():
            code = code.replace(f'"{name}"', f'"{node}"')
        exec(compile(code, title, "exec"), scope)
    query: Any = scope["query"]
    streams = {"pressure": NODES[0], "humidity": NODES[1], "climate": NODES[2]}
    assert {name: placement.nodes[name] for name in streams} == streams
    try:
        until = time.monotonic() + 60
        while True:
            assert query.exception() is None, query.exception()
            told = placement.stages
            steps = [Step(name, node, tuple(told[name])) for name, node in streams.items()]
            found = verify(running.rest, steps)
            # In the first micro-batch sources have nothing, and no tasks; and Spark tells of tasks
            # a little after they have begun.
            if all(row.actual for row in found.rows) or time.monotonic() > until:
                break
            time.sleep(0.2)
    finally:
        query.stop()
    assert found.ok, found


def test_a_node_that_is_not_there_is_named(running: Running) -> None:
    with pytest.raises(PlacementError, match=r"no executor on nowhere \(resource node_nowhere\)"):
        running.placement().ready([NODES[0], "nowhere"], timeout_s=3)
    with pytest.raises(NovaError, match=r"applications/nobody/stages: 404"):
        Rest(running.rest.url, "nobody").stages()


def test_what_run_sh_runs(running: Running, tmp_path: Path) -> None:
    """The last one: it ends the session it finds."""
    plan = random_plan(8, nodes=3, regions=1)
    workload = workload_of(plan.problem, 0, seconds=2, window_ms=100)
    flow = from_plan(plan, plan.problem, workload)
    record = tmp_path / "record.json"
    run(
        flow,
        workload,
        master=running.master,
        results=str(tmp_path / "results"),
        checkpoints=str(tmp_path / "state"),
        record=record,
        slots=2,
    )
    found = results.read(tmp_path / "results" / "0")
    # The first tuples are due together when all is ready.
    start_ms = int(found["left_emit_us"][found["left_sequence"] == 0][0]) // 1000
    compared = compare(plan, flow, workload, start_ms, tmp_path / "results")
    assert compared.ok, compared
    told = {step.name: step.node for step in Record.read(record).steps if step.stages}
    assert told == {stage.name: stage.node for stage in flow.stages}
