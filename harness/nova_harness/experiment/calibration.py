"""What hosts can take of this join on this engine: C_a from CPU time per tuple.

A short run at the experiment's own rate puts every join on a worker of its own, so that each host
runs one kind of operator, and tells from the hosts' CPU time what it costs there. At 1 kHz most of
that is waking up, not the tuples: a cost per tuple holds for joins of about that rate, is too high
for several on one host, and too low for small pieces of one.

Hosts under artificial load are calibrated with that load in force: what it leaves the engine there
is what the engine gets while it wants more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_harness.experiment.document import Experiment, ExperimentError
from nova_harness.experiment.usage import engine_cores
from nova_harness.results.schema import Calibration

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_harness.experiment.engine_run import Bed, Outcome
    from nova_testbed.inventory import Inventory
    from nova_workloads.streams import Stream

DRAIN_SECONDS = 4.0
# A join that takes in less than this share of what it is sent would use more CPU if it got it.
HUNGRY = 0.97
# Where none under load is, it is sent so many times what its host could take without load.
HUNGER = 1.5
# A join that is cut has its sources send their tuples more than once. Beside a source, hosts are
# taken to send them twice, the second time at the price of the first. On Flink, sending to four
# pieces, every tuple twice, took 1.4 times what sending to one took (docs/experiments.md); engines
# with a filter for each piece need more.
COPIES = 2


@dataclass(frozen=True)
class Setting:
    """What hosts are calibrated for.

    Attributes:
        rate: of each source, tuples/s.
        stress: whether the inventory's load is in force.
    """

    rate: float
    stress: bool = False


def calibration_plan(problem: Problem, loaded: Collection[str] = ()) -> Plan:
    """Each pair's join whole on a worker of its own, the most capable first.

    Args:
        problem: of the experiment.
        loaded: hosts under load; they and the others are taken in turn then, those with a source
            where no others are under load.

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
    if loaded:
        under_load = {
            node for node, name in enumerate(problem.nodes.ids.tolist()) if name in loaded
        }
        under = [node for node in free if node in under_load] or sorted(sources & under_load)
        calm = [node for node in free if node not in under_load] or under
        free = [
            group[turn % len(group)]
            for turn in range(max(len(under), len(calm)))
            for group in (under, calm)
        ]
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


def warming_plan(problem: Problem) -> Plan:
    """Joins on every host, so that each has seen all operators before anything is measured.

    Hosts are dealt to the pairs in turn; a pair's left input is cut into as many pieces as it has
    hosts, and each of them gets the whole right input.
    """
    from nova_core.model.plan import Instances, Partitions, Plan

    pairs, nodes = len(problem.matrix), len(problem.nodes.ids)
    hosts = [np.arange(max(pairs, nodes))[pair::pairs] % nodes for pair in range(pairs)]
    pieces = np.array([len(of_pair) for of_pair in hosts])
    count = np.ones(2 * pairs, np.int64)
    count[0::2] = pieces
    left = np.concatenate([np.arange(k) for k in pieces])
    whole = Partitions.whole(problem).rate
    instances = Instances(
        pair=np.repeat(np.arange(pairs), pieces),
        node=np.concatenate(hosts),
        left_begin=left,
        left_end=left + 1,
        right_begin=np.zeros_like(left),
        right_end=np.ones_like(left),
    )
    return Plan(
        problem=problem,
        strategy="warming up",
        objective="latency",
        partitions=Partitions(
            np.concatenate([[0], np.cumsum(count)]), np.repeat(whole / count, count)
        ),
        instances=instances,
        breaks=("capacity",),
    )


def costs(
    plan: Plan,
    outcome: Outcome,
    setting: Setting,
    window_ms: int,
    matches: float = 1.0,
    limits: Mapping[str, float] | None = None,
) -> Calibration:
    """Costs from a run of the calibration plan.

    Joins that do not keep up count by what they have taken in, told from the results that came.

    Args:
        plan: that was run.
        outcome: of the run.
        setting: that it was run in.
        window_ms: of the run.
        matches: results per tuple of a source.
        limits: cores that each host under load may use.

    Raises:
        ExperimentError: where hosts did not tell what they used, or joins cost nothing.
    """
    p, rate = plan.problem, setting.rate
    names = [str(name) for name in p.nodes.ids]
    begin, end = (moment / 1e6 for moment in outcome.measured_us)
    used = engine_cores(outcome.series, begin, end)
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
    source = float(np.mean([used[names[node]] for node in sources if not joins[node]]))
    beyond = sum(
        used[names[node]] - (source if node in sources else base)
        for node in np.flatnonzero(joins).tolist()
    )
    arrived = outcome.records["arrive_us"]
    inside = (arrived >= outcome.measured_us[0]) & (arrived < outcome.measured_us[1])
    results_per_s = float(inside.sum() / (end - begin))
    kept_up = min(1.0, results_per_s / (rate * matches * float(joins.sum())))
    if kept_up <= 0:
        raise ExperimentError("calibration: no results arrived; try a lower rate, or for longer")
    join_us = 1e6 * beyond / (2 * rate * kept_up * float(joins.sum()))
    if join_us <= 0:
        raise ExperimentError(
            "calibration: hosts with joins use no more CPU than one without; is the machine busy "
            "with something else? Try again, or for longer (capacity.seconds)"
        )
    left = None
    if limits:
        came = np.bincount(outcome.records["instance"][inside], minlength=len(plan.instances.node))
        hungry = came < HUNGRY * rate * matches * (end - begin)
        hosts = {names[node] for node in plan.instances.node[hungry].tolist()} & set(limits)
        if hosts:
            left = min(1.0, float(np.mean([used[name] / limits[name] for name in hosts])))
    return Calibration(
        idle_cores=base,
        source_cores=source,
        sink_cores=used[names[sink]],
        join_us=join_us,
        rate=rate,
        results_per_s=results_per_s,
        window_ms=window_ms,
        cores=used,
        kept_up=kept_up,
        stress=setting.stress,
        left=left,
    )


