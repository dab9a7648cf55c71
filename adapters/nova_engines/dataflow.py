"""What the engine runs for a plan, operator by operator, each on its node.

A source emits all its tuples. A filter on the source's node passes those that an instance's node
needs, so that only the plan's partitions cross the network; relays pass them on where a route has
inner nodes. Instances of one pair on one node share what arrives, and each selects its own range.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from nova_core.errors import NovaError
from nova_engines.documents import from_json, read, to_json

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.workload import Workload

Ranges = tuple[tuple[int, int], ...]
SOURCE, FILTER, SELECT, RELAY, JOIN, SINK = KINDS = (
    "source",
    "filter",
    "select",
    "relay",
    "join",
    "sink",
)


@dataclass(frozen=True)
class FlowOperator:
    """What operators of pairs and of queries have in common.

    Attributes:
        name: unique; what the engine calls it.
        node: where it runs; empty where the engine decides.
        kind: one of the flow's kinds.
        inputs: names of the operators it receives from.
        right: of joins of pairs: names the right input comes from; ``inputs`` has the left one's.
        source: id of the problem's source whose tuples it emits, or passes.
    """

    name: str
    node: str
    kind: str
    inputs: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    source: str = ""


One = TypeVar("One", bound=FlowOperator)


@dataclass(frozen=True)
class Flow(Generic[One]):
    """All operators of a plan, inputs before those that receive from them.

    Attributes:
        operators: everything that runs.
        problem: digest of the problem the plan answers.
        strategy: name of the one that made the plan.
    """

    operators: tuple[One, ...]
    problem: str = ""
    strategy: str = ""

    def of_kind(self, kind: str) -> tuple[One, ...]:
        """Operators of one kind, in order."""
        return tuple(one for one in self.operators if one.kind == kind)

    @cached_property
    def sinks(self) -> tuple[One, ...]:
        """One for every node that consumes results, or for every query."""
        return self.of_kind(SINK)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that run anything, in order of their first operator."""
        return tuple(dict.fromkeys(one.node for one in self.operators if one.node))

    @property
    def placement(self) -> dict[str, str]:
        """The node of every operator, by its name."""
        return {one.name: one.node for one in self.operators}

    def result_files(self, path: str) -> dict[str, str]:
        """Per sink operator, the file on its node: ``path``, numbered from the second sink on."""
        return {
            one.name: path if number == 0 else f"{path}.{number}"
            for number, one in enumerate(self.sinks)
        }


@dataclass(frozen=True)
class Operator(FlowOperator):
    """One operator of a plan of pairs.

    Attributes:
        reached: of filters and selects: cumulative shares of the input's partitions
            (`nova_core.model.partitioner.partition_of`).
        ranges: of filters and selects: the partitions that pass, as first and one past the last.
        left_source: of joins.
        right_source: of joins.
    """

    reached: tuple[float, ...] = ()
    ranges: Ranges = ()
    left_source: str = ""
    right_source: str = ""

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """Of filters and selects: the ranges as intervals of the u in [0, 1) a tuple has."""
        return tuple(interval(self.reached, begin, end) for begin, end in self.ranges)


def interval(reached: Sequence[float], begin: int, end: int) -> tuple[float, float]:
    """The interval of the u in [0, 1) of tuples of partitions ``begin`` to ``end`` - 1.

    Args:
        reached: cumulative shares of all partitions.
        begin: the first partition.
        end: one past the last.
    """
    return reached[begin - 1] if begin else 0.0, reached[end - 1] if end < len(reached) else 2.0


