"""The delta between two plans by comparing them, operator by operator and instance by instance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.plan_delta import (
    Cut,
    CutRow,
    InstanceRow,
    MoveRow,
    PlanDelta,
    RenamedRow,
    VirtualRow,
)

# Left and right range, and whether it combines the others' results.
Piece = tuple[tuple[int, int], tuple[int, int], bool]


def delta_between(old: Plan, new: Plan, stays: Mapping[str, str]) -> PlanDelta:
    """What changes from one plan to another.

    Args:
        old: the one.
        new: the other; of the same strategy and with the same rewriting.
        stays: names of operators in the old plan to those that they have in the new one; all others
            are removed or added.
    """
    mine = {name: row for row, name in enumerate(old.operator_names().tolist())}
    theirs = {name: row for row, name in enumerate(new.operator_names().tolist())}
    known = set(stays.values())
    delta = PlanDelta(
        old_version=old.notes["version"],
        new_version=new.notes["version"],
        removed=[name for name in mine if name not in stays],
        added=[name for name in theirs if name not in known],
        renamed=[RenamedRow(operator=a, new=b) for a, b in stays.items() if a != b],
        old_breaks=list(old.breaks),
        new_breaks=list(new.breaks),
    )
    for name in delta.removed:
        _compare(delta, old, mine[name], new, None)
    for before, after in stays.items():
        _compare(delta, old, mine[before], new, theirs[after])
    for name in delta.added:
        _compare(delta, old, None, new, theirs[name])
    return delta


def _compare(delta: PlanDelta, old: Plan, was: int | None, new: Plan, now: int | None) -> None:
    before = None if was is None else old.operator_name(was)
    after = before if now is None else new.operator_name(now)
    assert after is not None
    point, new_point = _point(old, was), _point(new, now)
    if point != new_point:
        delta.virtual.append(VirtualRow(operator=after, old=point, new=new_point))
    cut, new_cut = _cut(old, was), _cut(new, now)
    if cut != new_cut:
        if was is not None and now is not None and before != after:
            cut, new_cut = cut or _whole(old, was), new_cut or _whole(new, now)
        delta.cuts.append(CutRow(operator=after, old=cut, new=new_cut))
    pieces, rest = _pieces(old, was), _pieces(new, now)
    for (left, right, combines), node in pieces.items():
        target = rest.pop((left, right, combines), None)
        if target is None:
            row = InstanceRow(
                operator=str(before), node=node, left=left, right=right, combines=combines
            )
            delta.stop.append(row)
        elif target != node:
            moved = MoveRow(
                operator=after, source_node=node, target_node=target, left=left, right=right
            )
            delta.move.append(moved)
    for (left, right, combines), node in rest.items():
        row = InstanceRow(operator=after, node=node, left=left, right=right, combines=combines)
        delta.start.append(row)


def _point(plan: Plan, operator: int | None) -> list[float] | None:
    assert plan.virtual_position is not None
    if operator is None or np.isnan(plan.virtual_position[operator]).any():
        return None
    return [float(x) for x in plan.virtual_position[operator]]


def _cut(plan: Plan, operator: int | None) -> Cut | None:
    if operator is None or operator not in plan.partitions.cut_operators:
        return None
    return _whole(plan, operator)


def _whole(plan: Plan, operator: int) -> Cut:
    left, right = (plan.partitions.rates(operator, side).tolist() for side in (0, 1))
    keyed = plan.partitions.by_key
    return Cut(left=left, right=right, by_key=keyed is not None and bool(keyed[operator]))


def _pieces(plan: Plan, operator: int | None) -> dict[Piece, str]:
    i, pieces = plan.instances, {}
    fed = set() if i.feeds is None else set(i.feeds[i.feeds >= 0].tolist())
    for row in [] if operator is None else np.flatnonzero(i.pair == operator).tolist():
        left = int(i.left_begin[row]), int(i.left_end[row])
        right = int(i.right_begin[row]), int(i.right_end[row])
        pieces[left, right, row in fed] = str(plan.problem.nodes.ids[i.node[row]])
    return pieces
