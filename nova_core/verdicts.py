"""Why each candidate of a pair was or was not chosen, and why the pair is (not) cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.model.verify import TOLERANCE


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Verdicts on the candidates of one pair.

    Attributes:
        plan: the plan.
        pair: the pair, a row of the join matrix.
        cost: (n,) what the whole pair would cost on each node, by the plan's objective.
        order: workers by cost of the whole pair.
        share: tuples/s the pair adds to each of its hosts.
        pieces: replicas of the pair on each of its hosts.
        free: (n,) capacity left on every node.
        actual: the pair's cost.
    """

    plan: Plan
    pair: int
    cost: Floats
    order: Ints
    share: dict[int, float]
    pieces: dict[int, int]
    free: Floats
    actual: float

    @cached_property
    def partitions(self) -> tuple[int, int]:
        """Into how many the left and the right input are cut."""
        count = self.plan.partitions.count
        return int(count[2 * self.pair]), int(count[2 * self.pair + 1])

    @cached_property
    def needs(self) -> float:
        """C_r, tuples/s."""
        return float(self.plan.problem.required_capacity[self.pair])

    @cached_property
    def least(self) -> float:
        """Capacity the smallest replica needs."""
        parts = self.plan.partitions
        return float(parts.rates(self.pair, 0).min() + parts.rates(self.pair, 1).min())

    @cached_property
    def is_cut(self) -> bool:
        """Whether the pair runs on several nodes."""
        return len(self.share) > 1

    @cached_property
    def room(self) -> Floats:
        """(n,) capacity left on every node, were this pair not there."""
        room = self.free.copy()
        for v, rate in self.share.items():
            room[v] += rate
        return room

    @staticmethod
    def _fits(amount: float, room: Floats) -> Bools:
        return np.asarray(room >= amount * (1.0 - TOLERANCE))

    def verdict(self, v: int) -> str:
        """Why a node is (not) a host, in a few words."""
        nodes = self.plan.problem.nodes
        over = bool(self.free[v] < -TOLERANCE * abs(nodes.capacity[v]))
        if v in self.share:
            total = self.partitions[0] * self.partitions[1]
            part = "chosen" if not self.is_cut else f"chosen for {self.pieces[v]} of {total} pieces"
            wrong = [] if nodes.worker[v] else ["may not host joins"]
            return ", ".join([part, *wrong, *(["overloaded"] if over else [])])
        requirements = self.plan.problem.requirements
        required = requirements.of_pairs(self.plan.problem)[self.pair]
        if required >= 0 and not requirements.met[required, v]:
            return f"lacks {requirements.texts[required]}"
        c_min = self.plan.parameters.get("c_min") or 0.0
        if nodes.capacity[v] < c_min:
            return f"capacity below C_min = {c_min:g}"
        if self.free[v] < c_min:
            return f"full: less than C_min = {c_min:g} free"
        if not self._fits(self.needs, nodes.capacity[v]) and self._fits(self.least, self.free[v]):
            return f"too small for {self.needs:g} tuples/s; room for a part"
        if not self._fits(self.needs, nodes.capacity[v]):
            return f"too small for {self.needs:g} tuples/s"
        if self._fits(self.needs, self.free[v]):
            return "has room" if self.cost[v] >= self.actual else "has room: cheaper, but not taken"
        if self.is_cut and self._fits(self.least, self.free[v]):
            return "full; room for a part"
        return f"full: {self.needs:g} tuples/s do not fit"

    def reasons(self) -> list[str]:
        """Why it is here, and why it is (not) cut."""
        plan, nodes = self.plan, self.plan.problem.nodes
        said = []
        if "capacity" in plan.breaks and plan.strategy != "nova":
            said.append(f"strategy {plan.strategy} places without regard to capacity")
        elif plan.breaks:
            said.append(f"the plan may break on purpose: {', '.join(plan.breaks)}")
        cheaper = self.order[self.cost[self.order] < self.actual - TOLERANCE * self.actual]
        if self.is_cut:
            return [*said, self._why_cut()]
        (host,) = self.share
        said.append("not cut: it runs whole on one node")
        if not len(cheaper):
            said.append(f"{nodes.ids[host]} is the cheapest of {len(self.order)} workers")
            return said
        open_nodes = cheaper[self._fits(self.needs, self.free[cheaper])]
        text = f"{len(cheaper)} of {len(self.order)} workers would be cheaper"
        if not len(open_nodes):
            return [*said, f"{text}; none of them has {self.needs:g} tuples/s free"]
        gain = self.actual - self.cost[open_nodes[0]]
        return [
            *said,
            f"{text}; {len(open_nodes)} of them have room at the end: moving it to "
            f"{nodes.ids[open_nodes[0]]} would save {gain:.3g}",
        ]

    def _why_cut(self) -> str:
        nodes = self.plan.problem.nodes
        largest = float(nodes.capacity[self.order].max(initial=0.0))
        if not self.needs <= largest * (1.0 + TOLERANCE):
            return (
                f"cut because no worker takes {self.needs:g} tuples/s: "
                f"the greatest capacity is {largest:g}"
            )
        whole = self.order[self._fits(self.needs, self.room[self.order])]
        if not len(whole):
            return f"cut because no worker has {self.needs:g} tuples/s free for it in one piece"
        first = whole[0]
        more = float(self.cost[first] - self.actual)
        where = f"{nodes.ids[first]}, the cheapest worker with room for it in one piece"
        if more > 0:
            return f"cut because on {where}, it would cost {more:.3g} more"
        return f"cut, though on {where}, it would cost {-more:.3g} less"
