"""The format of problems: a YAML or JSON document, with tables beside it where large.

The types below describe every table once: the rows of a document, the columns of a file, and the
values that a problem in memory may have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import ProblemError
from nova_core.io.syntax import convert
from nova_core.model.problem import GREATEST_LATENCY
from nova_core.model.queries import Columns, Positive, Query
from nova_core.model.requirements import Asks, NodeFacts, ZonesPart
from nova_core.model.requirements import Name as Name
from nova_core.model.requirements import NonNegative as NonNegative

VERSION = 1

Milliseconds = Annotated[float, Meta(ge=0, le=GREATEST_LATENCY, description="ms")]


class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class NodeRow(NodeFacts, frozen=True):
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
        Milliseconds | UnsetType,
        Meta(description="ms of the access link, added to every distance; all nodes or none"),
    ] = UNSET
    penalty: Annotated[
        NonNegative | UnsetType,
        Meta(description="what hosting here counts as per leg, ms: weighted load, money, ..."),
    ] = UNSET
    worker: Annotated[
        bool | UnsetType,
        Meta(description="may host operators where it has room; true by default"),
    ] = UNSET


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


class OperatorRow(Asks, frozen=True):
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


class StreamRow(_Struct):
    """A logical stream: what its tuples hold, and where they may be."""

    id: Annotated[Name, Meta(description="the logical stream")]
    columns: Columns | UnsetType = UNSET
    key: Annotated[
        Name | UnsetType,
        Meta(description="the column that equals the `key` of a tuple's source; text"),
    ] = UNSET
    zones: Annotated[
        ZonesPart | UnsetType,
        Meta(
            description="where its tuples, and what filters, projections and joins make of them, "
            "may be: of their operators, sources and sinks; not what aggregates make of them"
        ),
    ] = UNSET


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
    mbit: Annotated[
        Positive | UnsetType | None,
        Meta(description="Mbit/s that fit through in each direction; for cost models alone"),
    ] = UNSET


class LatencyPart(_Struct):
    """Measured latencies, one way: a dense matrix here or in a file, or some pairs, or both."""

    is_: Annotated[
        Literal["one-way", "round-trip"],
        Meta(description="what all of them are; half of a round trip counts as one way"),
    ] = msgspec.field(default="one-way", name="is")
    nodes: Annotated[list[Name] | UnsetType, Meta(description="the matrix's rows")] = UNSET
    matrix: Annotated[
        list[list[float]] | UnsetType,
        Meta(description="ms, a row and a column per node; NaN takes the other direction's"),
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
    """What is to be placed: a topology, its streams, and joins of pairs, whole queries or both."""

    nova: Annotated[Literal[1], Meta(description="version of this format")]
    query: Annotated[QueryPart | UnsetType, Meta(description="or queries, or both")] = UNSET
    queries: Annotated[
        Annotated[list[Query], Meta(min_length=1)] | UnsetType,
        Meta(description="whole queries; joins of `query` are then such queries, too"),
    ] = UNSET
    streams: Annotated[
        list[StreamRow] | UnsetType,
        Meta(
            description="zones of logical streams, and their columns, for queries with expressions "
            "or sql"
        ),
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


ROWS: dict[str, type[msgspec.Struct]] = {
    "nodes": NodeRow,
    "sources": SourceRow,
    "matrix": PairRow,
    "links": LinkRow,
    "latency_pairs": PairLatencyRow,
}


class _Queries(msgspec.Struct):
    queries: list[Query]


def queries_of(content: Any, where: str = "queries") -> tuple[Query, ...]:
    """Queries from a list of plain content, as it stands under ``queries`` in a problem.

    Args:
        content: the list.
        where: what errors begin with.

    Raises:
        ProblemError: naming the field, the value and what would be accepted.
    """
    return tuple(convert({"queries": content}, Path(where), _Queries, ProblemError).queries)
