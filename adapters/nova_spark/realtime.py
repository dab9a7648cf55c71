"""A plan as a query in Spark's Real-Time Mode: tuples pass all stages one by one, without batches.

Real-Time Mode refuses stream-stream joins, resource profiles and Python, so a plan becomes a union
of all sources, one stateful join of its two sides (``transformWithState``) and a sink, in Scala
(`nova_spark.extension`): three stages, whose tasks are the plan's sources, joins and sink. All of
them run at once, from the begin of a batch to its end; a batch only bounds what a failure repeats.

Where tasks run is a preference that Spark is told to wait for: `SETTINGS`, one executor a host.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nova_core.errors import NovaError
from nova_spark.extension import EXTENSIONS, build
from nova_spark.flow import Flow, Input
from nova_spark.rest import Rest
from nova_spark.streaming_join import POLL_S, PREPARE_S, values_of, wait_while
from nova_spark.tasks import KEPT
from nova_spark.verification import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nova_engines.workload import Workload

# Tasks of all stages run at once, so a host needs a slot for each; they are no more than a number.
SLOTS = 32
# Of a batch, seconds; the least that Spark takes. Its end and the next one's begin hold tuples up.
BATCH_S = 5
READY_S = 150.0
# What any session needs, in place of `nova_spark.place.SETTINGS` where they differ.
SETTINGS: Mapping[str, str] = {
    "spark.dynamicAllocation.enabled": "false",
    # A task waits so long for a slot on its host.
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


def settings(heap: int) -> dict[str, str]:
    """All that a session needs.

    Args:
        heap: of every executor, MiB.

    Raises:
        NovaError: when Nova's Scala cannot be compiled.
    """
    return {
        **SETTINGS,
        "spark.jars": str(build()),
        "spark.executor.memory": f"{heap}m",
    }


class RealTimeJoin:
    """The queries of a flow, in Real-Time Mode: one for every sink.

    Args:
        spark: a session with `settings`, made by a Python that had none before, on a cluster with
            one executor per node.
        addresses: of the nodes, as their executors have them.
        flow: what runs where; without relays.
        workload: what the sources emit and how it is joined.
        results: as of `nova_spark.streaming_join.StreamingJoin`.
        checkpoints: likewise.
        batch_s: length of a batch.

    Raises:
        NovaError: for relays, sources that do not replay, and nodes without address.
    """

    def __init__(
        self,
        spark: SparkSession,
        addresses: Mapping[str, str],
        flow: Flow,
        workload: Workload,
        results: str,
        checkpoints: str,
        *,
        batch_s: float = BATCH_S,
    ) -> None:
        self.spark, self.addresses, self.flow, self.workload = spark, addresses, flow, workload
        self.results, self.checkpoints, self.batch_s = results, checkpoints, batch_s
        context: Any = spark.sparkContext
        self._scala = context._jvm.org.apache.spark.sql.nova
        self._jobs = [
            job_of(flow, number, workload, addresses) for number in range(len(flow.sinks))
        ]
        self._ids = [f"{uuid4()}" for _ in self._jobs]
        self._texts = [
            json.dumps({"id": one, **job}) for one, job in zip(self._ids, self._jobs, strict=True)
        ]
        self._seen: list[Any] = []
        self._queries: list[Any] = []

    def prepare(self, timeout_s: float = PREPARE_S) -> None:
        """Start all queries, and have each run a batch without tuples.

        Raises:
            NovaError: when a query fails, or after so many seconds.
        """
        session: Any = self.spark
        for number, text in enumerate(self._texts):
            seen = self._scala.RealTimeJoin.accumulator(session._jsparkSession)
            self._seen.append(seen)
            self._queries.append(
                self._scala.RealTimeJoin.start(
                    session._jsparkSession,
                    text,
                    f"{self.results}/{number}",
                    f"{self.checkpoints}/{number}",
                    f"{math.ceil(self.batch_s * 1000)} milliseconds",
                    seen,
                )
            )
        begun = self._scala.Progress.positions
        wait_while(lambda: not all(map(begun, self._ids)), self.check, timeout_s)

    def begin(self, start_ms: int | None = None) -> None:
        """Have tuples flow: from the first batch that begins from now on.

        Args:
            start_ms: when the first tuple is due; the workload's, if not given.
        """
        start = self.workload.start_ms if start_ms is None else start_ms
        for one in self._ids:
            self._scala.Progress.begin(one, start)

    def wait(self, timeout_s: float) -> None:
        """Wait until everything that is due, of a workload that ends, is through.

        Raises:
            NovaError: with Spark's reason when a query fails, or after so many seconds.
        """
        wait_while(lambda: self.flowing, self.check, timeout_s)

    @property
    def flowing(self) -> bool:
        """Whether something is still to come, or in a batch that has not ended."""
        return not all(map(self._finished, self._ids, self._jobs))

    def _finished(self, number: str, job: dict[str, Any]) -> bool:
        """Whether the batches that have ended hold all tuples of all sources."""
        told = self._scala.Progress.positions(number)
        # A source counts a position for each tuple and output.
        return bool(told) and all(
            0 <= one["count"] * len(one["outputs"]) <= int(position)
            for one, position in zip(job["sources"], told.split(","), strict=True)
        )

    def check(self) -> None:
        """Whether all queries run.

        Raises:
            NovaError: with Spark's reason for one that has failed.
        """
        for sink, query in zip(self.flow.sinks, self._queries, strict=False):
            error = query.exception()
            if error.isDefined():
                lines = str(error.get().getMessage()).strip().splitlines()
                raise NovaError(f"Spark: query of {sink.name}: {next(filter(None, lines), error)}")

    def stop(self) -> None:
        """End all queries."""
        for query in self._queries:
            query.stop()
        for one in self._ids:
            self._scala.Progress.forget(one)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every stage of the flow: which of Spark's stages it ran in, and as which task."""
        found = []
        for number, sink in enumerate(self.flow.sinks):
            stages: dict[str, set[int]] = {"source": set(), "join": set(), "sink": set()}
            if number < len(self._seen):
                for line in self._scala.RealTimeJoin.stages(self._seen[number]).splitlines():
                    name, _, stage = line.partition(" ")
                    stages[name].add(int(stage))
            sources = [one["number"] for one in self._jobs[number]["sources"]]

            def step(part: str, task: int, name: str, node: str) -> Step:
                ran = tuple(sorted(stages[part])[-KEPT:])  # noqa: B023  (called within the loop)
                return Step(name, node, ran, task, self.addresses[node])

            joins = [join for join in self.flow.joins if join.sink == sink.name]
            for task, join in enumerate(joins):
                for side in (join.left, join.right):
                    first = side.stages[0]
                    index = sources.index(self.workload.index(side.source))
                    found.append(step("source", index, first.name, first.node))
                found.append(step("join", task, join.name, join.stages[0].node))
            found.append(step("sink", 0, sink.name, sink.node))
        return tuple(found)


