"""Turns a flow of queries into a job, in Flink's own environment (standard library and pyflink)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova_core.errors import NovaError
from nova_engines.query_flow import (
    AGGREGATE,
    CUT,
    FILTER,
    JOIN,
    PROJECT,
    SELECT,
    SINK,
    SOURCE,
    Operator,
    QueryFlow,
    Readings,
)
from nova_flink.builder import remote_environment
from nova_flink.pin import slot_sharing_group
from nova_flink.rest import host_and_port

SETTINGS = {
    "parallelism.default": "1",
    "rest.retry.max-attempts": "3",
    "execution.runtime-mode": "STREAMING",
    # Watermarks flush the buffers.
    "execution.buffer-timeout.enabled": "true",
    "execution.buffer-timeout.interval": "100 ms",
    "pipeline.auto-watermark-interval": "0 ms",
    # No operator here keeps or changes the tuples that it emits.
    "pipeline.object-reuse": "true",
    "pipeline.generic-types": "false",
}


def submit(
    flow: QueryFlow, readings: Readings, rest_url: str, results: str, name: str = "nova"
) -> str:
    """Start a job; return its id.

    Raises:
        NovaError: for a URL without host and port, or a source without readings.
    """
    host, port = host_and_port(rest_url)
    from pyflink.java_gateway import get_gateway

    gateway = get_gateway()
    environment = remote_environment(gateway, host, port, dict(SETTINGS))
    _Job(gateway, environment, flow, readings, results).build()
    return str(environment.executeAsync(name).getJobID().toString())


class _Job:
    def __init__(
        self, gateway: Any, environment: Any, flow: QueryFlow, readings: Readings, results: str
    ) -> None:
        self.gateway, self.environment = gateway, environment
        self.flow, self.readings = flow, readings
        self.java, self.shared = gateway.jvm.nova.flink.query, gateway.jvm.nova.engines.query
        self.files = flow.result_files(results)
        self.streams: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}

    def build(self) -> None:
        """Add all operators, each pinned to its node."""
        make = {
            SOURCE: self.source,
            FILTER: self.step,
            PROJECT: self.step,
            CUT: self.step,
            SELECT: self.step,
            JOIN: self.gather,
            AGGREGATE: self.gather,
            SINK: self.sink,
        }
        for one in self.flow.operators:
            stream = make[one.kind](one)
            if one.node not in self.groups:
                self.groups[one.node] = slot_sharing_group(self.gateway, one.node)
            stream.name(one.name).slotSharingGroup(self.groups[one.node])
            self.streams[one.name] = stream

    def source(self, one: Operator) -> Any:
        """A source that replays its readings."""
        function = self.java.RowSource(
            one.source,
            self.readings.encoded(one.source),
            self.array(self.gateway.jvm.String, one.types),
            self.readings.first_ms,
            self.readings.start_ms,
            float(self.readings.speed),
            self.readings.watermark_ms,
        )
        return self.environment.addSource(function, one.name, self.java.FlinkRow.type())

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
            one, self.java.StepOperator(self.shared.Step(condition, projection, cut))
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
            self.java.Gather(
                self.array(jvm.long, one.window),
                self.array(jvm.boolean, one.kept),
                tables,
                self.programs(one.programs),
                functions,
                one.partial,
            ),
        )

    def sink(self, one: Operator) -> Any:
        """A sink that writes a query's results."""
        return self.input(one).addSink(self.java.RowSink(self.files[one.name]))

    def transform(self, one: Operator, operator: Any) -> Any:
        """An operator behind its inputs."""
        return self.input(one).transform(one.name, self.java.FlinkRow.type(), operator)

    def input(self, one: Operator) -> Any:
        """The union of the outputs that an operator receives."""
        if not one.inputs:
            raise NovaError(f"{one.name}: receives nothing")
        first, *others = (self.streams[name] for name in one.inputs)
        if not others:
            return first
        stream = self.gateway.jvm.org.apache.flink.streaming.api.datastream.DataStream
        return first.union(self.array(stream, others))

    def program(self, tokens: Sequence[str]) -> Any:
        """A Java program for an expression."""
        return self.shared.Program(self.array(self.gateway.jvm.String, tokens))

    def programs(self, several: Sequence[Sequence[str]]) -> Any:
        """A Java array of programs."""
        return self.array(self.shared.Program, [self.program(one) for one in several])

    def doubles(self, values: Sequence[float]) -> Any:
        """A Java array of doubles."""
        return self.array(self.gateway.jvm.double, [float(value) for value in values])

    def ints(self, values: Sequence[int]) -> Any:
        """A Java array of ints."""
        return self.array(self.gateway.jvm.int, values)

    def arrays(self, kind: Any, arrays: Sequence[Any]) -> Any:
        """A Java array of arrays."""
        nested = self.gateway.new_array(kind, len(arrays), 0)
        for number, one in enumerate(arrays):
            nested[number] = one
        return nested

    def array(self, kind: Any, values: Sequence[Any]) -> Any:
        """A Java array."""
        array = self.gateway.new_array(kind, len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array
