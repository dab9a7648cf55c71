"""The plan as a JSON or YAML document that a person can read and any program can carry out.

What decides the plan (partitions, instances, virtual positions, routes) and what follows from it
(edges, totals, the constraint report) both stand in it. Reading rebuilds what follows from what
decides, and refuses a document that contradicts itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import PlanError
from nova_core.model.plan import Plan
from nova_core.model.plan_rows import PlanRows
from nova_core.model.plan_text import VERSION, plan_document
from nova_core.model.problem import Problem
from nova_core.model.syntax import read_typed

Bounds = Annotated[
    list[int],
    Meta(min_length=2, max_length=2, description="first partition, one past the last, from 0"),
]
Rate = Annotated[float, Meta(description="tuples/s")]


class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class ProblemReference(_Struct):
    """The problem the plan answers."""

    name: str
    digest: Annotated[str, Meta(description="of everything the placement depends on")]


class PairName(_Struct):
    """A pair of sources that join."""

    left: str
    right: str


class PartitionsRow(_Struct):
    """An input that is cut. One that is not listed is a single partition, number 0."""

    operator: str
    pair: PairName
    side: Literal["left", "right"]
    rates: Annotated[list[float], Meta(min_length=1, description="of each partition, tuples/s")]
    source: str | UnsetType = UNSET
    stream: str | UnsetType = UNSET
    rate: Annotated[float | UnsetType, Meta(description="of the whole input, tuples/s")] = UNSET
    shares: Annotated[
        list[float] | UnsetType, Meta(description="of each partition in the whole input")
    ] = UNSET
    partitioner: Annotated[
        Literal["sequence-share"],
        Meta(
            description="how a tuple finds its partition. sequence-share: its sequence number "
            "times 0x9E3779B97F4A7C15, modulo 2^64, divided by 2^64, is a number u in [0, 1); it "
            "belongs to the first partition whose shares up to and including its own sum to more "
            "than u"
        ),
    ] = "sequence-share"


class VirtualRow(_Struct):
    """Where a pair's join would run best, capacities aside; a pair may have none."""

    operator: str
    pair: PairName
    position: Annotated[list[float], Meta(description="cost-space coordinates, ms")]


class RoutesPart(_Struct):
    """Nodes that each of an instance's flows passes, both ends included."""

    left: list[str]
    right: list[str]
    result: list[str]


class InstanceRow(_Struct):
    """An operator instance: it joins a range of left partitions with a range of right ones."""

    operator: str
    pair: PairName
    node: Annotated[str, Meta(description="where it runs")]
    left: Bounds
    right: Bounds
    id: Annotated[
        str | UnsetType, Meta(description="operator/left*right#number, as in tw/t1*w1#0")
    ] = UNSET
    replica: Annotated[
        int | UnsetType, Meta(description="its number among the pair's instances, from 0")
    ] = UNSET
    of: Annotated[int | UnsetType, Meta(description="instances of the pair")] = UNSET
    replicas: Annotated[
        int | UnsetType, Meta(description="pairs of partitions it joins: replicas merged in it")
    ] = UNSET
    required_capacity: Annotated[Rate | UnsetType, Meta(description="tuples/s it receives")] = UNSET
    routes: RoutesPart | UnsetType = UNSET


class EdgeRow(_Struct, rename={"source_node": "from", "target_node": "to"}):
    """A data flow. Instances of one pair on one node share theirs; ``instance`` is the first."""

    source_node: str
    target_node: str
    instance: Annotated[str, Meta(description="id of the instance that receives or sends")]
    carries: Literal["left", "right", "result"]
    rate: Rate
    latency: Annotated[float, Meta(description="estimated, ms")]
    source: Annotated[str | UnsetType, Meta(description="whose tuples an input carries")] = UNSET
    partitions: Annotated[list[Bounds] | UnsetType, Meta(description="which of them")] = UNSET
    bandwidth: Annotated[
        float | UnsetType, Meta(description="bytes/s, where the size of a tuple is known")
    ] = UNSET
    route: Annotated[
        list[str] | UnsetType, Meta(description="nodes it passes, where it is not direct")
    ] = UNSET


class NodeLoad(_Struct):
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
        float | UnsetType, Meta(description="sum of rate * latency of all edges, tuples/s * ms")
    ] = UNSET
    loads: list[NodeLoad] | UnsetType = UNSET


class PlanHeader(_Struct):
    """What is known of the whole plan."""

    nova_plan: Annotated[Literal[1], Meta(description="version of this format")]
    problem: ProblemReference
    strategy: str
    objective: str
    parameters: Annotated[dict[str, Any], Meta(description="of the strategy")] = {}
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


# --- reading ------------------------------------------------------------------------------------


def check_answers(header: PlanHeader, problem: Problem, path: Path) -> None:
    """Refuse a plan made for another problem.

    Raises:
        PlanError: naming both problems.
    """
    made = header.problem
    if made.digest != problem.digest:
        raise PlanError(
            f"{path}: problem.digest: made for {made.name!r} ({made.digest}), not for "
            f"{problem.name!r} ({problem.digest}); plan this problem again"
        )


def read_plan_document(path: Path, problem: Problem) -> Plan:
    """Read a plan document for a problem.

    Raises:
        PlanError: naming the file, the field, the value and what would be accepted.
    """
    return plan_of(read_typed(path, PlanDocument, "nova_plan", VERSION, PlanError), problem, path)


def plan_of(document: PlanDocument, problem: Problem, path: Path) -> Plan:
    """A document as the plan of a problem, as `read_plan_document`; errors name ``path``."""
    check_answers(document, problem, path)
    rows = PlanRows(document, problem, path)
    plan = rows.plan()
    _refuse_contradiction(document, rows.order, plan, path)
    return plan


def _refuse_contradiction(
    document: PlanDocument, order: Sequence[int], plan: Plan, path: Path
) -> None:
    found = msgspec.to_builtins(document)
    found["instances"] = [found["instances"][row] for row in order]
    expected = plan_document(plan, report=False)
    # Cut inputs may come in any order, and rows of whole inputs without need.
    given = {_key(row): row for row in found["partitions"]}
    found["partitions"] = [given[_key(row)] for row in expected["partitions"]]
    for section in ("partitions", "instances", "edges", "totals"):
        if section in found:
            wrong = difference(expected[section], found[section], section)
            if wrong:
                raise PlanError(f"{path}: {wrong}")


def _key(row: Any) -> tuple[str, ...]:
    return (row["operator"], row["pair"]["left"], row["pair"]["right"], row["side"])


def difference(expected: Any, found: Any, place: str) -> str | None:
    """The first redundant value that does not follow from the plan, as text for a person.

    Fields that ``found`` leaves out are not missed; numbers may differ by rounding.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        for name, value in found.items():
            if name not in expected:
                return f"{place}.{name}: {value!r}, but by the plan there is none"
            if wrong := difference(expected[name], value, f"{place}.{name}"):
                return wrong
        return None
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{place}: {len(found)} entries, but the plan makes {len(expected)}"
        for row, (right, value) in enumerate(zip(expected, found, strict=True)):
            if right != value and (wrong := difference(right, value, f"{place}[{row}]")):
                return wrong
        return None
    if isinstance(expected, int | float) and isinstance(found, int | float):
        same = math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-9)
    else:
        same = bool(expected == found)
    return None if same else f"{place}: {found!r}, but by the plan it is {expected!r}"
