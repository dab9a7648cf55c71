"""Metrics besides latency in the cost space: energy, money, load (paper, section 3.6).

What is measured between two nodes (energy or money per transfer) is embedded like latency, and its
coordinates, weighted, are appended to those of latency: placement then minimizes distances over
all of them. What a node has by itself (load, its price) becomes its penalty: hosting there counts
as so many ms more per leg. That is SBON's load dimension (section 3.1.1): an operator wishes for a
node without any load, so the virtual position is found without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nova_core.costspace.embedding import embed_matrix
from nova_core.costspace.latency_files import TABLE_SUFFIXES, column_names
from nova_core.errors import ProblemError
from nova_core.model.columnar import read_columns
from nova_core.model.latencies import arranged, read_latency
from nova_core.model.problem import Floats, Problem, Strings
from nova_core.model.syntax import suggestion

# Coordinates a matrix of distances is embedded into.
DIMENSIONS = 2
# Columns of a problem's nodes that serve as metrics without a file.
OWN = {"money": "cost"}


@dataclass(frozen=True)
class Metric:
    """A metric to add to the cost space.

    Attributes:
        name: what it is called.
        weight: ms that one unit of it counts as.
        file: a matrix of distances, or a table of nodes (``id`` and a column of the metric's
            name); None for a column the problem has itself.
    """

    name: str
    weight: float
    file: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Metric:
        """Read ``NAME=WEIGHT`` or ``NAME=WEIGHT:FILE``.

        Raises:
            ProblemError: for another form, or a weight that is not a number above 0.
        """
        name, equals, rest = text.partition("=")
        weight, _, file = rest.partition(":")
        try:
            value = float(weight)
        except ValueError:
            value = -1.0
        if not equals or not name.strip() or not 0 < value < np.inf:
            raise ProblemError(
                f"metric {text!r}: expected NAME=WEIGHT or NAME=WEIGHT:FILE with a weight above 0, "
                "in ms per unit; e.g. load=30:load.csv"
            )
        if not file and name not in OWN:
            raise ProblemError(
                f"metric {name!r}: give a file with it, {name}={weight}:FILE; only "
                f"{', '.join(OWN)} is in problems themselves"
            )
        return cls(name.strip(), value, Path(file) if file else None)


def with_metrics(problem: Problem, metrics: Sequence[Metric], seed: int = 0) -> Problem:
    """The problem with metrics added to its cost space.

    Args:
        problem: its positions measure latency alone.
        metrics: what to add; penalties add up.
        seed: of embedding matrices.

    Raises:
        ProblemError: for a metric given twice, or a file that does not have what is needed.
    """
    nodes, names = problem.nodes, list(problem.metrics)
    position, penalty = nodes.position, nodes.penalty
    seen = [metric.name for metric in metrics]
    if len(set(seen)) < len(seen):
        raise ProblemError(f"metric {next(n for n in seen if seen.count(n) > 1)!r} is given twice")
    for metric in metrics:
        if metric.file is not None and is_matrix(metric.file):
            axes = _axes(metric, metric.file, nodes.ids, seed)
            position = np.concatenate([position, axes], axis=1)
            names += [f"{metric.name}_{axis}" for axis in range(axes.shape[1])]
        else:
            added = node_penalty(metric, nodes.ids, nodes.cost)
            penalty = added if penalty is None else penalty + added
    return replace(
        problem, nodes=replace(nodes, position=position, penalty=penalty), metrics=tuple(names)
    )


def node_penalty(metric: Metric, ids: Strings, cost: Floats | None) -> Floats:
    """(n,) what hosting on each node counts as by a metric of single nodes, ms.

    Args:
        metric: with a table, or named in `OWN`.
        ids: (n,) node names.
        cost: (n,) the problem's money per time, or None.

    Raises:
        ProblemError: when a node has no value, or a negative one.
    """
    if metric.file is None:
        where, values = f"metric {metric.name!r}", cost
        if values is None:
            raise ProblemError(f"{where}: no node has a {OWN[metric.name]}")
    else:
        where = str(metric.file)
        table = read_columns(metric.file, None, ProblemError)
        if metric.name not in table:
            raise ProblemError(
                f"{where}: no column {metric.name!r}; {suggestion(metric.name, table.names)}"
            )
        row = {name: i for i, name in enumerate(table.text("id").tolist())}
        found = np.array([row.get(name, -1) for name in ids.tolist()], np.int64)
        given = table.floats(metric.name, np.nan)
        values = np.where(found >= 0, given[found] if len(given) else np.nan, np.nan)
    good = (values >= 0) & (values < np.inf)
    if not good.all():
        node = int(np.argmin(good))
        has = "no value" if np.isnan(values[node]) else f"{values[node]:g}"
        raise ProblemError(
            f"{where}: {metric.name} of node {str(ids[node])!r}: {has}; every node needs a number "
            ">= 0"
        )
    return np.asarray(metric.weight * values)


def _axes(metric: Metric, file: Path, ids: Strings, seed: int) -> Floats:
    """(n, 2) weighted coordinates whose distances stand for a metric between nodes."""
    measured, values = read_latency(file)
    matrix = arranged(measured, values, ids, str(file))
    try:
        space = embed_matrix(matrix, dimensions=DIMENSIONS, seed=seed)
    except ProblemError as error:
        raise ProblemError(f"{file}: {error}") from None
    return metric.weight * space.position


def is_matrix(file: Path) -> bool:
    """Whether a file is a matrix with a column per node rather than a table with an ``id``."""
    if not file.name.endswith(TABLE_SUFFIXES):
        raise ProblemError(f"{file}: a metric is in a {', '.join(TABLE_SUFFIXES)} file")
    if not file.is_file():
        raise ProblemError(f"{file}: cannot be read: no such file")
    return "id" not in column_names(file)


__all__ = ["Metric", "is_matrix", "node_penalty", "with_metrics"]
