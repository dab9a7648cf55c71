"""Writing a plan: the columns of its tables, as rows of a document or as files.

``instances`` and, where inputs are cut, ``partitions`` decide the plan, with ``virtual`` for the
virtual positions; ``edges`` (by row of ``instances``) and ``loads`` follow from them, and are
written in documents only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nova_core.errors import PlanError
from nova_core.io.columns import Column, Lists, Named, Ranges, Table, rows, write_tables
from nova_core.io.plan_document import VERSION
from nova_core.io.safe_files import write_text
from nova_core.io.syntax import Row, dump
from nova_core.model.edges import edges
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.partitioner import KEY_SHARE, SEQUENCE_SHARE
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Strings

SIDES = np.array(["left", "right"])
PARTITIONERS = np.array([SEQUENCE_SHARE, KEY_SHARE])
ROUTES = ("left_route", "right_route", "result_route")
"""Columns of an instance's routes, which only joins of two sources have."""


# --- what stands in the tables ------------------------------------------------------------------


def instance_columns(plan: Plan, names: Strings) -> dict[str, Column]:
    """What decides the plan, a row per instance; ``names`` are those of all operators."""
    i = plan.instances
    columns: dict[str, Column] = {
        "operator": Named(i.pair, names),
        "node": Named(i.node, plan.problem.nodes.ids),
        "left": Ranges(i.left_begin, i.left_end),
        "right": Ranges(i.right_begin, i.right_end),
    }
    return columns if i.feeds is None else columns | {"feeds": i.feeds}


def instance_facts(plan: Plan) -> dict[str, Column]:
    """What follows from the plan, a row per instance."""
    facts: dict[str, Column] = {
        "replica": plan.replica_number,
        "of": plan.replica_count[plan.instances.pair],
        "replicas": plan.instances.replicas,
        "required_capacity": plan.required_capacity,
    }
    runs = plan.graph.runs_with
    if runs:
        lists = [runs.get(one, []) for one in plan.graph.bodies[plan.instances.pair].tolist()]
        ids = np.array([name for each in lists for name in each], np.str_)
        if len(ids):
            offset = np.cumsum([0, *(len(each) for each in lists)])
            facts["runs"] = Lists(offset, np.arange(len(ids)), ids)
    return facts


def route_columns(plan: Plan) -> dict[str, Column]:
    """The nodes of every instance's routes, a column of lists per leg; none if direct."""
    if plan.routes is None:
        return {}
    offset, node, ids = plan.routes.offset, plan.routes.node, plan.problem.nodes.ids
    leg_of = np.repeat(np.arange(len(offset) - 1) % 3, np.diff(offset))
    columns: dict[str, Column] = {}
    for leg, name in enumerate(ROUTES):
        start = np.concatenate(([0], np.cumsum(np.diff(offset)[leg::3])))
        columns[name] = Lists(start, node[leg_of == leg], ids)
    return columns


def cut_inputs(plan: Plan) -> Ints:
    """Inputs (``2 * operator + side``) that a plan has to describe: all but whole ones."""
    parts = plan.partitions
    rate = plan.graph.input_rate
    whole = parts.count == 1
    whole[whole] = parts.rate[parts.offset[:-1][whole]] == rate[whole]
    return np.flatnonzero(~whole)


