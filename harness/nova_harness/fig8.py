"""Figure 8 of the paper: what estimated latencies are worth when measured ones are paid.

Every strategy places on coordinates that were estimated from some measurements; its plan is judged
by those coordinates and by the whole matrix. Nova is shown with unlimited capacities and, as
``nova(p)``, with the most heterogeneous ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from nova_core.costspace.cost_space import CostSpace
from nova_core.errors import NovaError
from nova_core.evaluation import evaluate
from nova_core.model.problem import Floats, Problem
from nova_core.strategies.base import create, names
from nova_harness.figure_inputs import (
    SpaceParameters,
    measured_matrix,
    placed_in,
    space_for,
    synthetic_matrix,
    workload,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Fig8(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment, see ``harness/experiments/fig8.yaml``."""

    experiment: int
    latencies: str
    synthetic_nodes: int
    neighbours: int
    space: SpaceParameters
    workloads: int
    heterogeneity: float
    spaces: list[SpaceParameters]
    objectives: list[str]
    strategies: list[str] = []
    leave_out: list[str] = []

    def shown(self) -> list[str]:
        """Strategies besides Nova: those named, or all that are installed and not left out."""
        return [n for n in self.strategies or names() if n != "nova" and n not in self.leave_out]


@dataclass(frozen=True)
class Row:
    """Latencies of a strategy, ms, means over the workloads.

    Attributes:
        strategy: its name.
        estimated_mean: mean over sources by coordinates.
        measured_mean: the same by the measured matrix.
        estimated_p90: 90th percentile over sources by coordinates.
        measured_p90: the same by the measured matrix.
        error: why there are no figures.
    """

    strategy: str
    estimated_mean: float = np.nan
    measured_mean: float = np.nan
    estimated_p90: float = np.nan
    measured_p90: float = np.nan
    error: str = ""


@dataclass(frozen=True)
class SpaceRow:
    """What a cost space is worth to nova(p), means over the workloads.

    Attributes:
        space: its name.
        objective: what nova minimized.
        mae: mean error of its estimates of all pairs, ms.
        measured_mean: mean latency over sources, measured, ms.
        measured_p90: 90th percentile, measured, ms.
        measured_usage: network usage, measured, tuples/s * ms.
    """

    space: str
    objective: str
    mae: float
    measured_mean: float
    measured_p90: float
    measured_usage: float


@dataclass(frozen=True)
class Result:
    """The figure's numbers.

    Attributes:
        latencies: where they come from.
        nodes: how many.
        strategies: the figure.
        spaces: nova(p) in several cost spaces.
    """

    latencies: str
    nodes: int
    strategies: list[Row]
    spaces: list[SpaceRow]


def run(
    asked: Fig8, data: Path | None, advance: Callable[[int, int], None] = lambda *_: None
) -> Result:
    """Run the experiment.

    Args:
        asked: its parameters.
        data: directory of the measured latencies; None takes a synthetic internet.
        advance: called with steps done and steps in all.

    Raises:
        NovaError: when the latencies are not there.
    """
    if data is None:
        ids, latency = synthetic_matrix(asked.synthetic_nodes)
        source = f"synthetic internet of {len(ids)} hosts"
    else:
        ids, latency = measured_matrix(data, asked.latencies)
        source = asked.latencies
    problems = [
        workload(ids, latency, asked.heterogeneity, seed) for seed in range(asked.workloads)
    ]
    steps = 1 + len(asked.spaces)
    space = space_for(ids, latency, asked.space, asked.neighbours)
    strategies = _strategies(problems, space, asked.shown())
    spaces = []
    for done, each in enumerate(asked.spaces, start=1):
        advance(done, steps)
        spaces += _space_rows(problems, latency, each, asked)
    advance(steps, steps)
    return Result(source, len(ids), strategies, spaces)


def _strategies(problems: list[Problem], space: CostSpace, others: list[str]) -> list[Row]:
    located = [placed_in(problem, space, "honoured") for problem in problems]
    unlimited = np.full(len(space), np.inf)
    runs = [("nova", "nova", [p.with_capacity(unlimited) for p in located])]
    runs.append(("nova(p)", "nova", located))
    runs += [(name, name, located) for name in others]
    rows = []
    for label, strategy, those in runs:
        try:
            rows.append(Row(label, *_latencies(those, strategy).mean(axis=0).tolist()))
        except NovaError as error:
            rows.append(Row(label, error=str(error)))
    return rows


def _latencies(problems: list[Problem], strategy: str) -> Floats:
    """(w, 4) estimated and measured mean and 90P of each workload."""
    figures = []
    for problem in problems:
        found = evaluate(create(strategy).place(problem))
        assert found.measured is not None
        e, m = found.estimated, found.measured
        figures.append((e.mean, m.mean, e.p90, m.p90))
    return np.array(figures)


def _space_rows(
    problems: list[Problem], latency: Floats, asked: SpaceParameters, parameters: Fig8
) -> list[SpaceRow]:
    from nova_core.costspace import errors

    space = space_for(problems[0].nodes.ids, latency, asked, parameters.neighbours)
    mae = errors(space, latency).mae
    rows = []
    for objective in parameters.objectives:
        figures = []
        for problem in problems:
            placed = create("nova", objective=objective).place(
                placed_in(problem, space, asked.heights)
            )
            found = evaluate(placed).measured
            assert found is not None
            figures.append((found.mean, found.p90, found.network_usage))
        rows.append(SpaceRow(asked.label, objective, mae, *np.mean(figures, axis=0).tolist()))
    return rows


def draw(result: Result) -> Figure:
    """The figure: estimated and measured latency per strategy, mean and 90th percentile."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 7.0), layout="constrained", facecolor="white")
    rows = [row for row in result.strategies if not row.error]
    place = np.arange(len(rows))
    for axes, what in zip(figure.subplots(2, 1, sharex=True), ("mean", "p90"), strict=True):
        for shift, side, colour in ((-0.2, "estimated", "#56B4E9"), (0.2, "measured", "#D55E00")):
            values = [getattr(row, f"{side}_{what}") for row in rows]
            bars = axes.bar(place + shift, values, 0.38, color=colour, label=side)
            axes.bar_label(bars, fmt="%.0f", fontsize=7)
        axes.margins(y=0.12)
        axes.set_ylabel(f"{'mean' if what == 'mean' else '90th percentile'}, ms")
        axes.set_xticks(place, [row.strategy for row in rows], rotation=30, ha="right")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    figure.suptitle(f"Placement on estimated latencies: {result.latencies}", x=0.01, ha="left")
    return figure
