"""Every rule a problem must keep, checked column by column.

What a single value may be is said by the types of a document's rows
(`nova_core.io.problem_document`); here are the rules between values.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, inspect

from nova_core.errors import ProblemError
from nova_core.io.columnar import Field, fields_of
from nova_core.io.columns import Column, Named, length
from nova_core.io.problem_document import ROWS, OperatorRow
from nova_core.io.problem_writing import problem_tables
from nova_core.model.name_index import code_points, repeated
from nova_core.model.problem import (
    GREATEST_LATENCY,
    Bools,
    Floats,
    Ints,
    Links,
    PairLatencies,
    Problem,
    Strings,
)
from nova_core.model.query_checks import check_queries
from nova_core.model.requirements import PARTS, asked_columns, bad_labels
from nova_core.model.zone_checks import check_zones

# Identifiers travel through CSV, YAML, file names and engines: no control characters, no halves of
# surrogate pairs (which UTF-8 cannot hold).
UNUSABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_PLAIN = bytes([0, *range(0x20, 0x7F)])
# Columns that documents may leave out, and problems in memory may not.
_ALWAYS = ("worker", "output_rate")
# Host names in use have underscores, although no standard allows them.
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
SINK_SLACK = 1e-9


def is_host(text: str) -> bool:
    """Whether a text can be a host's name or IP address."""
    if _HOST.fullmatch(text):
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


class _Check:
    """Raises errors that name the file, the table, the row and the value."""

    def __init__(self, where: str, files: Mapping[str, str], ids_checked: bool = False) -> None:
        self.where = where
        self.files = files
        self.ids_checked = ids_checked

    def fail(self, table: str, message: str) -> None:
        raise ProblemError(f"{self.files.get(table, self.where)}: {message}")

    def shape(self, table: str, column: str, values: object, count: int, kind: str) -> None:
        """Type and length of one column; ``kind`` is numpy's."""
        place = f"{table}.{column}"
        if not isinstance(values, np.ndarray) or values.dtype.kind != kind:
            got = getattr(values, "dtype", type(values).__name__)
            names = {"U": "text", "f": "float64", "i": "int64", "b": "bool"}
            self.fail(table, f"{place}: a column of {names[kind]} is needed, not {got}")
        elif kind in "fi" and values.dtype.itemsize != 8:
            self.fail(table, f"{place}: 64 bits are needed, not {values.dtype}")
        elif values.shape[:1] != (count,):
            self.fail(table, f"{place}: {count} rows are needed, not {values.shape}")

    def rows(self, table: str, row_type: type[Struct], columns: Mapping[str, Column]) -> None:
        """Check that a table's columns have types and values that a document's rows may have.

        Args:
            table: its name.
            row_type: struct of its rows.
            columns: by name of a field.
        """
        count = length(next(iter(columns.values()))) if columns else 0
        for field in fields_of(row_type):
            name, types = field.name, field.types
            values: Any = columns.get(name)
            if values is None and (field.required or name in _ALWAYS):
                self.fail(table, f"{table}.{name}: a column is needed, not None")
            if isinstance(values, Named):
                self.shape(table, name, values.codes, count, "i")
                good = (values.codes >= 0) & (values.codes < len(values.ids))
                expected = f"one of the {len(values.ids)} rows it may name"
                self.values(table, name, values.codes, good, expected, columns)
            elif values is None or name == "position":
                continue
            elif number := next((t for t in types if isinstance(t, inspect.FloatType)), None):
                self.shape(table, name, values, count, "f")
                self._numbers(table, field, values, number, columns)
            elif any(isinstance(one, inspect.BoolType) for one in types):
                self.shape(table, name, values, count, "b")
            else:
                self.shape(table, name, values, count, "U")
                if name == "id" and self.ids_checked:
                    continue
                texts = (one for one in types if not isinstance(one, inspect.ListType))
                filled = any(getattr(one, "min_length", None) for one in texts)
                self.names(table, values, name, unique=name == "id", filled=filled)

    def _numbers(
        self,
        table: str,
        field: Field,
        values: Floats,
        number: inspect.FloatType,
        columns: Mapping[str, Column],
    ) -> None:
        types = field.types
        least = number.gt if number.ge is None else number.ge
        assert least is not None  # all numbers of a problem have a bound
        good = values >= least if number.gt is None else values > least
        expected = f"number {'>' if number.ge is None else '>='} {least:g}"
        if number.le is not None:
            good &= values <= number.le
            expected = f"a number from {least:g} to {number.le:g}"
        elif any(isinstance(one, inspect.LiteralType) for one in types):
            expected = f"a {expected} or unlimited"
        else:
            good, expected = good & (values < np.inf), f"a finite {expected}"
        if any(isinstance(one, inspect.NoneType) for one in types):
            good = good | np.isnan(values)
        if field.description:
            expected += f" ({field.description})"
        self.values(table, field.name, values, good, expected, columns)

    def values(
        self,
        table: str,
        column: str,
        values: Floats | Ints,
        good: Bools,
        expected: str,
        columns: Mapping[str, Any],
    ) -> None:
        """Refuse the first bad row, naming it with its id if the table has any."""
        if good.all():
            return
        row = int(np.argmin(good))
        name = f" of {str(columns['id'][row])!r}" if "id" in columns else ""
        self.fail(table, f"{table}[{row}].{column}{name}: {values[row]} is not {expected}")

    def names(self, table: str, names: Strings, column: str, *, unique: bool, filled: bool) -> None:
        """Check that names are usable text."""
        values = [] if _is_plain(names) else names.tolist()
        if UNUSABLE.search(" ".join(values)) or (filled and (names == "").any()):
            row, bad = next(
                (row, name)
                for row, name in enumerate(names.tolist())
                if (filled and not name) or UNUSABLE.search(name)
            )
            self.fail(
                table,
                f"{table}[{row}].{column}: {bad!r} is no name; "
                "a name is not empty and has no control characters",
            )
        if unique and repeated(names):
            again, first = _repeated(np.unique(names, return_inverse=True)[1])
            self.fail(
                table,
                f"{table}[{again}].{column}: {str(names[again])!r} is already used by "
                f"{table}[{first}]; names must be unique",
            )


