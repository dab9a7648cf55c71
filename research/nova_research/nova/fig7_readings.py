"""Figure 7's nova(p) under readings of Algorithm 1: when joins are cut, and what replicas cost.

The text cuts every join by p_max (Eq. 7) and places replicas one after the other, each where there
is room for its inputs; its example places a join that fits as a whole, and merges replicas on a
node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_core.io.files import read_problem
from nova_core.model.objectives import leg_weights
from nova_core.model.problem import Floats, Problem
from nova_core.placement.geometric_median import geometric_median, pair_anchors
from nova_core.placement.partitioning import DEFAULT_SIGMA, maximum_partition_rate
from nova_research.figures.base import Figure, Run, Table, listed
from nova_research.nova.cells import instance_directory
from nova_research.nova.fig7 import Fig7

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Reading:
    """One reading of what Algorithm 1's text leaves open.

    Attributes:
        label: its name.
        whole_first: a join stays whole if one of its k nearest nodes has room for it.
        merged: replicas of a join on one node receive each part of an input once.
        sigma: of Eq. 7.
        centroid: ideal places are equilibria of springs, not geometric medians.
    """

    label: str
    whole_first: bool = True
    merged: bool = True
    sigma: float = DEFAULT_SIGMA
    centroid: bool = False


READINGS = (
    Reading("whole where it fits, merged"),
    Reading("always cut, merged", whole_first=False),
    Reading("whole where it fits, not merged", merged=False),
    Reading("always cut, not merged", whole_first=False, merged=False),
    Reading("always cut in two, merged", whole_first=False, sigma=1.0),
    Reading("whole where it fits, merged, springs", centroid=True),
)


class ReadingsParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters: instances, and the column of their capacities."""

    instances: tuple[str, ...] = ("fit", "sim1000", "atlas")
    capacity: str = "capacity_5"


@dataclass(frozen=True)
class Row:
    """A reading on an instance.

    Attributes:
        problem: the instance.
        reading: its name.
        delta: 90th percentile of sources' latencies above that of direct transmission, ms.
        mean: mean latency over sources, ms.
        replicas: of all joins.
        unplaced: replicas that no node had room for; they run on the node with the most free
            capacity.
        published: ``delta`` in the paper.
    """

    problem: str
    reading: str
    delta: float
    mean: float
    replicas: int
    unplaced: int
    published: float


@dataclass(frozen=True)
class Result:
    """Rows by instance, then by reading."""

    rows: list[Row]


