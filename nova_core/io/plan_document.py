"""The format of plans: a document that people can read and any program can execute.

It holds what decides the plan (partitions, instances, virtual positions, routes) and what follows
from that (edges, loads, totals, the constraint report). Reading rebuilds the second from the first,
and refuses a plan that contradicts itself.

The types below describe every table once. A document has a list of such rows; a directory of tables
has a file per table with a column per field, in which a range has two columns (``left_begin`` and
``left_end``) and a position one per axis.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.model.plan_delta import OperatorName

VERSION = 2

Bounds = Annotated[
    list[int],
    Meta(min_length=2, max_length=2, description="first partition, one past the last, from 0"),
]
Rate = Annotated[float, Meta(description="tuples/s")]
InstanceNumber = Annotated[int, Meta(ge=0, description="row of instances, from 0")]


class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class ProblemReference(_Struct):
    """The problem the plan answers."""

    name: str
    digest: Annotated[str, Meta(description="of everything the placement depends on")]


class InstanceRow(_Struct):
    """An operator instance: it joins a range of left partitions with a range of right ones.

    One without a second input takes partition 0 of the right.
    """

    operator: OperatorName
    node: Annotated[str, Meta(description="where it runs")]
    left: Bounds
    right: Bounds
    feeds: Annotated[
        InstanceNumber | UnsetType | None,
        Meta(description="the instance of the same operator that combines its results"),
    ] = UNSET
    replica: Annotated[
        int | UnsetType, Meta(description="its number among the operator's instances, from 0")
    ] = UNSET
    of: Annotated[int | UnsetType, Meta(description="instances of the operator")] = UNSET
    replicas: Annotated[
        int | UnsetType, Meta(description="pairs of partitions it joins: replicas merged in it")
    ] = UNSET
    required_capacity: Annotated[Rate | UnsetType, Meta(description="tuples/s it receives")] = UNSET
    runs: Annotated[
        list[str] | UnsetType, Meta(description="filters and projections that run with it")
    ] = UNSET
    left_route: Annotated[
        list[str] | UnsetType,
        Meta(description="nodes its left input passes, both ends included; all instances or none"),
    ] = UNSET
    right_route: list[str] | UnsetType = UNSET
    result_route: list[str] | UnsetType = UNSET


class PartitionsRow(_Struct):
    """An input that is cut. One that is not listed is a single partition, number 0.

    Where instances feed another one, every partition is one of the operator's inputs.
    """

    operator: OperatorName
    side: Literal["left", "right"]
    rates: Annotated[list[float], Meta(min_length=1, description="of each partition, tuples/s")]
    shares: Annotated[
        list[float] | UnsetType, Meta(description="of each partition in the whole input")
    ] = UNSET
    partitioner: Annotated[
        Literal["sequence-share", "key-share"] | UnsetType,
        Meta(
            description="how a tuple finds its partition. sequence-share: its sequence number "
            "times 0x9E3779B97F4A7C15, modulo 2^64, divided by 2^64, is a number u in [0, 1); it "
            "belongs to the first partition whose shares up to and including its own sum to more "
            "than u. key-share, of joins: the problem's hot keys have the first partitions, each "
            "those up to the end nearest to the sum of their left shares; by u as above, their "
            "left tuples go to one of them, and their right ones to all. Other keys have the rest, "
            "by a hash of the columns that must be equal, the same for both inputs"
        ),
    ] = UNSET


class VirtualRow(_Struct):
    """Where an operator would run best, capacities aside; one may have no such place."""

    operator: OperatorName
    position: Annotated[list[float], Meta(description="cost-space coordinates, ms")]


class EdgeRow(_Struct, rename={"source": "from", "target": "to"}):
    """A data flow. Instances of a pair on one node share theirs; the first of them is named."""

    source: Annotated[str, Meta(description="node it leaves")]
    target: Annotated[str, Meta(description="node it enters")]
    producer: Annotated[
        InstanceNumber | UnsetType | None, Meta(description="that sends; none is a source")
    ] = UNSET
    consumer: Annotated[
        InstanceNumber | UnsetType | None, Meta(description="that receives; none is a sink")
    ] = UNSET
    input: Annotated[
        Literal["left", "right"] | UnsetType | None, Meta(description="of the consumer")
    ] = UNSET
    carries: Annotated[
        str | UnsetType | None,
        Meta(
            description="the source whose tuples it carries, or the operator that runs with the "
            "producer; the producer's own results if left out"
        ),
    ] = UNSET
    partitions: Annotated[
        list[int] | UnsetType,
        Meta(description="of the input: first and one past the last, run by run"),
    ] = UNSET
    sink: Annotated[
        str | UnsetType | None,
        Meta(description="the query whose sink receives it; none of joins of pairs"),
    ] = UNSET
    rate: Rate | UnsetType = UNSET
    latency: Annotated[float | UnsetType, Meta(description="estimated, ms")] = UNSET
    bandwidth: Annotated[
        float | UnsetType | None, Meta(description="bytes/s, where the size of a tuple is known")
    ] = UNSET


class LoadRow(_Struct):
    """What a node receives."""

    node: str
    load: Annotated[float, Meta(description="tuples/s, each distinct partition once")]
    capacity: float | Literal["unlimited"]


class TotalsPart(_Struct):
    """Sums over the plan."""

    objective: Annotated[
        float | UnsetType | None,
        Meta(
            description="what was minimized; but for network usage, a pair that is cut counts "
            "with the mean of its replicas"
        ),
    ] = UNSET
    instances: int | UnsetType = UNSET
    replicas: Annotated[int | UnsetType, Meta(description="pairs of partitions")] = UNSET
    nodes_used: Annotated[int | UnsetType, Meta(description="that host instances")] = UNSET
    received: Annotated[float | UnsetType, Meta(description="by all nodes, tuples/s")] = UNSET
    network_usage: Annotated[
        float | UnsetType,
        Meta(description="sum of rate * estimated latency of all edges, tuples/s * ms"),
    ] = UNSET


class Rewriting(_Struct):
    """How queries were rewritten before they were placed."""

    push_filters: Annotated[bool, Meta(description="filters run before joins")]
    split_aggregates: Annotated[bool, Meta(description="aggregates get partial ones")]
    share_operators: Annotated[
        bool,
        Meta(description="those that emit the same tuples are one, called as in the first query"),
    ] = False


class PlanHeader(_Struct):
    """What is known of the whole plan."""

    nova_plan: Annotated[Literal[2], Meta(description="version of this format")]
    problem: ProblemReference
    strategy: str
    objective: str
    parameters: Annotated[dict[str, Any], Meta(description="of the strategy")] = {}
    rewriting: Annotated[Rewriting | UnsetType, Meta(description="of whole queries")] = UNSET
    breaks: Annotated[
        list[str], Meta(description="constraints the strategy ignores on purpose")
    ] = []
    notes: dict[str, Any] = {}
    report: Annotated[
        dict[str, Any] | UnsetType, Meta(description="constraints, as checked on writing")
    ] = UNSET
    totals: TotalsPart | UnsetType = UNSET


class PlanDocument(PlanHeader, kw_only=True):
    """A placement plan: what runs where, and what goes from where to where."""

    instances: list[InstanceRow]
    partitions: list[PartitionsRow] = []
    virtual: list[VirtualRow] | UnsetType = UNSET
    edges: list[EdgeRow] | UnsetType = UNSET
    loads: list[LoadRow] | UnsetType = UNSET


class PlanTables(_Struct):
    """Files beside the header."""

    instances: str
    partitions: str | UnsetType = UNSET
    virtual: str | UnsetType = UNSET
    edges: str | UnsetType = UNSET
    loads: str | UnsetType = UNSET


class PlanTablesHeader(PlanHeader, kw_only=True):
    """The header of a plan whose rows are in tables."""

    tables: PlanTables


ROWS: dict[str, type[msgspec.Struct]] = {
    "instances": InstanceRow,
    "partitions": PartitionsRow,
    "virtual": VirtualRow,
    "edges": EdgeRow,
    "loads": LoadRow,
}
