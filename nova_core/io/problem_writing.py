"""Writing a problem: the columns of its tables, as rows of a document or as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from nova_core.io.columnar import write_columns
from nova_core.io.columns import Named, Table, rows, write_tables
from nova_core.io.problem_document import VERSION
from nova_core.io.safe_files import DOCUMENT_SUFFIXES, write_text
from nova_core.io.syntax import Row, dump, number
from nova_core.model.problem import Problem, column_names

# More operators and queries than that are written as JSON: 30,000 take 5 s to read as YAML.
MOST_IN_YAML = 1000


def problem_tables(problem: Problem) -> dict[str, Table]:
    """The columns of every table, by the names that `ROWS` of the format gives them."""
    n, s, m, k = problem.nodes, problem.sources, problem.matrix, problem.links
    tables: dict[str, dict[str, Any]] = {
        "nodes": {"id": n.ids} | {name: getattr(n, name) for name in column_names(n)[1:]},
        "sources": {"id": s.ids, "node": Named(s.node, n.ids), "stream": s.stream, "rate": s.rate}
        | {"key": s.key, "tuple_bytes": s.tuple_bytes},
    }
    if not problem.queries:
        tables["matrix"] = {
            "join": Named(m.join, problem.joins.ids),
            "left": Named(m.left, s.ids),
            "right": Named(m.right, s.ids),
            "output_rate": m.output_rate,
        }
    if len(k):
        ends = {"from": Named(k.source, n.ids), "to": Named(k.target, n.ids)}
        tables["links"] = ends | {"budget": k.budget}
    if (p := problem.measured) is not None:
        ends = {"from": Named(p.source, n.ids), "to": Named(p.target, n.ids)}
        tables["latency_pairs"] = ends | {"ms": p.latency, "mbit": p.mbit}
    return {
        name: {column: values for column, values in table.items() if values is not None}
        for name, table in tables.items()
    }


def _header(problem: Problem) -> dict[str, Any]:
    """The part of a document that is never a table."""
    document: dict[str, Any] = {"nova": VERSION, "name": problem.name}
    if problem.queries:
        document["queries"] = msgspec.to_builtins(problem.queries)
        for query in document["queries"]:
            query["operators"] = [Row(operator) for operator in query["operators"]]
    else:
        document["query"] = {"operators": _operators(problem)}
    streams = {one.id: Row(msgspec.to_builtins(one)) for one in problem.streams}
    for name, zones in problem.zones.items():
        streams.setdefault(name, Row(id=name))["zones"] = msgspec.to_builtins(zones)
    if streams:
        document["streams"] = list(streams.values())
    if problem.metrics:
        document["metrics"] = list(problem.metrics)
    return document


def _operators(problem: Problem) -> list[Row]:
    """The joins, with the matrix given pair by pair."""
    j = problem.joins
    operators = rows(
        {
            "id": j.ids,
            "left": j.left,
            "right": j.right,
            "sink": Named(j.sink, problem.nodes.ids),
        }
    )
    for operator in operators:
        operator.update(kind="join", match="matrix")
    for operator, asks in zip(operators, j.asks or [], strict=j.asks is not None):
        for part, fields in msgspec.to_builtins(asks).items():
            operator[part] = {
                name: number(value) if isinstance(value, float) else value
                for name, value in fields.items()
            }
    return operators


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as the plain content of a document that reads back as the same problem."""
    document, latency = _header(problem), dict[str, Any]()
    for name, table in problem_tables(problem).items():
        document[name] = rows(table, keep_missing=True)
    for row in document["nodes"]:
        if row["worker"]:
            del row["worker"]  # the default
    if problem.latency is not None:
        latency["nodes"] = problem.nodes.ids.tolist()
        latency["matrix"] = [[number(x) for x in row] for row in problem.latency]
    if problem.measured is not None:
        latency["pairs"] = document.pop("latency_pairs")
    return document | {"latency": latency} if latency else document


def document_text(problem: Problem, suffix: str) -> str:
    """A problem as the text of a ``.yaml`` or ``.json`` document."""
    return dump(problem_document(problem), suffix)


def write_problem_tables(problem: Problem, directory: Path, suffix: str) -> None:
    """Write ``problem.yaml`` (``problem.json`` for many operators) and its tables.

    The header comes last.

    Args:
        problem: what to write.
        directory: an existing directory.
        suffix: ``parquet``, ``arrow`` or ``csv``.

    Raises:
        NovaError: when it cannot be written.
    """
    document = _header(problem)
    document["tables"] = write_tables(problem_tables(problem), directory, suffix)
    if problem.latency is not None:
        file = f"latency.{suffix}"
        # A column of its own per node, as measured matrices come.
        columns = np.ascontiguousarray(problem.latency.T)
        names = problem.nodes.ids.tolist()
        write_columns(directory / file, dict(zip(names, columns, strict=True)))
        document["latency"] = {"file": file}
    header = ".json" if len(problem.joins) + len(problem.queries) > MOST_IN_YAML else ".yaml"
    for former in set(DOCUMENT_SUFFIXES) - {header}:
        (directory / f"problem{former}").unlink(missing_ok=True)
    write_text(directory / f"problem{header}", dump(document, header))
