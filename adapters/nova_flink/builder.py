"""Turns a flow into a job, in Flink's own environment (standard library and pyflink only).

Every strategy's plan becomes the same operators with the same settings; they differ only in where
the operators run and in what the plan cuts or relays. Tuples without columns, those of pairs, have
faster operators of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova_core.errors import NovaError
from nova_engines.flow import (
    AGGREGATE,
    CUT,
    FILTER,
    JOIN,
    PROJECT,
    RELAY,
    SELECT,
    SINK,
    SOURCE,
    Flow,
    Operator,
)
from nova_engines.readings import readings_in
from nova_engines.sources import BEGINS, COMMITTED, EARLIEST, KAFKA, READINGS, SOCKET, Sources
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


def settings(flow: Flow, sources: Sources) -> dict[str, str]:
    """Flink's configuration of a job."""
    # Watermarks flush the buffers; a timeout is needed only where they come less often.
    rarest = max(flow.boundary_ms, sources.watermark_ms)
    timed = flow.has_columns or rarest > sources.buffer_timeout_ms
    checkpoints = {"execution.checkpointing.interval": f"{sources.checkpoint_ms} ms"}
    return {
        **SETTINGS,
        "execution.buffer-timeout.enabled": str(timed).lower(),
        "execution.buffer-timeout.interval": f"{sources.buffer_timeout_ms} ms",
        **(RESTARTS | checkpoints if sources.checkpoint_ms else {}),
    }


def remote_environment(gateway: Any, host: str, port: int, configuration: dict[str, str]) -> Any:
    """The Java execution environment of a cluster's REST address."""
    jvm = gateway.jvm
    conf = jvm.org.apache.flink.configuration.Configuration()
    for key, value in configuration.items():
        conf.setString(key, value)
    create = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    return create.createRemoteEnvironment(host, port, conf, gateway.new_array(jvm.String, 0))


