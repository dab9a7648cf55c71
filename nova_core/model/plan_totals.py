"""Sums over a plan, and its free-form parts as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.edges import Edges
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints
from nova_core.placement.objectives import OBJECTIVES, leg_weights


def objective_value(plan: Plan, e: Edges) -> float | None:
    """What the plan's objective adds up to; None for one that is not known here.

    As in `nova_core.evaluation`: network usage is that of all flows; in the other objectives a pair
    that is cut counts with the mean of its replicas, so that plans that cut compare with others.
    """
    if plan.objective == "network-usage":
        return network_usage(e)
    if plan.objective not in OBJECTIVES:
        return None
    i = plan.instances
    cost = (leg_weights(plan.problem, plan.objective)[i.pair] * plan.leg_latency).sum(axis=1)
    replicas = np.bincount(i.pair, i.replicas)
    return float((cost * i.replicas / replicas[i.pair]).sum())


def network_usage(e: Edges) -> float:
    """Sum over flows of rate times latency, tuples/s * ms (SBON, section 2)."""
    return float((e.rate * e.latency).sum())


def totals(plan: Plan, e: Edges) -> dict[str, Any]:
    """Sums for the header of a plan with these flows."""
    return {
        "objective": objective_value(plan, e),
        "instances": len(plan.instances),
        "replicas": int(plan.instances.replicas.sum()),
        "nodes_used": len(np.unique(plan.instances.node)),
        "received": float(plan.load.sum()),
        "network_usage": network_usage(e),
    }


def loads(plan: Plan) -> tuple[Ints, Floats, Floats]:
    """((u,), (u,), (u,)) nodes that receive anything, their load and capacity, tuples/s."""
    nodes = np.flatnonzero(plan.load)
    return nodes, plan.load[nodes], plan.problem.nodes.capacity[nodes]


def plain(value: Any, place: str) -> Any:
    """A parameter or note as JSON holds it: numpy numbers and tuples become plain ones.

    Raises:
        PlanError: for a value JSON does not have, such as infinity.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item, f"{place}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item, f"{place}[{row}]") for row, item in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise PlanError(
        f"plan: {place}: {value!r} cannot be written; use a finite number, text, a list or none"
    )
