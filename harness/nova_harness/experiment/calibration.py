"""Hosts' capacities C_a for a workload on an engine, from CPU time per tuple.

A short run at the experiment's own rate puts every operator on its own worker, so that each host
runs one kind of operator. The hosts' CPU time then gives the operators' costs. At 1 kHz, most of
that is wake-ups, not tuples: a cost per tuple holds for joins of about that rate, is too high for
several joins on one host, and too low for small pieces of a join.

Hosts under artificial load are calibrated under that load: the engine's share there is the CPU that
it gets while it could use more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from nova_harness.engines.warming import WARMING_RATE, plan_on, warming_plan
from nova_harness.experiment.bed import cores_of
from nova_harness.experiment.cells import loads_of
from nova_harness.experiment.document import Experiment, ExperimentError
from nova_harness.experiment.problem import problem_document, problem_of, rtt_csv
from nova_harness.experiment.usage import engine_cores
from nova_harness.results.run_folder import CALIBRATIONS, read_calibrations, write_json
from nova_harness.results.schema import (
    CalibratedSetting,
    Calibration,
    Calibrations,
    FoundRate,
    HostRow,
)

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_harness.experiment.engine_run import Bed, Outcome
    from nova_testbed.inventory import Inventory
    from nova_workloads.base import Streams, Traffic, Workload

DRAIN_SECONDS = 4.0
# A join that takes in less than this share of its input would use more CPU if it got it.
HUNGRY = 0.97
# Where no join under load does, joins are sent so many times the capacity without load.
HUNGER = 1.5
# Sources of a cut join send their tuples more than once. Capacities assume that hosts with a source
# send them twice, each time at the same cost. On Flink, sending to four pieces, every tuple twice,
# took 1.4 times the cost of sending to one (docs/results.md); engines with a filter for each piece
# need more.
COPIES = 2
# The search ends when the next calibration's rate would differ by less than this share.
CLOSE = 0.05
MOST_CALIBRATIONS = 5
# Two calibrations predict rates up to so many times the last one's.
FURTHEST = 2.0
# The search's rates are multiples of this, tuples/s.
STEP = 100.0


@dataclass(frozen=True)
class Setting:
    """Conditions of a calibration.

    Attributes:
        rate: of each source, tuples/s.
        stress: whether the inventory's load is in force.
    """

    rate: float
    stress: bool = False


def settings_of(experiment: Experiment) -> list[Setting]:
    """The settings of an experiment's calibrations; those of the first rate come first."""
    loads = loads_of(experiment) if experiment.capacity.stress_known else (False,)
    return [Setting(rate, stress) for rate in experiment.rates for stress in loads]


def known_setting(experiment: Experiment, rate: float, stress: bool) -> Setting:
    """The setting whose capacities strategies use for a cell with that rate and load."""
    return Setting(rate, stress and experiment.capacity.stress_known)


def costliest(workload: Workload, windows_ms: Sequence[int], rate: float) -> Traffic:
    """The traffic with the costliest windows.

    Those have the most results per tuple; of several, the shortest.

    Args:
        workload: of an experiment.
        windows_ms: of its cells.
        rate: of each source, tuples/s.
    """
    windows = [workload.traffic(one, rate) for one in windows_ms]
    return max(windows, key=lambda one: (round(one.matches), -one.window_ms))


# --- plans of calibrations ------------------------------------------------------------------------


def calibration_plan(problem: Problem, loaded: Collection[str] = ()) -> Plan:
    """Each whole operator on its own worker, the most capable first.

    Args:
        problem: of the experiment.
        loaded: hosts under load, which alternate with the others; where only hosts with a source
            are under load, these.

    Raises:
        ExperimentError: with fewer workers than operators and none idle.
    """
    sources = set(problem.sources.node.tolist())
    taken = sources | set(problem.sinks.tolist())
    free = [
        node
        for node in np.argsort(-problem.nodes.capacity, kind="stable").tolist()
        if problem.nodes.worker[node] and node not in taken
    ]
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
    # With few workers, operators share one: its cost counts by the tuples that it receives.
    return plan_on(
        problem,
        "calibration",
        lambda count: (np.array([free[one % len(free)] for one in range(count)]), None),
    )


# --- costs of operators ---------------------------------------------------------------------------


