"""What is to be placed after an event of whole queries, from the problem alone.

Follows the meaning of events (`nova schema event`), not how a live placement does it: tables are
made anew, and a problem that is none is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from nova_core.errors import ProblemError
from nova_core.io.problem_document import NodeRow, SourceRow
from nova_core.io.validation import validate_problem
from nova_core.model.expansion import AS_WRITTEN, Rewriting, graph_of
from nova_core.model.problem import Bools, Floats, Problem
from nova_core.model.queries import Query
from nova_core.placement.live import (
    AddQuery,
    AddSource,
    AddWorker,
    Batch,
    ChangeCapacity,
    ChangeLink,
    ChangeRate,
    ChangeSelectivity,
    Event,
    FailNode,
    MoveNode,
    MoveSink,
    RemoveQuery,
    RemoveSource,
    RemoveWorker,
)

UNKNOWN = {"height": 0.0, "penalty": 0.0, "tags": "", "host": "", "key": "", "zone": ""}


def after(problem: Problem, event: Event, rewriting: Rewriting = AS_WRITTEN) -> Problem:
    """The problem once an event has happened; rows keep their order, new ones come last.

    Args:
        problem: of whole queries, without measured latencies; new nodes have positions.
        event: what happens.
        rewriting: that the plan has, for which there must be a graph.

    Raises:
        ProblemError: when the event is not possible.
    """
    for each in event.events if isinstance(event, Batch) else [event]:
        problem = _after(problem, each)
    if not problem.queries:
        raise ProblemError("no query")
    fresh = replace(problem)
    validate_problem(fresh)
    graph_of(fresh, rewriting)
    return fresh


def _after(problem: Problem, event: Event) -> Problem:
    nodes, sources = problem.nodes, problem.sources
    if isinstance(event, AddWorker):
        _require(event.node.id not in problem.node_index)
        return replace(problem, nodes=_more(nodes, _plain(event.node)))
    if isinstance(event, RemoveWorker | FailNode):
        node = _row(nodes.ids, event.node)
        _require(node not in problem.sinks.tolist())
        if isinstance(event, RemoveWorker):
            _require(node not in sources.node.tolist())
        return _without_node(problem, node)
    if isinstance(event, AddSource):
        _require(event.source.id not in sources.ids.tolist())
        row = _plain(event.source) | {"node": _row(nodes.ids, event.source.node)}
        return replace(problem, sources=_more(sources, row))
    if isinstance(event, RemoveSource):
        keep = sources.ids != event.source
        _require(not keep.all())
        return replace(problem, sources=_rows(sources, keep))
    if isinstance(event, ChangeRate):
        rate = _with(sources.rate, _row(sources.ids, event.source), event.rate)
        return replace(problem, sources=replace(sources, rate=rate))
    if isinstance(event, ChangeCapacity):
        capacity = _number(event.capacity)
        return problem.with_capacity(_with(nodes.capacity, _row(nodes.ids, event.node), capacity))
    if isinstance(event, MoveNode):
        position = nodes.position.copy()
        position[_row(nodes.ids, event.node)] = event.position
        return replace(problem, nodes=replace(nodes, position=position))
    if isinstance(event, ChangeLink):
        return _with_link(problem, event)
    if isinstance(event, MoveSink):
        _row(nodes.ids, event.node)
        return _changed(problem, event.operator, lambda one: _replace(one, sink=event.node))
    if isinstance(event, AddQuery):
        return replace(problem, queries=(*problem.queries, event.query))
    if isinstance(event, RemoveQuery):
        rest = tuple(one for one in problem.queries if one.id != event.query)
        _require(len(rest) < len(problem.queries))
        return replace(problem, queries=rest)
    if isinstance(event, ChangeSelectivity):
        return _changed(problem, event.query, lambda query: _selective(query, event))
    return problem


def _selective(query: Query, event: ChangeSelectivity) -> Query:
    _require(any(one.id == event.operator for one in query.operators))
    operators = [
        _replace(one, selectivity=event.selectivity) if one.id == event.operator else one
        for one in query.operators
    ]
    return _replace(query, operators=operators)


def _changed(problem: Problem, name: str, change: Callable[[Query], Query]) -> Problem:
    _require(any(one.id == name for one in problem.queries))
    queries = [change(one) if one.id == name else one for one in problem.queries]
    return replace(problem, queries=tuple(queries))


def _replace(struct: Any, **values: Any) -> Any:
    """The same with other values, as its document would be read: other kinds are refused."""
    plain = msgspec.to_builtins(struct) | values
    plain = {name: msgspec.to_builtins(value) for name, value in plain.items()}
    try:
        return msgspec.convert(plain, type(struct))
    except msgspec.ValidationError as error:
        raise ProblemError(str(error)) from None


def _without_node(problem: Problem, node: int) -> Problem:
    """Without a node, its sources and budgets."""
    keep = np.arange(len(problem.nodes)) != node
    number, links = np.cumsum(keep) - 1, problem.links
    sources = _rows(problem.sources, problem.sources.node != node)
    ends = (links.source != node) & (links.target != node)
    links = _rows(links, ends)
    return replace(
        problem,
        nodes=_rows(problem.nodes, keep),
        sources=replace(sources, node=number[sources.node]),
        links=replace(links, source=number[links.source], target=number[links.target]),
    )


def _with_link(problem: Problem, event: ChangeLink) -> Problem:
    links, ids = problem.links, problem.nodes.ids
    a, b = _row(ids, event.source_node), _row(ids, event.target_node)
    _require(a != b)
    there, budget = (links.source == a) & (links.target == b), _number(event.budget)
    if math.isinf(budget):
        return replace(problem, links=_rows(links, ~there))
    if there.any():
        return replace(problem, links=replace(links, budget=np.where(there, budget, links.budget)))
    row = {"source": a, "target": b, "budget": budget}
    return replace(problem, links=_more(links, row))


def _rows(table: Any, keep: Bools) -> Any:
    columns = {name: None if one is None else one[keep] for name, one in vars(table).items()
               if not name.startswith("_")}  # fmt: skip
    return type(table)(**columns)


def _more(table: Any, row: dict[str, Any]) -> Any:
    """A table with one more row; columns that no row had before are unknown there."""
    columns: dict[str, Any] = {}
    for name, column in vars(table).items():
        value = row.get(name)
        if column is None and value is None:
            columns[name] = None
            continue
        if column is None:
            column = np.full(len(table), UNKNOWN.get(name, np.nan))
        value = UNKNOWN.get(name, np.nan) if value is None else value
        columns[name] = np.concatenate([column, np.array([value])])
    return type(table)(**columns)


def _plain(row: NodeRow | SourceRow) -> dict[str, Any]:
    """A row of a document, as columns hold it."""
    plain: dict[str, Any] = msgspec.to_builtins(row)
    plain["ids"] = plain.pop("id")
    if isinstance(row, NodeRow):
        plain["capacity"] = _number(plain["capacity"])
        plain.setdefault("worker", True)
        plain["tags"] = ",".join(plain["tags"]) if "tags" in plain else None
    return plain


def _with(column: Floats, row: int, value: float) -> Floats:
    changed = column.copy()
    changed[row] = value
    return changed


def _number(value: float | str) -> float:
    return math.inf if value == "unlimited" else float(value)


def _row(ids: Any, name: str) -> int:
    rows = np.flatnonzero(ids == name)
    _require(len(rows) == 1)
    return int(rows[0])


def _require(possible: bool) -> None:
    if not possible:
        raise ProblemError("not possible")
