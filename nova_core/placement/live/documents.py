"""The present problem and plan of a live placement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

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
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import IN_PIECES


def problem_of(state: LiveState) -> Problem:
    """The present problem; rows keep their order, new ones come last.

    A dense latency matrix keeps measured values; nodes that were added or moved since have
    distances of the cost space in it.
    """
    n, s, p, base = state.nodes, state.sources, state.pairs, state.base
    j, alive = state.joins, np.array(state.joins.alive, bool)
    join, new_join = np.flatnonzero(alive), _renumbered(alive)
    node, source, pair = (np.flatnonzero(t.alive[: t.used]) for t in (n, s, p))
    new_node, new_source = _renumbered(n.alive[: n.used]), _renumbered(s.alive[: s.used])
    height, penalty = n.extra[node, 0], n.extra[node, 1]
    b = base.nodes
    nodes = Nodes(
        ids=_names(n.ids, node),
        position=n.position[node],
        capacity=n.capacity[node],
        worker=n.worker[node],
        memory=_optional(n.memory[node], b.memory is not None),
        cost=_optional(n.cost[node], b.cost is not None),
        tags=_labels(n.tags, node, b.tags is not None),
        host=_labels(n.host, node, b.host is not None),
        height=height if b.height is not None or height.any() else None,
        penalty=penalty if b.penalty is not None or penalty.any() else None,
        cpu=_optional(n.cpu[node], b.cpu is not None),
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
        joins=Joins(
            ids=_names(j.ids, join),
            left=_names(j.left, join),
            right=_names(j.right, join),
            sink=new_node[np.array(j.sink, np.int64)[join]],
            tags=_labels(j.tags, join, base.joins.tags is not None),
            memory=_optional(np.array(j.memory)[join], base.joins.memory is not None),
        ),
        matrix=JoinMatrix(
            join=new_join[p.join[pair]],
            left=new_source[p.left[pair]],
            right=new_source[p.right[pair]],
            output_rate=p.output[pair],
        ),
        links=Links(
            new_node[ends[:, 0]], new_node[ends[:, 1]], np.array(list(state.budget.values()))
        ),
        name=base.name,
        metrics=base.metrics,
        measured=_measured(state, new_node),
    )
    if base.latency is None:
        return problem
    return replace(problem, latency=_latency(problem, base, state, node))


def plan_of(state: LiveState, problem: Problem) -> Plan:
    """The present plan.

    Args:
        state: the state.
        problem: from `problem_of`.
    """
    p, n = state.pairs, state.nodes
    pair, new_node = np.flatnonzero(p.alive[: p.used]), _renumbered(n.alive[: n.used])
    new_pair = _renumbered(p.alive[: p.used])
    whole = pair[p.host[pair] != IN_PIECES]
    host = new_node[p.host[whole]]
    zero, one = np.zeros(len(whole), np.int64), np.ones(len(whole), np.int64)
    rows = [np.stack([new_pair[whole], host, zero, one, zero, one], axis=1)]
    cuts: dict[int, list[Floats]] = {}
    for row in sorted(state.cuts):
        cut = state.cuts[row]
        cuts[int(new_pair[row])] = [np.array(cut.left), np.array(cut.right)]
        rows.append(
            np.array([(new_pair[row], new_node[x.node], *x[1:]) for x in cut.pieces], np.int64)
        )
    table = np.concatenate(rows)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return Plan(
        problem=problem,
        strategy=state.strategy,
        objective=state.objective,
        parameters=state.parameters,
        partitions=assemble_partitions(Partitions.whole(problem), cuts),
        instances=Instances(*(np.ascontiguousarray(column) for column in table.T)),
        virtual_position=p.point[pair],
        breaks=state.breaks,
        notes={"version": state.version},
    )


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
