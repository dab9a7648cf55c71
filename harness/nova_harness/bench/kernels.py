"""Time and memory of the optimizer's steps, and how they grow with the topology."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nova_core import console
from nova_core.errors import NovaError
from nova_core.evaluation.metrics import evaluate
from nova_core.model.objectives import leg_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.assignment import host_nodes
from nova_core.placement.geometric_median import geometric_median, pair_anchors
from nova_core.placement.kernels import capacity_tree
from nova_core.strategies import create
from nova_harness.bench.base import duration
from nova_harness.bench.memory import memory_in_use, peak_memory, reset_peak
from nova_harness.measurement import Case as Case
from nova_workloads.topology import generate

if TYPE_CHECKING:
    from rich.table import Table

PLOT_FORMATS = ("png", "svg", "pdf")
PROBLEM_FILES = ("nodes.csv", "joins.csv")
MEDIAN = "geometric median"
TREE = "capacity tree"
PLACE = "optimize"
REFINE = "optimize, refined"
VERIFY = "verify"
EVALUATE = "evaluate"
STEPS = (MEDIAN, TREE, PLACE, REFINE, VERIFY, EVALUATE)
SIGMA = 0.4  # of the paper's experiments
SHORTEST_SERIES = 0.1  # seconds; a step of microseconds is repeated until it has taken this long

T = TypeVar("T")


@dataclass(frozen=True)
class Measurement:
    """One step on one problem.

    Attributes:
        problem: the case's label.
        synthetic: whether it was generated; only such sizes scale alike.
        nodes: size of the topology.
        joins: pairs of sources to join.
        step: name of the step, one of `STEPS`.
        median: seconds, median of the runs.
        best: seconds of the fastest run.
        cpu: seconds of processor time, median; less than ``median`` on a busy machine.
        runs: how often it ran.
        peak_bytes: greatest memory in use beyond what the inputs take, or None where the system
            reports none. Of ``verify`` and ``evaluate`` it includes the plan.
        objective: sum over joins of d(left, node) + d(right, node) + d(node, sink), ms; of a cut
            join the mean over its replicas. None for a step that yields no plan, as the following.
        p90: 90th percentile of the sources' latency, ms.
        overloaded: nodes above their capacity.
        joins_cut: joins that run in more than one piece.
    """

    problem: str
    synthetic: bool
    nodes: int
    joins: int
    step: str
    median: float
    best: float
    cpu: float
    runs: int
    peak_bytes: int | None
    objective: float | None = None
    p90: float | None = None
    overloaded: int | None = None
    joins_cut: int | None = None


class _Series:
    """Runs steps on one problem and keeps their measurements."""

    def __init__(self, case: Case, problem: Problem) -> None:
        self._case = case
        self._problem = problem
        self._baseline = memory_in_use()
        self.measurements: list[Measurement] = []

    def run(self, step: str, work: Callable[[], T]) -> T:
        """Repeat a step; return the last result."""
        can_tell_peak = reset_peak()
        times: list[float] = []
        cpu_times: list[float] = []
        while True:
            cpu, start = time.process_time(), time.perf_counter()
            result = work()
            times.append(time.perf_counter() - start)
            cpu_times.append(time.process_time() - cpu)
            if len(times) >= self._case.repeat and sum(times) >= SHORTEST_SERIES:
                break
            del result  # two results at once would look like one's memory
        peak = peak_memory() - self._baseline if can_tell_peak else None
        self.measurements.append(
            Measurement(
                problem=self._case.label,
                synthetic=self._case.path is None,
                nodes=len(self._problem.nodes),
                joins=len(self._problem.matrix),
                step=step,
                median=statistics.median(times),
                best=min(times),
                cpu=statistics.median(cpu_times),
                runs=len(times),
                peak_bytes=peak,
            )
        )
        return result

    def add_quality(self, plan: Plan) -> None:
        """Add the quality of the last step's plan."""
        evaluation = evaluate(plan)
        self.measurements[-1] = replace(
            self.measurements[-1],
            objective=evaluation.estimated.objectives["latency"],
            p90=evaluation.estimated.p90,
            overloaded=evaluation.load.overloaded_count,
            joins_cut=evaluation.joins_cut,
        )


def measure(case: Case) -> list[Measurement]:
    """Measure every step, warm and on one core.

    Raises:
        NovaError: when the problem cannot be read or nothing fits.
    """
    _use_one_core()
    _warm_up()
    problem = case.problem()
    series = _Series(case, problem)
    weights = leg_weights(problem, "latency")
    hosts = np.flatnonzero(host_nodes(problem, 0.0))
    nodes = problem.nodes
    position, free = np.ascontiguousarray(nodes.position), nodes.capacity

    series.run(MEDIAN, lambda: geometric_median(pair_anchors(problem), weights))
    series.run(TREE, lambda: capacity_tree.build(position, free, hosts))

    # A problem and a plan keep columns they have worked out; copies start from the bare inputs.
    nova, refined = (create("nova", sigma=SIGMA, refine=refine) for refine in (False, True))
    series.add_quality(series.run(PLACE, lambda: nova.place(replace(problem))))
    plan = series.run(REFINE, lambda: refined.place(replace(problem)))
    series.add_quality(plan)

    def bare() -> Plan:
        return replace(plan, problem=replace(problem))

    series.run(VERIFY, lambda: verify(bare()))
    series.run(EVALUATE, lambda: evaluate(bare()))
    return series.measurements


