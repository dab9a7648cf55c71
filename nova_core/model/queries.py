"""Queries as people write them: filters, projections, aggregates and joins over logical streams."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.model.requirements import Name, RequiresPart, ZonesPart

Positive = Annotated[float, Meta(gt=0)]

Input = Annotated[Name, Meta(description="a logical stream, or an operator above")]


class _Operator(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True, tag_field="kind"
):
    """What all operators have: a name, and what they ask, see `Asks`."""

    id: Name
    requires: Annotated[
        RequiresPart | UnsetType, Meta(description="what its hosts must have besides room")
    ] = UNSET
    zones: Annotated[ZonesPart | UnsetType, Meta(description="where it may run")] = UNSET


class Filter(_Operator, tag="filter", frozen=True):
    """Drops tuples; runs with what it reads from, at no cost (paper, section 3.6).

    It is placed by itself where the nodes of what it reads from need not have what it requires.
    """

    input: Input
    selectivity: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | UnsetType,
        Meta(description="share of tuples that pass; 1 where it is left out beside `where`"),
    ] = UNSET
    where: Annotated[
        str | UnsetType, Meta(description="the condition, such as `value > 10`; needs `streams`")
    ] = UNSET
    reads: Annotated[
        Name | UnsetType,
        Meta(
            description="the stream or operator further up whose attributes alone it looks at; it "
            "may run right behind that, before the joins between"
        ),
    ] = UNSET


class Project(_Operator, tag="project", frozen=True):
    """Makes tuples of tuples, without state; where it emits more, it is placed by itself."""

    input: Input
    selectivity: Annotated[float, Meta(gt=0, description="tuples emitted per tuple")] = 1.0
    columns: Annotated[
        dict[Name, str] | UnsetType,
        Meta(description="what it emits, a name and an expression each; needs `streams`"),
    ] = UNSET


class Aggregate(_Operator, tag="aggregate", frozen=True):
    """Emits a tuple per group and window; at most as many as it receives."""

    input: Input
    by: Annotated[
        Literal["all", "key"],
        Meta(description="one result of all that the input holds, or one per key of its sources"),
    ] = "all"
    window: Annotated[
        Positive | UnsetType, Meta(description="length of windows, s; a result each")
    ] = UNSET
    slide: Annotated[
        Positive | UnsetType, Meta(description="s between windows, where they overlap")
    ] = UNSET
    group_by: Annotated[
        list[str] | UnsetType, Meta(description="columns; a result for each of their values")
    ] = UNSET
    compute: Annotated[
        dict[Name, str] | UnsetType,
        Meta(
            description="what it emits, a name and one of count(), sum(x), mean(x), min(x), max(x) "
            "each; needs `streams`"
        ),
    ] = UNSET
    groups: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000_000,
            description="groups per result; as many parts can it be cut into",
        ),
    ] = 1
    output_rate: Annotated[
        Positive | UnsetType,
        Meta(description="tuples/s each result emits; in place of window"),
    ] = UNSET
    decomposable: Annotated[
        bool, Meta(description="can be computed of partial results, as sums and counts can")
    ] = False


class HotKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A frequent key of a join: so many of its tuples that its partitions are its own."""

    values: Annotated[
        list[int | str],
        Meta(min_length=1, description="of the columns that `on` says are equal, in its order"),
    ]
    left: Annotated[float, Meta(gt=0, lt=1, description="share of the left input's tuples")]
    right: Annotated[float, Meta(ge=0, lt=1, description="share of the right input's tuples")]


class Join(_Operator, tag="join", frozen=True):
    """Joins two inputs; more are joined by a sequence of joins."""

    inputs: Annotated[list[Input], Meta(min_length=2, max_length=2)]
    match: Annotated[
        Literal["key", "all"] | UnsetType,
        Meta(
            description="which sources may join: those of equal keys, or each with each. Left out: "
            "by key if all have one"
        ),
    ] = UNSET
    selectivity: Annotated[
        float,
        Meta(gt=0, description="results per tuple of the slower input, of each pair"),
    ] = 1.0
    on: Annotated[
        str | UnsetType,
        Meta(description="which tuples of a window match; needs `streams`"),
    ] = UNSET
    window: Annotated[Positive | UnsetType, Meta(description="length of windows, s")] = UNSET
    slide: Annotated[
        Positive | UnsetType, Meta(description="s between windows, where they overlap")
    ] = UNSET
    keys: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000_000,
            description="distinct values of the columns that `on` says are equal, of each pair; "
            "with many, the join can be cut by them",
        ),
    ] = 1
    hot: Annotated[
        list[HotKey],
        Meta(max_length=1000, description="the most frequent of the keys, each of which is cut"),
    ] = msgspec.field(default_factory=list)


LogicalOperator = Filter | Project | Aggregate | Join


class Query(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One query: operators after their inputs; what the last emits goes to the sink."""

    id: Name
    sink: Annotated[Name, Meta(description="the node that consumes the result")]
    operators: Annotated[list[LogicalOperator], Meta(description="at least one, or `sql`")] = (
        msgspec.field(default_factory=list)
    )
    sql: Annotated[
        str | UnsetType,
        Meta(description="SELECT ..., in place of operators; needs `streams` (docs/queries.md)"),
    ] = UNSET


Columns = Annotated[
    dict[Name, Literal["int", "float", "text"]],
    Meta(min_length=1, description="name and type; the event time, `time`, is none of them"),
]


class Stream(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What the tuples of a logical stream hold."""

    id: Annotated[Name, Meta(description="the logical stream")]
    columns: Columns
    key: Annotated[
        Name | UnsetType,
        Meta(description="the column that equals the `key` of a tuple's source; text"),
    ] = UNSET


def inputs_of(operator: LogicalOperator) -> list[str]:
    """Names of what an operator reads."""
    return list(operator.inputs) if isinstance(operator, Join) else [operator.input]
