"""What changes from one plan to the next: the answer of live placement, as a document.

Rows name things as plans do, so a delta is read without the state that made it. Applied to the old
plan it gives the new one exactly; its inverse leads back.

What stops and what is removed is called as in the old plan, all else as in the new one. An operator
that several queries share has its name from the first of them, so that one that stays may get
another name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from nova_core.errors import PlanError
from nova_core.model.expansion import graph_of
from nova_core.model.name_index import NameIndex, find_rows
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem

VERSION = 3

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


class InstanceRow(_Struct, omit_defaults=True):
    """An instance that starts or stops: which partitions of an operator it joins, and where."""

    operator: OperatorName
    node: str
    left: Bounds
    right: Bounds
    combines: Annotated[
        bool, Meta(description="whether the operator's other instances send it their results")
    ] = False


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


class Cut(_Struct, omit_defaults=True):
    """How both inputs of an operator are cut: rates of the partitions, tuples/s."""

    left: list[float]
    right: list[float]
    by_key: Annotated[bool, Meta(description="whether left partitions are ranges of keys")] = False


class CutRow(_Struct):
    """An operator whose inputs are partitioned otherwise.

    None stands for whole inputs, and where the operator does not exist. Where it is renamed, whole
    inputs are one partition each: another operator may have its name before or after.
    """

    operator: OperatorName
    old: Cut | None
    new: Cut | None


class VirtualRow(_Struct):
    """An operator's virtual position, ms; none where the operator does not exist."""

    operator: OperatorName
    old: list[float] | None
    new: list[float] | None


Row = TypeVar("Row", MoveRow, RerouteRow, CutRow, VirtualRow)
Change = TypeVar("Change", CutRow, VirtualRow)


class RenamedRow(_Struct):
    """An operator that stays as it is, but is called otherwise."""

    operator: Annotated[OperatorName, Meta(description="as it was called")]
    new: OperatorName


