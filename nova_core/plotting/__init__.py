"""Pictures of a placement: the cost space with its nodes, virtual positions, replicas and flows.

Up to `DETAILED` nodes everything is drawn and named; above, nodes become a density and flows are
sampled, and the legend says so. Colours are Okabe and Ito's, which colour-blind people can tell
apart; marks differ in shape as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.plotting.detailed import draw_detailed
from nova_core.plotting.large import draw_large
from nova_core.plotting.parts import GREY, INK, Space, bare, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
DETAILED = 60
NOTE_WIDTH = 100


def save_plot(
    problem: Problem,
    plan: Plan | None,
    path: str | Path,
    *,
    seed: int = 0,
    dpi: int = 150,
    note: str = "",
) -> None:
    """Draw a problem, with a plan of it if given, into a PNG or SVG file.

    Args:
        problem: the topology and what is to be joined.
        plan: where it runs, or None for the problem alone.
        path: a ``.png`` or ``.svg`` file; written completely or not at all.
        seed: of the sample of flows in large plots.
        dpi: resolution of a PNG, and of what is rasterised in an SVG.
        note: a sentence below the title.

    Raises:
        NovaError: for another suffix, or when the file cannot be written.
    """
    save_figure(lambda: draw(problem, plan, seed, note), path, dpi)


def checked_suffix(path: str | Path) -> str:
    """The suffix of a figure's file.

    Raises:
        NovaError: for another one than those of `FORMATS`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise NovaError(f"{path}: a plot is a {' or '.join(FORMATS)} file, not {suffix!r}")
    return suffix


def save_figure(draw: Callable[[], Figure], path: str | Path, dpi: int = 150) -> None:
    """Draw and write a figure; the same figure gives the same bytes.

    Args:
        draw: creates the figure; called after the suffix is checked.
        path: a ``.png`` or ``.svg`` file; written completely or not at all.
        dpi: resolution of a PNG, and of what is rasterised in an SVG.

    Raises:
        NovaError: for another suffix, or when the file cannot be written.
    """
    suffix = checked_suffix(path)
    from matplotlib import rc_context

    from nova_core.io.safe_files import atomic_write

    # No date, no random ids.
    metadata = {"Date": None} if suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "nova", "font.family": "DejaVu Sans"}):
        figure = draw()
        with atomic_write(path) as file:
            figure.savefig(file, format=suffix[1:], dpi=dpi, metadata=metadata)


def draw(problem: Problem, plan: Plan | None = None, seed: int = 0, note: str = "") -> Figure:
    """The figure of `save_plot`."""
    from matplotlib.figure import Figure

    space = Space.of(problem)
    width, height = np.ptp(space.node, axis=0)
    shape = float(np.clip(8.0 * height / max(width, 1e-9), 6.0, 9.5))
    figure = Figure(figsize=(10.5, shape), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    count = len(problem.nodes)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.1 if count <= DETAILED else 0.04)
    bare(axes)
    axes.set_xlabel(space.labels[0], color=GREY, fontsize=9)
    axes.set_ylabel(space.labels[1], color=GREY, fontsize=9)
    title = "\n".join([_title(problem, plan), *wrap(note, NOTE_WIDTH)])
    figure.suptitle(plain(title), x=0.01, ha="left", color=INK, fontsize=10.5)
    if count <= DETAILED:
        draw_detailed(axes, problem, plan, space)
    else:
        draw_large(axes, problem, plan, space, seed)
    figure.legend(
        loc="outside right upper",
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handletextpad=0.9,
        labelspacing=0.9,
    )
    return figure


def _title(problem: Problem, plan: Plan | None) -> str:
    one, many = ("query", "queries") if problem.queries else ("pair", "pairs")
    count = len(problem.queries) or len(problem.matrix)
    what = f"{count:,} {one if count == 1 else many}"
    if plan is None:
        return f"{problem.name}\n{len(problem.nodes):,} nodes, {what}"
    broken = " (may overload)" if "capacity" in plan.breaks else ""
    return (
        f"{problem.name} placed with {plan.strategy}{broken}\n{what} in "
        f"{len(plan.instances):,} instances on {len(np.unique(plan.instances.node)):,} of "
        f"{len(problem.nodes):,} nodes"
    )
