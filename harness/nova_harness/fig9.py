"""Figure 9 of the paper: a placement that stays while latencies change over the hours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_core.evaluation import evaluate
from nova_core.model.problem import Floats
from nova_core.strategies.base import create
from nova_harness.figure_inputs import (
    SpaceParameters,
    drifted,
    measured_matrix,
    placed_in,
    space_for,
    synthetic_matrix,
    workload,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Fig9(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment, see ``harness/experiments/fig9.yaml``."""

    experiment: int
    latencies: list[str]
    synthetic_nodes: int
    synthetic_hours: int
    neighbours: int
    space: SpaceParameters
    workloads: int
    heterogeneity: float
    threshold: float


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


def run(
    asked: Fig9, data: Path | None, advance: Callable[[int, int], None] = lambda *_: None
) -> Result:
    """Run the experiment: place on the first hour's estimates, judge by every hour's matrix.

    Args:
        asked: its parameters.
        data: directory of the measured latencies; None takes a synthetic internet.
        advance: called with steps done and steps in all.

    Raises:
        NovaError: when the latencies are not there, or of different nodes.
    """
    if data is None:
        ids, first = synthetic_matrix(asked.synthetic_nodes)
        hours = drifted(first, asked.synthetic_hours)
        source = f"synthetic internet of {len(ids)} hosts"
    else:
        read = [measured_matrix(data, name) for name in asked.latencies]
        ids, hours = read[0][0], [latency for _, latency in read]
        for name, (others, _) in zip(asked.latencies, read, strict=True):
            if not np.array_equal(others, ids):
                raise NovaError(f"{data / name}: other nodes than {asked.latencies[0]}")
        source = f"{asked.latencies[0]} and {len(hours) - 1} more"
    space = space_for(ids, hours[0], asked.space, asked.neighbours)
    mean, p90 = (np.empty((asked.workloads, len(hours))) for _ in range(2))
    for seed in range(asked.workloads):
        advance(seed, asked.workloads)
        problem = workload(ids, hours[0], asked.heterogeneity, seed)
        plan = create("nova").place(placed_in(problem, space, asked.space.heights))
        for hour, latency in enumerate(hours):
            found = evaluate(plan, latency).measured
            assert found is not None
            mean[seed, hour], p90[seed, hour] = found.mean, found.p90
    advance(asked.workloads, asked.workloads)
    return Result(
        source,
        len(ids),
        _hours(hours, mean, p90, asked.threshold),
        _range(p90.mean(axis=0)),
        _range(mean.mean(axis=0)),
        max(_range(row) for row in p90),
    )


def _range(values: Floats) -> float:
    return float(np.abs(values / values.mean() - 1).max())


def _hours(hours: list[Floats], mean: Floats, p90: Floats, threshold: float) -> list[Hour]:
    relative = p90 / p90.mean(axis=1, keepdims=True)
    found = []
    for hour, latency in enumerate(hours):
        change = np.abs(latency - hours[max(hour - 1, 0)])
        change = change[change > threshold]
        found.append(
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
    return found


def draw(result: Result) -> Figure:
    """The figure: mean and 90th percentile over the hours, with a band of 5 %."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    hour = [each.hour for each in result.hours]
    for name, label, colour in (
        ("p90", "90th percentile", "#D55E00"),
        ("mean", "mean", "#0072B2"),
    ):
        values = np.array([getattr(each, name) for each in result.hours])
        middle = values.mean()
        axes.plot(hour, values, marker="o", color=colour, label=label)
        axes.fill_between(hour, 0.95 * middle, 1.05 * middle, color=colour, alpha=0.12, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_xticks(hour)
    axes.set_xlabel("hour (bands: 5 % around the mean over the hours)")
    axes.set_ylabel("measured latency, ms")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.suptitle(f"A fixed placement: {result.latencies}", x=0.01, ha="left", fontsize=10)
    return figure
