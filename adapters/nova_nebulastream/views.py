"""One view of the topology per join instance, in which only the planned placement is possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_engines import nodes as hosts
from nova_nebulastream.partitions import Share, share

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem


@dataclass(frozen=True)
class Input:
    """One input of an instance.

    Attributes:
        side: ``left`` or ``right``.
        source: id of the source.
        rate: tuples/s the source emits.
        share: which of its tuples the instance receives.
        route: nodes from the source's to the instance's; one where they are the same.
    """

    side: str
    source: str
    rate: float
    share: Share
    route: tuple[str, ...]

    @property
    def node(self) -> str:
        """Where the source is."""
        return self.route[0]


@dataclass(frozen=True)
class View:
    """The part of the topology that NebulaStream sees when an instance is submitted.

    Attributes:
        instance: its name, such as ``climate/t1*w1#0``.
        left: its left input.
        right: its right input.
        result: nodes from the instance's to the sink's; one where they are the same.
        number: row of the plan's table of instances.
    """

    instance: str
    left: Input
    right: Input
    result: tuple[str, ...]
    number: int

    @property
    def node(self) -> str:
        """Where the join runs."""
        return self.result[0]

    @property
    def sink(self) -> str:
        """Where results go."""
        return self.result[-1]

    @property
    def inputs(self) -> tuple[Input, Input]:
        """Left, right."""
        return self.left, self.right

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes in it: the sink's first, then against the direction of the data."""
        back = (*self.result[::-1], *self.left.route[::-1], *self.right.route[::-1])
        return tuple(dict.fromkeys(back))

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Pairs of neighbours, in the direction of the data."""
        routes = (self.left.route, self.right.route, self.result)
        pairs = (pair for r in routes for pair in pairwise(r))
        return tuple(dict.fromkeys(pairs))

    @property
    def room(self) -> dict[str, int]:
        """Operators that run on nodes of cut inputs, in front of the network, other than sources.

        Of each input on such a node, these are its watermark assigner and, where it is cut, the
        selection of its partitions.
        """
        cut = {one.node for one in self.inputs if not one.share.whole} - {self.node}
        return {
            node: sum(2 - one.share.whole for one in self.inputs if one.node == node)
            for node in sorted(cut)
        }

    @property
    def one_producer(self) -> bool:
        """Whether both inputs come from one node, and are joined on another."""
        return self.left.node == self.right.node != self.node

    def check(self) -> None:
        """Refuse an instance that NebulaStream has no topology for.

        Raises:
            NovaError: when data would pass a node a second time.
        """
        order: TopologicalSorter[str] = TopologicalSorter()
        for source, target in self.links:
            order.add(target, source)
        try:
            order.prepare()
        except CycleError as error:
            around = " -> ".join(reversed(error.args[1]))
            raise NovaError(
                f"plan: {self.instance}: data would go around ({around}), and NebulaStream rejects "
                "topologies with a cycle; place this join where its data does not come back to a "
                f"node it has left, e.g. on {self.sink}"
            ) from None


def views(plan: Plan, problem: Problem) -> list[View]:
    """The views of a plan's instances, in its order.

    Raises:
        NovaError: for a plan of another problem or of whole queries, or one with an instance that
            NebulaStream has no topology for.
    """
    plan.require_problem(problem)
    problem.require_pairs("a translation for NebulaStream")
    plan_views = list(_views(plan, problem))
    if not plan_views:
        raise NovaError("plan: nothing runs in it")
    for view in plan_views:
        view.check()
    return plan_views


def _views(plan: Plan, problem: Problem) -> Iterator[View]:
    i, m, s = plan.instances, problem.matrix, problem.sources
    names = [str(name) for name in problem.nodes.ids]

    def route(k: int, leg: int, begin: int, end: int) -> tuple[str, ...]:
        nodes = [begin, end]
        if plan.routes is not None:
            r = plan.routes
            nodes = r.node[r.offset[3 * k + leg] : r.offset[3 * k + leg + 1]].tolist()
        # A node that a route repeats counts once.
        distinct = [node for at, node in enumerate(nodes) if at == 0 or node != nodes[at - 1]]
        return tuple(names[node] for node in distinct)

    for k in range(len(i)):
        pair, node = int(i.pair[k]), int(i.node[k])
        inputs = []
        bounds = ((i.left_begin, i.left_end), (i.right_begin, i.right_end))
        for leg, (begin, end) in enumerate(bounds):
            source = int((m.left, m.right)[leg][pair])
            inputs.append(
                Input(
                    ("left", "right")[leg],
                    str(s.ids[source]),
                    float(s.rate[source]),
                    share(plan.partitions.rates(pair, leg), int(begin[k]), int(end[k])),
                    route(k, leg, int(s.node[source]), node),
                )
            )
        name = f"{problem.pair_name(pair)}#{int(plan.replica_number[k])}"
        left, right = inputs
        yield View(name, left, right, route(k, 2, node, int(problem.sink_node[pair])), k)


def addresses(problem: Problem, nodes: tuple[str, ...]) -> dict[str, str]:
    """Network addresses of nodes: what the problem gives as ``host``, or their names.

    Raises:
        NovaError: for one that cannot be part of ``address:port``, or that two nodes share.
    """
    by_node: dict[str, str] = {}
    taken: dict[str, str] = {}
    for node, address in hosts.addresses(problem, nodes).items():
        if ":" in address:
            raise NovaError(
                f"node {node!r}: address {address!r}: NebulaStream takes names and IPv4 addresses"
            )
        if address in taken:
            raise NovaError(
                f"node {node!r}: address {address!r}: is that of {taken[address]!r}; every worker "
                "needs one of its own"
            )
        taken[address] = node
        by_node[node] = address
    return by_node


def identifier(text: str) -> str:
    """A name in letters, digits and ``_``, for queries and files."""
    return re.sub(r"[^A-Za-z0-9]", "_", text)
