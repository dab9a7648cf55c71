"""Plans of queries as JSON or YAML documents, which read back as the same plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import PlanError
from nova_core.model.document import Name
from nova_core.model.files import DOCUMENT_SUFFIXES, write_text
from nova_core.model.plan_totals import plain
from nova_core.model.problem import Problem
from nova_core.model.syntax import Row, dump, number, read_typed, unknown
from nova_core.queries.document import Queries
from nova_core.queries.expansion import expand
from nova_core.queries.plan import Instance, QueryPlan
from nova_core.queries.verify import verify

VERSION = 1

Range = Annotated[list[int], Meta(min_length=2, max_length=2)]


class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class AnswersPart(_Struct):
    """What the plan answers."""

    problem: Name
    problem_digest: str
    queries: Name
    queries_digest: str


class InstanceRow(_Struct):
    """An instance of an operator."""

    operator: Name
    node: Name
    left: Annotated[
        Range | UnsetType, Meta(description="partitions, or inputs of a combined aggregate, taken")
    ] = UNSET
    right: Annotated[Range | UnsetType, Meta(description="partitions on a join's right")] = UNSET
    feeds: Annotated[
        Annotated[int, Meta(ge=0)] | UnsetType,
        Meta(description="row of the instance that combines its results"),
    ] = UNSET
    required_capacity: Annotated[float, Meta(ge=0, description="tuples/s it receives")] = 0.0
    runs: Annotated[
        list[Name] | UnsetType, Meta(description="filters and projections that run with it")
    ] = UNSET


class PartitionRow(_Struct):
    """How an operator's inputs are cut."""

    operator: Name
    left: Annotated[list[float], Meta(description="shares of the partitions")]
    right: Annotated[list[float], Meta(description="shares of a join's right partitions")]


class VirtualRow(_Struct):
    """Where an operator would be if every point were a node."""

    operator: Name
    position: Annotated[list[float], Meta(description="ms")]


class EdgeRow(_Struct, kw_only=True, rename={"source": "from", "target": "to"}):
    """A link between instances; both ends' numbers are rows of `instances`."""

    source: Annotated[Name, Meta(description="the node it begins at")]
    target: Name
    producer: Annotated[int | UnsetType, Meta(description="instance; left out of a source")] = UNSET
    consumer: Annotated[int | UnsetType, Meta(description="instance; left out of a sink")] = UNSET
    carries: Annotated[Name, Meta(description="the operator whose output it carries")]
    rate: Annotated[float, Meta(ge=0, description="tuples/s")]
    latency: Annotated[float, Meta(ge=0, description="ms")]


class QueryPlanDocument(_Struct):
    """Where the operators of queries run."""

    nova_query_plan: Annotated[Literal[1], Meta(description="version of this format")]
    answers: AnswersPart
    strategy: str
    objective: str
    parameters: dict[str, Any]
    rewriting: dict[str, bool]
    breaks: list[str]
    notes: dict[str, Any]
    totals: dict[str, Any]
    report: dict[str, Any]
    partitions: list[PartitionRow]
    virtual: list[VirtualRow]
    instances: list[InstanceRow]
    edges: list[EdgeRow]


def plan_document(plan: QueryPlan) -> dict[str, Any]:
    """A plan as the plain content of a document."""
    operators, ids = plan.graph.graph.operators, plan.problem.nodes.ids.tolist()
    runs: dict[int, list[str]] = {}
    for one in plan.graph.fused.tolist():
        runs.setdefault(int(plan.graph.root[one]), []).append(operators[one].id)
    report = verify(plan)
    virtual = []
    if plan.virtual is not None:
        virtual = [
            Row(operator=operators[one].id, position=[number(x) for x in plan.virtual[one]])
            for one in plan.graph.bodies.tolist()
        ]
    instances = []
    required = plan.required.tolist()
    for row, one in enumerate(plan.instances):
        fields = Row(operator=operators[one.operator].id, node=ids[one.node])
        if one.operator in plan.shares or one.left == (0, 0) or one.feeds >= 0:
            fields["left"] = list(one.left)
            if operators[one.operator].kind == "join":
                fields["right"] = list(one.right)
        if one.feeds >= 0:
            fields["feeds"] = one.feeds
        fields["required_capacity"] = number(required[row])
        if one.operator in runs:
            fields["runs"] = runs[one.operator]
        instances.append(fields)
    return {
        "nova_query_plan": VERSION,
        "answers": Row(
            problem=plan.problem.name,
            problem_digest=plan.problem.digest,
            queries=plan.queries.name,
            queries_digest=plan.queries.digest,
        ),
        "strategy": plan.strategy,
        "objective": plan.objective,
        "parameters": plain(dict(plan.parameters), "parameters"),
        "rewriting": Row(plan.rewriting),
        "breaks": list(plan.breaks),
        "notes": plain(dict(plan.notes), "notes"),
        "totals": totals(plan),
        "report": Row(ok=report.ok, honest=report.honest, constraints=Row(report.counts)),
        "partitions": [
            Row(
                operator=operators[one].id,
                left=[number(x) for x in left],
                right=[number(x) for x in right],
            )
            for one, (left, right) in plan.shares.items()
        ],
        "virtual": virtual,
        "instances": instances,
        "edges": _edges(plan),
    }


