"""Figure 7 of the paper: latencies against sending straight to the sink.

All strategies place without limits of capacity, and Nova once more, as ``nova(p)``, with the most
heterogeneous ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nova_harness.measurement import Case
from nova_harness.simulation import Limits, Placing, instance_directory, run_cells, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOVA, HETEROGENEOUS = "nova", "nova(p)"
# 90th percentile less that of direct transmission, ms: of nova, nova(p) and cl-sf on atlas as
# section 4.3 tells them; on sim1000 as its published data has them; of the others on atlas from
# the estimates that section 4.4 tells of the same nodes (direct: 328.2 ms).
PUBLISHED = {
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
    "fit": {"nova": 2.0, "nova(p)": 14.3, "sink": 0.0},
}


class Fig7(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment, see ``harness/experiments/fig7.yaml``."""

    experiment: int
    instances: list[str]
    heterogeneous: str
    synthetic_nodes: int
    seed: int
    strategies: list[str] = []
    leave_out: list[str] = []


@dataclass(frozen=True)
class Row:
    """A strategy on a problem.

    Attributes:
        problem: its name.
        strategy: the strategy's; ``nova(p)`` is Nova with limits of capacity.
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


def run(
    asked: Fig7,
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
    if NOVA in strategies:
        strategies.insert(strategies.index(NOVA) + 1, HETEROGENEOUS)
    places = {name: instance_directory(data, name) for name in asked.instances}
    here = {name: str(place) for name, place in places.items() if place is not None}
    labels, wanted = [], []
    for name in here or [f"generated topology of {asked.synthetic_nodes:,} nodes"]:
        for strategy in strategies:
            limited = strategy == HETEROGENEOUS
            capacity: str | None
            if here:
                capacity = asked.heterogeneous if limited else "unlimited"
                case = Case(path=here[name], capacity=capacity)
            else:
                capacity = None if limited else "unlimited"
                case = Case(asked.synthetic_nodes, seed=asked.seed, capacity=capacity)
            labels.append((name, strategy))
            wanted.append(Placing(case, NOVA if limited else strategy))
    cells = run_cells(wanted, limits, kept, advance)
    rows = []
    for (problem, strategy), cell in zip(labels, cells, strict=True):
        delta = None
        if cell.p90 is not None and cell.direct_p90 is not None:
            delta = cell.p90 - cell.direct_p90
        published = PUBLISHED.get(problem, {}).get(strategy)
        row = Row(problem, strategy, cell.p90, cell.direct_p90, delta, published, cell.error)
        rows.append(row)
    return Result(rows)


def draw(result: Result) -> Figure:
    """The figure: bars per strategy, a panel per problem; published values as marks."""
    from matplotlib.figure import Figure

    from nova_harness.simulation_figures import COLOURS

    problems = list(dict.fromkeys(row.problem for row in result.rows))
    strategies = list(dict.fromkeys(row.strategy for row in result.rows))
    height = 1.2 + 0.26 * len(strategies)
    figure = Figure(figsize=(4.0 * max(2, len(problems)), height), facecolor="white")
    figure.set_layout_engine("constrained")
    panels = figure.subplots(1, len(problems), sharey=True, squeeze=False)[0]
    for axes, problem in zip(panels, problems, strict=True):
        rows = [row for row in result.rows if row.problem == problem]
        bars = axes.barh(
            [row.strategy for row in rows],
            [row.delta or 0.0 for row in rows],
            color=[COLOURS.get(row.strategy, "#999999") for row in rows],
        )
        told = ["" if row.delta is None else f"{row.delta:.1f}" for row in rows]
        axes.bar_label(bars, told, fontsize=7, padding=2)
        known = [row for row in rows if row.published is not None]
        axes.scatter(
            [row.published or 0.0 for row in known],
            [row.strategy for row in known],
            marker="|", s=90, color="black", zorder=3, label="published",
        )  # fmt: skip
        axes.set_title(problem, fontsize=9)
        axes.set_xlabel("90th percentile over direct, ms")
        axes.margins(x=0.18)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    return figure
