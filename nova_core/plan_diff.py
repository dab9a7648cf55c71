"""What changes between two plans of one problem: instances moved, started, stopped, re-cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nova_core.model.plan import Plan, Routes
from nova_core.model.problem import Bools, Floats, Ints

KINDS = ("moved", "re-cut", "started", "stopped")
MOVED, RECUT, STARTED, STOPPED = range(4)
NOWHERE = -1


@dataclass(frozen=True, eq=False)
class PlanDiff:
    """The changes from an old plan to a new one, one row each, ordered by operator.

    *Moved*: the same piece of the same cut runs elsewhere. *Re-cut*: a node keeps working on an
    operator, on other pieces. *Started*, *stopped*: a node begins or ends working on
    pieces of an operator.

    Attributes:
        plan: the old plan.
        kind: (k,) index into ``KINDS``.
        operator: (k,) as `Instances.pair`.
        old_node: (k,) where it ran, or -1.
        new_node: (k,) where it runs, or -1.
        old_rate: (k,) tuples/s it needed there, 0 where it did not run.
        new_rate: (k,) tuples/s it needs.
        unchanged: instances that stay as they are.
        rerouted: whether multi-hop routes differ.
    """

    plan: Plan
    kind: Ints
    operator: Ints
    old_node: Ints
    new_node: Ints
    old_rate: Floats
    new_rate: Floats
    unchanged: int
    rerouted: bool

    @property
    def same(self) -> bool:
        """Whether both plans decide the same."""
        return len(self.kind) == 0 and not self.rerouted

    def counts(self) -> dict[str, int]:
        """How many changes there are of each kind."""
        counted = np.bincount(self.kind, minlength=len(KINDS))
        return {name: int(counted[i]) for i, name in enumerate(KINDS)}

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The first ``limit`` changes (all for None) with names, for tables and JSON."""
        ids = self.plan.problem.nodes.ids

        def node(index: int) -> str | None:
            return None if index == NOWHERE else str(ids[index])

        return [
            {
                "change": KINDS[self.kind[i]],
                "operator": self.plan.operator_name(int(self.operator[i])),
                "from": node(int(self.old_node[i])),
                "to": node(int(self.new_node[i])),
                "old_rate": float(self.old_rate[i]),
                "new_rate": float(self.new_rate[i]),
            }
            for i in range(len(self.kind) if limit is None else min(limit, len(self.kind)))
        ]


def diff_plans(old: Plan, new: Plan) -> PlanDiff:
    """Compare two plans of one problem.

    Raises:
        PlanError: when they answer different problems.
    """
    new.require_problem(old.problem, "new plan")
    same_cut = _same_cut(old, new)
    rectangles_old, rectangles_new = _rectangles(old, same_cut, 0), _rectangles(new, same_cut, 1)
    at_old, at_new = _common(rectangles_old, rectangles_new)
    moves = old.instances.node[at_old] != new.instances.node[at_new]
    moved_old, moved_new = at_old[moves], at_new[moves]

    rest_old = np.setdiff1d(np.arange(len(old.instances)), at_old, assume_unique=True)
    rest_new = np.setdiff1d(np.arange(len(new.instances)), at_new, assume_unique=True)
    # The rest is compared by node: a node either keeps working on the pair or not.
    count = len(old.problem.nodes)
    places = np.concatenate(
        [
            plan.instances.pair[rest] * count + plan.instances.node[rest]
            for plan, rest in ((old, rest_old), (new, rest_new))
        ]
    )
    each, where = np.unique(places, return_inverse=True)
    place = np.stack(np.divmod(each, count), axis=1)
    where_old, where_new = where[: len(rest_old)], where[len(rest_old) :]
    before = np.bincount(where_old, old.required_capacity[rest_old], len(place))
    after = np.bincount(where_new, new.required_capacity[rest_new], len(place))
    kind = np.where(before == 0, STARTED, np.where(after == 0, STOPPED, RECUT))

    all_kinds = np.concatenate([np.full(len(moved_old), MOVED), kind])
    all_pairs = np.concatenate([old.instances.pair[moved_old], place[:, 0]])
    order = np.lexsort((all_kinds, all_pairs))
    return PlanDiff(
        plan=old,
        kind=all_kinds[order],
        operator=all_pairs[order],
        old_node=np.concatenate(
            [old.instances.node[moved_old], np.where(before > 0, place[:, 1], NOWHERE)]
        )[order],
        new_node=np.concatenate(
            [new.instances.node[moved_new], np.where(after > 0, place[:, 1], NOWHERE)]
        )[order],
        old_rate=np.concatenate([old.required_capacity[moved_old], before])[order],
        new_rate=np.concatenate([new.required_capacity[moved_new], after])[order],
        unchanged=len(at_old) - len(moved_old),
        rerouted=not _same_routes(old.routes, new.routes),
    )


def _same_cut(old: Plan, new: Plan) -> Bools:
    """(p,) whether both inputs of a pair are cut into the same partitions."""
    a, b = old.partitions, new.partitions
    same = a.count == b.count
    in_a, in_b = np.repeat(same, a.count), np.repeat(same, b.count)
    side = np.repeat(np.arange(len(same)), a.count)[in_a]
    same[side[a.rate[in_a] != b.rate[in_b]]] = False
    return np.asarray(same.reshape(-1, 2).all(axis=1))


def _rectangles(plan: Plan, same_cut: Bools, number: int) -> Ints:
    """(k, 6) pair, cut and rectangle of each instance; a cut that differs has the plan's number."""
    i = plan.instances
    cut = np.where(same_cut[i.pair], 0, number)
    return np.stack([i.pair, cut, i.left_begin, i.left_end, i.right_begin, i.right_end], axis=1)


def _common(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Indices of the rows that ``a`` and ``b`` share; rows are unique within each."""
    both = np.concatenate([a, b])
    order = np.lexsort(both.T)
    differs = (np.diff(both[order], axis=0) != 0).any(axis=1)
    number = np.empty(len(both), np.int64)
    number[order] = np.concatenate(([0], np.cumsum(differs)))[: len(both)]
    _, in_a, in_b = np.intersect1d(
        number[: len(a)], number[len(a) :], assume_unique=True, return_indices=True
    )
    return in_a, in_b


def _same_routes(a: Routes | None, b: Routes | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a.offset, b.offset) and np.array_equal(a.node, b.node)
