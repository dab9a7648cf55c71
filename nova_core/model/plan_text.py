"""Writing a plan as a JSON or YAML document: the rows a person reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.edges import LEGS, Edges, edges
from nova_core.model.partitioner import SEQUENCE_SHARE
from nova_core.model.plan import Plan
from nova_core.model.plan_totals import loads, plain, totals
from nova_core.model.syntax import Row, dump, number

VERSION = 1


def plan_header(plan: Plan, e: Edges, report: bool = True) -> dict[str, Any]:
    """The part of a document that is never a table; ``e`` are the plan's edges.

    Raises:
        PlanError: for parameters or notes JSON cannot hold.
    """
    document: dict[str, Any] = {
        "nova_plan": VERSION,
        "problem": Row(name=plan.problem.name, digest=plan.problem.digest),
        "strategy": plan.strategy,
        "objective": plan.objective,
        "parameters": plain(dict(plan.parameters), "parameters"),
        "breaks": list(plan.breaks),
        "notes": plain(dict(plan.notes), "notes"),
    }
    if report:
        from nova_core.model.verify import verify

        found = verify(plan).to_dict()
        found["constraints"] = {name: Row(row) for name, row in found["constraints"].items()}
        found["violations"] = [Row(row) for row in found["violations"]]
        document["report"] = found
    document["totals"] = totals(plan, e)
    return document


class _Names:
    """Names of a plan's nodes, pairs and instances (``tw/t1*w1#0``) as plain text."""

    def __init__(self, plan: Plan) -> None:
        p = plan.problem
        self.nodes: list[str] = p.nodes.ids.tolist()
        self.sources: list[str] = p.sources.ids.tolist()
        self.joins: list[str] = p.joins.ids.tolist()
        m = p.matrix
        self._pairs = list(zip(m.join.tolist(), m.left.tolist(), m.right.tolist(), strict=True))
        rows = zip(plan.instances.pair.tolist(), plan.replica_number.tolist(), strict=True)
        pairs = [f"{self.joins[j]}/{self.sources[a]}*{self.sources[b]}" for j, a, b in self._pairs]
        self.instances = [f"{pairs[pair]}#{number}" for pair, number in rows]

    def pair(self, pair: int) -> dict[str, Any]:
        """The fields that name a pair."""
        join, left, right = self._pairs[pair]
        names = {"left": self.sources[left], "right": self.sources[right]}
        return {"operator": self.joins[join], "pair": names}

    def route(self, plan: Plan, row: int) -> list[str]:
        """The nodes of one route."""
        assert plan.routes is not None
        begin, end = plan.routes.offset[row], plan.routes.offset[row + 1]
        return [self.nodes[node] for node in plan.routes.node[begin:end]]


def plan_document(plan: Plan, report: bool = True) -> dict[str, Any]:
    """A plan as the plain content of a document.

    Args:
        plan: what to write.
        report: whether to verify the plan and put the report in.

    Raises:
        PlanError: for parameters or notes JSON cannot hold.
    """
    names = _Names(plan)
    e = edges(plan)
    document = plan_header(plan, e, report)
    document["totals"] |= {"loads": _load_rows(plan, names)}
    document["partitions"] = _partition_rows(plan, names)
    if plan.virtual_position is not None:
        document["virtual"] = [
            Row(**names.pair(pair), position=[number(x) for x in plan.virtual_position[pair]])
            for pair in placed_virtually(plan)
        ]
    document["instances"] = _instance_rows(plan, names)
    document["edges"] = _edge_rows(plan, e, names)
    return document


def _load_rows(plan: Plan, names: _Names) -> list[Row]:
    nodes, load, capacity = loads(plan)
    return [
        Row(
            node=names.nodes[node],
            load=number(load[row]),
            capacity="unlimited" if np.isinf(capacity[row]) else number(capacity[row]),
        )
        for row, node in enumerate(nodes)
    ]


