"""Reading a plan from columnar files: a header document and the tables it names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from nova_core.errors import PlanError
from nova_core.model.columnar import (
    POSITION_KINDS,
    Columns,
    Kind,
    position_columns,
    read_columns,
)
from nova_core.model.edges import LEGS, edges
from nova_core.model.plan import Instances, Partitions, Plan, Routes
from nova_core.model.plan_columns import (
    ROUTES,
    SIDES,
    Lists,
    Named,
    edge_columns,
    instance_facts,
    load_columns,
    partition_columns,
)
from nova_core.model.plan_document import PlanHeader, check_answers, difference
from nova_core.model.plan_text import VERSION
from nova_core.model.plan_totals import totals
from nova_core.model.problem import Floats, Ints, Problem, Strings
from nova_core.model.syntax import read_typed, unknown
from nova_core.model.validation import pair_keys

_PAIR = ("operator", "left", "right")
_BOUNDS = ("left_begin", "left_end", "right_begin", "right_end")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "instances": (
        *_PAIR,
        "node",
        "replica",
        "of",
        *_BOUNDS,
        "replicas",
        "required_capacity",
        *ROUTES,
    ),
    "partitions": (*_PAIR, "side", "partition", "rate", "share"),
    "virtual": (*_PAIR, *POSITION_KINDS),
    "edges": ("instance", "carries", "from", "to", "partitions", "rate", "latency", "bandwidth"),
    "loads": ("node", "load", "capacity"),
}


class PlanTables(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Files beside the header."""

    instances: str
    partitions: str | UnsetType = UNSET
    virtual: str | UnsetType = UNSET
    edges: str | UnsetType = UNSET
    loads: str | UnsetType = UNSET


class PlanTablesHeader(PlanHeader, kw_only=True):
    """The header of a plan whose rows are in tables."""

    tables: PlanTables