def _use_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _warm_up() -> None:
    """Load and compile whatever the steps need, on a problem so tight that it takes cuts."""
    problem = generate(200, heterogeneity=1, rate_max=130)
    for refine in (False, True):
        plan = create("nova", sigma=SIGMA, refine=refine, on_full="spread").place(problem)
        verify(plan)
        evaluate(plan)


def instance_cases(path: Path, repeat: int) -> list[Case]:
    """Cases of an instance directory, or of all directly below it.

    Each has one with the least and one with the most heterogeneous capacities.

    Raises:
        NovaError: when there is none.
    """
    directories = [path, *sorted(path.iterdir())] if path.is_dir() else []
    instances = [d for d in directories if all((d / name).is_file() for name in PROBLEM_FILES)]
    if not instances:
        raise NovaError(f"{path}: no directory with {' and '.join(PROBLEM_FILES)}")
    cases = []
    for directory in instances:
        with (directory / PROBLEM_FILES[0]).open(encoding="utf-8") as file:
            header = file.readline().strip().split(",")
        columns: list[str | None] = [name for name in header if name.startswith("capacity")]
        columns = columns or [None]
        least_and_most = dict.fromkeys((columns[0], columns[-1]))
        cases += [Case(path=str(directory), capacity=c, repeat=repeat) for c in least_and_most]
    return cases


def exponents(measurements: Sequence[Measurement]) -> dict[str, float]:
    """Per step the power of the number of nodes by which time grows; 1 is linear.

    The slope of the least-squares line through log time over log nodes of the synthetic problems;
    steps measured at fewer than two sizes are left out.
    """
    slopes = {}
    for step in STEPS:
        nodes, seconds = _curve(measurements, step)
        if len(set(nodes)) > 1:
            slopes[step] = float(np.polyfit(np.log(nodes), np.log(seconds), 1)[0])
    return slopes


def _curve(measurements: Sequence[Measurement], step: str) -> tuple[list[int], list[float]]:
    rows = sorted((m.nodes, m.median) for m in measurements if m.synthetic and m.step == step)
    return [nodes for nodes, _ in rows], [seconds for _, seconds in rows]


def summary_table(measurements: Sequence[Measurement]) -> Table:
    """Median times of every problem and step, with memory, objective and exponents."""
    growth = exponents(measurements)
    table = console.table(
        "Kernels, warm, one core, median time",
        ["problem", ">nodes", ">joins", "step", ">time", ">peak MB", ">objective, ms", ">90P, ms",
         ">cut", ">overloaded"],
        caption="Time grows with the number of nodes to the power of "
        + ", ".join(f"{power:.2f} ({step})" for step, power in growth.items())
        if growth
        else None,
    )  # fmt: skip
    for column in table.columns:
        column.no_wrap = True
    previous = None
    for m in measurements:
        repeated = m.problem == previous
        if previous is not None and not repeated:
            table.add_section()
        previous = m.problem
        table.add_row(
            "" if repeated else m.problem,
            "" if repeated else f"{m.nodes:,}",
            "" if repeated else f"{m.joins:,}",
            m.step,
            duration(m.median),
            "-" if m.peak_bytes is None else f"{m.peak_bytes / 1e6:,.1f}",
            "" if m.objective is None else console.number(m.objective),
            "" if m.p90 is None else console.number(m.p90),
            "" if m.joins_cut is None else f"{m.joins_cut:,}",
            "" if m.overloaded is None else f"{m.overloaded:,}",
        )
    return table


def plot_format(path: Path) -> str:
    """The image format by a file name's extension.

    Raises:
        NovaError: for any other than PNG, SVG and PDF.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in PLOT_FORMATS:
        known = ", ".join(f".{name}" for name in PLOT_FORMATS)
        raise NovaError(f"{path}: unknown image format {path.suffix!r}; expected one of {known}")
    return suffix


def write_plot(measurements: Sequence[Measurement], path: Path) -> None:
    """Draw median time over number of nodes, both logarithmic, with a linear slope to compare.

    Synthetic problems make the lines, instances single marks.

    Raises:
        NovaError: for an unknown format, or when the file cannot be written.
    """
    from matplotlib.figure import Figure

    from nova_core.io.safe_files import atomic_write

    image_format = plot_format(path)
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for index, step in enumerate(STEPS):
        colour = f"C{index}"
        nodes, seconds = _curve(measurements, step)
        if nodes:
            axes.plot(nodes, seconds, "o-", color=colour, label=step)
        single = [(m.nodes, m.median) for m in measurements if not m.synthetic and m.step == step]
        if single:
            label = None if nodes else step
            axes.plot(*zip(*single, strict=True), "x", color=colour, label=label)
    nodes, seconds = _curve(measurements, REFINE)
    if len(nodes) > 1:
        linear = [seconds[-1] * count / nodes[-1] for count in nodes]
        axes.plot(nodes, linear, ":", color="grey", label="linear")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="nodes",
        ylabel="time, s",
        title="Optimizer kernels: warm, one core, median",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    with atomic_write(path) as file:
        figure.savefig(file, format=image_format, dpi=150)
