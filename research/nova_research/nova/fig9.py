"""Figure 9 of the paper: a fixed placement while latencies change over the hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nova_core.evaluation import evaluate
from nova_core.model.problem import Floats
from nova_core.strategies.base import create
from nova_research.figures.base import Column, Figure, Run, Table, listed
from nova_research.figures.inputs import (
    HOURS,
    EstimateParameters,
    latencies,
    placed_in,
    space_for,
    workload,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


class Fig9Parameters(EstimateParameters, frozen=True):
    """Parameters of Figure 9.

    Attributes:
        latencies: in the data directory, in order of time; the placement uses the first.
        synthetic_hours: of the synthetic internet.
        threshold: changes of a pair's latency that count, ms.
    """

    latencies: tuple[str, ...] = HOURS
    synthetic_hours: int = 6
    threshold: float = 10.0


@dataclass(frozen=True)
class Hour:
    """Latencies of the fixed placement in one hour, ms, means over the workloads.

    Attributes:
        hour: number, from 0.
        mean: mean over sources.
        p90: 90th percentile over sources.
        lowest_p90: least 90th percentile of a workload against its own mean over the hours; 1 is
            no change.
        highest_p90: the greatest.
        changed: entries of the matrix that changed by more than the threshold since the hour
            before.
        median_change: median of those changes, ms; NaN without any.
    """

    hour: int
    mean: float
    p90: float
    lowest_p90: float
    highest_p90: float
    changed: int
    median_change: float


@dataclass(frozen=True)
class Result:
    """The figure's numbers.

    Attributes:
        latencies: where they come from.
        nodes: how many.
        hours: the figure.
        p90_range: greatest deviation of an hour's 90th percentile (means over workloads) from the
            mean over the hours, as a share.
        mean_range: the same of the mean.
        worst_workload: greatest such deviation of a single workload's 90th percentile.
    """

    latencies: str
    nodes: int
    hours: list[Hour]
    p90_range: float
    mean_range: float
    worst_workload: float


class Fig9(Figure[Fig9Parameters, Result]):
    """A fixed placement while latencies change over the hours."""

    name = "fig9"
    source = "Nova, section 4.5, Figure 9"
    Parameters = Fig9Parameters
    data = "measured latencies"
    # Lowest and highest of 24 hours, ms; entries that change in an hour, and median change, ms.
    published: ClassVar[Mapping[str, tuple[float, float]]] = {
        "p90": (489, 522),
        "mean": (228, 241),
        "changed": (7_000, 14_000),
        "median_change": (24, 24),
    }
    quick: ClassVar = {"workloads": 2}

    def run(self, parameters: Fig9Parameters, run: Run) -> Result:
        """Place on the first hour's estimates, evaluate on every hour's matrix."""
        source, ids, hours = latencies(
            run.data, parameters.latencies, parameters.synthetic_nodes, parameters.synthetic_hours
        )
        space = space_for(ids, hours[0], parameters.space, parameters.neighbours)
        mean, p90 = (np.empty((parameters.workloads, len(hours))) for _ in range(2))
        for seed in range(parameters.workloads):
            run.advance(seed, parameters.workloads)
            problem = workload(ids, hours[0], parameters.heterogeneity, seed)
            plan = create("nova").place(placed_in(problem, space, parameters.space.heights))
            for hour, latency in enumerate(hours):
                measured = evaluate(plan, latency).measured
                assert measured is not None
                mean[seed, hour], p90[seed, hour] = measured.mean, measured.p90
        run.advance(parameters.workloads, parameters.workloads)
        return Result(
            source,
            len(ids),
            _hours(hours, mean, p90, parameters.threshold),
            _range(p90.mean(axis=0)),
            _range(mean.mean(axis=0)),
            max(_range(row) for row in p90),
        )

    def tables(self, result: Result) -> list[Table]:
        """A row per hour."""
        title = f"A fixed placement on {result.nodes} nodes ({result.latencies}), measured, ms"
        columns: dict[str, Column] = {
            ">hour": "hour",
            ">mean": "mean",
            ">90P": "p90",
            ">90P / its mean, lowest": ("lowest_p90", 3),
            ">highest": ("highest_p90", 3),
            ">changed": "changed",
            ">by": "median_change",
        }
        caption = "changed: entries of the matrix since the hour before, by how much (median)"
        return [listed("fig9", title, result.hours, columns, caption)]

    def words(self, result: Result) -> list[str]:
        """Differences between the hours, beside the published ones."""
        p90, mean = ([getattr(one, what) for one in result.hours] for what in ("p90", "mean"))
        shares = [100 * (max(v) - min(v)) / (max(v) + min(v)) for v in self.published.values()][:2]
        return [
            f"90P stays within {100 * result.p90_range:.1f} % of its mean over the hours, the mean "
            f"within {100 * result.mean_range:.1f} %; of single workloads 90P within "
            f"{100 * result.worst_workload:.1f} %",
            f"90P {min(p90):.0f} to {max(p90):.0f} ms, mean {min(mean):.0f} to {max(mean):.0f} ms "
            f"(published: 489 to 522 and 228 to 241 ms, within {shares[0]:.1f} and "
            f"{shares[1]:.1f} % of the middle)",
        ]

    def draw(self, result: Result) -> Drawing:
        """Mean and 90th percentile over the hours, with a band of 5 %."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(7.5, 4.2))
        axes = figure.add_subplot()
        hour = [each.hour for each in result.hours]
        for name, label, colour in (
            ("p90", "90th percentile", "#D55E00"),
            ("mean", "mean", "#0072B2"),
        ):
            values = np.array([getattr(each, name) for each in result.hours])
            low, high = 0.95 * values.mean(), 1.05 * values.mean()
            axes.plot(hour, values, marker="o", color=colour, label=label)
            axes.fill_between(hour, low, high, color=colour, alpha=0.12, linewidth=0)
            for published in self.published[name]:
                axes.axhline(published, color=colour, linestyle=":", linewidth=0.8)
        axes.set_ylim(bottom=0)
        axes.set_xticks(hour)
        axes.set_xlabel("hour (bands: 5 % around the mean over the hours; dotted: published)")
        axes.set_ylabel("measured latency, ms")
        axes.legend(frameon=False, loc="lower right")
        figure.suptitle(f"A fixed placement: {result.latencies}", x=0.01, ha="left", fontsize=10)
        return figure


def _range(values: Floats) -> float:
    return float(np.abs(values / values.mean() - 1).max())


def _hours(hours: list[Floats], mean: Floats, p90: Floats, threshold: float) -> list[Hour]:
    relative = p90 / p90.mean(axis=1, keepdims=True)
    rows = []
    for hour, latency in enumerate(hours):
        change = np.abs(latency - hours[max(hour - 1, 0)])
        change = change[change > threshold]
        rows.append(
            Hour(
                hour=hour,
                mean=float(mean[:, hour].mean()),
                p90=float(p90[:, hour].mean()),
                lowest_p90=float(relative[:, hour].min()),
                highest_p90=float(relative[:, hour].max()),
                changed=len(change),
                median_change=float(np.median(change)) if len(change) else np.nan,
            )
        )
    return rows
