"""The columns of a plan's tables, and writing them as Parquet or Arrow files.

``instances`` and, where inputs are cut, ``partitions`` decide the plan, with ``virtual`` for the
virtual positions; ``edges`` (by row of ``instances``) and ``loads`` follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nova_core.model.columnar import lists_of, names_of, position_columns, write_columns
from nova_core.model.edges import LEGS, Edges, edges
from nova_core.model.files import write_text
from nova_core.model.plan import Plan
from nova_core.model.plan_text import cut_inputs, placed_virtually, plan_header
from nova_core.model.plan_totals import loads
from nova_core.model.problem import Ints, Problem, Strings
from nova_core.model.syntax import dump

SIDES = np.array(LEGS)
ROUTES = tuple(f"{leg}_route" for leg in LEGS)


@dataclass(frozen=True, eq=False)
class Named:
    """A column of names, ``ids[codes]``; ``what`` says what they name."""

    codes: Ints
    ids: Strings
    what: str


@dataclass(frozen=True, eq=False)
class Lists:
    """A column of lists of whole numbers: row r is ``values[offset[r]:offset[r + 1]]``."""

    offset: Ints
    values: Ints

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, row: int) -> list[int]:
        values: list[int] = self.values[self.offset[row] : self.offset[row + 1]].tolist()
        return values

    def same_as(self, other: Lists) -> bool:
        """Whether all rows are equal."""
        return np.array_equal(self.offset, other.offset) and np.array_equal(
            self.values, other.values
        )


def pair_columns(problem: Problem, pair: Ints) -> dict[str, Any]:
    """The columns that name a pair ((k,) row of the join matrix)."""
    m, sources = problem.matrix, problem.sources.ids
    return {
        "operator": Named(m.join[pair], problem.joins.ids, "operator"),
        "left": Named(m.left[pair], sources, "source"),
        "right": Named(m.right[pair], sources, "source"),
    }


def instance_columns(plan: Plan) -> dict[str, Any]:
    """What decides the plan, a row per instance."""
    i = plan.instances
    return {
        **pair_columns(plan.problem, i.pair),
        "node": Named(i.node, plan.problem.nodes.ids, "node"),
        "left_begin": i.left_begin,
        "left_end": i.left_end,
        "right_begin": i.right_begin,
        "right_end": i.right_end,
    }


def instance_facts(plan: Plan) -> dict[str, Any]:
    """What follows from the plan, a row per instance."""
    return {
        "replica": plan.replica_number,
        "of": plan.replica_count[plan.instances.pair],
        "replicas": plan.instances.replicas,
        "required_capacity": plan.required_capacity,
    }


def route_columns(plan: Plan) -> dict[str, Any]:
    """The nodes of every instance's routes, a column of lists per leg; none if direct."""
    if plan.routes is None:
        return {}
    offset, node, columns = plan.routes.offset, plan.routes.node, {}
    leg_of = np.repeat(np.arange(len(offset) - 1) % 3, np.diff(offset))
    for leg, name in enumerate(ROUTES):
        length = np.diff(offset)[leg::3]
        start = np.concatenate(([0], np.cumsum(length)))
        columns[name] = lists_of(start, node[leg_of == leg], plan.problem.nodes.ids)
    return columns


def partition_columns(plan: Plan, inputs: Ints) -> dict[str, Any]:
    """A row per partition of the inputs (``2 * pair + side``) given."""
    parts = plan.partitions
    count = parts.count[inputs]
    each, start = np.repeat(inputs, count), np.cumsum(count) - count
    number = np.arange(len(each)) - np.repeat(start, count)
    rate = parts.rate[parts.offset[each] + number]
    total = np.add.reduceat(rate, start) if len(count) else np.empty(0)
    return {
        **pair_columns(plan.problem, each // 2),
        "side": Named(each % 2, SIDES, "side"),
        "partition": number,
        "rate": rate,
        "share": rate / np.repeat(total, count),
    }


def edge_columns(plan: Plan, e: Edges) -> dict[str, Any]:
    """A row per flow; ``partitions`` holds begin and end of each run in turn."""
    ids = plan.problem.nodes.ids
    bounds = np.stack([e.begin, e.end], axis=1).ravel()
    return {
        "instance": e.instance,
        "carries": Named(e.leg, SIDES, "flow"),
        "from": Named(e.source, ids, "node"),
        "to": Named(e.target, ids, "node"),
        "partitions": Lists(2 * e.offset, bounds),
        "rate": e.rate,
        "latency": e.latency,
        "bandwidth": e.bandwidth,
    }


def load_columns(plan: Plan) -> dict[str, Any]:
    """A row per node that receives anything."""
    nodes, load, capacity = loads(plan)
    return {
        "node": Named(nodes, plan.problem.nodes.ids, "node"),
        "load": load,
        "capacity": capacity,
    }


def _arrow(values: Any) -> Any:
    if isinstance(values, Named):
        return names_of(values.codes, values.ids)
    if isinstance(values, Lists):
        import pyarrow as pa

        return pa.ListArray.from_arrays(pa.array(values.offset, pa.int32()), values.values)
    return values


def write_plan_tables(plan: Plan, directory: Path, suffix: str) -> None:
    """Write ``plan.json`` and its tables; the header comes last.

    Args:
        plan: what to write.
        directory: an existing directory.
        suffix: ``parquet`` or ``arrow``.

    Raises:
        PlanError: for parameters or notes JSON cannot hold.
        NovaError: when it cannot be written.
    """
    e = edges(plan)
    header = plan_header(plan, e)
    tables = {
        "instances": instance_columns(plan) | instance_facts(plan) | route_columns(plan),
        "edges": edge_columns(plan, e),
        "loads": load_columns(plan),
    }
    inputs = np.array(cut_inputs(plan), np.int64)
    if len(inputs):
        tables["partitions"] = partition_columns(plan, inputs)
    if plan.virtual_position is not None:
        pairs = np.array(placed_virtually(plan), np.int64)
        position = plan.virtual_position[pairs]
        axes = zip(position_columns(position.shape[1]), position.T, strict=True)
        tables["virtual"] = pair_columns(plan.problem, pairs) | dict(axes)
    header["tables"] = {}
    for name, columns in tables.items():
        file = f"{name}.{suffix}"
        write_columns(directory / file, {c: _arrow(values) for c, values in columns.items()})
        header["tables"][name] = file
    write_text(directory / "plan.json", dump(header, ".json"))
