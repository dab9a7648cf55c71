"""A picture of a cost space: the nodes with their heights, and estimates against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core.model.problem import PairLatencies
from nova_core.plotting.parts import BLUE, GREY, INK, VERMILLION, bare, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from nova_core.costspace import CostSpace

# Above this many pairs a sample is drawn, so that the picture stays small.
MOST_PAIRS = 20_000
MOST_NODES = 20_000


def draw_space(name: str, space: CostSpace, pairs: PairLatencies | None) -> Figure:
    """Draw a cost space: a map, and beside it estimated over measured latencies if there are any.

    Of a space of more than two dimensions the map shows the first two, which are the principal
    ones of an embedding. A node's circle grows with its height.

    Args:
        name: for the title.
        space: n nodes.
        pairs: measured latencies, or None.
    """
    from matplotlib.figure import Figure

    count = 1 if pairs is None else 2
    figure = Figure(figsize=(6.2 * count, 5.6), layout="constrained", facecolor="white")
    panels = figure.subplots(1, count, squeeze=False)[0]
    _map(panels[0], space)
    if pairs is not None:
        _scatter(panels[1], space, pairs)
    for axes in panels:
        bare(axes)
    heights = "" if space.height is None else " and heights"
    title = f"{name}: {len(space):,} nodes in {space.dimensions} dimensions{heights}"
    figure.suptitle(plain(title), x=0.01, ha="left", color=INK, fontsize=10.5)
    return figure


def _map(axes: Axes, space: CostSpace) -> None:
    node = np.arange(len(space))
    if len(node) > MOST_NODES:
        node = np.sort(np.random.default_rng(0).choice(node, MOST_NODES, replace=False))
    x = space.position[node, 0]
    y = space.position[node, 1] if space.dimensions > 1 else np.zeros(len(node))
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("x, ms", color=GREY, fontsize=9)
    axes.set_ylabel("y, ms" if space.dimensions > 1 else "", color=GREY, fontsize=9)
    if space.height is not None:
        height = space.height[node]
        # In proportion, most circles would be dots or the greatest would cover the rest.
        tallest = max(float(height.max(initial=0.0)), 1e-9)
        axes.scatter(
            x, y, s=6 + 300 * height / tallest, color=VERMILLION, alpha=0.25, linewidths=0,
            label=f"height, up to {tallest:.0f} ms",
        )  # fmt: skip
    axes.scatter(x, y, s=7, color=BLUE, linewidths=0, label="node")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper right")


def _scatter(axes: Axes, space: CostSpace, pairs: PairLatencies) -> None:
    row = np.arange(len(pairs))
    if len(row) > MOST_PAIRS:
        row = np.sort(np.random.default_rng(0).choice(row, MOST_PAIRS, replace=False))
    measured = pairs.latency[row]
    estimate = space.distance(pairs.source[row], pairs.target[row])
    top = float(np.percentile(np.concatenate([measured, estimate]), 99.5))
    axes.plot([0, top], [0, top], color=INK, linewidth=0.8, label="estimate = measurement")
    axes.scatter(
        measured, estimate, s=3, color=BLUE, alpha=0.15, linewidths=0, rasterized=True,
        label=f"{len(row):,} of {len(pairs):,} pairs",
    )  # fmt: skip
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.set_xlabel("measured, ms", color=GREY, fontsize=9)
    axes.set_ylabel("estimated, ms", color=GREY, fontsize=9)
    legend = axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left")
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)


def save_space_plot(
    path: Path, name: str, space: CostSpace, pairs: PairLatencies | None, dpi: int = 150
) -> None:
    """Draw into a PNG or SVG file, see `draw_space`.

    Raises:
        NovaError: for another suffix, or when the file cannot be written.
    """
    from nova_core.plotting import save_figure

    save_figure(lambda: draw_space(name, space, pairs), path, dpi)