def costs(
    plan: Plan,
    outcome: Outcome,
    streams: Streams,
    setting: Setting,
    window_ms: int,
    limits: Mapping[str, float] | None = None,
) -> Calibration:
    """Costs from a run of the calibration plan.

    Joins that do not keep up count by the tuples that they took in, estimated from their results.

    Args:
        plan: that was run.
        outcome: of the run.
        streams: that flowed.
        setting: of the run.
        window_ms: of the run.
        limits: cores that each host under load may use.

    Raises:
        ExperimentError: where hosts' CPU use is unknown, or joins cost nothing.
    """
    p = plan.problem
    names = [str(name) for name in p.nodes.ids]
    begin, end = (moment / 1e6 for moment in outcome.measured_us)
    used = engine_cores(outcome.series, begin, end)
    silent = [name for name in names if name not in used]
    if silent:
        raise ExperimentError(f"calibration: {', '.join(silent)}: CPU use is not known")
    joins = np.bincount(plan.instances.node, minlength=len(names))
    sink, sources = int(p.sinks[0]), set(p.sources.node.tolist())
    idle = [
        used[name]
        for node, name in enumerate(names)
        if not joins[node] and node not in sources and node != sink
    ]
    # Without an idle host, the engine's own use counts as the joins'.
    base = float(np.mean(idle)) if idle else 0.0
    free_sources = [used[names[node]] for node in sources if not joins[node]]
    source = float(np.mean(free_sources)) if free_sources else base
    beyond = sum(
        used[names[node]] - (source if node in sources else base)
        for node in np.flatnonzero(joins).tolist()
    )
    arrived = outcome.records["arrive_us"]
    inside = (arrived >= outcome.measured_us[0]) & (arrived < outcome.measured_us[1])
    results_per_s = float(inside.sum() / (end - begin))
    kept_up = min(1.0, results_per_s / streams.expected_rate)
    if kept_up <= 0:
        raise ExperimentError("calibration: no results arrived; try a lower rate, or for longer")
    join_us = 1e6 * beyond / (kept_up * float(plan.required_capacity.sum()))
    if join_us <= 0:
        raise ExperimentError(
            "calibration: hosts with joins use no more CPU than one without; is the machine busy "
            "with something else? Try again, or for longer (capacity.seconds)"
        )
    left = None
    came = streams.delivered(plan, outcome.records, inside) if limits else None
    if limits and came is not None:
        due = streams.expected_rate / len(plan.instances) * (end - begin)
        hungry = plan.instances.node[came < HUNGRY * due].tolist()
        hosts = {names[node] for node in hungry} & set(limits)
        if hosts:
            left = min(1.0, float(np.mean([used[name] / limits[name] for name in hosts])))
    return Calibration(
        idle_cores=base,
        source_cores=source,
        sink_cores=used[names[sink]],
        join_us=join_us,
        rate=setting.rate,
        results_per_s=results_per_s,
        window_ms=window_ms,
        cores=used,
        kept_up=kept_up,
        stress=setting.stress,
        left=left,
    )


def source_hosts(problem: Problem) -> list[str]:
    """Names of the hosts with a source, each once."""
    return [str(problem.nodes.ids[node]) for node in np.unique(problem.sources.node)]


def capacities(
    calibration: Calibration,
    inventory: Inventory,
    cores: Mapping[str, float],
    sources: Collection[str],
    *,
    rate: float,
    safety: float,
    output_rate: float,
) -> dict[str, float]:
    """C_a of each host, tuples/s of this workload's operators.

    Args:
        calibration: costs of operators.
        inventory: of the hosts.
        cores: that each host may use.
        sources: hosts with a source.
        rate: of each source, tuples/s.
        safety: share of the cores that plans may use.
        output_rate: of all joins, tuples/s, which every problem's sink must be able to take.
    """
    capacity, available = {}, calibration.available(inventory, cores)
    for host in inventory.hosts:
        needed = calibration.idle_cores
        if host.role == "sink":
            needed = calibration.sink_cores
        elif host.name in sources:
            needed = calibration.source_at(COPIES * rate)
        left = safety * available[host.name] - needed
        capacity[host.name] = max(0.0, left) / (calibration.join_us * 1e-6)
        if host.role == "sink":
            # Its cores for the results are already subtracted.
            capacity[host.name] = max(capacity[host.name], output_rate)
    return capacity


