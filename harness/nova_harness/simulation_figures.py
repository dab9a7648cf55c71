"""What the figures of simulations are drawn with: a colour and a mark for every strategy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The paper's strategies stand out.
COLOURS = {
    "nova": "#D55E00",
    "nova(p)": "#E69F00",
    "nova, not refined": "#E69F00",
    "nova, refined": "#A64D00",
    "sink": "#000000",
    "source": "#0072B2",
    "top-c": "#009E73",
    "tree": "#CC79A7",
    "cl-sf": "#56B4E9",
    "cl-tree-sf": "#8C6D31",
}
MARKS = "os^v<>DPX*dph"


def lines(axes: Axes, points: Iterable[tuple[str, float | None, float | None]]) -> None:
    """Draw a line per strategy through those of its points that there are."""
    of_strategy: dict[str, list[tuple[float, float]]] = {}
    for strategy, x, y in points:
        if x is not None and y is not None:
            of_strategy.setdefault(strategy, []).append((x, y))
    for number, (strategy, found) in enumerate(of_strategy.items()):
        ours = strategy in COLOURS
        axes.plot(
            *zip(*sorted(found), strict=True),
            color=COLOURS.get(strategy, "#999999"),
            marker=MARKS[number % len(MARKS)],
            markersize=4,
            linewidth=1.6 if ours else 0.8,
            label=strategy,
        )
    axes.spines[["top", "right"]].set_visible(False)
