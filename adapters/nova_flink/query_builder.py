"""Turns a flow of queries into a job, in Flink's own environment (standard library and pyflink)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from nova_flink.builder import SETTINGS, JavaJob

# Watermarks flush the buffers.
BUFFERS = {
    "execution.buffer-timeout.enabled": "true",
    "execution.buffer-timeout.interval": "100 ms",
}


class QueryJob(JavaJob):
    """A job of queries.

    Args:
        flow: what runs.
        readings: what the sources emit.
        rest_url: of the cluster.
        result_file: where the sinks write, on their nodes (`Flow.result_files`).

    Raises:
        NovaError: for a URL without host and port, or a source without readings.
    """

    def __init__(
        self, flow: QueryFlow, readings: Readings, rest_url: str, result_file: str
    ) -> None:
        super().__init__(rest_url, SETTINGS | BUFFERS, flow.result_files(result_file))
        self.flow, self.readings = flow, readings
        jvm = self.gateway.jvm
        self.java, self.shared = jvm.nova.flink.query, jvm.nova.engines.query

    def build(self) -> None:
        """Add all operators."""
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
            stream.name(one.name).slotSharingGroup(self.group(one))
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
        text = self.gateway.jvm.String
        columns, types = self.array(text, one.columns), self.array(text, one.types)
        return self.input(one).addSink(self.java.RowSink(self.files[one.name], columns, types))

    def transform(self, one: Operator, operator: Any) -> Any:
        """An operator behind its inputs."""
        return self.input(one).transform(one.name, self.java.FlinkRow.type(), operator)

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
