"""Figure 10 of the paper: time of placing while topology and query grow together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nova_harness.measurement import Case
from nova_harness.simulation import Limits, Placing, run_cells, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MILLION = 1_000_000
NOVA = "nova"
# Nova without and with the local search after the first assignment, which its default makes depend
# on the number of joins.
VARIANTS: dict[str, dict[str, object]] = {
    "nova, not refined": {"refine": False},
    "nova, refined": {"refine": True},
}
# Seconds, as section 4.6 tells them; of some it tells bounds, and "beyond 20,000 nodes".
PUBLISHED = {
    "nova": {100: "0.015", MILLION: "135"},
    **{name: {MILLION: "< 2"} for name in ("sink", "source", "top-c")},
    **{name: {20_001: "> 600"} for name in ("tree", "cl-sf", "cl-tree-sf")},
}


class Fig10(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment, see ``harness/experiments/fig10.yaml``."""

    experiment: int
    nodes: list[int]
    heterogeneity: float
    seed: int
    strategies: list[str] = []
    leave_out: list[str] = []


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


def run(
    asked: Fig10,
    limits: Limits,
    kept: Path | None = None,
    advance: Callable[[int, int], None] = lambda *_: None,
) -> Result:
    """Run the experiment, or the rest of it.

    Args:
        asked: its parameters.
        limits: of each cell.
        kept: file of finished cells.
        advance: called with cells done and cells in all.

    Raises:
        NovaError: for an unknown strategy.
    """
    strategies = shown(asked.strategies, asked.leave_out)
    if NOVA in strategies:
        after = strategies.index(NOVA) + 1
        strategies[after:after] = VARIANTS
    labels = [(n, name) for n in sorted(set(asked.nodes)) for name in strategies]
    wanted = []
    for nodes, name in labels:
        case = Case(nodes, asked.heterogeneity, asked.seed)
        base = NOVA if name in VARIANTS else name
        wanted.append(Placing(case, base, VARIANTS.get(name, {}), timed=True))
    cells = run_cells(wanted, limits, kept, advance, growing=True)
    rows = [
        Row(
            name, size, cell.seconds, cell.wall, _published(name, size), cell.overloaded, cell.error
        )
        for (size, name), cell in zip(labels, cells, strict=True)
    ]
    return Result(limits.seconds, sorted(rows, key=lambda row: strategies.index(row.strategy)))


def _published(strategy: str, nodes: int) -> str:
    told = PUBLISHED.get(strategy, {})
    if nodes > 20_000 and 20_001 in told:
        return told[20_001]
    return told.get(nodes, "")


def draw(result: Result) -> Figure:
    """The figure: time over size, a line per strategy; crosses where Nova's was published."""
    from matplotlib.figure import Figure

    from nova_harness.simulation_figures import COLOURS, lines

    figure = Figure(figsize=(9.0, 5.0), layout="constrained", facecolor="white")
    axes = figure.subplots()
    lines(axes, [(row.strategy, row.nodes, row.seconds) for row in result.rows])
    told = PUBLISHED["nova"]
    axes.plot(
        list(told), [float(seconds) for seconds in told.values()],
        color=COLOURS["nova"], linestyle=":", marker="x", label="nova, published",
    )  # fmt: skip
    axes.axhline(result.limit, color="#999999", linewidth=0.8, linestyle="--", label="limit")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nodes")
    axes.set_ylabel("seconds of processor time")
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
