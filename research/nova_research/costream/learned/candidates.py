"""Candidate placements of whole operators, by Costream's rules (section V) and near Nova's points.

1. Operators may share a host (co-location): a host of an input is drawn more often than others.
2. Data goes to hosts as strong or stronger: nodes are in three bins by capability that overlap.
3. Data that has left a host does not return to it.

The problem pins sources and sinks, so the second rule does not hold for the way to the sink. Hosts
near an operator's virtual position are drawn more often than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import InfeasibleError
from nova_core.model.graph import Graph
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Problem
from nova_research.costream.learned.graph import operators_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

BINS = 3
# How far bins reach into each other, as a share of all nodes on either side.
OVERLAP = 0.05
# Hosts of one search, unless the pinned ones, or one for each requirement, are more.
MOST_HOSTS = 63
NEAR = 6
# Weights in a draw, beside 1 of any other host: added for an input's host, multiplied when near.
_INPUTS, _NEARBY = 12.0, 4.0
_TRIES = 4


@dataclass(frozen=True, eq=False)
class Candidates:
    """Placements of some operators, all different.

    Attributes:
        problem: what is placed.
        graph: its operators, none of which is cut.
        operators: (o,) operators placed here, with their sources and sinks, in order.
        hosts: (m,) nodes of the placements.
        place: (b, o) row of `hosts` each operator runs on.
        rules: those of ``bins`` and ``return`` that all placements keep.
    """

    problem: Problem
    graph: Graph
    operators: Ints
    hosts: Ints
    place: Ints
    rules: tuple[str, ...] = ("bins", "return")

    def __len__(self) -> int:
        return len(self.place)

    def nodes(self, row: int) -> Ints:
        """(o,) node of each operator in one placement."""
        nodes: Ints = self.hosts[self.place[row]]
        return nodes


def plan_of_nodes(problem: Problem, graph: Graph, nodes: Ints, strategy: str, **facts: Any) -> Plan:
    """The plan that runs every operator uncut on its node.

    Args:
        problem: what is placed.
        graph: `operators_of` the problem.
        nodes: (o,) of all operators of the graph.
        strategy: name of the strategy that chose them.
        facts: further attributes of `Plan`.
    """
    return Plan.whole(problem, nodes[graph.bodies], strategy, **facts)


def capability(problem: Problem) -> Floats:
    """(n,) rank of each node among all by CPU and RAM, or capacity, 0 (weakest) to 1."""
    nodes = problem.nodes
    columns = [one for one in (nodes.cpu, nodes.memory) if one is not None]
    if not columns:
        columns = [nodes.capacity]
    ranks = [_rank(np.nan_to_num(one, nan=0.0)) for one in columns]
    return _rank(np.mean(ranks, axis=0))


def _rank(values: Floats) -> Floats:
    """(n,) mean rank among the sorted values, 0 to 1; equal values share a rank."""
    order = np.sort(values)
    low, high = (np.searchsorted(order, values, side=side) for side in ("left", "right"))
    return np.asarray((low + high - 1) / 2 / max(len(values) - 1, 1))


@dataclass(frozen=True, eq=False)
class Enumerator:
    """Draws placements of all operators of a problem, or of some of its queries.

    Attributes:
        problem: what is placed.
    """

    problem: Problem

    @cached_property
    def graph(self) -> Graph:
        """The problem's operators, not rewritten."""
        return operators_of(self.problem)

    @cached_property
    def categories(self) -> tuple[Ints, Ints]:
        """((n,), (n,)) lowest and highest bin a node counts as, from 0."""
        rank = capability(self.problem)
        low, high = (
            np.clip(np.floor((rank + shift) * BINS), 0, BINS - 1).astype(np.int64)
            for shift in (-OVERLAP, OVERLAP)
        )
        return low, high

    @cached_property
    def near(self) -> Ints:
        """(o, r) workers nearest to each operator's virtual position."""
        from scipy.spatial import KDTree

        from nova_core.model.objectives import link_weights
        from nova_core.placement.queries.virtual import virtual_positions

        position, workers = self.problem.nodes.position, self._workers
        weight = link_weights(self.graph, "latency")
        point = virtual_positions(self.graph, position, weight).point
        many = min(NEAR, len(workers))
        _, row = KDTree(position[workers]).query(point, k=range(1, many + 1))
        return np.asarray(workers[row], np.int64)

    @cached_property
    def _workers(self) -> Ints:
        workers = np.flatnonzero(self.problem.nodes.worker)
        if len(workers) == 0:
            need = float(self.graph.required.sum())
            raise InfeasibleError(
                f"costream: no node of {self.problem.name} may host operators; make one a worker",
                need,
            )
        return workers

    def _requirements(self) -> Ints:
        """(o,) requirement of each operator, -1 for none."""
        return self.graph.requirement

    def draw(self, operators: Ints, count: int, random: np.random.Generator) -> Candidates:
        """Up to `count` different placements of some operators.

        Where no placement keeps all rules, ``bins`` is dropped first, then ``return``.

        Args:
            operators: (o,) operators to place, with all upstream operators and sinks, in order.
            count: at least 1.
            random: random generator.

        Raises:
            InfeasibleError: when no node may run one of the operators.
        """
        hosts = self._hosts(operators, random)
        for rules in (("bins", "return"), ("return",), ()):
            placements = np.empty((0, len(operators)), np.int64)
            for _ in range(_TRIES):
                more = self._some(operators, hosts, max(count, 32), rules, random)
                placements = np.concatenate([placements, more])
                _, first = np.unique(placements, axis=0, return_index=True)
                placements = placements[np.sort(first)]
                if len(placements) >= count:
                    break
            if len(placements):
                return Candidates(
                    self.problem, self.graph, operators, hosts, placements[:count], rules
                )
        raise AssertionError("without rules an operator runs on any host that may")

    def _hosts(self, operators: Ints, random: np.random.Generator) -> Ints:
        """Nodes of one search: pinned ones, those near virtual positions, and random others."""
        pinned = self.graph.node[operators]
        ends = np.unique(pinned[pinned >= 0])
        bodies = np.intersect1d(operators, self.graph.bodies)
        nearby = self.near[bodies].ravel()
        requirement = self._requirements()[bodies]
        able = [self._may(one)[0] for one in np.unique(requirement).tolist()]
        others = random.permutation(self._workers)[: 4 * MOST_HOSTS]
        preferred = np.concatenate([np.array(able, np.int64), nearby, others])
        _, first = np.unique(preferred, return_index=True)
        preferred = preferred[np.sort(first)]
        room = max(MOST_HOSTS - len(ends), len(able), 8)
        hosts: Ints = np.unique(np.concatenate([ends, preferred[:room]]))
        return hosts

    def _may(self, requirement: int) -> Ints:
        """Workers that meet a requirement; all of them for -1."""
        if requirement < 0:
            return self._workers
        required = self.graph.requirements
        met: Ints = self._workers[required.met[requirement][self._workers]]
        if len(met) == 0:
            text, need = required.text(requirement), float(self.graph.required.max())
            raise InfeasibleError(f"costream: no node {text} may host operators", need)
        return met

    def _some(
        self,
        operators: Ints,
        hosts: Ints,
        count: int,
        rules: Sequence[str],
        random: np.random.Generator,
    ) -> Ints:
        """(b, o) rows of hosts: the drawn placements that keep the rules."""
        graph, many = self.graph, len(hosts)
        row_of = {int(one): row for row, one in enumerate(operators.tolist())}
        slot = {int(node): row for row, node in enumerate(hosts.tolist())}
        low, high = (one[hosts] for one in self.categories)
        requirements = self._requirements()
        root = graph.root.tolist()
        wide = (many + 63) // 64
        # One bit per host, to note the hosts that data has passed.
        bit = np.zeros((many, wide), np.uint64)
        bit[np.arange(many), np.arange(many) // 64] = np.uint64(1) << (
            np.arange(many, dtype=np.uint64) % np.uint64(64)
        )
        place = np.zeros((count, len(operators)), np.int64)
        category = np.zeros((count, len(operators)), np.int64)
        visited = np.zeros((len(operators), count, wide), np.uint64)
        # Passed hosts that run more than sources.
        worked = visited.copy()
        valid = np.ones(count, bool)
        for row, number in enumerate(operators.tolist()):
            one = graph[number]
            inputs = [row_of[i] for i in one.inputs]
            fixed = one.node if root[number] == number and one.node >= 0 else None
            if root[number] != number:
                place[:, row] = place[:, row_of[root[number]]]
            elif fixed is not None:
                place[:, row] = slot[fixed]
                if one.kind == "sink" and "return" in rules:
                    for i in inputs:
                        returns = (worked[i] & bit[slot[fixed]]).any(axis=1)
                        valid &= ~returns | (place[:, i] == slot[fixed])
            else:
                allowed = np.zeros((count, many), bool)
                allowed[:, np.isin(hosts, self._may(int(requirements[number])))] = True
                weight = np.ones((count, many))
                weight[:, np.isin(hosts, self.near[number])] *= _NEARBY
                for i in inputs:
                    rows = np.arange(count)
                    weight[rows, place[:, i]] += _INPUTS
                    if "return" in rules:
                        passed = ((visited[i][:, None, :] & bit) != 0).any(axis=2)
                        passed[rows, place[:, i]] = False
                        allowed &= ~passed
                    if "bins" in rules:
                        allowed &= high >= category[:, i][:, None]
                valid &= allowed.any(axis=1)
                noise = random.gumbel(size=(count, many))
                place[:, row] = np.where(allowed, np.log(weight) + noise, -np.inf).argmax(axis=1)
            here = place[:, row]
            category[:, row] = low[here]
            for i in inputs:
                np.maximum(category[:, row], category[:, i], out=category[:, row])
                visited[row] |= visited[i]
                worked[row] |= worked[i]
            visited[row] |= bit[here]
            if one.kind != "source":
                worked[row] |= bit[here]
        placements: Ints = place[valid]
        return placements
