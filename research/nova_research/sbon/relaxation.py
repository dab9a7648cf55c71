"""SBON's RELAXATION: springs in the cost space, then the nearest node with room (section 3.1).

P. Pietzuch et al., *Network-Aware Operator Placement for Stream-Processing Systems*, ICDE 2006.

Operators are bodies on springs (Fig. 7). Every link is a spring whose constant is its rate; sources
and sinks hold on, operators move until no force is left. That is the least sum of rate times
squared latency (Eq. 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from nova_core.model.expansion import graph_of
from nova_core.model.graph import Graph
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.strategies.base import POSITIVE, Strategy, check_range
from nova_research.operators import OperatorGraph
from nova_research.sbon.mapping import NEAREST, Mapper

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
            would overshoot the point where its springs rest.
        force_threshold: F_t, the force below which it stops; 1 in the text.
        iterations: most iterations, if the threshold is not reached.
        seed: of the provisional locations.
    """

    damping: float = 0.1
    force_threshold: float = 1.0
    iterations: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        where = "relaxation:"
        check_range(where, self, "damping", POSITIVE, 1 / UNIT, "more than 0, up to 1/9")
        check_range(where, self, "force_threshold", POSITIVE, expected="more than 0")
        check_range(where, self, "iterations", 1)
        check_range(where, self, "seed", 0)


@dataclass(frozen=True)
class RelaxationParameters(Damping):
    """Parameters of RELAXATION; the defaults are the text's.

    Attributes:
        k: nodes near the virtual position that are tried first.
    """

    k: int = NEAREST

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("relaxation:", self, "k", 1)


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
        row_of = np.full(len(graph), -1)
        row_of[graph.movable] = np.arange(len(graph.movable))
        producer, consumer, rate = graph.edges
        row = np.concatenate([row_of[consumer], row_of[producer]])
        neighbour = np.concatenate([producer, consumer])
        both = np.concatenate([rate, rate])
        moves = (row >= 0) & (both > 0)
        row, neighbour, both = row[moves], neighbour[moves], both[moves]
        order = np.argsort(row, kind="stable")
        row, neighbour, both = row[order], neighbour[order], both[order]
        total = np.bincount(row, both, len(graph.movable)).astype(np.float64)
        return total, row, neighbour, both

    def relax(self, position: Floats, parameters: Damping) -> Floats:
        """Move operators until no force on any exceeds the threshold.

        All operators take their steps at once: each moves by delta times the force on it, which is
        VIRTUAL-PLACE on every node at the same time. (The text's figure moves along S - S_parent,
        away from the neighbour; that must be a slip of the sign.)

        Args:
            position: (n, d) nodes' coordinates, ms.
            parameters: damping and threshold.

        Returns:
            (o, d) where all operators are, ms; those that have a node are there.
        """
        from scipy.sparse import csr_array

        graph, movable = self.graph, self.graph.movable
        random, shape = np.random.default_rng(parameters.seed), (len(graph), position.shape[1])
        point: Floats = _PROVISIONAL * random.standard_normal(shape)
        fixed = graph.pinned()
        point[fixed >= 0] = position[fixed[fixed >= 0]]
        total, row, neighbour, rate = self._pull
        # An operator without any spring feels no force and stays.
        pull = csr_array(
            (rate * UNIT / total[row], (row, neighbour)), shape=(len(movable), len(graph))
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
        _, row, neighbour, rate = self._pull
        bounds = np.searchsorted(row, np.arange(len(self.graph.movable) + 1))
        return [(neighbour[a:b], rate[a:b]) for a, b in pairwise(bounds.tolist())]


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


@dataclass(frozen=True, eq=False)
class Placement:
    """Where operators are.

    Attributes:
        nodes: (o,) node each operator runs on.
        virtual: (o, d) where it would best be, ms; of one that has a node, that node's position.
    """

    nodes: Ints
    virtual: Floats


def needs(graph: OperatorGraph) -> Floats:
    """(o, 2) what operators take of their nodes: tuples/s they receive, and bytes of memory."""
    memory = np.array([operator.memory for operator in graph.operators], np.float64)
    return np.stack([graph.demand, memory], axis=1)


def relaxation(
    graph: OperatorGraph,
    mapper: Mapper,
    parameters: Damping | None = None,
    allowed: list[Bools | None] | None = None,
) -> Placement:
    """The full placement optimizer: all operators placed virtually, then mapped, in order.

    Args:
        graph: queries of any operators.
        mapper: the cost space and what its nodes have room for: (n, 2) tuples/s and bytes of
            memory. What operators take is taken off it.
        parameters: of the springs.
        allowed: of every movable operator, (n,) nodes that meet its requirements, or None.

    Raises:
        InfeasibleError: when no node may run an operator.
    """
    virtual = Springs(graph).relax(mapper.position, parameters or Damping())
    nodes, movable = graph.pinned(), graph.movable
    free: list[Bools | None] = [None] * len(movable)
    nodes[movable] = mapper.place_all(virtual[movable], needs(graph)[movable], allowed or free)
    return Placement(nodes, virtual)


def allowed(graph: Graph) -> list[Bools | None]:
    """Of every body, (n,) nodes that meet its requirements, or None."""
    of, met = graph.requirement[graph.bodies].tolist(), graph.requirements.met
    return [None if one < 0 else met[one] for one in of]


class SbonRelaxation(Strategy):
    """Run every operator on the nearest node with room to where springs bring it to rest.

    Heights and penalties of nodes are further dimensions of the cost space, in which operators wish
    for 0, as the text does with load. What fits nowhere runs where most capacity is left.
    """

    name = "sbon-relaxation"
    objective = "network-usage"
    ignores = ("link",)
    Parameters = RelaxationParameters
    parameters: RelaxationParameters

    def place(self, problem: Problem) -> Plan:
        """Place every operator whole, filters with what they read from.

        Raises:
            InfeasibleError: when no node may run an operator.
        """
        graph, mapper = graph_of(problem), Mapper.of(problem, self.parameters.k)
        operators = OperatorGraph.of_graph(graph)
        placement = relaxation(operators, mapper, self.parameters, allowed(graph))
        return self.whole_plan(
            problem,
            placement.nodes[graph.bodies],
            virtual_position=placement.virtual[graph.bodies],
            breaks=("link", "capacity") if mapper.overloaded else self.ignores,
            notes={"overloading_joins": mapper.overloaded},
        )