def _is_plain(names: Strings) -> bool:
    """Whether all characters are printable ASCII, as in most names."""
    points = code_points(names)
    if points.size and points.max() >= 0x7F:
        return False
    others = points.astype(np.uint8).tobytes().translate(None, _PLAIN)
    # Names end with their last character; a NUL before it is one of theirs, and no padding.
    return not others and np.strings.str_len(names).sum() == np.count_nonzero(points)


def _repeated(keys: Ints) -> tuple[int, int]:
    """The first row whose key an earlier row has, and the first that has it; -1 for none."""
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    if not len(same):
        return -1, -1
    again = int(order[same + 1].min())
    return again, int(np.argmax(keys == keys[again]))


def check_ids(table: str, ids: Strings, where: str) -> None:
    """Check the names of a table's rows before anything refers to them.

    Args:
        table: its name, e.g. ``nodes``.
        ids: (k,) names.
        where: the file errors name.

    Raises:
        ProblemError: for a name that is empty, has control characters or is used twice.
    """
    _Check(where, {}).names(table, ids, "id", unique=True, filled=True)


def check_hosts(hosts: Iterable[str], where: str) -> None:
    """Check the addresses of nodes.

    Args:
        hosts: of each node, empty where it has none.
        where: the file errors name.

    Raises:
        ProblemError: for a text that is no address.
    """
    for row, host in enumerate(hosts):
        if host and not is_host(host):
            accepted = "a host name or an IP address"
            raise ProblemError(f"{where}: nodes[{row}].host: {host!r} is not {accepted}")


def validate_problem(
    problem: Problem,
    where: str = "problem",
    files: Mapping[str, str] | None = None,
    ids_checked: bool = False,
) -> Problem:
    """Check every rule a problem must keep; return it.

    Args:
        problem: what to check.
        where: the place errors name, e.g. the document.
        files: tables (``nodes``, ``sources``, ``matrix``, ``links``, ``latency``) that came from a
            file of their own.
        ids_checked: whether `check_ids` has seen the names of nodes, sources and joins.

    Raises:
        ProblemError: naming the table, the row, the value and what would be accepted.
    """
    check = _Check(where, files or {}, ids_checked)
    if not len(problem.nodes):
        check.fail("nodes", "nodes: none; at least one worker is needed")
    if not len(problem.sources):
        check.fail("sources", "sources: none; a join needs a left and a right one")
    for name, columns in problem_tables(problem).items():
        check.rows("latency.pairs" if name == "latency_pairs" else name, ROWS[name], columns)
    _nodes(problem, check)
    if problem.queries:
        if len(problem.joins) or len(problem.matrix):
            check.fail("matrix", "matrix: pairs and queries; a problem has either")
        check_queries(problem, check.where)
    else:
        _joins(problem, check)
        _matrix(problem, check)
    check_zones(problem, check.where)
    _distinct_ends(problem, check, "links", problem.links)
    if problem.measured is not None:
        _distinct_ends(problem, check, "latency.pairs", problem.measured)
    _latency(problem, check)
    _sinks(problem, check)
    return problem


