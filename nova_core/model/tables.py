"""The problem as columnar files: a header document and tables of nodes, sources, pairs, links.

Reading needs nothing of its own: the header names its tables (`nova_core.model.document`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nova_core.model.columnar import names_of, position_columns, write_columns
from nova_core.model.document import header
from nova_core.model.files import write_text
from nova_core.model.problem import Problem
from nova_core.model.syntax import dump


def _filled(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in columns.items() if values is not None}


def problem_tables(problem: Problem) -> dict[str, dict[str, Any]]:
    """The columns of every table, as they are written; names instead of indices."""
    n, s, m, k = problem.nodes, problem.sources, problem.matrix, problem.links
    axes = dict(zip(position_columns(n.position.shape[1]), n.position.T, strict=True))
    tables = {
        "nodes": _filled(
            {"id": n.ids, **axes, "height": n.height, "penalty": n.penalty}
            | {"capacity": n.capacity, "worker": n.worker}
            | {"memory": n.memory, "cost": n.cost, "tags": n.tags, "host": n.host}
        ),
        "sources": _filled(
            {"id": s.ids, "node": names_of(s.node, n.ids), "stream": s.stream, "rate": s.rate}
            | {"tuple_bytes": s.tuple_bytes, "key": s.key}
        ),
    }
    if len(m):
        tables["matrix"] = {
            "join": names_of(m.join, problem.joins.ids),
            "left": names_of(m.left, s.ids),
            "right": names_of(m.right, s.ids),
            "output_rate": m.output_rate,
        }
    if len(k):
        tables["links"] = _ends(problem, k.source, k.target) | {"budget": k.budget}
    if problem.measured is not None:
        p = problem.measured
        tables["latency_pairs"] = _ends(problem, p.source, p.target) | {"ms": p.latency}
    return tables


def _ends(problem: Problem, source: Any, target: Any) -> dict[str, Any]:
    ids = problem.nodes.ids
    return {"from": names_of(source, ids), "to": names_of(target, ids)}


def write_problem_tables(problem: Problem, directory: Path, suffix: str) -> None:
    """Write ``problem.yaml`` and its tables; the header comes last.

    Args:
        problem: what to write.
        directory: an existing directory.
        suffix: ``parquet``, ``arrow`` or ``csv``.

    Raises:
        NovaError: when it cannot be written.
    """
    document = header(problem)
    document["tables"] = {}
    for name, columns in problem_tables(problem).items():
        file = f"{name}.{suffix}"
        write_columns(directory / file, columns)
        document["tables"][name] = file
    if problem.latency is not None:
        file = f"latency.{suffix}"
        ids = problem.nodes.ids.tolist()
        # A column of its own per node, as measured matrices come.
        columns = dict(zip(ids, np.ascontiguousarray(problem.latency.T), strict=True))
        write_columns(directory / file, columns)
        document["latency"] = {"file": file}
    write_text(directory / "problem.yaml", dump(document, ".yaml"))
