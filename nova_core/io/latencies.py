"""Measured latencies: a square file of numbers, usually not quite symmetric."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.packed import PackedError, unpacked
from nova_core.io.safe_files import read_bytes
from nova_core.io.validation import check_latency, refuse_latency
from nova_core.model.problem import Floats, Strings

# What latencies may be, and what makes them one-way ones, which is what all problems hold.
ONE_WAY = {"one-way": 1.0, "round-trip": 0.5}
# What stands for a lost answer: -1 in files of RIPE Atlas and others, * in those of traceroute.
MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "*", "-1")
# Directions of a pair that differ by so much, ms or a share, are equal but for rounding.
ROUNDED_MS, ROUNDED = 0.001, 1e-6
# Units that may follow a number, in ms.
UNITS = {"": 1.0, "ms": 1.0, "s": 1000.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3}
_WITH_UNIT = re.compile(r"([-+0-9.eE]+)\s*([a-zµμ]*)")
# Medians, ms, of tables that are more likely in seconds, or in microseconds.
LEAST_LIKELY, MOST_LIKELY = 0.1, 5000.0


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
        ProblemWarning: when both directions differ anywhere by more than rounding.
    """
    back = latency.T
    if np.array_equal(latency, back):
        return latency
    both = mean_of_directions(latency)
    difference = np.abs(latency - back)
    difference[~np.isfinite(difference)] = 0.0
    # What rounding leaves is no difference.
    difference[difference <= np.maximum(ROUNDED_MS, ROUNDED * np.nan_to_num(both))] = 0.0
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

    What a CSV may hold, `parse_matrix` says.

    Returns:
        (n,) node names and (n, n) ms; a missing value is NaN.

    Raises:
        ProblemError: for a file that is not a square of numbers.
    """
    if path.suffix in (".parquet", ".arrow"):
        from nova_core.io.columnar import read_columns

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
    try:
        return parse_matrix(content.decode("utf-8-sig"))
    except UnicodeDecodeError as cause:
        raise ProblemError(f"{path}: no CSV: {cause}") from None
    except ValueError as cause:
        raise ProblemError(f"{path}: {cause}") from None


def parse_matrix(text: str) -> tuple[list[str], Floats]:
    """Read a matrix as CSV: a row of node names, then one row of numbers per node, in their order.

    Commas, semicolons or tabs separate values; after semicolons and tabs, numbers may have decimal
    commas, as spreadsheets write them in much of Europe. A number may have a unit.

    Args:
        text: the file, without a byte order mark.

    Returns:
        (n,) node names and (n, n) ms; of a lost or missing value, NaN.

    Raises:
        ValueError: naming the row, the nodes, the value and what would be accepted.
    """
    import csv

    first = text.lstrip("\n\r").partition("\n")[0].rstrip("\r")
    try:
        separator = max(",;\t", key=lambda one: len(next(csv.reader([first], delimiter=one), [])))
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if row]
    except csv.Error as cause:
        raise ValueError(f"no CSV: {cause}") from None
    if not rows:
        raise ValueError("empty; a row of node names is expected")
    ids = rows[0]
    if ids[0] == "" and [row[0] for row in rows[1:]] == ids[1:]:
        # Names of rows in front of them, as pandas and spreadsheets write them.
        ids, rows = ids[1:], [row[1:] for row in rows]
    if {"from", "to"} <= set(ids) or {"source", "target"} <= set(ids):
        raise ValueError(
            f"rows of pairs ({', '.join(ids)}), where a matrix is expected: a row of node names, "
            "then a row of ms per node; `nova topology embed` takes rows of pairs, and a problem "
            "has them as latency.pairs, or as tables.latency_pairs with from, to, ms"
        )
    if len(rows) - 1 != len(ids):
        raise ValueError(_not_square(len(ids), len(rows) - 1))
    values = np.empty((len(ids), len(ids)))
    for number, row in enumerate(rows[1:]):
        if len(row) != len(ids):
            raise ValueError(f"row {number + 2} ({ids[number]}): {len(row)} values, not {len(ids)}")
        try:
            values[number] = row
        except ValueError:
            comma = separator != ","
            cells = zip(ids, row, strict=True)
            values[number] = [_value(number, ids, to, cell, comma) for to, cell in cells]
    values[values == -1] = np.nan
    return ids, values


def _value(row: int, ids: list[str], to: str, text: str, comma: bool) -> float:
    word = text.strip().lower()
    if word in MISSING:
        return np.nan
    if comma and "." not in word:
        word = word.replace(",", ".")
    found = _WITH_UNIT.fullmatch(word)
    try:
        if found is not None and found[2] in UNITS:
            return float(found[1]) * UNITS[found[2]]
        return float(word)
    except ValueError:
        raise ValueError(
            f"row {row + 2}, from {ids[row]!r} to {to!r}: {text!r} is no number of ms"
        ) from None


def _not_square(names: int, rows: int) -> str:
    return f"{names} node names but {rows} rows of latencies; a row per node is needed"


def doubt(median: float) -> str:
    """Why latencies of a median, ms, are probably in another unit; empty for a likely one."""
    if 0 < median < LEAST_LIKELY:
        return f"the median latency is {median:g} ms; are these seconds? ms are expected"
    if median > MOST_LIKELY:
        return f"the median latency is {median:,.0f} ms; are these microseconds? ms are expected"
    return ""


def _square(path: Path, ids: list[str], values: Floats) -> Floats:
    if values.shape != (len(ids), len(ids)):
        raise ProblemError(f"{path}: {_not_square(len(ids), len(values))}")
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