class FlowJob:
    """A job in Flink's Java API that gets the operators of a flow, each pinned to its node.

    Args:
        flow: what runs.
        sources: where its tuples come from.
        rest_url: of the cluster.
        result_file: where the sinks write, on their nodes (`Flow.result_files`).

    Raises:
        NovaError: for a URL without host and port.

    Attributes:
        gateway: pyflink's gateway to Java, with Nova's operators on its class path.
        environment: Java execution environment.
        streams: Java streams by operator.
    """

    def __init__(self, flow: Flow, sources: Sources, rest_url: str, result_file: str) -> None:
        host, port = host_and_port(rest_url)
        from pyflink.java_gateway import get_gateway

        self.flow, self.sources = flow, sources
        self.gateway = get_gateway()
        self.environment = remote_environment(self.gateway, host, port, settings(flow, sources))
        self.files = flow.result_files(result_file)
        self.streams: dict[str, Any] = {}
        self.groups: dict[tuple[str, str], Any] = {}
        nova = self.gateway.jvm.nova
        self.java, self.of_rows, self.shared = nova.flink, nova.flink.query, nova.engines.query
        self.instance = {one.name: number for number, one in enumerate(flow.joins)}
        # Cuts directly behind a source, by source.
        self.cuts: dict[str, list[Operator]] = {}
        of_source = {one.name for one in flow.of_kind(SOURCE)}
        for one in flow.of_kind(CUT):
            if one.inputs[0] in of_source:
                self.cuts.setdefault(one.inputs[0], []).append(one)

    def submit(self, name: str) -> str:
        """Add all operators and start the job; its id.

        Raises:
            NovaError: for sources that are not there, or cannot be read.
        """
        self.build()
        return str(self.environment.executeAsync(name).getJobID().toString())

    def build(self) -> None:
        """Add all operators."""
        fast = {
            SOURCE: self.source,
            CUT: self.partition,
            SELECT: self.partition,
            RELAY: self.relay,
            JOIN: self.join,
            SINK: self.sink,
        }
        rows = {
            SOURCE: self.row_source,
            FILTER: self.step,
            PROJECT: self.step,
            CUT: self.step,
            SELECT: self.step,
            RELAY: self.row_relay,
            JOIN: self.gather,
            AGGREGATE: self.gather,
            SINK: self.row_sink,
        }
        make = rows if self.flow.has_columns else fast
        for one in self.flow.operators:
            if one.name in self.streams:
                continue  # a cut that its source created
            if one.kind not in make:
                raise NovaError(f"{one.name}: a {one.kind} of tuples without columns")
            self.streams[one.name] = make[one.kind](one)

    def placed(self, stream: Any, one: Operator) -> Any:
        """A stream's operator, with the name and node of a flow's."""
        return stream.name(one.name).slotSharingGroup(self.group(one))

    def group(self, one: Operator) -> Any:
        """The slot-sharing group of an operator's node, or its own if it may run anywhere."""
        key = (one.node, "" if one.node else one.name)
        if key not in self.groups:
            self.groups[key] = (
                slot_sharing_group(self.gateway, one.node)
                if one.node
                else free_group(self.gateway, one.name)
            )
        return self.groups[key]

    def input(self, one: Operator) -> Any:
        """The union of the outputs that an operator receives."""
        names = (*one.inputs, *one.right)
        if not names:
            raise NovaError(f"{one.name}: receives nothing")
        first, *others = (self.streams[name] for name in names)
        if not others:
            return first
        stream = self.gateway.jvm.org.apache.flink.streaming.api.datastream.DataStream
        return first.union(self.array(stream, others))

    # --- tuples without columns -------------------------------------------------------------------

    def source(self, one: Operator) -> Any:
        """A source, and the cuts that are made of what it emits."""
        kind, group = self.java.SensorTuple.type(), self.group(one)
        emitted = self.emitted(one).slotSharingGroup(group)
        cuts = self.cuts.get(one.name, [])
        if not cuts:
            sent = emitted.transform(f"send {one.source}", kind, self.java.Forward())
            return sent.slotSharingGroup(group)
        tag = self.gateway.jvm.org.apache.flink.util.OutputTag
        tags = [tag(cut.name, kind) for cut in cuts]
        sent = emitted.transform(
            ", ".join([f"send {one.source}", *(cut.name for cut in cuts)]),
            kind,
            self.java.Send(
                self.array(tag, tags),
                self.array(self.java.PartitionFilter, [self.intervals(cut) for cut in cuts]),
            ),
        ).slotSharingGroup(group)
        for cut, its in zip(cuts, tags, strict=True):
            self.streams[cut.name] = sent.getSideOutput(its)
        return sent

    def emitted(self, one: Operator) -> Any:
        """What a source emits, by its kind."""
        number = self.sources.index(one.source)
        stream, sources = self.sources.sources[number], self.sources
        kind, watermarks = (
            self.java.SensorTuple.type(),
            (self.flow.boundary_ms, sources.watermark_ms),
        )
        ends = sources.count_of(number)
        count = -1 if ends is None else ends
        if stream.of_readings:
            raise NovaError(f"{one.name}: readings have columns, and its tuples have none")
        if stream.kind == KAFKA:
            message = self.java.TupleMessage(number, sources.strict)
            messages = self.kafka(number, message, sources.count)
            if sources.control:
                messages = self.java.OrderedSource(messages, number, sources.control)
            strategy = self.java.MessageWatermarks(*watermarks)
            return self.environment.fromSource(messages, strategy, one.name, kind)
        if stream.kind == SOCKET:
            function = self.java.SocketSource(
                number,
                stream.sensor or stream.source,
                stream.stream,
                *stream.endpoint,
                round(stream.connect_s * 1000),
                count,
                *watermarks,
                sources.strict,
            )
        else:
            function = self.java.PacedSource(
                number,
                stream.encoded(),
                stream.pace.pack(),
                sources.start_ms,
                count,
                tick_us(self.flow, sources),
                *watermarks,
                sources.control,
            )
        return self.environment.addSource(function, one.name, kind)

    def kafka(self, number: int, message: Any, count: int | None) -> Any:
        """Flink's connector, reading a source's partition.

        Args:
            number: of the source.
            message: makes tuples of messages.
            count: messages after which it ends; None is without end.
        """
        jvm, stream = self.gateway.jvm, self.sources.sources[number]
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
        builder.setValueOnlyDeserializer(message)
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
        by = "commit.offsets.on.checkpoint" if self.sources.checkpoint_ms else "enable.auto.commit"
        return {"group.id": group, by: "true", "auto.commit.interval.ms": COMMIT_MS}

    def partition(self, one: Operator) -> Any:
        """A cut, or a select, of a stream's partitions."""
        passed = self.placed(self.input(one).filter(self.intervals(one)), one)
        return passed.transform(
            f"send {one.name}", self.java.SensorTuple.type(), self.java.Forward()
        ).slotSharingGroup(self.group(one))

    def intervals(self, one: Operator) -> Any:
        """The Java filter for an operator's partitions."""
        return self.java.PartitionFilter(self.doubles(one.low), self.doubles(one.high))

    def relay(self, one: Operator) -> Any:
        """A hop of a route."""
        is_result = self.flow.origin(one.name).kind == JOIN
        kind = self.java.JoinResult if is_result else self.java.SensorTuple
        return self.placed(
            self.input(one).transform(one.name, kind.type(), self.java.Forward()), one
        )

    def join(self, one: Operator) -> Any:
        """An instance of the plan: Flink's window operator over both inputs."""
        jvm = self.gateway.jvm
        left, right = (self.flow.origin(names[0]).source for names in (one.inputs, one.right))
        if left == right:
            raise NovaError(f"{one.name}: joins {left!r} with itself")
        windows = jvm.org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows
        match = self.java.WindowMatch(self.instance[one.name], self.sources.index(left), *one.match)
        kind = self.java.JoinResult.type()
        # All tuples have the same key, so senders need not compute it for each tuple.
        keyed = jvm.org.apache.flink.streaming.api.datastream.DataStreamUtils
        joined = (
            keyed.reinterpretAsKeyedStream(
                self.input(one),
                self.java.RegionKey(),
                jvm.org.apache.flink.api.common.typeinfo.Types.INT,
            )
            .window(windows.of(jvm.java.time.Duration.ofMillis(one.window[0])))
            .apply(match, kind)
        )
        return (
            self.placed(joined, one)
            .transform(f"send {one.name}", kind, self.java.Forward())
            .slotSharingGroup(self.group(one))
        )

    def sink(self, one: Operator) -> Any:
        """A sink that writes results of pairs."""
        return self.placed(self.input(one).addSink(self.java.ResultSink(self.files[one.name])), one)

    # --- tuples with columns ----------------------------------------------------------------------

    def row_source(self, one: Operator) -> Any:
        """A source that replays its readings, or reads them from a topic."""
        sources = self.sources
        number = sources.index(one.source)
        stream, kind = sources.sources[number], self.of_rows.FlinkRow.type()
        if not stream.of_readings:
            raise NovaError(f"{one.name}: kind {stream.kind!r}: tuples with columns are readings")
        types = self.array(self.gateway.jvm.String, one.types)
        if stream.kind == READINGS:
            nova = self.gateway.jvm.nova.engines
            function = self.of_rows.RowSource(
                one.source,
                number,
                stream.encoded(),
                types,
                nova.EventClock(sources.begin_ms, sources.start_ms, float(sources.speed)),
                sources.watermark_ms,
                sources.control,
                sources.last_ms or 0,
            )
            return self.placed(self.environment.addSource(function, one.name, kind), one)
        # A file says what producers send; without it, there is no end.
        count = None
        if stream.path is not None:
            count = sum(1 for _ in readings_in(stream.encoded(), one.types, stream.path))
        message = self.of_rows.RowMessage(number, types, sources.strict)
        marks = self.java.MessageWatermarks(sources.watermark_ms, sources.watermark_ms)
        rows = self.environment.fromSource(
            self.kafka(number, message, count),
            marks.withTimestampAssigner(message),
            one.name,
            kind,
        )
        return self.placed(rows, one)

    def step(self, one: Operator) -> Any:
        """An operator on single tuples: a filter, a projection or a cut."""
        condition = projection = cut = None
        if one.kind == FILTER:
            condition = self.program(one.programs[0])
        elif one.kind == PROJECT:
            projection = self.programs(one.programs)
        else:
            values = [self.array(self.gateway.jvm.String, values) for values, _, _ in one.hot]
            cut = self.shared.Cut(
                one.side,
                self.doubles(one.low),
                self.doubles(one.high),
                self.ints(one.hashed),
                self.arrays(self.gateway.jvm.String, values),
                self.doubles([begin for _, begin, _ in one.hot]),
                self.doubles([end for _, _, end in one.hot]),
                float(one.others),
            )
        return self.transform(
            one, self.of_rows.StepOperator(self.shared.Step(condition, projection, cut))
        )

    def gather(self, one: Operator) -> Any:
        """An instance of a join or an aggregate."""
        jvm = self.gateway.jvm
        join = one.kind == JOIN
        columns = (
            [tuple(left for left, _ in one.keys), tuple(right for _, right in one.keys)]
            if join
            else [one.groups]
        )
        tables = self.arrays(jvm.int, [self.ints(numbers) for numbers in columns])
        functions = None if join else self.array(jvm.String, one.functions)
        return self.transform(
            one,
            self.of_rows.Gather(
                self.array(jvm.long, one.window),
                self.array(jvm.boolean, one.kept),
                tables,
                self.programs(one.programs),
                functions,
                one.partial,
            ),
        )

    def row_relay(self, one: Operator) -> Any:
        """A hop of a route."""
        return self.transform(one, self.java.Forward())

    def row_sink(self, one: Operator) -> Any:
        """A sink that writes a query's results."""
        text = self.gateway.jvm.String
        columns, types = self.array(text, one.columns), self.array(text, one.types)
        written = self.of_rows.RowSink(self.files[one.name], columns, types)
        return self.placed(self.input(one).addSink(written), one)

    def transform(self, one: Operator, operator: Any) -> Any:
        """An operator behind its inputs."""
        rows = self.input(one).transform(one.name, self.of_rows.FlinkRow.type(), operator)
        return self.placed(rows, one)

    def program(self, tokens: Sequence[str]) -> Any:
        """A Java program for an expression."""
        return self.shared.Program(self.array(self.gateway.jvm.String, tokens))

    def programs(self, several: Sequence[Sequence[str]]) -> Any:
        """A Java array of programs."""
        return self.array(self.shared.Program, [self.program(one) for one in several])

    def ints(self, values: Sequence[int]) -> Any:
        """A Java array of ints."""
        return self.array(self.gateway.jvm.int, values)

    def arrays(self, kind: Any, arrays: Sequence[Any]) -> Any:
        """A Java array of arrays."""
        nested = self.gateway.new_array(kind, len(arrays), 0)
        for number, one in enumerate(arrays):
            nested[number] = one
        return nested

    # --- Java -------------------------------------------------------------------------------------

    def doubles(self, values: Sequence[float]) -> Any:
        """A Java array of doubles."""
        return self.array(self.gateway.jvm.double, [float(value) for value in values])

    def array(self, kind: Any, values: Sequence[Any]) -> Any:
        """A Java array."""
        array = self.gateway.new_array(kind, len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array


def tick_us(flow: Flow, sources: Sources) -> int:
    """How long a source waits between checks of the clock, us."""
    aligned = max(flow.boundary_ms, sources.watermark_ms) % TICK_MS == 0
    return TICK_MS * (1000 if aligned else 500)
