"""Figure 6 of the paper: overloaded nodes while capacities become more unequal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from nova_harness.measurement import Case
from nova_research.figures.base import Figure, Run, Table, by_first, cell
from nova_research.nova.cells import (
    OF_THE_PAPER,
    Cell,
    CellParameters,
    Placing,
    instance_directory,
    lines,
    reasons,
    run_cells,
    seeded,
    shown,
)
from nova_workloads.topology import HETEROGENEITY_LEVELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NODES = 1001
PUBLISHED_INSTANCE = "sim1000"
CAPACITIES = tuple(f"capacity_{column}" for column in range(6))


class Fig6Parameters(CellParameters, frozen=True):
    """Parameters of Figure 6; capacities are columns of the instance, near-uniform ones first."""

    instance: str = PUBLISHED_INSTANCE
    capacities: tuple[str, ...] = CAPACITIES
    nodes: (
        Annotated[int, Meta(ge=4, description="Take a generated topology of so many nodes")] | None
    ) = None
    seed: int = 0
    seeds: Annotated[
        int, Meta(ge=1, description="Runs, with a seed each, of strategies that draw at random")
    ] = 1


@dataclass(frozen=True)
class Row:
    """A strategy with one distribution of capacities.

    Attributes:
        strategy: its name.
        capacities: the distribution.
        variation: coefficient of variation of the capacities.
        overloaded: overloaded nodes in percent of those that receive tuples; the mean of all runs.
        spread: their standard deviation; None for one run.
        runs: with a seed each, of a strategy that draws at random.
        published: the same in the paper, on the same instance.
        error: why there is no figure.
    """

    strategy: str
    capacities: str
    variation: float | None = None
    overloaded: float | None = None
    spread: float | None = None
    runs: int = 1
    published: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Result:
    """The figure's numbers.

    Attributes:
        problem: what was placed.
        rows: by strategy, then by distribution.
    """

    problem: str
    rows: list[Row]


class Fig6(Figure[Fig6Parameters, Result]):
    """Overloaded nodes while capacities become more unequal.

    Every strategy on six distributions of capacities, and means and standard deviations of those
    that draw at random. Finished cells in the output directory do not run again.
    """

    name = "fig6"
    source = "Nova, section 4.2, Figure 6"
    Parameters = Fig6Parameters
    data = "instances of the simulations"
    synthetic = "a generated topology"
    # Overloaded nodes, %, on the published instance, capacity_0 to capacity_5.
    published: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "nova": (0, 0, 0, 0, 0, 0),
        "sink": (100, 100, 100, 100, 100, 100),
        "source": (46, 46, 47, 51, 54, 53),
        "top-c": (10, 12, 14, 12, 10, 6),
        "tree": (85, 84, 85, 84, 85, 85),
        "cl-sf": (90, 88, 89, 86, 91, 95),
        "cl-tree-sf": (99, 96, 94, 98, 99, 97),
    }
    quick: ClassVar = {"strategies": OF_THE_PAPER, "capacities": (CAPACITIES[0], CAPACITIES[-1])}

    def run(self, parameters: Fig6Parameters, run: Run) -> Result:
        """Place with every strategy for every distribution."""
        strategies = shown(parameters.strategies, parameters.leave_out)
        directory = instance_directory(run.data, parameters.instance, parameters.nodes)
        if directory is None:
            nodes = parameters.nodes or NODES
            problem = f"generated topology of {nodes:,} nodes"
            cases = {f"h = {h:g}": Case(nodes, h, parameters.seed) for h in HETEROGENEITY_LEVELS}
        else:
            problem = parameters.instance
            cases = {c: Case(path=str(directory), capacity=c) for c in parameters.capacities}
        labels = [(s, c) for s in strategies for c in cases]
        placings = {
            (s, c): [Placing(cases[c], s, chosen) for chosen in seeded(s, parameters.seeds)]
            for s, c in labels
        }
        cells = iter(run_cells(chain.from_iterable(placings.values()), parameters.limits, run))
        rows = [self._row(problem, *at, list(islice(cells, len(placings[at])))) for at in labels]
        return Result(problem, rows)

    def _row(self, problem: str, strategy: str, capacities: str, cells: Sequence[Cell]) -> Row:
        """Mean and spread of runs with different seeds; None if one of them failed."""
        published = None
        if (
            problem == PUBLISHED_INSTANCE
            and strategy in self.published
            and capacities in CAPACITIES
        ):
            published = self.published[strategy][CAPACITIES.index(capacities)]
        shares = [one.overloaded for one in cells if one.overloaded is not None]
        whole = len(shares) == len(cells)
        return Row(
            strategy,
            capacities,
            cells[0].variation,
            mean(shares) if whole else None,
            stdev(shares) if whole and len(shares) > 1 else None,
            len(cells),
            published,
            next((one.error for one in cells if one.error), ""),
        )

    def tables(self, result: Result) -> list[Table]:
        """A row per strategy, below it the published one."""
        columns = list(by_first(result.rows, lambda row: row.capacities))
        shown_lines = []
        for strategy, rows in by_first(result.rows, lambda row: row.strategy).items():
            shown_lines.append([strategy, *(_with_spread(row) for row in rows)])
            if any(row.published is not None for row in rows):
                shown_lines.append(["  published", *(cell(row.published, 0) for row in rows)])
        title = f"Overloaded nodes, % of those that receive tuples: {result.problem}"
        headings = ["strategy", *(f">{c.replace('capacity_', 'capacity ')}" for c in columns)]
        return [Table("fig6", result.rows, title, headings, shown_lines, reasons(result.rows))]

    def draw(self, result: Result) -> Drawing:
        """Overloaded nodes over the capacities' variation, a line per strategy."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(9.0, 5.0))
        axes = figure.subplots()
        lines(axes, [(r.strategy, r.variation, r.overloaded) for r in result.rows])
        published = [row for row in result.rows if row.published is not None]
        axes.scatter(
            [row.variation or 0.0 for row in published],
            [row.published or 0.0 for row in published],
            s=14, facecolors="none", edgecolors="black", linewidths=0.6, zorder=3,
            label="published" if published else None,
        )  # fmt: skip
        axes.set_ylim(-3, 103)
        axes.set_xlabel("coefficient of variation of capacities")
        axes.set_ylabel("overloaded nodes, %")
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.suptitle(f"Overloaded nodes: {result.problem}", x=0.01, ha="left", fontsize=10)
        return figure


def _with_spread(row: Row) -> str:
    return cell(row.overloaded) + ("" if row.spread is None else f" ± {cell(row.spread)}")
