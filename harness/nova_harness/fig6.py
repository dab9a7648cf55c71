"""Figure 6 of the paper: overloaded nodes while capacities become more unequal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

import msgspec

from nova_harness.measurement import Case
from nova_harness.simulation import (
    Cell,
    Limits,
    Placing,
    instance_directory,
    run_cells,
    seeded,
    shown,
)
from nova_workloads.topology import HETEROGENEITY_LEVELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Overloaded nodes, %, on the published instance (sim1000), capacity_0 to capacity_5.
PUBLISHED = {
    "nova": (0, 0, 0, 0, 0, 0),
    "sink": (100, 100, 100, 100, 100, 100),
    "source": (46, 46, 47, 51, 54, 53),
    "top-c": (10, 12, 14, 12, 10, 6),
    "tree": (85, 84, 85, 84, 85, 85),
    "cl-sf": (90, 88, 89, 86, 91, 95),
    "cl-tree-sf": (99, 96, 94, 98, 99, 97),
}
PUBLISHED_COLUMNS = tuple(f"capacity_{column}" for column in range(6))
PUBLISHED_INSTANCE = "sim1000"


class Fig6(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment, see ``harness/experiments/fig6.yaml``."""

    experiment: int
    instance: str
    capacities: list[str]
    synthetic_nodes: int
    seed: int
    seeds: int = 1
    strategies: list[str] = []
    leave_out: list[str] = []


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


def run(
    asked: Fig6,
    data: Path | None,
    limits: Limits,
    kept: Path | None = None,
    advance: Callable[[int, int], None] = lambda *_: None,
) -> Result:
    """Run the experiment, or the rest of it.

    Args:
        asked: its parameters.
        data: directory whose ``instances`` are taken; None takes a generated topology.
        limits: of each cell.
        kept: file of finished cells.
        advance: called with cells done and cells in all.

    Raises:
        NovaError: for an unknown strategy, or data that are not there.
    """
    strategies = shown(asked.strategies, asked.leave_out)
    directory = instance_directory(data, asked.instance)
    if directory is None:
        problem = f"generated topology of {asked.synthetic_nodes:,} nodes"
        cases = {
            f"h = {level:g}": Case(asked.synthetic_nodes, level, asked.seed)
            for level in HETEROGENEITY_LEVELS
        }
    else:
        problem = asked.instance
        cases = {c: Case(path=str(directory), capacity=c) for c in asked.capacities}
    labels = [(s, c) for s in strategies for c in cases]
    placings = {
        (s, c): [Placing(cases[c], s, chosen) for chosen in seeded(s, asked.seeds)]
        for s, c in labels
    }
    cells = iter(run_cells(chain.from_iterable(placings.values()), limits, kept, advance))
    return Result(
        problem,
        [
            _row(s, c, list(islice(cells, len(placings[s, c]))), _published(problem, s, c))
            for s, c in labels
        ],
    )


def _row(strategy: str, capacities: str, cells: Sequence[Cell], published: float | None) -> Row:
    """What runs with different seeds come to together; nothing if one of them failed."""
    error = next((cell.error for cell in cells if cell.error), "")
    found = [cell.overloaded for cell in cells if cell.overloaded is not None]
    whole = len(found) == len(cells)
    return Row(
        strategy,
        capacities,
        cells[0].variation,
        mean(found) if whole else None,
        stdev(found) if whole and len(found) > 1 else None,
        len(cells),
        published,
        error,
    )


def _published(problem: str, strategy: str, capacities: str) -> float | None:
    if problem != PUBLISHED_INSTANCE or strategy not in PUBLISHED:
        return None
    if capacities not in PUBLISHED_COLUMNS:
        return None
    return PUBLISHED[strategy][PUBLISHED_COLUMNS.index(capacities)]


def draw(result: Result) -> Figure:
    """The figure: overloaded nodes over the capacities' variation, a line per strategy."""
    from matplotlib.figure import Figure

    from nova_harness.simulation_figures import lines

    figure = Figure(figsize=(9.0, 5.0), layout="constrained", facecolor="white")
    axes = figure.subplots()
    lines(axes, [(r.strategy, r.variation, r.overloaded) for r in result.rows])
    published: Sequence[Row] = [row for row in result.rows if row.published is not None]
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
