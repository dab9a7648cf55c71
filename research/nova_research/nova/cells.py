"""Strategies on simulated problems, for figures 6, 7 and 10 of the paper.

Every cell, a strategy on a problem, runs in its own process within limits of time and memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from nova_core.errors import NovaError, ProblemError
from nova_core.kernel_cache import compile_first
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.base import Strategy, create, load, names
from nova_harness.measurement import Case
from nova_research.figures.base import Run
from nova_research.figures.inputs import DATA
from nova_research.figures.kept_runs import KeptRuns
from nova_research.nova.isolated import BEGIN, END, Limited, isolated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTANCES = "instances"
# Finished cells, in the directory of the numbers.
CELLS = "cells.jsonl"
# A strategy that took less time, s, or compiled kernels, runs again, so that loading and compiling
# are not timed ...
SECOND_RUN_BELOW = 5.0
# ... until the runs took this long, s, as processor time may come in ticks.
MEASURED_FOR = 0.2
# Error of cells that a smaller size has ruled out.
LARGER = "not tried"
# The paper's strategies stand out.
COLOURS = {
    "nova": "#D55E00",
    "nova(p)": "#E69F00",
    "nova-paper": "#7F3C8D",
    "nova-paper(p)": "#B48EBE",
    "nova, not refined": "#E69F00",
    "nova, refined": "#A64D00",
    "sink": "#000000",
    "source": "#0072B2",
    "top-c": "#009E73",
    "tree": "#CC79A7",
    "cl-sf": "#56B4E9",
    "cl-tree-sf": "#8C6D31",
}
MARKS = "os^v<>DPX*dph"


# Strategies of the paper, for --quick; the others take most of the time.
OF_THE_PAPER = ("nova", "nova-paper", "sink", "source", "top-c", "tree", "cl-sf", "cl-tree-sf")


class CellParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of every figure made of cells: strategies and limits."""

    strategies: Annotated[
        tuple[str, ...],
        Meta(title="strategy", description="Only this strategy, else all but those left out"),
    ] = ()
    leave_out: Annotated[tuple[str, ...], Meta(description="Not this strategy")] = ()
    limit: Annotated[
        float, Meta(gt=0, description="Seconds of processor time that placing may take")
    ] = 600.0
    memory: Annotated[float, Meta(gt=0, description="GB that placing may take")] = 8.0

    @property
    def limits(self) -> Limits:
        """Limits of each cell."""
        return Limits(self.limit, self.memory)


class Limits(msgspec.Struct, frozen=True):
    """Limits of a cell.

    Attributes:
        seconds: of processor time for placing, without making the problem and evaluating the plan.
        memory: GB.
    """

    seconds: float = 600.0
    memory: float = 8.0


@dataclass(frozen=True)
class Placing:
    """A strategy that places a problem.

    Attributes:
        case: the problem.
        strategy: the strategy's name.
        parameters: those of its parameters that are not the default.
        timed: whether the placement is timed.
    """

    case: Case
    strategy: str
    parameters: dict[str, Any] = field(default_factory=dict)
    timed: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Its identity: problem, strategy and parameters."""
        parameters = msgspec.json.encode(self.parameters, order="sorted").decode()
        return msgspec.json.encode(asdict(self.case)).decode(), self.strategy, parameters


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy on a problem, and its result.

    Attributes:
        problem: the problem's description.
        strategy: the strategy's name.
        parameters: its parameters as JSON, without default values.
        limits: within which it was tried.
        nodes: of the problem; 0 where no problem was created.
        variation: coefficient of variation of the capacities of all nodes but sinks, where they
            are limited.
        seconds: of processor time that placing took, of all threads together; of further runs
            where the first was quick or compiled kernels. None where it was not timed.
        wall: seconds by the clock.
        overloaded: overloaded nodes in percent of those that receive tuples, as published.
        p90: 90th percentile of the sources' latency, ms.
        direct_p90: the same of sending straight to the sink.
        error: why there are no figures.
        limited: whether a limit is the cause.
    """

    problem: str
    strategy: str
    parameters: str
    limits: Limits
    nodes: int = 0
    variation: float | None = None
    seconds: float | None = None
    wall: float | None = None
    overloaded: float | None = None
    p90: float | None = None
    direct_p90: float | None = None
    error: str = ""
    limited: bool = False

    def is_reusable(self, limits: Limits, timed: bool) -> bool:
        """Whether another try within these limits would have the same result."""
        if timed and self.seconds is None and not self.error:
            return False
        return not self.limited or (
            self.limits.seconds >= limits.seconds and self.limits.memory >= limits.memory
        )


def place(placing: Placing, tell: Callable[[str], None]) -> dict[str, float | None]:
    """The result's fields of a cell; runs in `isolated`."""
    from numba.core.event import install_recorder

    from nova_core.evaluation import evaluate

    compile_first()
    problem = placing.case.problem()
    strategy = create(placing.strategy, **placing.parameters)
    tell(BEGIN)
    with install_recorder("numba:compile") as compiled:
        plan, seconds, wall = _timed(strategy, problem, 0.0)
    tell(END)
    if placing.timed and (seconds < SECOND_RUN_BELOW or compiled.buffer):
        _, seconds, wall = _timed(strategy, problem, MEASURED_FOR)
    evaluation = evaluate(plan)
    capacity = np.delete(problem.nodes.capacity, np.unique(problem.joins.sink))
    finite = np.isfinite(capacity).all()
    return {
        "nodes": len(problem.nodes),
        "variation": float(capacity.std() / capacity.mean()) if finite else None,
        "seconds": seconds if placing.timed else None,
        "wall": wall if placing.timed else None,
        "overloaded": evaluation.arriving.overloaded_percent,
        "p90": evaluation.estimated.p90,
        "direct_p90": evaluation.estimated.direct_p90,
    }