def _nodes(problem: Problem, check: _Check) -> None:
    n = problem.nodes
    check.shape("nodes", "position", n.position, len(n), "f")
    if n.position.ndim != 2 or n.position.shape[1] < 1:
        check.fail("nodes", f"nodes.position: (n, d) is needed, not {n.position.shape}")
    good = np.abs(n.position) <= GREATEST_LATENCY
    if not good.all():
        row, axis = np.argwhere(~good)[0]
        check.fail(
            "nodes",
            f"nodes[{row}].position of {str(n.ids[row])!r}: coordinate {axis} is "
            f"{n.position[row, axis]}, not ms from {-GREATEST_LATENCY:g} to {GREATEST_LATENCY:g}",
        )
    if not n.worker.any():
        check.fail("nodes", "nodes: no worker; let at least one node host joins (worker: true)")
    if n.host is not None:
        check_hosts(n.host.tolist(), check.files.get("nodes", check.where))
    if problem.metrics:
        names, axes = np.array(problem.metrics, np.str_), n.position.shape[1]
        check.names("metrics", names, "name", unique=True, filled=True)
        if len(names) >= axes:
            check.fail(
                "metrics",
                f"metrics: {len(names)} of the {axes} coordinates; at least one must measure "
                "latency",
            )


def _joins(problem: Problem, check: _Check) -> None:
    j, table = problem.joins, "query.operators"
    if not len(j):
        check.fail(table, f"{table}: none; at least one join is needed")
    sink = Named(j.sink, problem.nodes.ids)
    check.rows(table, OperatorRow, {"id": j.ids, "left": j.left, "right": j.right, "sink": sink})
    asks = j.asks or ()
    if j.asks is not None and len(asks) != len(j):
        check.fail(table, f"{table}: {len(j)} rows of what joins ask are needed, not {len(asks)}")
    asked = asked_columns(asks).items()
    for part, kind in PARTS.items():
        columns = {name: one for (of, name), one in asked if of == part and one is not None}
        check.rows(f"{table}.{part}", kind, columns)
        for row, one in enumerate(asks):
            for field, why in bad_labels(getattr(one, part)):
                check.fail(table, f"{table}.{part}[{row}].{field}: {why}")
    streams = set(np.unique(problem.sources.stream).tolist())
    for side, names in (("left", j.left.tolist()), ("right", j.right.tolist())):
        for row, name in enumerate(names):
            if name not in streams:
                shown = ", ".join(sorted(streams)[:8]) + (", …" if len(streams) > 8 else "")
                check.fail(
                    table,
                    f"{table}[{row}].{side} of {str(j.ids[row])!r}: no source has stream {name!r}; "
                    f"there are {shown}",
                )


def pair_keys(join: Ints, left: Ints, right: Ints, sources: int) -> Ints:
    """One number per (join, left, right), equal only for equal pairs."""
    return np.asarray((join * sources + left) * sources + right)


def _matrix(problem: Problem, check: _Check) -> None:
    m, s, joins = problem.matrix, problem.sources, problem.joins
    if not len(m):
        check.fail("matrix", "matrix: no pair; the join matrix must allow at least one")
    for side, rows, stream in (
        ("left", m.left, joins.left[m.join]),
        ("right", m.right, joins.right[m.join]),
    ):
        good = s.stream[rows] == stream
        if not good.all():
            row = int(np.argmin(good))
            check.fail(
                "matrix",
                f"matrix[{row}].{side}: {str(s.ids[rows[row]])!r} belongs to stream "
                f"{str(s.stream[rows[row]])!r}, but {str(joins.ids[m.join[row]])!r} joins "
                f"{str(stream[row])!r} there",
            )
    good = m.left != m.right
    if not good.all():
        row = int(np.argmin(good))
        name = str(s.ids[m.left[row]])
        check.fail("matrix", f"matrix[{row}]: pairs {name!r} with itself; name two sources")
    again, first = _repeated(pair_keys(m.join, m.left, m.right, len(s)))
    if again >= 0:
        check.fail(
            "matrix",
            f"matrix[{again}]: {problem.pair_name(again)} is already matrix[{first}]; "
            "each pair may be named once",
        )


