"""Graphs of operators as objects, as the papers' algorithms walk them.

`nova_core.model.graph` has the same as columns. Here operators can also be made one by one, which
Nova's problems do not have: multicasts, memory, and needs other than what is received.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.graph import Graph
from nova_core.model.problem import Floats, Ints

KINDS = ("source", "filter", "project", "aggregate", "join", "multicast", "sink")


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        id: unique in its graph; what errors call it.
        kind: one of KINDS.
        inputs: operators whose output it receives, by their place in the graph; all come before
            it. None for a source.
        output_rate: tuples/s it emits to each operator that receives from it; of a sink not used.
        node: it must run on, or None for one that can be placed; sources and sinks have one.
        tuple_bytes: size of a tuple it emits.
        memory: bytes it takes on its node.
        query: number of the query it belongs to.
        expression: what it computes of its inputs. Operators of the same kind, expression and
            inputs emit the same tuples; one without an expression equals no other.
        need: what it takes of its node's capacity; None for what `OperatorGraph.demand` derives.
        logical: id of the query's operator it is one of; empty where there is none.
    """

    id: str
    kind: str
    inputs: tuple[int, ...] = ()
    output_rate: float = 0.0
    node: int | None = None
    tuple_bytes: float = 1.0
    memory: float = 0.0
    query: int = 0
    expression: str = ""
    need: float | None = None
    logical: str = ""


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """Operators of one query or many, producers before consumers.

    Raises:
        ProblemError: naming the operator, for one that receives from a later operator, a source
            with inputs, another but a sink without, a rate that is none, or a source or sink
            without node.
    """

    operators: Sequence[Operator]

    def __post_init__(self) -> None:
        ids: set[str] = set()
        for number, operator in enumerate(self.operators):
            what = f"operator {operator.id!r}"
            if operator.id in ids:
                raise ProblemError(f"{what} is there twice")
            ids.add(operator.id)
            if operator.kind not in KINDS:
                raise ProblemError(f"{what}: kind {operator.kind!r}: one of {', '.join(KINDS)}")
            if operator.kind == "source" and operator.inputs:
                raise ProblemError(f"{what}: a source must not have inputs")
            if not operator.inputs and operator.kind not in ("source", "sink"):
                raise ProblemError(f"{what}: a {operator.kind} needs inputs")
            if any(not 0 <= one < number for one in operator.inputs):
                raise ProblemError(f"{what}: inputs must be operators before it")
            if any(self.operators[one].kind == "sink" for one in operator.inputs):
                raise ProblemError(f"{what}: a sink emits nothing")
            if operator.kind in ("source", "sink") and operator.node is None:
                raise ProblemError(f"{what}: node is missing; a {operator.kind} cannot be placed")
            if not (np.isfinite(operator.output_rate) and operator.output_rate >= 0):
                raise ProblemError(f"{what}: output_rate {operator.output_rate}: must be >= 0")

    @classmethod
    def of_graph(cls, graph: Graph) -> OperatorGraph:
        """The operators of a graph, in its order."""
        return cls(
            [
                Operator(
                    one.id,
                    one.kind,
                    one.inputs,
                    one.rate,
                    None if one.node < 0 else one.node,
                    query=one.query,
                    expression="partial" if one.partial else "",
                    logical=one.logical,
                )
                for one in graph
            ]
        )

    def __len__(self) -> int:
        return len(self.operators)

    def __getitem__(self, operator: int) -> Operator:
        return self.operators[operator]

    @cached_property
    def movable(self) -> Ints:
        """Operators that can be placed, in order."""
        return np.array([n for n, one in enumerate(self.operators) if one.node is None], np.int64)

    @cached_property
    def consumers(self) -> list[list[int]]:
        """Operators that receive each one's output."""
        consumers: list[list[int]] = [[] for _ in self.operators]
        for number, operator in enumerate(self.operators):
            for producer in operator.inputs:
                consumers[producer].append(number)
        return consumers

    @cached_property
    def sources(self) -> list[int]:
        """Operators that are sources."""
        return [n for n, operator in enumerate(self.operators) if operator.kind == "source"]

    def upstream_sources(self, operator: int) -> list[int]:
        """Sources whose tuples reach an operator, in the order of inputs; for a source, itself."""
        reached, open_ = dict.fromkeys([operator]), [operator]
        while open_:
            below = [i for i in self[open_.pop()].inputs if i not in reached]
            reached.update(dict.fromkeys(below))
            open_ += below
        return [n for n in reached if self[n].kind == "source"]

    @cached_property
    def edges(self) -> tuple[Ints, Ints, Floats]:
        """Producers, consumers and rates (tuples/s) of all edges, each (e,)."""
        pairs = [(p, n) for n, one in enumerate(self.operators) for p in one.inputs]
        ends = np.array(pairs, np.int64).reshape(-1, 2)
        rates = np.array([self.operators[p].output_rate for p, _ in pairs], np.float64)
        return ends[:, 0], ends[:, 1], rates

    @cached_property
    def demand(self) -> Floats:
        """(o,) what each operator takes of its node's capacity.

        By default the tuples/s it receives, as C_r of the paper (section 2.2), and 0 for sources
        and sinks; `Operator.need` overrides it.
        """
        _, consumers, rates = self.edges
        demand = np.bincount(consumers, rates, len(self)).astype(np.float64)
        for number, one in enumerate(self.operators):
            if one.need is not None or one.kind in ("source", "sink"):
                demand[number] = one.need or 0.0
        return demand

    def pinned(self) -> Ints:
        """(o,) nodes of operators that have one, -1 of the others."""
        return np.array([-1 if one.node is None else one.node for one in self.operators], np.int64)

    def network_usage(self, nodes: Ints, latency: Floats) -> float:
        """Tuples in flight: the sum over edges of rate times latency (SBON, section 2).

        Args:
            nodes: (o,) node each operator runs on.
            latency: (n, n) ms between nodes.

        Returns:
            tuples/s * ms.
        """
        producers, consumers, rates = self.edges
        return float((rates * latency[nodes[producers], nodes[consumers]]).sum())

    def arrival(self, nodes: Ints, latency: Floats) -> Floats:
        """(o,) latency from the farthest source to each operator along the graph, ms.

        Args:
            nodes: (o,) node each operator runs on.
            latency: (n, n) ms between nodes.
        """
        arrival = np.zeros(len(self))
        for number, operator in enumerate(self.operators):
            for producer in operator.inputs:
                way = arrival[producer] + latency[nodes[producer], nodes[number]]
                arrival[number] = max(arrival[number], way)
        return arrival
