"""Plots of few nodes: every node by name, every flow, and the load of each pair on a node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.io.syntax import listed
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.model.verify import TOLERANCE
from nova_core.plotting.parts import (
    BLUE,
    BY_PAIR,
    GREEN,
    GREY,
    INK,
    PALE,
    PURPLE,
    SKY,
    VERMILLION,
    Space,
    area_of,
    flows_of,
    legend_mark,
    plain,
    reference_of,
    roles,
    scatter,
    virtual_positions,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAIR_COLOURS = 6
LARGEST = 700.0

# Where a label may go: direction, and how many times the mark's radius away; the best first.
SIDES = tuple(
    (dx, dy, far)
    for far in (1.0, 1.8)
    for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))
)


def draw_detailed(axes: Axes, problem: Problem, plan: Plan | None, space: Space) -> None:
    """Draw a problem of few nodes, with a plan of it if given."""
    produces, consumes = roles(problem)
    xy, nodes = space.node, problem.nodes
    reference = reference_of(nodes.capacity)
    area = area_of(nodes.capacity, reference, LARGEST, 30.0)
    host = nodes.worker
    scatter(axes, xy[host], s=area[host], facecolor=PALE, edgecolor=GREY, linewidth=0.8, zorder=2)
    legend_mark(axes, "o", PALE, "may host joins (size: capacity)", markeredgecolor=GREY)
    kept = ~host & (nodes.capacity > 0)
    if kept.any():
        style: dict[str, Any] = {"facecolor": "none", "edgecolor": GREY, "linestyle": ":"}
        scatter(axes, xy[kept], s=area[kept], linewidth=0.8, zorder=2, **style)
        legend_mark(axes, "o", "none", "has capacity, but is no worker", markeredgecolor=GREY)
    scatter(axes, xy[produces], s=70, marker="^", color=INK, zorder=6, label="source")
    scatter(axes, xy[consumes], s=190, marker="*", color=INK, zorder=6, label="sink")
    occupied = [xy]
    if plan is not None:
        occupied.append(_draw_plan(axes, plan, space, reference))
    labels = [str(name) for name in nodes.ids]
    if plan is not None:
        load = plan.load
        for v in np.flatnonzero(load > 0):
            labels[v] += f"  {load[v]:g} / {_amount(nodes.capacity[v])}"
    radius = np.sqrt(area / np.pi) * host
    _label(axes, xy, labels, np.maximum(radius, 5.0), np.concatenate(occupied))


def _amount(capacity: float) -> str:
    return f"{capacity:g}" if np.isfinite(capacity) else "unlimited"


def _draw_plan(axes: Axes, plan: Plan, space: Space, reference: float) -> Floats:
    """Draw flows, virtual positions and replicas; returns points that labels must avoid."""
    from matplotlib.lines import Line2D

    problem, i = plan.problem, plan.instances
    by_pair = plan.operator_count <= PAIR_COLOURS
    flows = list(flows_of(plan, np.arange(len(i))))
    widest = max([flow.rate for flow in flows], default=1.0)
    keep_clear: list[Floats] = []
    radius = np.sqrt(area_of(problem.nodes.capacity, reference, LARGEST, 30.0) / np.pi)
    for flow in flows:
        colour = BY_PAIR[flow.operator] if by_pair else (GREEN if flow.result else BLUE)
        # Pairs and legs that share two nodes bow apart.
        bend = 0.06 + 0.05 * (flow.operator % PAIR_COLOURS) if by_pair else 0.08
        gap = 9.0 if flow.result else float(radius[flow.stops[-1]]) + 2.0
        width = 0.8 + 1.6 * flow.rate / widest
        for a, b in pairwise(space.node[flow.stops]):
            if not np.allclose(a, b):
                keep_clear.append(_arrow(axes, a, b, colour, width, bend, flow.result, gap))
    _draw_hosts(axes, plan, space, reference, by_pair)
    ideal = virtual_positions(plan, space)
    if ideal is not None:
        known = np.asarray(np.isfinite(ideal).all(axis=1))
        colours = [BY_PAIR[q] if by_pair else PURPLE for q in np.flatnonzero(known)]
        for k in range(len(i)):
            if known[i.pair[k]]:
                ends = np.stack([ideal[i.pair[k]], space.node[i.node[k]]])
                colour = BY_PAIR[int(i.pair[k])] if by_pair else PURPLE
                axes.plot(*ends.T, color=colour, linewidth=1.0, linestyle=":", zorder=4)
        scatter(
            axes,
            ideal[known],
            s=40,
            marker="X",
            c=colours,
            edgecolor="white",
            zorder=7,
            linewidth=0.8,
        )
        legend_mark(axes, "X", GREY, "virtual position (ideal)")
        axes.add_line(
            Line2D([], [], color=GREY, linestyle=":", label="from ideal to where it runs")
        )
        keep_clear.append(ideal[known])
    axes.add_line(Line2D([], [], color=GREY, linewidth=2, label="input to host (width: rate)"))
    axes.add_line(Line2D([], [], color=GREY, linewidth=2, linestyle="--", label="result to sink"))
    if by_pair:
        for pair in range(plan.operator_count):
            hosts = problem.nodes.ids[np.unique(i.node[i.pair == pair])]
            name = f"{plan.operator_name(pair)} on {listed(hosts.tolist(), 4)}"
            axes.add_line(Line2D([], [], color=BY_PAIR[pair], linewidth=4, label=plain(name)))
    return np.concatenate([*keep_clear, space.node[np.unique(i.node)]])


def _draw_hosts(axes: Axes, plan: Plan, space: Space, reference: float, by_pair: bool) -> None:
    """What each node receives, as a disc inside the one of its capacity; a slice per pair."""
    nodes, i = plan.problem.nodes, plan.instances
    over = plan.load > nodes.capacity * (1 + TOLERANCE)
    area = area_of(plan.load, reference, LARGEST, 24.0)
    for v in np.unique(i.node):
        here = np.flatnonzero(i.node == v)
        rate = np.zeros(plan.operator_count)
        np.add.at(rate, i.pair[here], plan.added_load[here])
        pairs = np.flatnonzero(rate)
        edge = VERMILLION if over[v] else "white"
        _pie(axes, space.node[v], area[v], rate[pairs], pairs if by_pair else None, edge)
    legend_mark(axes, "o", GREY, "replicas (size: load)")
    if over.any():
        legend_mark(axes, "o", GREY, "overloaded", markeredgecolor=VERMILLION, markeredgewidth=2.5)


def _pie(axes: Axes, at: Floats, area: float, parts: Floats, pairs: Ints | None, edge: str) -> None:
    """A disc with a slice per pair; a marker, so that its size does not depend on the axes."""
    if pairs is None or len(pairs) <= 1:
        colour = SKY if pairs is None or not len(pairs) else BY_PAIR[int(pairs[0])]
        scatter(axes, at[None], s=area, color=colour, edgecolor=edge, linewidth=1.5, zorder=5)
        return
    turns = np.concatenate(([0.0], np.cumsum(parts / parts.sum())))
    for pair, begin, end in zip(pairs, turns[:-1], turns[1:], strict=True):
        angle = 2 * np.pi * (0.25 - np.linspace(begin, end, 40))
        rim = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        slice_ = np.concatenate([[[0.0, 0.0]], rim])
        # A marker given by its outline is scaled to its own extent, which undoes the slice's.
        extent = float(np.abs(slice_).max())
        scatter(
            axes,
            at[None],
            s=area * extent**2,
            marker=slice_,
            color=BY_PAIR[int(pair)],
            edgecolor=edge,
            linewidth=0.8,
            zorder=5,
        )


def _arrow(
    axes: Axes,
    a: Floats,
    b: Floats,
    colour: str,
    width: float,
    bend: float,
    result: bool,
    gap: float,
) -> Floats:
    """A bowed arrow that ends ``gap`` points before ``b``; points along it."""
    axes.annotate(
        "",
        xy=(float(b[0]), float(b[1])),
        xytext=(float(a[0]), float(a[1])),
        arrowprops={
            "arrowstyle": "-|>,head_width=0.22,head_length=0.45",
            "connectionstyle": f"arc3,rad={bend}",
            "color": colour,
            "linewidth": width,
            "linestyle": (0, (4, 2)) if result else "-",
            "alpha": 0.8,
            "shrinkA": 5,
            "shrinkB": gap,
        },
        zorder=3,
    )
    # The curve matplotlib draws is quadratic; its middle anchor lies off the chord by ``bend``.
    along = b - a
    middle = (a + b) / 2 + bend * np.array([along[1], -along[0]])
    at = np.linspace(0, 1, 15)[:, None]
    return np.asarray((1 - at) ** 2 * a + 2 * at * (1 - at) * middle + at**2 * b)


def _label(axes: Axes, xy: Floats, names: Sequence[str], radius: Floats, occupied: Floats) -> None:
    """Name points, each on the side where least is in the way.

    Args:
        axes: to draw on.
        xy: (k, 2) points.
        names: their labels.
        radius: (k,) of the marks there, points.
        occupied: (m, 2) points that labels should not cover.
    """
    from matplotlib.patheffects import withStroke

    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.autoscale_view()
    figure.draw_without_rendering()
    to_points = 72.0 / figure.dpi
    at = axes.transData.transform(xy) * to_points
    others = axes.transData.transform(occupied) * to_points
    frame = axes.bbox.get_points() * to_points
    taken: list[tuple[Floats, Floats]] = []
    for k, name in enumerate(names):
        size = np.array([5.0 * len(name), 9.0])
        gap = radius[k] + 3.0
        best: tuple[float, Floats, tuple[float, float]] | None = None
        for rank, (dx, dy, far) in enumerate(SIDES):
            reach = gap * far / np.hypot(dx, dy)
            centre = at[k] + np.array([dx, dy]) * (reach + size / 2)
            low, high = centre - size / 2, centre + size / 2
            points = ((others > low - 3) & (others < high + 3)).all(axis=1).sum()
            boxes = sum(bool((low < h).all() and (high > other).all()) for other, h in taken)
            outside = bool((low < frame[0]).any() or (high > frame[1]).any())
            cost = float(points) + 3.0 * boxes + 5.0 * outside + (far > 1) + 0.01 * rank
            if best is None or cost < best[0]:
                best = (cost, np.stack([low, high]), tuple(centre - at[k]))
        assert best is not None
        taken.append((best[1][0], best[1][1]))
        axes.annotate(
            plain(name),
            xy=(float(xy[k, 0]), float(xy[k, 1])),
            xytext=best[2],
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            color=INK,
            zorder=8,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
