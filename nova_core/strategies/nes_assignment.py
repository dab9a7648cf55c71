"""Operator assignment, bottom-up and top-down (NebulaStream, query placement).

Both walk an expanded query and the sub-graph of the topology that path selection left. An operator
goes to a node with room for it, or the placement fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nova_core.errors import InfeasibleError
from nova_core.strategies.nes_operators import Query
from nova_core.strategies.nes_topology import Hierarchy


@dataclass(frozen=True, eq=False)
class Resources:
    """What nodes offer; assigning takes from it.

    Attributes:
        room: resources left on each node.
        may_host: whether a node may run an operator that is not pinned, given operator and node.
    """

    room: list[float]
    may_host: Callable[[int, int], bool] = lambda operator, node: True


class _Assignment:
    """An assignment under way."""

    def __init__(self, topology: Hierarchy, query: Query, resources: Resources) -> None:
        self.topology, self.query, self.resources = topology, query, resources
        self.node: dict[int, int] = {}

    def assign(self, operator: int, candidates: Iterable[int]) -> None:
        """Give an operator to the first candidate with room.

        Raises:
            InfeasibleError: when there is none.
        """
        wanted, most = self.query[operator], 0.0
        for node in candidates:
            if wanted.pinned is None and not self.resources.may_host(operator, node):
                continue
            if self.resources.room[node] >= wanted.need:
                self.resources.room[node] -= wanted.need
                self.node[operator] = node
                return
            most = max(most, self.resources.room[node])
        place = "the node it is pinned to" if wanted.pinned is not None else "its way to the sink"
        missing = wanted.need - most
        raise InfeasibleError(
            f"query placement fails: {wanted.name} takes {wanted.need:g}, but on {place} there is "
            f"no more than {most:g} left on a node; {missing:g} more are needed",
            missing,
        )

    def pinned(self, operator: int) -> list[int] | None:
        node = self.query[operator].pinned
        return None if node is None else [node]

    def result(self) -> list[int]:
        return [self.node[operator] for operator in range(len(self.query))]


def bottom_up(topology: Hierarchy, query: Query, resources: Resources) -> list[int]:
    """Nodes of all operators, each as near to its inputs as possible.

    A source is placed where it is pinned, then all that follows it: an operator on the node of its
    input if there is room, else on the next parent of that node with room. One with several inputs
    waits until all of them are placed; meanwhile the next source it waits for is. It then goes to
    the first node with room that can be reached from the nodes of all its inputs.

    Raises:
        InfeasibleError: when an operator finds no room.
    """
    state = _Assignment(topology, query, resources)
    for source in query.sources:
        open_ = [source]
        while open_:
            operator = open_.pop()
            if operator in state.node:
                continue
            pinned = state.pinned(operator)
            waiting = [i for i in query[operator].inputs if i not in state.node]
            if waiting and pinned is None:
                # The way up from that source comes back here.
                open_.append(_first_unplaced(waiting[0], state, lambda n: query[n].inputs))
                continue
            state.assign(operator, pinned or _above(state, operator))
            open_ += reversed(query.consumers[operator])
    return state.result()


def top_down(topology: Hierarchy, query: Query, resources: Resources) -> list[int]:
    """Nodes of all operators, each as near to what consumes its output as possible.

    The rules of `bottom_up`, mirrored: it begins at the sinks; an operator goes to the node of its
    consumer if there is room, else to the next child of that node with room, as long as all sources
    it needs can reach that. One with several consumers waits for all of them, and goes to the first
    node with room from which they all can be reached.

    Raises:
        InfeasibleError: when an operator finds no room.
    """
    state = _Assignment(topology, query, resources)
    for sink in query.sinks:
        open_ = [sink]
        while open_:
            operator = open_.pop()
            if operator in state.node:
                continue
            pinned = state.pinned(operator)
            waiting = [c for c in query.consumers[operator] if c not in state.node]
            if waiting and pinned is None:
                open_.append(_first_unplaced(waiting[0], state, query.consumers.__getitem__))
                continue
            state.assign(operator, pinned or _below(state, operator))
            open_ += reversed(query[operator].inputs)
    return state.result()


def _first_unplaced(
    operator: int, state: _Assignment, onwards: Callable[[int], Iterable[int]]
) -> int:
    """The end of the query an operator waits for."""
    while True:
        further = [n for n in onwards(operator) if n not in state.node]
        if not further:
            return operator
        operator = further[0]


def _above(state: _Assignment, operator: int) -> Iterable[int]:
    """The first node all inputs of an operator can reach, then everything above it."""
    inputs = [state.node[i] for i in state.query[operator].inputs]
    return state.topology.hops(state.topology.common(inputs)[0])


def _below(state: _Assignment, operator: int) -> list[int]:
    """Nodes that an operator's sources can reach and that lead to its consumers.

    Those with the fewest hops to the consumers come first.
    """
    topology = state.topology
    consumers = [state.node[c] for c in state.query.consumers[operator]]

    def distance(node: int) -> tuple[int, int]:
        hops = [topology.hops(node)[above] for above in consumers]
        return max(hops), sum(hops)

    reached = topology.common(state.query.upstream_nodes(operator))
    leading = [n for n in reached if all(above in topology.hops(n) for above in consumers)]
    return sorted(leading, key=distance)


__all__ = ["Resources", "bottom_up", "top_down"]
