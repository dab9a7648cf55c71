"""Figure 10 of the paper: time of placing, and of events, while topology and query grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from nova_harness.measurement import Case
from nova_research.figures.base import Figure, Run, Table, by_first, cell
from nova_research.nova.cells import (
    COLOURS,
    OF_THE_PAPER,
    CellParameters,
    Placing,
    lines,
    reasons,
    run_cells,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MILLION = 1_000_000
NOVA = "nova"
# Nova without and with the local search after the first assignment; by default, the number of joins
# decides.
VARIANTS: dict[str, dict[str, object]] = {
    "nova, not refined": {"refine": False},
    "nova, refined": {"refine": True},
}


class Fig10Parameters(CellParameters, frozen=True):
    """Parameters of Figure 10; heterogeneity of capacities: 1 is the most, exponential."""

    nodes: Annotated[tuple[int, ...], Meta(description="Size of a topology")] = (
        *(100, 1_000, 10_000, 20_000, 100_000, MILLION),
    )
    heterogeneity: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """A strategy on a topology.

    Attributes:
        strategy: its name, or one of `VARIANTS`.
        nodes: size of the topology.
        seconds: of processor time that placing took.
        wall: seconds by the clock.
        published: seconds in the paper, or a bound of them.
        overloaded: overloaded nodes in percent of those that receive tuples.
        error: why there is no figure.
    """

    strategy: str
    nodes: int
    seconds: float | None = None
    wall: float | None = None
    published: str = ""
    overloaded: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Result:
    """The figure's numbers.

    Attributes:
        limit: seconds of processor time that placing was given.
        rows: by strategy, then by size.
    """

    limit: float
    rows: list[Row]


class Fig10(Figure[Fig10Parameters, Result]):
    """Time of placing while topology and query grow together.

    A strategy that runs out of time or memory on one size is not tried on larger ones. Finished
    cells in the output directory do not run again. `nova bench live` measures re-optimization.
    """

    name = "fig10"
    source = "Nova, section 4.6, Figure 10, optimization"
    Parameters = Fig10Parameters
    # Seconds in section 4.6; for some only bounds, and "beyond 20,000 nodes".
    published: ClassVar[Mapping[str, Mapping[int, str]]] = {
        "nova": {100: "0.015", MILLION: "135"},
        **{name: {MILLION: "< 2"} for name in ("sink", "source", "top-c")},
        **{name: {20_001: "> 600"} for name in ("tree", "cl-sf", "cl-tree-sf")},
    }
    quick: ClassVar = {"nodes": (100, 1_000, 10_000), "strategies": OF_THE_PAPER}

    def run(self, parameters: Fig10Parameters, run: Run) -> Result:
        """Place with every strategy on every size."""
        strategies = shown(parameters.strategies, parameters.leave_out)
        if NOVA in strategies:
            after = strategies.index(NOVA) + 1
            strategies[after:after] = VARIANTS
        labels = [(n, name) for n in sorted(set(parameters.nodes)) for name in strategies]
        placings = []
        for nodes, name in labels:
            case = Case(nodes, parameters.heterogeneity, parameters.seed)
            base = NOVA if name in VARIANTS else name
            placings.append(Placing(case, base, VARIANTS.get(name, {}), timed=True))
        cells = run_cells(placings, parameters.limits, run, growing=True)
        rows = [
            Row(name, size, c.seconds, c.wall, self._published(name, size), c.overloaded, c.error)
            for (size, name), c in zip(labels, cells, strict=True)
        ]
        rows.sort(key=lambda row: strategies.index(row.strategy))
        return Result(parameters.limit, rows)

    def _published(self, strategy: str, nodes: int) -> str:
        seconds = self.published.get(strategy, {})
        if nodes > 20_000 and 20_001 in seconds:
            return seconds[20_001]
        return seconds.get(nodes, "")

    def tables(self, result: Result) -> list[Table]:
        """A row per strategy, a column per size."""
        sizes = list(by_first(result.rows, lambda row: row.nodes))
        shown_lines = []
        for strategy, rows in by_first(result.rows, lambda row: row.strategy).items():
            at = {row.nodes: row for row in rows}
            shown_lines.append([strategy, *(_time(at[size]) for size in sizes)])
        title = "Processor seconds to place, by nodes (in brackets as published)"
        headings = ["strategy", *(f">{size:,}" for size in sizes)]
        return [Table("fig10", result.rows, title, headings, shown_lines, reasons(result.rows))]

    def draw(self, result: Result) -> Drawing:
        """Time over size, a line per strategy; crosses where Nova's was published."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(9.0, 5.0))
        axes = figure.subplots()
        lines(axes, [(row.strategy, row.nodes, row.seconds) for row in result.rows])
        published = self.published[NOVA]
        axes.plot(
            list(published), [float(seconds) for seconds in published.values()],
            color=COLOURS["nova"], linestyle=":", marker="x", label="nova, published",
        )  # fmt: skip
        axes.axhline(result.limit, color="#999999", linewidth=0.8, linestyle="--", label="limit")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("nodes")
        axes.set_ylabel("seconds of processor time")
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure


def _time(row: Row) -> str:
    digits = 3 if row.seconds is not None and row.seconds < 1 else 1
    return cell(row.seconds, digits) + (f" ({row.published})" if row.published else "")