def bottlenecks(
    calibration: Calibration,
    inventory: Inventory,
    cores: Mapping[str, float],
    sources: Collection[str],
    rate: float,
) -> list[str]:
    """Hosts whose pinned sources or sink need more CPU than they have, a line each."""
    pinned = [(name, "source", calibration.source_at(rate)) for name in sources]
    pinned += [(host.name, "sink", calibration.sink_cores) for host in inventory.with_role("sink")]
    available = calibration.available(inventory, cores)
    return [
        f"{name}: its {what} takes {needed:.3f} cores of {available[name]:.3g}, whatever the "
        "placement"
        for name, what, needed in pinned
        if needed > available[name]
    ]


# --- a rate for a load ----------------------------------------------------------------------------


def strongest(
    calibration: Calibration,
    inventory: Inventory,
    cores: Mapping[str, float],
    sources: Collection[str],
) -> tuple[str, float]:
    """The host with the greatest capacity, except those with a source or the sink.

    Returns:
        Its name and capacity, tuples/s.

    Raises:
        ExperimentError: where every host has a source or the sink, or the others have no CPU left.
    """
    taken = {host.name for host in inventory.with_role("sink")} | set(sources)
    most = capacities(
        calibration,
        inventory,
        cores,
        sources,
        rate=calibration.rate,
        safety=1.0,
        output_rate=0.0,
    )
    takes = {name: amount for name, amount in most.items() if name not in taken}
    if not any(takes.values()):
        raise ExperimentError("load: no host without source and sink has CPU left for a join")
    name = max(takes, key=lambda name: takes[name])
    return name, takes[name]


def find_rate(
    load: float,
    start: float,
    measure: Callable[[float], Calibration],
    takes: Callable[[Calibration], tuple[str, float]],
) -> FoundRate:
    """The rate at which a region's join receives a multiple of the strongest host's capacity.

    The rate depends on the capacity, and the capacity on the rate: a few calibrations find both.
    Most of a join's CPU time at a low rate is for wake-ups, not tuples. So the load rises by less
    than the rate, and a line through two calibrations predicts it.

    Args:
        load: the multiple.
        start: rate of the first calibration, of each source, tuples/s.
        measure: calibrates at a rate.
        takes: the strongest host by a calibration, and its capacity, tuples/s.

    Returns:
        The rate by the last calibration: the first within `CLOSE` of the rate that it leads to, or
        the last of `MOST_CALIBRATIONS`.
    """
    calibrations: list[Calibration] = []
    loads: list[tuple[float, float]] = []
    rate = start
    while True:
        calibrations.append(measure(rate))
        host, most = takes(calibrations[-1])
        # A join receives the tuples of two sources.
        loads.append((rate, 2 * rate / most))
        before, rate = rate, max(1.0, round(_leads_to(load, loads) / STEP)) * STEP
        settled = abs(rate - before) <= CLOSE * before
        if settled or len(calibrations) == MOST_CALIBRATIONS:
            return FoundRate(load, rate, host, most, 2 * rate / most, calibrations, settled)


def _leads_to(load: float, seen: Sequence[tuple[float, float]]) -> float:
    """The rate of a load, by rates and their loads."""
    rate, reached = seen[-1]
    # The nearest on both sides: two that are close to each other would predict by noise.
    low = max((one for one in seen if one[1] < load), default=None)
    high = min((one for one in seen if one[1] >= load), default=None)
    if low and high:
        return float(np.interp(load, (low[1], high[1]), (low[0], high[0])))
    if len(seen) > 1:
        slope = (reached - seen[-2][1]) / (rate - seen[-2][0])
        if slope > 0:
            predicted = rate + (load - reached) / slope
            return min(max(predicted, rate / FURTHEST), rate * FURTHEST)
    return rate * load / reached


def found_line(result: FoundRate) -> str:
    """The result of a rate search, in a line."""
    tried = ", ".join(f"{one.rate:g}" for one in result.calibrations)
    under = "under load " if result.calibrations[-1].stress else ""
    unsure = "" if result.settled else "; the search has not settled"
    return (
        f"load {result.asked:g}: {result.rate:g} tuples/s of each source, whose join asks "
        f"{result.load:.2f} times the {result.takes:,.0f} tuples/s that {result.host} takes "
        f"({under}calibrated at {tried}{unsure})"
    )


