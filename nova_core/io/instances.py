"""Problems as the paper's simulations keep them: a directory with nodes.csv and joins.csv.

``nodes.csv``: node, x, y (cost-space coordinates, ms), perhaps height (ms), role (sink, source or
worker) and one or more columns ``capacity_…`` (tuples/s). ``joins.csv``: left, right (nodes),
left_rate, right_rate, and output_rate (tuples/s). One node is the sink; every other one may host
joins.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from nova_core.errors import ProblemError
from nova_core.io.columnar import POSITION_KINDS, Columns, Kind, read_columns
from nova_core.io.safe_files import UNLIMITED
from nova_core.io.validation import validate_problem
from nova_core.model.name_index import NameIndex
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
from nova_core.suggestions import unknown

_ROLES = ("sink", "source", "worker")
_NODE_KINDS: dict[str, Kind] = {
    "node": "text",
    "role": "text",
    "height": "number",
    **POSITION_KINDS,
}
_JOIN_KINDS: dict[str, Kind] = {
    "left": "text",
    "right": "text",
    "left_rate": "number",
    "right_rate": "number",
    "output_rate": "number",
}
_PREFIX = "capacity"


def read_instance(path: Path, capacity: str | None = None) -> Problem:
    """Read a directory with ``nodes.csv`` and ``joins.csv``.

    A source is named after its node; a node that produces both a left and a right stream has the
    sources ``NODE.left`` and ``NODE.right``.

    Args:
        path: the directory; its name becomes the problem's.
        capacity: the column of capacities, or ``unlimited``; may be left out where there is one.

    Raises:
        ProblemError: naming the file, the column, the value and what would be accepted.
    """
    nodes_file, joins_file = path / "nodes.csv", path / "joins.csv"
    table = read_columns(nodes_file, _NODE_KINDS, ProblemError, extra=True)
    ids = table.text("node")
    sink = _sink(table, table.text("role"))
    position = table.position()
    if position is None:
        raise ProblemError(f"{nodes_file}: columns x and y, the coordinates in ms, are missing")
    nodes = Nodes(
        ids=ids,
        position=position,
        capacity=_capacity(table, capacity),
        worker=np.arange(len(ids)) != sink,
        height=table.floats("height") if "height" in table else None,
    )
    joins = read_columns(joins_file, _JOIN_KINDS, ProblemError)
    index = NameIndex(ids)
    left, right = (joins.find(side, index, "node") for side in ("left", "right"))
    sources, pairs = _sources(joins, ids, left, right)
    # A directory's name need not be UTF-8; a plan's must be.
    name = os.fsencode(path.resolve().name).decode("utf-8", "replace")
    problem = Problem(
        nodes=nodes,
        sources=sources,
        joins=Joins(np.array(["join"]), np.array(["left"]), np.array(["right"]), np.array([sink])),
        matrix=JoinMatrix(np.zeros(len(joins), np.int64), *pairs, joins.floats("output_rate")),
        name=name if capacity is None else f"{name}/{capacity}",
    )
    files = {"nodes": str(nodes_file), "sources": str(joins_file), "matrix": str(joins_file)}
    return validate_problem(problem, str(path), files)


def _sink(table: Columns, role: Strings) -> int:
    known = np.isin(role, _ROLES)
    if not known.all():
        row = int(np.argmin(known))
        raise table.fail("role", f"{str(role[row])!r} is none of {', '.join(_ROLES)}", row)
    sinks = np.flatnonzero(role == "sink")
    if len(sinks) != 1:
        raise table.fail("role", f"{len(sinks)} nodes are sinks; one is needed")
    return int(sinks[0])


def _capacity(table: Columns, capacity: str | None) -> Floats:
    choices = [name for name in table.names if name.startswith(_PREFIX)]
    if capacity is None:
        if len(choices) != 1:
            raise ProblemError(
                f"{table.path}: choose a capacity: {', '.join([*choices, UNLIMITED])}"
            )
        capacity = choices[0]
    if capacity == UNLIMITED:
        return np.full(len(table), np.inf)
    if capacity not in choices:
        known = [*choices, UNLIMITED]
        raise ProblemError(f"{table.path}: {unknown('capacity column', capacity, known)}")
    return table.capacity(capacity)


def _sources(
    joins: Columns, ids: Strings, left: Ints, right: Ints
) -> tuple[Sources, tuple[Ints, Ints]]:
    """One source per node and side, in order of first mention, and the pairs' sources."""
    count = len(left)
    rate = np.stack([joins.floats("left_rate"), joins.floats("right_rate")], axis=1).ravel()
    node = np.stack([left, right], axis=1).ravel()
    side = np.tile([0, 1], count)
    _, first, inverse = np.unique(2 * node + side, return_index=True, return_inverse=True)
    differs = rate != rate[first][inverse]
    if (differs & ~np.isnan(rate)).any():
        at = int(np.argmax(differs & ~np.isnan(rate)))
        column = ("left_rate", "right_rate")[side[at]]
        other = int(first[inverse[at]])
        message = (
            f"{rate[at]:g}, but row {other // 2 + 1} gives {rate[other]:g} for node "
            f"{str(ids[node[at]])!r}; a source has one rate"
        )
        raise joins.fail(column, message, at // 2)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    chosen = first[order]
    both = np.isin(node[chosen], left) & np.isin(node[chosen], right)
    stream = np.array(["left", "right"])[side[chosen]]
    names = ids[node[chosen]]
    suffixed = np.char.add(np.char.add(names, "."), stream)
    sources = Sources(
        ids=np.where(both, suffixed, names), node=node[chosen], stream=stream, rate=rate[chosen]
    )
    pair = rank[inverse]
    return sources, (pair[0::2], pair[1::2])
