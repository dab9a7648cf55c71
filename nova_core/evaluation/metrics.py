"""What a plan costs: latency, load, traffic (definitions of the paper, section 4).

Latency is given twice where it can be: estimated by coordinates, and measured by a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nova_core.errors import PlanError, ProblemError
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Problem
from nova_core.model.traffic import hops
from nova_core.model.verify import TOLERANCE


@dataclass(frozen=True, eq=False)
class Latency:
    """Latencies of a plan by one measure of distances, ms.

    A source's latency is the mean over its replicas' paths from the source to sinks. An instance
    counts once for each replica merged in it.

    Attributes:
        per_source: (s,) latency of each source, NaN for one that feeds nothing.
        mean: mean over sources.
        p90: 90th percentile over sources.
        mean_truncated: mean over sources, each cut to whole ms first, as in published tables of
            Nova's placements.
        p90_truncated: 90th percentile of the same.
        maximum: the slowest path of any instance.
        direct_mean: mean over sources of sending straight to the sink, the reference.
        direct_p90: 90th percentile of the same.
        objectives: value of every objective: of ``latency`` and ``source-latency`` the sum over
            pairs of the mean over replicas, ms; of ``network-usage`` the sum over legs of rate
            times latency, tuples/s * ms.
        instance_sum: Eq. 1 of the Nova paper over the plan's instances as they are: every leg of
            every instance once, ms. A join cut into more pieces counts more here, although each
            tuple takes the way of only one; ``latency`` above counts that way. Of whole queries,
            every link between placed operators counts once.
    """

    per_source: Floats
    mean: float
    p90: float
    mean_truncated: float
    p90_truncated: float
    maximum: float
    direct_mean: float
    direct_p90: float
    objectives: dict[str, float]
    instance_sum: float

    @property
    def network_usage(self) -> float:
        """Sum over legs of rate times latency, tuples/s * ms (SBON, section 2)."""
        return self.objectives["network-usage"]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single sources, as plain values for JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "per_source"}


@dataclass(frozen=True, eq=False)
class Load:
    """How much nodes receive, against their capacity.

    Attributes:
        rate: (n,) tuples/s each node receives.
        overloaded: (n,) which nodes receive more than their capacity.
        receiving_count: nodes that receive anything.
        worst_factor: the greatest ratio of load to capacity; ``inf`` where a node of no capacity
            receives tuples, 0 where none does.
    """

    rate: Floats
    overloaded: Bools
    receiving_count: int
    worst_factor: float

    @property
    def overloaded_count(self) -> int:
        """Overloaded nodes."""
        return int(self.overloaded.sum())

    @property
    def overloaded_percent(self) -> float:
        """Overloaded nodes in percent of those that receive tuples."""
        return 100.0 * self.overloaded_count / max(1, self.receiving_count)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single nodes, as plain values for JSON."""
        return {
            "overloaded_count": self.overloaded_count,
            "overloaded_percent": self.overloaded_percent,
            "receiving_count": self.receiving_count,
            "worst_factor": self.worst_factor if np.isfinite(self.worst_factor) else None,
            "total": float(self.rate.sum()),
        }


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a plan costs.

    Attributes:
        strategy: name of the strategy that made the plan.
        estimated: latency by coordinates.
        measured: latency by a measured matrix, or None where there is none.
        load: load as capacity is charged: every input of a join counts, also one produced on the
            node itself (C_r, paper, section 2.2), and what a relay forwards.
        arriving: load as published percentages have it: only tuples that reach the node from
            another one.
        traffic: tuples/s over all hops between different nodes.
        amplification: inputs delivered to instances over inputs of uncut operators; 1 without cuts.
        joins: pairs of sources that join, or operators of queries.
        joins_cut: those that run in more than one instance.
        instances: instances of all of them.
        replicas: their paper replicas, before those on a node merge.
        nodes_used: nodes that host an instance.
    """

    strategy: str
    estimated: Latency
    measured: Latency | None
    load: Load
    arriving: Load
    traffic: float
    amplification: float
    joins: int
    joins_cut: int
    instances: int
    replicas: int
    nodes_used: int

    def to_dict(self) -> dict[str, Any]:
        """Everything but per-node and per-source columns, as plain values for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: value.to_dict() if isinstance(value, Latency | Load) else value
            for name, value in values.items()
        }


