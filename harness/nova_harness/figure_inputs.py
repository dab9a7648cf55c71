"""What the reproduced figures start from: parameters, measured latencies, and workloads on them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np

from nova_core.costspace.automatic import chosen_pairs, embedded
from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.measurements import symmetric
from nova_core.errors import NovaError, ProblemWarning
from nova_core.model.latencies import read_latency
from nova_core.model.problem import Floats, Problem, Strings
from nova_core.model.syntax import read_typed

VERSION = 1
HERE = Path(__file__).parent
# In a checkout beside the package, in an installation inside it.
EXPERIMENTS = (HERE / "experiments", HERE.parent / "experiments")
# Beside a checkout of the project.
DATA = HERE.parents[2] / "shared" / "data"
# How much a synthetic internet's pairs change in an hour: few pairs, as on RIPE Atlas.
HOURLY_CHANGES = 0.04
HOURLY_FACTOR = 0.25

Parameters = TypeVar("Parameters", bound=msgspec.Struct)


class SpaceParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A cost space to place in.

    Attributes:
        dimensions: d.
        height: whether nodes get heights.
        heights: what placement makes of them: ``honoured``, ``ignored``, or an ``axis`` more.
    """

    dimensions: int = 2
    height: bool = True
    heights: Literal["honoured", "ignored", "axis"] = "honoured"

    @property
    def label(self) -> str:
        """A short name, such as ``2-d + heights``."""
        name = f"{self.dimensions}-d"
        if not self.height:
            return name
        note = {"honoured": "", "ignored": " (ignored)", "axis": " as an axis"}[self.heights]
        return f"{name} + heights{note}"


def read_parameters(figure: str, kind: type[Parameters], path: Path | None) -> Parameters:
    """An experiment's parameters from its YAML file.

    Args:
        figure: its name, e.g. ``fig8``.
        kind: what the file holds.
        path: the file; None takes the one that comes with the project.

    Raises:
        NovaError: naming the file, the field and what would be accepted.
    """
    if path is None:
        found = [folder / f"{figure}.yaml" for folder in EXPERIMENTS]
        path = next((file for file in found if file.is_file()), found[-1])
    return read_typed(path, kind, "experiment", VERSION, NovaError)


def measured_matrix(data: Path, name: str) -> tuple[Strings, Floats]:
    """Node names and (n, n) symmetric latencies, ms, of the nodes all pairs of which were measured.

    Raises:
        NovaError: when the file is not there, with what to do.

    Warns:
        ProblemWarning: when nodes are left out for want of measurements.
    """
    path = data / name
    if not path.is_file():
        raise NovaError(
            f"{path}: no such file; --data names a directory with measured latencies (CSV, a "
            "column per node), --synthetic makes do without"
        )
    names, read = read_latency(path)
    ids, latency = np.array(names, np.str_), symmetric(read)
    left_out = []
    while (missing := np.isnan(latency).sum(axis=1)).any():
        worst = int(np.argmax(missing))
        left_out.append(str(ids[worst]))
        ids, latency = np.delete(ids, worst), np.delete(np.delete(latency, worst, 0), worst, 1)
    if left_out:
        warnings.warn(
            f"{path}: not measured with all others, left out: {', '.join(left_out)}",
            ProblemWarning,
            stacklevel=2,
        )
    return ids, latency


def synthetic_matrix(nodes: int, seed: int = 0) -> tuple[Strings, Floats]:
    """Node names and (n, n) latencies of a synthetic internet, ms."""
    from nova_testbed.internet import SyntheticInternet

    return np.array([f"host{i}" for i in range(nodes)]), SyntheticInternet(nodes, seed).matrix()


def drifted(latency: Floats, hours: int, seed: int = 0) -> list[Floats]:
    """A matrix and what it becomes: every hour some pairs take another route, the others jitter."""
    random = np.random.default_rng(seed)
    found = [latency]
    for _ in range(hours - 1):
        factor = np.exp(0.01 * random.standard_normal(latency.shape))
        rerouted = random.random(latency.shape) < HOURLY_CHANGES
        factor[rerouted] *= np.exp(HOURLY_FACTOR * random.standard_normal(int(rerouted.sum())))
        half = np.triu(latency * factor, 1)
        found.append(half + half.T)
    return found


def workload(ids: Strings, latency: Floats, heterogeneity: float, seed: int) -> Problem:
    """A workload of the paper's section 4.1 on measured nodes, whose positions are to come."""
    from nova_workloads.topology import generate

    made = generate(len(ids), heterogeneity=heterogeneity, seed=seed)
    return replace(made, nodes=replace(made.nodes, ids=ids), latency=latency)


def space_for(ids: Strings, latency: Floats, asked: SpaceParameters, neighbours: int) -> CostSpace:
    """The cost space when every node measures some others."""
    pairs = chosen_pairs(latency, neighbours)
    return embedded(
        ids, pairs, dimensions=asked.dimensions, height=asked.height, method="solver", seed=0
    )


def placed_in(problem: Problem, space: CostSpace, heights: str) -> Problem:
    """The problem in a cost space, with heights honoured, ignored or as one more axis."""
    position, height = space.position, space.height
    if height is not None and heights == "axis":
        position = np.concatenate([position, height[:, None]], axis=1)
    if heights != "honoured":
        height = None
    return replace(problem, nodes=replace(problem.nodes, position=position, height=height))
