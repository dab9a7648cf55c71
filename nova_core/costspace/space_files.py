"""Cost spaces as files: a table of nodes with coordinates and heights, or a problem.

Other metrics join latency there (energy, money, load; paper, section 3.6). What is measured between
two nodes (energy or money per transfer) is embedded like latency, and its coordinates, weighted,
are appended to those of latency: placement then minimizes distances over all of them. What a node
has by itself (load, its price) becomes its penalty: hosting there counts as so many ms more per
leg. That is SBON's load dimension (section 3.1.1): an operator wishes for a node without any load,
so the virtual position is found without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.embedding import embed
from nova_core.costspace.latency_files import (
    TABLE_SUFFIXES,
    column_names,
    of_problem,
    read_measurements,
)
from nova_core.costspace.measurements import Measurements
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.columnar import POSITION_KINDS, position_columns, read_columns, write_columns
from nova_core.io.files import read_problem, write_problem
from nova_core.io.latencies import arranged, read_latency
from nova_core.io.safe_files import DOCUMENT_SUFFIXES
from nova_core.io.validation import check_ids, validate_problem
from nova_core.model.problem import (
    GREATEST_LATENCY,
    Floats,
    Ints,
    PairLatencies,
    Problem,
    Strings,
)
from nova_core.suggestions import suggestion

TABLES = (".csv", ".parquet", ".arrow")
# Coordinates a matrix of distances by another metric is embedded into.
METRIC_DIMENSIONS = 2
# Columns of a problem's nodes that serve as metrics without a file.
OWN = {"money": "cost"}


def is_table(path: Path) -> bool:
    """Whether a path means a table of nodes rather than a problem."""
    return path.name.endswith(TABLE_SUFFIXES) and not path.is_dir()


def write_space(path: Path, ids: Strings, space: CostSpace, penalty: Floats | None = None) -> None:
    """Write a table of nodes: id, x, y, ..., height and penalty where there are any.

    Args:
        path: a ``.csv``, ``.parquet`` or ``.arrow`` file.
        ids: (n,) names.
        space: n nodes.
        penalty: (n,) ms, or None.

    Raises:
        NovaError: when it cannot be written.
    """
    axes = zip(position_columns(space.dimensions), space.position.T, strict=True)
    columns = {"id": ids, **{name: np.ascontiguousarray(axis) for name, axis in axes}}
    if space.height is not None:
        columns["height"] = space.height
    if penalty is not None:
        columns["penalty"] = penalty
    write_columns(path, columns)


def space_of(problem: Problem) -> CostSpace:
    """The part of a problem's cost space that estimates latencies."""
    return CostSpace(problem.latency_position, problem.nodes.height)


def read_space(path: Path) -> tuple[Strings, CostSpace, Problem | None]:
    """Read node names and their cost space from a table of nodes, or from a problem.

    Raises:
        ProblemError: naming the file, the column and what would be accepted.
    """
    if not is_table(path):
        problem = read_problem(path)
        return problem.nodes.ids, space_of(problem), problem
    kinds = {"id": "text", "height": "number", **POSITION_KINDS}
    table = read_columns(path, kinds, ProblemError, extra=True)
    ids, position = table.text("id"), table.position()
    check_ids("nodes", ids, str(path))
    if position is None:
        raise ProblemError(f"{path}: no coordinates; columns x, y, ... in ms are needed")
    height = table.floats("height") if "height" in table else None
    good = (np.abs(position) <= GREATEST_LATENCY).all(axis=1)
    if height is not None:
        good &= (height >= 0) & (height <= GREATEST_LATENCY)
    if not good.all():
        row = int(np.argmin(good))
        raise ProblemError(
            f"{path}: row {row + 1}, node {str(ids[row])!r}: coordinates are at most "
            f"{GREATEST_LATENCY:g} ms from 0, heights from 0 to {GREATEST_LATENCY:g} ms"
        )
    return ids, CostSpace(position, height), None


