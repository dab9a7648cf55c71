"""Shared parts of plots: the plane, colours, sizes and marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#222222"
GREY = "#8a929b"
PALE = "#dfe4ea"
ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
BY_PAIR = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)


@dataclass(frozen=True, eq=False)
class Space:
    """The cost space as a plane.

    Attributes:
        centre: (d,) position of the plane's origin.
        axes: (d, 2) the plane's directions.
        node: (n, 2) the nodes in it, ms.
        labels: of both axes.
    """

    centre: Floats
    axes: Floats
    node: Floats
    labels: tuple[str, str]

    @classmethod
    def of(cls, problem: Problem) -> Space:
        """Up to two dimensions unchanged; of more, the two in which nodes spread most."""
        position = problem.nodes.position
        dimensions = position.shape[1]
        centre, labels = np.zeros(dimensions), ("x, ms", "y, ms")
        axes = np.eye(dimensions, 2)
        if dimensions > 2:
            centre = position.mean(axis=0)
            values, vectors = np.linalg.eigh(np.cov((position - centre).T))
            axes = vectors[:, ::-1][:, :2]
            shown = values[::-1][:2].sum() / max(values.sum(), np.finfo(float).tiny)
            labels = (
                f"1st principal axis, ms (both show {100 * shown:.0f} % of the spread "
                f"in {dimensions} dimensions)",
                "2nd principal axis, ms",
            )
        return cls(centre, axes, (position - centre) @ axes, labels)

    def place(self, position: Floats) -> Floats:
        """(k, 2) where (k, d) positions lie in the plane."""
        return np.asarray((position - self.centre) @ self.axes)


def roles(problem: Problem) -> tuple[Bools, Bools]:
    """(n,), (n,) which nodes produce, and which consume."""
    produces, consumes = (np.zeros(len(problem.nodes), bool) for _ in range(2))
    produces[problem.sources.node] = True
    consumes[problem.sinks] = True
    return produces, consumes


def area_of(amount: Floats, reference: float, largest: float, smallest: float = 8.0) -> Floats:
    """Marker areas, points squared: by the root of the amount, within bounds.

    Capacities differ by orders of magnitude; in proportion, most marks would be dots.
    """
    bounded = np.minimum(np.where(np.isfinite(amount), amount, reference), reference)
    return np.maximum(smallest, largest * np.sqrt(bounded / reference))


def reference_of(capacity: Floats) -> float:
    """The amount drawn largest."""
    finite = capacity[np.isfinite(capacity) & (capacity > 0)]
    return float(finite.max()) if len(finite) else 1.0


def plain(text: str) -> str:
    """Text for a plot: not read as a formula, not hidden in a legend, valid Unicode."""
    # Names of files need not be UTF-8.
    text = text.encode("utf-8", "replace").decode()
    return text.lstrip("_").replace("$", r"\$")


def bare(axes: Axes) -> None:
    """Replace an axes' frame by a pale grid behind all marks."""
    axes.set_axisbelow(True)
    axes.grid(color=PALE, linewidth=0.5)
    axes.tick_params(colors=GREY, labelsize=8, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def scatter(axes: Axes, points: Floats, **style: Any) -> None:
    """Marks at (k, 2) points."""
    axes.scatter(points[:, 0], points[:, 1], **style)


def legend_mark(axes: Axes, marker: str, colour: str, label: str, **more: Any) -> None:
    """A legend entry of one size, whatever the sizes in the plot."""
    from matplotlib.lines import Line2D

    axes.add_line(
        Line2D([], [], marker=marker, linestyle="", color=colour, markersize=9, label=label, **more)
    )


def virtual_positions(plan: Plan, space: Space) -> Floats | None:
    """(p, 2) virtual positions in the plane; NaN where there is none."""
    return None if plan.virtual_position is None else space.place(plan.virtual_position)


class Flow(NamedTuple):
    """What is sent to an instance, or from one to a sink.

    Attributes:
        stops: nodes it passes, both ends included.
        rate: tuples/s.
        operator: of the instance, as `Instances.pair`.
        result: whether it ends at a sink.
    """

    stops: Ints
    rate: float
    operator: int
    result: bool


def flows_of(plan: Plan, instances: Ints) -> Iterator[Flow]:
    """The flows of some of a plan's instances that carry anything."""
    flows, operator = plan.flows, np.append(plan.instances.pair, -1)
    for row in np.flatnonzero(np.isin(flows.instance, instances) & (flows.rate > 0)).tolist():
        stops = np.array([flows.source[row], flows.target[row]])
        if plan.routes is not None:
            begin, end = plan.routes.offset[row : row + 2]
            stops = plan.routes.node[begin:end]
        which = int(operator[flows.instance[row]])
        yield Flow(stops, float(flows.rate[row]), which, bool(flows.to_sink[row]))
