"""The problem as people write it: a YAML or JSON document, with tables beside it where large."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import ProblemError
from nova_core.model.assembly import Assembly, Locate
from nova_core.model.problem import Problem
from nova_core.model.queries import Name as Name
from nova_core.model.queries import Positive, Query, Stream
from nova_core.model.syntax import Row, dump, number, read_typed

VERSION = 1

Milliseconds = Annotated[float, Meta(ge=0, description="ms")]
NonNegative = Annotated[float, Meta(ge=0)]


class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class NodeRow(_Struct):
    """A node of the topology."""

    id: Name
    capacity: Annotated[
        Annotated[float, Meta(ge=0)] | Literal["unlimited"],
        Meta(description="tuples/s the node can receive for joins; 0 hosts none"),
    ]
    position: Annotated[
        list[float] | UnsetType,
        Meta(description="cost-space coordinates, ms; all nodes have as many"),
    ] = UNSET
    height: Annotated[
        NonNegative | UnsetType,
        Meta(description="ms of the access link, added to every distance; all nodes or none"),
    ] = UNSET
    penalty: Annotated[
        NonNegative | UnsetType,
        Meta(description="what hosting here counts as per leg, ms: weighted load, money, ..."),
    ] = UNSET
    worker: Annotated[
        bool | UnsetType,
        Meta(description="may host operators; true unless the node is the sink of a join"),
    ] = UNSET
    memory: Annotated[NonNegative | UnsetType | None, Meta(description="bytes")] = UNSET
    cost: Annotated[NonNegative | UnsetType | None, Meta(description="money per time")] = UNSET
    tags: list[str] | UnsetType = UNSET
    host: Annotated[str | UnsetType | None, Meta(description="network address")] = UNSET


class SourceRow(_Struct):
    """A physical stream: one producing sensor."""

    id: Name
    node: Annotated[Name, Meta(description="the node that produces it")]
    stream: Annotated[Name, Meta(description="the logical stream it belongs to")]
    rate: Annotated[float, Meta(gt=0, description="tuples/s")]
    key: Annotated[
        str | UnsetType | None, Meta(description="region or key; equal keys may join")
    ] = UNSET
    tuple_bytes: Annotated[Positive | UnsetType | None, Meta(description="bytes per tuple")] = UNSET


class RequiresPart(_Struct):
    """What every host of a join must have."""

    tags: Annotated[list[str] | UnsetType, Meta(description="labels, all of them")] = UNSET
    memory: Annotated[NonNegative | UnsetType | None, Meta(description="bytes, at least")] = UNSET


class OperatorRow(_Struct):
    """A join of two logical streams, placed pair by pair of their sources."""

    id: Name
    left: Annotated[Name, Meta(description="logical stream on the left")]
    right: Annotated[Name, Meta(description="logical stream on the right")]
    sink: Annotated[Name, Meta(description="the node that consumes the result")]
    kind: Literal["join"] = "join"
    match: Annotated[
        Literal["key", "all", "matrix"] | UnsetType,
        Meta(
            description="which sources may join: those with equal keys, every left with every "
            "right one, or the pairs under `matrix`. Left out: the pairs under `matrix` if there "
            "are any of this operator, else equal keys if all its sources have keys, else all"
        ),
    ] = UNSET
    selectivity: Annotated[
        float,
        Meta(
            gt=0,
            description="results per tuple of the slower input: a pair without an output_rate of "
            "its own emits selectivity * min(left rate, right rate) tuples/s",
        ),
    ] = 1.0
    requires: RequiresPart | UnsetType = UNSET


class QueryPart(_Struct):
    """Joins of pairs of sources."""

    operators: list[OperatorRow]


class PairRow(_Struct):
    """A pair of sources that may join: an entry of the join matrix."""

    join: Annotated[Name, Meta(description="an operator")]
    left: Annotated[Name, Meta(description="a source of its left stream")]
    right: Annotated[Name, Meta(description="a source of its right stream")]
    output_rate: Annotated[Positive | UnsetType, Meta(description="tuples/s the pair emits")] = (
        UNSET
    )


class LinkRow(_Struct, rename={"source": "from", "target": "to"}):
    """The bandwidth budget of one direction between two nodes."""

    source: Name
    target: Name
    budget: Annotated[float, Meta(ge=0, description="tuples/s")]


class PairLatencyRow(_Struct, rename={"source": "from", "target": "to"}):
    """A measured latency between two nodes, in either direction."""

    source: Name
    target: Name
    ms: Milliseconds


class LatencyPart(_Struct):
    """Measured latencies: a dense matrix here or in a file, or some pairs, or both."""

    nodes: Annotated[list[Name] | UnsetType, Meta(description="the matrix's rows")] = UNSET
    matrix: Annotated[
        list[list[float]] | UnsetType, Meta(description="ms, a row and a column per node")
    ] = UNSET
    file: Annotated[
        str | UnsetType,
        Meta(description="a file with the matrix: .csv, .csv.gz, .parquet or .arrow"),
    ] = UNSET
    pairs: list[PairLatencyRow] | UnsetType = UNSET


class TablesPart(_Struct):
    """Files beside this document that hold a part of it: .parquet, .arrow or .csv."""

    nodes: str | UnsetType = UNSET
    sources: str | UnsetType = UNSET
    matrix: str | UnsetType = UNSET
    links: str | UnsetType = UNSET
    latency_pairs: str | UnsetType = UNSET


class ProblemDocument(_Struct):
    """What is to be placed: a topology, its streams, and either joins of pairs or whole queries."""

    nova: Annotated[Literal[1], Meta(description="version of this format")]
    query: Annotated[QueryPart | UnsetType, Meta(description="or queries")] = UNSET
    queries: Annotated[
        Annotated[list[Query], Meta(min_length=1)] | UnsetType,
        Meta(description="whole queries, in place of `query` and `matrix`"),
    ] = UNSET
    streams: Annotated[
        list[Stream] | UnsetType,
        Meta(description="columns of the logical streams, for queries with expressions or sql"),
    ] = UNSET
    name: str = "problem"
    metrics: Annotated[
        list[Name] | UnsetType,
        Meta(
            description="names of the last coordinates of every position, which measure something "
            "else than latency, weighted so that 1 counts as much as 1 ms"
        ),
    ] = UNSET
    nodes: list[NodeRow] | UnsetType = UNSET
    sources: list[SourceRow] | UnsetType = UNSET
    matrix: list[PairRow] | UnsetType = UNSET
    links: list[LinkRow] | UnsetType = UNSET
    latency: LatencyPart | UnsetType = UNSET
    tables: TablesPart | UnsetType = UNSET


def read_document(path: Path, locate: Locate | None = None) -> Problem:
    """Read and check a problem document.

    Args:
        path: a ``.yaml``, ``.yml`` or ``.json`` file.
        locate: see `nova_core.model.files.read_problem`.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    document = read_typed(path, ProblemDocument, "nova", VERSION, ProblemError)
    return Assembly(document, path, locate).problem()


