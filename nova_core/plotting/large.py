"""Plots of many nodes: densities instead of nodes, a sample of the flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Problem
from nova_core.model.verify import TOLERANCE
from nova_core.plotting.parts import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    VERMILLION,
    Space,
    area_of,
    flows_of,
    legend_mark,
    reference_of,
    roles,
    scatter,
    virtual_positions,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCATTERED = 3_000
FLOWS = 400


def draw_large(axes: Axes, problem: Problem, plan: Plan | None, space: Space, seed: int) -> None:
    """Draw a problem of many nodes, with a sample of a plan's flows if given."""
    produces, consumes = roles(problem)
    xy, nodes = space.node, problem.nodes
    if len(nodes) <= SCATTERED:
        plain = nodes.worker & ~produces & ~consumes
        area = area_of(nodes.capacity, reference_of(nodes.capacity), 40.0, 3.0)
        style: dict[str, Any] = {
            "facecolor": PALE,
            "edgecolor": GREY,
            "linewidth": 0.4,
            "rasterized": True,
        }
        scatter(axes, xy[plain], s=area[plain], zorder=2, **style)
        legend_mark(axes, "o", PALE, "worker (size: capacity)", markeredgecolor=GREY)
        scatter(axes, xy[produces], s=9, marker="^", color=GREY, linewidth=0, rasterized=True)
        legend_mark(axes, "^", GREY, "source")
    else:
        _draw_density(axes, plan, xy)
    if plan is not None:
        _draw_flows(axes, plan, space, seed)
    scatter(
        axes, xy[consumes], s=240, marker="*", color=INK, edgecolor="white", zorder=9, label="sink"
    )


def _draw_density(axes: Axes, plan: Plan | None, xy: Floats) -> None:
    """Cells: how many nodes are in each, or with a plan, the share that runs replicas."""
    from matplotlib.colors import LinearSegmentedColormap

    style: dict[str, Any] = {"gridsize": 80, "linewidths": 0, "zorder": 1, "rasterized": True}
    if plan is None:
        image = axes.hexbin(xy[:, 0], xy[:, 1], bins="log", mincnt=1, cmap="Blues", **style)
        meaning = "nodes per cell"
    else:
        hosts = np.zeros(len(xy))
        hosts[plan.instances.node] = 100.0
        colours = LinearSegmentedColormap.from_list("hosts", [PALE, "#9fd3bf", GREEN])
        image = axes.hexbin(
            xy[:, 0], xy[:, 1], C=hosts, reduce_C_function=np.mean, cmap=colours, **style
        )
        meaning = "nodes that run replicas, %"
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.35, pad=0.01, anchor=(0, 0))
    bar.set_label(meaning, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7, colors=GREY)
    bar.outline.set_visible(False)


def _draw_flows(axes: Axes, plan: Plan, space: Space, seed: int) -> None:
    """Flows and virtual positions of (a sample of) the instances, and the hosts."""
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    i = plan.instances
    shown = np.arange(len(i))
    if len(i) > FLOWS:
        shown = np.sort(np.random.default_rng(seed).choice(len(i), FLOWS, replace=False))
    flows: dict[str, list[Floats]] = {"input to host": [], "result to sink": []}
    for flow in flows_of(plan, shown):
        kind = "result to sink" if flow.result else "input to host"
        flows[kind].append(space.node[flow.stops])
    fade = float(np.clip(60 / max(len(shown), 1), 0.28, 0.6))
    for (kind, lines), colour in zip(flows.items(), (BLUE, ORANGE), strict=True):
        axes.add_collection(
            LineCollection(lines, colors=colour, linewidths=0.6, alpha=fade, zorder=3)
        )
        axes.add_line(Line2D([], [], color=colour, linewidth=1.5, label=kind))
    _draw_many_hosts(axes, plan, space)
    ideal = virtual_positions(plan, space)
    if ideal is not None:
        points = ideal[np.unique(i.pair[shown])]
        scatter(axes, points, s=14, marker="X", color=PURPLE, linewidth=0, zorder=5)
        legend_mark(axes, "X", PURPLE, "virtual position (ideal)")
    if len(shown) < len(i):
        note = f"flows and ideals: a sample,\n{len(shown):,} of {len(i):,} instances"
        axes.add_line(Line2D([], [], linestyle="", label=note))


def _draw_many_hosts(axes: Axes, plan: Plan, space: Space) -> None:
    hosts = np.unique(plan.instances.node)
    over = plan.load[hosts] > plan.problem.nodes.capacity[hosts] * (1 + TOLERANCE)
    # With very many nodes, the cells show where replicas run.
    kinds = [(over, VERMILLION, "D", "overloaded")]
    if len(plan.problem.nodes) <= SCATTERED:
        kinds.append((~over, GREEN, "o", "runs replicas"))
    for which, colour, marker, name in kinds:
        if which.any():
            size = 16.0 if len(plan.problem.nodes) <= SCATTERED else 5.0
            points = space.node[hosts[which]]
            scatter(
                axes, points, s=size, marker=marker, color=colour, lw=0, zorder=4, rasterized=True
            )
            legend_mark(axes, marker, colour, f"{name} ({which.sum():,})")
