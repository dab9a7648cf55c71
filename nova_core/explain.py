"""Why a plan puts a join where it does: the ideal spot, the candidates, and what was full."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.key_ranges import KeyRanges
from nova_core.model.objectives import leg_cost, leg_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.model.verify import TOLERANCE

NEAREST = 12
OCCUPANTS = 3


@dataclass(frozen=True)
class Occupant:
    """A pair that takes room on a node: its name and the tuples/s it adds there."""

    pair: str
    rate: float


@dataclass(frozen=True)
class Candidate:
    """A node a pair could run on, with all pairs placed.

    Attributes:
        rank: its place among all workers by cost, from 1; None for a host that is no worker.
        node: its id.
        cost: what the whole pair would cost there, by the plan's objective.
        capacity: C_a, tuples/s.
        free: free capacity, tuples/s; negative when overloaded.
        verdict: why it was (not) chosen, for people.
        occupants: the greatest other pairs that run there.
        more_occupants: how many more run there.
    """

    rank: int | None
    node: str
    cost: float
    capacity: float
    free: float
    verdict: str
    occupants: tuple[Occupant, ...]
    more_occupants: int


@dataclass(frozen=True)
class Host:
    """Where a pair, or a part of it, runs.

    Attributes:
        node: the node's id.
        pieces: paper replicas of the pair merged there.
        rate: tuples/s it receives there for the pair.
        cost: what the whole pair would cost there, by the plan's objective.
        distance: from the virtual position, ms.
        latency: slowest path source to node to sink, ms, relays included.
    """

    node: str
    pieces: int
    rate: float
    cost: float
    distance: float
    latency: float


@dataclass(frozen=True)
class PairExplanation:
    """Why a pair runs where it does.

    Attributes:
        pair: its name.
        left: left source: id, node and rate (tuples/s).
        right: right source.
        sink: node that consumes the result.
        required_capacity: C_r, tuples/s.
        objective: what costs are measured by.
        virtual_position: the optimum in the cost space, ms per axis.
        ideal_cost: cost there; no node can cost less.
        cost: actual cost, sending directly: of ``network-usage`` the sum over its legs, of the
            others the mean over its replicas.
        partitions: into how many the left and the right input are cut.
        received: tuples/s its hosts receive for it together; above C_r when it is cut.
        hosts: where it runs.
        candidates: the cheapest workers in order, and every host.
        workers: how many workers there are.
        reasons: sentences for people.
    """

    pair: str
    left: dict[str, Any]
    right: dict[str, Any]
    sink: str
    required_capacity: float
    objective: str
    virtual_position: tuple[float, ...]
    ideal_cost: float
    cost: float
    partitions: tuple[int, int]
    received: float
    hosts: tuple[Host, ...]
    candidates: tuple[Candidate, ...]
    workers: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    """A pair that would cost less on a node than where it runs.

    Attributes:
        pair: its name.
        gain: how much less, by the plan's objective.
        needs: C_r, tuples/s.
        runs_on: where it runs instead.
    """

    pair: str
    gain: float
    needs: float
    runs_on: tuple[str, ...]


@dataclass(frozen=True)
class NodeExplanation:
    """What a node does, and which pairs would cost less on it.

    Attributes:
        node: its id.
        worker: whether it may host joins.
        position: in the cost space, ms per axis.
        capacity: C_a, tuples/s.
        load: tuples/s it receives, relayed ones included.
        relayed: tuples/s it only forwards.
        produces: sources on it.
        sink_of: joins or queries whose results it consumes.
        hosted: pairs or operators on it, the greatest first.
        wishes: pairs that would cost less on it, the greatest gain first; none of queries.
    """

    node: str
    worker: bool
    position: tuple[float, ...]
    capacity: float
    load: float
    relayed: float
    produces: tuple[str, ...]
    sink_of: tuple[str, ...]
    hosted: tuple[Occupant, ...]
    wishes: tuple[Wish, ...]


@dataclass(frozen=True)
class LinkExplanation:
    """A flow from one operator of a query to another.

    Attributes:
        carries: source or operator whose output it is.
        receiver: operator or sink that receives it.
        rate: tuples/s.
        latency: estimated, ms.
        node: where it begins.
        to_node: where it ends.
        from_ideal: ms from there to the receiver's virtual position; None for a sink, and where
            the plan has none.
    """

    carries: str
    receiver: str
    rate: float
    latency: float
    node: str
    to_node: str
    from_ideal: float | None


@dataclass(frozen=True)
class CutExplanation:
    """How an operator of a query is cut.

    Attributes:
        operator: its id.
        instances: how many there are of it.
        received: tuples/s they receive together.
        required: what the operator would receive whole, tuples/s.
        reason: a sentence for people.
    """

    operator: str
    instances: int
    received: float
    required: float
    reason: str


def explain_cuts(plan: Plan, name: str | None = None) -> list[CutExplanation]:
    """Operators of queries that are cut, and the reason for the kind of cut.

    Args:
        plan: the plan.
        name: a query or operator; None takes all.
    """
    graph, cuts = plan.graph, list[CutExplanation]()
    received = np.bincount(plan.instances.pair, plan.added_load, plan.operator_count)
    for row in np.flatnonzero(plan.replica_count > 1).tolist():
        number, instances = int(graph.bodies[row]), int(plan.replica_count[row])
        one = graph[number]
        queries = [plan.problem.queries[query].id for query in graph.serves[number]]
        if name not in (None, one.id, *queries):
            continue
        left, right = (float(graph.input_rate[2 * row + side]) for side in (0, 1))
        join, parts = graph.joins.get(number), plan.partitions
        if join is None:
            reason = {
                "aggregate": "by its groups, or into parts whose results one combines",
                "project": "each piece takes a share of the tuples",
            }[one.kind]
        elif parts.by_key is not None and parts.by_key[row]:
            grid = min(n * left + instances / n * right for n in range(1, instances + 1)) / (
                left + right
            )
            hot = int((np.diff(KeyRanges.of(join, parts.rates(row, 0)).first[:-1]) > 0).sum())
            reason = (
                f"by ranges of its {join.keys:,} keys, {hot} of them with their own; as a "
                f"grid of so many pieces its inputs would be sent {grid:.2f} times"
            )
        else:
            reason = (
                f"as a grid: with {join.keys:,} keys, ranges of them would be too few or too large"
            )
        cuts.append(CutExplanation(one.id, instances, float(received[row]), left + right, reason))
    return cuts


def explain_links(
    plan: Plan, name: str | None = None
) -> tuple[list[LinkExplanation], dict[str, float]]:
    """Links between operators of queries, and the latency (ms) of the queries they belong to.

    Args:
        plan: the plan.
        name: a query, operator or source; None takes all, those farthest from their ideal first.

    Raises:
        PlanError: when nothing has that name; the nearest names are suggested.
    """
    operators, ids = plan.graph, plan.problem.nodes.ids
    links, (start, stop), queries = plan.links, plan.ends, plan.problem.queries
    ms, sender = plan.link_latency(), np.append(plan.graph.carried, -1)[links.logical]
    body = np.append(plan.graph.bodies[plan.instances.pair], -1)
    receiver = np.where(
        links.consumer >= 0,
        body[np.maximum(links.consumer, -1)],
        np.append(plan.graph.links[1], -1)[links.logical],
    )
    sender = np.where(links.logical < 0, body[np.maximum(links.producer, -1)], sender)
    explained, latency = [], plan.query_latency()
    in_queries: dict[str, float] = {}
    for row, (one, to) in enumerate(zip(sender.tolist(), receiver.tolist(), strict=True)):
        of = {queries[query].id: float(latency[query]) for query in sorted(operators.serves[to])}
        if name not in (None, *of, operators[one].id, operators[to].id):
            continue
        in_queries |= {str(name): of[str(name)]} if name in of else of
        away, end = None, int(links.consumer[row])
        if plan.virtual_position is not None and end >= 0:
            ideal = plan.virtual_position[plan.instances.pair[end]]
            away = float(np.linalg.norm(plan.problem.nodes.position[stop[row]] - ideal))
        explained.append(
            LinkExplanation(
                carries=operators[one].id,
                receiver=operators[to].id,
                rate=float(plan.sent[row]),
                latency=float(ms[row]),
                node=str(ids[start[row]]),
                to_node=str(ids[stop[row]]),
                from_ideal=away,
            )
        )
    if not explained:
        known = [one.id for one in queries] + [one.id for one in operators]
        raise PlanError(
            f"{name}: no such query, operator or source; {_suggestion(str(name), known)}"
        )
    if name is None:
        explained.sort(key=lambda link: -(link.from_ideal or 0.0))
    return explained, in_queries


class Explainer:
    """Answers questions about one plan; values that several answers need are computed once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.problem = plan.problem

    @cached_property
    def _weights(self) -> Floats:
        return leg_weights(self.problem, self.plan.objective)

    @cached_property
    def _free(self) -> Floats:
        return self.problem.nodes.capacity - self.plan.load

    @cached_property
    def _pair_cost(self) -> Floats:
        """(p,) cost of each pair where it runs, by the plan's objective, sending directly."""
        plan, i, count = self.plan, self.plan.instances, len(self.problem.matrix)
        legs = leg_cost(self.problem, self.problem.pair_ends[i.pair], i.node[:, None])
        weight = plan.link_weight(plan.objective).reshape(-1, 3)
        cost = (weight * legs).sum(axis=1)
        return np.asarray(np.bincount(i.pair, cost, count), np.float64)

    @cached_property
    def _by_node(self) -> Ints:
        """Instances ordered by node."""
        return np.argsort(self.plan.instances.node, kind="stable")

    def _on_node(self, node: int) -> Ints:
        sorted_nodes = self.plan.instances.node[self._by_node]
        begin, end = np.searchsorted(sorted_nodes, [node, node + 1])
        return self._by_node[begin:end]

    def _occupants(self, node: int) -> list[Occupant]:
        """Pairs on a node, the greatest first."""
        here = self._on_node(node)
        pairs, row = np.unique(self.plan.instances.pair[here], return_inverse=True)
        rates = np.bincount(row, self.plan.added_load[here], len(pairs))
        return [
            Occupant(self.plan.operator_name(int(pairs[i])), float(rates[i]))
            for i in np.argsort(-rates, kind="stable")
        ]

    def _costs(self, pair: int) -> Floats:
        """(n,) cost of the whole pair on each node."""
        everywhere = np.arange(len(self.problem.nodes))[:, None]
        return np.asarray(
            leg_cost(self.problem, self.problem.pair_ends[pair], everywhere) @ self._weights[pair]
        )

    def _ideal_cost(self, pair: int, point: Floats, costs: Floats) -> float:
        """Cost of the whole pair on a node without a height at its virtual position.

        No node costs less, except one of its ends: that leg is free of the end's own height.
        """
        nodes, ends, weights = self.problem.nodes, self.problem.pair_ends[pair], self._weights[pair]
        away = np.linalg.norm(nodes.position[ends] - point, axis=1)
        if nodes.height is None:
            return float(away @ weights)
        return float(min((away + nodes.height[ends]) @ weights, costs[ends].min()))

    def _virtual_position(self, pair: int) -> Floats:
        position = self.plan.virtual_position
        if position is not None and np.isfinite(position[pair]).all():
            return np.asarray(position[pair])
        from nova_core.placement.geometric_median import geometric_median

        anchors = self.problem.nodes.position[self.problem.pair_ends[pair]]
        return np.asarray(geometric_median(anchors[None], self._weights[pair][None])[0])

    # --- a pair ---------------------------------------------------------------------------------

    def farthest(self, count: int) -> list[int]:
        """The pairs whose cost is the most above that of their ideal, the worst first."""
        from nova_core.placement.geometric_median import (
            geometric_median,
            pair_anchors,
            weighted_distance,
        )

        anchors = pair_anchors(self.problem)
        points = geometric_median(anchors, self._weights)
        ideal = weighted_distance(anchors, self._weights, points)
        height = self.problem.nodes.height
        if height is not None:
            ideal += (self._weights * height[self.problem.pair_ends]).sum(axis=1)
        above = self._pair_cost - ideal
        return [int(pair) for pair in np.argsort(-above, kind="stable")[:count]]

    def pair(self, pair: int, nearest: int = NEAREST) -> PairExplanation:
        """Explain a pair (row of the join matrix), with its ``nearest`` cheapest candidates."""
        plan, p = self.plan, self.problem
        begin, end = np.searchsorted(plan.instances.pair, [pair, pair + 1])
        mine = np.arange(begin, end)
        ideal = self._virtual_position(pair)
        cost = self._costs(pair)
        nodes, row = np.unique(plan.instances.node[mine], return_inverse=True)
        pieces = np.bincount(row, plan.instances.replicas[mine], len(nodes))
        rate = np.bincount(row, self.plan.added_load[mine], len(nodes))
        path = np.zeros(len(nodes))
        np.maximum.at(path, row, plan.path_latency[mine])
        hosts = sorted(
            (
                Host(
                    node=str(p.nodes.ids[v]),
                    pieces=int(pieces[i]),
                    rate=float(rate[i]),
                    cost=float(cost[v]),
                    distance=float(np.linalg.norm(p.nodes.position[v] - ideal)),
                    latency=float(path[i]),
                )
                for i, v in enumerate(nodes)
            ),
            key=lambda host: host.cost,
        )
        verdicts = Verdicts(
            plan=plan,
            pair=pair,
            cost=cost,
            order=np.flatnonzero(p.nodes.worker)[np.argsort(cost[p.nodes.worker], kind="stable")],
            share=dict(zip(nodes.tolist(), rate.tolist(), strict=True)),
            pieces=dict(zip(nodes.tolist(), pieces.astype(int).tolist(), strict=True)),
            free=self._free,
            actual=float(self._pair_cost[pair]),
        )
        return PairExplanation(
            pair=p.pair_name(pair),
            left=self._end(p.matrix.left[pair]),
            right=self._end(p.matrix.right[pair]),
            sink=str(p.nodes.ids[p.sink_node[pair]]),
            required_capacity=float(p.required_capacity[pair]),
            objective=plan.objective,
            virtual_position=tuple(ideal.tolist()),
            ideal_cost=self._ideal_cost(pair, ideal, cost),
            cost=verdicts.actual,
            partitions=verdicts.partitions,
            received=float(rate.sum()),
            hosts=tuple(hosts),
            candidates=tuple(self._candidates(verdicts, nearest)),
            workers=len(verdicts.order),
            reasons=tuple(verdicts.reasons()),
        )

    def _end(self, source: int) -> dict[str, Any]:
        s = self.problem.sources
        return {
            "source": str(s.ids[source]),
            "node": str(self.problem.nodes.ids[s.node[source]]),
            "rate": float(s.rate[source]),
        }

    def _candidates(self, verdicts: Verdicts, nearest: int) -> list[Candidate]:
        p, name = self.problem, self.problem.pair_name(verdicts.pair)
        rank = {int(v): i + 1 for i, v in enumerate(verdicts.order[:nearest])}
        for v in verdicts.share:
            at = np.flatnonzero(verdicts.order == v)
            rank.setdefault(v, int(at[0]) + 1 if len(at) else 0)
        candidates = []
        for v, place in sorted(rank.items(), key=lambda item: (verdicts.cost[item[0]], item[1])):
            others = [one for one in self._occupants(v) if one.pair != name]
            candidates.append(
                Candidate(
                    rank=place or None,
                    node=str(p.nodes.ids[v]),
                    cost=float(verdicts.cost[v]),
                    capacity=float(p.nodes.capacity[v]),
                    free=float(self._free[v]),
                    verdict=verdicts.verdict(v),
                    occupants=tuple(others[:OCCUPANTS]),
                    more_occupants=len(others[OCCUPANTS:]),
                )
            )
        return candidates

    # --- a node ---------------------------------------------------------------------------------

    def node(self, node: int, wishes: int = NEAREST) -> NodeExplanation:
        """Explain a node (index), with the ``wishes`` pairs that would gain most by being on it."""
        plan, p = self.plan, self.problem
        sources, alone = np.flatnonzero(p.sources.node == node), not p.queries
        consumers = p.joins.ids if alone else np.array([query.id for query in p.queries])
        return NodeExplanation(
            node=str(p.nodes.ids[node]),
            worker=bool(p.nodes.worker[node]),
            position=tuple(p.nodes.position[node].tolist()),
            capacity=float(p.nodes.capacity[node]),
            load=float(plan.load[node]),
            relayed=float(plan.relay_load[node]),
            produces=tuple(str(name) for name in p.sources.ids[sources]),
            sink_of=tuple(str(name) for name in consumers[p.sinks == node]),
            hosted=tuple(self._occupants(node)),
            wishes=tuple(self._wishes(node, wishes)) if alone else (),
        )

    def _wishes(self, node: int, limit: int) -> list[Wish]:
        p, i = self.problem, self.plan.instances
        here = self._weights * leg_cost(p, p.pair_ends, np.array(node))
        gain = self._pair_cost - here.sum(axis=1)
        # Pairs with a piece here are listed as hosted.
        gain[i.pair[self._on_node(node)]] = 0.0
        best = np.argsort(-gain, kind="stable")[:limit]
        return [
            Wish(
                pair=p.pair_name(int(pair)),
                gain=float(gain[pair]),
                needs=float(p.required_capacity[pair]),
                runs_on=tuple(
                    str(name)
                    for name in p.nodes.ids[
                        np.unique(i.node[slice(*np.searchsorted(i.pair, [pair, pair + 1]))])
                    ]
                ),
            )
            for pair in best
            if gain[pair] > TOLERANCE * self._pair_cost[pair]
        ]


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Verdicts on the candidates of one pair.

    Attributes:
        plan: the plan.
        pair: the pair, a row of the join matrix.
        cost: (n,) what the whole pair would cost on each node, by the plan's objective.
        order: workers by cost of the whole pair.
        share: tuples/s the pair adds to each of its hosts.
        pieces: replicas of the pair on each of its hosts.
        free: (n,) capacity left on every node.
        actual: the pair's cost.
    """

    plan: Plan
    pair: int
    cost: Floats
    order: Ints
    share: dict[int, float]
    pieces: dict[int, int]
    free: Floats
    actual: float

    @cached_property
    def partitions(self) -> tuple[int, int]:
        """Into how many the left and the right input are cut."""
        count = self.plan.partitions.count
        return int(count[2 * self.pair]), int(count[2 * self.pair + 1])

    @cached_property
    def needs(self) -> float:
        """C_r, tuples/s."""
        return float(self.plan.problem.required_capacity[self.pair])

    @cached_property
    def least(self) -> float:
        """Capacity the smallest replica needs."""
        parts = self.plan.partitions
        return float(parts.rates(self.pair, 0).min() + parts.rates(self.pair, 1).min())

    @cached_property
    def is_cut(self) -> bool:
        """Whether the pair runs on several nodes."""
        return len(self.share) > 1

    @cached_property
    def room(self) -> Floats:
        """(n,) capacity left on every node without this pair."""
        room = self.free.copy()
        for v, rate in self.share.items():
            room[v] += rate
        return room

    @staticmethod
    def _fits(amount: float, room: Floats) -> Bools:
        return np.asarray(room >= amount * (1.0 - TOLERANCE))

    def verdict(self, v: int) -> str:
        """Why a node is (not) a host, in a few words."""
        nodes = self.plan.problem.nodes
        over = bool(self.free[v] < -TOLERANCE * abs(nodes.capacity[v]))
        if v in self.share:
            total = self.partitions[0] * self.partitions[1]
            part = "chosen" if not self.is_cut else f"chosen for {self.pieces[v]} of {total} pieces"
            wrong = [] if nodes.worker[v] else ["may not host joins"]
            return ", ".join([part, *wrong, *(["overloaded"] if over else [])])
        requirements = self.plan.problem.requirements
        required = self.plan.problem.pair_requirement[self.pair]
        if required >= 0 and not requirements.met[required, v]:
            return f"lacks {requirements.texts[required]}"
        c_min = self.plan.parameters.get("c_min") or 0.0
        if nodes.capacity[v] < c_min:
            return f"capacity below C_min = {c_min:g}"
        if self.free[v] < c_min:
            return f"full: less than C_min = {c_min:g} free"
        if not self._fits(self.needs, nodes.capacity[v]) and self._fits(self.least, self.free[v]):
            return f"too small for {self.needs:g} tuples/s; room for a part"
        if not self._fits(self.needs, nodes.capacity[v]):
            return f"too small for {self.needs:g} tuples/s"
        if self._fits(self.needs, self.free[v]):
            return "has room" if self.cost[v] >= self.actual else "has room: cheaper, but not taken"
        if self.is_cut and self._fits(self.least, self.free[v]):
            return "full; room for a part"
        return f"full: {self.needs:g} tuples/s do not fit"

    def reasons(self) -> list[str]:
        """Why it is here, and why it is (not) cut."""
        plan, nodes = self.plan, self.plan.problem.nodes
        reasons = []
        if "capacity" in plan.breaks and plan.strategy != "nova":
            reasons.append(f"strategy {plan.strategy} places without regard to capacity")
        elif plan.breaks:
            reasons.append(f"the plan may break on purpose: {', '.join(plan.breaks)}")
        cheaper = self.order[self.cost[self.order] < self.actual - TOLERANCE * self.actual]
        if self.is_cut:
            return [*reasons, self._why_cut()]
        (host,) = self.share
        reasons.append("not cut: it runs whole on one node")
        if not len(cheaper):
            reasons.append(f"{nodes.ids[host]} is the cheapest of {len(self.order)} workers")
            return reasons
        open_nodes = cheaper[self._fits(self.needs, self.free[cheaper])]
        text = f"{len(cheaper)} of {len(self.order)} workers would be cheaper"
        if not len(open_nodes):
            return [*reasons, f"{text}; none of them has {self.needs:g} tuples/s free"]
        gain = self.actual - self.cost[open_nodes[0]]
        return [
            *reasons,
            f"{text}; {len(open_nodes)} of them have room at the end: moving it to "
            f"{nodes.ids[open_nodes[0]]} would save {gain:.3g}",
        ]

    def _why_cut(self) -> str:
        nodes = self.plan.problem.nodes
        largest = float(nodes.capacity[self.order].max(initial=0.0))
        if not self.needs <= largest * (1.0 + TOLERANCE):
            return (
                f"cut because no worker takes {self.needs:g} tuples/s: "
                f"the greatest capacity is {largest:g}"
            )
        whole = self.order[self._fits(self.needs, self.room[self.order])]
        if not len(whole):
            return f"cut because no worker has {self.needs:g} tuples/s free for it in one piece"
        first = whole[0]
        more = float(self.cost[first] - self.actual)
        where = f"{nodes.ids[first]}, the cheapest worker with room for it in one piece"
        if more > 0:
            return f"cut because on {where}, it would cost {more:.3g} more"
        return f"cut, though on {where}, it would cost {-more:.3g} less"


def find_pairs(problem: Problem, name: str) -> list[int]:
    """Pairs meant by a pair's name (``tw/t1*w1``), a join's id or a source's id.

    Raises:
        PlanError: when nothing has that name; the nearest names are suggested.
    """
    m = problem.matrix
    join_ids, source_ids = problem.joins.ids, problem.sources.ids
    # Ids may hold the separators themselves, so a pair's name is compared whole.
    if (whole := problem.pair_names() == name).any():
        return [int(np.argmax(whole))]
    named = (
        (join_ids[m.join] == name) | (source_ids[m.left] == name) | (source_ids[m.right] == name)
    )
    if named.any():
        return [int(pair) for pair in np.flatnonzero(named)]
    known = [problem.pair_name(pair) for pair in range(min(len(m), 10_000))]
    known += [str(one) for one in problem.joins.ids]
    raise PlanError(f"join {name}: no such pair, join or source; {_suggestion(name, known)}")


def find_node(problem: Problem, name: str) -> int:
    """Index of a node.

    Raises:
        PlanError: when there is none; the nearest names are suggested.
    """
    named = problem.nodes.ids == name
    if not named.any():
        known = [str(one) for one in problem.nodes.ids[:10_000]]
        raise PlanError(f"node {name}: no such node; {_suggestion(name, known)}")
    return int(np.argmax(named))


def _suggestion(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
    return f"did you mean {', '.join(close)}?" if len(close) > 1 else f"did you mean {close[0]}?"
