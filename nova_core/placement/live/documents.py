"""The present problem and plan of a live placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nova_core.model.expansion import graph_of
from nova_core.model.name_index import NameIndex, find_rows
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import assemble_partitions
from nova_core.model.problem import (
    Bools,
    Floats,
    Ints,
    JoinMatrix,
    Joins,
    Links,
    Nodes,
    PairLatencies,
    Problem,
    Sources,
    Strings,
)
from nova_core.model.requirements import FACTS, some_asked
from nova_core.placement.kernels.state.tables import FIRST_SOURCE, LEG, OUTPUT
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import IN_PIECES


def problem_of(state: LiveState) -> Problem:
    """The present problem; rows keep their order, new ones come last.

    A dense latency matrix keeps measured values; nodes that were added or moved since have
    distances of the cost space in it.
    """
    n, s, base = state.nodes, state.sources, state.base
    node, source = (np.flatnonzero(t.alive[: t.used]) for t in (n, s))
    new_node, new_source = _renumbered(n.alive[: n.used]), _renumbered(s.alive[: s.used])
    height, penalty = n.extra[node, 0], n.extra[node, 1]
    b, facts = base.nodes, dict[str, Any]((name, n.column(name, node)) for name in FACTS)
    nodes = Nodes(
        ids=_names(n.ids, node),
        position=n.position[node],
        capacity=n.capacity[node],
        worker=n.worker[node],
        height=height if b.height is not None or height.any() else None,
        penalty=penalty if b.penalty is not None or penalty.any() else None,
        **facts,
    )
    sources = Sources(
        ids=_names(s.ids, source),
        node=new_node[s.node[source]],
        stream=_names(s.stream, source),
        rate=s.rate[source],
        tuple_bytes=_optional(s.tuple_bytes[source], base.sources.tuple_bytes is not None),
        key=_labels(s.key, source, base.sources.key is not None),
    )
    ends = np.array(list(state.budget), np.int64).reshape(-1, 2)
    problem = Problem(
        nodes=nodes,
        sources=sources,
        joins=base.joins,
        matrix=base.matrix,
        links=Links(
            new_node[ends[:, 0]], new_node[ends[:, 1]], np.array(list(state.budget.values()))
        ),
        name=base.name,
        metrics=base.metrics,
        measured=_measured(state, new_node),
        streams=base.streams,
        zones=base.zones,
    )
    if base.queries:
        problem = replace(problem, queries=state.demand.queries)
    else:
        problem = replace(problem, **_pairs(state, new_node, new_source))
    if base.latency is None:
        return problem
    return replace(problem, latency=_latency(problem, base, state, node))


def _pairs(state: LiveState, new_node: Ints, new_source: Ints) -> dict[str, Any]:
    """Joins and matrix of the present problem."""
    j, o = state.joins, state.operators
    alive = np.array(j.alive, bool)
    join, pair = np.flatnonzero(alive), np.flatnonzero(o.alive[: o.used])
    joins = Joins(
        ids=_names(j.ids, join),
        left=_names(j.left, join),
        right=_names(j.right, join),
        sink=new_node[np.array(j.sink, np.int64)[join]],
        asks=some_asked([j.asks[row] for row in join.tolist()]),
    )
    left, right = (
        new_source[FIRST_SOURCE - state.legs.other[o.row[pair, LEG] + side]] for side in (0, 1)
    )
    matrix = JoinMatrix(_renumbered(alive)[o.logical[pair]], left, right, o.rate[pair, OUTPUT])
    return {"joins": joins, "matrix": matrix}


def plan_of(state: LiveState, problem: Problem) -> Plan:
    """The present plan.

    Args:
        state: the state.
        problem: from `problem_of`.
    """
    o, n = state.operators, state.nodes
    alive, new_node = np.flatnonzero(o.alive[: o.used]), _renumbered(n.alive[: n.used])
    new_row = rows_of(state, problem)
    whole = alive[o.host[alive] != IN_PIECES]
    host = new_node[o.host[whole]]
    zero, one = np.zeros(len(whole), np.int64), np.ones(len(whole), np.int64)
    rows = [np.stack([new_row[whole], host, zero, one, zero, one], axis=1)]
    cuts: dict[int, list[Floats]] = {}
    by_key: list[int] = []
    for row in sorted(state.cuts):
        cut = state.cuts[row]
        cuts[int(new_row[row])] = [np.array(cut.left), np.array(cut.right)]
        if cut.join is not None:
            by_key.append(int(new_row[row]))
        rows.append(
            np.array([(new_row[row], new_node[x.node], *x[1:]) for x in cut.pieces], np.int64)
        )
    table = np.concatenate(rows)
    operator, node, a, b, c, d = table[np.lexsort(table.T[[3, 4, 2, 0]])].T.copy()
    point = np.empty((len(alive), o.point.shape[1]))
    point[new_row[alive]] = o.point[alive]
    return Plan(
        problem=problem,
        strategy=state.strategy,
        objective=state.objective,
        parameters=state.parameters,
        partitions=assemble_partitions(Partitions.whole(problem, state.rewriting), cuts, by_key),
        instances=Instances(operator, node, a, b, c, d, _feeds(operator, a, b)),
        virtual_position=point,
        breaks=state.breaks,
        notes={"version": state.version},
        rewriting=state.rewriting,
    )


def rows_of(state: LiveState, problem: Problem) -> Ints:
    """(o,) row in the present plan of each operator that is there.

    Args:
        state: the state.
        problem: from `problem_of`.
    """
    alive = state.operators.alive[: state.operators.used]
    rows = _renumbered(alive)
    if problem.queries:  # operators are in the order of their graph
        graph, there = graph_of(problem, state.rewriting), np.flatnonzero(alive)
        rows[there] = find_rows(_names(state.names, there), NameIndex(graph.names))
    return rows


def _feeds(operator: Ints, begin: Ints, end: Ints) -> Ints | None:
    """(k,) row of the instance that combines the results of each one's operator, or -1."""
    combines = np.flatnonzero(begin == end)
    if not len(combines):
        return None
    feeds = np.full(len(operator), -1)
    at = np.minimum(np.searchsorted(operator[combines], operator), len(combines) - 1)
    root = combines[at]
    part = (operator[root] == operator) & (begin < end)
    feeds[part] = root[part]
    return feeds