def _timed(strategy: Strategy, problem: Problem, least: float) -> tuple[Plan, float, float]:
    """A plan, seconds of processor time it took, and seconds by the clock.

    The times are means of as many runs as take ``least`` seconds together.
    """
    begin, begin_wall = time.process_time(), time.perf_counter()
    runs, wall = 0, 0.0
    while runs == 0 or wall < least:
        plan = strategy.place(problem)
        runs, wall = runs + 1, time.perf_counter() - begin_wall
    return plan, (time.process_time() - begin) / runs, wall / runs


def run_cells(
    placings: Iterable[Placing],
    limits: Limits,
    run: Run,
    growing: bool = False,
) -> list[Cell]:
    """Every cell, in the order of ``placings``; finished ones do not run again.

    Args:
        placings: problems and strategies.
        limits: of each cell.
        run: keeps finished cells, and reports progress.
        growing: whether problems grow; then a strategy that hit a limit is not tried on larger
            problems.
    """
    in_order = list(placings)
    runs = KeptRuns(run.kept and run.kept / CELLS, Cell, b'{"cells":2}')
    finished = {(one.problem, one.strategy, one.parameters): one for one in runs}
    cells: list[Cell] = []
    ended: dict[tuple[str, str], Cell] = {}
    for number, placing in enumerate(in_order):
        run.advance(number, len(in_order))
        key = placing.key
        if key[1:] in ended:
            why = f"{LARGER}: {ended[key[1:]].error} on fewer nodes"
            cells.append(_cell(key, limits, error=why, limited=True))
            continue
        if key not in finished or not finished[key].is_reusable(limits, placing.timed):
            finished[key] = _cell_of(placing, limits)
            runs.add(finished[key])
        cells.append(finished[key])
        if growing and finished[key].limited:
            ended[key[1:]] = finished[key]
    run.advance(len(in_order), len(in_order))
    return cells


def _cell_of(placing: Placing, limits: Limits) -> Cell:
    try:
        fields = isolated(place, placing, limits.seconds, limits.memory)
    except Limited as error:
        return _cell(placing.key, limits, error=str(error), limited=True)
    except NovaError as error:
        return _cell(placing.key, limits, error=str(error))
    return _cell(placing.key, limits, **fields)


def _cell(key: tuple[str, str, str], limits: Limits, **fields: object) -> Cell:
    problem, strategy, parameters = key
    return msgspec.convert(
        {
            "problem": problem,
            "strategy": strategy,
            "parameters": parameters,
            "limits": msgspec.to_builtins(limits),
            **fields,
        },
        Cell,
    )


def shown(strategies: Sequence[str], leave_out: Sequence[str]) -> list[str]:
    """Strategies of a figure: those named, or all that are installed and not left out.

    Raises:
        ProblemError: for a name that is not installed.
    """
    installed = names()
    for name in strategies:
        if name not in installed:
            raise ProblemError(f"strategy: unknown {name!r}; installed are {', '.join(installed)}")
    return list(dict.fromkeys(strategies)) or [n for n in installed if n not in leave_out]


def seeded(strategy: str, count: int) -> list[dict[str, Any]]:
    """Parameters of ``count`` runs with different seeds; of one run for a strategy without a seed.

    The first run has the default parameters.
    """
    if "seed" not in {one.name for one in fields(load(strategy).Parameters)}:
        return [{}]
    return [{}, *({"seed": seed} for seed in range(1, count))]


def instance_directory(data: Path | None, instance: str, nodes: int | None) -> Path | None:
    """Where an instance is; None where it is to be generated instead.

    Args:
        data: the requested directory; the default one may be missing.
        instance: its name.
        nodes: of a generated topology that is requested instead.

    Raises:
        NovaError: when the requested directory does not have it, or nodes are requested as well.
    """
    if data is None or (nodes and data == DATA):
        return None
    if nodes:
        raise NovaError("--data and --nodes exclude each other")
    directory = data / INSTANCES / instance
    if (directory / "nodes.csv").is_file():
        return directory
    if data != DATA:
        raise NovaError(f"{directory}: no such instance; expected nodes.csv and joins.csv there")
    return None


def reasons(rows: Iterable[Any]) -> str:
    """Errors of rows without figures, once per strategy."""
    return "\n".join(sorted({f"{row.strategy}: {row.error}" for row in rows if row.error}))


def lines(axes: Axes, points: Iterable[tuple[str, float | None, float | None]]) -> None:
    """Draw a line per strategy through its points without None."""
    of_strategy: dict[str, list[tuple[float, float]]] = {}
    for strategy, x, y in points:
        if x is not None and y is not None:
            of_strategy.setdefault(strategy, []).append((x, y))
    for number, (strategy, coordinates) in enumerate(of_strategy.items()):
        ours = strategy in COLOURS
        axes.plot(
            *zip(*sorted(coordinates), strict=True),
            color=COLOURS.get(strategy, "#999999"),
            marker=MARKS[number % len(MARKS)],
            markersize=4,
            linewidth=1.6 if ours else 0.8,
            label=strategy,
        )
