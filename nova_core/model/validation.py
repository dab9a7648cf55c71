"""Every rule a problem must keep, checked column by column (DESIGN.md, section 7)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Bools, Floats, Ints, Problem, Strings
from nova_core.model.queries import check_queries

# Identifiers travel through CSV, YAML, file names and engines: no control characters, no halves of
# surrogate pairs (which UTF-8 cannot hold).
UNUSABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Of host names in use: underscores are, though no standard has them.
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

    def __init__(self, where: str, files: Mapping[str, str]) -> None:
        self.where = where
        self.files = files

    def fail(self, table: str, message: str) -> None:
        raise ProblemError(f"{self.files.get(table, self.where)}: {message}")

    def column(self, table: str, column: str, values: object, count: int, kind: str) -> None:
        """Shape and type of one column; ``kind`` lists numpy kinds."""
        if not isinstance(values, np.ndarray) or values.dtype.kind not in kind:
            got = getattr(values, "dtype", type(values).__name__)
            names = {"U": "text", "f": "float64", "i": "int64", "b": "bool"}
            self.fail(table, f"{table}.{column}: a column of {names[kind]} is needed, not {got}")
        elif kind != "U" and kind != "b" and values.dtype.itemsize != 8:
            self.fail(table, f"{table}.{column}: 64 bits are needed, not {values.dtype}")
        elif values.shape[:1] != (count,):
            self.fail(table, f"{table}.{column}: {count} rows are needed, not {values.shape}")

    def ids(
        self,
        table: str,
        ids: Strings,
        column: str = "id",
        unique: bool = True,
        filled: bool = True,
    ) -> None:
        """Names are usable text and, unless told otherwise, unique and never empty."""
        values = ids.tolist()
        if UNUSABLE.search(" ".join(values)) or (filled and "" in values):
            row, bad = next(
                (i, v) for i, v in enumerate(values) if (filled and not v) or UNUSABLE.search(v)
            )
            self.fail(
                table,
                f"{table}[{row}].{column}: {bad!r} is no name; "
                "a name is not empty and has no control characters",
            )
        if unique and len(set(values)) < len(values):
            first: dict[str, int] = {}
            for row, value in enumerate(values):
                if first.setdefault(value, row) != row:
                    self.fail(
                        table,
                        f"{table}[{row}].{column}: {value!r} is already used by "
                        f"{table}[{first[value]}]; names must be unique",
                    )

    def values(
        self, table: str, column: str, values: Floats, good: Bools, accepted: str, ids: Strings
    ) -> None:
        """All rows are good, or the first bad one is named."""
        if good.all():
            return
        row = int(np.argmin(good))
        name = f" of {str(ids[row])!r}" if len(ids) else ""
        self.fail(table, f"{table}[{row}].{column}{name}: {values[row]} is not {accepted}")

    def index(self, table: str, column: str, values: Ints, count: int, of: str) -> None:
        good = (values >= 0) & (values < count)
        if not good.all():
            row = int(np.argmin(good))
            self.fail(
                table, f"{table}[{row}].{column}: {values[row]} is no row of the {count} {of}"
            )


def check_ids(table: str, ids: Strings, where: str) -> None:
    """Check the names of a table's rows before anything refers to them.

    Args:
        table: its name, e.g. ``nodes``.
        ids: (k,) names.
        where: the file errors name.

    Raises:
        ProblemError: for a name that is empty, has control characters or is used twice.
    """
    _Check(where, {}).ids(table, ids)


def validate_problem(
    problem: Problem, where: str = "problem", files: Mapping[str, str] | None = None
) -> None:
    """Check every rule a problem must keep.

    Args:
        problem: what to check.
        where: the place errors name, e.g. the document.
        files: tables (``nodes``, ``sources``, ``matrix``, ``links``, ``latency``) that came from a
            file of their own.

    Raises:
        ProblemError: naming the table, the row, the value and what would be accepted.
    """
    check = _Check(where, files or {})
    _nodes(problem, check)
    _sources(problem, check)
    if problem.queries:
        _queries(problem, check)
    else:
        _joins(problem, check)
        _matrix(problem, check)
    _links(problem, check)
    _latency(problem, check)
    _sinks(problem, check)


def _nodes(problem: Problem, check: _Check) -> None:
    n, count = problem.nodes, len(problem.nodes)
    if count == 0:
        check.fail("nodes", "nodes: none; at least one worker is needed")
    check.column("nodes", "id", n.ids, count, "U")
    check.column("nodes", "position", n.position, count, "f")
    check.column("nodes", "capacity", n.capacity, count, "f")
    check.column("nodes", "worker", n.worker, count, "b")
    _metrics(problem, check)
    if n.position.ndim != 2 or n.position.shape[1] < 1:
        check.fail("nodes", f"nodes.position: (n, d) is needed, not {n.position.shape}")
    check.ids("nodes", n.ids)
    finite = np.isfinite(n.position)
    if not finite.all():
        row, axis = np.argwhere(~finite)[0]
        check.fail(
            "nodes",
            f"nodes[{row}].position of {str(n.ids[row])!r}: coordinate {axis} is "
            f"{n.position[row, axis]}, not a finite number of ms",
        )
    accepted = "a number of tuples/s >= 0, or unlimited"
    check.values("nodes", "capacity", n.capacity, n.capacity >= 0, accepted, n.ids)
    if not n.worker.any():
        check.fail("nodes", "nodes: no worker; let at least one node host joins (worker: true)")
    for column, values in (("memory", n.memory), ("cost", n.cost)):
        if values is not None:
            check.column("nodes", column, values, count, "f")
            good = (values >= 0) & (values < np.inf) | np.isnan(values)
            check.values("nodes", column, values, good, "a number >= 0, or left out", n.ids)
    for column, values in (("height", n.height), ("penalty", n.penalty)):
        if values is not None:
            check.column("nodes", column, values, count, "f")
            good = (values >= 0) & (values < np.inf)
            check.values("nodes", column, values, good, "a number of ms >= 0", n.ids)
    for column, text in (("tags", n.tags), ("host", n.host)):
        if text is not None:
            check.column("nodes", column, text, count, "U")
            check.ids("nodes", text, column, unique=False, filled=False)
    if n.host is not None:
        for row, host in enumerate(n.host.tolist()):
            if host and not is_host(host):
                accepted = "a host name or an IP address"
                check.fail("nodes", f"nodes[{row}].host: {host!r} is not {accepted}")


def _metrics(problem: Problem, check: _Check) -> None:
    names = problem.metrics
    if not names:
        return
    check.ids("metrics", np.array(names, np.str_), "name")
    axes = problem.nodes.position.shape[-1]
    if len(names) >= axes:
        check.fail(
            "metrics",
            f"metrics: {len(names)} of the {axes} coordinates; at least one must measure latency",
        )


def _sources(problem: Problem, check: _Check) -> None:
    s, count = problem.sources, len(problem.sources)
    if count == 0:
        check.fail("sources", "sources: none; a join needs a left and a right one")
    check.column("sources", "id", s.ids, count, "U")
    check.column("sources", "node", s.node, count, "i")
    check.column("sources", "stream", s.stream, count, "U")
    check.column("sources", "rate", s.rate, count, "f")
    check.ids("sources", s.ids)
    check.ids("sources", s.stream, "stream", unique=False)
    check.index("sources", "node", s.node, len(problem.nodes), "nodes")
    positive = (s.rate > 0) & (s.rate < np.inf)
    check.values("sources", "rate", s.rate, positive, "a positive number of tuples/s", s.ids)
    if s.tuple_bytes is not None:
        check.column("sources", "tuple_bytes", s.tuple_bytes, count, "f")
        good = (s.tuple_bytes > 0) & (s.tuple_bytes < np.inf) | np.isnan(s.tuple_bytes)
        accepted = "a positive number of bytes, or left out"
        check.values("sources", "tuple_bytes", s.tuple_bytes, good, accepted, s.ids)
    if s.key is not None:
        check.column("sources", "key", s.key, count, "U")
        check.ids("sources", s.key, "key", unique=False, filled=False)


def _queries(problem: Problem, check: _Check) -> None:
    if len(problem.joins) or len(problem.matrix):
        check.fail("matrix", "matrix: pairs and queries; a problem has either")
    check_queries(problem, check.where)


def _joins(problem: Problem, check: _Check) -> None:
    j, count = problem.joins, len(problem.joins)
    if count == 0:
        check.fail("query", "query.operators: none; at least one join is needed")
    for column, values in (("id", j.ids), ("left", j.left), ("right", j.right)):
        check.column("query", column, values, count, "U")
    check.column("query", "sink", j.sink, count, "i")
    check.ids("query", j.ids)
    check.index("query", "sink", j.sink, len(problem.nodes), "nodes")
    if j.tags is not None:
        check.column("query", "requires.tags", j.tags, count, "U")
        check.ids("query", j.tags, "requires.tags", unique=False, filled=False)
    if j.memory is not None:
        check.column("query", "requires.memory", j.memory, count, "f")
        good = (j.memory >= 0) & (j.memory < np.inf) | np.isnan(j.memory)
        accepted = "a number of bytes >= 0, or left out"
        check.values("query", "requires.memory", j.memory, good, accepted, j.ids)
    streams = set(problem.sources.stream.tolist())
    for row, names in enumerate(zip(j.left.tolist(), j.right.tolist(), strict=True)):
        for side, name in zip(("left", "right"), names, strict=True):
            if name not in streams:
                shown = ", ".join(sorted(streams)[:8]) + (", …" if len(streams) > 8 else "")
                check.fail(
                    "query",
                    f"query.operators[{row}].{side} of {str(j.ids[row])!r}: no source has stream "
                    f"{name!r}; there are {shown}",
                )


def pair_keys(join: Ints, left: Ints, right: Ints, sources: int) -> Ints:
    """One number per (join, left, right), equal only for equal pairs."""
    return np.asarray((join * sources + left) * sources + right)


def _matrix(problem: Problem, check: _Check) -> None:
    m, s, count = problem.matrix, problem.sources, len(problem.matrix)
    if count == 0:
        check.fail("matrix", "matrix: no pair; the join matrix must allow at least one")
    for column, values in (("join", m.join), ("left", m.left), ("right", m.right)):
        check.column("matrix", column, values, count, "i")
    check.column("matrix", "output_rate", m.output_rate, count, "f")
    check.index("matrix", "join", m.join, len(problem.joins), "operators")
    check.index("matrix", "left", m.left, len(s), "sources")
    check.index("matrix", "right", m.right, len(s), "sources")
    for side, rows, wanted in (
        ("left", m.left, problem.joins.left[m.join]),
        ("right", m.right, problem.joins.right[m.join]),
    ):
        good = s.stream[rows] == wanted
        if not good.all():
            row = int(np.argmin(good))
            check.fail(
                "matrix",
                f"matrix[{row}].{side}: {str(s.ids[rows[row]])!r} belongs to stream "
                f"{str(s.stream[rows[row]])!r}, but {str(problem.joins.ids[m.join[row]])!r} joins "
                f"{str(wanted[row])!r} there",
            )
    good = m.left != m.right
    if not good.all():
        row = int(np.argmin(good))
        name = str(s.ids[m.left[row]])
        check.fail("matrix", f"matrix[{row}]: pairs {name!r} with itself; name two sources")
    keys = pair_keys(m.join, m.left, m.right, len(s))
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(same):
        again = int(order[same + 1].min())
        first = int(np.flatnonzero(keys == keys[again])[0])
        check.fail(
            "matrix",
            f"matrix[{again}]: {problem.pair_name(again)} is already matrix[{first}]; "
            "each pair may be named once",
        )
    good = (m.output_rate > 0) & (m.output_rate < np.inf)
    if not good.all():
        row = int(np.argmin(good))
        check.fail(
            "matrix",
            f"matrix[{row}].output_rate of {problem.pair_name(row)}: {m.output_rate[row]} is not "
            "a positive number of tuples/s; leave out a pair that never joins",
        )


def _links(problem: Problem, check: _Check) -> None:
    k, count, nodes = problem.links, len(problem.links), len(problem.nodes)
    check.column("links", "from", k.source, count, "i")
    check.column("links", "to", k.target, count, "i")
    check.column("links", "budget", k.budget, count, "f")
    check.index("links", "from", k.source, nodes, "nodes")
    check.index("links", "to", k.target, nodes, "nodes")
    accepted = "a number of tuples/s >= 0 (leave the link out for unlimited)"
    good = (k.budget >= 0) & (k.budget < np.inf)
    check.values("links", "budget", k.budget, good, accepted, np.empty(0, np.str_))
    _distinct_ends(problem, check, "links", k.source, k.target)


def _distinct_ends(
    problem: Problem, check: _Check, table: str, source: Ints, target: Ints, directed: bool = True
) -> None:
    ids = problem.nodes.ids
    if (source == target).any():
        row = int(np.argmax(source == target))
        check.fail(table, f"{table}[{row}]: from {str(ids[source[row]])!r} to itself")
    low, high = (
        (source, target) if directed else (np.minimum(source, target), np.maximum(source, target))
    )
    keys = low * len(ids) + high
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(same):
        row = int(order[same + 1].min())
        check.fail(
            table,
            f"{table}[{row}]: {str(ids[source[row]])!r} to {str(ids[target[row]])!r} "
            "is already there; name each pair of nodes once",
        )


def _latency(problem: Problem, check: _Check) -> None:
    ids, count = problem.nodes.ids, len(problem.nodes)
    if problem.measured is not None:
        p = problem.measured
        for column, values in (("from", p.source), ("to", p.target)):
            check.column("latency.pairs", column, values, len(p), "i")
            check.index("latency.pairs", column, values, count, "nodes")
        check.column("latency.pairs", "ms", p.latency, len(p), "f")
        good = (p.latency >= 0) & (p.latency < np.inf)
        accepted = "a number of ms >= 0"
        check.values("latency.pairs", "ms", p.latency, good, accepted, np.empty(0, np.str_))
        _distinct_ends(problem, check, "latency.pairs", p.source, p.target, directed=False)
    if problem.latency is None:
        return
    d = problem.latency
    check.column("latency", "matrix", d, count, "f")
    if d.shape != (count, count):
        check.fail("latency", f"latency: {count} x {count} values are needed, not {d.shape}")
    check_latency(d, ids, check.files.get("latency", check.where))
    if not np.array_equal(d, d.T):
        a, b = np.unravel_index(int(np.argmax(np.abs(d - d.T))), d.shape)
        check.fail(
            "latency",
            f"latency: not symmetric: {str(ids[a])!r} to {str(ids[b])!r} takes {d[a, b]} ms, back "
            f"{d[b, a]} ms; use the mean of both (nova_core.model.latencies.symmetrized)",
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
    why = "does not connect them; every pair of nodes needs a finite number of ms"
    refuse_latency(latency, ~np.isfinite(latency), why, ids, where)
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
