"""SBON's RELAXATION: springs in the cost space, then the nearest node with room (section 3.1).

P. Pietzuch et al., *Network-Aware Operator Placement for Stream-Processing Systems*, ICDE 2006.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.operator_graph import OperatorGraph
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.strategies.base import parameter_dict
from nova_core.strategies.sbon_mapping import NEAREST, Mapper
from nova_core.strategies.sbon_springs import Damping, Springs


@dataclass(frozen=True)
class RelaxationParameters(Damping):
    """Parameters of RELAXATION; the defaults are the text's.

    Attributes:
        k: nodes near the virtual position that are asked whether they have room.
    """

    k: int = NEAREST

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise ProblemError(f"relaxation: k is {self.k}; expected 1 or more")


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
    asked: list[Bools | None] = [None] * len(movable) if allowed is None else allowed
    nodes[movable] = mapper.place_all(virtual[movable], needs(graph)[movable], asked)
    return Placement(nodes, virtual)


class SbonRelaxation:
    """Run every join on the nearest node with room to where springs to its ends come to rest.

    Heights and penalties of nodes are further dimensions of the cost space, in which joins wish for
    0, as the text does with load. A join that fits nowhere runs where most capacity is left.
    """

    name: ClassVar[str] = "sbon-relaxation"
    Parameters: ClassVar[type[RelaxationParameters]] = RelaxationParameters

    def __init__(self, parameters: RelaxationParameters | None = None) -> None:
        self.parameters = parameters or RelaxationParameters()

    def place(self, problem: Problem) -> Plan:
        """Place every join whole.

        Raises:
            InfeasibleError: when no node may run a join.
        """
        nodes = problem.nodes
        extra = [column for column in (nodes.height, nodes.penalty) if column is not None]
        mapper = Mapper(
            nodes.position,
            axes=np.stack(extra, axis=1) if extra else None,
            hosts=nodes.worker,
            room=np.stack([nodes.capacity, np.full(len(nodes), np.inf)], axis=1),
            k=self.parameters.k,
        )
        graph = OperatorGraph.of(problem)
        found = relaxation(graph, mapper, self.parameters, allowed_of(problem))
        return Plan(
            problem=problem,
            strategy=self.name,
            objective="network-usage",
            partitions=Partitions.whole(problem),
            instances=Instances.whole(found.nodes[graph.movable]),
            parameters=parameter_dict(self.parameters),
            virtual_position=found.virtual[graph.movable],
            breaks=("link", "capacity") if mapper.overloaded else ("link",),
            notes={"overloading_joins": mapper.overloaded},
        )


def allowed_of(problem: Problem) -> list[Bools | None]:
    """Of every pair, (n,) nodes that meet its join's requirement; None where it has none."""
    asked = problem.requirements
    return [None if one < 0 else asked.met[one] for one in asked.of_pairs(problem).tolist()]


__all__ = [
    "Placement",
    "RelaxationParameters",
    "SbonRelaxation",
    "allowed_of",
    "needs",
    "relaxation",
]
