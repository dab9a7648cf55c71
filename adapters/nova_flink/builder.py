"""Turns a dataflow into a job, in Flink's own environment (standard library and pyflink only).

Every strategy's plan becomes the same operators with the same settings; they differ only in where
the operators run and in what the plan cuts or relays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from nova_core.errors import NovaError
from nova_engines.dataflow import (
    FILTER,
    JOIN,
    RELAY,
    SELECT,
    SINK,
    SOURCE,
    Dataflow,
    FlowOperator,
    Operator,
)
from nova_engines.workload import BEGINS, COMMITTED, EARLIEST, Workload
from nova_flink.pin import free_group, slot_sharing_group
from nova_flink.rest import host_and_port

# How often sources check the clock, ms, if watermarks come at its multiples: tuples due in between
# wait for the window's end anyway. Otherwise half of that.
TICK_MS = 10
# Of Flink's Kafka connector: fetches are small because small hosts have small heaps.
KAFKA_SETTINGS = {
    "partition.discovery.interval.ms": "-1",
    "fetch.max.bytes": "1048576",
    "max.partition.fetch.bytes": "262144",
    "commit.offsets.on.checkpoint": "false",
}
COMMIT_MS = "1000"

SETTINGS = {
    "parallelism.default": "1",
    # A lost JobManager is reported within seconds, not after a minute of retries.
    "rest.retry.max-attempts": "3",
    "execution.runtime-mode": "STREAMING",
    # Sources emit watermarks themselves, when windows end.
    "pipeline.auto-watermark-interval": "0 ms",
    # No operator here keeps or changes the tuples that it emits.
    "pipeline.object-reuse": "true",
    "pipeline.generic-types": "false",
}
# Of jobs with checkpoints: Flink restarts them without limit.
RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": str(2**31 - 1),
    "restart-strategy.fixed-delay.delay": "1 s",
    # Busy hosts may miss a checkpoint; that must not end the job.
    "execution.checkpointing.tolerable-failed-checkpoints": str(2**31 - 1),
}


def settings(workload: Workload) -> dict[str, str]:
    """Flink's configuration of a job."""
    # Watermarks flush the buffers; a timeout is needed only where they come less often.
    timed = max(workload.window_ms, workload.watermark_ms) > workload.buffer_timeout_ms
    checkpoints = {"execution.checkpointing.interval": f"{workload.checkpoint_ms} ms"}
    return {
        **SETTINGS,
        "execution.buffer-timeout.enabled": str(timed).lower(),
        "execution.buffer-timeout.interval": f"{workload.buffer_timeout_ms} ms",
        **(RESTARTS | checkpoints if workload.checkpoint_ms else {}),
    }


def remote_environment(gateway: Any, host: str, port: int, configuration: dict[str, str]) -> Any:
    """The Java execution environment of a cluster's REST address."""
    jvm = gateway.jvm
    conf = jvm.org.apache.flink.configuration.Configuration()
    for key, value in configuration.items():
        conf.setString(key, value)
    create = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    return create.createRemoteEnvironment(host, port, conf, gateway.new_array(jvm.String, 0))


