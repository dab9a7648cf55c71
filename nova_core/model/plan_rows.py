"""From the rows of a plan document to the columns of a plan: names become indices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from nova_core.errors import PlanError
from nova_core.model.plan import Instances, Partitions, Plan, Routes
from nova_core.model.problem import Floats, Problem
from nova_core.model.syntax import unknown

if TYPE_CHECKING:
    from nova_core.model.plan_document import PlanDocument


class PlanRows:
    """Builds a plan from a document.

    Attributes:
        order: rows of the document's instances in the order the plan has them.
    """

    def __init__(self, document: PlanDocument, problem: Problem, path: Path) -> None:
        self._document = document
        self._problem = problem
        self._path = path
        self._pairs = _pair_index(problem)
        pairs = [self._pair(row, f"instances[{i}]") for i, row in enumerate(document.instances)]
        self.order: list[int] = np.argsort(np.array(pairs, np.int64), kind="stable").tolist()
        self._instance_pairs = pairs

    def plan(self) -> Plan:
        """The plan.

        Raises:
            PlanError: for names the problem does not have and ranges outside the partitions.
        """
        document = self._document
        partitions = self._partitions()
        return Plan(
            problem=self._problem,
            strategy=document.strategy,
            objective=document.objective,
            partitions=partitions,
            instances=self._instances(partitions),
            parameters=document.parameters,
            virtual_position=self._virtual(),
            routes=self._routes(),
            breaks=tuple(document.breaks),
            notes=document.notes,
        )

    def _fail(self, place: str, message: str) -> PlanError:
        return PlanError(f"{self._path}: {place}: {message}")

    def _pair(self, row: Any, place: str) -> int:
        key = (row.operator, row.pair.left, row.pair.right)
        found = self._pairs.get(key)
        if found is not None:
            return found
        joins, sources = set(self._problem.joins.ids.tolist()), self._problem.sources.ids.tolist()
        if row.operator not in joins:
            raise self._fail(f"{place}.operator", unknown("operator", row.operator, joins))
        for side, name in (("left", row.pair.left), ("right", row.pair.right)):
            if name not in sources:
                raise self._fail(f"{place}.pair.{side}", unknown("source", name, sources))
        raise self._fail(
            f"{place}.pair",
            f"{row.operator!r} does not join {row.pair.left!r} with {row.pair.right!r}; the join "
            "matrix allows no such pair",
        )

    def _node(self, name: str, place: str) -> int:
        found = self._problem.node_index.get(name)
        if found is None:
            raise self._fail(place, unknown("node", name, self._problem.node_index))
        return found

    def _partitions(self) -> Partitions:
        p, given = self._problem, {}
        for number, row in enumerate(self._document.partitions):
            place = f"partitions[{number}]"
            each = 2 * self._pair(row, place) + (row.side == "right")
            if each in given:
                raise self._fail(place, f"the {row.side} input of this pair is cut twice")
            if not np.isfinite(row.rates).all():
                raise self._fail(f"{place}.rates", f"{row.rates} are not all finite numbers")
            given[each] = row.rates
        whole = Partitions.whole(p)
        count = np.ones(2 * len(p.matrix), np.int64)
        for each, rates in given.items():
            count[each] = len(rates)
        offset = np.concatenate(([0], np.cumsum(count)))
        rate = np.repeat(whole.rate, count)
        for each, rates in given.items():
            rate[offset[each] : offset[each + 1]] = rates
        return Partitions(offset, rate)

    def _instances(self, partitions: Partitions) -> Instances:
        rows, columns = self._document.instances, []
        for number in self.order:
            row, pair, place = rows[number], self._instance_pairs[number], f"instances[{number}]"
            for side, (begin, end) in enumerate((row.left, row.right)):
                count = int(partitions.count[2 * pair + side])
                if not 0 <= begin < end <= count:
                    raise self._fail(
                        f"{place}.{('left', 'right')[side]}",
                        f"[{begin}, {end}] is no range of the input's partitions; it needs 0 <= "
                        f"begin < end <= {count}",
                    )
            columns.append((pair, self._node(row.node, f"{place}.node"), *row.left, *row.right))
        return Instances(*np.array(columns, np.int64).reshape(-1, 6).T.copy())

    def _virtual(self) -> Floats | None:
        rows = self._document.virtual
        if rows is UNSET:
            return None
        pairs, dimensions = len(self._problem.matrix), self._problem.nodes.position.shape[1]
        position = np.full((pairs, dimensions), np.nan)
        given = np.zeros(pairs, bool)
        for number, row in enumerate(rows):
            place = f"virtual[{number}]"
            pair = self._pair(row, place)
            if given[pair]:
                raise self._fail(place, "this pair has a virtual position already")
            if len(row.position) != dimensions:
                message = f"{len(row.position)} coordinates, {dimensions} are needed"
                raise self._fail(f"{place}.position", message)
            if not np.isfinite(row.position).all():
                message = f"{row.position} are not all finite numbers of ms"
                raise self._fail(f"{place}.position", message)
            given[pair], position[pair] = True, row.position
        return position

    def _routes(self) -> Routes | None:
        rows = [(n, self._document.instances[n].routes) for n in self.order]
        if all(routes is UNSET for _, routes in rows):
            return None
        offset, node = [0], list[int]()
        for number, routes in rows:
            place = f"instances[{number}].routes"
            if routes is UNSET:
                raise self._fail(
                    place, "left out, but other instances have them; all have, or none"
                )
            for leg, names in (
                ("left", routes.left),
                ("right", routes.right),
                ("result", routes.result),
            ):
                if not names:
                    raise self._fail(f"{place}.{leg}", "no node; a route names both its ends")
                node.extend(self._node(name, f"{place}.{leg}") for name in names)
                offset.append(len(node))
        return Routes(np.array(offset, np.int64), np.array(node, np.int64))


def _pair_index(problem: Problem) -> Mapping[tuple[str, str, str], int]:
    """Names of operator, left and right source to the pair; pair names alone may be ambiguous."""
    m, sources = problem.matrix, problem.sources.ids
    names = (
        problem.joins.ids[m.join].tolist(),
        sources[m.left].tolist(),
        sources[m.right].tolist(),
    )
    return {key: pair for pair, key in enumerate(zip(*names, strict=True))}
