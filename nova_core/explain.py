"""Why a plan puts an operator where it does: the ideal spot, the candidates, and what was full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.graph import AGGREGATE, FILTER, KINDS, PROJECT, SINK, SOURCE
from nova_core.model.key_ranges import KeyRanges
from nova_core.model.objectives import leg_cost, link_cost, link_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem, Strings
from nova_core.model.verify import TOLERANCE

FARTHEST = 5
NEAREST = 12
OCCUPANTS = 3
# Operators, and ends of links, that are looked at together: bounds memory to some megabytes.
_BLOCK = 2**16
_ENDS = 16


@dataclass(frozen=True)
class Neighbour:
    """What an operator receives from, or sends to.

    Attributes:
        name: a source, an operator or a sink; of what is received, whose output it is.
        kind: its kind, such as ``source``.
        nodes: where the link's other end is; several where what is there is cut.
        rate: tuples/s that are emitted to the link's receiver.
        latency: estimated, ms; of what is cut the longest.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    rate: float
    latency: float


@dataclass(frozen=True)
class Occupant:
    """An operator that takes room on a node: its name and the tuples/s it adds there."""

    operator: str
    rate: float


@dataclass(frozen=True)
class Candidate:
    """A node an operator could run on, with all operators placed.

    Attributes:
        rank: its place among all workers by cost, from 1; None for a host that is no worker.
        node: its id.
        cost: what the whole operator would cost there, by the plan's objective.
        capacity: C_a, tuples/s.
        free: free capacity, tuples/s; negative when overloaded.
        verdict: why it was (not) chosen, for people.
        occupants: the greatest other operators that run there.
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
    """Where an operator, or a part of it, runs.

    Attributes:
        node: the node's id.
        pieces: paper replicas of the operator merged there.
        rate: tuples/s it receives there for the operator.
        cost: what the whole operator would cost there, by the plan's objective.
        distance: from the ideal position, ms.
        latency: longest way from a source over this node to a sink, ms, relays included.
    """

    node: str
    pieces: int
    rate: float
    cost: float
    distance: float
    latency: float


@dataclass(frozen=True)
class OperatorExplanation:
    """Why an operator runs where it does, given where its neighbours run.

    Attributes:
        operator: its name.
        kind: one of `nova_core.model.graph.KINDS`.
        queries: the longest way from a source to the sink, ms, of each query, or of the join of
            pairs, that receives its results.
        runs_with: filters and projections that run with it.
        inputs: what it receives.
        outputs: what it sends to.
        required_capacity: C_r, tuples/s.
        objective: what costs are measured by.
        ideal_position: the optimum in the cost space, ms per axis.
        ideal_cost: cost there; no node can cost less.
        cost: actual cost, sending directly: of ``network-usage`` the sum over its links, of the
            others the mean over its replicas.
        partitions: into how many the left and the right input are cut.
        received: tuples/s its hosts receive for it together; above C_r when it is cut.
        hosts: where it runs.
        candidates: the cheapest workers in order, and every host.
        workers: how many workers there are.
        reasons: sentences for people.
    """

    operator: str
    kind: str
    queries: dict[str, float]
    runs_with: tuple[str, ...]
    inputs: tuple[Neighbour, ...]
    outputs: tuple[Neighbour, ...]
    required_capacity: float
    objective: str
    ideal_position: tuple[float, ...]
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
    """An operator that would cost less on a node than where it runs.

    Attributes:
        operator: its name.
        gain: how much less, by the plan's objective.
        needs: C_r, tuples/s.
        runs_on: where it runs instead.
    """

    operator: str
    gain: float
    needs: float
    runs_on: tuple[str, ...]


@dataclass(frozen=True)
class NodeExplanation:
    """What a node does, and which operators would cost less on it.

    Attributes:
        node: its id.
        worker: whether it may host operators.
        position: in the cost space, ms per axis.
        capacity: C_a, tuples/s.
        load: tuples/s it receives, relayed ones included.
        relayed: tuples/s it only forwards.
        produces: sources on it.
        sink_of: joins or queries whose results it consumes.
        hosted: operators on it, the greatest first.
        wishes: operators that would cost less on it, the greatest gain first.
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