class JavaJob(ABC):
    """A job in Flink's Java API that gets the operators of a flow, each pinned to its node.

    Args:
        rest_url: of the cluster.
        configuration: Flink's, of the job.
        result_files: where each sink writes, on its node (`Flow.result_files`).

    Raises:
        NovaError: for a URL without host and port.

    Attributes:
        gateway: pyflink's gateway to Java, with Nova's operators on its class path.
        environment: Java execution environment.
        streams: Java streams by operator.
    """

    def __init__(
        self, rest_url: str, configuration: dict[str, str], result_files: Mapping[str, str]
    ) -> None:
        host, port = host_and_port(rest_url)
        from pyflink.java_gateway import get_gateway

        self.gateway = get_gateway()
        self.environment = remote_environment(self.gateway, host, port, configuration)
        self.files = result_files
        self.streams: dict[str, Any] = {}
        self.groups: dict[tuple[str, str], Any] = {}

    @abstractmethod
    def build(self) -> None:
        """Add all operators."""

    def submit(self, name: str) -> str:
        """Add all operators and start the job; its id."""
        self.build()
        return str(self.environment.executeAsync(name).getJobID().toString())

    def group(self, one: FlowOperator) -> Any:
        """The slot-sharing group of an operator's node, or its own if it may run anywhere."""
        key = (one.node, "" if one.node else one.name)
        if key not in self.groups:
            self.groups[key] = (
                slot_sharing_group(self.gateway, one.node)
                if one.node
                else free_group(self.gateway, one.name)
            )
        return self.groups[key]

    def input(self, one: FlowOperator) -> Any:
        """The union of the outputs that an operator receives."""
        names = (*one.inputs, *one.right)
        if not names:
            raise NovaError(f"{one.name}: receives nothing")
        first, *others = (self.streams[name] for name in names)
        if not others:
            return first
        stream = self.gateway.jvm.org.apache.flink.streaming.api.datastream.DataStream
        return first.union(self.array(stream, others))

    def doubles(self, values: Sequence[float]) -> Any:
        """A Java array of doubles."""
        return self.array(self.gateway.jvm.double, [float(value) for value in values])

    def array(self, kind: Any, values: Sequence[Any]) -> Any:
        """A Java array."""
        array = self.gateway.new_array(kind, len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array


class DataflowJob(JavaJob):
    """A job of joins of pairs.

    Args:
        dataflow: what runs.
        workload: what the sources emit and how it is joined.
        rest_url: of the cluster.
        result_file: where the sink writes, on its node (`Flow.result_files`).

    Raises:
        NovaError: for a URL without host and port, or a source that the workload lacks.
    """

    def __init__(
        self, dataflow: Dataflow, workload: Workload, rest_url: str, result_file: str
    ) -> None:
        super().__init__(rest_url, settings(workload), dataflow.result_files(result_file))
        self.dataflow, self.workload = dataflow, workload
        self.java = self.gateway.jvm.nova.flink
        self.instance = {one.name: number for number, one in enumerate(dataflow.joins)}
        # Operators that emit join results.
        self.results: set[str] = set()
        # Filters directly behind a source, by source.
        self.cuts: dict[str, list[Operator]] = {}
        sources = {one.name for one in dataflow.of_kind(SOURCE)}
        for one in dataflow.of_kind(FILTER):
            if one.inputs[0] in sources:
                self.cuts.setdefault(one.inputs[0], []).append(one)

    def build(self) -> None:
        """Add all operators."""
        make = {
            SOURCE: self.source,
            FILTER: self.filter,
            SELECT: self.filter,
            RELAY: self.relay,
            JOIN: self.join,
            SINK: self.sink,
        }
        for one in self.dataflow.operators:
            if one.name in self.streams:
                continue  # a filter that its source created
            stream = make[one.kind](one)
            if one.kind in (RELAY, SINK):  # other kinds name their parts themselves
                stream.name(one.name)
            stream.slotSharingGroup(self.group(one))
            if one.kind == JOIN or any(name in self.results for name in one.inputs):
                self.results.add(one.name)
            self.streams[one.name] = stream

    def source(self, one: Operator) -> Any:
        """A source."""
        number = self.workload.index(one.source)
        stream, workload = self.workload.sources[number], self.workload
        kind, group = self.java.SensorTuple.type(), self.group(one)
        ends = workload.count_of(number)
        count = -1 if ends is None else ends
        watermarks = (workload.window_ms, workload.watermark_ms)
        if stream.kind == "kafka":
            messages = self.kafka(number)
            if workload.control:
                messages = self.java.OrderedSource(messages, number, workload.control)
            strategy = self.java.MessageWatermarks(*watermarks)
            emitted = self.environment.fromSource(
                messages, strategy, one.name, kind
            ).slotSharingGroup(group)
        else:
            if stream.kind == "socket":
                function = self.java.SocketSource(
                    number,
                    stream.sensor or stream.source,
                    stream.stream,
                    *stream.endpoint,
                    round(stream.connect_s * 1000),
                    count,
                    *watermarks,
                    workload.strict,
                )
            else:
                function = self.java.PacedSource(
                    number,
                    stream.replayed(),
                    stream.pace.pack(),
                    workload.start_ms,
                    count,
                    tick_us(workload),
                    *watermarks,
                    workload.control,
                )
            emitted = self.environment.addSource(function, one.name, kind).slotSharingGroup(group)
        cuts = self.cuts.get(one.name, [])
        if not cuts:
            return emitted.transform(f"send {one.source}", kind, self.java.Forward())
        tag = self.gateway.jvm.org.apache.flink.util.OutputTag
        tags = [tag(cut.name, kind) for cut in cuts]
        sent = emitted.transform(
            ", ".join([f"send {one.source}", *(cut.name for cut in cuts)]),
            kind,
            self.java.Send(
                self.array(tag, tags),
                self.array(self.java.PartitionFilter, [self.partitions(cut) for cut in cuts]),
            ),
        )
        for cut, its in zip(cuts, tags, strict=True):
            self.streams[cut.name] = sent.getSideOutput(its)
        return sent

    def kafka(self, number: int) -> Any:
        """Flink's connector, reading a source's partition."""
        jvm, stream, count = self.gateway.jvm, self.workload.sources[number], self.workload.count
        try:
            connector = jvm.org.apache.flink.connector.kafka.source
            builder = connector.KafkaSource.builder()
            client = jvm.org.apache.flink.kafka.shaded.org.apache.kafka
            partition = client.common.TopicPartition(stream.topic, stream.partition)
        except TypeError as error:
            raise NovaError(
                "Flink's connector for Kafka is not on the class path: "
                "run `nova engines install kafka`"
            ) from error
        partitions = jvm.java.util.HashSet()
        partitions.add(partition)
        offsets = connector.enumerator.initializer.OffsetsInitializer
        builder.setBootstrapServers(stream.address).setPartitions(partitions)
        if stream.begin == COMMITTED:
            first = offsets.committedOffsets(client.clients.consumer.OffsetResetStrategy.EARLIEST)
        elif stream.begin in BEGINS:
            first = offsets.earliest() if stream.begin == EARLIEST else offsets.latest()
        else:
            first = offsets.timestamp(int(stream.begin))
        builder.setStartingOffsets(first)
        builder.setValueOnlyDeserializer(self.java.TupleMessage(number, self.workload.strict))
        for key, value in (KAFKA_SETTINGS | self.committing(stream.group)).items():
            builder.setProperty(key, value)
        builder.setClientIdPrefix(f"nova-{number}")
        if count is not None:
            builder.setBounded(offsets.offsets(self.java.TupleMessage.until(partition, count)))
        return builder.build()

    def committing(self, group: str) -> dict[str, str]:
        """Settings by which a group's offsets are committed: with checkpoints, or every second."""
        if not group:
            return {}
        by = "commit.offsets.on.checkpoint" if self.workload.checkpoint_ms else "enable.auto.commit"
        return {"group.id": group, by: "true", "auto.commit.interval.ms": COMMIT_MS}

    def filter(self, one: Operator) -> Any:
        """A filter, or a select, of a stream's partitions."""
        passed = self.input(one).filter(self.partitions(one))
        passed.name(one.name).slotSharingGroup(self.group(one))
        return passed.transform(
            f"send {one.name}", self.java.SensorTuple.type(), self.java.Forward()
        )

    def partitions(self, one: Operator) -> Any:
        """The Java filter for an operator's partitions."""
        bounds = zip(*one.intervals, strict=True)
        return self.java.PartitionFilter(*(self.doubles(side) for side in bounds))

    def relay(self, one: Operator) -> Any:
        """A hop of a route."""
        kind = self.java.JoinResult if one.inputs[0] in self.results else self.java.SensorTuple
        return self.input(one).transform(one.name, kind.type(), self.java.Forward())

    def join(self, one: Operator) -> Any:
        """An instance of the plan: Flink's window operator over both inputs."""
        jvm, workload = self.gateway.jvm, self.workload
        if one.left_source == one.right_source:
            raise NovaError(f"{one.name}: joins {one.left_source!r} with itself")
        windows = jvm.org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows
        match = self.java.WindowMatch(
            self.instance[one.name],
            workload.index(one.left_source),
            workload.keys,
            workload.every,
        )
        kind = self.java.JoinResult.type()
        # All tuples have the same key, so senders need not compute it for each tuple.
        keyed = jvm.org.apache.flink.streaming.api.datastream.DataStreamUtils
        joined = (
            keyed.reinterpretAsKeyedStream(
                self.input(one),
                self.java.RegionKey(),
                jvm.org.apache.flink.api.common.typeinfo.Types.INT,
            )
            .window(windows.of(jvm.java.time.Duration.ofMillis(workload.window_ms)))
            .apply(match, kind)
        )
        joined.name(one.name).slotSharingGroup(self.group(one))
        return joined.transform(f"send {one.name}", kind, self.java.Forward())

    def sink(self, one: Operator) -> Any:
        """A sink that writes results."""
        return self.input(one).addSink(self.java.ResultSink(self.files[one.name]))


def tick_us(workload: Workload) -> int:
    """How long a source waits between checks of the clock, us."""
    aligned = max(workload.window_ms, workload.watermark_ms) % TICK_MS == 0
    return TICK_MS * (1000 if aligned else 500)
