"""Measured latencies: a square file of numbers, usually not quite symmetric."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nova_core.errors import ProblemError, ProblemWarning
from nova_core.model.files import read_bytes
from nova_core.model.packed import PackedError, unpacked
from nova_core.model.problem import Floats, Strings
from nova_core.model.validation import check_latency, refuse_latency

MISSING = ("", "na", "nan", "null", "none", "-")


def symmetrized(latency: Floats, ids: Sequence[str] | Strings, where: str) -> Floats:
    """The mean of both directions, with a warning that says by how much they differed.

    A direction that was not measured (NaN) takes the value of the other one.

    Args:
        latency: (n, n) ms.
        ids: (n,) node names for the warning.
        where: the file the warning names.

    Returns:
        The same array when it is symmetric already, else a new symmetric one.

    Warns:
        ProblemWarning: when both directions differ anywhere.
    """
    back = latency.T
    if np.array_equal(latency, back):
        return latency
    both = mean_of_directions(latency)
    difference = np.abs(latency - back)
    difference[~np.isfinite(difference)] = 0.0
    filled = int(np.isnan(latency).sum() - np.isnan(both).sum())
    if filled or difference.any():
        a, b = (int(i) for i in np.unravel_index(int(np.argmax(difference)), difference.shape))
        pairs = int(np.count_nonzero(difference)) // 2
        warnings.warn(
            f"{where}: latency is not symmetric: {pairs} pairs of nodes differ, most of all "
            f"{str(ids[a])!r} and {str(ids[b])!r} ({latency[a, b]:g} and {latency[b, a]:g} ms); "
            "the mean is used"
            + (f"; {filled} missing values take the other direction's" * bool(filled)),
            ProblemWarning,
            stacklevel=2,
        )
    return both


def mean_of_directions(latency: Floats) -> Floats:
    """(n, n) mean of both directions, ms; of one that was not measured (NaN), the other one."""
    back = latency.T
    mean = np.where(np.isnan(back), latency, (latency + back) / 2)
    return np.asarray(np.where(np.isnan(latency), back, mean))


def read_latency(path: Path) -> tuple[list[str], Floats]:
    """Read a dense matrix: ``.csv``, ``.csv.gz``, ``.parquet`` or ``.arrow``, a column per node.

    A CSV has a row of node names, then one row of numbers per node, in the same order.

    Returns:
        (n,) node names and (n, n) ms; a missing value is NaN.

    Raises:
        ProblemError: for a file that is not a square of numbers.
    """
    if path.suffix in (".parquet", ".arrow"):
        from nova_core.model.columnar import read_columns

        table = read_columns(path, None, ProblemError)
        values = np.stack([table.floats(name, missing=np.nan) for name in table.names], axis=1)
        return table.names, _square(path, table.names, values)
    content = read_bytes(path, ProblemError)
    if path.suffix == ".gz":
        try:
            content = unpacked(content)
        except PackedError as cause:
            raise ProblemError(f"{path}: {cause}") from None
    return _read_csv(path, content)


def _read_csv(path: Path, content: bytes) -> tuple[list[str], Floats]:
    import csv

    try:
        rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if row]
    except (UnicodeDecodeError, csv.Error) as cause:
        raise ProblemError(f"{path}: no CSV: {cause}") from None
    if not rows:
        raise ProblemError(f"{path}: empty; a row of node names is expected")
    ids = rows[0]
    values = np.empty((len(rows) - 1, len(ids)))
    for number, row in enumerate(rows[1:]):
        if len(row) != len(ids):
            raise ProblemError(f"{path}: row {number + 2}: {len(row)} values, not {len(ids)}")
        try:
            values[number] = row
        except ValueError:
            values[number] = [_value(path, number, ids[i], text) for i, text in enumerate(row)]
    return ids, _square(path, ids, values)


def _value(path: Path, row: int, column: str, text: str) -> float:
    if text.strip().lower() in MISSING:
        return np.nan
    try:
        return float(text)
    except ValueError:
        raise ProblemError(
            f"{path}: row {row + 2}, column {column!r}: {text!r} is no number of ms"
        ) from None


def _square(path: Path, ids: list[str], values: Floats) -> Floats:
    if values.shape != (len(ids), len(ids)):
        raise ProblemError(
            f"{path}: {len(ids)} node names but {len(values)} rows of latencies; a row per node is "
            "needed"
        )
    return values


def arranged(measured: Sequence[str], latency: Floats, ids: Strings, where: str) -> Floats:
    """Rows and columns of a measured matrix in the order of the problem's nodes.

    Args:
        measured: (k,) names of the matrix's rows; nodes the problem does not have are left out.
        latency: (k, k) ms.
        ids: (n,) the problem's nodes.
        where: the file errors name.

    Raises:
        ProblemError: for a name given twice, or a node without latencies.
    """
    row = {name: i for i, name in enumerate(measured)}
    if len(row) < len(measured):
        twice = next(name for i, name in enumerate(measured) if row[name] != i)
        raise ProblemError(f"{where}: latency: node {twice!r} is there twice")
    missing = [name for name in ids.tolist() if name not in row]
    if missing:
        raise ProblemError(
            f"{where}: latency: no measurements of node {missing[0]!r} ({len(missing)} of "
            f"{len(ids)} nodes have none); a matrix covers all nodes, `pairs` may cover some"
        )
    if list(measured) == ids.tolist():
        return latency
    order = np.array([row[name] for name in ids.tolist()])
    return np.asarray(latency[np.ix_(order, order)])


def mended(measured: Sequence[str], latency: Floats, ids: Strings, where: str) -> Floats:
    """A measured matrix in the nodes' order, symmetric, with zeros on the diagonal.

    Args:
        measured: (k,) names of the matrix's rows.
        latency: (k, k) ms; NaN where nothing was measured.
        ids: (n,) the problem's nodes.
        where: the file errors name.

    Raises:
        ProblemError: for nodes without measurements, and pairs no direction of which was measured.

    Warns:
        ProblemWarning: when the directions differ; their mean is taken.
    """
    latency = arranged(measured, latency, ids, where)
    own = np.flatnonzero(np.isnan(np.diagonal(latency)))
    if len(own):
        latency = latency.copy()
        latency[own, own] = 0.0
    refuse_latency(
        latency, latency < 0, "is negative; a latency is a number of ms >= 0", ids, where
    )
    latency = symmetrized(latency, ids, where)
    check_latency(latency, ids, where)
    return latency
