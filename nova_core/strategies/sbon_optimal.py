"""The placement with the least network usage of all (SBON's OPTIMAL, section 4.1), exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model.operator_graph import OperatorGraph
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.placement.objectives import leg_weights

# Operators on cycles of a graph are tried on every node, this many combinations at most.
MOST_TRIED = 100_000
# Distances computed at a time.
_CHUNK = 500_000


def optimal(graph: OperatorGraph, latency: Floats, hosts: Bools | None = None) -> Ints:
    """Nodes of all operators with the least network usage; what nodes have room for is ignored.

    The text searches all placements exhaustively. Links between operators that can be placed
    mostly form trees, over which dynamic programming finds the same: an operator with one such
    neighbour left is folded into a table of what it costs at best for every node of that neighbour.
    Of operators on cycles, one is tried on every node, which cuts them open.

    Takes O(n) for each link of a pinned operator and O(n^2) for each between two others, times n
    for every cycle that is cut.

    Args:
        graph: queries of any operators.
        latency: (n, n) ms between nodes.
        hosts: (n,) nodes that may run operators; None for all.

    Returns:
        (o,) nodes; of equally good placements one.

    Raises:
        InfeasibleError: when no node may run an operator.
        ProblemError: when there are too many cycles to cut.
    """
    host = np.arange(len(latency)) if hosts is None else np.flatnonzero(hosts)
    nodes = graph.pinned()
    if len(graph.movable) == 0:
        return nodes
    if len(host) == 0:
        raise InfeasibleError("no node may run operators; make one a worker", 1.0)
    own, links = _costs(graph, latency, host)
    apart = latency[np.ix_(host, host)]
    for group in _groups(graph.movable.tolist(), links):
        parts = {one: own[one] for one in group}
        found = _solve(parts, {one: links[one] for one in group}, apart, MOST_TRIED)[1]
        for one, choice in found.items():
            nodes[one] = host[choice]
    return nodes


# Of every operator that can be placed: what it costs on each host by itself, and its links (rates
# of both directions, tuples/s) to others of them.
_Own = dict[int, Floats]
_Links = dict[int, dict[int, tuple[float, float]]]


def _costs(graph: OperatorGraph, latency: Floats, host: Ints) -> tuple[_Own, _Links]:
    own: _Own = {one: np.zeros(len(host)) for one in graph.movable.tolist()}
    links: _Links = {one: {} for one in own}
    fixed = graph.pinned()
    for producer, consumer, rate in zip(*(part.tolist() for part in graph.edges), strict=True):
        if producer in own and consumer in own:
            there, back = links[producer].get(consumer, (0.0, 0.0))
            links[producer][consumer] = (there + rate, back)
            links[consumer][producer] = (back, there + rate)
        elif producer in own:
            own[producer] += rate * latency[host, fixed[consumer]]
        elif consumer in own:
            own[consumer] += rate * latency[fixed[producer], host]
    return own, links


def _groups(operators: list[int], links: _Links) -> Iterator[list[int]]:
    """Operators that are linked with each other; one group does not concern another."""
    seen: set[int] = set()
    for first in operators:
        if first in seen:
            continue
        group, waiting = [], [first]
        seen.add(first)
        while waiting:
            one = waiting.pop()
            group.append(one)
            for other in links[one]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        yield group


def _solve(own: _Own, links: _Links, apart: Floats, budget: int) -> tuple[float, dict[int, int]]:
    """Least cost of linked operators, and each one's host (its number among hosts)."""
    own, links = dict(own), {one: dict(others) for one, others in links.items()}
    folded: list[tuple[int, int, Ints]] = []
    waiting = [one for one in own if len(links[one]) == 1]
    while waiting:
        one = waiting.pop()
        if len(links[one]) != 1:
            continue
        [(other, (out, back))] = links.pop(one).items()
        # [host of the neighbour, host of the operator]
        table = out * apart.T + back * apart + own.pop(one)[None, :]
        best = table.argmin(axis=1)
        own[other] = own[other] + table[np.arange(len(table)), best]
        del links[other][one]
        folded.append((one, other, best))
        if len(links[other]) == 1:
            waiting.append(other)
    if all(not others for others in links.values()):
        choice = {one: int(cost.argmin()) for one, cost in own.items()}
        cost = sum(float(own[one][at]) for one, at in choice.items())
    else:
        cost, choice = _cut_open(own, links, apart, budget)
    for one, other, best in reversed(folded):
        choice[one] = int(best[choice[other]])
    return cost, choice


