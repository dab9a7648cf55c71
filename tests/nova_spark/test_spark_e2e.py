"""Parts of jobs that others wrote run where they are placed, on a real cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_harness.commands.cluster import cluster
from nova_spark.engine import SPARK
from nova_spark.local_cluster import LocalCluster
from nova_spark.place import Placement, PlacementError
from nova_spark.rest import Rest
from nova_spark.session import session
from nova_spark.verification import Record, Step, verify

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

    def record(self, placement: Placement) -> Record:
        context, stages = self.spark.sparkContext, placement.stages
        steps = (Step(name, node, tuple(stages[name])) for name, node in placement.nodes.items())
        return Record(str(context.uiWebUrl), str(context.applicationId), tuple(steps))


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
    running.record(placement).write(record)
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
