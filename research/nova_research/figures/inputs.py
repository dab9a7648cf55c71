"""Inputs of figures: measured or synthetic latencies, workloads and cost spaces."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from nova_core.costspace.automatic import chosen_pairs, embedded
from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.measurements import symmetric
from nova_core.errors import NovaError, ProblemWarning
from nova_core.io.latencies import read_latency
from nova_core.model.problem import Floats, Problem, Strings

# Beside a checkout of the project.
DATA = Path(__file__).parents[4] / "shared" / "data"
# RIPE Atlas anchors in consecutive hours, in the data directory.
HOURS = tuple(f"latency/ripe-atlas-631-hour{hour:02}.csv.gz" for hour in range(6))
# How much a synthetic internet's pairs change in an hour: few pairs, as on RIPE Atlas.
HOURLY_CHANGES = 0.04
HOURLY_FACTOR = 0.25


class SpaceParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A cost space to place in.

    Attributes:
        dimensions: d.
        height: whether nodes get heights.
        heights: how placement uses them: ``honoured``, ``ignored``, or as one more ``axis``.
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


class EstimateParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of every figure that places on estimated latencies and evaluates on measured ones.

    Attributes:
        synthetic_nodes: hosts of the synthetic internet.
        neighbours: how many others every node measures.
        space: embedded from these measurements.
        workloads: after section 4.1, one per seed; figures are means over them.
        heterogeneity: of the capacities; 1 is the most heterogeneous column, exponential.
    """

    synthetic_nodes: int = 418
    neighbours: Annotated[int, Meta(ge=1, description="Others that every node measures")] = 32
    space: SpaceParameters = SpaceParameters(dimensions=2, height=True)
    workloads: Annotated[int, Meta(ge=1, description="Random workloads, figures are means")] = 5
    heterogeneity: float = 1.0


def measured_matrix(data: Path, name: str) -> tuple[Strings, Floats]:
    """Node names and (n, n) symmetric latencies, ms, of nodes whose pairs were all measured.

    Raises:
        NovaError: when the file is missing, with what to do.

    Warns:
        ProblemWarning: when nodes are left out because measurements are missing.
    """
    path = data / name
    if not path.is_file():
        raise NovaError(
            f"{path}: no such file; --data names a directory with measured latencies (CSV, a "
            "column per node), --synthetic needs none"
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


def latencies(
    data: Path | None, names: Sequence[str], synthetic_nodes: int, synthetic_hours: int = 1
) -> tuple[str, Strings, list[Floats]]:
    """Name of the source, names of nodes, and (n, n) latencies of consecutive hours, ms.

    Args:
        data: directory of the measured ones; None takes a synthetic internet.
        names: of its files, an hour each.
        synthetic_nodes: hosts of the synthetic internet.
        synthetic_hours: its hours.

    Raises:
        NovaError: when files are missing, or of different nodes.
    """
    if data is None:
        ids, first = synthetic_matrix(synthetic_nodes)
        return f"synthetic internet of {len(ids)} hosts", ids, drifted(first, synthetic_hours)
    read = [measured_matrix(data, name) for name in names]
    ids = read[0][0]
    for name, (others, _) in zip(names, read, strict=True):
        if not np.array_equal(others, ids):
            raise NovaError(f"{data / name}: other nodes than {names[0]}")
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}", ids, [latency for _, latency in read]


def synthetic_matrix(nodes: int) -> tuple[Strings, Floats]:
    """Node names and (n, n) latencies of a synthetic internet, ms."""
    from nova_testbed.internet import SyntheticInternet

    return np.array([f"host{i}" for i in range(nodes)]), SyntheticInternet(nodes, 0).matrix()


def drifted(latency: Floats, hours: int) -> list[Floats]:
    """A matrix per hour: each hour some pairs take another route, the others jitter."""
    random = np.random.default_rng(0)
    matrices = [latency]
    for _ in range(hours - 1):
        factor = np.exp(0.01 * random.standard_normal(latency.shape))
        rerouted = random.random(latency.shape) < HOURLY_CHANGES
        factor[rerouted] *= np.exp(HOURLY_FACTOR * random.standard_normal(int(rerouted.sum())))
        half = np.triu(latency * factor, 1)
        matrices.append(half + half.T)
    return matrices


def workload(ids: Strings, latency: Floats, heterogeneity: float, seed: int) -> Problem:
    """A workload of the paper's section 4.1 on measured nodes, not yet in a cost space."""
    from nova_workloads.topology import generate

    problem = generate(len(ids), heterogeneity=heterogeneity, seed=seed)
    return replace(problem, nodes=replace(problem.nodes, ids=ids), latency=latency)


def space_for(
    ids: Strings, latency: Floats, parameters: SpaceParameters, neighbours: int
) -> CostSpace:
    """The cost space when every node measures some others."""
    pairs = chosen_pairs(latency, neighbours)
    return embedded(
        ids,
        pairs,
        dimensions=parameters.dimensions,
        height=parameters.height,
        method="solver",
        seed=0,
    )


def placed_in(problem: Problem, space: CostSpace, heights: str) -> Problem:
    """The problem in a cost space, with heights honoured, ignored or as one more axis."""
    position, height = space.position, space.height
    if height is not None and heights == "axis":
        position = np.concatenate([position, height[:, None]], axis=1)
    if heights != "honoured":
        height = None
    return replace(problem, nodes=replace(problem.nodes, position=position, height=height))
