"""The cost space of a problem of any size: where nodes, joins and load are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core.plotting import save_figure
from nova_core.plotting.parts import GREY, INK, bare

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    with np.load(density) as found:
        low, high = found["low"], found["high"]
        with np.errstate(invalid="ignore", divide="ignore"):
            used = 100 * found["load"] / found["capacity"]
        panels = (
            ("nodes per square", found["nodes"], "Blues"),
            ("virtual positions of joins per square", found["joins"], "Purples"),
            ("load, % of capacity", used, "viridis"),
        )
    figure = Figure(figsize=(15, 5.2), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11)
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