class _PlanReader:
    def __init__(self, header: PlanTablesHeader, problem: Problem, path: Path) -> None:
        self._header = header
        self._problem = problem
        self._path = path
        self._index: dict[str, Mapping[str, int]] = {"node": problem.node_index}

    def _table(self, name: str) -> Columns | None:
        file = getattr(self._header.tables, name)
        if file is UNSET:
            return None
        known: dict[str, Kind] = dict.fromkeys(_COLUMNS[name], "text")
        return read_columns(self._path.parent / file, known, PlanError)

    def _find(self, table: Columns, column: str, ids: Strings, what: str) -> Ints:
        codes, names = table.coded(column)
        return self._rows(table, column, codes, names, ids, what)

    def _rows(
        self, table: Columns, column: str, codes: Ints, names: list[str], ids: Strings, what: str
    ) -> Ints:
        if len(codes) == 0:
            return np.empty(0, np.int64)
        if what not in self._index:
            self._index[what] = {name: row for row, name in enumerate(ids.tolist())}
        index = self._index[what]
        found = np.array([index.get(name, -1) for name in names], np.int64)[codes]
        if (found < 0).any():
            row = int(np.argmax(found < 0))
            raise table.fail(column, unknown(what, names[int(codes[row])], index), row)
        return found

    def _pairs(self, table: Columns) -> Ints:
        p = self._problem
        join = self._find(table, "operator", p.joins.ids, "operator")
        left = self._find(table, "left", p.sources.ids, "source")
        right = self._find(table, "right", p.sources.ids, "source")
        count = len(p.sources)
        known = pair_keys(p.matrix.join, p.matrix.left, p.matrix.right, count)
        order = np.argsort(known, kind="stable")
        wanted = pair_keys(join, left, right, count)
        at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
        found = order[at]
        if (known[found] != wanted).any():
            row = int(np.argmax(known[found] != wanted))
            names = [str(ids[i[row]]) for ids, i in ((p.sources.ids, left), (p.sources.ids, right))]
            message = f"{names[0]!r} with {names[1]!r} is no pair of the join matrix"
            raise table.fail("left", message, row)
        return found

    def _inputs(self, table: Columns) -> Ints:
        return 2 * self._pairs(table) + self._find(table, "side", SIDES[:2], "side")

    def plan(self) -> Plan:
        header = self._header
        partitions = self._partitions()
        table = self._table("instances")
        assert table is not None
        instances, order = self._instances(table, partitions)
        plan = Plan(
            problem=self._problem,
            strategy=header.strategy,
            objective=header.objective,
            partitions=partitions,
            instances=instances,
            parameters=header.parameters,
            virtual_position=self._virtual(),
            routes=self._routes(table, order),
            breaks=tuple(header.breaks),
            notes=header.notes,
        )
        self._refuse_contradiction(plan, table, order)
        return plan

    def _partitions(self) -> Partitions:
        p, table = self._problem, self._table("partitions")
        whole = Partitions.whole(p)
        if table is None or len(table) == 0:
            return whole
        each = self._inputs(table)
        number, rate = table.whole("partition"), table.floats("rate")
        if not np.isfinite(rate).all():
            row = int(np.argmin(np.isfinite(rate)))
            raise table.fail("rate", f"{rate[row]} is not a finite number of tuples/s", row)
        order = np.lexsort((number, each))
        inputs, start, given = np.unique(each[order], return_index=True, return_counts=True)
        right = number[order] == np.arange(len(order)) - np.repeat(start, given)
        if not right.all():
            row = int(order[np.argmin(right)])
            message = f"{number[row]}: an input's partitions are numbered from 0, each once"
            raise table.fail("partition", message, row)
        count = np.ones(2 * len(p.matrix), np.int64)
        count[inputs] = given
        offset = np.concatenate(([0], np.cumsum(count)))
        rates = np.repeat(whole.rate, count)
        rates[offset[each] + number] = rate
        return Partitions(offset, rates)

    def _instances(self, table: Columns, partitions: Partitions) -> tuple[Instances, Ints]:
        pair, node = self._pairs(table), self._find(table, "node", self._problem.nodes.ids, "node")
        bounds = [table.whole(name) for name in _BOUNDS]
        for side, (begin, end) in enumerate((bounds[:2], bounds[2:])):
            count = partitions.count[2 * pair + side]
            good = (begin >= 0) & (begin < end) & (end <= count)
            if not good.all():
                row = int(np.argmin(good))
                message = (
                    f"[{begin[row]}, {end[row]}] is no range of the input's partitions; it needs "
                    f"0 <= begin < end <= {count[row]}"
                )
                raise table.fail(f"{LEGS[side]}_begin", message, row)
        order = np.argsort(pair, kind="stable")
        return Instances(*(column[order] for column in (pair, node, *bounds))), order

    def _virtual(self) -> Floats | None:
        p, table = self._problem, self._table("virtual")
        if table is None:
            return None
        position = np.full((len(p.matrix), p.nodes.position.shape[1]), np.nan)
        found, given = self._pairs(table), table.position()
        if given is None or given.shape[1] != position.shape[1]:
            names = position_columns(position.shape[1])
            raise PlanError(f"{table.path}: columns {', '.join(names)} are needed, in ms")
        if not np.isfinite(given).all():
            row = int(np.argmin(np.isfinite(given).all(axis=1)))
            raise PlanError(f"{table.path}: row {row + 1}: {given[row]} is not a position in ms")
        if len(np.unique(found)) < len(found):
            raise PlanError(f"{table.path}: a pair has two virtual positions")
        position[found] = given
        return position

    def _routes(self, table: Columns, order: Ints) -> Routes | None:
        given = [name for name in ROUTES if name in table]
        if not given:
            return None
        columns = []
        for name in ROUTES:
            offset, codes, names = table.lists(name)
            node = self._rows(table, name, codes, names, self._problem.nodes.ids, "node")
            columns.append((offset, node))
        length = np.stack([np.diff(offset)[order] for offset, _ in columns], axis=1).ravel()
        if len(length) and length.min() == 0:
            raise PlanError(f"{table.path}: an empty route; a route names both its ends")
        total = np.concatenate(([0], np.cumsum(length)))
        nodes = np.empty(int(total[-1]), np.int64)
        for leg, (offset, node) in enumerate(columns):
            size = np.diff(offset)[order]
            within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            nodes[np.repeat(total[leg:-1:3], size) + within] = node[
                np.repeat(offset[:-1][order], size) + within
            ]
        return Routes(total, nodes)

    # --- redundancy -----------------------------------------------------------------------------

    def _refuse_contradiction(self, plan: Plan, instances: Columns, order: Ints) -> None:
        self._compare(instances, instance_facts(plan), order)
        if (table := self._table("partitions")) is not None and len(table):
            inputs = self._inputs(table)
            by_input = np.lexsort((table.whole("partition"), inputs))
            share = partition_columns(plan, np.unique(inputs))["share"]
            self._compare(table, {"share": share}, by_input)
        e = edges(plan)
        if (table := self._table("edges")) is not None:
            self._compare(table, edge_columns(plan, e), None)
        if (table := self._table("loads")) is not None:
            self._compare(table, load_columns(plan), None)
        if self._header.totals is not UNSET:
            found = msgspec.to_builtins(self._header.totals)
            if wrong := difference(totals(plan, e), found, "totals"):
                raise PlanError(f"{self._path}: {wrong}")

    def _compare(self, table: Columns, expected: Mapping[str, Any], order: Ints | None) -> None:
        """Refuse a table whose redundant columns do not follow from the plan.

        Args:
            table: as it was read; a column that is left out is not missed.
            expected: what follows from the plan.
            order: rows of the table in the order of the plan, None where it must be the same.
        """
        for name, column in expected.items():
            count = len(column.codes if isinstance(column, Named) else column)
            if len(table) != count:
                raise PlanError(f"{table.path}: {len(table)} rows, but the plan makes {count}")
            if name not in table:
                continue
            found: Any
            if isinstance(column, Lists):
                found = Lists(*table.number_lists(name))
                good = np.array([found.same_as(column)] * len(found))
                if not good.all():
                    good = np.array([found[r] == column[r] for r in range(len(found))])
                wanted: Any = column
            elif isinstance(column, Named):
                found, wanted = self._find(table, name, column.ids, column.what), column.codes
                good = found == wanted
                found, wanted = column.ids[found[~good][:1]], column.ids[wanted[~good][:1]]
            else:
                found, wanted = table.floats(name, np.nan), column
                found = found if order is None else found[order]
                good = np.isclose(found, wanted, rtol=1e-9, atol=1e-9, equal_nan=True)
            if not good.all():
                row = int(np.argmin(good))
                at = 0 if isinstance(column, Named) else row
                message = f"{found[at]}, but by the plan it is {wanted[at]}"
                raise table.fail(name, message, row if order is None else int(order[row]))


def read_plan_tables(path: Path, problem: Problem) -> Plan:
    """Read a plan from its header and the tables it names.

    Args:
        path: the header, ``plan.json`` or ``plan.yaml``.
        problem: the problem it answers.

    Raises:
        PlanError: naming the file, the row and column, the value and what would be accepted.
    """
    header = read_typed(path, PlanTablesHeader, "nova_plan", VERSION, PlanError)
    check_answers(header, problem, path)
    return _PlanReader(header, problem, path).plan()