# --- calibrations of an experiment ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Calibrating:
    """Measures an experiment's calibrations on an engine, and makes problems from them.

    Attributes:
        bed: what it runs on.
        experiment: what is run.
        workload: of the experiment.
        scratch: directory for temporary files and results.
        tell: progress callback.
    """

    bed: Bed
    experiment: Experiment
    workload: Workload
    scratch: Path
    tell: Callable[[str], None]

    @property
    def _inventory(self) -> Inventory:
        return self.bed.deployment.hosts.inventory

    @property
    def _peak(self) -> float:
        """How many times their rate sources send at most, by the script."""
        surges = (one.times for one in self.experiment.disturbances if one.what == "rate")
        return max((1.0, *(times or 1.0 for times in surges)))

    def _traffic(self, rate: float) -> Traffic:
        return costliest(self.workload, self.experiment.windows_ms, rate)

    def _at(self, rate: float, sent: float | None = None) -> tuple[Problem, Streams, int]:
        """A problem to calibrate with, its streams, and the length of its windows, ms.

        Args:
            rate: of each source, which determines the results per tuple.
            sent: rate to send at instead.
        """
        traffic = self._traffic(rate)
        if sent not in (None, rate):
            traffic = traffic.at(sent)
        # Only the order of capacities matters here; all results have to fit the sink.
        guess = {name: 1e9 * value for name, value in cores_of(self.bed).items()}
        file = self.scratch / "calibration-problem.yaml"
        problem = problem_of(problem_document(self._inventory, guess, self.workload, traffic), file)
        file.unlink()
        streams = self.workload.streams(problem, traffic, self.experiment.seed)
        return problem, streams, traffic.window_ms

    def warm(self, rate: float) -> None:
        """Run joins on every host, without a measurement."""
        from nova_harness.experiment.engine_run import warm_up

        problem, streams, _ = self._at(rate)
        seconds = self.experiment.capacity.warm_up_s
        warm_up(self.bed, warming_plan(problem), streams, seconds, self.tell)

    def measure(self, setting: Setting) -> Calibration:
        """Measure the costs of operators in a setting, at the highest rate of the script.

        Without the hosts' limits, joins keep up. With the experiment's ``load``, limits are in
        force: the cost of overloaded joins matters then. So they are under artificial load, which
        takes its share of the limit.

        Raises:
            NovaError: naming what failed.
        """
        inventory = self._inventory
        loaded = inventory.stress.hosts if setting.stress else ()
        limits = {name: inventory.host(name).cpu or 1.0 for name in loaded}
        calibration = self._measured(setting, limits, self._peak * setting.rate)
        if limits and calibration.left is None and not self._at(setting.rate)[0].queries:
            # Joins kept up: send more to find the CPU that they can get.
            most = max(limits.values()) / (2 * calibration.join_us * 1e-6)
            more = self._measured(setting, limits, round(HUNGER * most))
            calibration = replace(calibration, left=more.left)
        return calibration

    def _measured(self, setting: Setting, limits: Mapping[str, float], sent: float) -> Calibration:
        from nova_harness.experiment.engine_run import Timing, run_plan

        capacity = self.experiment.capacity
        problem, streams, window_ms = self._at(setting.rate, sent)
        plan = calibration_plan(problem, limits)
        outcome = run_plan(
            self.bed,
            plan,
            streams,
            Timing(capacity.warm_up_s, capacity.seconds, DRAIN_SECONDS),
            stress=setting.stress,
            limited=self.experiment.load is not None or setting.stress,
            name="nova calibration",
            scratch=self.scratch,
            tell=lambda what: self.tell(
                f"calibrating at {sent:g} tuples/s{' under load' * setting.stress}: {what}"
            ),
        )
        return costs(plan, outcome, streams, replace(setting, rate=sent), window_ms, limits)

    def run(
        self, known: Mapping[Setting, Calibration] = MappingProxyType({})
    ) -> tuple[dict[Setting, Calibration], FoundRate | None]:
        """Warm the engine up, and measure the costs of operators in each setting.

        Args:
            known: settings that need no calibration, of a resumed run.

        Returns:
            Calibrations by setting; with the experiment's ``load``, at the rate of the search, and
            the result of that search.

        Raises:
            NovaError: naming what failed.
        """
        experiment = self.experiment
        if self.bed.engine.stays_warm:
            # Slowly, as every host gets all tuples of a source.
            self.warm(min(WARMING_RATE, *experiment.rates))
        settings, calibrations, load = settings_of(experiment), dict(known), None
        if experiment.load is not None and not known:
            stress, cores = settings[0].stress, cores_of(self.bed)
            sources = source_hosts(self._at(experiment.rates[0])[0])
            load = find_rate(
                experiment.load,
                experiment.rates[0],
                lambda rate: self.measure(Setting(rate, stress)),
                lambda one: strongest(one, self._inventory, cores, sources),
            )
            settings = [Setting(load.rate, setting.stress) for setting in settings]
            calibrations = {settings[0]: load.calibrations[-1]}
        calibrations |= {one: self.measure(one) for one in settings if one not in calibrations}
        most = self._peak * max(setting.rate for setting in settings)
        if self.bed.engine.stays_warm and most > WARMING_RATE:
            # Java compiles and allocates for a new rate here, not within a cell.
            self.warm(most)
        return calibrations, load

    def capacities(self, setting: Setting, calibration: Calibration) -> dict[str, float]:
        """C_a of each host in a setting, tuples/s."""
        # What sources and the sink need is for the calibration's rate, too.
        rate = self._peak * setting.rate
        problem, streams, _ = self._at(setting.rate, rate)
        return capacities(
            calibration,
            self._inventory,
            cores_of(self.bed),
            source_hosts(problem),
            rate=rate,
            safety=self.experiment.capacity.safety,
            output_rate=streams.expected_rate,
        )

    def _sink_has_room(self, setting: Setting, capacity: Mapping[str, float]) -> bool:
        """Whether the sink's host takes more than what its results ask for."""
        results = self._at(setting.rate, self._peak * setting.rate)[1].expected_rate
        return capacity[self._inventory.with_role("sink")[0].name] > results

    def write_problems(
        self, by_setting: Mapping[Setting, Calibration], load: FoundRate | None = None
    ) -> dict[Setting, Problem]:
        """Make and write problems by setting, with their calibrations.

        Those of settings that only earlier cells of the run had stay.

        Args:
            by_setting: calibrations.
            load: result of the rate search, if any.

        Raises:
            NovaError: for an unsuitable inventory, or a file that cannot be written.
        """
        from nova_core.io.safe_files import write_text

        experiment, inventory, path = self.experiment, self._inventory, self.scratch
        cores = cores_of(self.bed)
        problems = {}
        rows = {Setting(one.rate, one.stress): one for one in read_calibrations(path).rates}
        first = next(iter(rows), Setting(experiment.rates[0])).rate
        for setting in settings_of(experiment):
            rate, one = setting.rate, by_setting[setting]
            capacity = self.capacities(setting, one)
            further = "" if rate == first else f"-r{rate:g}"
            further += "-stress" if setting.stress else ""
            document = problem_document(
                inventory,
                capacity,
                self.workload,
                self._traffic(rate),
                sink_hosts=experiment.sink_hosts and self._sink_has_room(setting, capacity),
            )
            problem = problem_of(document, path / f"problem{further}.yaml")
            problems[setting] = problem
            rows[setting] = CalibratedSetting(
                rate=rate,
                stress=setting.stress,
                costs=one,
                capacity=capacity,
                bottlenecks=bottlenecks(
                    one, inventory, cores, source_hosts(problem), self._peak * rate
                ),
            )
        calibrations = Calibrations(
            engine=experiment.engine,
            version=self.bed.deployment.version,
            safety=experiment.capacity.safety,
            cores=cores,
            load=load,
            rates=list(rows.values()),
        )
        write_json(path / CALIBRATIONS, calibrations)
        positions = next(iter(problems.values())).nodes.position.tolist()
        hosts = [
            HostRow(name=h.name, role=h.role, cpu=cores[h.name], memory=h.memory, position=p)
            for h, p in zip(inventory.hosts, positions, strict=True)
        ]
        write_json(path / "hosts.json", hosts)
        write_text(path / "rtt.csv", rtt_csv(inventory))
        return problems
