"""What operators require of the nodes they run on, besides capacity (paper, 3.6).

A rule is what one operator requires. `met_by` alone says whether a node meets one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nova_core.model.arrays import Bools, Ints

if TYPE_CHECKING:
    from nova_core.model.problem import Nodes, Problem


class Rule(NamedTuple):
    """What a node must have to run an operator.

    Attributes:
        tags: labels, all of them.
        memory: bytes, at least; 0 for any amount.
    """

    tags: frozenset[str] = frozenset()
    memory: float = 0.0

    def __and__(self, other: Rule) -> Rule:
        """What meets both rules."""
        return Rule(self.tags | other.tags, max(self.memory, other.memory))

    def __str__(self) -> str:
        """What follows "node" or "worker" in a sentence: ``with tag gpu``; empty for any node."""
        parts = [f"tag {tag}" for tag in sorted(self.tags)]
        if self.memory > 0:
            parts.append(f"{self.memory:g} bytes of memory")
        return f"with {' and '.join(parts)}" if parts else ""


ANY_NODE = Rule()


def rule_of(tags: str, memory: float) -> Rule:
    """A rule of comma-separated tags, and bytes of memory, NaN for any amount."""
    labels = frozenset(tag for tag in tags.split(",") if tag)
    return Rule(labels, 0.0 if math.isnan(memory) else memory)


def rules_of(problem: Problem) -> list[Rule]:
    """(q,) the rule of each logical join of pairs."""
    joins = problem.joins
    tags = [""] * len(joins) if joins.tags is None else joins.tags.tolist()
    memory = [math.nan] * len(joins) if joins.memory is None else joins.memory.tolist()
    return [rule_of(*one) for one in zip(tags, memory, strict=True)]


def met_by(rule: Rule, tags: str, memory: float) -> bool:
    """Whether a node meets a rule. What is not known is not met.

    Args:
        rule: what is required.
        tags: the node's, comma-separated.
        memory: bytes of it, NaN where it is not known.
    """
    return rule.tags <= set(tags.split(",")) and (rule.memory == 0 or memory >= rule.memory)


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
    enough = np.searchsorted(least, np.nan_to_num(memory, nan=-1.0), side="right")
    kind = np.zeros(count, np.int64)
    for column in (tags, enough):
        values, code = np.unique(column, return_inverse=True)
        kind = kind * len(values) + code
    _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
    seen = list(zip(tags[first].tolist(), memory[first].tolist(), strict=True))
    return np.array([[met_by(rule, *one) for one in seen] for rule in rules], bool)[:, kind]
