"""Requirements of joins on their hosts besides capacity: memory and tags (paper, 3.6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nova_core.model.arrays import Bools, Floats, Ints, Strings


@dataclass(frozen=True, eq=False)
class Requirements:
    """The distinct requirements of a problem's joins and which nodes meet them.

    Attributes:
        texts: one per requirement, for people: ``tag gpu and 1e+09 bytes of memory``.
        of_join: (q,) requirement of each logical join; -1 for none.
        met: (r, n) whether each node meets each requirement. What is not known is not met.
    """

    texts: tuple[str, ...]
    of_join: Ints
    met: Bools


def requirements_of(
    tags: Strings | None,
    memory: Floats | None,
    node_tags: Strings | None,
    node_memory: Floats | None,
    joins: int,
    nodes: int,
) -> Requirements:
    """Group joins by what they require.

    Args:
        tags: (q,) that each join requires, comma-separated; None where no join does.
        memory: (q,) bytes that each join requires, NaN for none; None where no join does.
        node_tags: (n,) tags of each node, comma-separated, or None.
        node_memory: (n,) bytes of each node, NaN where not known, or None.
        joins: q.
        nodes: n.
    """
    wanted = [""] * joins if tags is None else tags.tolist()
    needed = [math.nan] * joins if memory is None else memory.tolist()
    number: dict[tuple[frozenset[str], float], int] = {}
    of_join = np.full(joins, -1)
    for row, (text, least) in enumerate(zip(wanted, needed, strict=True)):
        labels = frozenset(tag for tag in text.split(",") if tag)
        required = (labels, 0.0 if math.isnan(least) else least)
        if required != (frozenset(), 0.0):
            of_join[row] = number.setdefault(required, len(number))
    met = np.ones((len(number), nodes), bool)
    for (labels, least), row in number.items():
        if labels:
            met[row] &= _tagged(node_tags, labels, nodes)
        if least > 0:
            met[row] &= _at_least(node_memory, least, nodes)
    return Requirements(tuple(_text(*required) for required in number), of_join, met)


def _tagged(tags: Strings | None, labels: frozenset[str], count: int) -> Bools:
    if tags is None:
        return np.zeros(count, bool)
    # Nodes share few combinations of tags.
    distinct, row = np.unique(tags, return_inverse=True)
    return np.array([labels <= set(text.split(",")) for text in distinct.tolist()], bool)[row]


def _at_least(memory: Floats | None, least: float, count: int) -> Bools:
    return np.zeros(count, bool) if memory is None else np.asarray(memory >= least)


def _text(labels: frozenset[str], least: float) -> str:
    parts = [f"tag {tag}" for tag in sorted(labels)]
    if least > 0:
        parts.append(f"{least:g} bytes of memory")
    return " and ".join(parts)
