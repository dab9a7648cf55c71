"""What SBON's simulation gives: rows of its tables, and the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Table 1: increase of network usage and of delay, %.
PUBLISHED = {
    "optimal": (0.0, 13.0),
    "relaxation": (15.0, 24.0),
    "ip-multicast": (27.0, 0.0),
    "producer": (43.0, 75.0),
    "consumer": (60.0, 0.0),
    "random": (81.0, 76.0),
}
PUBLISHED_SAVING = 21.0
"""Of network usage, %, by reuse among four queries (section 4.2.2)."""


@dataclass(frozen=True)
class Row:
    """An algorithm in Table 1; in %, means over topologies and standard deviations among them.

    Attributes:
        algorithm: its name.
        usage: increase of the network usage of all queries over the optimum.
        usage_spread: its spread.
        published_usage: what the text has.
        delay: mean over queries of the increase of delay over the longest route.
        delay_spread: its spread.
        published_delay: what the text has.
        usage_p80: increase of the 80th percentile of queries' network usage over the optimum's.
        faster: share of queries with less delay than the longest route has.
    """

    algorithm: str
    usage: float
    usage_spread: float
    published_usage: float
    delay: float
    delay_spread: float
    published_delay: float
    usage_p80: float
    faster: float


@dataclass(frozen=True)
class Percentile:
    """A point of Figures 8 and 9, over the queries of all topologies.

    Attributes:
        algorithm: its name.
        percent: of queries that have no more than this.
        usage: network usage of a query, KB in flight.
        delay: increase of delay, %.
    """

    algorithm: str
    percent: int
    usage: float
    delay: float


@dataclass(frozen=True)
class SpaceRow:
    """RELAXATION in a cost space, %.

    Attributes:
        space: its name.
        error: median relative error of estimated latencies.
        usage: increase of network usage over the optimum.
        usage_spread: standard deviation among topologies.
        worst_usage: the greatest of a topology.
        delay: increase of delay.
    """

    space: str
    error: float
    usage: float
    usage_spread: float
    worst_usage: float
    delay: float


@dataclass(frozen=True)
class ReuseRow:
    """What reuse saves, %, means over groups of queries.

    Attributes:
        queries: of a group.
        saving: of measured network usage, with multicast operators.
        saving_spread: standard deviation among topologies.
        saving_unicast: the same without multicast operators.
        least_saving: the least of a single group.
        shared: operators left of a group's aggregators, mean.
        published: what the text has, NaN where nothing.
    """

    queries: int
    saving: float
    saving_spread: float
    saving_unicast: float
    least_saving: float
    shared: float
    published: float


@dataclass(frozen=True)
class Result:
    """The experiment's numbers.

    Attributes:
        nodes: of a topology.
        topologies: how many.
        queries: on each.
        table: Table 1.
        distributions: Figures 8 and 9.
        spaces: RELAXATION in several cost spaces, the table's first.
        reuse: savings.
    """

    nodes: int
    topologies: int
    queries: int
    table: list[Row]
    distributions: list[Percentile]
    spaces: list[SpaceRow]
    reuse: list[ReuseRow]


COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#999999")


def draw(result: Result) -> Figure:
    """Table 1 as bars, Figures 8 and 9, and the savings."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 7.4), layout="constrained", facecolor="white")
    (bars, saved), (usage, delay) = figure.subplots(2, 2)
    place = np.arange(len(result.table))
    for shift, what, colour in ((-0.2, "usage", "#D55E00"), (0.2, "delay", "#0072B2")):
        values = [getattr(row, what) for row in result.table]
        spread = [getattr(row, f"{what}_spread") for row in result.table]
        published = [getattr(row, f"published_{what}") for row in result.table]
        label = "network usage" if what == "usage" else "delay"
        bars.bar(place + shift, values, 0.38, yerr=spread, color=colour, label=label, capsize=2)
        bars.plot(place + shift, published, "k_", ms=13, mew=2)
    bars.plot([], [], "k_", ms=13, mew=2, label="published")
    bars.set_xticks(place, [row.algorithm for row in result.table], rotation=20, ha="right")
    bars.set_ylabel("penalty, %")
    bars.legend(frameon=False)
    queries = [str(row.queries) for row in result.reuse]
    for shift, what, label in (
        (-0.2, "saving", "with multicast"),
        (0.2, "saving_unicast", "without"),
    ):
        values = [getattr(row, what) for row in result.reuse]
        saved.bar(np.arange(len(queries)) + shift, values, 0.38, label=label)
    saved.set_xticks(np.arange(len(queries)), queries)
    saved.set_xlabel("queries for the same aggregation")
    saved.set_ylabel("network usage saved by reuse, %")
    saved.legend(frameon=False)
    for name, colour in zip(PUBLISHED, COLOURS, strict=True):
        rows = [row for row in result.distributions if row.algorithm == name]
        percent = [row.percent for row in rows]
        usage.plot([row.usage for row in rows], percent, color=colour, label=name)
        delay.plot([row.delay for row in rows], percent, color=colour, label=name)
    usage.set_xlabel("network usage of a query, KB in flight")
    delay.set_xlabel("increase of delay, %")
    delay.set_xlim(-50, 250)
    usage.legend(frameon=False, loc="lower right")
    for axes in (usage, delay):
        axes.set_ylabel("queries, %")
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"SBON on {result.topologies} transit-stub topologies of {result.nodes} nodes, "
        f"{result.queries} queries each",
        x=0.01,
        ha="left",
    )
    return figure
