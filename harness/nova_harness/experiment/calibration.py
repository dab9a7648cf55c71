"""What hosts can take of this join on this engine: C_a from CPU time per tuple.

Two short runs at different rates put every join on a worker of its own, so that each host runs one
kind of operator, and hosts' control groups tell what it costs: so much CPU time for being there, so
much per tuple. A host's capacity is what its CPU limit, less what must run there anyway, is worth in
tuples of the join.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_harness.experiment.document import Experiment, ExperimentError
from nova_harness.experiment.usage import mean_cores

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_harness.experiment.engine_run import Bed, Outcome
    from nova_testbed.inventory import Inventory
    from nova_workloads.streams import Stream

# Rates of the two runs, as shares of the experiment's.
SHARES = (0.25, 1.0)
WARM_UP_SECONDS = 6.0
DRAIN_SECONDS = 5.0
# A cost below this, us per tuple, is noise: capacities would have no meaning.
LEAST_COST_US = 0.5


@dataclass(frozen=True)
class Cost:
    """CPU time of one kind of operator on a host of its own.

    Attributes:
        fixed_cores: for being there, the engine's process included.
        per_tuple_us: for each tuple: emitted by a source, received by a join or the sink.
    """

    fixed_cores: float
    per_tuple_us: float

    def cores(self, rate: float) -> float:
        """At so many tuples/s."""
        return self.fixed_cores + rate * self.per_tuple_us * 1e-6


@dataclass(frozen=True)
class Calibration:
    """What operators cost on an engine.

    Attributes:
        source: per tuple emitted.
        join: per tuple received.
        sink: per result received, the coordinator included.
        idle_cores: of a host that runs no operator.
        window_ms: windows it was measured with.
        measured: cores by host for each of the runs.
    """

    source: Cost
    join: Cost
    sink: Cost
    idle_cores: float
    window_ms: int
    measured: list[dict[str, Any]]


def fit(points: Sequence[tuple[float, float]], idle: float) -> Cost:
    """The line through (tuples/s, cores), least squares; never below what an idle host takes.

    Raises:
        ExperimentError: for points that say nothing of the cost of a tuple.
    """
    rates, cores = np.array(points).T
    slope, at_zero = np.polyfit(rates, cores, 1)
    if slope * 1e6 < LEAST_COST_US:
        raise ExperimentError(
            f"calibration: CPU use does not grow with the rate ({slope * 1e6:.2f} us per tuple); "
            "is the machine busy with something else? Try again, or for longer (capacity.seconds)"
        )
    return Cost(max(float(at_zero), idle), float(slope * 1e6))


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


def costs(plan: Plan, outcomes: Sequence[tuple[float, Outcome]], window_ms: int) -> Calibration:
    """Costs from runs of the calibration plan.

    Args:
        plan: that was run.
        outcomes: rate of each source and what came of the run.
        window_ms: of the runs.

    Raises:
        ExperimentError: where CPU use was not told or says nothing.
    """
    p = plan.problem
    names = [str(name) for name in p.nodes.ids]
    sink = names[int(p.sink_node[0])]
    sources = {names[node] for node in p.sources.node.tolist()}
    joins: dict[str, int] = {}
    for node in plan.instances.node.tolist():
        joins[names[node]] = joins.get(names[node], 0) + 1
    points: dict[str, list[tuple[float, float]]] = {"source": [], "join": [], "sink": []}
    idle: list[float] = []
    measured = []
    for rate, outcome in outcomes:
        begin, end = (moment / 1e6 for moment in outcome.measured_us)
        used = mean_cores(outcome.series, begin, end)
        if set(used) != set(names):
            raise ExperimentError("calibration: hosts did not tell what CPU they used")
        arrived = outcome.records["arrive_us"]
        inside = (arrived >= outcome.measured_us[0]) & (arrived < outcome.measured_us[1])
        results = float(inside.sum() / (end - begin))
        for name, cores in used.items():
            if name == sink:
                points["sink"].append((results, cores))
            elif name in joins:
                points["join"].append((2 * rate * joins[name], cores))
            elif name in sources:
                points["source"].append((rate, cores))
            else:
                idle.append(cores)
        measured.append({"rate": rate, "results_per_s": results, "cores": used})
    base = float(np.mean(idle)) if idle else 0.0
    return Calibration(
        source=fit(points["source"], base),
        join=fit(points["join"], base),
        sink=fit(points["sink"], base),
        idle_cores=base,
        window_ms=window_ms,
        measured=measured,
    )


def capacities(
    calibration: Calibration,
    inventory: Inventory,
    cores: Mapping[str, float],
    *,
    safety: float,
    rate: float,
    regions: int,
) -> dict[str, float]:
    """C_a of each host, tuples/s of this join.

    Args:
        calibration: what operators cost.
        inventory: of the hosts.
        cores: each host may use.
        safety: share of them that may be planned with.
        rate: of each source, tuples/s.
        regions: how many; their sources are on the first hosts of that role.
    """
    with_source = {host.name for host in inventory.with_role("source")[: 2 * regions]}
    join_extra = max(0.0, calibration.join.fixed_cores - calibration.idle_cores)
    found = {}
    for host in inventory.hosts:
        needed = calibration.idle_cores
        if host.name in with_source:
            needed = calibration.source.cores(rate)
        if host.role == "sink":
            results = regions * rate
            needed = calibration.sink.cores(results)
        left = safety * cores[host.name] - needed - join_extra
        found[host.name] = max(0.0, left) / (calibration.join.per_tuple_us * 1e-6)
    return found


def calibrate(
    bed: Bed,
    experiment: Experiment,
    problem: Problem,
    streams: Sequence[Stream],
    scratch: Path,
    tell: Callable[[str], None],
) -> Calibration:
    """Measure what operators cost; limits are off meanwhile.

    Raises:
        NovaError: naming what failed.
    """
    from nova_harness.experiment.engine_run import Timing, run_plan

    plan = calibration_plan(problem)
    # Short windows cost most per tuple.
    window = min(experiment.windows_ms)
    timing = Timing(WARM_UP_SECONDS, experiment.capacity.seconds, DRAIN_SECONDS)
    outcomes = []
    for share in SHARES:
        rate = share * max(experiment.rates)
        outcome = run_plan(
            bed,
            plan,
            streams,
            timing,
            rate=rate,
            window_ms=window,
            keys=experiment.keys(window, rate),
            stress=False,
            limited=False,
            name=f"nova calibration at {rate:g}/s",
            scratch=scratch,
            tell=lambda what, rate=rate: tell(f"calibrating at {rate:g} tuples/s: {what}"),
        )
        outcomes.append((rate, outcome))
    return costs(plan, outcomes, window)


# --- kept between experiments -------------------------------------------------------------------


def cache_file(experiment: Experiment, facts: Mapping[str, Any]) -> Path:
    """Where a calibration is kept: another engine, machine, window or rate is another file."""
    from nova_testbed.rack.state import default_state_root

    key = {
        "engine": experiment.engine,
        "settings": [experiment.settings.watermark_ms, experiment.settings.buffer_timeout_ms],
        "window_ms": min(experiment.windows_ms),
        "rate": max(experiment.rates),
        "regions": experiment.workload.regions,
        "matches": experiment.workload.matches,
        **facts,
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return default_state_root().parent / "calibrations" / f"{experiment.engine}-{digest}.json"


def read_calibration(path: Path) -> Calibration | None:
    """A kept calibration; None where there is none that can be read."""
    import msgspec

    try:
        return msgspec.json.decode(path.read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError):
        return None


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Keep a calibration."""
    from nova_core.model.files import make_directory, write_text

    make_directory(path.parent)
    write_text(path, json.dumps(asdict(calibration), indent=2) + "\n")


__all__ = [
    "Calibration",
    "Cost",
    "cache_file",
    "calibrate",
    "calibration_plan",
    "capacities",
    "costs",
    "fit",
    "read_calibration",
    "write_calibration",
]