class Explainer:
    """Answers questions about one plan; values that several answers need are computed once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.problem = plan.problem
        self.free = plan.problem.nodes.capacity - plan.load
        self._queries = _queries(plan.problem)

    def explain(
        self, name: str | None = None, most: int | None = None
    ) -> tuple[list[OperatorExplanation], int]:
        """Explain what a name means (`find`), or the `FARTHEST` operators from their ideal.

        Returns:
            The answers, at most so many, and how many more there are.
        """
        found = self.farthest(FARTHEST) if name is None else find(self.plan, name)
        return [self.operator(row) for row in found[:most]], len(found) - len(found[:most])

    # --- what several answers need --------------------------------------------------------------

    @cached_property
    def _latency(self) -> tuple[Floats, Floats]:
        """(l,) of links, and (q,) of queries, ms."""
        return self.plan.link_latency(), self.plan.query_latency()

    @cached_property
    def _by_node(self) -> tuple[Ints, Ints]:
        """Instances ordered by node, and their nodes."""
        order = np.argsort(self.plan.instances.node, kind="stable")
        return order, self.plan.instances.node[order]

    @cached_property
    def _link_at(self) -> Ints:
        """(b + 1,) where the plan's links begin that stand with each operator's instances."""
        links, count = self.plan.links, self.plan.operator_count
        owner = np.where(links.consumer >= 0, links.consumer, links.producer)
        operator = self.plan.instances.pair[owner[(owner >= 0) & (links.logical >= 0)]]
        return np.concatenate(([0], np.cumsum(np.bincount(operator, minlength=count))))

    @cached_property
    def _onward(self) -> tuple[Ints, Ints]:
        """Links from operators to others, and the senders, in their order."""
        links = self.plan.links
        link = np.flatnonzero((links.producer >= 0) & (links.consumer >= 0) & (links.logical >= 0))
        sender = self.plan.instances.pair[links.producer[link]]
        order = np.argsort(sender, kind="stable")
        return link[order], sender[order]

    @cached_property
    def _ends(self) -> tuple[Ints, Ints, Floats]:
        """Where operators' links end, in a run per operator.

        Returns:
            (b + 1,) where the runs begin, (e,) nodes at the other ends, and (e,) what each ms to
            there would count if the operator were whole.
        """
        plan, graph, i, links = self.plan, self.plan.graph, self.plan.instances, self.plan.links
        at, link = graph.at_body
        weights = link_weights(graph, plan.objective)
        producer, consumer, _, _ = graph.links
        # Sources and sinks are where they are ...
        inward = graph.node[consumer[link]] < 0
        node = graph.node[np.where(inward, producer[link], consumer[link])]
        weight, (onward, _) = weights[link], self._onward
        if len(onward) == 0:
            return at, node, weight
        # ... and others where their instances are. A whole operator would receive what it needs
        # once; what it sends to pieces of another one is sent to each that needs it.
        logical, sent = links.logical[onward], plan.link_weight(plan.objective)[onward]
        total = np.bincount(logical, sent, len(weights))[logical]
        once = sent * np.divide(weights[logical], total, out=np.ones(len(total)), where=total > 0)
        ends = np.stack([links.producer[onward], links.consumer[onward]])
        keys = np.stack([np.tile(logical, 2), i.pair[ends[::-1]].ravel(), ends.ravel()])
        order = np.lexsort(keys)
        first = np.flatnonzero(np.append(True, (np.diff(keys[:, order]) != 0).any(axis=0)))
        _, operator, other = keys[:, order[first]]
        fixed = node >= 0
        operator = np.append(np.repeat(np.arange(len(at) - 1), np.diff(at))[fixed], operator)
        weight = np.append(weight[fixed], np.add.reduceat(np.append(once, sent)[order], first))
        by_operator = np.argsort(operator, kind="stable")
        return (
            np.searchsorted(operator[by_operator], np.arange(len(at))),
            np.append(node[fixed], i.node[other])[by_operator],
            weight[by_operator],
        )

    @cached_property
    def actual(self) -> Floats:
        """(b,) cost of each operator where it runs, by the plan's objective, sending directly."""
        plan, links, penalty = self.plan, self.plan.links, self.problem.nodes.penalty
        weight = plan.link_weight(plan.objective)
        cost = np.zeros(plan.operator_count)
        for begin in range(0, len(weight), 4 * _BLOCK):
            part = slice(begin, begin + 4 * _BLOCK)
            producer, consumer = links.producer[part], links.consumer[part]
            start, stop = (end[part] for end in plan.ends)
            paid = weight[part] * link_cost(self.problem, start, stop)
            # A link within an operator is counted once.
            sends = (producer >= 0) & (links.logical[part] >= 0)
            for mine, end, host in ((sends, producer, start), (consumer >= 0, consumer, stop)):
                rows = np.flatnonzero(mine)
                operator, amount = plan.instances.pair[end[rows]], paid[rows]
                if penalty is not None:
                    amount += weight[part][rows] * penalty[host[rows]]
                np.add.at(cost, operator, amount)
        return cost

    def ideals(self, begin: int, end: int) -> tuple[Floats, Floats]:
        """Where operators would cost least, and what on a node without a height there.

        No node costs less, except one of an operator's ends: the way to there has no height.

        Args:
            begin: the first operator.
            end: one past the last, or more.

        Returns:
            (k, d) points, ms, and (k,) costs.
        """
        from nova_core.placement.queries.virtual import medians

        nodes, (at, node, weight) = self.problem.nodes, self._ends
        at = at[begin : end + 1]
        point, cost = medians(nodes.position, at, node, weight)
        if nodes.height is not None:
            tall = weight[at[0] : at[-1]] * nodes.height[node[at[0] : at[-1]]]
            cost += np.add.reduceat(np.append(tall, 0.0), at[:-1] - at[0])
        return point, cost

    def costs(self, row: int) -> tuple[Floats, float]:
        """(n,) cost of a whole operator on each node, and the least on one of its ends."""
        at, node, weight = self._ends
        node, weight = node[at[row] : at[row + 1]], weight[at[row] : at[row + 1]]
        everywhere = np.arange(len(self.problem.nodes))[:, None]
        cost = np.zeros(len(everywhere))
        for one in range(0, len(node), _ENDS):
            part = slice(one, one + _ENDS)
            cost += leg_cost(self.problem, node[part], everywhere) @ weight[part]
        return cost, float(cost[node].min(initial=np.inf))

    def _on_node(self, node: int) -> Ints:
        instance, nodes = self._by_node
        return instance[slice(*np.searchsorted(nodes, [node, node + 1]))]

    def occupants(self, node: int) -> list[Occupant]:
        """Operators on a node, the greatest first."""
        here = self._on_node(node)
        rows, place = np.unique(self.plan.instances.pair[here], return_inverse=True)
        rates = np.bincount(place, self.plan.added_load[here], len(rows))
        return [
            Occupant(self.plan.operator_name(int(rows[i])), float(rates[i]))
            for i in np.argsort(-rates, kind="stable")
        ]

    # --- an operator ----------------------------------------------------------------------------

    def farthest(self, count: int) -> list[int]:
        """The operators whose cost is the most above that of their ideal, the worst first."""
        above = self.actual.copy()
        for begin in range(0, len(above), _BLOCK):
            above[begin : begin + _BLOCK] -= self.ideals(begin, begin + _BLOCK)[1]
        return [int(row) for row in np.argsort(-above, kind="stable")[:count]]

    def operator(self, row: int, nearest: int = NEAREST) -> OperatorExplanation:
        """Explain an operator, with its ``nearest`` cheapest candidates.

        Args:
            row: of `Graph.bodies`; of pairs, a row of the join matrix.
            nearest: how many candidates there are besides its hosts.
        """
        plan, nodes, graph = self.plan, self.problem.nodes, self.plan.graph
        case = _Case(self, row)
        (ideal,), (least,) = self.ideals(row, row + 1)
        hosts = [
            Host(
                node=str(nodes.ids[v]),
                pieces=case.pieces[v],
                rate=rate,
                cost=float(case.cost[v]),
                distance=float(np.linalg.norm(nodes.position[v] - ideal)),
                latency=float(plan.path_latency[case.on[v]].max()),
            )
            for v, rate in case.share.items()
        ]
        inputs, outputs = self._neighbours(row)
        return OperatorExplanation(
            operator=plan.operator_name(row),
            kind=KINDS[graph.kind[case.number]],
            queries={
                str(self._queries[query]): float(self._latency[1][query])
                for query in graph.serves(case.number)
            },
            runs_with=tuple(graph.runs_with.get(case.number, ())),
            inputs=inputs,
            outputs=outputs,
            required_capacity=case.needs,
            objective=plan.objective,
            ideal_position=tuple(ideal.tolist()),
            ideal_cost=min(float(least), case.at_ends),
            cost=case.actual,
            partitions=case.partitions,
            received=sum(case.share.values()),
            hosts=tuple(sorted(hosts, key=lambda host: host.cost)),
            candidates=tuple(case.candidates(nearest)),
            workers=int(nodes.worker.sum()),
            reasons=tuple(case.reasons()),
        )

    def _neighbours(self, row: int) -> tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]:
        """What an operator receives from, and what it sends to."""
        plan, graph, ids = self.plan, self.plan.graph, self.problem.nodes.ids
        number, (onward, sender) = graph.bodies[row], self._onward
        further = onward[slice(*np.searchsorted(sender, [row, row + 1]))]
        link = np.append(np.arange(*self._link_at[row : row + 2]), further)
        logical = plan.links.logical[link]
        found: tuple[list[Neighbour], list[Neighbour]] = [], []
        for one in dict.fromkeys(logical.tolist()):
            _, other, _, rate = (column[one] for column in graph.links)
            sends, mine = other != number, link[logical == one]
            if not sends:
                other = graph.carried[one]
            neighbour = Neighbour(
                name=graph.ids[int(other)],
                kind=KINDS[graph.kind[other]],
                nodes=tuple(ids[np.unique(plan.ends[int(sends)][mine])].tolist()),
                rate=float(rate),
                latency=float(self._latency[0][mine].max()),
            )
            found[int(sends)].append(neighbour)
        return tuple(found[0]), tuple(found[1])

    # --- a node ---------------------------------------------------------------------------------

    def node(self, node: int, wishes: int = NEAREST) -> NodeExplanation:
        """Explain a node (index), with the ``wishes`` operators that would gain most on it."""
        plan, p = self.plan, self.problem
        return NodeExplanation(
            node=str(p.nodes.ids[node]),
            worker=bool(p.nodes.worker[node]),
            position=tuple(p.nodes.position[node].tolist()),
            capacity=float(p.nodes.capacity[node]),
            load=float(plan.load[node]),
            relayed=float(plan.relay_load[node]),
            produces=tuple(p.sources.ids[p.sources.node == node].tolist()),
            sink_of=tuple(self._queries[p.sinks == node].tolist()),
            hosted=tuple(self.occupants(node)),
            wishes=tuple(self._wishes(node, wishes)),
        )

    def _wishes(self, node: int, limit: int) -> list[Wish]:
        plan, ids, i = self.plan, self.problem.nodes.ids, self.plan.instances
        at, end, weight = self._ends
        legs = weight * leg_cost(self.problem, end, np.array(node))
        gain = self.actual - np.add.reduceat(np.append(legs, 0.0), at[:-1])
        graph = plan.graph
        gain[~graph.requirements.fits(graph.requirement[graph.bodies], node)] = 0.0
        # What has a piece here is listed as hosted.
        gain[i.pair[self._on_node(node)]] = 0.0
        return [
            Wish(
                operator=plan.operator_name(row),
                gain=float(gain[row]),
                needs=float(plan.whole_rate(0)[row] + plan.whole_rate(1)[row]),
                runs_on=tuple(ids[np.unique(i.node[i.pair == row])].tolist()),
            )
            for row in np.argsort(-gain, kind="stable")[:limit].tolist()
            if gain[row] > TOLERANCE * self.actual[row]
        ]


