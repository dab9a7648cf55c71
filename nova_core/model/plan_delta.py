"""What changes from one plan to the next: the answer of live placement, as a document.

Rows name things as plans do, so a delta is read without the state that made it. Applied to the old
plan it gives the new one exactly; its inverse leads back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from nova_core.errors import PlanError
from nova_core.model.name_index import find_rows
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem

VERSION = 2
Row = TypeVar("Row", bound=msgspec.Struct)

OperatorName = Annotated[
    str,
    Meta(
        description="join/left*right of a pair of sources, as in tw/t1*w1 (a / in the join's id is "
        "written %2F, a * in the left source's %2A, a % in either %25); query/operator(inputs) of "
        "an operator of a query"
    ),
]
Bounds = Annotated[tuple[int, int], Meta(description="first partition, one past the last, from 0")]


# There are many rows, and no reference cycles that the garbage collector has to find.
class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    pass


class InstanceRow(_Struct):
    """An instance that starts or stops: which partitions of an operator it joins, and where."""

    operator: OperatorName
    node: str
    left: Bounds
    right: Bounds


class MoveRow(_Struct, rename={"source_node": "from", "target_node": "to"}):
    """An instance that goes to another node, with its state."""

    operator: OperatorName
    source_node: str
    target_node: str
    left: Bounds
    right: Bounds


class RerouteRow(_Struct):
    """A flow of an instance that stays: it has another end, or carries another rate."""

    operator: OperatorName
    node: str
    flow: Literal["left", "right", "result"]
    old: Annotated[str, Meta(description="node at the flow's other end before")]
    new: str


class Cut(_Struct):
    """How both inputs of an operator are cut: rates of the partitions, tuples/s."""

    left: list[float]
    right: list[float]


class CutRow(_Struct):
    """An operator whose inputs are partitioned otherwise; none stands for whole inputs."""

    operator: OperatorName
    old: Cut | None
    new: Cut | None


class VirtualRow(_Struct):
    """An operator's virtual position, ms; none where the operator does not exist."""

    operator: OperatorName
    old: list[float] | None
    new: list[float] | None


