"""A plan as a query in Spark's Real-Time Mode: tuples pass all stages one by one, without batches.

Real-Time Mode refuses stream-stream joins, resource profiles and Python, so a plan becomes stages
in Scala (`nova_spark.extension`) whose tasks are the plan's operators: those of pairs
(`nova_spark.pairs`), or those of queries with columns (`nova_spark.queries`). All stages run at
once, from the begin of a batch to its end; a batch only bounds what a failure repeats.

Tasks prefer hosts, for which Spark is configured to wait: `SETTINGS`, one executor per host.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nova_core.errors import NovaError
from nova_spark.extension import EXTENSIONS, build
from nova_spark.pairs import job_of
from nova_spark.queries import job_of_queries
from nova_spark.rest import Rest
from nova_spark.verification import Step

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from nova_engines.flow import Flow
    from nova_engines.sources import Sources
    from nova_spark.tasks import Job

# Length of a batch, s; the least that Spark accepts. Tuples are delayed between two batches.
BATCH_S = 5
# From the permission to begin, which counts from the next batch on, to the first tuple, s.
LEAD_S = 2.0 + BATCH_S
READY_S = 150.0
PREPARE_S = 180.0
POLL_S = 0.1
# The first file of a job's results of queries.
ROWS = "rows"
# Spark's page on an application keeps this many stages.
KEPT = 1000
# What any session needs.
SETTINGS: Mapping[str, str] = {
    # A task waits this long for a slot on its host.
    "spark.locality.wait": "1h",
    "spark.sql.extensions": EXTENSIONS,
    # Spark's list does not know the step that has preferred hosts.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.session.timeZone": "UTC",
}


def settings(heap: int, kafka: Path | None = None, *, queries: bool = False) -> dict[str, str]:
    """All that a session needs.

    Args:
        heap: of every executor, MiB.
        kafka: the jar of Kafka's client, for jobs that read Kafka.
        queries: whether jobs may have tuples with columns.

    Raises:
        NovaError: when Nova's Scala cannot be compiled.
    """
    return {
        **SETTINGS,
        "spark.jars": ",".join(map(str, build(kafka=kafka, queries=queries))),
        "spark.executor.memory": f"{heap}m",
    }


def jobs_of(flow: Flow, sources: Sources, addresses: Mapping[str, str], results: str) -> list[Job]:
    """What Spark runs for a flow; arguments and errors as of `RealTimeJob`."""
    if flow.has_columns:
        return [job_of_queries(flow, sources, addresses, f"{results}/{ROWS}")]
    return [job_of(flow, one, sources, addresses) for one in flow.sinks]


class RealTimeJob:
    """The queries of a flow: of pairs one for every sink; one, if tuples have columns.

    Args:
        spark: a session with `settings`, the first of its Python process, on a cluster with one
            executor per node.
        addresses: of the nodes, as their executors have them.
        flow: what runs where.
        sources: what the sources emit, or where they read.
        results: directory that sinks write to on their nodes. Those of pairs have one within it
            each, in the order of the flow (`nova_spark.results`), those of queries the files
            ``rows``, ``rows.1`` and so on (`Flow.result_files`).
        checkpoints: directory for offsets and state, on the driver and on every node; must be new.
            State is read and written where its join runs, and nowhere else.

    Raises:
        NovaError: for sources that Spark does not run, and nodes without address.
    """

    def __init__(
        self,
        spark: SparkSession,
        addresses: Mapping[str, str],
        flow: Flow,
        sources: Sources,
        results: str,
        checkpoints: str,
    ) -> None:
        self.spark, self.addresses = spark, addresses
        self.flow, self.sources = flow, sources
        self.results, self.checkpoints = results, checkpoints
        context: Any = spark.sparkContext
        self._scala = context._jvm.org.apache.spark.sql.nova
        self._jobs = jobs_of(flow, sources, addresses, results)
        self._ids = [f"{uuid4()}" for _ in self._jobs]
        self._seen: list[Any] = []
        self._queries: list[Any] = []

    def prepare(self) -> None:
        """Start all queries, and have each run a batch without tuples.

        Raises:
            NovaError: when a query fails, or after `PREPARE_S`.
        """
        session: Any = self.spark
        for number, (one, job) in enumerate(zip(self._ids, self._jobs, strict=True)):
            seen = self._scala.RealTimeJoin.accumulator(session._jsparkSession)
            self._seen.append(seen)
            document = json.dumps({"id": one, **job.document})
            last = f"{self.checkpoints}/{number}", f"{BATCH_S * 1000} milliseconds", seen
            begun = (
                self._scala.RealTimeQuery.start(session._jsparkSession, document, *last)
                if self.flow.has_columns
                else self._scala.RealTimeJoin.start(
                    session._jsparkSession, document, f"{self.results}/{number}", *last
                )
            )
            self._queries.append(begun)
        positions, until = self._scala.Progress.positions, time.monotonic() + PREPARE_S
        while not all(map(positions, self._ids)):
            self.check()
            if time.monotonic() > until:
                raise NovaError(f"Spark: no batch has ended after {PREPARE_S:g} s")
            time.sleep(POLL_S)

    def begin(self, start_ms: int) -> None:
        """Have tuples flow: from the first batch that begins from now on.

        Args:
            start_ms: when the first tuple is due.
        """
        for one in self._ids:
            self._scala.Progress.begin(one, start_ms)

    def follow(self, look: Callable[[], bool], every_s: float = POLL_S) -> bool:
        """Wait until all tuples of finite sources are processed.

        Args:
            look: called repeatedly; returns whether to go on waiting.
            every_s: how often.

        Returns:
            Whether all are processed.

        Raises:
            NovaError: with Spark's reason when a query fails.
        """
        while self.flowing:
            self.check()
            if not look():
                return False
            time.sleep(every_s)
        self.check()
        return True

    @property
    def flowing(self) -> bool:
        """Whether tuples are still to come, or are in a batch that has not ended."""
        for number, job in zip(self._ids, self._jobs, strict=True):
            positions = self._positions(number)
            if not positions or any(
                not 0 <= one.end <= position
                for one, position in zip(job.sources, positions, strict=True)
            ):
                return True
        return False

    @property
    def read(self) -> dict[str, int]:
        """Number of every source's tuples in ended batches; not told of readings."""
        counts: dict[str, int] = {}
        for number, job in zip(self._ids, self._jobs, strict=True):
            for one, position in zip(job.sources, self._positions(number), strict=False):
                if one.of_tuple:
                    count = position // one.of_tuple
                    counts[one.source] = min(counts.get(one.source, count), count)
        return counts

    def _positions(self, number: str) -> list[int]:
        """Of each source; empty before the first batch has ended."""
        reported = str(self._scala.Progress.positions(number))
        return [int(one) for one in reported.split(",")] if reported else []

    def check(self) -> None:
        """Check that all queries run.

        Raises:
            NovaError: with Spark's reason for one that has failed.
        """
        for job, query in zip(self._jobs, self._queries, strict=False):
            error = query.exception()
            if error.isDefined():
                lines = str(error.get().getMessage()).strip().splitlines()
                raise NovaError(f"Spark: query of {job.name}: {next(filter(None, lines), error)}")

    def stop(self) -> None:
        """End all queries."""
        for query in self._queries:
            query.stop()
        session: Any = self.spark
        hosts = [self.addresses[node] for node in self.flow.nodes]
        for one in self._ids:
            self._scala.Progress.forget(one)
            if self.flow.has_columns:
                self._scala.RealTimeQuery.forget(session._jsparkSession, one, hosts)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every operator of the flow: which of Spark's stages it ran in, and as which task.

        An operator of pairs whose results go to several sinks occurs once for each.
        """
        nodes = self.flow.placement
        steps = []
        for job, seen in zip(self._jobs, self._seen, strict=False):
            stages: dict[str, set[int]] = {}
            for line in self._scala.RealTimeJoin.stages(seen).splitlines():
                part, _, stage = line.rpartition(" ")
                stages.setdefault(part, set()).add(int(stage))
            for name, (part, task) in job.tasks.items():
                ran = tuple(sorted(stages.get(part, ()))[-KEPT:])
                steps.append(Step(name, nodes[name], ran, task, self.addresses[nodes[name]]))
        return tuple(steps)


def await_executors(spark: SparkSession, addresses: Mapping[str, str]) -> None:
    """Wait until every node has its executor.

    Raises:
        NovaError: naming nodes without one in time.
    """
    context = spark.sparkContext
    rest = Rest(str(context.uiWebUrl), str(context.applicationId))
    until = time.monotonic() + READY_S
    while True:
        present = {
            str(one["hostPort"]).rpartition(":")[0]
            for one in rest.executors()
            if one["isActive"] and one["id"] != "driver"
        }
        lacking = [node for node, address in addresses.items() if address not in present]
        if not lacking:
            return
        if time.monotonic() > until:
            raise NovaError(f"Spark: no executor on {', '.join(lacking)} after {READY_S:g} s")
        time.sleep(POLL_S)
