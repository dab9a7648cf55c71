"""A part of a problem in Arrow columns, placed by the core's own assigner on its own.

Nodes of a part are those that may host; sources and sinks that lie elsewhere are added as nodes
that may not. Joins without room are returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nova_core.errors import InfeasibleError
from nova_core.model.expansion import graph_of
from nova_core.model.objectives import leg_weights
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.problem import (
    Floats,
    Ints,
    JoinMatrix,
    Joins,
    Nodes,
    Problem,
    Sources,
    Strings,
)
from nova_core.model.requirements import Asks, Rule, parts_of, rule_of, some_asked
from nova_core.placement.assignment import Assignment, host_nodes
from nova_core.placement.geometric_median import geometric_median, pair_anchors
from nova_core.placement.partitioning import maximum_partition_rate
from nova_core.strategies.nova import Nova
from nova_core.strategies.nova_parameters import NovaParameters

# Spark's types of the columns of a part; `Query.schemas` adds optional columns of nodes.
NODE = "row long, id string, position array<double>, capacity double"
JOIN = (
    "pair long, operator string, join int, ends array<long>, anchors array<double>, "
    "point array<double>, left_rate double, right_rate double, output_rate double"
)
INSTANCE = (
    "pair long, operator string, node string, row long, left_begin long, left_end long, "
    "right_begin long, right_end long, left_rates array<double>, right_rates array<double>"
)
RATES = ("left_rate", "right_rate", "output_rate")
EXTRA = {"height": "double", "penalty": "double", "memory": "double", "tags": "string"}


@dataclass(frozen=True, eq=False)
class Query:
    """What is the same in every part.

    Attributes:
        name: of the problem.
        parameters: of the strategy.
        names: (q,) of the joins of logical streams.
        asks: (q,) what each asks of its hosts.
        extras: optional columns of nodes.
    """

    name: str
    parameters: NovaParameters
    names: Strings
    asks: tuple[Asks, ...]
    extras: tuple[str, ...]

    @cached_property
    def rules(self) -> list[Rule]:
        """(q,) what a node must have for each join."""
        return [rule_of(**parts_of(one)) for one in self.asks]

    @cached_property
    def requirement(self) -> Ints:
        """(q,) number of what each join requires; equal for equal requirements."""
        number: dict[Rule, int] = {}
        return np.array([number.setdefault(rule, len(number)) for rule in self.rules], np.int64)

    @property
    def schemas(self) -> tuple[str, str]:
        """Spark's types of nodes and of joins."""
        node = "".join(f", {name} {EXTRA[name]}" for name in self.extras)
        high = ", heights array<double>" if "height" in self.extras else ""
        return NODE + node, JOIN + high


def floats(table: Any, name: str) -> Floats:
    """(k,) a column of numbers of a table or a batch."""
    return np.array(_column(table, name).to_numpy(zero_copy_only=False), np.float64)


def ints(table: Any, name: str) -> Ints:
    """(k,) a column of whole numbers."""
    return np.array(_column(table, name).to_numpy(zero_copy_only=False), np.int64)


def texts(table: Any, name: str) -> Strings:
    """(k,) a column of text."""
    return np.array(_column(table, name).to_pylist(), np.str_).reshape(len(table))


def rows_of_lists(table: Any, name: str) -> Any:
    """(k, w) a column of lists of one length."""
    column = _column(table, name)
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1 if len(column) else 1)