def _renumbered(alive: Bools) -> Ints:
    """New index of each remaining row; values of removed rows have no meaning."""
    return np.cumsum(alive) - 1


def _names(values: list[str], rows: Ints) -> Strings:
    if len(rows) == len(values):
        return np.array(values, np.str_)
    return np.array([values[row] for row in rows.tolist()], np.str_)


def _optional(values: Floats, known: bool) -> Floats | None:
    return values if known or not np.isnan(values).all() else None


def _labels(values: list[str], rows: Ints, known: bool) -> Strings | None:
    labels = _names(values, rows)
    return labels if known or (labels != "").any() else None


def _measured(state: LiveState, new_node: Ints) -> PairLatencies | None:
    """Measured pairs of remaining nodes that have not moved."""
    measured = state.base.measured
    if measured is None:
        return None
    lasting = state.nodes.alive[: state.nodes.used].copy()
    lasting[list(state.strayed)] = False
    valid = lasting[measured.source] & lasting[measured.target]
    source, target = new_node[measured.source[valid]], new_node[measured.target[valid]]
    mbit = None if measured.mbit is None else measured.mbit[valid]
    return PairLatencies(source, target, measured.latency[valid], mbit)


def _latency(problem: Problem, base: Problem, state: LiveState, node: Ints) -> Floats:
    assert base.latency is not None
    rows = np.arange(len(node))
    old = (node < len(base.nodes)) & ~np.isin(node, list(state.strayed))
    latency = problem.distance(rows[:, None], rows[None, :])
    unmoved = np.flatnonzero(old)
    latency[np.ix_(unmoved, unmoved)] = base.latency[np.ix_(node[unmoved], node[unmoved])]
    return latency
