"""Rules between zones and what a problem pins to nodes: sources, and sinks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.problem import Problem
from nova_core.model.queries import Aggregate, Query, inputs_of
from nova_core.model.requirements import ANY_NODE, ZonesPart, bad_labels, met_of
from nova_core.suggestions import nearest

# Zones that a warning names.
_NAMED = 8


def check_zones(problem: Problem, where: str = "problem") -> None:
    """Check that the tuples of every stream begin and end where they may be.

    Args:
        problem: whose queries are checked already.
        where: what errors begin with.

    Raises:
        ProblemError: naming the source or the sink, its zone, and what would be accepted.
    """
    nodes, sources = problem.nodes, problem.sources
    for place, part in _said(problem):
        for _, why in bad_labels(part):
            raise ProblemError(f"{where}: {place}: {why}")
    for stream, rule in problem.stream_rules.items():
        if rule == ANY_NODE:
            continue
        fits = met_of([rule], vars(nodes), len(nodes))[0]
        away = np.flatnonzero((sources.stream == stream) & ~fits[sources.node])
        pinned = [(f"sources[{n}].node of {str(sources.ids[n])!r}", sources.node[n]) for n in away]
        pinned += [(place, node) for place, node in _sinks(problem, stream) if not fits[node]]
        for place, node in pinned:
            zone = "" if nodes.zone is None else str(nodes.zone[node])
            here = f"in zone {zone}" if zone else "in no zone"
            raise ProblemError(
                f"{where}: {place}: {str(nodes.ids[node])!r} is {here}, but tuples of stream "
                f"{stream!r} are there, which need a node {rule}"
            )


def unknown_zones(problem: Problem) -> Iterator[str]:
    """A line for each zone that a rule names and no node has, with its place in the document."""
    zone = problem.nodes.zone
    known = set() if zone is None else set(zone.tolist()) - {""}
    for place, part in _said(problem):
        for name, names in (("allow", part.allow), ("forbid", part.forbid)):
            for one in names or ():
                if one not in known:
                    yield f"{place}: {name}: no node is in zone {one!r}; {_zones(one, known)}"


def _zones(name: str, known: set[str]) -> str:
    """Which zones there are, the nearest to a name first."""
    if not known:
        return "none has a zone"
    near = nearest(name, sorted(known))
    names = sorted(known, key=lambda one: (one != near, one))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"there are {', '.join(names[:_NAMED])}{more}"


def _said(problem: Problem) -> Iterator[tuple[str, ZonesPart]]:
    """Zones of streams and of operators, with their place in the document."""
    for stream, zones in problem.zones.items():
        yield f"streams: zones of {stream!r}", zones
    for row, asks in enumerate(problem.joins.asks or ()):
        if asks.zones is not UNSET:
            yield f"query.operators[{row}].zones of {str(problem.joins.ids[row])!r}", asks.zones
    for number, query in enumerate(problem.queries):
        for row, one in enumerate(query.operators):
            if one.zones is not UNSET:
                yield f"queries[{number}].operators[{row}].zones of {one.id!r}", one.zones


def _sinks(problem: Problem, stream: str) -> Iterator[tuple[str, int]]:
    """Where a stream's tuples arrive: the sink's place in the document, and its node."""
    joins = problem.joins
    for row in np.flatnonzero((joins.left == stream) | (joins.right == stream)).tolist():
        yield f"query.operators[{row}].sink of {str(joins.ids[row])!r}", int(joins.sink[row])
    for number, query in enumerate(problem.queries):
        if stream in _arriving(query):
            yield f"queries[{number}].sink of {query.id!r}", problem.node_index[query.sink]


def _arriving(query: Query) -> set[str]:
    """Streams whose tuples reach a query's sink, by themselves or joined."""
    emitted: dict[str, set[str]] = {}
    for one in query.operators:
        below = set[str]().union(*(emitted.get(name, {name}) for name in inputs_of(one)))
        emitted[one.id] = set() if isinstance(one, Aggregate) else below
    return emitted[query.operators[-1].id]