# --- writing ------------------------------------------------------------------------------------


def _row(**fields: Any) -> Row:
    return Row({name: value for name, value in fields.items() if value is not UNSET})


def _optional(column: Any, row: int) -> Any:
    """A value of an optional column: left out without the column, null where it is not known."""
    if column is None:
        return UNSET
    value = column[row]
    if isinstance(value, np.str_):
        return str(value) or None
    return None if np.isnan(value) else number(value)


def operator_rows(problem: Problem) -> list[Row]:
    """The query, with the matrix given pair by pair."""
    j, ids = problem.joins, problem.nodes.ids
    return [
        _row(
            id=str(j.ids[i]),
            kind="join",
            left=str(j.left[i]),
            right=str(j.right[i]),
            sink=str(ids[j.sink[i]]),
            match="matrix",
            requires=_requires(problem, i),
        )
        for i in range(len(j))
    ]


def _requires(problem: Problem, join: int) -> Any:
    j = problem.joins
    if j.tags is None and j.memory is None:
        return UNSET
    return _row(tags=_tags(j.tags, join), memory=_optional(j.memory, join))


def _tags(column: Any, row: int) -> Any:
    return UNSET if column is None else [tag for tag in str(column[row]).split(",") if tag]


def header(problem: Problem) -> dict[str, Any]:
    """The part of a document that is never a table."""
    if problem.queries:
        queries = msgspec.to_builtins(problem.queries)
        for query in queries:
            query["operators"] = [Row(operator) for operator in query["operators"]]
        what: dict[str, Any] = {"queries": queries}
        if problem.streams:
            what["streams"] = [Row(one) for one in msgspec.to_builtins(problem.streams)]
    else:
        what = {"query": {"operators": operator_rows(problem)}}
    return {
        "nova": VERSION,
        "name": problem.name,
        **what,
        **({"metrics": list(problem.metrics)} if problem.metrics else {}),
    }


def _nodes(problem: Problem) -> list[Row]:
    n = problem.nodes
    is_sink = np.zeros(len(n), bool)
    is_sink[problem.sinks] = True
    return [
        _row(
            id=str(n.ids[i]),
            position=[number(x) for x in n.position[i]],
            capacity="unlimited" if np.isinf(n.capacity[i]) else number(n.capacity[i]),
            worker=UNSET if bool(n.worker[i]) != bool(is_sink[i]) else bool(n.worker[i]),
            memory=_optional(n.memory, i),
            cost=_optional(n.cost, i),
            tags=_tags(n.tags, i),
            host=_optional(n.host, i),
            height=_optional(n.height, i),
            penalty=_optional(n.penalty, i),
        )
        for i in range(len(n))
    ]


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as the plain content of a document that reads back as the same problem."""
    ids, s, m = problem.nodes.ids.tolist(), problem.sources, problem.matrix
    names = s.ids.tolist()
    document = header(problem)
    document["nodes"] = _nodes(problem)
    document["sources"] = [
        _row(
            id=names[i],
            node=ids[s.node[i]],
            stream=str(s.stream[i]),
            rate=number(s.rate[i]),
            key=_optional(s.key, i),
            tuple_bytes=_optional(s.tuple_bytes, i),
        )
        for i in range(len(s))
    ]
    if not problem.queries:
        document["matrix"] = [
            _row(
                join=str(problem.joins.ids[m.join[i]]),
                left=names[m.left[i]],
                right=names[m.right[i]],
                output_rate=number(m.output_rate[i]),
            )
            for i in range(len(m))
        ]
    if len(problem.links):
        k = problem.links
        document["links"] = [
            Row({"from": ids[k.source[i]], "to": ids[k.target[i]], "budget": number(k.budget[i])})
            for i in range(len(k))
        ]
    latency: dict[str, Any] = {}
    if problem.latency is not None:
        latency["nodes"] = ids
        latency["matrix"] = [[number(x) for x in row] for row in problem.latency]
    if problem.measured is not None:
        p = problem.measured
        latency["pairs"] = [
            Row({"from": ids[p.source[i]], "to": ids[p.target[i]], "ms": number(p.latency[i])})
            for i in range(len(p))
        ]
    if latency:
        document["latency"] = latency
    return document


def document_text(problem: Problem, suffix: str) -> str:
    """A problem as the text of a ``.yaml`` or ``.json`` document."""
    return dump(problem_document(problem), suffix)