def totals(plan: QueryPlan) -> dict[str, Any]:
    """What a plan costs: the objective, latency per query, traffic and load."""
    latency, load = plan.query_latency, plan.load
    used = np.unique(plan.node)
    overloaded = int((load > plan.problem.nodes.capacity * (1 + 1e-9)).sum())
    return Row(
        objective=number(plan.cost),
        network_usage=number(plan.network_usage),
        latency_mean=number(latency.mean()),
        latency_90p=number(np.percentile(latency, 90)),
        latency_max=number(latency.max()),
        instances=len(plan.instances),
        nodes_used=len(used),
        load_max=number(load.max()),
        overloaded=overloaded,
    )


def _edges(plan: QueryPlan) -> list[Row]:
    operators, ids = plan.graph.graph.operators, plan.problem.nodes.ids.tolist()
    links, (start, stop) = plan.links, plan.ends
    emitter: list[int] = []
    root = plan.graph.root.tolist()
    for consumer, operator in enumerate(operators):
        if root[consumer] == consumer:
            emitter.extend(operator.inputs)
    rows = []
    columns = (c.tolist() for c in (*links, start, stop, plan.latency))
    for producer, consumer, logical, rate, begin, end, latency in zip(*columns, strict=True):
        fields = Row({"from": ids[begin], "to": ids[end]})
        if producer >= 0:
            fields["producer"] = producer
        if consumer >= 0:
            fields["consumer"] = consumer
        carried = emitter[logical] if logical >= 0 else plan.instances[producer].operator
        fields["carries"] = operators[carried].id
        rows.append(fields | {"rate": number(rate), "latency": number(latency)})
    return [Row(row) for row in rows]


def plan_text(plan: QueryPlan, suffix: str = ".json") -> str:
    """A plan as the text of a document."""
    return dump(plan_document(plan), suffix)


def write_query_plan(plan: QueryPlan, path: str | os.PathLike[str]) -> None:
    """Write a plan as a ``.json`` or ``.yaml`` document.

    Raises:
        PlanError: for another suffix.
    """
    place = Path(path)
    if place.suffix.lower() not in DOCUMENT_SUFFIXES:
        raise PlanError(f"{place}: a plan of queries is a .json or .yaml document")
    write_text(place, plan_text(plan, place.suffix.lower()))


def read_query_plan(path: Path, problem: Problem, queries: Queries) -> QueryPlan:
    """Read a plan and check it against what it answers.

    Raises:
        PlanError: naming the file, the field and the value; for a plan of another problem or other
            queries, and for sums that do not follow from the instances.
    """
    found = read_typed(path, QueryPlanDocument, "nova_query_plan", VERSION, PlanError)
    for what, told, real in (
        ("problem", found.answers.problem_digest, problem.digest),
        ("queries", found.answers.queries_digest, queries.digest),
    ):
        if told != real:
            raise PlanError(
                f"{path}: answers.{what}_digest: {told} is of another {what}; {real} is needed"
            )
    flags = ("push_filters", "split_aggregates")
    if set(found.rewriting) != set(flags):
        raise PlanError(f"{path}: rewriting: {' and '.join(flags)} are needed")
    graph = expand(problem, queries, **found.rewriting)
    index = {one.id: number for number, one in enumerate(graph.graph.operators)}
    nodes = problem.node_index

    def known(table: str, row: int, field: str, name: str, where: Any) -> int:
        if name not in where:
            what = unknown(field, name, where)
            raise PlanError(f"{path}: {table}[{row}].{field}: {what}")
        return int(where[name])

    shares = {
        known("partitions", row, "operator", one.operator, index): (
            np.array(one.left, np.float64),
            np.array(one.right, np.float64),
        )
        for row, one in enumerate(found.partitions)
    }
    instances = []
    for row, one in enumerate(found.instances):
        operator = known("instances", row, "operator", one.operator, index)
        whole = (
            (0, 1)
            if graph.graph[operator].kind == "join"
            else (0, len(graph.graph[operator].inputs))
        )
        feeds = -1 if one.feeds is UNSET else one.feeds
        if feeds >= len(found.instances):
            raise PlanError(f"{path}: instances[{row}].feeds: there is no instance {feeds}")
        instances.append(
            Instance(
                operator,
                known("instances", row, "node", one.node, nodes),
                whole if one.left is UNSET else (one.left[0], one.left[1]),
                (0, 1) if one.right is UNSET else (one.right[0], one.right[1]),
                feeds,
            )
        )
    virtual = np.full((len(graph.root), problem.nodes.position.shape[1]), np.nan)
    for row, place in enumerate(found.virtual):
        operator = known("virtual", row, "operator", place.operator, index)
        if len(place.position) != virtual.shape[1]:
            raise PlanError(f"{path}: virtual[{row}].position: {virtual.shape[1]} are needed")
        virtual[operator] = place.position
    plan = QueryPlan(
        problem=problem,
        queries=queries,
        graph=graph,
        instances=tuple(instances),
        shares=shares,
        strategy=found.strategy,
        objective=found.objective,
        parameters=found.parameters,
        rewriting=found.rewriting,
        virtual=virtual if found.virtual else None,
        breaks=tuple(found.breaks),
        notes=found.notes,
    )
    again = plan_document(plan)
    written = msgspec.to_builtins(found)
    for part in ("instances", "edges", "totals"):
        if msgspec.json.encode(again[part]) != msgspec.json.encode(
            msgspec.json.decode(msgspec.json.encode(_numbers(written[part])))
        ):
            raise PlanError(f"{path}: {part}: figures do not follow from where instances run")
    return plan


def _numbers(value: Any) -> Any:
    """Floats as they are written."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value
