"""Figure 8 of the paper: placements on estimated latencies, evaluated on measured ones.

Every strategy places on coordinates that were estimated from some measurements; its plan is
evaluated on those coordinates and on the whole matrix. Nova is shown with unlimited capacities
and, as ``nova(p)``, with the most heterogeneous ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from nova_core.errors import NovaError
from nova_core.evaluation import evaluate
from nova_core.model.problem import Floats, Problem
from nova_core.strategies.base import create
from nova_research.figures.base import Figure, Run, Table, listed
from nova_research.figures.inputs import (
    EstimateParameters,
    SpaceParameters,
    latencies,
    placed_in,
    space_for,
    workload,
)
from nova_research.nova.cells import reasons, shown
from nova_research.nova.fig7 import LIMITED

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from nova_core.costspace.cost_space import CostSpace


class Fig8Parameters(EstimateParameters, frozen=True):
    """Parameters of Figure 8.

    Attributes:
        latencies: in the data directory; RIPE Atlas anchors, one snapshot.
        spaces: other spaces in which nova(p) is placed, to measure the effect of heights.
        objectives: which it minimizes there.
        strategies: shown besides Nova; if empty, all but those left out.
        leave_out: strategies that need too much time.
    """

    latencies: str = "latency/ripe-atlas-418.csv.gz"
    spaces: tuple[SpaceParameters, ...] = (
        SpaceParameters(dimensions=2, height=False),
        SpaceParameters(dimensions=2, height=True),
        SpaceParameters(dimensions=2, height=True, heights="ignored"),
        SpaceParameters(dimensions=2, height=True, heights="axis"),
        SpaceParameters(dimensions=3, height=False),
        SpaceParameters(dimensions=3, height=True),
        SpaceParameters(dimensions=5, height=False),
        SpaceParameters(dimensions=5, height=True),
    )
    objectives: tuple[str, ...] = ("latency", "network-usage")
    strategies: Annotated[
        tuple[str, ...], Meta(title="strategy", description="Only this strategy besides Nova")
    ] = ()
    leave_out: tuple[str, ...] = ("ilp",)

    def shown(self) -> list[str]:
        """Strategies besides Nova: those named, or all that are installed and not left out."""
        return [name for name in shown(self.strategies, self.leave_out) if name != "nova"]


@dataclass(frozen=True)
class Row:
    """Latencies of a strategy, ms, means over the workloads.

    Attributes:
        strategy: its name.
        estimated_mean: mean over sources by coordinates.
        measured_mean: the same by the measured matrix.
        estimated_p90: 90th percentile over sources by coordinates.
        measured_p90: the same by the measured matrix.
        published_estimated_mean: the same four in the paper; NaN where it has none.
        published_measured_mean: see above.
        published_estimated_p90: see above.
        published_measured_p90: see above.
        error: why there are no figures.
    """

    strategy: str
    estimated_mean: float = np.nan
    measured_mean: float = np.nan
    estimated_p90: float = np.nan
    measured_p90: float = np.nan
    published_estimated_mean: float = np.nan
    published_measured_mean: float = np.nan
    published_estimated_p90: float = np.nan
    published_measured_p90: float = np.nan
    error: str = ""


@dataclass(frozen=True)
class SpaceRow:
    """Results of nova(p) in a cost space, means over the workloads.

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


