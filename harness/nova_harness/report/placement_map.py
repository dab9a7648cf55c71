"""A map of a placement, as `nova plot` draws it, but small enough for several side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_core.plotting import DETAILED
from nova_core.plotting.detailed import draw_detailed
from nova_core.plotting.large import draw_large
from nova_core.plotting.parts import GREY, Space, bare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nova_core.model.plan import Plan

SIZE = (6.4, 5.4)


def draw_map(plan: Plan) -> Figure:
    """Nodes where the cost space has them, what they host, and flows of tuples and results."""
    from matplotlib.figure import Figure

    problem = plan.problem
    space = Space.of(problem)
    figure = Figure(figsize=SIZE, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    few = len(problem.nodes) <= DETAILED
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.14 if few else 0.04)
    bare(axes)
    axes.set_xlabel("ms", color=GREY, fontsize=8)
    if few:
        draw_detailed(axes, problem, plan, space)
    else:
        draw_large(axes, problem, plan, space, 0)
    return figure