def _distinct_ends(
    problem: Problem, check: _Check, table: str, rows: Links | PairLatencies
) -> None:
    """Refuse rows from a node to itself, and two rows that connect the same nodes."""
    ids, source, target = problem.nodes.ids, rows.source, rows.target
    if (source == target).any():
        row = int(np.argmax(source == target))
        check.fail(table, f"{table}[{row}]: from {str(ids[source[row]])!r} to itself")
    low, high = source, target
    if isinstance(rows, PairLatencies):  # they hold in either direction
        low, high = np.minimum(source, target), np.maximum(source, target)
    row, _ = _repeated(low * len(ids) + high)
    if row >= 0:
        check.fail(
            table,
            f"{table}[{row}]: {str(ids[source[row]])!r} to {str(ids[target[row]])!r} "
            "is already there; name each pair of nodes once",
        )


def _latency(problem: Problem, check: _Check) -> None:
    ids, count, d = problem.nodes.ids, len(problem.nodes), problem.latency
    if d is None:
        return
    check.shape("latency", "matrix", d, count, "f")
    if d.shape != (count, count):
        check.fail("latency", f"latency: {count} x {count} values are needed, not {d.shape}")
    check_latency(d, ids, check.files.get("latency", check.where))
    if not np.array_equal(d, d.T):
        a, b = np.unravel_index(int(np.argmax(np.abs(d - d.T))), d.shape)
        check.fail(
            "latency",
            f"latency: not symmetric: {str(ids[a])!r} to {str(ids[b])!r} takes {d[a, b]} ms, back "
            f"{d[b, a]} ms; use the mean of both (nova_core.io.latencies.symmetrized)",
        )


def refuse_latency(latency: Floats, bad: Bools, why: str, ids: Strings, where: str) -> None:
    """Name the first bad entry of a dense matrix.

    Raises:
        ProblemError: when any entry is bad.
    """
    if bad.any():
        a, b = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise ProblemError(
            f"{where}: latency from {str(ids[a])!r} to {str(ids[b])!r}: {latency[a, b]} {why} "
            f"({int(bad.sum())} such values)"
        )


def check_latency(latency: Floats, ids: Strings, where: str) -> None:
    """Check that a dense matrix connects every pair of nodes.

    Args:
        latency: (n, n) ms.
        ids: (n,) node names for the message.
        where: the file the message names.

    Raises:
        ProblemError: for a missing, infinite, negative or self latency.
    """
    why = "is negative; a latency is a number of ms >= 0"
    refuse_latency(latency, latency < 0, why, ids, where)
    why = f"does not connect them; every pair of nodes needs ms from 0 to {GREATEST_LATENCY:g}"
    refuse_latency(latency, ~(latency <= GREATEST_LATENCY), why, ids, where)
    own = np.flatnonzero(np.diagonal(latency) != 0)
    if len(own):
        node = int(own[0])
        raise ProblemError(
            f"{where}: latency from {str(ids[node])!r} to itself: {latency[node, node]} is not 0 ms"
        )


def _sinks(problem: Problem, check: _Check) -> None:
    output = np.bincount(
        problem.sink_node, problem.matrix.output_rate, minlength=len(problem.nodes)
    )
    capacity = problem.nodes.capacity
    good = output <= capacity * (1 + SINK_SLACK)
    if not good.all():
        sink = int(np.argmin(good))
        check.fail(
            "nodes",
            f"nodes[{sink}].capacity of {str(problem.nodes.ids[sink])!r}: the sink cannot take the "
            f"output: {output[sink]:g} tuples/s arrive, {capacity[sink]:g} fit, "
            f"{output[sink] - capacity[sink]:g} too many",
        )
