"""What Spark runs for a plan in every micro-batch, stage by stage, each on its node.

A stage runs where one thing pins it, so a plan becomes a tree of stages: each input of a join is a
stage on its source's node that reads, cuts out the plan's partitions and sends; relays are stages
that pass on; a join is a stage; all results of a sink's node meet in one. Instances of a pair on
one node share a stage, as they share what arrives (`nova_core.model.edges`), unless their routes
differ; the stage joins what belongs to one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_engines.documents import from_json, to_json

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.workload import Workload

Range = tuple[int, int]


@dataclass(frozen=True)
class Stage:
    """Something that runs on one node.

    Attributes:
        name: unique in a flow.
        node: where it runs.
    """

    name: str
    node: str


@dataclass(frozen=True)
class Input:
    """One side of a join.

    Attributes:
        source: whose tuples they are.
        stages: the one that reads, then those that pass on.
        rates: of the partitions of all the source sends for the pair, tuples/s.
        ranges: partitions that are sent, as first and one past the last; ascending, apart.
    """

    source: str
    stages: tuple[Stage, ...]
    rates: tuple[float, ...]
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class Piece:
    """What one instance of the plan joins.

    Attributes:
        instance: its index in the plan.
        left: partitions of the left input, first and one past the last.
        right: of the right one.
    """

    instance: int
    left: Range
    right: Range


@dataclass(frozen=True)
class Join:
    """Instances of one pair on one node.

    Attributes:
        left: its left input.
        right: its right input.
        stages: the one that joins, then those that pass results on.
        pieces: one per instance.
        sink: name of the stage that takes the results.
    """

    left: Input
    right: Input
    stages: tuple[Stage, ...]
    pieces: tuple[Piece, ...]
    sink: str

    @property
    def name(self) -> str:
        """Of the stage that joins."""
        return self.stages[0].name


@dataclass(frozen=True)
class Flow:
    """All stages of a plan.

    Attributes:
        joins: in the order of their first instances.
        sinks: one for every node that consumes results.
        instances: names of the plan's instances, by index.
        problem: digest of the problem the plan answers.
        strategy: what made the plan.
    """

    joins: tuple[Join, ...]
    sinks: tuple[Stage, ...]
    instances: tuple[str, ...]
    problem: str = ""
    strategy: str = ""

    def __post_init__(self) -> None:
        sinks, seen = {sink.name for sink in self.sinks}, set[str]()
        for join in self.joins:
            if join.sink not in sinks:
                raise NovaError(f"flow: {join.name!r}: no sink is called {join.sink!r}")
            if not (join.left.stages and join.right.stages):
                raise NovaError(f"flow: {join.name!r}: an input has no stages")
        for stage in self.stages:
            if stage.name in seen:
                raise NovaError(f"flow: stage {stage.name!r} is there twice")
            seen.add(stage.name)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Everything that runs in a micro-batch, inputs before what receives from them."""
        return (
            *(
                stage
                for join in self.joins
                for part in (join.left, join.right, join)
                for stage in part.stages
            ),
            *self.sinks,
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that run anything, in order of their first stage."""
        return tuple(dict.fromkeys(stage.node for stage in self.stages))

    def to_json(self) -> str:
        """As JSON text."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str, where: str = "flow") -> Flow:
        """From JSON text; errors name ``where``.

        Raises:
            NovaError: naming the field and what it should hold.
        """
        return from_json(text, cls, where)

    @classmethod
    def read(cls, path: Path) -> Flow:
        """From a file of JSON.

        Raises:
            NovaError: where it cannot be read.
        """
        try:
            return cls.from_json(path.read_text("utf-8"), str(path))
        except OSError as error:
            raise NovaError(f"{path}: {error.strerror}") from error


def from_plan(plan: Plan, problem: Problem, workload: Workload | None = None) -> Flow:
    """The stages of a plan.

    Args:
        plan: where instances run and what they receive.
        problem: the one it answers.
        workload: checked for the sources that are joined, if given.

    Raises:
        NovaError: for a plan of another problem, a source the workload has not, or a join of a
            source with itself.
    """
    plan.require_problem(problem)
    p, i = plan.problem, plan.instances
    replica = plan.replica_number.tolist()
    names = [f"{p.pair_name(pair)}#{replica[k]}" for k, pair in enumerate(i.pair.tolist())]
    nodes: list[str] = p.nodes.ids.tolist()
    groups: dict[tuple[int, tuple[tuple[int, ...], ...]], list[int]] = {}
    for k in range(len(i)):
        routes = tuple(_route(plan, k, leg) for leg in range(3))
        groups.setdefault((int(i.pair[k]), routes), []).append(k)
    joins, sinks = [], dict[str, Stage]()
    for (pair, routes), members in groups.items():
        ends = int(p.matrix.left[pair]), int(p.matrix.right[pair])
        sources = [str(p.sources.ids[end]) for end in ends]
        if sources[0] == sources[1]:
            raise NovaError(f"{p.pair_name(pair)}: joins {sources[0]!r} with itself")
        if workload is not None:
            for source in sources:
                workload.index(source)
        name = "+".join([names[members[0]], *(f"#{replica[k]}" for k in members[1:])])
        bounds = ((i.left_begin, i.left_end), (i.right_begin, i.right_end))
        ranges = [[(int(b[k]), int(e[k])) for k in members] for b, e in bounds]
        inputs = []
        for leg, side in enumerate(("left", "right")):
            on = [nodes[node] for node in routes[leg]]
            relays = (
                Stage(f"relay {name} {side} {number}", node)
                for number, node in enumerate(on[1:-1], 1)
            )
            inputs.append(
                Input(
                    sources[leg],
                    (Stage(f"source {sources[leg]} for {name}", on[0]), *relays),
                    tuple(plan.partitions.rates(pair, leg).tolist()),
                    _merged(ranges[leg]),
                )
            )
        on = [nodes[node] for node in routes[2]]
        sink = sinks.setdefault(on[-1], Stage(f"sink {on[-1]}", on[-1]))
        joins.append(
            Join(
                inputs[0],
                inputs[1],
                (
                    Stage(f"join {name}", on[0]),
                    *(
                        Stage(f"relay {name} result {number}", node)
                        for number, node in enumerate(on[1:-1], 1)
                    ),
                ),
                tuple(map(Piece, members, *ranges)),
                sink.name,
            )
        )
    return Flow(tuple(joins), tuple(sinks.values()), tuple(names), problem.digest, plan.strategy)


def _route(plan: Plan, instance: int, leg: int) -> tuple[int, ...]:
    """Nodes a flow passes, both ends included."""
    if plan.routes is not None:
        begin, end = plan.routes.offset[3 * instance + leg : 3 * instance + leg + 2].tolist()
        route = tuple(plan.routes.node[begin:end].tolist())
        # What need not move has a route of one node.
        return route if len(route) > 1 else 2 * route
    p, pair = plan.problem, int(plan.instances.pair[instance])
    own = int(plan.instances.node[instance])
    if leg == 2:
        return own, int(p.sink_node[pair])
    return int((p.left_node, p.right_node)[leg][pair]), own


def _merged(ranges: list[Range]) -> tuple[Range, ...]:
    """Ranges in ascending order, those that meet as one."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return tuple(found)