class Fig7Readings(Figure[ReadingsParameters, Result]):
    """Latency of Algorithm 1 by what its text leaves open (nova(p) in Fig. 7)."""

    name = "fig7-readings"
    source = "Nova, section 4.3, Figure 7, nova(p)"
    Parameters = ReadingsParameters
    data = "instances of the simulations"
    synthetic = ""
    published: ClassVar[Mapping[str, float]] = {
        name: values["nova(p)"] for name, values in Fig7.published.items()
    }
    quick: ClassVar = {"instances": ("fit", "atlas")}

    def run(self, parameters: ReadingsParameters, run: Run) -> Result:
        """Place the instances by every reading."""
        rows: list[Row] = []
        for name in parameters.instances:
            directory = instance_directory(run.data, name, None)
            if directory is None:
                continue
            problem = read_problem(directory, parameters.capacity)
            for reading in READINGS:
                run.advance(len(rows), len(READINGS) * len(parameters.instances))
                rows.append(_row(problem, name, reading, self.published.get(name, np.nan)))
        if not rows:
            raise NovaError("fig7-readings: needs the instances of the simulations: --data DIR")
        return Result(rows)

    def tables(self, result: Result) -> list[Table]:
        """A row per instance and reading."""
        columns = {
            "problem": "problem",
            "reading": "reading",
            ">90P over direct": "delta",
            ">published": "published",
            ">mean": "mean",
            ">replicas": "replicas",
            ">without room": "unplaced",
        }
        title = "Algorithm 1 by what its text leaves open, ms"
        return [listed("fig7-readings", title, result.rows, columns)]

    def draw(self, result: Result) -> Drawing:
        """Bars per instance and reading, published values as lines."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(8.0, 5.0))
        axes = figure.subplots()
        labels = [f"{row.problem}: {row.reading}" for row in result.rows]
        axes.barh(labels, [row.delta for row in result.rows], color="#E69F00")
        published = [row.published for row in result.rows]
        axes.scatter(published, labels, marker="|", s=90, color="black", zorder=3)
        axes.invert_yaxis()
        axes.set_xlabel("90th percentile over direct, ms (marks: published)")
        return figure


def _row(problem: Problem, name: str, reading: Reading, published: float) -> Row:
    hosts, unplaced = _place(problem, reading)
    nodes, sink = problem.nodes.position, problem.sink_node
    latency: dict[int, list[float]] = {}
    for pair, on in enumerate(hosts):
        for source, at in (
            (problem.matrix.left[pair], problem.left_node[pair]),
            (problem.matrix.right[pair], problem.right_node[pair]),
        ):
            to_host = np.linalg.norm(nodes[on] - nodes[at], axis=1)
            to_sink = np.linalg.norm(nodes[on] - nodes[sink[pair]], axis=1)
            latency.setdefault(int(source), []).append(float((to_host + to_sink).mean()))
    mean = np.array([np.mean(values) for values in latency.values()])
    direct = problem.distance(
        problem.sources.node[list(latency)], np.full(len(latency), sink[0], np.int64)
    )
    return Row(
        name,
        reading.label,
        float(np.percentile(mean, 90) - np.percentile(direct, 90)),
        float(mean.mean()),
        sum(map(len, hosts)),
        unplaced,
        published,
    )


def _place(problem: Problem, reading: Reading) -> tuple[list[list[int]], int]:
    """The host of every replica of every join, and how many had no room."""
    anchors = pair_anchors(problem)
    points = geometric_median(anchors, leg_weights(problem, "latency"))
    if reading.centroid:
        points = anchors.mean(axis=1)
    workers = np.flatnonzero(problem.nodes.worker)
    free = problem.nodes.capacity.astype(np.float64)
    most = maximum_partition_rate(problem.left_rate, problem.right_rate, reading.sigma)
    hosts: list[list[int]] = []
    unplaced = 0
    for pair, point in enumerate(points):
        distance = np.linalg.norm(problem.nodes.position[workers] - point, axis=1)
        near = [v for v in workers[np.argsort(distance)].tolist() if free[v] > 0]
        left, right = float(problem.left_rate[pair]), float(problem.right_rate[pair])
        # k: required capacity over the median of what nodes have available.
        k = max(1, math.ceil((left + right) / float(np.median(free[near])))) if near else 0
        whole = next((v for v in near[:k] if free[v] >= left + right), None)
        if reading.whole_first and whole is not None:
            free[whole] -= left + right
            hosts.append([whole])
            continue
        on: list[int] = []
        parts = [_parts(rate, float(most[pair])) for rate in (left, right)]
        held: dict[int, set[tuple[int, int]]] = {}
        for i, first in enumerate(parts[0]):
            for j, second in enumerate(parts[1]):
                node = _nearest(near, free, held, ((0, i, first), (1, j, second)), reading.merged)
                if node is None:
                    unplaced += 1
                    node = int(workers[np.argmax(free[workers])])
                    free[node] -= first + second
                on.append(node)
        hosts.append(on)
    return hosts, unplaced


def _parts(rate: float, most: float) -> list[float]:
    count = max(1, math.ceil(rate / most - 1e-9))
    return [most] * (count - 1) + [rate - most * (count - 1)]


def _nearest(
    near: list[int],
    free: Floats,
    held: dict[int, set[tuple[int, int]]],
    inputs: tuple[tuple[int, int, float], ...],
    merged: bool,
) -> int | None:
    """The nearest node with room for a replica's inputs, which it is charged; None if none has."""
    for node in near:
        has = held.get(node, set()) if merged else set()
        need = sum(rate for side, part, rate in inputs if (side, part) not in has)
        if free[node] >= need:
            free[node] -= need
            held.setdefault(node, set()).update((side, part) for side, part, _ in inputs)
            return node
    return None
