"""How smoothly a running job is handed over by choice, on the hosts of an inventory.

Joins of pairs run on some hosts, and are handed over to others and back, again and again, as
`nova control run` does it. Nothing disturbs the hosts unless load is requested.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core import console
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    from nova_core.model.plan import Plan
    from nova_harness.control.controller import Controller
    from nova_harness.control.decision_log import Entry
    from nova_harness.control.outcome import Outcome
    from nova_harness.experiment.engine_run import Bed
    from nova_testbed.inventory import Inventory

# Without CPU limits, before anything is measured: Java compiles code that has run often.
WARM_S = 20.0
# After a boundary: how long results may be late because of it, and when the new job is steady.
AFTER_S, STEADY_S = 2.0, 5.0
# With enough hosts, each takes at most so much of a join's input: every join is cut in two.
CUT = 0.8


@dataclass(frozen=True)
class Case:
    """A series of hand-overs.

    Attributes:
        rate: of each source, tuples/s.
        regions: with two sources and a join each.
        handovers: by choice, one after the other.
        calm_s: undisturbed time before each, and after the last.
        window_ms: length of windows.
        load: a busy loop runs on each source's host.
        seed: of the values.
    """

    rate: float
    regions: int
    handovers: int
    calm_s: float
    window_ms: int
    load: bool
    seed: int


@dataclass(frozen=True)
class Measurement:
    """A series of hand-overs; latencies are from the later emission to the arrival.

    Figures of each hand-over are in their order; percentiles are of all hand-overs together.

    Attributes:
        rate: of each source, tuples/s.
        handovers: done.
        results: delivered and valid.
        lost: results that the reference join has and the jobs have not delivered.
        doubled: results delivered more than once.
        wrong: results that the reference join does not have.
        decided_s: from the decision to the boundary.
        told_s: until all sources of the old job had agreed to the boundary.
        silence_ms: the longest time without a result of a group of joins within 2 s around the
            boundary; group by group.
        steady_silence_ms: the same around moments between hand-overs.
        after_p99_ms: 99th percentile of the 2 s after boundaries.
        steady_p99_ms: of the new jobs from 5 s after the boundary on.
        deploying_p9999_ms: 99.99th percentile of the old jobs while the new ones were deployed.
        steady_p9999_ms: of the same jobs before that.
    """

    rate: float
    handovers: int
    results: int
    lost: int
    doubled: int
    wrong: int
    decided_s: list[float]
    told_s: list[float]
    silence_ms: list[float]
    steady_silence_ms: list[float]
    after_p99_ms: float
    steady_p99_ms: float
    deploying_p9999_ms: float
    steady_p9999_ms: float


def measure(
    cases: Sequence[Case], place: str, engine: str, tell: Callable[[str], None]
) -> list[Measurement]:
    """Run every case on the engine, on the hosts of an inventory.

    Args:
        cases: one job after the other.
        place: the inventory, by file or name.
        engine: by name.
        tell: progress callback, gets each step as text.

    Raises:
        NovaError: naming what failed; for an inventory with too few hosts.
    """
    from nova_harness.engines.base import DIRECT, runner
    from nova_harness.experiment.bed import engine_bed, hosts_up, prepare_engine
    from nova_harness.experiment.document import Experiment
    from nova_testbed.inventory import read_inventory

    if not runner(engine).controlled:
        raise NovaError(f"bench: jobs of {engine} cannot be handed over")
    known = read_inventory(place)
    experiment = Experiment(name="handovers", strategies=["nova"], engine=engine, transport=DIRECT)
    with tempfile.TemporaryDirectory(prefix="nova-handovers-") as scratch:
        plans = [_plans(case, known, Path(scratch)) for case in cases]
        chosen = prepare_engine(experiment, tell)
        with (
            hosts_up(known, tell) as inventory,
            engine_bed(experiment, inventory, chosen, tell, keep=False) as bed,
        ):
            measurements = []
            for number, (case, both) in enumerate(zip(cases, plans, strict=True)):
                tell(f"{case.rate:g} tuples/s per source: warming up")
                bed.limits.lift()
                run = _Run(case, both, bed, Path(scratch) / str(number), tell)
                measurements.append(run.measurement())
    return measurements


def _plans(case: Case, inventory: Inventory, scratch: Path) -> tuple[Plan, Plan]:
    """Two plans of the same joins on different hosts."""
    from nova_core.strategies import place
    from nova_harness.experiment.problem import problem_document, problem_of
    from nova_workloads.debs import DebsWorkload

    workload = DebsWorkload(regions=case.regions)
    traffic = workload.traffic(case.window_ms, case.rate)
    # Hosts of sources are busy with these, and the sink's with the results.
    sources = inventory.with_role("source")[: 2 * case.regions]
    taken = {host.name for host in (*sources, *inventory.with_role("sink"))}
    free = [host.name for host in inventory.hosts if host.name not in taken]
    if len(free) < 2 * case.regions:
        raise NovaError(
            f"bench: {inventory.name}: has {len(free)} hosts without sources and sink; two plans "
            f"of {case.regions} joins need {2 * case.regions}"
        )
    each = 2 * case.rate * (CUT if len(free) >= 4 * case.regions else 1)
    room = dict.fromkeys(free, each) | dict.fromkeys(taken, case.rate * case.regions)
    document = problem_document(inventory, room, workload, traffic)
    for node in document["nodes"]:
        node["worker"] = node["id"] in free
    problem = problem_of(document, scratch / "problem.yaml")
    first = place(problem, "nova")
    left = problem.nodes.capacity.copy()
    left[np.unique(first.instances.node)] = 0
    other = replace(problem, nodes=replace(problem.nodes, capacity=left))
    return first, place(other, "nova")


class _Run:
    """A case on running hosts."""

    def __init__(
        self,
        case: Case,
        plans: tuple[Plan, Plan],
        bed: Bed,
        state: Path,
        tell: Callable[[str], None],
    ) -> None:
        self.case, self.plans, self.bed, self.tell = case, plans, bed, tell
        self.state = state
        self.entries: list[Entry] = []

    def measurement(self) -> Measurement:
        """Run it, and compare what was delivered with the reference join."""
        from nova_harness.control.controller import WARM_UP_S, Controller
        from nova_harness.control.deciding import Tuning
        from nova_harness.control.job_groups import read_ledgers
        from nova_harness.control.outcome import outcome
        from nova_harness.engines.base import ControlledEngine
        from nova_workloads.debs import DebsWorkload

        case, problem = self.case, self.plans[0].problem
        workload = DebsWorkload(regions=case.regions)
        traffic = workload.traffic(case.window_ms, case.rate)
        flow = workload.streams(problem, traffic, case.seed).flow(0, None)
        assert isinstance(self.bed.engine, ControlledEngine)
        controller = Controller(self.bed.engine, self.state, Tuning(), self.entries.append)
        with closing(controller):
            controller.begin(problem, self.plans[0], flow, warm_s=WARM_UP_S)
            end_ms = self._hand_over(controller)
            ledgers = read_ledgers(self.state)
            observed = outcome(ledgers, controller.hosts, problem, controller.workload)
        return figures(case, self.entries, observed, end_ms)

    def _hand_over(self, controller: Controller) -> int:
        """Hand over to and fro; returns when the last job ended, ms since the epoch."""
        from nova_harness.control.disturbances import JOB, LOAD

        case, problem = self.case, self.plans[0].problem
        hosts = problem.nodes.ids[np.unique(problem.sources.node)].tolist() if case.load else []
        time.sleep(WARM_S)
        self.bed.limits.impose()
        with ExitStack() as loads:
            for name in hosts:
                loads.callback(controller.hosts[name].start(LOAD, name=JOB).end)
            for number in range(case.handovers):
                time.sleep(STEADY_S + case.calm_s)
                self.tell(f"hand-over {number + 1} of {case.handovers}")
                controller.hand_over(self.plans[(number + 1) % 2], "benchmark")
                last = self.entries[-1]
                if last.kind != "handed-over":
                    raise NovaError(f"bench: {last.text}")
            time.sleep(STEADY_S + case.calm_s)
            return controller.end()


def figures(case: Case, entries: Sequence[Entry], observed: Outcome, end_ms: int) -> Measurement:
    """The figures of a finished series.

    Args:
        case: what was run.
        entries: the controller's log.
        observed: the results.
        end_ms: when the last job ended, ms since the epoch.

    Raises:
        NovaError: when a job has delivered nothing for seconds.
    """
    from nova_harness.control.outcome import NEAR_US, arrived_us, longest_gap_ms

    done = [one for one in entries if one.kind == "handed-over"]
    boundary = np.array([one.figures["boundary_ms"] for one in done]) * 1000
    begun = np.array([round(1e6 * (one.at - one.figures["seconds"])) for one in done])
    parts = [part for group in observed.valid for part in group]
    later = [np.maximum(part["left_emit_us"], part["right_emit_us"]) for part in parts]
    emit = np.concatenate(later)
    late = np.concatenate([part["arrive_us"] for part in parts]) - emit
    latencies = _Latencies(emit, late)
    calm = round(1e6 * case.calm_s)
    steady = boundary + round(1e6 * STEADY_S)
    # Between two hand-overs, as many such periods as fit one after the other.
    middles = np.arange(NEAR_US, calm - NEAR_US + 1, 2 * NEAR_US)
    between = ([*begun.tolist(), end_ms * 1000] - middles[:, None]).ravel().tolist()
    compared, groups = observed.compared, [arrived_us(group) for group in observed.valid]
    return Measurement(
        rate=case.rate,
        handovers=len(done),
        results=compared.delivered,
        lost=compared.lost,
        doubled=compared.duplicated,
        wrong=compared.wrong,
        decided_s=((boundary - begun) / 1e6).tolist(),
        told_s=[one.figures["told_s"] for one in done],
        silence_ms=observed.silence_ms,
        steady_silence_ms=[longest_gap_ms(arrive, at) for arrive in groups for at in between],
        after_p99_ms=latencies.percentile(99, boundary, boundary + round(1e6 * AFTER_S)),
        steady_p99_ms=latencies.percentile(99, steady, steady + calm),
        deploying_p9999_ms=latencies.percentile(99.99, begun, boundary),
        steady_p9999_ms=latencies.percentile(99.99, begun - calm, begun),
    )


@dataclass(frozen=True)
class _Latencies:
    """Of results: (k,) when the later tuple was emitted, us since the epoch, and latency, us."""

    emit: NDArray[np.int64]
    late: NDArray[np.int64]

    def percentile(
        self, percent: float, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> float:
        """A percentile, ms, of all that was emitted in any of some periods."""
        inside = np.zeros(len(self.emit), bool)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            inside |= (self.emit >= begin) & (self.emit < end)
        if not inside.any():
            raise NovaError("bench: no results for seconds: the hosts need a lower --rate")
        return float(np.percentile(self.late[inside], percent, method="inverted_cdf")) / 1000


def summary_table(measurements: Sequence[Measurement]) -> Table:
    """For people."""
    return console.table(
        "Hand-overs by choice",
        [">tuples/s per source", ">hand-overs", ">results", ">lost, doubled, wrong",
         ">decision to boundary, s", ">told, s",
         ">silence (steady: median, longest), ms",
         ">99P of the 2 s after (steady), ms", ">99.99P while deploying (before), ms"],
        [
            (
                f"{one.rate:,g}",
                str(one.handovers),
                f"{one.results:,}",
                f"{one.lost}, {one.doubled}, {one.wrong}",
                ", ".join(f"{value:.1f}" for value in one.decided_s),
                ", ".join(f"{value:.2f}" for value in one.told_s),
                ", ".join(f"{value:.0f}" for value in one.silence_ms)
                + f" ({np.median(one.steady_silence_ms):.0f}, {max(one.steady_silence_ms):.0f})",
                f"{one.after_p99_ms:.0f} ({one.steady_p99_ms:.0f})",
                f"{one.deploying_p9999_ms:.0f} ({one.steady_p9999_ms:.0f})",
            )
            for one in measurements
        ],
    )  # fmt: skip