class Fig8(Figure[Fig8Parameters, Result]):
    """Every strategy on estimated latencies, evaluated on estimated and measured ones.

    Also the effect of heights and more dimensions on Nova.
    """

    name = "fig8"
    source = "Nova, section 4.4, Figure 8"
    Parameters = Fig8Parameters
    data = "measured latencies"
    # Mean estimated and measured, 90th percentile estimated and measured, ms (s in the text).
    published: ClassVar[Mapping[str, tuple[float, float, float, float]]] = {
        "nova": (237, 259, 347, 542),
        "nova(p)": (np.nan, np.nan, 424, 754),
        "sink": (220, 146, np.nan, np.nan),
        "source": (261, 262, 387, 663),
        "top-c": (345, 330, 520, 709),
        "tree": (512, 11_700, 733, 19_000),
        "cl-tree-sf": (450, 2000, np.nan, np.nan),
    }
    quick: ClassVar = {
        "workloads": 2,
        "strategies": ["nova-paper", "sink", "source", "top-c", "tree", "cl-sf", "cl-tree-sf"],
        "spaces": [{"height": False}, {"height": True}],
    }

    def run(self, parameters: Fig8Parameters, run: Run) -> Result:
        """Place on estimates, evaluate on measurements."""
        source, ids, [latency] = latencies(
            run.data, [parameters.latencies], parameters.synthetic_nodes
        )
        problems = [
            workload(ids, latency, parameters.heterogeneity, seed)
            for seed in range(parameters.workloads)
        ]
        space = space_for(ids, latency, parameters.space, parameters.neighbours)
        runs = _runs(problems, space, parameters.shown())
        steps = len(runs) + len(parameters.spaces)
        strategies, spaces = [], []
        for number, (label, name, located) in enumerate(runs):
            run.advance(number, steps)
            strategies.append(self._row(label, name, located))
        for number, each in enumerate(parameters.spaces, start=len(runs)):
            run.advance(number, steps)
            spaces += _space_rows(problems, latency, each, parameters)
        run.advance(steps, steps)
        return Result(source, len(ids), strategies, spaces)

    def _row(self, label: str, strategy: str, problems: list[Problem]) -> Row:
        figures: Any = (np.nan,) * 4
        error = ""
        try:
            figures = _latencies(problems, strategy).mean(axis=0).tolist()
        except NovaError as failure:
            error = str(failure)
        figures = [*figures, *self.published.get(label, (np.nan,) * 4)]
        return replace(Row(label, *figures), error=error)

    def tables(self, result: Result) -> list[Table]:
        """The figure, and nova(p) in several spaces."""
        first: dict[str, SpaceRow] = {}
        for one in result.spaces:
            first.setdefault(one.objective, one)

        def change(row: SpaceRow, what: str) -> str:
            return f"{100 * (getattr(row, what) / getattr(first[row.objective], what) - 1):+.1f}"

        return [
            listed(
                "fig8",
                f"Placed on estimated latencies of {result.nodes} nodes ({result.latencies}), ms",
                result.strategies,
                {
                    "strategy": "strategy",
                    ">mean, estimated": "estimated_mean",
                    ">measured": "measured_mean",
                    ">x": (lambda row: row.measured_mean / row.estimated_mean, 2),
                    ">published": ("published_estimated_mean", 0),
                    "> measured": ("published_measured_mean", 0),
                    ">90P, estimated": "estimated_p90",
                    ">measured ": "measured_p90",
                    ">x ": (lambda row: row.measured_p90 / row.estimated_p90, 2),
                    ">published ": ("published_estimated_p90", 0),
                    "> measured ": ("published_measured_p90", 0),
                },
                reasons(result.strategies),
            ),
            listed(
                "fig8-spaces",
                "nova(p) in other cost spaces, measured",
                result.spaces,
                {
                    "space": "space",
                    ">error, ms": "mae",
                    "objective": "objective",
                    ">mean, ms": "measured_mean",
                    ">%": (lambda row: change(row, "measured_mean"), 1),
                    ">90P, ms": "measured_p90",
                    ">% ": (lambda row: change(row, "measured_p90"), 1),
                    ">usage, %": (lambda row: change(row, "measured_usage"), 1),
                },
            ),
        ]

    def draw(self, result: Result) -> Drawing:
        """Estimated and measured latency per strategy, mean and 90th percentile."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(9.5, 7.0))
        rows = [row for row in result.strategies if not row.error]
        place = np.arange(len(rows))
        for axes, what in zip(figure.subplots(2, 1, sharex=True), ("mean", "p90"), strict=True):
            for number, (side, colour) in enumerate(
                (("estimated", "#56B4E9"), ("measured", "#D55E00"))
            ):
                at = place + 0.4 * number - 0.2
                values = [getattr(row, f"{side}_{what}") for row in rows]
                bars = axes.bar(at, values, 0.38, color=colour, label=side)
                axes.bar_label(bars, fmt="%.0f", fontsize=7)
                published = [getattr(row, f"published_{side}_{what}") for row in rows]
                axes.plot(at, published, "k_", ms=9)
            axes.plot([], [], "k_", ms=9, label="published")
            # Published values of trees are seconds; they are left out.
            highest = max((getattr(row, f"measured_{what}") for row in rows), default=1.0)
            axes.set_ylim(0, 1.15 * highest)
            axes.set_ylabel(f"{'mean' if what == 'mean' else '90th percentile'}, ms")
            axes.set_xticks(place, [row.strategy for row in rows], rotation=30, ha="right")
        figure.axes[0].legend(frameon=False)
        figure.suptitle(f"Placement on estimated latencies: {result.latencies}", x=0.01, ha="left")
        return figure


def _runs(
    problems: list[Problem], space: CostSpace, others: list[str]
) -> list[tuple[str, str, list[Problem]]]:
    """Label, strategy and problems: Nova without and with limits of capacity, and others."""
    located = [placed_in(problem, space, "honoured") for problem in problems]
    unlimited = [problem.with_capacity(np.full(len(space), np.inf)) for problem in located]
    runs = []
    for name in ("nova", *others):
        runs.append((name, name, unlimited if name in LIMITED else located))
        if name in LIMITED:
            runs.append((LIMITED[name], name, located))
    return runs


def _latencies(problems: list[Problem], strategy: str) -> Floats:
    """(w, 4) estimated and measured mean and 90P of each workload."""
    figures = []
    for problem in problems:
        evaluation = evaluate(create(strategy).place(problem))
        assert evaluation.measured is not None
        e, m = evaluation.estimated, evaluation.measured
        figures.append((e.mean, m.mean, e.p90, m.p90))
    return np.array(figures)


def _space_rows(
    problems: list[Problem], latency: Floats, of_space: SpaceParameters, parameters: Fig8Parameters
) -> list[SpaceRow]:
    from nova_core.costspace import errors

    space = space_for(problems[0].nodes.ids, latency, of_space, parameters.neighbours)
    mae = errors(space, latency).mae
    rows = []
    for objective in parameters.objectives:
        figures = []
        for problem in problems:
            placed = create("nova", objective=objective).place(
                placed_in(problem, space, of_space.heights)
            )
            measured = evaluate(placed).measured
            assert measured is not None
            figures.append((measured.mean, measured.p90, measured.network_usage))
        rows.append(SpaceRow(of_space.label, objective, mae, *np.mean(figures, axis=0).tolist()))
    return rows