def placed_virtually(plan: Plan) -> list[int]:
    """Pairs that have a virtual position.

    Raises:
        PlanError: for a position that is neither finite nor NaN throughout.
    """
    position = plan.virtual_position
    if position is None:
        return []
    given = ~np.isnan(position).all(axis=1)
    good = np.isfinite(position).all(axis=1) | ~given
    if not good.all():
        pair = int(np.argmin(good))
        raise PlanError(
            f"plan: virtual_position of {plan.problem.pair_name(pair)}: {position[pair]} cannot be "
            "written; use finite ms, or NaN throughout for none"
        )
    return np.flatnonzero(given).tolist()


def cut_inputs(plan: Plan) -> list[int]:
    """Inputs (``2 * pair + side``) that a plan has to describe: all but whole ones."""
    p, parts = plan.problem, plan.partitions
    rate = np.stack([p.left_rate, p.right_rate], axis=1).ravel()
    whole = parts.count == 1
    whole[whole] = parts.rate[parts.offset[:-1][whole]] == rate[whole]
    return np.flatnonzero(~whole).tolist()


def _partition_rows(plan: Plan, names: _Names) -> list[Row]:
    s, m, rows = plan.problem.sources, plan.problem.matrix, []
    for each in cut_inputs(plan):
        pair, side = divmod(each, 2)
        source = int((m.left, m.right)[side][pair])
        rates = plan.partitions.rates(pair, side)
        rows.append(
            Row(
                **names.pair(pair),
                side=LEGS[side],
                source=names.sources[source],
                stream=str(s.stream[source]),
                rate=number(s.rate[source]),
                partitioner=SEQUENCE_SHARE,
                rates=[number(rate) for rate in rates],
                shares=[number(rate) for rate in rates / rates.sum()],
            )
        )
    return rows


def _instance_rows(plan: Plan, names: _Names) -> list[Row]:
    i, rows = plan.instances, []
    bounds = np.stack([i.left_begin, i.left_end, i.right_begin, i.right_end], axis=1).tolist()
    of = plan.replica_count[i.pair].tolist()
    replica, replicas = plan.replica_number.tolist(), i.replicas.tolist()
    required, node = plan.required_capacity.tolist(), i.node.tolist()
    for row, pair in enumerate(i.pair.tolist()):
        fields = Row(
            id=names.instances[row],
            **names.pair(pair),
            replica=replica[row],
            of=of[row],
            node=names.nodes[node[row]],
            left=bounds[row][:2],
            right=bounds[row][2:],
            replicas=replicas[row],
            required_capacity=number(required[row]),
        )
        if plan.routes is not None:
            fields["routes"] = {leg: names.route(plan, 3 * row + at) for at, leg in enumerate(LEGS)}
        rows.append(fields)
    return rows


def _edge_rows(plan: Plan, e: Edges, names: _Names) -> list[Row]:
    m, rows = plan.problem.matrix, []
    pairs = plan.instances.pair[e.instance]
    inputs = np.stack([m.left[pairs], m.right[pairs]], axis=1).tolist()
    runs, offset = np.stack([e.begin, e.end], axis=1).tolist(), e.offset.tolist()
    leg, source, target = e.leg.tolist(), e.source.tolist(), e.target.tolist()
    rate, latency, bandwidth = e.rate.tolist(), e.latency.tolist(), e.bandwidth.tolist()
    for row, instance in enumerate(e.instance.tolist()):
        fields = Row(
            {"from": names.nodes[source[row]], "to": names.nodes[target[row]]},
            instance=names.instances[instance],
            carries=LEGS[leg[row]],
        )
        if leg[row] < 2:
            fields["source"] = names.sources[inputs[row][leg[row]]]
            fields["partitions"] = runs[offset[row] : offset[row + 1]]
        fields |= {"rate": number(rate[row]), "latency": number(latency[row])}
        if not math.isnan(bandwidth[row]):
            fields["bandwidth"] = number(bandwidth[row])
        if plan.routes is not None:
            route = names.route(plan, 3 * instance + leg[row])
            if len(route) > 2:
                fields["route"] = route
        rows.append(fields)
    return rows


def plan_text(plan: Plan, suffix: str) -> str:
    """A plan as the text of a ``.json`` or ``.yaml`` document."""
    return dump(plan_document(plan), suffix)
