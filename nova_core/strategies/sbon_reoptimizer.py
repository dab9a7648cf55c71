"""SBON's local placement optimizers: operators that follow the network (section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.operator_graph import OperatorGraph
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.strategies.sbon_mapping import Mapper
from nova_core.strategies.sbon_relaxation import Placement, needs
from nova_core.strategies.sbon_springs import Damping, Springs, at_rest


@dataclass(frozen=True)
class Thresholds:
    """What keeps operators where they are; the text leaves both to the costs of a system.

    Attributes:
        displacement: an operator looks for a node only when its virtual position moved farther
            than this, ms.
        migration: it migrates only when that saves more network usage than this, tuples/s * ms.
    """

    displacement: float = 1.0
    migration: float = 0.0

    def __post_init__(self) -> None:
        for name in ("displacement", "migration"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ProblemError(
                    f"re-optimizer: {name} is {getattr(self, name):g}; expected 0 or more"
                )


@dataclass(frozen=True)
class Migration:
    """An operator that moved.

    Attributes:
        operator: its number in the graph.
        source: node it left.
        target: node it runs on now.
        saving: network usage saved, tuples/s * ms.
    """

    operator: int
    source: int
    target: int
    saving: float


def reoptimize(
    graph: OperatorGraph,
    placement: Placement,
    mapper: Mapper,
    latency: Floats | None = None,
    thresholds: Thresholds | None = None,
    damping: Damping | None = None,
    allowed: list[Bools | None] | None = None,
) -> tuple[Placement, list[Migration]]:
    """Let every operator's node re-evaluate its placement once, one after the other.

    Each operator relaxes while its neighbours stay. If its virtual position moved far enough, it is
    mapped again, and migrates if that saves enough. Migrations are atomic: those that follow see
    its new place.

    Args:
        graph: queries as they are now, e.g. with rates as measured.
        placement: where operators are.
        mapper: the cost space as it is now; what the running operators take is off its room.
        latency: (n, n) ms, symmetric, by which savings are told; None takes distances in the
            latency space.
        thresholds: what a lookup and a migration must be worth.
        damping: of the springs.
        allowed: of every movable operator, (n,) nodes that meet its requirements, or None.

    Returns:
        The new placement, and what moved, in order. Positions of operators that stayed within the
        displacement threshold are the old ones.
    """
    asked, damping = thresholds or Thresholds(), damping or Damping()
    springs, need = Springs(graph), needs(graph)
    nodes, virtual = placement.nodes.copy(), placement.virtual.copy()
    fixed = graph.pinned()
    nodes[fixed >= 0] = fixed[fixed >= 0]
    virtual[fixed >= 0] = mapper.position[fixed[fixed >= 0]]
    found = []
    for row, operator in enumerate(graph.movable.tolist()):
        links = springs.links[row]
        neighbours, rate = links
        point = at_rest(virtual[operator], virtual[neighbours], rate, damping)
        if np.linalg.norm(point - virtual[operator]) <= asked.displacement:
            continue
        virtual[operator] = point
        here, overloaded = int(nodes[operator]), mapper.overloaded
        mapper.release(here, need[operator])
        there = mapper.place(point, need[operator], None if allowed is None else allowed[row])
        saving = _usage(here, nodes, links, mapper, latency)
        saving -= _usage(there, nodes, links, mapper, latency)
        if there != here and saving > asked.migration and mapper.overloaded == overloaded:
            nodes[operator] = there
            found.append(Migration(operator, here, there, saving))
            continue
        mapper.release(there, need[operator])
        mapper.take(here, need[operator])
        mapper.overloaded = overloaded
    return Placement(nodes, virtual), found


def _usage(
    node: int, nodes: Ints, links: tuple[Ints, Floats], mapper: Mapper, latency: Floats | None
) -> float:
    """Network usage of an operator's links were it on a node, tuples/s * ms."""
    neighbours, rate = links
    ends = nodes[neighbours]
    if latency is not None:
        return float(rate @ latency[node, ends])
    return float(rate @ np.linalg.norm(mapper.position[ends] - mapper.position[node], axis=1))


__all__ = ["Migration", "Thresholds", "reoptimize"]