def capacities(
    found: Calibration,
    inventory: Inventory,
    cores: Mapping[str, float],
    *,
    rate: float,
    safety: float,
    regions: int,
    output_rate: float,
) -> dict[str, float]:
    """C_a of each host, tuples/s of this join.

    Args:
        found: what operators cost.
        inventory: of the hosts.
        cores: each host may use.
        rate: of each source, tuples/s.
        safety: share of them that may be planned with.
        regions: how many; their sources are on the first hosts of that role.
        output_rate: of all joins, tuples/s, which the sink takes beside joins of its own.
    """
    with_source = {host.name for host in inventory.with_role("source")[: 2 * regions]}
    capacity, available = {}, found.available(inventory, cores)
    for host in inventory.hosts:
        needed = found.idle_cores
        if host.role == "sink":
            needed = found.sink_cores
        elif host.name in with_source:
            needed = found.source_at(COPIES * rate)
        left = safety * available[host.name] - needed
        capacity[host.name] = max(0.0, left) / (found.join_us * 1e-6)
        if host.role == "sink":
            # What it needs to take the results is no longer free for joins.
            capacity[host.name] += output_rate
    return capacity


def bottlenecks(
    found: Calibration,
    inventory: Inventory,
    cores: Mapping[str, float],
    regions: int,
    rate: float,
) -> list[str]:
    """Hosts that need more than they get for what every strategy has there, a line each."""
    sources = inventory.with_role("source")[: 2 * regions]
    pinned = [(host.name, "source", found.source_at(rate)) for host in sources]
    pinned += [(host.name, "sink", found.sink_cores) for host in inventory.with_role("sink")]
    available = found.available(inventory, cores)
    return [
        f"{name}: its {what} takes {needed:.3f} cores of {available[name]:.3g}, whatever the "
        "placement"
        for name, what, needed in pinned
        if needed > available[name]
    ]


def calibrate(
    bed: Bed,
    experiment: Experiment,
    setting: Setting,
    problem: Problem,
    streams: Sequence[Stream],
    scratch: Path,
    tell: Callable[[str], None],
) -> Calibration:
    """Measure what operators cost in a setting.

    The hosts' limits are off meanwhile, so that joins keep up; with a load that is asked for they
    are in force, as what joins cost when there is too much of them is what matters then; likewise
    under artificial load, which takes its share of what the limit allows.

    Raises:
        NovaError: naming what failed.
    """
    from nova_harness.experiment.engine_run import Timing, run_plan

    inventory = bed.deployment.hosts.inventory
    loaded = inventory.stress.hosts if setting.stress else ()
    limits = {name: inventory.host(name).cpu or 1.0 for name in loaded}
    plan = calibration_plan(problem, loaded)
    # Short windows cost most per tuple.
    window = min(experiment.windows_ms)

    def measure(setting: Setting) -> Calibration:
        rate = setting.rate
        outcome = run_plan(
            bed,
            plan,
            streams,
            Timing(experiment.capacity.warm_up_s, experiment.capacity.seconds, DRAIN_SECONDS),
            rate=rate,
            window_ms=window,
            keys=experiment.keys(window, rate),
            every=experiment.every,
            stress=setting.stress,
            limited=experiment.load is not None or setting.stress,
            name="nova calibration",
            scratch=scratch,
            tell=lambda what: tell(
                f"calibrating at {rate:g} tuples/s{' under load' * setting.stress}: {what}"
            ),
        )
        return costs(plan, outcome, setting, window, experiment.matches(window, rate), limits)

    found = measure(setting)
    if limits and found.left is None:
        # Joins kept up: more is sent to tell what they could have got.
        most = max(limits.values()) / (2 * found.join_us * 1e-6)
        found = replace(found, left=measure(Setting(round(HUNGER * most), stress=True)).left)
    return found