def partition_columns(plan: Plan, inputs: Ints, names: Strings) -> dict[str, Column]:
    """What decides a row for each of the inputs (``2 * operator + side``) given.

    Args:
        plan: the plan.
        inputs: those to describe.
        names: of all operators.
    """
    return {
        "operator": Named(inputs // 2, names),
        "side": Named(inputs % 2, SIDES),
        "rates": _joined(_rates(plan, inputs)),
    }


def partition_facts(plan: Plan, inputs: Ints) -> dict[str, Column]:
    """What follows from the plan, a row for each of the inputs (``2 * operator + side``) given."""
    by_key, keyed = plan.partitions.by_key, np.zeros(len(inputs), bool)
    if by_key is not None:
        keyed = by_key[inputs // 2] & (inputs % 2 == 0)
    return {
        "shares": _joined([one / (one.sum() or 1) for one in _rates(plan, inputs)]),
        "partitioner": Named(keyed.astype(np.int64), PARTITIONERS),
    }


def _rates(plan: Plan, inputs: Ints) -> list[Floats]:
    """Tuples/s of each partition, an array per input."""
    parts = plan.partitions
    return [parts.rate[parts.offset[each] : parts.offset[each + 1]] for each in inputs.tolist()]


def _joined(rows: list[Floats]) -> Lists:
    offset = np.cumsum([0, *(len(one) for one in rows)])
    return Lists(offset, np.concatenate(rows or [np.empty(0)]))


def virtual_columns(plan: Plan, names: Strings) -> dict[str, Column]:
    """A row per operator that has a virtual position; ``names`` are those of all operators.

    Raises:
        PlanError: for a position that is neither finite nor NaN throughout.
    """
    position = plan.virtual_position
    assert position is not None
    known = ~np.isnan(position).all(axis=1)
    good = np.isfinite(position).all(axis=1) | ~known
    if not good.all():
        operator = int(np.argmin(good))
        raise PlanError(
            f"plan: virtual_position of {plan.operator_name(operator)}: {position[operator]} "
            "cannot be written; use finite ms, or NaN throughout for none"
        )
    rows = np.flatnonzero(known)
    return {"operator": Named(rows, names), "position": position[rows]}


def edge_columns(plan: Plan) -> dict[str, Column]:
    """A row per flow."""
    e, graph, ids = edges(plan), plan.graph, plan.problem.nodes.ids
    producer, consumer, logical, side = (column[e.link] for column in plan.links[:4])
    # What an instance emits itself needs no name; its operator stands in the table of instances.
    carried = np.append(graph.carried, -1)[logical]
    own = np.append(graph.bodies[plan.instances.pair], -1)[np.maximum(producer, -1)]
    named = ~((producer >= 0) & (carried == own)) & (carried >= 0)
    operators, row = np.unique(carried[named], return_inverse=True)
    code = np.full(len(e), -1)
    code[named] = row
    columns: dict[str, Column] = {
        "from": Named(e.source, ids),
        "to": Named(e.target, ids),
        "producer": np.maximum(producer, -1),
        "consumer": np.maximum(consumer, -1),
        "input": Named(np.where((consumer >= 0) & (logical >= 0), side, -1), SIDES),
        "carries": Named(code, graph.ids.of(operators)),
        "partitions": Lists(2 * e.offset, np.stack([e.begin, e.end], axis=1).ravel()),
        "rate": e.rate,
        "latency": e.latency,
    }
    if plan.problem.queries:
        query = graph.query[graph.links.consumer[logical]]
        queries = np.array([one.id for one in plan.problem.queries], np.str_)
        columns["sink"] = Named(np.where(consumer < 0, query, -1), queries)
    known = plan.problem.sources.tuple_bytes is not None
    return columns | {"bandwidth": e.bandwidth} if known else columns


def load_columns(plan: Plan) -> dict[str, Column]:
    """A row per node that receives anything."""
    nodes = np.flatnonzero(plan.load)
    return {
        "node": Named(nodes, plan.problem.nodes.ids),
        "load": plan.load[nodes],
        "capacity": plan.problem.nodes.capacity[nodes],
    }


def _tables(plan: Plan, follows: bool) -> dict[str, Table]:
    """What decides the plan; ``follows``: with the tables that follow from it."""
    names = plan.operator_names()
    decided = instance_columns(plan, names)
    tables: dict[str, Table] = {"instances": decided | instance_facts(plan) | route_columns(plan)}
    if len(inputs := cut_inputs(plan)):
        decided = partition_columns(plan, inputs, names)
        tables["partitions"] = decided | partition_facts(plan, inputs)
    if plan.virtual_position is not None:
        tables["virtual"] = virtual_columns(plan, names)
    if follows:
        tables |= {"edges": edge_columns(plan), "loads": load_columns(plan)}
    for table, columns in tables.items():
        for name, values in columns.items():
            if name == "capacity" or not isinstance(values, np.ndarray) or values.dtype.kind != "f":
                continue
            if np.isinf(values).any():
                row = int(np.argmax(np.isinf(values)))
                raise PlanError(
                    f"plan: {table}[{row}].{name}: {values[row]} cannot be written; rates, sizes "
                    "of tuples or latencies are too large"
                )
    return tables


# --- the header ---------------------------------------------------------------------------------


def totals(plan: Plan) -> dict[str, Any]:
    """Sums for the header of a plan; `nova_core.evaluation` has those of measured latencies."""
    return {
        "objective": plan.objective_value(plan.objective) if plan.objective in OBJECTIVES else None,
        "instances": len(plan.instances),
        "replicas": int(plan.instances.replicas.sum()),
        "nodes_used": plan.nodes_used,
        "received": float(plan.load.sum()),
        "network_usage": plan.objective_value("network-usage"),
    }


def _header(plan: Plan, report: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "nova_plan": VERSION,
        "problem": Row(name=plan.problem.name, digest=plan.problem.digest),
        "strategy": plan.strategy,
        "objective": plan.objective,
        "parameters": plain(dict(plan.parameters), "parameters"),
    }
    if plan.problem.queries:
        document["rewriting"] = Row(plan.rewriting._asdict())
    document |= {"breaks": list(plan.breaks), "notes": plain(dict(plan.notes), "notes")}
    if report:
        from nova_core.model.verify import verify

        checked = verify(plan).to_dict()
        checked["constraints"] = {name: Row(row) for name, row in checked["constraints"].items()}
        checked["violations"] = [Row(row) for row in checked["violations"]]
        document["report"] = checked
    document["totals"] = plain(totals(plan), "totals")
    return document


def plain(value: Any, place: str) -> Any:
    """A parameter or note as JSON holds it: numpy numbers and tuples become plain ones.

    Raises:
        PlanError: for a value JSON does not have, such as infinity.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item, f"{place}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item, f"{place}[{row}]") for row, item in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise PlanError(
        f"plan: {place}: {value!r} cannot be written; use a finite number, text, a list or none"
    )


# --- as a document ------------------------------------------------------------------------------


def plan_document(plan: Plan, report: bool = True) -> dict[str, Any]:
    """A plan as the plain content of a document.

    Args:
        plan: what to write.
        report: whether to verify the plan and put the report in.

    Raises:
        PlanError: for parameters, notes or sums that JSON cannot hold.
    """
    tables = _tables(plan, follows=True)
    document = _header(plan, report)
    return document | {name: rows(columns) for name, columns in tables.items()}


def plan_text(plan: Plan, suffix: str) -> str:
    """A plan as the text of a ``.json`` or ``.yaml`` document."""
    return dump(plan_document(plan), suffix)


# --- as tables ----------------------------------------------------------------------------------


def write_plan_tables(plan: Plan, directory: Path, suffix: str) -> None:
    """Write ``plan.json`` and its tables; the header comes last.

    Args:
        plan: what to write.
        directory: an existing directory.
        suffix: ``parquet`` or ``arrow``.

    Raises:
        PlanError: for parameters, notes or sums that JSON cannot hold.
        NovaError: when it cannot be written.
    """
    tables = _tables(plan, follows=False)
    header = _header(plan, report=True)
    header["tables"] = write_tables(tables, directory, suffix)
    write_text(directory / "plan.json", dump(header, ".json"))