class PlanDelta(_Struct):
    """Changes from one version of a plan to another.

    Instances that stay as they are do not occur. ``reroute`` follows from the problem and tells
    engines which flows of those that stay get another end.
    """

    nova_plan_delta: Annotated[Literal[3], Meta(description="version of this format")] = 3
    old_version: Annotated[int, Meta(description="events before")] = 0
    new_version: Annotated[int, Meta(description="events after")] = 0
    stop: list[InstanceRow] = []
    start: list[InstanceRow] = []
    move: list[MoveRow] = []
    reroute: list[RerouteRow] = []
    removed: Annotated[
        list[OperatorName], Meta(description="operators that are no longer there")
    ] = []
    added: Annotated[list[OperatorName], Meta(description="new operators")] = []
    renamed: list[RenamedRow] = []
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
        before = {row.new: row.operator for row in self.renamed}
        gone = set(self.removed)

        def turned(rows: list[Row], old: str, new: str) -> list[Row]:
            return [
                replace(
                    row,
                    operator=row.operator
                    if getattr(row, new) is None and row.operator in gone
                    else before.get(row.operator, row.operator),
                    **{old: getattr(row, new), new: getattr(row, old)},
                )
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
            renamed=[
                RenamedRow(operator=row.new, new=row.operator) for row in reversed(self.renamed)
            ],
            cuts=turned(self.cuts, "old", "new"),
            virtual=turned(self.virtual, "old", "new"),
            old_breaks=self.new_breaks,
            new_breaks=self.old_breaks,
        )

    def apply(self, plan: Plan, problem: Problem) -> Plan:
        """The new plan.

        Args:
            plan: the old one; instances of an operator in the order of their partitions.
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
    """Applies a delta: operators of the old plan become rows of the new one's graph."""

    def __init__(self, delta: PlanDelta, plan: Plan, problem: Problem) -> None:
        self._delta, self._old, self._problem = delta, plan, problem
        old, new = plan.operator_names(), graph_of(problem, plan.rewriting).names
        self._old_row_of, self._row_of = NameIndex(old), NameIndex(new)
        stays: Bools = np.ones(len(old), bool)
        stays[[self._old_row(name, "removed") for name in delta.removed]] = False
        fresh: Bools = np.zeros(len(new), bool)
        fresh[[self._row(name, "added") for name in delta.added]] = True
        if stays.sum() != (~fresh).sum():
            raise PlanError(
                f"plan delta: leaves {stays.sum()} operators of the old plan, but the problem has "
                f"{(~fresh).sum()} that are not new"
            )
        self._gone, self._fresh = set(delta.removed), set(delta.added)
        self._new_row: Ints = find_rows(old, self._row_of)
        for row in delta.renamed:
            self._new_row[self._old_row(row.operator, "renamed")] = self._row(row.new, "renamed")
        self._new_row[~stays] = -1
        reached = self._new_row[stays]
        lost = np.flatnonzero(stays)[(reached < 0) | fresh[reached]]
        if len(lost):
            name = old[lost[0]]
            raise PlanError(f"plan delta: {name} stays, but the problem has no such operator")
        self._stays: Bools = stays

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
            rewriting=plan.rewriting,
        )

    def _instances(self) -> Instances:
        i, delta = self._old.instances, self._delta
        # Rows of removed operators are below 0: they all have to stop.
        operator = np.where(self._stays, self._new_row, -1 - np.arange(len(self._stays)))
        table = np.stack(
            [
                operator[i.pair],
                self._new_nodes()[i.node],
                i.left_begin,
                i.left_end,
                i.right_begin,
                i.right_end,
                _combining(i),
            ],
            axis=1,
        )
        stopped = [int(operator[self._old_row(row.operator, "stop")]) for row in delta.stop]
        moved = [self._row(row.operator, "move") for row in delta.move]
        at = np.flatnonzero(np.isin(table[:, 0], stopped + moved))
        nodes = self._old.problem.nodes.ids
        place = {
            (*table[k, [0, 2, 3, 4, 5]].tolist(), str(nodes[i.node[k]])): k for k in at.tolist()
        }
        keep = np.ones(len(table), bool)

        def find(of: int, row: InstanceRow | MoveRow, node: str) -> int:
            key = (of, *row.left, *row.right, node)
            if key not in place:
                raise PlanError(
                    f"plan delta: the old plan runs no instance of {row.operator} with partitions "
                    f"{list(row.left)} and {list(row.right)} on {node}"
                )
            return place[key]

        for of, stop in zip(stopped, delta.stop, strict=True):
            keep[find(of, stop, stop.node)] = False
        for of, move in zip(moved, delta.move, strict=True):
            table[find(of, move, move.source_node), 1] = self._node(move.target_node)
        started = [
            (
                self._row(row.operator, "start"),
                self._node(row.node),
                *row.left,
                *row.right,
                row.combines,
            )
            for row in delta.start
        ]
        table = np.concatenate([table[keep], np.array(started, np.int64).reshape(-1, 7)])
        if (table[:, :2] < 0).any():
            raise PlanError(
                "plan delta: leaves an instance of a removed operator or on a removed node"
            )
        table = table[np.lexsort((table[:, 5], table[:, 3], table[:, 4], table[:, 2], table[:, 0]))]
        operator, node, a, b, c, d, combines = (np.ascontiguousarray(one) for one in table.T)
        return Instances(operator, node, a, b, c, d, _feeding(operator, combines))

    def _row(self, name: str, where: str) -> int:
        return _known(self._row_of, name, where, "the problem")

    def _old_row(self, name: str, where: str) -> int:
        return _known(self._old_row_of, name, where, "the old plan")

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

    def _changed(self, rows: Sequence[Change], where: str) -> list[tuple[int, Change]]:
        """Rows of operators of the new plan, each with the operator's row there."""
        return [
            (self._row(row.operator, where), row)
            for row in rows
            if row.new is not None or row.operator not in self._gone
        ]

    def _partitions(self) -> Partitions:
        parts = self._old.partitions
        cut = parts.cut_operators
        cuts = {
            int(self._new_row[one]): [parts.rates(one, side) for side in (0, 1)]
            for one in cut[self._stays[cut]].tolist()
        }
        by_key: set[int] = set()
        if parts.by_key is not None:
            by_key = set(self._new_row[self._stays & parts.by_key].tolist())
        for operator, row in self._changed(self._delta.cuts, "cuts"):
            cuts.pop(operator, None)
            by_key.discard(operator)
            if row.new is not None:
                cuts[operator] = [np.array(row.new.left), np.array(row.new.right)]
                if row.new.by_key:
                    by_key.add(operator)
        whole = Partitions.whole(self._problem, self._old.rewriting)
        return assemble_partitions(whole, cuts, by_key)

    def _virtual(self) -> Floats | None:
        old = self._old.virtual_position
        if old is None:
            return None
        new = np.full((len(self._row_of), old.shape[1]), np.nan)
        new[self._new_row[self._stays]] = old[self._stays]
        for operator, row in self._changed(self._delta.virtual, "virtual"):
            new[operator] = np.nan if row.new is None else row.new
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


def _combining(i: Instances) -> Bools:
    """(k,) whether other instances feed each one."""
    combining = np.zeros(len(i), bool)
    if i.feeds is not None:
        combining[i.feeds[i.feeds >= 0]] = True
    return combining


def _feeding(operator: Ints, combines: Ints) -> Ints | None:
    """(k,) the instance that each feeds: of its operator, the one that combines; or -1."""
    combining = np.flatnonzero(combines)
    if not len(combining):
        return None
    by_operator = np.full(int(operator[-1]) + 1, -1)
    by_operator[operator[combining]] = combining
    feeds = by_operator[operator]
    feeds[combining] = -1
    return feeds


def _known(rows: NameIndex, name: str, where: str, whose: str) -> int:
    row = rows.get(name)
    if row is None:
        raise PlanError(f"plan delta: {where}: {whose} has no operator {name}")
    return row
