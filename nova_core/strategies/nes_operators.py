"""Operators of an expanded query, as NebulaStream places them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        name: what errors call it.
        need: resources it takes on its node.
        inputs: operators whose output it receives (the document's children); none for a source.
        pinned: node it must run on, or None; every source and every sink is pinned.
        output_rate: tuples/s it emits to each operator that receives from it.
    """

    name: str
    need: float = 0.0
    inputs: tuple[int, ...] = ()
    pinned: int | None = None
    output_rate: float = 1.0


@dataclass(frozen=True, eq=False)
class Query:
    """Operators after the expansion of logical sources, referred to by their place in the list."""

    operators: Sequence[Operator]

    def __len__(self) -> int:
        return len(self.operators)

    def __getitem__(self, operator: int) -> Operator:
        return self.operators[operator]

    @cached_property
    def consumers(self) -> list[list[int]]:
        """Operators that receive each one's output (the document's parents)."""
        found: list[list[int]] = [[] for _ in self.operators]
        for number, operator in enumerate(self.operators):
            for below in operator.inputs:
                found[below].append(number)
        return found

    @cached_property
    def sources(self) -> list[int]:
        """Operators without inputs."""
        return [n for n, operator in enumerate(self.operators) if not operator.inputs]

    @cached_property
    def sinks(self) -> list[int]:
        """Operators whose output nobody receives."""
        return [n for n, above in enumerate(self.consumers) if not above]

    def upstream_nodes(self, operator: int) -> list[int]:
        """Nodes of all sources whose tuples reach an operator."""
        reached, open_ = dict.fromkeys([operator]), [operator]
        while open_:
            below = [i for i in self[open_.pop()].inputs if i not in reached]
            reached.update(dict.fromkeys(below))
            open_ += below
        pinned = (self[n].pinned for n in reached if not self[n].inputs)
        return list(dict.fromkeys(node for node in pinned if node is not None))


__all__ = ["Operator", "Query"]