class _Case:
    """One operator, and verdicts on its candidates.

    Attributes:
        number: the operator's in the graph.
        mine: its instances.
        on: those on each of its hosts.
        needs: C_r, tuples/s.
        cost: (n,) what the whole operator would cost on each node, by the plan's objective.
        at_ends: the least of that where one of its links ends.
        actual: what it costs where it runs.
        asked: what it requires of nodes, as in ``with tag gpu``; empty for nothing.
        able: (n,) nodes that meet that.
        workers: nodes that may host it.
        share: tuples/s it adds to each of its hosts.
        pieces: replicas of it on each of its hosts.
        partitions: into how many the left and the right input are cut.
        is_cut: whether it runs on several nodes.
    """

    def __init__(self, of: Explainer, row: int) -> None:
        self._plan, self._row, self._of = of.plan, row, of
        plan, i = of.plan, of.plan.instances
        self.number = int(plan.graph.bodies[row])
        self.mine = np.arange(*np.searchsorted(i.pair, [row, row + 1]))
        self.needs = float(plan.whole_rate(0)[row] + plan.whole_rate(1)[row])
        self.actual = float(of.actual[row])
        self.cost, self.at_ends = of.costs(row)
        requirement = int(plan.graph.requirement[self.number])
        self.asked = plan.graph.requirements.text(requirement)
        self.able = plan.graph.allowed(row)
        self.workers = np.flatnonzero(of.problem.nodes.worker & self.able)
        nodes = i.node[self.mine]
        self.on = {v: self.mine[nodes == v] for v in np.unique(nodes).tolist()}
        self.share = {v: float(plan.added_load[on].sum()) for v, on in self.on.items()}
        self.pieces = {v: int(i.replicas[on].sum()) for v, on in self.on.items()}
        count = plan.partitions.count
        self.partitions = int(count[2 * row]), int(count[2 * row + 1])
        self.is_cut = len(self.on) > 1

    @cached_property
    def _ranges(self) -> KeyRanges | None:
        """Ranges of keys that it is cut into, if it is cut so."""
        parts, join = self._plan.partitions, self._plan.graph.joins.get(self.number)
        if parts.by_key is None or join is None or not parts.by_key[self._row]:
            return None
        return KeyRanges.of(join, parts.rates(self._row, 0))

    @cached_property
    def _least(self) -> float:
        """Capacity the smallest replica needs."""
        left, right = (self._plan.partitions.rates(self._row, side) for side in (0, 1))
        if self._ranges is None:
            return float(left.min() + right.min())
        begin = np.arange(len(left))
        return float((left + right[0] * self._ranges.shares(begin, begin + 1)[0]).min())

    def _cheapest(self, nodes: Ints) -> int:
        return int(nodes[np.argmin(self.cost[nodes])])

    def candidates(self, nearest: int) -> list[Candidate]:
        """The cheapest workers, and all hosts, in the order of their cost."""
        nodes, name = self._plan.problem.nodes, self._plan.operator_name(self._row)
        close = np.flatnonzero(nodes.worker)
        cost, workers = self.cost[close], close
        if len(close) > nearest:
            close = close[cost <= np.partition(cost, nearest)[nearest]]
        close = close[np.argsort(self.cost[close], kind="stable")[:nearest]]
        rank: dict[int, int | None] = {v: place + 1 for place, v in enumerate(close.tolist())}
        for v in self.share.keys() - rank.keys():
            before = (cost < self.cost[v]) | ((cost == self.cost[v]) & (workers < v))
            rank[v] = int(before.sum()) + 1 if nodes.worker[v] else None
        candidates = []
        for v in sorted(rank, key=lambda v: (self.cost[v], rank[v] or 0)):
            others = [one for one in self._of.occupants(v) if one.operator != name]
            candidates.append(
                Candidate(
                    rank=rank[v],
                    node=str(nodes.ids[v]),
                    cost=float(self.cost[v]),
                    capacity=float(nodes.capacity[v]),
                    free=float(self._of.free[v]),
                    verdict=self.verdict(v),
                    occupants=tuple(others[:OCCUPANTS]),
                    more_occupants=len(others[OCCUPANTS:]),
                )
            )
        return candidates

    @staticmethod
    def _fits(amount: float, room: Floats) -> Bools:
        return np.asarray(room >= amount * (1.0 - TOLERANCE))

    def verdict(self, v: int) -> str:
        """Why a node is (not) a host, in a few words."""
        nodes = self._plan.problem.nodes
        capacity, free = nodes.capacity[v], self._of.free[v]
        if v in self.share:
            total, some = self.partitions[0] * self.partitions[1], " to combine the others"
            if self.pieces[v]:
                some = f" for {self.pieces[v]} of {total} pieces"
            part = "chosen" + some * self.is_cut
            wrong = [] if nodes.worker[v] else ["may not host operators"]
            wrong += [] if self.able[v] else [f"no node {self.asked}"]
            over = ["overloaded"] if free < -TOLERANCE * abs(capacity) else []
            return ", ".join([part, *wrong, *over])
        if not self.able[v]:
            return f"no node {self.asked}"
        c_min = self._plan.parameters.get("c_min") or 0.0
        if capacity < c_min:
            return f"capacity below C_min = {c_min:g}"
        if free < c_min:
            return f"full: less than C_min = {c_min:g} free"
        if not self._fits(self.needs, capacity):
            part = "; room for a part" if self._fits(self._least, free) else ""
            return f"too small for {self.needs:g} tuples/s{part}"
        if self._fits(self.needs, free):
            return "has room" if self.cost[v] >= self.actual else "has room: cheaper, but not taken"
        if self.is_cut and self._fits(self._least, free):
            return "full; room for a part"
        return f"full: {self.needs:g} tuples/s do not fit"

    def reasons(self) -> list[str]:
        """Why it is here, and why and how it is (not) cut."""
        plan, ids, many = self._plan, self._plan.problem.nodes.ids, len(self.workers)
        reasons, asked = [], f" {self.asked}" * bool(self.asked)
        if asked:
            of = int(plan.problem.nodes.worker.sum())
            reasons.append(f"may run on a node{asked} only: {many} of {of} workers")
        if plan.breaks:
            reasons.append(f"the plan may break on purpose: {', '.join(plan.breaks)}")
        if self.is_cut:
            return [*reasons, self._why_cut(), *self._how_cut()]
        if not self.share:
            return [*reasons, "the plan has it nowhere"]
        (host,) = self.share
        reasons.append("not cut: it runs whole on one node")
        cheaper = self.workers[self.cost[self.workers] < self.actual - TOLERANCE * self.actual]
        if not len(cheaper):
            return [*reasons, f"{ids[host]} is the cheapest of {many} workers{asked}"]
        text = f"{len(cheaper)} of {many} workers{asked} would be cheaper"
        roomy = cheaper[self._fits(self.needs, self._of.free[cheaper])]
        if not len(roomy):
            return [*reasons, f"{text}; none of them has {self.needs:g} tuples/s free"]
        best = self._cheapest(roomy)
        return [
            *reasons,
            f"{text}; {len(roomy)} of them have room at the end: moving it to "
            f"{ids[best]} would save {self.actual - self.cost[best]:.3g}",
        ]

    def _why_cut(self) -> str:
        nodes, asked = self._plan.problem.nodes, f" {self.asked}" * bool(self.asked)
        largest = float(nodes.capacity[self.workers].max(initial=0.0))
        if not self.needs <= largest * (1.0 + TOLERANCE):
            return (
                f"cut because no worker{asked} takes {self.needs:g} tuples/s: "
                f"the greatest capacity is {largest:g}"
            )
        room = self._of.free.copy()
        room[list(self.share)] += list(self.share.values())
        whole = self.workers[self._fits(self.needs, room[self.workers])]
        if not len(whole):
            needs = f"{self.needs:g} tuples/s free for it in one piece"
            return f"cut because no worker{asked} has {needs}"
        best = self._cheapest(whole)
        more = float(self.cost[best] - self.actual)
        where = f"{nodes.ids[best]}, the cheapest worker with room for it in one piece"
        if more > 0:
            return f"cut because on {where}, it would cost {more:.3g} more"
        return f"cut, though on {where}, it would cost {-more:.3g} less"

    def _how_cut(self) -> list[str]:
        """The kind of cut, and why it is this one, where there are several."""
        plan, graph, feeds = self._plan, self._plan.graph, self._plan.instances.feeds
        if graph.kind[self.number] in (FILTER, PROJECT):
            return ["each piece takes a share of the tuples"]
        if graph.kind[self.number] == AGGREGATE:
            if feeds is not None and (feeds[self.mine] >= 0).any():
                return ["cut by its inputs: one instance combines the results of the others"]
            return [f"cut by its {graph.parts[self.number]:,} groups"]
        join = graph.joins.get(self.number)
        if join is None:
            return []
        if self._ranges is None:
            return [f"cut as a grid: ranges of {join.keys:,} keys would be too few or too large"]
        left, right = (float(plan.whole_rate(side)[self._row]) for side in (0, 1))
        many = len(self.mine)
        grid = min(n * left + many / n * right for n in range(1, many + 1)) / (left + right)
        hot = int((np.diff(self._ranges.first[:-1]) > 0).sum())
        return [
            f"cut by ranges of its {join.keys:,} keys, {hot} of them with their own; as a grid of "
            f"so many pieces its inputs would be sent {grid:.2f} times"
        ]