def pairs_in(measured: Measurements, ids: Strings, where: str) -> PairLatencies:
    """Measured pairs as indices of a space's nodes.

    Args:
        measured: latencies by name.
        ids: (n,) the space's nodes.
        where: the file messages name.

    Raises:
        ProblemError: when no pair of the space's nodes was measured.

    Warns:
        ProblemWarning: when nodes that were measured are not in the space.
    """
    place, pairs = _rows_of(measured.ids, ids), measured.pairs()
    source, target = place[pairs.source], place[pairs.target]
    known = (source >= 0) & (target >= 0)
    if not known.any():
        raise ProblemError(f"{where}: no pair of nodes of the cost space was measured")
    absent = int((place < 0).sum())
    if absent:
        name = str(measured.ids[int(np.argmax(place < 0))])
        warnings.warn(
            f"{where}: {absent} of {len(place)} measured nodes are not in the cost space, the "
            f"first is {name!r}; their pairs are left out",
            ProblemWarning,
            stacklevel=2,
        )
    return PairLatencies(source[known], target[known], pairs.latency[known])


def _rows_of(names: Strings, among: Strings) -> Ints:
    """(n,) row of each name among others, -1 for none."""
    row = {name: i for i, name in enumerate(among.tolist())}
    return np.array([row.get(name, -1) for name in names.tolist()], np.int64)


def read_compared(
    space: Path, latencies: Path | None, what: str | None = None
) -> tuple[Strings, CostSpace, PairLatencies | None]:
    """A cost space and the measured pairs to compare it with.

    Args:
        space: a table of nodes or a problem.
        latencies: what was measured; None takes the problem's own.
        what: that is; see `read_measurements`.

    Returns:
        (n,) names, the space, and pairs, or None where nothing was measured.

    Raises:
        ProblemError: when the latencies are of other nodes, or a file cannot be used.
    """
    ids, where, problem = read_space(space)
    if latencies is not None:
        return ids, where, pairs_in(read_measurements(latencies, what), ids, str(latencies))
    if problem is not None and (problem.latency is not None or problem.measured is not None):
        own = of_problem(problem, str(space))
        return ids, where, pairs_in(own, ids, str(space))
    return ids, where, None


def require_output(path: Path, measured: Measurements, metrics: Sequence[Metric]) -> None:
    """Refuse, before any work, what `write_embedded` could not write.

    Raises:
        ProblemError: for latencies without a problem that are to become one, for metrics that only
            a problem can hold, and for a suffix that is not known.
    """
    if is_table(path):
        if path.suffix not in TABLES:
            raise ProblemError(f"{path}: positions are a {', '.join(TABLES)} table of nodes")
    elif measured.problem is None:
        raise ProblemError(f"{path}: latencies alone make a table of nodes: {', '.join(TABLES)}")
    elif path.suffix and path.suffix not in DOCUMENT_SUFFIXES and not path.is_dir():
        raise ProblemError(f"{path}: a problem is a .yaml or .json document or a directory")
    for metric in metrics:
        between = metric.file is not None and is_matrix(metric.file)
        if (is_table(path) and between) or (measured.problem is None and metric.file is None):
            raise ProblemError(
                f"metric {metric.name!r}: {path} has no place for it; embed a problem with "
                "latencies, and write a problem (.yaml, .json or a directory)"
            )


def write_embedded(
    path: Path, measured: Measurements, space: CostSpace, metrics: Sequence[Metric], seed: int
) -> None:
    """Write a cost space, with other metrics, as a table of nodes or as the measured problem.

    Args:
        path: where to; see `require_output`.
        measured: what was embedded.
        space: of its nodes.
        metrics: what to add.
        seed: of embedding matrices of metrics.

    Raises:
        ProblemError: when a metric cannot be used.
        NovaError: when it cannot be written.
    """
    ids, problem = measured.ids, measured.problem
    if problem is None:
        penalty = None
        for metric in metrics:
            added = node_penalty(metric, ids, None)
            penalty = added if penalty is None else penalty + added
        write_space(path, ids, space, penalty)
        return
    nodes = replace(problem.nodes, position=space.position, height=space.height, penalty=None)
    problem = with_metrics(replace(problem, nodes=nodes, metrics=()), metrics, seed)
    if is_table(path):
        write_space(path, ids, space, problem.nodes.penalty)
    else:
        write_problem(validate_problem(problem, str(path)), path)


# --- metrics besides latency ---------------------------------------------------------------------


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
        place = _rows_of(ids, table.text("id"))
        column = table.floats(metric.name, np.nan)
        values = np.where(place >= 0, column[place] if len(column) else np.nan, np.nan)
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
        space = embed(matrix, dimensions=METRIC_DIMENSIONS, seed=seed)
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