def _cut_open(own: _Own, links: _Links, apart: Floats, budget: int) -> tuple[float, dict[int, int]]:
    """The same for operators on cycles: the one with most links is tried on every host."""
    count = len(apart)
    if count > budget:
        raise ProblemError(
            f"optimal: operators are linked in too many cycles to try them on {count} nodes; "
            "take a smaller topology or another strategy"
        )
    one = max(links, key=lambda each: (len(links[each]), -each))
    rest = {o: {p: rates for p, rates in others.items() if p != one} for o, others in links.items()}
    del rest[one]
    groups = list(_groups(list(rest), rest))
    least, best = np.inf, dict[int, int]()
    for at in range(count):
        costs = {other: cost for other, cost in own.items() if other != one}
        for other, (out, back) in links[one].items():
            costs[other] = costs[other] + out * apart[at, :] + back * apart[:, at]
        cost, choice = float(own[one][at]), {one: at}
        for group in groups:
            part, chosen = _solve(
                {o: costs[o] for o in group}, {o: rest[o] for o in group}, apart, budget // count
            )
            cost += part
            choice |= chosen
        if cost < least:
            least, best = cost, choice
    return least, best


@dataclass(frozen=True)
class OptimalParameters:
    """Nothing to choose."""


class SbonOptimal:
    """Run every join on the worker with the least network usage, however much runs there already.

    Measured latencies count where a problem has them for all pairs, and coordinates otherwise: it
    is what complete knowledge of the network is worth.
    """

    name: ClassVar[str] = "sbon-optimal"
    Parameters: ClassVar[type[OptimalParameters]] = OptimalParameters

    def __init__(self, parameters: OptimalParameters | None = None) -> None:
        self.parameters = parameters or OptimalParameters()

    def place(self, problem: Problem) -> Plan:
        """Place every join whole; ignores capacity.

        Takes O(n) for each join with measured latencies, and little more than O(log n) without.

        Raises:
            InfeasibleError: when no node may run a join.
        """
        return Plan(
            problem=problem,
            strategy=self.name,
            objective="network-usage",
            partitions=Partitions.whole(problem),
            instances=Instances.whole(_best_hosts(problem)),
            breaks=("capacity", "link"),
        )


def _best_hosts(problem: Problem) -> Ints:
    """(p,) the worker that meets each pair's requirement and costs least."""
    host = np.flatnonzero(problem.nodes.worker)
    weights = leg_weights(problem, "network-usage")
    ends = np.stack([problem.left_node, problem.right_node, problem.sink_node], axis=1)
    requirement = problem.requirements.of_pairs(problem)
    found = np.empty(len(ends), np.int64)
    for asked in np.unique(requirement).tolist():
        rows = np.flatnonzero(requirement == asked)
        fit = host if asked < 0 else host[problem.requirements.met[asked, host]]
        if len(fit) == 0:
            raise InfeasibleError(
                f"sbon-optimal: no worker may run {problem.pair_name(int(rows[0]))}",
                float(problem.required_capacity[rows].sum()),
            )
        if problem.latency is None:
            found[rows] = _cheapest(problem, fit, ends[rows], weights[rows])
            continue
        step = max(1, _CHUNK // len(fit))
        for some in np.split(rows, range(step, len(rows), step)):
            cost = np.zeros((len(some), len(fit)))
            for leg in range(3):
                cost += weights[some, leg, None] * problem.latency[np.ix_(ends[some, leg], fit)]
            found[some] = fit[cost.argmin(axis=1)]
    return found


def _cheapest(problem: Problem, fit: Ints, ends: Ints, weights: Floats) -> Ints:
    """(p,) the node of ``fit`` with the least sum of weighted distances, without trying them all.

    Costs may differ from those of trying all in their last digits.
    """
    from nova_core.placement.kernels.capacity_tree import build
    from nova_core.placement.kernels.hosts import cheapest

    position, height = problem.latency_position, problem.nodes.height
    count = len(position)
    rise = None if height is None else np.stack([height, height], axis=1)
    tree = build(position, np.ones(count), fit, rise=rise)
    slot = np.full(count, -1)
    slot[tree.node] = np.arange(len(fit))
    tall = np.zeros(count) if height is None else height
    return np.asarray(cheapest(tree, position, tall, slot, ends, weights))


__all__ = ["MOST_TRIED", "OptimalParameters", "SbonOptimal", "optimal"]