def _queries(problem: Problem) -> Strings:
    """(q,) ids of a problem's queries, or of its joins of pairs."""
    return problem.joins.ids if not problem.queries else np.array([q.id for q in problem.queries])


def find(plan: Plan, name: str) -> list[int]:
    """Operators that a name means, by their rows of `Graph.bodies`.

    That is an operator's name (``tw/t1*w1``, ``wear/strain(heat-1*force-1)``), the id of a join or
    query, or of a query's operator (``wear/strain``, ``strain``), or a source, for what reads it.
    Of what runs with a source, such as a filter, it is what receives its output.

    Raises:
        PlanError: when nothing has that name; the nearest names are suggested.
    """
    graph, p = plan.graph, plan.problem
    names, queries = plan.operator_names(), _queries(p)
    # Ids may hold the separators themselves, so an operator's name is compared whole.
    if (whole := names == name).any():
        return [int(np.argmax(whole))]
    sinks = (graph.kind == SINK) & (queries == name)[graph.query]
    meant = graph.feeding(sinks) & (graph.kind != SOURCE)
    named = np.isin(graph.source, np.flatnonzero(p.sources.ids == name))
    meant |= (graph.kind == SOURCE) & named
    logical = graph.logical or ()
    for number, (one, query) in enumerate(zip(logical, graph.query.tolist(), strict=False)):
        if one and name in (one, f"{queries[query]}/{one}", graph.ids[number]):
            meant[number] = True
    for number in graph.fused.tolist():
        meant[number] |= meant[graph.inputs(number)].any()
    if meant.any():
        producer, consumer, _, _ = graph.links
        read = (graph.node[producer] >= 0) & meant[graph.carried]
        rows = graph.body_of[np.append(graph.root[meant], consumer[read])]
        return [int(row) for row in np.unique(rows[rows >= 0])]
    known = [*queries.tolist(), *sorted({one for one in logical if one}), *names[:10_000].tolist()]
    raise PlanError(f"{name}: no such operator, join, query or source; {_close(name, known)}")


def find_node(problem: Problem, name: str) -> int:
    """Index of a node.

    Raises:
        PlanError: when there is none; the nearest names are suggested.
    """
    named = problem.nodes.ids == name
    if not named.any():
        known = problem.nodes.ids[:10_000].tolist()
        raise PlanError(f"node {name}: no such node; {_close(name, known)}")
    return int(np.argmax(named))


def _close(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
    return f"did you mean {', '.join(close)}?"
