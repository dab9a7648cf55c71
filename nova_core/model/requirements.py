"""What operators require of the nodes they run on, besides capacity (paper, 3.6).

A rule is what one operator requires. `met_by` alone says whether a node meets one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from nova_core.model.arrays import Bools, Ints

if TYPE_CHECKING:
    from nova_core.model.problem import Nodes, Problem
    from nova_core.model.queries import ZonesPart


class Rule(NamedTuple):
    """What a node must have to run an operator.

    Attributes:
        tags: labels, all of them.
        memory: bytes, at least; 0 for any amount.
        allow: zones, one of them; None for any, or none.
        forbid: zones, none of them.
    """

    tags: frozenset[str] = frozenset()
    memory: float = 0.0
    allow: frozenset[str] | None = None
    forbid: frozenset[str] = frozenset()

    def __and__(self, other: Rule) -> Rule:
        """What meets both rules."""
        forbid, allow = self.forbid | other.forbid, self.allow
        if allow is None or other.allow is None:
            allow = other.allow if allow is None else allow
        else:
            allow &= other.allow
        if allow is not None:
            allow, forbid = allow - forbid, frozenset()
        return Rule(self.tags | other.tags, max(self.memory, other.memory), allow, forbid)

    def __str__(self) -> str:
        """What follows "node" or "worker" in a sentence; empty for any node.

        Such as ``of zone eu or uk with tag gpu``.
        """
        where = ""
        if self.allow is not None:
            zones = " or ".join(sorted(self.allow))
            where = f"of zone {zones}" if zones else "of a zone that all its inputs may be in"
        elif self.forbid:
            where = f"outside of zone {' and '.join(sorted(self.forbid))}"
        parts = [f"tag {tag}" for tag in sorted(self.tags)]
        if self.memory > 0:
            parts.append(f"{self.memory:g} bytes of memory")
        return " ".join(filter(None, [where, f"with {' and '.join(parts)}" if parts else ""]))


ANY_NODE = Rule()


def rule_of(tags: str, memory: float, allow: str = "", forbid: str = "") -> Rule:
    """A rule of comma-separated tags and zones, and bytes of memory, NaN for any amount."""
    labels, allowed, not_in = (
        frozenset(one for one in text.split(",") if one) for text in (tags, allow, forbid)
    )
    least = 0.0 if math.isnan(memory) else memory
    return Rule(labels, least, allowed or None, not_in) & ANY_NODE


def zone_rule(zones: ZonesPart | UnsetType) -> Rule:
    """The rule of what a document says under ``zones``."""
    if zones is UNSET:
        return ANY_NODE
    allow = None if zones.allow is UNSET else frozenset(zones.allow)
    forbid = frozenset() if zones.forbid is UNSET else frozenset(zones.forbid)
    return Rule(allow=allow, forbid=forbid) & ANY_NODE


def stream_rules(problem: Problem) -> Mapping[str, Rule]:
    """The rule of each logical stream: of every node where its tuples are."""
    return defaultdict(lambda: ANY_NODE, {n: zone_rule(z) for n, z in problem.zones.items()})


def rules_of(problem: Problem) -> list[Rule]:
    """(q,) the rule of each logical join of pairs: its own, and those of both streams."""
    joins, streams = problem.joins, stream_rules(problem)
    tags = [""] * len(joins) if joins.tags is None else joins.tags.tolist()
    memory = [math.nan] * len(joins) if joins.memory is None else joins.memory.tolist()
    allow = [""] * len(joins) if joins.allow is None else joins.allow.tolist()
    forbid = [""] * len(joins) if joins.forbid is None else joins.forbid.tolist()
    own = [rule_of(*one) for one in zip(tags, memory, allow, forbid, strict=True)]
    sides = zip(joins.left.tolist(), joins.right.tolist(), strict=True)
    return [
        rule & streams[left] & streams[right]
        for rule, (left, right) in zip(own, sides, strict=True)
    ]


def met_by(rule: Rule, tags: str, memory: float, zone: str = "") -> bool:
    """Whether a node meets a rule. What is not known is not met.

    Args:
        rule: what is required.
        tags: the node's, comma-separated.
        memory: bytes of it, NaN where it is not known.
        zone: its zone, empty for none.
    """
    there = (rule.allow is None or zone in rule.allow) and zone not in rule.forbid
    has = rule.tags <= set(tags.split(",")) and (rule.memory == 0 or memory >= rule.memory)
    return there and has


def known_of(nodes: Nodes, node: int) -> tuple[str, float, str]:
    """What `met_by` asks of a node: its tags, memory and zone."""
    return (
        "" if nodes.tags is None else str(nodes.tags[node]),
        math.nan if nodes.memory is None else float(nodes.memory[node]),
        "" if nodes.zone is None else str(nodes.zone[node]),
    )


@dataclass(frozen=True, eq=False)
class Requirements:
    """The distinct rules of a graph's operators, and which nodes meet them.

    Attributes:
        rules: one per requirement, none of them `ANY_NODE`.
        met: (r, n) whether each node meets each rule.
    """

    rules: tuple[Rule, ...]
    met: Bools

    def text(self, requirement: int) -> str:
        """What follows "node" in a sentence; empty for -1, no requirement."""
        return "" if requirement < 0 else str(self.rules[requirement])

    def fits(self, requirement: int | Ints, node: int | Ints) -> Bools:
        """(k,) whether nodes meet requirements, of which -1 is met by all."""
        if not self.rules:
            return np.ones(np.broadcast(requirement, node).shape, bool)
        return np.asarray(self.met[requirement, node] | (np.asarray(requirement) < 0))

    def able(self, requirements: Ints) -> Bools:
        """(n,) nodes that meet at least one of some requirements."""
        if (requirements < 0).any():
            return np.ones(self.met.shape[1], bool)
        return np.asarray(self.met[np.unique(requirements)].any(axis=0))

    def without_room(self, requirements: Ints) -> str:
        """`` (no node with tag gpu has room)``, for those of what finds none; empty for -1."""
        texts = [self.text(one) for one in np.unique(requirements[requirements >= 0]).tolist()]
        return f" ({'; '.join(f'no node {one} has room' for one in texts)})" if texts else ""


def requirements_of(rules: Sequence[Rule], nodes: Nodes) -> tuple[Requirements, Ints]:
    """The distinct rules of operators, and ((o,)) which of them each has, -1 for none.

    Args:
        rules: (o,) of operators.
        nodes: of the problem.
    """
    number = {ANY_NODE: -1}
    of = np.array([number.setdefault(rule, len(number) - 1) for rule in rules], np.int64)
    del number[ANY_NODE]
    return Requirements(tuple(number), _met(tuple(number), nodes)), of


def _met(rules: tuple[Rule, ...], nodes: Nodes) -> Bools:
    """(r, n) which nodes meet rules, asked once for nodes that do not differ to any rule."""
    count = len(nodes)
    if not rules:
        return np.empty((0, count), bool)
    least = np.unique([rule.memory for rule in rules])
    tags = np.zeros(count, "U1") if nodes.tags is None else nodes.tags
    memory = np.full(count, np.nan) if nodes.memory is None else nodes.memory
    zone = np.zeros(count, "U1") if nodes.zone is None else nodes.zone
    enough = np.searchsorted(least, np.nan_to_num(memory, nan=-1.0), side="right")
    kind = np.zeros(count, np.int64)
    for column in (tags, enough, zone):
        values, code = np.unique(column, return_inverse=True)
        kind = kind * len(values) + code
    _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
    seen = list(zip(*(one[first].tolist() for one in (tags, memory, zone)), strict=True))
    return np.array([[met_by(rule, *one) for one in seen] for rule in rules], bool)[:, kind]