@dataclass(frozen=True)
class Dataflow(Flow[Operator]):
    """All operators of a plan of pairs."""

    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for one in self.operators:
            if one.kind not in KINDS:
                raise NovaError(
                    f"dataflow: {one.name!r}: kind {one.kind!r}: expected one of {', '.join(KINDS)}"
                )
            if one.name in seen:
                raise NovaError(f"dataflow: operator {one.name!r} is there twice")
            for name in (*one.inputs, *one.right):
                if name not in seen:
                    raise NovaError(f"dataflow: {one.name!r} receives from unknown {name!r}")
            seen.add(one.name)

    @cached_property
    def joins(self) -> tuple[Operator, ...]:
        """The plan's instances, in its order; results name them by their index here."""
        return self.of_kind(JOIN)

    def unpinned(self) -> Dataflow:
        """The same operators, pinned only where sensors and sinks require it.

        Sources, filters directly behind them, and sinks keep their nodes; the engine places others.
        """
        sources = {one.name for one in self.of_kind(SOURCE)}

        def free(one: Operator) -> bool:
            cuts = one.kind == FILTER and one.inputs[0] in sources
            return one.kind not in (SOURCE, SINK) and not cuts

        moved = [replace(one, node="") if free(one) else one for one in self.operators]
        return replace(self, operators=tuple(moved))

    def of_sources(self, names: Collection[str]) -> Dataflow:
        """The part that these sources feed; both sources of a join are among them, or neither."""
        kept: dict[str, Operator] = {}
        for one in self.operators:
            inputs = tuple(name for name in one.inputs if name in kept)
            right = tuple(name for name in one.right if name in kept)
            if one.source in names if one.kind == SOURCE else inputs:
                kept[one.name] = replace(one, inputs=inputs, right=right)
        return replace(self, operators=tuple(kept.values()))

    def to_json(self) -> str:
        """As JSON text."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str, where: str = "dataflow") -> Dataflow:
        """From JSON text; errors name ``where``.

        Raises:
            NovaError: naming the field and what it should hold.
        """
        return from_json(text, cls, where)

    @classmethod
    def read(cls, path: Path) -> Dataflow:
        """From a file of JSON; errors as of `from_json`."""
        return read(path, cls)


def from_plan(plan: Plan, problem: Problem, workload: Workload | None = None) -> Dataflow:
    """What the engine must run for a plan.

    Args:
        plan: where instances run and what they receive.
        problem: the one it answers.
        workload: checked for the sources that are joined, if given.

    Raises:
        NovaError: for a plan of another problem, or a source that the workload lacks.
    """
    plan.require_problem(problem)
    return _Builder(plan, workload).dataflow()


class _Builder:
    """Builds the operators of a plan, in the order they are connected."""

    def __init__(self, plan: Plan, workload: Workload | None) -> None:
        from nova_core.model.edges import edges

        self.plan, p = plan, plan.problem
        self.edges = edges(plan)
        self.nodes: list[str] = p.nodes.ids.tolist()
        self.sources: list[str] = p.sources.ids.tolist()
        self.pairs: list[int] = plan.instances.pair.tolist()
        self.node: list[int] = plan.instances.node.tolist()
        replica = plan.replica_number.tolist()
        self.ids = [f"{p.pair_name(pair)}#{replica[k]}" for k, pair in enumerate(self.pairs)]
        self.operators: list[Operator] = []
        self.known: set[str] = set()
        # By pair, node and leg: operators whose output arrives there, and its partitions.
        self.arrivals: dict[tuple[int, int, int], list[tuple[str, Ranges]]] = {}
        if workload is not None:
            for source in sorted({*p.matrix.left.tolist(), *p.matrix.right.tolist()}):
                workload.index(self.sources[source])

    def add(self, operator: Operator) -> str:
        """Append an operator unless its name exists; its name."""
        if operator.name not in self.known:
            self.known.add(operator.name)
            self.operators.append(operator)
        return operator.name

    def dataflow(self) -> Dataflow:
        """The whole dataflow."""
        e = self.edges
        rows = [divmod(link, 3) for link in e.link.tolist()]  # a pair's instance has three links
        for row, (instance, leg) in enumerate(rows):
            if leg < 2:
                runs = slice(int(e.offset[row]), int(e.offset[row + 1]))
                ranges = tuple(zip(e.begin[runs].tolist(), e.end[runs].tolist(), strict=True))
                self.input_flow(instance, leg, ranges)
        arriving: dict[int, list[str]] = {}
        for instance, name in enumerate([self.join(k) for k in range(len(self.ids))]):
            sink, last = self.result_flow(instance, name)
            arriving.setdefault(sink, []).append(last)
        for sink in sorted(arriving):
            at = self.nodes[sink]
            self.add(Operator(f"sink {at}", at, SINK, tuple(arriving[sink])))
        return Dataflow(tuple(self.operators), self.plan.problem.digest, self.plan.strategy)

    def source_of(self, pair: int, leg: int) -> int:
        """Index of a pair's left or right source."""
        m = self.plan.problem.matrix
        return int((m.left, m.right)[leg][pair])

    def reached(self, pair: int, leg: int) -> tuple[float, ...]:
        """Cumulative shares of an input's partitions."""
        from nova_core.model.partitioner import reached

        return tuple(reached(self.plan.partitions.rates(pair, leg)).tolist())

    def route(self, instance: int, leg: int) -> list[int]:
        """Nodes a flow passes, both ends included."""
        plan, pair = self.plan, self.pairs[instance]
        if plan.routes is not None:
            offset = plan.routes.offset[3 * instance + leg : 3 * instance + leg + 2]
            route: list[int] = plan.routes.node[offset[0] : offset[1]].tolist()
            return route
        if leg == 2:
            return [self.node[instance], int(plan.problem.sink_node[pair])]
        producer = int(plan.problem.sources.node[self.source_of(pair, leg)])
        return [producer, self.node[instance]]

    def input_flow(self, instance: int, leg: int, ranges: Ranges) -> None:
        """Add a source, its filter, and the relays on the way to an instance's node."""
        pair, side = self.pairs[instance], ("left", "right")[leg]
        source = self.source_of(pair, leg)
        name, route = self.sources[source], self.route(instance, leg)
        at = self.nodes[int(self.plan.problem.sources.node[source])]
        last = self.add(Operator(f"source {name}", at, SOURCE, source=name))
        reached = self.reached(pair, leg)
        if ranges != ((0, len(reached)),):
            last = self.add(
                Operator(
                    f"filter {self.ids[instance]} {side}",
                    at,
                    FILTER,
                    (last,),
                    source=name,
                    reached=reached,
                    ranges=ranges,
                )
            )
        for number, node in enumerate(route[1:-1], 1):
            relay = f"relay {self.ids[instance]} {side} {number}"
            last = self.add(Operator(relay, self.nodes[node], RELAY, (last,)))
        self.arrivals.setdefault((pair, self.node[instance], leg), []).append((last, ranges))

    def join(self, instance: int) -> str:
        """Add an instance, and selects where more than its ranges arrives; the join's name."""
        i, pair, node = self.plan.instances, self.pairs[instance], self.node[instance]
        bounds = ((i.left_begin, i.left_end), (i.right_begin, i.right_end))
        inputs = []
        for leg, (begin, end) in enumerate(bounds):
            own_range = (int(begin[instance]), int(end[instance]))
            arrived = self.arrivals[pair, node, leg]
            useful = [name for name, runs in arrived if any(_meet(run, own_range) for run in runs)]
            surplus = any(not _within(run, own_range) for _, runs in arrived for run in runs)
            side = ("left", "right")[leg]
            if surplus:
                select = Operator(
                    f"select {self.ids[instance]} {side}",
                    self.nodes[node],
                    SELECT,
                    tuple(useful),
                    source=self.sources[self.source_of(pair, leg)],
                    reached=self.reached(pair, leg),
                    ranges=(own_range,),
                )
                useful = [self.add(select)]
            inputs.append(tuple(useful))
        return self.add(
            Operator(
                f"join {self.ids[instance]}",
                self.nodes[node],
                JOIN,
                inputs[0],
                inputs[1],
                left_source=self.sources[self.source_of(pair, 0)],
                right_source=self.sources[self.source_of(pair, 1)],
            )
        )

    def result_flow(self, instance: int, last: str) -> tuple[int, str]:
        """Add relays for an instance's results; the sink's node, and the operator it receives from.

        Each instance has relays of its own: shared ones would wait for the slowest instance's
        window.
        """
        route = self.route(instance, 2)
        for number, node in enumerate(route[1:-1], 1):
            relay = f"relay {self.ids[instance]} result {number}"
            last = self.add(Operator(relay, self.nodes[node], RELAY, (last,)))
        return int(self.plan.problem.sink_node[self.pairs[instance]]), last


def _meet(run: tuple[int, int], other: tuple[int, int]) -> bool:
    return run[0] < other[1] and other[0] < run[1]


def _within(run: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= run[0] and run[1] <= outer[1]
