"""Reading measured latencies: a matrix, rows of pairs, or a problem that holds either.

Rows of pairs are what ``nova testbed measure`` and the data pipeline write: ``source``, ``target``,
``latency`` (ms) and, where pairs were measured again and again, ``time``.
"""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np

from nova_core.costspace.measurements import Measurements
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.columnar import Kind, read_columns
from nova_core.io.files import read_problem
from nova_core.io.latencies import ONE_WAY, doubt, read_latency
from nova_core.io.packed import PackedError, check_packed
from nova_core.io.safe_files import DOCUMENT_SUFFIXES
from nova_core.io.validation import check_ids
from nova_core.model.problem import Bools, Floats, PairLatencies, Problem, Strings

TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".arrow")
_PAIR_KINDS: dict[str, Kind] = {
    "source": "text",
    "target": "text",
    "latency": "number",
    "rtt": "number",
    "from": "text",
    "to": "text",
    "ms": "number",
}
# What stands for a lost answer.
LOST = -1.0
_NAMINGS = (("source", "target", "latency"), ("source", "target", "rtt"), ("from", "to", "ms"))


def read_measurements(path: Path, what: str | None = None) -> Measurements:
    """Read latencies, as one-way ones: a matrix, rows of pairs, or a problem with either.

    Args:
        path: ``.csv``, ``.csv.gz``, ``.parquet`` or ``.arrow`` with a column per node (a matrix)
            or the columns source, target, latency (or rtt) and perhaps time; or a problem.
        what: they are, of `ONE_WAY`; None for what the file says: a problem by its field ``is``,
            rows of pairs by the column's name, a matrix nothing, which means one way.

    Raises:
        ProblemError: naming the file, the place and what would be accepted.

    Warns:
        ProblemWarning: for rows without a latency, which are left out, and for round trips, half of
            which counts.
    """
    if path.is_dir() or path.suffix.lower() in DOCUMENT_SUFFIXES:
        # The caller computes positions, so none are computed here.
        if what is not None:
            raise ProblemError(f"{path}: a problem says itself what its latencies are: latency.is")
        problem = read_problem(path, locate=lambda ids, *_: (np.zeros((len(ids), 1)), None))
        return of_problem(problem, str(path))
    if not path.name.endswith(TABLE_SUFFIXES):
        raise ProblemError(
            f"{path}: latencies are a {', '.join(TABLE_SUFFIXES)} file or a problem with latencies"
        )
    if not path.is_file():
        raise ProblemError(f"{path}: cannot be read: no such file")
    names = column_names(path)
    for naming in _NAMINGS:
        if set(naming) <= set(names):
            said = "round-trip" if naming[2] == "rtt" else None
            if said and what not in (None, said):
                raise ProblemError(f"{path}: column rtt: round trips, not {what}")
            return _of_rows(path, naming, _share(path, what or said))
    if {"source", "target"} <= set(names) or {"from", "to"} <= set(names):
        raise ProblemError(
            f"{path}: columns {', '.join(names)}; rows of pairs need source, target, and latency "
            "(one way) or rtt (round trip), ms"
        )
    ids, matrix = read_latency(path)
    return _of_matrix(str(path), np.array(ids, np.str_), matrix * _share(path, what))


def _share(path: Path, what: str | None) -> float:
    """How much of a latency that is read counts; a note says so of round trips."""
    share = ONE_WAY[what or "one-way"]
    if share != 1:
        text = f"{path}: round trips; half of each counts, as latencies of problems are one way"
        warnings.warn(text, ProblemWarning, stacklevel=3)
    return share


def of_problem(problem: Problem, where: str) -> Measurements:
    """The latencies a problem holds: its matrix if it has one, else its pairs.

    Raises:
        ProblemError: when it holds none.
    """
    ids, matrix, pairs = problem.nodes.ids, problem.latency, problem.measured
    if matrix is not None:
        return Measurements(ids, matrix=matrix, problem=problem)
    if pairs is not None and len(pairs):
        return Measurements(ids, rows=pairs, problem=problem)
    raise ProblemError(
        f"{where}: the problem has no measured latencies (latency: a file, a matrix or pairs)"
    )


def _of_matrix(where: str, ids: Strings, matrix: Floats) -> Measurements:
    names = ids.tolist()
    check_ids("nodes", ids, where)
    between = ~np.eye(len(ids), dtype=bool)
    matrix = np.where(_nothing(where, matrix, between), np.nan, matrix)
    bad = (matrix < 0) | np.isinf(matrix)
    if bad.any():
        a, b = np.argwhere(bad)[0]
        raise ProblemError(
            f"{where}: latency from {names[a]!r} to {names[b]!r}: {matrix[a, b]:g}; use ms >= 0, "
            "or leave it empty where nothing was measured"
        )
    _warn_of_scale(where, matrix[between])
    return Measurements(ids, matrix=matrix)


def _of_rows(path: Path, naming: tuple[str, str, str], share: float) -> Measurements:
    table = read_columns(path, _PAIR_KINDS, ProblemError, extra=True)
    if len(table) == 0:
        raise ProblemError(f"{path}: no rows; each gives source, target and latency")
    latency = table.floats(naming[2], np.nan) * share
    latency[latency == LOST * share] = np.nan
    bad = (latency < 0) | np.isinf(latency)
    if bad.any():
        row = int(np.argmax(bad))
        raise table.fail(naming[2], f"{latency[row]:g}; use ms >= 0, or leave it empty", row)
    source_code, source_names = table.coded(naming[0])
    target_code, target_names = table.coded(naming[1])
    ids, place = np.unique(np.concatenate([source_names, target_names]), return_inverse=True)
    check_ids("nodes", ids, str(path))
    source = place[: len(source_names)][source_code]
    target = place[len(source_names) :][target_code]
    lost = int(np.isnan(latency).sum())
    between = source != target
    keep: Bools = ~np.isnan(latency) & between & ~_nothing(str(path), latency, between)
    _warn_of_scale(str(path), latency[keep])
    if lost:
        warnings.warn(
            f"{path}: {lost} of {len(latency)} rows have no latency; left out",
            ProblemWarning,
            stacklevel=2,
        )
    order = table.order("time") if "time" in table else np.arange(len(table))
    order = order[keep[order]]
    return Measurements(ids, rows=PairLatencies(source[order], target[order], latency[order]))


def _nothing(where: str, latency: Floats, between: Bools) -> Bools:
    """Where a latency between different nodes is 0, which stands for no measurement."""
    nothing: Bools = (latency == 0) & between
    if nothing.any():
        text = (
            f"{where}: {int(nothing.sum()):,} latencies between different nodes are 0 ms; left "
            "out, as no network is that fast"
        )
        warnings.warn(text, ProblemWarning, stacklevel=4)
    return nothing


def _warn_of_scale(where: str, latency: Floats) -> None:
    known = latency[~np.isnan(latency)]
    why = doubt(float(np.median(known))) if len(known) else ""
    if why:
        warnings.warn(f"{where}: {why}", ProblemWarning, stacklevel=4)


def column_names(path: Path) -> list[str]:
    """Names of a table's columns, without reading the rest of it."""
    if path.suffix in (".parquet", ".arrow"):
        return read_columns(path, None, ProblemError).names
    import csv

    try:
        if path.suffix == ".gz":
            check_packed(path)
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return next(csv.reader([file.readline().decode("utf-8-sig")]), [])
    except (OSError, PackedError, UnicodeDecodeError, csv.Error) as cause:
        raise ProblemError(f"{path}: no readable table: {cause}") from None
