"""The job of a flow whose tuples have columns: all of its queries are one query of Spark.

Operators are in stages. A source begins a task of the first stage; what its tuples alone pass on
its node is in the same task. Everything else is in the first stage behind all of its inputs, where
each node has one task; an operator whose last inputs are of that task is part of it. What an
operator sends to a later stage waits in no stage between, but passes them on the operator's node.

Windows are in the memory of the tasks' executors, as on other engines, and not in Spark's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.flow import SINK, SOURCE, Flow, Operator
from nova_engines.readings import readings_in
from nova_engines.sources import KAFKA
from nova_spark.tasks import Job, Position, host_of, require_slots, topic_of

if TYPE_CHECKING:
    from nova_engines.sources import Sources

# Fields of operators that tasks read as they are.
FIELDS = (
    *("name", "kind", "types", "columns", "programs", "side", "low", "high", "hashed", "others"),
    *("window", "kept", "keys", "groups", "functions", "partial"),
)


def job_of_queries(flow: Flow, sources: Sources, addresses: Mapping[str, str], results: str) -> Job:
    """The job of a flow whose tuples have columns.

    Args:
        flow: what runs where.
        sources: its readings.
        addresses: of the nodes.
        results: the first sink's file, see `Flow.result_files`.

    Raises:
        NovaError: for other sources than readings, and what `topic_of` refuses; for nodes without
            address, and more tasks on a node than a Worker has slots.
    """
    return _Builder(flow, sources, addresses).job(results)


class _Builder:
    """Gives every operator its stage and task, and finds the ways between tasks."""

    def __init__(self, flow: Flow, sources: Sources, addresses: Mapping[str, str]) -> None:
        self.flow, self.sources, self.addresses = flow, sources, addresses
        self.numbers = {one.name: number for number, one in enumerate(flow.operators)}
        self.nodes = flow.placement
        # Of each stage, tasks by node; those of the first by the source that they begin with.
        self.stages: list[dict[str, list[int]]] = [{}]
        self.hosts: list[list[str]] = [[]]
        self.places: dict[str, tuple[int, int]] = {}
        self.paths: dict[tuple[str, int, int], dict[str, Any]] = {}

    def job(self, results: str) -> Job:
        """All queries."""
        for number, one in enumerate(self.flow.operators):
            self.places[one.name] = stage, task = self._place(one)
            list(self.stages[stage].values())[task].append(number)
        for one in self.flow.operators:
            for name in (*one.inputs, *one.right):
                if self.places[name] != self.places[one.name]:
                    self._path(name, *self.places[one.name])
        require_slots([host for hosts in self.hosts for host in hosts])
        files = self.flow.result_files(results)
        s = self.sources
        names = ["sources", *(f"stage {number}" for number in range(1, len(self.stages)))]
        document = {
            "operators": [self._operator(one, files) for one in self.flow.operators],
            "stages": [
                {"name": name, "hosts": hosts, "tasks": list(tasks.values())}
                for name, hosts, tasks in zip(names, self.hosts, self.stages, strict=True)
            ],
            "paths": list(self.paths.values()),
            **({} if s.first_ms is None else {"first_ms": s.first_ms}),
            "speed": s.speed,
            "watermark_ms": s.watermark_ms,
        }
        tasks = {name: (names[stage], task) for name, (stage, task) in self.places.items()}
        # A source's position is 1 at its end; how many readings it has sent is not told.
        endless = {
            one.source for one in self.sources.sources if one.kind == KAFKA and one.path is None
        }
        ends = [Position(one, 0, -1 if one in endless else 1) for one in self.stages[0]]
        return Job("queries", document, tasks, ends)

    def _place(self, one: Operator) -> tuple[int, int]:
        """Stage and task of an operator whose inputs have theirs."""
        if one.kind == SOURCE:
            return 0, self._task(0, one.source, one.node)
        inputs = [(self.places[name], self.nodes[name]) for name in (*one.inputs, *one.right)]
        last = max(stage for (stage, _), _ in inputs)
        there = {place for place, _ in inputs if place[0] == last}
        same = all(node == one.node for place, node in inputs if place in there)
        # A task of the first stage has one source, and receives nothing.
        if same and (last or len({place for place, _ in inputs}) == 1):
            return there.pop()
        return last + 1, self._task(last + 1, one.node, one.node)

    def _task(self, stage: int, key: str, node: str) -> int:
        """Number of a stage's task; it is made where there is none."""
        if stage == len(self.stages):
            self.stages.append({})
            self.hosts.append([])
        tasks = self.stages[stage]
        if key not in tasks:
            tasks[key] = []
            self.hosts[stage].append(host_of(self.addresses, node))
        return list(tasks).index(key)

    def _path(self, producer: str, stage: int, task: int) -> None:
        """Add the way of what an operator emits to a task of a later stage."""
        if (producer, stage, task) in self.paths:
            return
        begin, _ = self.places[producer]
        node = self.nodes[producer]
        slots = [self._task(passed, node, node) for passed in range(begin + 1, stage)]
        self.paths[producer, stage, task] = {
            "producer": self.numbers[producer],
            "stage": begin,
            "slots": [*slots, task],
        }

    def _operator(self, one: Operator, files: Mapping[str, str]) -> dict[str, Any]:
        fields = asdict(one)
        read: dict[str, Any] = {"file": files[one.name] if one.kind == SINK else "", "count": -1}
        if one.kind == SOURCE:
            read |= self._read(one)
        values, low, high = zip(*one.hot, strict=True) if one.hot else ((), (), ())
        return {
            **{name: fields[name] for name in FIELDS},
            "inputs": [self.numbers[name] for name in (*one.inputs, *one.right)],
            "hot": {"values": values, "low": low, "high": high},
            **read,
        }

    def _read(self, one: Operator) -> dict[str, Any]:
        """Where a source's readings are, and how many, if that is known of a topic."""
        source = self.sources.sources[self.sources.index(one.source)]
        if not source.of_readings:
            raise NovaError(
                f"source {source.source!r}: kind {source.kind!r}: tuples with columns are readings"
            )
        topic = topic_of(source, strict=self.sources.strict)
        if topic is None:
            return {"file": source.path}
        if source.path is None:
            return {"topic": topic}
        # A file says what producers send; without it, there is no end.
        count = sum(1 for _ in readings_in(source.encoded(), one.types, source.path))
        return {"topic": topic, "count": count}
