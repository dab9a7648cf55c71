"""Reading a plan, from the rows of a document or from tables: names become indices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from nova_core.errors import PlanError
from nova_core.io.columnar import Columns, known_columns, position_columns, read_columns
from nova_core.io.columns import Column, Lists, Named, Ranges, length
from nova_core.io.plan_document import (
    ROWS,
    VERSION,
    PlanDocument,
    PlanHeader,
    PlanTablesHeader,
)
from nova_core.io.plan_writing import (
    ROUTES,
    SIDES,
    edge_columns,
    instance_facts,
    load_columns,
    partition_facts,
    totals,
)
from nova_core.io.rows import Rows
from nova_core.io.syntax import number, read_typed
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.name_index import NameIndex
from nova_core.model.partitioner import KEY_SHARE
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan, Routes
from nova_core.model.problem import Bools, Floats, Ints, Problem, Strings

Table = Rows | Columns


def read_plan_document(path: Path, problem: Problem) -> Plan:
    """Read a plan document for a problem.

    Raises:
        PlanError: naming the file, the field, the value and what would be accepted.
    """
    return plan_of(read_typed(path, PlanDocument, "nova_plan", VERSION, PlanError), problem, path)


def plan_of(document: PlanDocument, problem: Problem, path: Path) -> Plan:
    """A document as the plan of a problem, as `read_plan_document`; errors name ``path``."""
    tables: dict[str, Table] = {
        name: Rows(path, name, rows, PlanError)
        for name in ROWS
        if (rows := getattr(document, name)) is not UNSET
    }
    return _PlanReader(document, tables, problem, path).plan()


def read_plan_tables(path: Path, problem: Problem) -> Plan:
    """Read a plan from its header and the tables it names.

    Args:
        path: the header, ``plan.json`` or ``plan.yaml``.
        problem: the problem it answers.

    Raises:
        PlanError: naming the file, the row and column, the value and what would be accepted.
    """
    header = read_typed(path, PlanTablesHeader, "nova_plan", VERSION, PlanError)
    tables: dict[str, Table] = {
        name: read_columns(path.parent / file, known_columns(ROWS[name]), PlanError)
        for name, file in msgspec.structs.asdict(header.tables).items()
        if file is not UNSET
    }
    return _PlanReader(header, tables, problem, path).plan()


class _PlanReader:
    """Builds a plan from a header and its tables."""

    def __init__(
        self, header: PlanHeader, tables: Mapping[str, Table], problem: Problem, path: Path
    ) -> None:
        self._header = header
        self._tables = dict(tables)
        self._problem = problem
        self._path = path
        reference = header.problem
        if reference.digest != problem.digest:
            raise PlanError(
                f"{path}: problem.digest: made for {reference.name!r} ({reference.digest}), not "
                f"for {problem.name!r} ({problem.digest}); plan this problem again"
            )
        self._rewriting = Rewriting()
        if problem.queries:
            if header.rewriting is UNSET:
                raise PlanError(f"{path}: field 'rewriting' is missing; plans of queries have it")
            self._rewriting = Rewriting(**msgspec.structs.asdict(header.rewriting))
        self._graph = graph_of(problem, self._rewriting)
        self._whole = Partitions.uncut(self._graph.input_rate)

    def plan(self) -> Plan:
        """The plan.

        Raises:
            PlanError: for names the problem does not have, ranges outside the partitions, and what
                does not follow from what is decided.
        """
        header = self._header
        partitions = self._partitions()
        table = self._tables["instances"]
        instances, order = self._instances(table, partitions)
        facts: dict[str, Any] = {
            "problem": self._problem,
            "strategy": header.strategy,
            "objective": header.objective,
            "partitions": partitions,
            "instances": instances,
            "parameters": header.parameters,
            "virtual_position": self._virtual(),
            "routes": self._routes(table, order),
            "breaks": tuple(header.breaks),
            "notes": header.notes,
            "rewriting": self._rewriting,
        }
        # Names of a million operators take as much memory as what they decide.
        del self._names
        plan = Plan(**facts)
        self._refuse_contradiction(plan, order)
        return plan

    # --- names ----------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> Strings:
        return self._graph.names

    def _operators(self, table: Table) -> Ints:
        """(k,) operators that a table names."""
        codes, names = table.coded("operator")
        if np.array_equal(names, self._names):  # as plans of all operators are written
            return codes
        return table.find_codes("operator", codes, names, self._operator_index, "operator")

    @cached_property
    def _operator_index(self) -> NameIndex:
        return NameIndex(self._names)

    def _inputs(self, table: Table) -> Ints:
        return 2 * self._operators(table) + table.find("side", NameIndex(SIDES), "side")

    # --- what decides -----------------------------------------------------------------------------

    def _partitions(self) -> Partitions:
        table = self._tables.get("partitions")
        if table is None or len(table) == 0:
            return self._whole
        each = self._inputs(table)
        distinct, first = np.unique(each, return_index=True)
        if len(distinct) < len(each):
            row = int(np.setdiff1d(np.arange(len(each)), first)[0])
            raise table.fail("side", "this input of the operator is cut twice", row)
        offset, rate = table.number_lists("rates", whole=False)
        if not np.isfinite(rate).all():
            at = int(np.argmin(np.isfinite(rate)))
            row = int(np.searchsorted(offset, at, side="right")) - 1
            raise table.fail("rates", f"{rate[at]} is not a finite number of tuples/s", row)
        if (np.diff(offset) == 0).any():
            row = int(np.argmin(np.diff(offset)))
            raise table.fail("rates", "no rate; an input has at least one partition", row)
        by_key: list[int] = []
        if "partitioner" in table:
            codes, names = table.coded("partitioner", "")
            keyed = (names == KEY_SHARE)[codes]
            by_key = (each[keyed & (each % 2 == 0)] // 2).tolist()
        return self._whole.with_cuts(
            {
                int(one): np.asarray(rate[offset[row] : offset[row + 1]], np.float64)
                for row, one in enumerate(each.tolist())
            },
            by_key,
        )

    def _instances(self, table: Table, partitions: Partitions) -> tuple[Instances, Ints]:
        """The instances by operator, and the row of the table that each was."""
        pair, node = self._operators(table), table.find("node", self._problem.node_index, "node")
        feeds = None
        if "feeds" in table:
            feeds = table.whole("feeds", -1)
            good = (feeds >= -1) & (feeds < len(table))
            if not good.all():
                row = int(np.argmin(good))
                message = f"{feeds[row]} is no row of the {len(table)} instances"
                raise table.fail("feeds", message, row)
        order = np.argsort(pair, kind="stable")
        columns = [pair, node]
        for side, name in enumerate(SIDES.tolist()):
            begin, end = table.ranges(name)
            columns += [begin, end]
            count = partitions.count[2 * pair + side]
            # What combines others' results may take nothing itself.
            least = begin if feeds is not None else begin + 1
            good = (begin >= 0) & (least <= end) & (end <= count)
            if not good.all():
                row = int(np.argmin(good))
                message = (
                    f"[{begin[row]}, {end[row]}] is no range of the input's partitions; it needs "
                    f"0 <= begin < end <= {count[row]}"
                )
                raise table.fail(name, message, row)
        if feeds is not None:
            place = np.append(np.argsort(order), -1)
            feeds = place[feeds][order]
        pair, node, a, b, c, d = (column[order] for column in columns)
        return Instances(pair, node, a, b, c, d, feeds), order

    def _virtual(self) -> Floats | None:
        table = self._tables.pop("virtual", None)
        if table is None:
            return None
        dimensions = self._problem.nodes.position.shape[1]
        position = np.full((len(self._whole.offset) // 2, dimensions), np.nan)
        rows = self._operators(table)
        if len(table) == 0:
            return position
        read = self._positions(table, dimensions)
        if not np.isfinite(read).all():
            row = int(np.argmin(np.isfinite(read).all(axis=1)))
            raise table.fail("position", f"{read[row]} are not all finite numbers of ms", row)
        _, first = np.unique(rows, return_index=True)
        if len(first) < len(rows):
            row = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            raise table.fail("operator", "this operator has a virtual position already", row)
        position[rows] = read
        return position

    @staticmethod
    def _positions(table: Table, dimensions: int) -> Floats:
        """(k, dimensions) ms."""
        if isinstance(table, Columns):
            position = table.position()
            if position is None or position.shape[1] != dimensions:
                names = ", ".join(position_columns(dimensions))
                raise table.fail("position", f"columns {names} are needed, in ms")
            return position
        offset, values = table.number_lists("position", whole=False)
        good = np.diff(offset) == dimensions
        if not good.all():
            row = int(np.argmin(good))
            message = f"{offset[row + 1] - offset[row]} coordinates, {dimensions} are needed"
            raise table.fail("position", message, row)
        return np.asarray(values, np.float64).reshape(-1, dimensions)

    def _routes(self, table: Table, order: Ints) -> Routes | None:
        used = [name for name in ROUTES if name in table]
        if not used:
            return None
        graph = self._graph
        if graph.links.producer.size != len(ROUTES) * len(graph.bodies):
            raise table.fail(used[0], "only joins of two sources can have routes")
        legs = []
        for name in ROUTES:
            if name not in table:
                raise table.fail(name, "left out; routes of all flows are needed, or none")
            offset, codes, names = table.lists(name)
            if (np.diff(offset) == 0).any():
                row = int(np.argmin(np.diff(offset)))
                raise table.fail(name, "no node; all instances have routes, or none", row)
            index = self._problem.node_index
            legs.append((offset, table.find_codes(name, codes, names, index, "node")))
        length = np.stack([np.diff(offset)[order] for offset, _ in legs], axis=1).ravel()
        total = np.concatenate(([0], np.cumsum(length)))
        nodes = np.empty(int(total[-1]), np.int64)
        for leg, (offset, node) in enumerate(legs):
            size = np.diff(offset)[order]
            within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            nodes[np.repeat(total[leg:-1:3], size) + within] = node[
                np.repeat(offset[:-1][order], size) + within
            ]
        return Routes(total, nodes)

    # --- what follows -----------------------------------------------------------------------------

    def _refuse_contradiction(self, plan: Plan, order: Ints) -> None:
        tables = self._tables
        if (cut := tables.get("partitions")) is not None and len(cut):
            inputs = self._inputs(cut)
            by_input = np.argsort(inputs)
            self._compare(cut, partition_facts(plan, inputs[by_input]), by_input)
        self._compare(tables["instances"], instance_facts(plan), order)
        if self._header.totals is not UNSET:
            self._compare_totals(totals(plan))
        if "edges" in tables:
            flows = edge_columns(plan)
            place = np.append(order, -1)  # edges name rows as the table of instances has them
            numbers = {name: place[np.asarray(flows[name])] for name in ("producer", "consumer")}
            self._compare(tables["edges"], flows | numbers, None)
        if "loads" in tables:
            self._compare(tables["loads"], load_columns(plan), None)

    def _compare_totals(self, expected: Mapping[str, Any]) -> None:
        for name, written in msgspec.to_builtins(self._header.totals).items():
            right = expected[name]
            same = written == right
            if isinstance(written, int | float) and isinstance(right, int | float):
                same = math.isclose(written, right, rel_tol=1e-9, abs_tol=1e-9)
            if not same:
                raise PlanError(
                    f"{self._path}: totals.{name}: {written!r}, but by the plan it is {right!r}"
                )

    def _compare(self, table: Table, expected: Mapping[str, Column], order: Ints | None) -> None:
        """Refuse a table whose redundant columns do not follow from the plan.

        Args:
            table: as it was read; columns that it lacks are not checked.
            expected: what follows from the plan.
            order: rows of the table in the order of the plan, None where it must be the same.
        """
        for name, column in expected.items():
            count = length(column)
            if len(table) != count:
                message = f"{len(table)} rows, but the plan makes {count}"
                raise PlanError(f"{table.path}: {_name_of(table)}{message}")
            if name not in table:
                continue
            good, written, right = self._agrees(table, name, column, order)
            if not good.all():
                row = int(np.argmin(good))
                message = f"{_shown(written[row])}, but by the plan it is {_shown(right[row])}"
                raise table.fail(name, message, row if order is None else int(order[row]))

    def _agrees(
        self, table: Table, name: str, column: Column, order: Ints | None
    ) -> tuple[Bools, Any, Any]:
        """Whether each row is right, what it holds and what is right, in the order of the plan."""
        assert not isinstance(column, Ranges)  # ranges decide the plan
        if isinstance(column, Lists):
            return _same_lists(table, name, column, order)
        if isinstance(column, Named):
            texts, right = table.text(name, ""), np.append(column.ids, "")[column.codes]
            if order is not None:
                texts = texts[order]
            return (texts == right) | (texts == ""), texts, right
        capacity = name == "capacity"
        numbers = table.capacity(name) if capacity else table.floats(name, np.nan)
        if order is not None:
            numbers = numbers[order]
        expected = np.where(column < 0, np.nan, column)
        good = np.isnan(numbers) | np.isclose(numbers, expected, rtol=1e-9, atol=1e-9)
        return good, numbers, expected


def _same_lists(
    table: Table, name: str, column: Lists, order: Ints | None
) -> tuple[Bools, Any, Any]:
    values: Any
    expected: Any
    if column.ids is None:
        offset, values = table.number_lists(name, whole=column.values.dtype.kind == "i")
        expected = column.values
    else:
        offset, codes, names = table.lists(name)
        values, expected = names[codes], column.ids[column.values]
    if order is None and np.array_equal(offset, column.offset):
        named = column.ids is not None
        same = values == expected if named else np.isclose(values, expected, rtol=1e-9)
        if same.all():
            return np.ones(len(table), bool), None, None
    rows = np.arange(len(table)) if order is None else order
    written = [values[offset[r] : offset[r + 1]].tolist() for r in rows.tolist()]
    right = [
        expected[b:e].tolist() for b, e in zip(column.offset[:-1], column.offset[1:], strict=True)
    ]
    good = [
        not one or one == other or (len(one) == len(other) and _close(one, other))
        for one, other in zip(written, right, strict=True)
    ]
    return np.array(good, bool), written, right


def _close(one: list[Any], other: list[Any]) -> bool:
    return isinstance(one[0], float) and bool(np.allclose(one, other, rtol=1e-9, atol=0))


def _name_of(table: Table) -> str:
    return f"{table.name}: " if isinstance(table, Rows) else ""


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return repr(str(value)) if value else "none"
    if isinstance(value, float):
        return "none" if math.isnan(value) else number(value)
    return value
