"""The figures of a report: distributions, latency over results, percentiles, load of hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nova_core.model.problem import Floats
from nova_core.plotting.parts import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    VERMILLION,
    plain,
)
from nova_harness.report.groups import LEVELS, PERCENTILES, Group, Setting
from nova_harness.report.recovery import REPLACED, Course

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_WIDTH, WIDTH = 7.4, 10.5
COLUMNS = 4
MOST_TICKS = 5
# Beyond the 99.99th percentile, a distribution would stretch the axis for one result.
MOST_SHARE = 0.9999
STRETCHES = 80
MOST_NAMED_HOSTS = 20
FULL, BUSY = 0.95, 0.8
_OTHERS = (VERMILLION, GREEN, ORANGE, PURPLE, SKY, GREY)
_DASHES = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
_TICKS = ("mean", "90 %", "99 %", "99.9 %", "99.99 %")


@dataclass(frozen=True)
class Mark:
    """How a strategy is drawn; shape differs as well as colour."""

    colour: str
    dash: Any
    width: float
    hatch: str


def marks_of(strategies: Sequence[str], subject: str | None) -> dict[str, Mark]:
    """A look for each strategy; the subject stands out and comes first."""
    ordered = sorted(strategies, key=lambda name: name != subject)
    marks = {}
    for number, name in enumerate(ordered):
        if name == subject:
            marks[name] = Mark(BLUE, "-", 2.2, "")
        else:
            k = number - (subject in ordered)
            turn = k // len(_OTHERS)
            marks[name] = Mark(
                _OTHERS[k % len(_OTHERS)],
                _DASHES[(k + turn) % len(_DASHES)],
                1.5,
                ("", "//")[turn % 2],
            )
    return marks


@dataclass(frozen=True)
class Trend:
    """Latency over the results that have arrived, in stretches of equally many.

    Attributes:
        results: (s,) results that had arrived by the end of each stretch.
        low: (s,) 5th percentile of each stretch, ms.
        middle: (s,) median, ms.
        high: (s,) 95th percentile, ms.
    """

    results: Floats
    low: Floats
    middle: Floats
    high: Floats

    @classmethod
    def of(cls, latency_us: Floats) -> Trend:
        """From (k,) latencies in the order of arrival, us."""
        ends = np.unique(np.linspace(0, len(latency_us), STRETCHES + 1).astype(np.int64))
        parts = [latency_us[a:b] / 1000 for a, b in pairwise(ends.tolist())]
        levels = [np.quantile(part, [0.05, 0.5, 0.95]) for part in parts]
        low, middle, high = np.array(levels).reshape(-1, 3).T
        return cls(ends[1:].astype(float), low, middle, high)


def name_of(setting: Setting, *, rate: bool = False) -> str:
    """A setting in words."""
    load = "under stress" if setting.stress else "calm"
    at = f", {setting.rate:g} tuples/s" if rate else ""
    if setting.engine:
        at += f", {setting.engine[:1].upper()}{setting.engine[1:]}"
    return f"{setting.window_ms:,} ms windows, {load}{at}"


def _rows(settings: Sequence[Setting], pairs: bool) -> list[list[Setting]]:
    loads = [[s for s in settings if s.stress == stress] for stress in (False, True)]
    if pairs and [s.window_ms for s in loads[0]] == [s.window_ms for s in loads[1]]:
        return [list(row) for row in zip(*loads, strict=True)]
    columns = 2 if pairs else COLUMNS
    return [load[i : i + columns] for load in loads for i in range(0, len(load), columns)]


def _panels(
    groups: Sequence[Group], height: float, top: float, *, pairs: bool = False, **options: Any
) -> tuple[Figure, Iterator[tuple[Axes, list[Group]]]]:
    """A figure with a panel per setting.

    Calm ones and those under stress are in rows of their own, or side by side.

    Args:
        groups: shown.
        height: of a row, inches.
        top: of what is above the panels, inches.
        pairs: whether to set the same windows, calm and under stress, side by side.
        options: of `Figure.subplots`.
    """
    from matplotlib.figure import Figure

    rows = _rows(sorted({group.setting for group in groups}), pairs)
    across = max(len(row) for row in rows)
    width = min(WIDTH, max(5.2 * across, LEAST_WIDTH))
    figure = Figure(
        figsize=(width, height * len(rows) + top), layout="constrained", facecolor="white"
    )
    axes = figure.subplots(len(rows), across, squeeze=False, **options)

    def each() -> Iterator[tuple[Axes, list[Group]]]:
        for row, line in zip(rows, axes, strict=True):
            for setting, panel in zip(row, line, strict=False):
                panel.set_title(plain(name_of(setting)), loc="left", color=INK, fontsize=9)
                yield panel, [group for group in groups if group.setting == setting]
            for panel in line[len(row) :]:
                panel.set_visible(False)

    return figure, each()


def _leftmost(axes: Axes) -> bool:
    place = axes.get_subplotspec()
    return place is not None and place.is_first_col()


def _quiet(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    axes.set_axisbelow(True)
    axes.grid(True, axis=axis, color=PALE, linewidth=0.6)
    axes.tick_params(colors=GREY, labelsize=8, length=0, which="both")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _log_latency(axis: Any) -> None:
    """Logarithmic, with numbers as people write them; fewer steps where there is more to span."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axis.get_view_interval()
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 3, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= MOST_TICKS:
            break
    axis.set_major_locator(FixedLocator(ticks[:: max(1, -(-len(ticks) // MOST_TICKS))]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def _legend(figure: Figure, marks: Mapping[str, Mark], shown: Sequence[Group], bars: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    strategies = {group.strategy for group in shown}
    handles: list[Any] = []
    for name, m in marks.items():
        if name in strategies and bars:
            handles.append(Patch(facecolor=m.colour, hatch=m.hatch, edgecolor="white", label=name))
        elif name in strategies:
            line = Line2D([], [], color=m.colour, linestyle=m.dash, linewidth=m.width, label=name)
            handles.append(line)
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=min(len(handles), 7),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=2.6 if not bars else 1.2,
        columnspacing=1.8,
    )


def draw_distributions(groups: Sequence[Group], marks: Mapping[str, Mark]) -> Figure:
    """Latency CDFs; missing results keep a curve below 100 %."""
    figure, panels = _panels(groups, 2.5, 0.5, sharey=True)
    for axes, here in panels:
        axes.set_xscale("log")
        for name, m in marks.items():
            for group in (g for g in here if g.strategy == name and g.latency is not None):
                assert group.latency is not None
                shares = np.array(LEVELS)
                shown = shares <= MOST_SHARE
                arrived = 100 * shares[shown] * (1 - group.missing_share)
                latency = np.maximum(np.array(group.latency.levels)[shown], 1e-3)
                axes.plot(
                    latency, arrived, color=m.colour, linestyle=m.dash, linewidth=m.width,
                    zorder=4 if m.width > 2 else 3,
                )  # fmt: skip
        axes.set_ylim(0, 101)
        axes.set_xlabel("latency, ms", color=GREY, fontsize=9)
        if _leftmost(axes):
            axes.set_ylabel("results arrived, %", color=GREY, fontsize=9)
        _log_latency(axes.xaxis)
        _quiet(axes)
    _legend(figure, marks, groups, bars=False)
    return figure


def draw_trends(
    groups: Sequence[Group], trends: Mapping[tuple[str, Setting], Trend], marks: Mapping[str, Mark]
) -> Figure:
    """Latency over the results that have arrived, one repetition of each (paper, Fig. 11)."""
    figure, panels = _panels(groups, 2.5, 0.5)
    for axes, here in panels:
        axes.set_yscale("log")
        for name, m in marks.items():
            for group in (g for g in here if g.strategy == name):
                trend = trends.get((name, group.setting))
                if trend is None or not len(trend.results):
                    continue
                front = 4 if m.width > 2 else 3
                low, middle, high = (
                    np.maximum(v, 1e-3) for v in (trend.low, trend.middle, trend.high)
                )
                axes.fill_between(
                    trend.results, low, high, color=m.colour, alpha=0.13, linewidth=0, zorder=2
                )
                axes.plot(
                    trend.results, middle, color=m.colour, linestyle=m.dash, linewidth=m.width,
                    zorder=front,
                )  # fmt: skip
                axes.plot(
                    trend.results[-1:], middle[-1:], marker="o", markersize=5, color=m.colour,
                    markeredgecolor="white", zorder=front + 2,
                )  # fmt: skip
        axes.set_xlim(left=0)
        _counts(axes.xaxis)
        axes.set_xlabel("results arrived", color=GREY, fontsize=9)
        if _leftmost(axes):
            axes.set_ylabel("latency, ms", color=GREY, fontsize=9)
        _log_latency(axes.yaxis)
        _quiet(axes)
    _legend(figure, marks, groups, bars=False)
    return figure


def _counts(axis: Any) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(EngFormatter(sep=""))


def draw_percentiles(groups: Sequence[Group], marks: Mapping[str, Mark]) -> Figure:
    """Mean and high percentiles as bars, calm and under stress (paper, Fig. 12)."""
    figure, panels = _panels(groups, 2.3, 0.5, pairs=True, sharey="row")
    for axes, here in panels:
        axes.set_yscale("log")
        names = [name for name in marks if any(g.strategy == name for g in here)]
        width = 0.82 / max(len(names), 1)
        for number, name in enumerate(names):
            group = next(g for g in here if g.strategy == name)
            if group.latency is None:
                continue
            shares = [share for key, share in PERCENTILES.items() if key != "p50"]
            values = [group.latency.mean, *(group.latency.at(share) for share in shares)]
            at = np.arange(len(values)) + (number - (len(names) - 1) / 2) * width
            m = marks[name]
            axes.bar(
                at, np.maximum(values, 1e-3), width * 0.9, color=m.colour, hatch=m.hatch,
                edgecolor="white", linewidth=0, zorder=3,
            )  # fmt: skip
            bound = [False, *(group.is_bound(share) for share in shares)]
            for x, y, low in zip(at, values, bound, strict=True):
                if low:
                    axes.annotate(
                        "", (x, y), (0, 9), textcoords="offset points", zorder=4,
                        arrowprops={"arrowstyle": "<-", "color": INK, "linewidth": 0.9,
                                    "shrinkA": 0, "shrinkB": 0},
                    )  # fmt: skip
        axes.set_xticks(range(len(_TICKS)), _TICKS)
        axes.margins(y=0.12)
        if _leftmost(axes):
            axes.set_ylabel("latency, ms", color=GREY, fontsize=9)
        _log_latency(axes.yaxis)
        _quiet(axes, "y")
    _legend(figure, marks, groups, bars=True)
    return figure


def draw_loads(groups: Sequence[Group], strategies: Sequence[str]) -> Figure:
    """CPU of each host in percent of what it may use (in cores, where there are no limits)."""
    hosts = list(dict.fromkeys(load.host for group in groups for load in group.hosts))
    limited = all(load.limit for group in groups for load in group.hosts)
    most = max((load.cores for group in groups for load in group.hosts), default=1.0)
    names = [name for name in strategies if any(g.strategy == name for g in groups)]
    figure, panels = _panels(
        groups, 0.27 * len(names) + 0.95, 0.1, pairs=True, sharex=True, sharey=True
    )
    for axes, here in panels:
        for group in here:
            row = names.index(group.strategy)
            for load in group.hosts:
                share = load.cores / load.limit if limited and load.limit else load.cores / most
                text = f"{100 * share:.0f}" if limited else f"{load.cores:.2g}"
                _load(axes, hosts.index(load.host), row, share, limited, text, len(hosts))
        axes.set_xlim(-0.5, len(hosts) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), names)
        if len(hosts) <= MOST_NAMED_HOSTS:
            axes.set_xticks(range(len(hosts)), [plain(h) for h in hosts], rotation=60, ha="right",
                            rotation_mode="anchor")  # fmt: skip
        else:
            axes.set_xticks([])
            axes.set_xlabel(f"{len(hosts)} hosts", color=GREY, fontsize=9)
        _quiet(axes)
        axes.grid(False)
        axes.tick_params(axis="y", colors=INK)
    return figure


def draw_courses(courses: Sequence[Course], marks: Mapping[str, Mark]) -> Figure:
    """Latency and results/s over time of disturbed cells, a pair of panels each, one time axis.

    Dashed lines with numbers are disturbances, dotted ones their ends, solid ones new plans.
    """
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(WIDTH, 2.7 * len(courses) + 0.4), layout="constrained", facecolor="white"
    )
    panels = figure.subplots(
        2 * len(courses), squeeze=False, sharex=True, height_ratios=[2, 1] * len(courses)
    )[:, 0]
    for number, course in enumerate(courses):
        name = course.cell.facts.strategy
        latency, results = panels[2 * number : 2 * number + 2]
        colour, at = marks[name].colour, np.arange(len(course.p50_ms)) + 0.5
        latency.set_title(name, loc="left", color=INK, fontsize=9, pad=12)
        latency.set_yscale("log")
        low, high = (np.maximum(v, 1e-3) for v in (course.p50_ms, course.p99_ms))
        latency.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        latency.plot(at, low, color=colour, linewidth=1.6)
        latency.set_ylabel("latency, ms", color=GREY, fontsize=9)
        results.fill_between(at, course.per_s, color=colour, alpha=0.4, linewidth=0, step="mid")
        results.set_ylim(bottom=0)
        results.set_ylabel("results/s", color=GREY, fontsize=9)
        _counts(results.yaxis)
        for axes in (latency, results):
            _quiet(axes)
            _events(axes, course, numbers=axes is latency)
    # One scale for all, so that lines compare.
    lows, highs = zip(*(panel.get_ylim() for panel in panels[::2]), strict=True)
    for panel in panels[::2]:
        panel.set_ylim(min(lows), max(highs))
        _log_latency(panel.yaxis)
    panels[-1].set_xlim(0, max(len(course.p50_ms) for course in courses))
    panels[-1].set_xlabel("seconds", color=GREY, fontsize=9)
    return figure


def _events(axes: Axes, course: Course, *, numbers: bool) -> None:
    for number, one in enumerate(course.recoveries, 1):
        axes.axvline(one.at_s, color=VERMILLION, linestyle="--", linewidth=1)
        if numbers:
            axes.annotate(
                f"{number}", (one.at_s, 1), xycoords=axes.get_xaxis_transform(), xytext=(0, 2),
                textcoords="offset points", ha="center", fontsize=8, color=VERMILLION,
            )  # fmt: skip
    for at, event in course.events:
        if event.kind == "over":
            axes.axvline(at, color=VERMILLION, linestyle=":", linewidth=1)
        elif event.kind in REPLACED:
            axes.axvline(at, color=INK, linewidth=1)


def _load(axes: Axes, x: int, y: int, share: float, limited: bool, text: str, hosts: int) -> None:
    from matplotlib.patches import Rectangle

    colour = BLUE
    if limited and share >= BUSY:
        colour = VERMILLION if share >= FULL else ORANGE
    # Transparent, so that it shows the same on light and on dark pages.
    axes.add_patch(
        Rectangle(
            (x - 0.46, y - 0.44), 0.92, 0.88, facecolor=colour, linewidth=0,
            alpha=0.08 + 0.57 * min(share, 1.0),
        )
    )  # fmt: skip
    if hosts <= MOST_NAMED_HOSTS:
        axes.text(x, y, text, ha="center", va="center", fontsize=7, color=INK)
