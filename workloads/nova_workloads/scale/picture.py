"""The cost space of a problem of any size: where nodes, joins and load are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core.model.problem import Floats
from nova_core.plotting import save_figure
from nova_core.plotting.parts import GREY, INK, bare, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Nodes that a square holds on average, and squares along a side even of few nodes.
PER_SQUARE = 5
LEAST_SIDE = 16


def draw(density: Path, picture: Path, title: str) -> None:
    """Draw what `nova_workloads.scale.check` counted in squares of the plane.

    Args:
        density: its file.
        picture: a ``.png`` or ``.svg`` file.
        title: of the picture.

    Raises:
        NovaError: when it cannot be written.
    """
    save_figure(lambda: _figure(density, title), picture)


def _figure(density: Path, title: str) -> Figure:
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    with np.load(density) as arrays:
        low, high = arrays["low"], arrays["high"]
        nodes, joins, load, capacity = (
            _merged(arrays[name], float(arrays["nodes"].sum()))
            for name in ("nodes", "joins", "load", "capacity")
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        used = 100 * load / capacity
    panels = (
        ("nodes per square", nodes, "Blues"),
        ("virtual positions of joins per square", joins, "Purples"),
        ("load, % of capacity", used, "viridis"),
    )
    figure = Figure(figsize=(15, 5.2), layout="constrained", facecolor="white")
    figure.suptitle(plain(title), x=0.01, ha="left", color=INK, fontsize=11)
    box = (low[0], high[0], low[-1], high[-1]) if len(low) > 1 else (low[0], high[0], 0, 1)
    for number, (label, values, colours) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, 3, number)
        bare(axes)
        shown = np.where(values > 0, values, np.nan).T
        norm = None if "%" in label else LogNorm(1, max(float(np.nanmax(shown)), 2.0))
        image = axes.imshow(
            shown, origin="lower", extent=box, cmap=colours, norm=norm, interpolation="nearest"
        )
        axes.set_xlabel("x, ms", color=GREY, fontsize=9)
        axes.set_ylabel("y, ms", color=GREY, fontsize=9)
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.set_label(label, fontsize=9, color=INK)
    return figure


def _merged(counts: Floats, nodes: float) -> Floats:
    """Fewer and larger squares where there are few nodes."""
    side = len(counts)
    while side > LEAST_SIDE and nodes / side**2 < PER_SQUARE:
        side //= 2
    step = len(counts) // side
    return np.asarray(counts.reshape(side, step, side, step).sum(axis=(1, 3)))