def await_executors(spark: SparkSession, addresses: Mapping[str, str], timeout_s: float) -> None:
    """Wait until every node has its executor.

    Raises:
        NovaError: naming nodes without one in time.
    """
    context = spark.sparkContext
    rest = Rest(str(context.uiWebUrl), str(context.applicationId))
    until = time.monotonic() + timeout_s
    while True:
        there = {
            str(one["hostPort"]).rpartition(":")[0]
            for one in rest.executors()
            if one["isActive"] and one["id"] != "driver"
        }
        lacking = [node for node, address in addresses.items() if address not in there]
        if not lacking:
            return
        if time.monotonic() > until:
            raise NovaError(f"Spark: no executor on {', '.join(lacking)} after {timeout_s:g} s")
        time.sleep(POLL_S)


def job_of(
    flow: Flow, sink: int, workload: Workload, addresses: Mapping[str, str]
) -> dict[str, Any]:
    """What ends at one sink, as ``Job.scala`` reads it.

    Raises:
        NovaError: for what this mode cannot run.
    """
    own = flow.sinks[sink]
    joins = [join for join in flow.joins if join.sink == own.name]
    for join in joins:
        if any(len(part.stages) > 1 for part in (join, join.left, join.right)):
            raise NovaError(f"{join.name}: Real-Time Mode has no relays; plan without routes")

    def host(node: str) -> str:
        if node not in addresses:
            raise NovaError(f"node {node!r}: it has no address")
        return addresses[node]

    outputs: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for number, join in enumerate(joins):
        for left, side in ((True, join.left), (False, join.right)):
            entry = outputs.setdefault(side.source, (side.stages[0].node, []))
            entry[1].append({"join": number, "left": left, **_shares(side)})
    sources = []
    for source, (node, sent) in outputs.items():
        number = workload.index(source)
        stream = workload.sources[number]
        if stream.kind != "replay":
            raise NovaError(f"source {source!r}: kind {stream.kind!r}: Real-Time Mode replays only")
        sources.append(
            {
                "number": number,
                "host": host(node),
                "rate": stream.rate,
                "count": -1 if workload.count is None else workload.count,
                "values": list(values_of(stream)),
                "outputs": sent,
            }
        )
    return {
        "host": host(own.node),
        "window_ms": workload.window_ms,
        "keys": workload.keys,
        "every": workload.every,
        "sources": sources,
        "joins": [
            {
                "host": host(join.stages[0].node),
                "pieces": [
                    {
                        "instance": piece.instance,
                        **dict(zip(("left_begin", "left_end"), piece.left, strict=True)),
                        **dict(zip(("right_begin", "right_end"), piece.right, strict=True)),
                    }
                    for piece in join.pieces
                ],
            }
            for join in joins
        ],
    }


def _shares(side: Input) -> dict[str, Any]:
    """Where a source's partitions end by the rule ``sequence-share``, and which are sent."""
    import numpy as np

    rates = np.array(side.rates)
    passes = np.zeros(len(rates), bool)
    for begin, end in side.ranges:
        passes[begin:end] = True
    reached = np.cumsum(rates / rates.sum())
    return {"reached": reached.tolist(), "passes": passes.tolist()}