def _column(table: Any, name: str) -> Any:
    import pyarrow as pa

    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def lists_of_rows(values: Any) -> Any:
    """An Arrow column of lists, from (k, w) numbers."""
    import pyarrow as pa

    count, width = values.shape
    offset = np.arange(count + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(
        pa.array(offset), pa.array(np.ascontiguousarray(values).ravel())
    )


def fermat_points(anchors: Floats, rates: Floats, objective: str) -> Floats:
    """(p, d) virtual positions (Phase II).

    Args:
        anchors: (p, 3, d) coordinates of both sources and the sink, ms.
        rates: (p, 3) left, right and output rate, tuples/s.
        objective: what is minimized.
    """
    count, _, dimensions = anchors.shape
    zero = np.zeros(count, np.int64)
    sides = Sources(np.zeros(2 * count, "U1"), np.tile(zero, 2), np.zeros(2 * count, "U1"),
                    np.concatenate([rates[:, 0], rates[:, 1]]))  # fmt: skip
    nodes = Nodes(np.zeros(1, "U1"), np.zeros((1, dimensions)), np.zeros(1), np.zeros(1, bool))
    text = np.zeros(1, "U1")
    joins = Joins(text, text, text, np.zeros(1, np.int64))
    matrix = JoinMatrix(zero, np.arange(count), np.arange(count) + count, rates[:, 2])
    weights = leg_weights(Problem(nodes, sides, joins, matrix), objective)
    return geometric_median(anchors, weights)


def problem_of(nodes: Any, joins: Any, query: Query) -> Problem:
    """A part as a problem; its nodes come first, by row, then ends outside the part."""
    row, position = ints(nodes, "row"), rows_of_lists(nodes, "position")
    ends = np.asarray(rows_of_lists(joins, "ends"), np.int64)
    dimensions = position.shape[1]
    elsewhere = rows_of_lists(joins, "anchors").reshape(-1, dimensions)
    end, first, which = np.unique(ends.ravel(), return_index=True, return_inverse=True)
    at = np.searchsorted(row, end)
    here = at < len(row)
    here[here] = row[at[here]] == end[here]
    outside = first[~here]
    at[~here] = len(row) + np.arange(len(outside))
    index = at[which].reshape(-1, 3)
    count, more, pairs = len(row), len(outside), len(joins)

    def column(name: str, missing: Any) -> Any:
        if name not in query.extras:
            return None
        known: Any = floats(nodes, name) if name != "tags" else texts(nodes, name)
        return np.concatenate([known, np.full(more, missing)])

    height = column("height", 0.0)
    if height is not None:
        height[count:] = rows_of_lists(joins, "heights").ravel()[outside]
    operator, join = np.unique(ints(joins, "join"), return_inverse=True)
    sink = np.zeros(len(operator), np.int64)
    sink[join] = index[:, 2]
    rate = np.concatenate([floats(joins, "left_rate"), floats(joins, "right_rate")])
    streams = np.zeros(len(operator), "U1")
    return Problem(
        nodes=Nodes(
            ids=np.zeros(count + more, "U1"),
            position=np.concatenate([position, elsewhere[outside]]),
            capacity=np.concatenate([floats(nodes, "capacity"), np.zeros(more)]),
            worker=np.arange(count + more) < count,
            memory=column("memory", np.nan),
            tags=column("tags", ""),
            height=height,
            penalty=column("penalty", 0.0),
        ),
        sources=Sources(
            np.zeros(2 * pairs, "U1"), index[:, :2].T.ravel(), np.zeros(2 * pairs, "U1"), rate
        ),
        joins=Joins(
            streams, streams, streams, sink, some_asked([query.asks[row] for row in operator])
        ),
        matrix=JoinMatrix(
            join, np.arange(pairs), np.arange(pairs) + pairs, floats(joins, "output_rate")
        ),
        name=query.name,
    )


def problem_and_rest(nodes: Any, joins: Any, query: Query) -> tuple[Problem, Any, Any]:
    """A part as a problem, its joins, and joins whose requirement no node of the part meets."""
    import pyarrow as pa

    problem = problem_of(nodes, joins, query)
    graph = graph_of(problem)
    required, of_pair = graph.requirements, graph.requirement[graph.bodies]
    if not required.rules:
        return problem, joins, joins.slice(0, 0)
    met = np.asarray((required.met & host_nodes(problem, query.parameters.c_min)).any(axis=1))
    able = (of_pair < 0) | met[of_pair]
    if able.all() or not able.any():
        return problem, joins, joins.slice(0, 0)
    some, rest = joins.filter(pa.array(able)), joins.filter(pa.array(~able))
    return problem_of(nodes, some, query), some, rest


@dataclass(frozen=True, eq=False)
class Placed:
    """The placement of a part.

    Attributes:
        assignment: pieces and their nodes; node -1 of a join without room.
        free: (n,) capacity left on each node, tuples/s.
        spread: pieces that overload nodes.
    """

    assignment: Assignment
    free: Floats
    spread: int = 0


def place(
    problem: Problem, points: Floats, parameters: NovaParameters, cut: bool, spread: bool = False
) -> Placed:
    """Place a part of a problem (Phase III).

    Args:
        problem: the part.
        points: (p, d) virtual positions, ms.
        parameters: of the strategy.
        cut: whether joins that fit nowhere whole are cut.
        spread: whether joins that fit nowhere overload nodes, if that is accepted.
    """
    strategy = Nova(replace(parameters, on_full="spread", refine=bool(parameters.refine)))
    anchors, weights = pair_anchors(problem), leg_weights(problem, parameters.objective)
    rates = problem.left_rate, problem.right_rate
    maximum = maximum_partition_rate(*rates, parameters.sigma, parameters.bandwidth)
    try:
        state = strategy.assign(problem, anchors, points, weights, maximum, whole=not cut)
    except InfeasibleError:  # no node has what some join needs
        nowhere = np.full(len(problem.matrix), -1)
        whole = Assignment(Partitions.whole(problem), Instances.whole(nowhere), 0)
        return Placed(whole, problem.nodes.capacity * problem.nodes.worker)
    pieces = 0
    if spread and parameters.on_full == "spread" and state.unplaced.any():
        pieces = state.spread(parameters.k)
    return Placed(state.finish(), state.free(), pieces)


def place_tables(
    nodes: Any, joins: Any, query: Query, cut: bool, spread: bool = False
) -> tuple[Any, Any, Any, int]:
    """Place a part that is in tables; arguments as of `place`.

    Returns:
        Instances, joins without room, and nodes with the capacity they have left, as tables; and
        how many pieces overload nodes.
    """
    import pyarrow as pa

    nodes, joins = nodes.sort_by("row"), joins.sort_by("pair")
    problem, joins, left = problem_and_rest(nodes, joins, query)
    placed = place(problem, rows_of_lists(joins, "point"), query.parameters, cut, spread)
    i, parts = placed.assignment.instances, placed.assignment.partitions
    lost = np.zeros(len(joins), bool)
    lost[i.pair[i.node < 0]] = True
    placed_rows = np.flatnonzero(~lost[i.pair])
    pair, node = i.pair[placed_rows], i.node[placed_rows]
    is_cut = parts.count[2 * pair] * parts.count[2 * pair + 1] > 1

    def rates(side: int) -> Any:
        lists: list[list[float] | None] = [None] * len(pair)
        for row in np.flatnonzero(is_cut).tolist():
            lists[row] = parts.rates(int(pair[row]), side).tolist()
        return pa.array(lists, pa.list_(pa.float64()))

    instances = pa.table(
        {
            "pair": joins.column("pair").take(pair),
            "operator": joins.column("operator").take(pair),
            "node": nodes.column("id").take(node),
            "row": nodes.column("row").take(node),
            "left_begin": i.left_begin[placed_rows],
            "left_end": i.left_end[placed_rows],
            "right_begin": i.right_begin[placed_rows],
            "right_end": i.right_end[placed_rows],
            "left_rates": rates(0),
            "right_rates": rates(1),
        }
    )
    at = nodes.column_names.index("capacity")
    free = np.maximum(placed.free[: len(nodes)], 0.0)
    room = nodes.set_column(at, "capacity", pa.array(free)).filter(pa.array(free > 0))
    waiting = pa.concat_tables([joins.filter(pa.array(lost)), left])
    return instances, waiting, room, placed.spread
