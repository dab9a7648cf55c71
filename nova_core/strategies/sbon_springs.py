"""RELAXATION's virtual placement: operators as bodies on springs (SBON, section 3.1, Fig. 7).

Every link is a spring whose constant is its rate; sources and sinks hold on, operators move until
no force is left. That is the least sum of rate times squared latency (Eq. 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.operator_graph import OperatorGraph
from nova_core.model.problem import Floats, Ints

UNIT = 9.0
"""What the links of the text's queries carry together, KB/s (section 4.1): four times 2 and 1.

Damping and force threshold belong to forces of this size, so an operator's spring constants are
taken in units in which they sum to it. That scales the force on it and leaves its rest alone.
"""

# Provisional locations are this close to the origin, ms (section 3.1.3).
_PROVISIONAL = 1.0


@dataclass(frozen=True)
class Damping:
    """How operators are moved, see `Springs.relax`.

    Attributes:
        damping: delta, the share of the force an operator moves by; 0.1 in the text. Above 1/9 it
            would be thrown beyond where its springs rest.
        force_threshold: F_t, the force below which it stops; 1 in the text.
        iterations: at most so many, should the threshold be out of reach.
        seed: of the provisional locations.
    """

    damping: float = 0.1
    force_threshold: float = 1.0
    iterations: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.damping <= 1 / UNIT:
            raise ProblemError(
                f"relaxation: damping is {self.damping:g}; expected more than 0, up to 1/9"
            )
        if not 0 < self.force_threshold < np.inf:
            raise ProblemError(
                f"relaxation: force_threshold is {self.force_threshold:g}; expected more than 0"
            )
        for name, least in (("iterations", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ProblemError(
                    f"relaxation: {name} is {getattr(self, name)}; expected {least} or more"
                )


@dataclass(frozen=True, eq=False)
class Springs:
    """The springs of a graph.

    Attributes:
        graph: operators and their links.
    """

    graph: OperatorGraph

    @cached_property
    def _pull(self) -> tuple[Floats, Ints, Ints, Floats]:
        """(m,) rate of all links of each movable operator; then its springs, row by row.

        These are (s,) the row, (s,) the operator at the other end and (s,) the rate.
        """
        graph = self.graph
        row = np.full(len(graph), -1)
        row[graph.movable] = np.arange(len(graph.movable))
        producer, consumer, rate = graph.edges
        here = np.concatenate([row[consumer], row[producer]])
        there = np.concatenate([producer, consumer])
        both = np.concatenate([rate, rate])
        moves = (here >= 0) & (both > 0)
        here, there, both = here[moves], there[moves], both[moves]
        order = np.argsort(here, kind="stable")
        here, there, both = here[order], there[order], both[order]
        total = np.bincount(here, both, len(graph.movable)).astype(np.float64)
        return total, here, there, both

    def force(self, point: Floats) -> Floats:
        """(m, d) the force on every movable operator, in the graph's own rates.

        Args:
            point: (o, d) where all operators are, ms.
        """
        total, here, there, rate = self._pull
        movable = self.graph.movable
        return np.stack(
            [
                np.bincount(here, rate * axis[there], len(movable)) - total * axis[movable]
                for axis in point.T
            ],
            axis=1,
        )

    def relax(self, position: Floats, parameters: Damping, start: Floats | None = None) -> Floats:
        """Move operators until no force on any exceeds the threshold.

        All operators take their steps at once: each moves by delta times the force on it, which is
        VIRTUAL-PLACE on every node at the same time. (The text's figure moves along S - S_parent,
        away from the neighbour; that must be a slip of the sign.)

        Args:
            position: (n, d) nodes' coordinates, ms.
            parameters: damping and threshold.
            start: (o, d) where operators were before; None takes provisional locations.

        Returns:
            (o, d) where all operators are, ms; those that have a node are there.
        """
        from scipy.sparse import csr_array

        graph, movable = self.graph, self.graph.movable
        point: Floats = self._start(position, parameters.seed) if start is None else start.copy()
        fixed = graph.pinned()
        point[fixed >= 0] = position[fixed[fixed >= 0]]
        total, here, there, rate = self._pull
        # An operator without any spring feels no force and stays.
        pull = csr_array(
            (rate * UNIT / total[here], (here, there)), shape=(len(movable), len(graph))
        )
        size = np.where(total > 0, UNIT, 0.0)[:, None]
        for _ in range(parameters.iterations):
            force = pull @ point - size * point[movable]
            if np.linalg.norm(force, axis=1).max(initial=0.0) < parameters.force_threshold:
                break
            point[movable] += parameters.damping * force
        return point

    @cached_property
    def links(self) -> list[tuple[Ints, Floats]]:
        """Of every movable operator, in order: its neighbours, and the rates between."""
        _, here, there, rate = self._pull
        bounds = np.searchsorted(here, np.arange(len(self.graph.movable) + 1))
        return [(there[a:b], rate[a:b]) for a, b in pairwise(bounds.tolist())]

    def _start(self, position: Floats, seed: int) -> Floats:
        random = np.random.default_rng(seed)
        shape = (len(self.graph), position.shape[1])
        return np.asarray(_PROVISIONAL * random.standard_normal(shape))


def at_rest(start: Floats, ends: Floats, rate: Floats, parameters: Damping) -> Floats:
    """(d,) where one operator comes to rest while its neighbours stay (VIRTUAL-PLACE, Fig. 7).

    Args:
        start: (d,) where it was, ms.
        ends: (k, d) where its neighbours are.
        rate: (k,) of its links to them, tuples/s.
        parameters: damping and threshold.
    """
    total = float(rate.sum())
    here: Floats = start.copy()
    if total <= 0:
        return here
    rest = (rate @ ends) / total
    for _ in range(parameters.iterations):
        force = UNIT * (rest - here)
        if np.linalg.norm(force) < parameters.force_threshold:
            break
        here += parameters.damping * force
    return here


__all__ = ["UNIT", "Damping", "Springs", "at_rest"]
