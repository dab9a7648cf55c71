"""A plan as a query in Spark's Real-Time Mode: tuples pass all stages one by one, without batches.

Real-Time Mode refuses stream-stream joins, resource profiles and Python, so a plan becomes a union
of all sources, one stateful join of its two sides (``transformWithState``) and a sink, in Scala
(`nova_spark.extension`): stages whose tasks are the plan's sources, joins and sink. Where a plan
has relays, every hop of the longest route is a stage between them, which rows of shorter routes
pass on the node that they are on. All stages run at once, from the begin of a batch to its end; a
batch only bounds what a failure repeats. Queries with columns have stages of their own
(`nova_spark.queries`).

Tasks prefer hosts, for which Spark is configured to wait: `SETTINGS`, one executor per host.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from nova_core.errors import NovaError
from nova_engines.flow import CUT, JOIN, RELAY, SELECT, SINK, SOURCE, Flow, Operator
from nova_engines.sources import EARLIEST, KAFKA, READINGS, SOCKET
from nova_spark.extension import EXTENSIONS, build
from nova_spark.rest import Rest
from nova_spark.verification import Step

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from nova_engines.sources import Sources

# Of operators that jobs may have.
KINDS = (SOURCE, CUT, SELECT, RELAY, JOIN, SINK)
# Tasks of all stages run at once, so a host needs a slot for each; slots cost nothing.
SLOTS = 128
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
        if flow.has_columns:
            # What is not there where a bundle of pairs runs.
            from nova_spark.queries import job_of_queries

            self._jobs = [job_of_queries(flow, sources, addresses, f"{results}/{ROWS}")]
        else:
            self._jobs = [job_of(flow, one, sources, addresses) for one in flow.sinks]
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


class Position(NamedTuple):
    """How far a source can come, as it counts.

    Attributes:
        source: its id.
        of_tuple: what it counts for a tuple; 0 where it does not.
        end: when it has sent everything; negative where it has no end.
    """

    source: str
    of_tuple: int
    end: int


@dataclass(frozen=True)
class Job:
    """A query of Spark's.

    Attributes:
        name: for people: of the sink of pairs.
        document: what `Job.scala` or `QueryJob.scala` reads, but for its id.
        tasks: the stage and the number of the task that every operator is part of.
        sources: in the order in which Spark has them.
    """

    name: str
    document: dict[str, Any]
    tasks: dict[str, tuple[str, int]]
    sources: list[Position]


def host_of(addresses: Mapping[str, str], node: str) -> str:
    """Address of a node's executor.

    Raises:
        NovaError: where there is none.
    """
    if node not in addresses:
        raise NovaError(f"node {node!r}: it has no address")
    return addresses[node]


def require_slots(hosts: Sequence[str]) -> None:
    """Refuse more tasks on a host than it has slots.

    Args:
        hosts: of all tasks.
    """
    most = max(set(hosts), key=hosts.count)
    if hosts.count(most) >= SLOTS:
        raise NovaError(
            f"host {most}: {hosts.count(most)} tasks of Spark's; it has {SLOTS} slots: place less "
            "there"
        )


def job_of(flow: Flow, sink: Operator, sources: Sources, addresses: Mapping[str, str]) -> Job:
    """The query of a flow's sink.

    Joins of one pair on one node are one task, as they share what arrives there. A path leads from
    one operator of the flow to one side of such a task.

    Raises:
        NovaError: for sources of sockets, nodes without address, and more tasks on a node than a
            Worker has slots.
    """
    return _Builder(flow, sink, sources, addresses).job()


class _Builder:
    """Numbers the sources, paths and groups of joins whose results arrive at a sink."""

    def __init__(
        self,
        flow: Flow,
        sink: Operator,
        sources: Sources,
        addresses: Mapping[str, str],
    ) -> None:
        self.sink, self.given, self.addresses = sink, sources, addresses
        self.flow = flow
        self.known = {one.name: one for one in flow.operators}
        self.instances = {one.name: number for number, one in enumerate(flow.joins)}
        self.tasks: dict[str, tuple[str, int]] = {sink.name: ("sink", 0)}
        self.sources: dict[str, dict[str, Any]] = {}
        self.groups: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.paths: dict[tuple[str, int, bool], int] = {}
        self.path_rows: list[dict[str, Any]] = []
        # Of every path and of every instance: where its rows come from, and relays on the way.
        self.ways: list[tuple[str, list[Operator]]] = []
        self.result_ways: list[tuple[str, list[Operator]]] = [(sink.node, [])] * len(self.instances)

    def host(self, node: str) -> str:
        """Address of a node's executor."""
        return host_of(self.addresses, node)

    def job(self) -> Job:
        """The whole query."""
        for one in self.known.values():
            if one.kind not in KINDS or one.types:
                what = "tuples with columns" if one.types else f"{one.kind}s"
                raise NovaError(f"{one.name}: jobs of pairs have no {what}")
        matches = set()
        for name in self.sink.inputs:
            join, relays = self.chain(name)
            self.result_ways[self.instances[join.name]] = join.node, relays
            self.join(join)
            matches.add((join.window[0], *join.match))
        if len(matches) > 1:
            raise NovaError(f"{self.sink.name}: joins of different windows: Spark has one")
        ((window_ms, keys, every),) = matches
        inputs = self.hops("to joins", self.ways)
        results = self.hops("to the sink", self.result_ways)
        tasks = [one["host"] for one in (*self.sources.values(), *self.groups.values())]
        tasks += [host for hop in (*inputs, *results) for host in hop["hosts"]]
        require_slots(tasks)
        document = {
            "host": self.host(self.sink.node),
            "window_ms": window_ms,
            "keys": keys,
            "every": every,
            "sources": list(self.sources.values()),
            "paths": self.path_rows,
            "inputs": inputs,
            "groups": list(self.groups.values()),
            "results": results,
        }
        ends = [
            Position(name, len(one["outputs"]), one["count"] * len(one["outputs"]))
            for name, one in self.sources.items()
        ]
        return Job(self.sink.name, document, self.tasks, ends)

    def chain(self, name: str) -> tuple[Operator, list[Operator]]:
        """The operator in front of a chain of relays, and the relays in the order rows pass."""
        relays: list[Operator] = []
        while (one := self.known[name]).kind == RELAY:
            relays.insert(0, one)
            (name,) = one.inputs
        return one, relays

    def join(self, join: Operator) -> None:
        """Add an instance, with the paths it receives."""
        left, right = (self.flow.origin(names[0]).source for names in (join.inputs, join.right))
        key = left, right, join.node
        empty = {"host": self.host(join.node), "paths": [], "pieces": []}
        group = self.groups.setdefault(key, empty)
        number = list(self.groups).index(key)
        self.tasks[join.name] = "join", number
        piece: dict[str, Any] = {"instance": self.instances[join.name]}
        for side, names in (("left", join.inputs), ("right", join.right)):
            intervals: tuple[tuple[float, float], ...] = ()
            first = self.known[names[0]]
            if first.kind == SELECT:
                self.tasks[first.name] = "join", number
                names, intervals = first.inputs, _intervals(first)
            piece[side] = [self.path(one, number, side == "left") for one in names]
            piece |= _bounds(intervals, f"{side}_")
        group["paths"] = sorted({*group["paths"], *piece["left"], *piece["right"]})
        group["pieces"].append(piece)

    def path(self, name: str, group: int, left: bool) -> int:
        """The number of a path."""
        key = name, group, left
        if key not in self.paths:
            self.paths[key] = number = len(self.paths)
            self.path_rows.append({"group": group, "left": left})
            first, relays = self.chain(name)
            self.ways.append((first.node, relays))
            source = self.source(first)
            source["outputs"].append({"path": number, **_bounds(_intervals(first))})
        return self.paths[key]

    def source(self, first: Operator) -> dict[str, Any]:
        """A source that sends all its tuples, or those that a cut passes."""
        name = self.flow.origin(first.name).source
        stream = self.given.sources[self.given.index(name)]
        if name not in self.sources:
            if stream.kind in (SOCKET, READINGS):
                raise NovaError(
                    f"source {name!r}: kind {stream.kind!r}: Spark replays, or reads Kafka"
                )
            if stream.surges:
                raise NovaError(f"source {name!r}: surges: Spark replays at one rate")
            topic = None
            if stream.kind == KAFKA:
                if stream.begin != EARLIEST or stream.group:
                    raise NovaError(
                        f"source {name!r}: begin {stream.begin}, group {stream.group!r}: Spark "
                        "reads a partition from its first message, and commits nothing"
                    )
                topic = {
                    "servers": stream.address,
                    "name": stream.topic,
                    "partition": stream.partition,
                    "strict": self.given.strict,
                }
            count = self.given.count
            self.sources[name] = {
                "number": self.given.index(name),
                "host": self.host(first.node),
                "rate": stream.rate,
                "count": -1 if count is None else count,
                "values": [] if topic else list(stream.replayed_values()),
                **({"topic": topic} if topic else {}),
                "outputs": [],
            }
        task = "source", list(self.sources).index(name)
        self.tasks[first.name] = task
        for before in first.inputs if first.kind == CUT else ():
            self.tasks[before] = task
        return self.sources[name]

    def hops(self, called: str, ways: Sequence[tuple[str, list[Operator]]]) -> list[dict[str, Any]]:
        """The stages of relays, each with the task that rows of every route pass."""
        stages = []
        for number in range(max(len(relays) for _, relays in ways)):
            name = f"hop {number + 1} {called}"
            hosts: list[str] = []
            slots: list[int] = []
            waiting: dict[str, int] = {}
            for begin, relays in ways:
                if number < len(relays):
                    relay = relays[number]
                    self.tasks[relay.name] = name, len(hosts)
                    slots.append(len(hosts))
                    hosts.append(self.host(relay.node))
                    continue
                at = relays[-1].node if relays else begin
                if at not in waiting:
                    waiting[at] = len(hosts)
                    hosts.append(self.host(at))
                slots.append(waiting[at])
            stages.append({"name": name, "hosts": hosts, "slots": slots})
        return stages


def _intervals(one: Operator) -> tuple[tuple[float, float], ...]:
    """Of a cut or a select: what passes; none where everything does."""
    return tuple(zip(one.low, one.high, strict=True))


def _bounds(intervals: Sequence[tuple[float, float]], prefix: str = "") -> dict[str, list[float]]:
    return {
        f"{prefix}low": [low for low, _ in intervals],
        f"{prefix}high": [high for _, high in intervals],
    }
