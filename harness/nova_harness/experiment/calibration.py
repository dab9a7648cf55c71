"""What hosts can take of this join on this engine: C_a from CPU time per tuple.

A short run at the experiment's own rate puts every join on a worker of its own, so that each host
runs one kind of operator, and tells from the hosts' CPU time what it costs there. At 1 kHz most of
that is waking up, not the tuples: a cost per tuple holds for joins of about that rate, is too high
for several on one host, and too low for small pieces of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_harness.experiment.document import Experiment, ExperimentError
from nova_harness.experiment.usage import mean_cores

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_harness.experiment.engine_run import Bed, Outcome
    from nova_testbed.inventory import Inventory
    from nova_workloads.streams import Stream

# Java compiles what it finds to be used much, which must not count as a cost of tuples.
DRAIN_SECONDS = 4.0


@dataclass(frozen=True)
class Calibration:
    """What operators cost on an engine, at one rate.

    Attributes:
        idle_cores: of a host that runs the engine's process and no operator.
        source_cores: of a host with a source.
        sink_cores: of the sink's host, the coordinator included.
        join_us: CPU time per tuple a join receives.
        rate: of each source, tuples/s.
        results_per_s: that arrived at the sink.
        window_ms: length of the windows.
        cores: of every host, as measured.
    """

    idle_cores: float
    source_cores: float
    sink_cores: float
    join_us: float
    rate: float
    results_per_s: float
    window_ms: int
    cores: dict[str, float]


def calibration_plan(problem: Problem) -> Plan:
    """Each pair's join whole on a worker of its own, the most capable first.

    Raises:
        ExperimentError: with fewer workers than pairs and none idle.
    """
    from nova_core.model.plan import Instances, Partitions, Plan

    sources = set(problem.sources.node.tolist())
    free = [
        node
        for node in np.argsort(-problem.nodes.capacity, kind="stable").tolist()
        if problem.nodes.worker[node] and node not in sources
    ]
    pairs = len(problem.matrix)
    if not free:
        raise ExperimentError("calibration: every host has a source or the sink; add a worker")
    # With few workers some pairs share one: what it costs counts by what it receives.
    hosts = np.array([free[pair % len(free)] for pair in range(pairs)])
    return Plan(
        problem=problem,
        strategy="calibration",
        objective="latency",
        partitions=Partitions.whole(problem),
        instances=Instances.whole(hosts),
        breaks=("capacity",),
    )


def costs(plan: Plan, outcome: Outcome, rate: float, window_ms: int) -> Calibration:
    """Costs from a run of the calibration plan.

    Args:
        plan: that was run.
        outcome: of the run.
        rate: of each source, tuples/s.
        window_ms: of the run.

    Raises:
        ExperimentError: where hosts did not tell what they used, or joins cost nothing.
    """
    p = plan.problem
    names = [str(name) for name in p.nodes.ids]
    begin, end = (moment / 1e6 for moment in outcome.measured_us)
    used = mean_cores(outcome.series, begin, end)
    silent = [name for name in names if name not in used]
    if silent:
        raise ExperimentError(f"calibration: {', '.join(silent)}: CPU use is not known")
    joins = np.bincount(plan.instances.node, minlength=len(names))
    sink, sources = int(p.sink_node[0]), set(p.sources.node.tolist())
    idle = [
        used[name]
        for node, name in enumerate(names)
        if not joins[node] and node not in sources and node != sink
    ]
    # Where every host has something to do, engines' own use counts with the join's.
    base = float(np.mean(idle)) if idle else 0.0
    hosting = np.flatnonzero(joins)
    beyond = sum(used[names[node]] - base for node in hosting.tolist())
    join_us = 1e6 * beyond / (2 * rate * float(joins.sum()))
    if join_us <= 0:
        raise ExperimentError(
            "calibration: hosts with joins use no more CPU than one without; is the machine busy "
            "with something else? Try again, or for longer (capacity.seconds)"
        )
    arrived = outcome.records["arrive_us"]
    inside = (arrived >= outcome.measured_us[0]) & (arrived < outcome.measured_us[1])
    return Calibration(
        idle_cores=base,
        source_cores=float(np.mean([used[names[node]] for node in sources])),
        sink_cores=used[names[sink]],
        join_us=join_us,
        rate=rate,
        results_per_s=float(inside.sum() / (end - begin)),
        window_ms=window_ms,
        cores=used,
    )


def capacities(
    found: Calibration,
    inventory: Inventory,
    cores: Mapping[str, float],
    *,
    safety: float,
    regions: int,
    output_rate: float,
) -> dict[str, float]:
    """C_a of each host, tuples/s of this join.

    Args:
        found: what operators cost.
        inventory: of the hosts.
        cores: each host may use.
        safety: share of them that may be planned with.
        regions: how many; their sources are on the first hosts of that role.
        output_rate: of all joins, tuples/s, which the sink takes beside joins of its own.
    """
    with_source = {host.name for host in inventory.with_role("source")[: 2 * regions]}
    capacity = {}
    for host in inventory.hosts:
        needed = found.idle_cores
        if host.role == "sink":
            needed = found.sink_cores
        elif host.name in with_source:
            needed = found.source_cores
        left = safety * cores[host.name] - needed
        capacity[host.name] = max(0.0, left) / (found.join_us * 1e-6)
        if host.role == "sink":
            # What it needs to take the results is no longer free for joins.
            capacity[host.name] += output_rate
    return capacity


def bottlenecks(
    found: Calibration, inventory: Inventory, cores: Mapping[str, float], regions: int
) -> list[str]:
    """Hosts that need more than their limit for what every strategy has there, a line each."""
    sources = inventory.with_role("source")[: 2 * regions]
    pinned = [(host.name, "source", found.source_cores) for host in sources]
    pinned += [(host.name, "sink", found.sink_cores) for host in inventory.with_role("sink")]
    return [
        f"{name}: its {what} takes {needed:.3f} cores of {cores[name]:g}, whatever the placement"
        for name, what, needed in pinned
        if needed > cores[name]
    ]


def calibrate(
    bed: Bed,
    experiment: Experiment,
    rate: float,
    problem: Problem,
    streams: Sequence[Stream],
    scratch: Path,
    tell: Callable[[str], None],
) -> Calibration:
    """Measure what operators cost at a rate; limits are off meanwhile.

    It also warms up: the Java of every host has seen the operators when the first cell begins.

    Raises:
        NovaError: naming what failed.
    """
    from nova_harness.experiment.engine_run import Timing, run_plan

    plan = calibration_plan(problem)
    # Short windows cost most per tuple.
    window = min(experiment.windows_ms)
    outcome = run_plan(
        bed,
        plan,
        streams,
        Timing(experiment.capacity.warm_up_s, experiment.capacity.seconds, DRAIN_SECONDS),
        rate=rate,
        window_ms=window,
        keys=experiment.keys(window, rate),
        every=experiment.every,
        stress=False,
        limited=False,
        name="nova calibration",
        scratch=scratch,
        tell=lambda what: tell(f"calibrating at {rate:g} tuples/s: {what}"),
    )
    return costs(plan, outcome, rate, window)


# --- kept with a run ----------------------------------------------------------------------------


def read_calibrations(path: Path) -> dict[float, Calibration]:
    """The calibrations a run began with, by rate; none where there is no file, or another kind."""
    import msgspec

    try:
        rows = json.loads(path.read_text())["rates"]
        found = [msgspec.convert(row["costs"], Calibration) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):
        return {}
    return {one.rate: one for one in found}


__all__ = [
    "Calibration",
    "bottlenecks",
    "calibrate",
    "calibration_plan",
    "capacities",
    "costs",
    "read_calibrations",
]
