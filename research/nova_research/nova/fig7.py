"""Figure 7 of the paper: latencies against sending straight to the sink.

All strategies place without limits of capacity, and Nova once more, as ``nova(p)``, with the most
heterogeneous ones; so does the paper's Algorithm 1, as ``nova-paper(p)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from nova_harness.measurement import Case
from nova_research.figures.base import Figure, Run, Table, by_first, cell, listed
from nova_research.nova.cells import (
    COLOURS,
    OF_THE_PAPER,
    CellParameters,
    Placing,
    instance_directory,
    reasons,
    run_cells,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NODES = 1001
# Strategies that also place with limits of capacity, and their labels then.
LIMITED = {"nova": "nova(p)", "nova-paper": "nova-paper(p)"}


class Fig7Parameters(CellParameters, frozen=True):
    """Parameters of Figure 7; those called (p) place with the ``heterogeneous`` capacities."""

    instances: tuple[str, ...] = ("fit", "sim1000", "atlas")
    heterogeneous: str = "capacity_5"
    nodes: (
        Annotated[int, Meta(ge=4, description="Take a generated topology of so many nodes")] | None
    ) = None
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """A strategy on a problem.

    Attributes:
        problem: its name.
        strategy: the strategy's; with ``(p)`` after it where capacities are limited.
        p90: 90th percentile of the sources' latency, ms.
        direct: the same of sending straight to the sink.
        delta: the difference.
        published: the difference in the paper.
        error: why there is no figure.
    """

    problem: str
    strategy: str
    p90: float | None = None
    direct: float | None = None
    delta: float | None = None
    published: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Result:
    """The figure's numbers.

    Attributes:
        rows: by problem, then by strategy.
    """

    rows: list[Row]


class Fig7(Figure[Fig7Parameters, Result]):
    """90th percentiles of latency against sending straight to the sink.

    Every strategy without limits of capacity, and Nova with the most heterogeneous ones as well.
    Finished cells in the output directory do not run again.
    """

    name = "fig7"
    source = "Nova, section 4.3, Figure 7"
    Parameters = Fig7Parameters
    data = "instances of the simulations"
    synthetic = "a generated topology"
    # 90th percentile less that of direct transmission, ms: of nova, nova(p), cl-sf, and tree on fit
    # as section 4.3 has them; on sim1000 as its published data have them; of the others on atlas
    # from the estimates in section 4.4 of the same nodes (direct: 328.2 ms).
    published: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "fit": {"nova": 2.0, "nova(p)": 14.3, "sink": 0.0, "tree": 35.0},
        "sim1000": {
            "nova": 8.4,
            "nova(p)": 31.5,
            "sink": 0.0,
            "source": 60.4,
            "top-c": 82.4,
            "tree": 87.3,
            "cl-sf": 2.1,
            "cl-tree-sf": 70.6,
        },
        "atlas": {
            "nova": 19.8,
            "nova(p)": 96.4,
            "sink": 0.0,
            "source": 58.8,
            "top-c": 191.8,
            "tree": 404.8,
            "cl-sf": 15.57,
        },
    }
    quick: ClassVar = {"strategies": OF_THE_PAPER}

    def run(self, parameters: Fig7Parameters, run: Run) -> Result:
        """Place with every strategy on every instance."""
        strategies = []
        for name in shown(parameters.strategies, parameters.leave_out):
            strategies += [name, LIMITED[name]] if name in LIMITED else [name]
        base = {label: name for name, label in LIMITED.items()}
        places = {
            name: instance_directory(run.data, name, parameters.nodes)
            for name in parameters.instances
        }
        here = {name: str(place) for name, place in places.items() if place is not None}
        nodes = parameters.nodes or NODES
        labels, placings = [], []
        for problem in here or [f"generated topology of {nodes:,} nodes"]:
            for strategy in strategies:
                limited = strategy in base
                if here:
                    capacity = parameters.heterogeneous if limited else "unlimited"
                    case = Case(path=here[problem], capacity=capacity)
                else:
                    case = Case(
                        nodes, seed=parameters.seed, capacity=None if limited else "unlimited"
                    )
                labels.append((problem, strategy))
                placings.append(Placing(case, base.get(strategy, strategy)))
        rows = []
        for (problem, strategy), outcome in zip(
            labels, run_cells(placings, parameters.limits, run), strict=True
        ):
            delta = None
            if outcome.p90 is not None and outcome.direct_p90 is not None:
                delta = outcome.p90 - outcome.direct_p90
            published = self.published.get(problem, {}).get(strategy)
            rows.append(
                Row(
                    problem,
                    strategy,
                    outcome.p90,
                    outcome.direct_p90,
                    delta,
                    published,
                    outcome.error,
                )
            )
        return Result(rows)

    def tables(self, result: Result) -> list[Table]:
        """A row per problem and strategy."""
        return [
            listed(
                "fig7",
                "90th percentile of latency, ms, and how much it is above direct transmission",
                result.rows,
                {
                    "problem": "problem",
                    "strategy": "strategy",
                    ">90P": "p90",
                    ">direct": "direct",
                    ">above": "delta",
                    ">published": "published",
                },
                reasons(result.rows),
            )
        ]

    def draw(self, result: Result) -> Drawing:
        """Bars per strategy, a panel per problem; published values as marks."""
        from matplotlib.figure import Figure as Drawing

        problems = by_first(result.rows, lambda row: row.problem)
        height = 1.2 + 0.26 * max(map(len, problems.values()))
        figure = Drawing(figsize=(4.0 * max(2, len(problems)), height))
        panels = figure.subplots(1, len(problems), sharey=True, squeeze=False)[0]
        for axes, (problem, rows) in zip(panels, problems.items(), strict=True):
            bars = axes.barh(
                [row.strategy for row in rows],
                [row.delta or 0.0 for row in rows],
                color=[COLOURS.get(row.strategy, "#999999") for row in rows],
            )
            labels = ["" if row.delta is None else cell(row.delta) for row in rows]
            axes.bar_label(bars, labels, fontsize=7, padding=2)
            known = [row for row in rows if row.published is not None]
            axes.scatter(
                [row.published or 0.0 for row in known],
                [row.strategy for row in known],
                marker="|", s=90, color="black", zorder=3, label="published",
            )  # fmt: skip
            axes.set_title(problem, fontsize=9)
            axes.set_xlabel("90th percentile over direct, ms")
            axes.margins(x=0.18)
        panels[0].invert_yaxis()
        return figure