class PlanDelta(_Struct):
    """Changes from one version of a plan to another.

    Instances that stay as they are do not occur. ``reroute`` follows from the problem and tells
    engines which flows of those that stay get another end.
    """

    nova_plan_delta: Annotated[Literal[2], Meta(description="version of this format")] = 2
    old_version: Annotated[int, Meta(description="events before")] = 0
    new_version: Annotated[int, Meta(description="events after")] = 0
    stop: list[InstanceRow] = []
    start: list[InstanceRow] = []
    move: list[MoveRow] = []
    reroute: list[RerouteRow] = []
    removed: Annotated[list[OperatorName], Meta(description="pairs no longer joined")] = []
    added: Annotated[list[OperatorName], Meta(description="new pairs")] = []
    cuts: list[CutRow] = []
    virtual: list[VirtualRow] = []
    old_breaks: Annotated[list[str], Meta(description="constraints ignored before")] = []
    new_breaks: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether nothing starts, stops, moves or is routed otherwise."""
        return not (self.stop or self.start or self.move or self.reroute or self.cuts)

    def inverse(self) -> PlanDelta:
        """The delta that leads back: the same rows turned round, last first."""

        def turned(rows: list[Row], old: str, new: str) -> list[Row]:
            return [
                replace(row, **{old: getattr(row, new), new: getattr(row, old)})
                for row in reversed(rows)
            ]

        return PlanDelta(
            old_version=self.new_version,
            new_version=self.old_version,
            stop=self.start,
            start=self.stop,
            move=turned(self.move, "source_node", "target_node"),
            reroute=turned(self.reroute, "old", "new"),
            removed=self.added,
            added=self.removed,
            cuts=turned(self.cuts, "old", "new"),
            virtual=turned(self.virtual, "old", "new"),
            old_breaks=self.new_breaks,
            new_breaks=self.old_breaks,
        )

    def apply(self, plan: Plan, problem: Problem) -> Plan:
        """The new plan.

        Args:
            plan: the old one; instances of a pair in the order of their partitions.
            problem: what the new plan answers: the old problem after the event.

        Raises:
            PlanError: when the delta does not fit the plan or the problem.
        """
        version = plan.notes.get("version", self.old_version)
        if version != self.old_version:
            raise PlanError(
                f"plan delta: leads from version {self.old_version}, the plan is version {version}"
            )
        return _Applied(self, plan, problem).plan()

    def counts(self) -> dict[str, int]:
        """How many rows there are of each kind of change."""
        return {
            name: len(getattr(self, name))
            for name in ("stop", "start", "move", "reroute", "removed", "added")
        }


class _Applied:
    """Applies a delta: pairs of the old problem become rows of the new one."""

    def __init__(self, delta: PlanDelta, plan: Plan, problem: Problem) -> None:
        self._delta, self._old, self._problem = delta, plan, problem
        self._row_of = _rows_by_name(problem)
        self._old_row_of = _rows_by_name(plan.problem)
        stays = np.ones(len(plan.problem.matrix), bool)
        stays[[_known(self._old_row_of, name, "removed") for name in delta.removed]] = False
        fresh = np.zeros(len(problem.matrix), bool)
        fresh[[self._row(name, "added") for name in delta.added]] = True
        if stays.sum() != (~fresh).sum():
            raise PlanError(
                f"plan delta: leaves {stays.sum()} pairs of the old plan, but the problem has "
                f"{(~fresh).sum()} that are not new"
            )
        self._stays: Bools = stays
        self._fresh: Bools = fresh
        self._new_row: Ints = np.full(len(stays), -1)
        self._new_row[stays] = np.flatnonzero(~fresh)

    def plan(self) -> Plan:
        plan, delta = self._old, self._delta
        return Plan(
            problem=self._problem,
            strategy=plan.strategy,
            objective=plan.objective,
            parameters=plan.parameters,
            partitions=self._partitions(),
            instances=self._instances(),
            virtual_position=self._virtual(),
            breaks=tuple(delta.new_breaks),
            notes={"version": delta.new_version},
        )

    def _instances(self) -> Instances:
        i, delta = self._old.instances, self._delta
        table = np.stack(
            [
                np.where(self._stays[i.pair], self._new_row[i.pair], -1 - i.pair),
                i.node,
                i.left_begin,
                i.left_end,
                i.right_begin,
                i.right_end,
            ],
            axis=1,
        )
        table[:, 1] = self._new_nodes()[i.node]
        names = [row.operator for row in delta.stop] + [row.operator for row in delta.move]
        changed = {self._any_row(name) for name in names}
        at = np.flatnonzero(np.isin(table[:, 0], list(changed)))
        nodes = self._old.problem.nodes.ids
        place = {
            (*table[k, [0, 2, 3, 4, 5]].tolist(), str(nodes[i.node[k]])): k for k in at.tolist()
        }
        keep = np.ones(len(table), bool)

        def find(row: InstanceRow | MoveRow, node: str) -> int:
            key = (self._any_row(row.operator), *row.left, *row.right, node)
            if key not in place:
                raise PlanError(
                    f"plan delta: the old plan runs no instance of {row.operator} with partitions "
                    f"{list(row.left)} and {list(row.right)} on {node}"
                )
            return place[key]

        for stop in delta.stop:
            keep[find(stop, stop.node)] = False
        for move in delta.move:
            table[find(move, move.source_node), 1] = self._node(move.target_node)
        started = [
            (self._row(row.operator, "start"), self._node(row.node), *row.left, *row.right)
            for row in delta.start
        ]
        table = np.concatenate([table[keep], np.array(started, np.int64).reshape(-1, 6)])
        if (table[:, :2] < 0).any():
            raise PlanError("plan delta: leaves an instance of a removed pair or on a removed node")
        table = table[np.lexsort((table[:, 4], table[:, 2], table[:, 0]))]
        return Instances(*(np.ascontiguousarray(column) for column in table.T))

    def _row(self, name: str, where: str) -> int:
        return _known(self._row_of, name, where)

    def _any_row(self, name: str) -> int:
        """Row of the new problem; below 0 for a removed pair."""
        row = self._row_of.get(name)
        if row is not None and not self._fresh[row]:
            return row
        return -1 - _known(self._old_row_of, name, "stop")

    def _node(self, name: str) -> int:
        row = self._problem.node_index.get(name)
        if row is None:
            raise PlanError(f"plan delta: the problem has no node {name!r}")
        return row

    def _new_nodes(self) -> Ints:
        """Row in the new problem of each old node, -1 for a removed node."""
        old, new = self._old.problem.nodes.ids, self._problem.nodes.ids
        if np.array_equal(old, new):
            return np.arange(len(old))
        return find_rows(old, self._problem.node_index)

    def _partitions(self) -> Partitions:
        parts, whole = self._old.partitions, Partitions.whole(self._problem)
        cuts: dict[int, list[Floats]] = {}
        for pair in np.unique(np.flatnonzero(parts.count > 1) // 2).tolist():
            if self._stays[pair]:
                cuts[int(self._new_row[pair])] = [parts.rates(pair, side) for side in (0, 1)]
        for row in self._delta.cuts:
            if row.new is None:
                cuts.pop(self._row_of.get(row.operator, -1), None)
            else:
                cuts[self._row(row.operator, "cuts")] = [
                    np.array(row.new.left),
                    np.array(row.new.right),
                ]
        return assemble_partitions(whole, cuts)

    def _virtual(self) -> Floats | None:
        old = self._old.virtual_position
        if old is None:
            return None
        new = np.full((len(self._problem.matrix), old.shape[1]), np.nan)
        new[self._new_row[self._stays]] = old[self._stays]
        for row in self._delta.virtual:
            if row.new is not None:
                new[self._row(row.operator, "virtual")] = row.new
        return new


def assemble_partitions(
    whole: Partitions, cuts: dict[int, list[Floats]], by_key: Collection[int] = ()
) -> Partitions:
    """Whole inputs but for some operators.

    Args:
        whole: every input in one piece.
        cuts: operator to the rates of its left and right partitions.
        by_key: operators that are cut by key.
    """
    inputs = {
        2 * one + side: rates for one, sides in cuts.items() for side, rates in enumerate(sides)
    }
    return whole.with_cuts(inputs, by_key)


def _rows_by_name(problem: Problem) -> dict[str, int]:
    return {name: row for row, name in enumerate(problem.pair_names().tolist())}


def _known(rows: dict[str, int], name: str, where: str) -> int:
    row = rows.get(name)
    if row is None:
        raise PlanError(f"plan delta: {where}: no pair {name} in the join matrix")
    return row