def evaluate(plan: Plan, latency: Floats | None = None) -> Evaluation:
    """Work out what a plan costs.

    Args:
        plan: a plan whose columns are in range (`verify`).
        latency: (n, n) measured latencies, ms; None takes the problem's own, if it has any.

    Raises:
        ProblemError: when the matrix has another shape or a negative or missing value.
        PlanError: when the plan places no join though there are some.
    """
    problem = plan.problem
    if len(plan.instances) == 0 and not problem.queries:
        raise PlanError("plan: places no join of its problem, so there is nothing to evaluate")
    latency = problem.latency if latency is None else _checked(latency, len(problem.nodes))
    needed = float(plan.whole_rate(0).sum() + plan.whole_rate(1).sum())
    return Evaluation(
        strategy=plan.strategy,
        estimated=_latency(plan, None),
        measured=None if latency is None else _latency(plan, latency),
        load=_load(problem, plan.load),
        arriving=_load(problem, arriving_rate(plan)),
        traffic=float(hops(plan).rate.sum()),
        amplification=float(plan.added_load.sum()) / needed if needed else 1.0,
        joins=plan.operator_count,
        joins_cut=int((plan.replica_count > 1).sum()),
        instances=len(plan.instances),
        replicas=int(plan.instances.replicas.sum()),
        nodes_used=plan.nodes_used,
    )


def arriving_rate(plan: Plan) -> Floats:
    """(n,) tuples/s that reach each node from another one to be joined or relayed there.

    What a source produces on the very node that joins it does not travel and is left out.
    """
    source, target = plan.ends
    here = (source == target) & (plan.links.consumer >= 0)
    local = np.bincount(source[here], plan.sent[here], minlength=len(plan.load))
    rate = plan.load - local
    # Subtracting must not leave a rounding error where nothing arrives.
    return np.where(rate > TOLERANCE * plan.load, rate, 0.0)


def _load(problem: Problem, rate: Floats) -> Load:
    receiving = rate > 0
    overloaded = rate > problem.nodes.capacity * (1.0 + TOLERANCE)
    capacity = problem.nodes.capacity[receiving]
    with np.errstate(over="ignore"):  # next to no capacity is overloaded without bound
        factor = np.divide(
            rate[receiving], capacity, out=np.full(len(capacity), np.inf), where=capacity > 0
        )
    return Load(rate, overloaded, int(receiving.sum()), float(factor.max(initial=0.0)))


def _latency(plan: Plan, matrix: Floats | None) -> Latency:
    objectives = {name: plan.objective_value(name, matrix) for name in OBJECTIVES}
    return _summary(
        plan.source_latency(matrix),
        float(plan.path_latency_by(matrix).max(initial=0.0)),
        _direct(plan, matrix),
        objectives,
        float(plan.link_latency(matrix).sum()),
    )


def _summary(
    per_source: Floats,
    maximum: float,
    direct: Floats,
    objectives: dict[str, float],
    instance_sum: float,
) -> Latency:
    known = per_source[~np.isnan(per_source)]
    return Latency(
        per_source=per_source,
        mean=float(known.mean()),
        p90=float(np.percentile(known, 90)),
        mean_truncated=float(np.trunc(known).mean()),
        p90_truncated=float(np.percentile(np.trunc(known), 90)),
        maximum=maximum,
        direct_mean=float(direct.mean()),
        direct_p90=float(np.percentile(direct, 90)),
        objectives=objectives,
        instance_sum=instance_sum,
    )


def _direct(plan: Plan, matrix: Floats | None) -> Floats:
    """Latency from every source that is read straight to its sinks; the mean where it has several.

    A sink counts once for every way that leads to it.
    """
    problem, graph = plan.problem, plan.graph
    start, sink = graph.ways
    node, end, source = graph.node[start], graph.node[sink], graph.source[start]
    if matrix is None:
        distance = problem.distance(node, end)
    else:
        distance = np.asarray(matrix[node, end], np.float64)
    count = len(problem.sources)
    ways, sums = np.bincount(source, minlength=count), np.bincount(source, distance, count)
    return sums[ways > 0] / ways[ways > 0]


def _checked(latency: Floats, count: int) -> Floats:
    matrix = np.asarray(latency, np.float64)
    if matrix.shape != (count, count):
        shape = " x ".join(map(str, matrix.shape))
        raise ProblemError(f"latency: the matrix is {shape}; the problem has {count} nodes")
    if not (matrix >= 0).all():
        row, column = np.argwhere(~(matrix >= 0))[0]
        value = matrix[row, column]
        raise ProblemError(f"latency: row {row}, column {column} is {value}; use ms, 0 or more")
    return matrix
