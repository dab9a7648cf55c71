"""The job of a flow of pairs: one query of Spark for every sink.

A union of all sources, one stateful join of its two sides (``transformWithState``) and a sink.
Where a plan has relays, every hop of the longest route is a stage between them, which rows of
shorter routes pass on the node that they are on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.flow import CUT, JOIN, RELAY, SELECT, SINK, SOURCE, Flow, Operator
from nova_engines.sources import READINGS, SOCKET
from nova_spark.tasks import Job, Position, host_of, require_slots, topic_of

if TYPE_CHECKING:
    from nova_engines.sources import Sources

# Of operators that jobs may have.
KINDS = (SOURCE, CUT, SELECT, RELAY, JOIN, SINK)


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
            topic = topic_of(stream, strict=self.given.strict)
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
