"""Plans as joint graphs of operators and hosts (Costream, section III-A), and batches of them.

A plan's pieces are operators of their own: an operator cut into three is three nodes, each with its
own rates, and an operator that runs with a piece (a filter behind a join) is a node per piece.
Edges are data flows; a host is a node with edges to the operators on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nova_core.errors import NovaError
from nova_core.model import graph as placed
from nova_core.model.expansion import graph_of as placed_graph
from nova_core.model.graph import Operator
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints, Problem, Strings
from nova_research.costream.learned.features import (
    CORES,
    FEATURES,
    HOST,
    KINDS,
    MBIT,
    MEMORY,
    Description,
    Descriptions,
    Flow,
    operator_features,
)

Singles = NDArray[np.float32]
Group = tuple[int, int, int, int]
"""Stage and type of operators that are updated together."""
Layout = tuple[tuple[str, int], ...]
"""Types of operators and how many places each has, group by group in the order of the data flow."""

WIDTH = max(map(len, FEATURES.values()))
MOST_NODES = 5000
_SINK = KINDS.index("sink")
# Types that the network lacks, and the type that stands for each.
_TAKEN_FOR = {"project": "filter", "multicast": "filter"}

# Per operator, by its name or the name in its query: tuples it received and emitted.
Measured = Mapping[str, tuple[float, float]]

Whole = TypeVar("Whole", bound=np.signedinteger[Any])


class Batch(NamedTuple):
    """Padded arrays of graphs that share a layout; nodes come first, then graphs.

    A leading 1 in place of b: the same for all graphs of the batch.

    Attributes:
        features: per group (n, b or 1, f), scaled.
        inputs: per group (b or 1, n, places before the group): 1 where a node receives from one.
        placement: (b, o, k): 1 where an operator runs on a host.
        hosts: (b, k, f) features of hosts, scaled.
    """

    features: tuple[Any, ...]
    inputs: tuple[Any, ...]
    placement: Any
    hosts: Any


@dataclass(frozen=True, eq=False)
class Demand:
    """What operators and the flows between them ask of hosts, wherever they run.

    Attributes:
        ends: producers and consumers ((e,), (e,)) of flows.
        sent: (e,) Mbit/s of each flow.
        asked: (2, o) tuples/s received and emitted, and MB held in windows.
    """

    ends: tuple[Ints, Ints]
    sent: Floats
    asked: Floats

    def some(self, inside: Bools) -> Demand:
        """Of some ((o,)) of the operators, and the flows between them."""
        producer, consumer = self.ends
        place = np.cumsum(inside) - 1
        selected = inside[producer] & inside[consumer]
        ends = place[producer[selected]], place[consumer[selected]]
        return Demand(ends, self.sent[selected], self.asked[:, inside])


@dataclass(frozen=True, eq=False)
class Hosts:
    """Nodes that operators may run on, with features of them and of their links.

    Attributes:
        nodes: (m,) nodes of the problem.
        own: (m, 2) CPU and RAM, as features.
        latency: (m, m) ms.
        mbit: (m, m) Mbit/s, NaN where it is not known.
    """

    nodes: Ints
    own: Floats
    latency: Floats
    mbit: Floats

    @classmethod
    def of(cls, problem: Problem, nodes: Ints) -> Hosts:
        """These nodes ((m,), unique) of a problem."""
        table, many = problem.nodes, len(nodes)
        cores = np.full(many, CORES) if table.cpu is None else table.cpu[nodes]
        memory = np.full(many, MEMORY) if table.memory is None else table.memory[nodes]
        cores, memory = np.nan_to_num(cores, nan=CORES), np.nan_to_num(memory, nan=MEMORY)
        own = np.stack([np.log10(1 + 100 * cores), np.log10(1 + memory / 1e6)], axis=1)
        here = np.repeat(nodes, many), np.tile(nodes, many)
        mbit = np.full((many, many), np.nan)
        if problem.latency is not None:
            latency = problem.latency[np.ix_(nodes, nodes)]
        else:
            latency = problem.distance(*here).reshape(many, many)
        measured = problem.measured
        if measured is not None:
            slot = np.full(len(table), -1)
            slot[nodes] = np.arange(many)
            a, b = slot[measured.source], slot[measured.target]
            both = (a >= 0) & (b >= 0)
            for one, other in ((a[both], b[both]), (b[both], a[both])):
                if problem.latency is None:
                    latency[one, other] = measured.latency[both]
                if measured.mbit is not None:
                    mbit[one, other] = measured.mbit[both]
        return cls(nodes, own, latency, mbit)

    def leaving(self, start: Ints, stop: Ints, sent: Floats) -> Floats:
        """(4, ...) of flows between hosts: 1 for each, ms and Mbit/s of the link, Mbit/s sent.

        Those that stay on a host are 0.

        Args:
            start: (...) row of `nodes` that each flow leaves.
            stop: (...) row that it arrives at.
            sent: (e,) or (...) Mbit/s of each flow.
        """
        mbit = np.nan_to_num(self.mbit[start, stop], nan=MBIT)
        own = np.broadcast_to(sent, start.shape)
        each: Floats = np.stack([np.ones(start.shape), self.latency[start, stop], mbit, own])
        each *= start != stop
        return each

    def occupied(
        self, place: Ints, demand: Demand, others: Floats | None = None
    ) -> tuple[Ints, Floats]:
        """Hosts in use under many placements.

        Latency and bandwidth of a host are means over the flows that leave it (Table I); without
        such flows they are 0 ms and `MBIT`.

        Args:
            place: (b, o) row of `nodes` that each operator runs on.
            demand: of the operators and flows.
            others: (6, m) what other queries ask of each row: sums of `leaving` over the flows that
                leave it, and of `Demand.asked` over the operators on it.

        Returns:
            (b, o) number of each operator's host among those in use, from 0, and (b, k, f) features
            of hosts, zeros beyond those in use.
        """
        many, count = place.shape
        rows = np.arange(many)[:, None]
        first = (place[:, :, None] == place[:, None, :]).argmax(axis=2)
        begins = first == np.arange(count)
        number = np.cumsum(begins, axis=1) - 1
        slot = number[rows, first]
        wide = int(slot.max(initial=0)) + 1
        row = np.zeros((many, wide), np.int64)
        row[rows, slot] = place
        asked = self._asked(place, rows * wide + slot, wide, demand)
        if others is not None:
            asked += others[:, row]
        used = np.zeros((many, wide, 1), bool)
        used[rows, slot] = True
        return slot, self._features(row, asked) * used

    def _asked(self, place: Ints, key: Ints, wide: int, demand: Demand) -> Floats:
        """(6, b, k) what a query asks of each host, see `occupied`.

        Args:
            place: (b, o) row of `nodes` that each operator runs on.
            key: (b, o) number of each operator's host among all hosts of all placements.
            wide: k, hosts of a placement.
            demand: of the operators and flows.
        """
        start, stop = (place[:, end] for end in demand.ends)
        leaves = key[:, demand.ends[0]]
        each = [(leaves, one) for one in self.leaving(start, stop, demand.sent)]
        each += [(key, np.broadcast_to(one, place.shape)) for one in demand.asked]
        size = len(place) * wide
        sums = [np.bincount(at.ravel(), one.ravel(), size) for at, one in each]
        return np.array(sums, np.float64).reshape(-1, len(place), wide)

    def _features(self, row: Ints, asked: Floats) -> Floats:
        """(b, k, f) features of hosts, of which (6, b, k) is asked."""
        cores, memory = self.own[row].transpose(2, 0, 1)
        flows, latency, mbit, sent, tuples, held = asked
        mbit = np.where(flows > 0, mbit / np.maximum(flows, 1), MBIT)
        amounts = (
            latency / np.maximum(flows, 1),
            mbit,
            100 * tuples / np.maximum(10**cores - 1, 1e-3),
            100 * sent / np.maximum(mbit, 1e-3),
            100 * held / np.maximum(10**memory - 1, 1.0),
        )
        return np.stack([cores, memory, *(np.log10(1 + one) for one in amounts)], axis=-1)


@dataclass(frozen=True, eq=False)
class Graph:
    """One plan's operators and hosts.

    Attributes:
        names: (o,) of operators; of a piece with its number.
        kind: (o,) number in `KINDS`.
        table: (o, w) features in the order of `FEATURES`, zeros behind those of the type.
        operator: (o,) number in the operator graph.
        demand: on hosts and links, with the flows.
        stage: (o, 3) order of updates: operators of one stage and type together, stages in
            lexicographic order, each operator after its producers (`_stages`).
        host: (o,) row of `hosts` each operator runs on.
        nodes: (k,) node of each host.
        hosts: (k, f) features of hosts, see `HOST`.
        queries: name of the query, or the pair of sources, that each sink belongs to.
        foreign: types of operators that the network lacks; they count as filters.
    """

    names: list[str]
    kind: Ints
    table: Floats
    operator: Ints
    demand: Demand
    stage: Ints
    host: Ints
    nodes: Ints
    hosts: Floats
    queries: list[str]
    foreign: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """Producers and consumers ((e,), (e,)) of flows."""
        return self.demand.ends

    @cached_property
    def sinks(self) -> Ints:
        """Operators that are sinks, in the order of `queries`."""
        return np.flatnonzero(self.kind == _SINK)

    @cached_property
    def groups(self) -> list[Group]:
        """(o,) stage and type of each operator; sinks come after all others."""
        sink = self.kind == _SINK
        stages = np.where(sink[:, None], np.iinfo(np.int32).max, self.stage)
        return [
            (a, b, c, k) for (a, b, c), k in zip(stages.tolist(), self.kind.tolist(), strict=True)
        ]

    def upstream(self, sink: int) -> Bools:
        """(o,) whether operators are a sink or upstream of it."""
        inside = np.zeros(len(self), bool)
        inside[sink] = True
        return _with_producers(inside, *self.ends)

    def part(self, sink: int) -> Graph:
        """A sink and all operators upstream of it."""
        inside = self.upstream(sink)
        return self._with(inside, [self.queries[int(np.searchsorted(self.sinks, sink))]])

    def rest(self, sink: int) -> Graph:
        """All other operators, without flows: what the hosts run beside the query of a sink."""
        rest = self._with(~self.upstream(sink), [])
        none = np.zeros(0, np.int64)
        demand = Demand((none, none), np.zeros(0), rest.demand.asked)
        return replace(rest, demand=demand, stage=np.zeros_like(rest.stage))

    def _with(self, inside: Bools, queries: list[str]) -> Graph:
        """Some of the operators on all of the hosts."""
        rows = np.flatnonzero(inside)
        return replace(
            self,
            names=[self.names[row] for row in rows.tolist()],
            kind=self.kind[rows],
            table=self.table[rows],
            operator=self.operator[rows],
            demand=self.demand.some(inside),
            stage=self.stage[rows],
            host=self.host[rows],
            queries=queries,
        )


def _with_producers(inside: Bools, producer: Ints, consumer: Ints) -> Bools:
    """(o,) some operators, and all upstream of them."""
    inside = inside.copy()
    while True:
        further = producer[inside[consumer]]
        if inside[further].all():
            return inside
        inside[further] = True


class _PairIds:
    """Names of a problem's sources, pairs, and a sink per pair."""

    def __init__(self, graph: placed.Graph, first: int, pair: Ints) -> None:
        self._graph, self._first, self._pair = graph, first, pair

    def __getitem__(self, operator: int) -> str:
        if operator < self._first:
            return self._graph.ids[operator]
        return f"{self._graph.ids[int(self._pair[operator - self._first])]} sink"

    def of(self, operators: Ints) -> Strings:
        return np.array([self[one] for one in operators.tolist()], np.str_)


def operators_of(problem: Problem) -> placed.Graph:
    """A problem's operators: those of its queries as written, or a join per pair of its matrix.

    Each pair is predicted by itself, so it has a sink of its own; links are those of the plan's
    graph, in the same order.
    """
    graph = placed_graph(problem)
    if problem.queries:
        return graph
    first = len(problem.sources) + len(problem.matrix)
    pair = graph.input[2 * len(problem.matrix) :]
    many = first + len(pair)

    def longer(column: NDArray[Whole], rest: NDArray[Whole]) -> NDArray[Whole]:
        return np.concatenate([column[:first], rest])

    return replace(
        graph,
        ids=_PairIds(graph, first, pair),
        kind=longer(graph.kind, np.full(len(pair), placed.SINK, np.int8)),
        input_at=longer(graph.input_at, graph.input_at[first] + np.arange(len(pair) + 1)),
        rate=np.concatenate([graph.rate[:first], np.zeros(len(pair))]),
        node=longer(graph.node, problem.sink_node[pair - len(problem.sources)]),
        source=longer(graph.source, np.full(len(pair), -1)),
        query=longer(graph.query, graph.query[pair]),
        root=np.arange(many),
        parts=np.ones(many, np.int64),
        combines=np.zeros(many, bool),
        partial=np.zeros(many, bool),
        requirement=longer(graph.requirement, np.full(len(pair), -1)),
    )


class GraphBuilder:
    """Builds graphs of plans of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._descriptions = Descriptions(problem)
        self._pairs = None if problem.queries else operators_of(problem)

    def graph(self, plan: Plan, measured: Measured | None = None) -> Graph:
        """The joint graph of a plan.

        Args:
            plan: of the problem.
            measured: tuples that operators received and emitted; without them, the problem's
                estimates apply.

        Raises:
            NovaError: for a plan of more than `MOST_NODES` operators and pieces.
        """
        queries = plan.graph if self._pairs is None else self._pairs
        many = len(plan.instances) + len(queries.fused)
        if many > MOST_NODES:
            raise NovaError(
                f"{plan.problem.name}: {many:,} operators and pieces; predictions are for at most "
                f"{MOST_NODES:,}"
            )
        return _Nodes(self._problem, queries, plan, measured or {}, self._descriptions).graph()


def graph_of(plan: Plan, measured: Measured | None = None) -> Graph:
    """The joint graph of a plan, as `GraphBuilder.graph`."""
    return GraphBuilder(plan.problem).graph(plan, measured)


class _Nodes:
    """Nodes and flows of one plan."""

    def __init__(
        self,
        problem: Problem,
        queries: placed.Graph,
        plan: Plan,
        measured: Measured,
        descriptions: Descriptions,
    ) -> None:
        self._problem, self._queries, self._plan = problem, queries, plan
        self._measured, self._descriptions = measured, descriptions
        instances = plan.instances
        body = queries.bodies[instances.pair]
        pieces = np.bincount(body, minlength=len(queries.root))
        pinned = queries.node
        root = queries.root
        self._pieces = np.where(pinned[root] >= 0, 1, pieces[root])
        self._start = np.append(0, np.cumsum(self._pieces))
        self._row = np.repeat(np.arange(len(root)), self._pieces)
        self._rank = np.arange(len(self._row)) - self._start[self._row]
        # Instances of an operator in the order of the table, which is by operator.
        order = np.argsort(body, kind="stable")
        first = np.searchsorted(body[order], np.arange(len(root)))
        at = np.minimum(first[root[self._row]] + self._rank, max(len(order) - 1, 0))
        self._instance = np.where(pinned[root[self._row]] >= 0, -1, order[at] if len(order) else -1)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - first[body[order]]
        self._of_instance = self._start[body] + rank
        self._rank_of = rank
        node = instances.node[self._instance] if len(order) else self._instance
        self._node = np.where(self._instance < 0, pinned[root[self._row]], node)

    def graph(self) -> Graph:
        producer, consumer, side, rate = self._flows()
        keep = self._used(producer, consumer)
        place = np.cumsum(keep) - 1
        selected = keep[producer] & keep[consumer]
        ends = place[producer[selected]], place[consumer[selected]]
        rows = np.flatnonzero(keep)
        operators = [self._queries[row] for row in self._row[rows].tolist()]
        kinds = [_TAKEN_FOR.get(one.kind, one.kind) for one in operators]
        numbers = np.array([KINDS.index(kind) for kind in kinds], np.int64)
        stage = _stages(numbers, ends)
        table, demand = self._table(
            operators, kinds, rows, stage, ends, side[selected], rate[selected]
        )
        nodes, host = np.unique(self._node[rows], return_inverse=True)
        hosts = Hosts.of(self._problem, nodes)
        slot, features = hosts.occupied(host[None], demand)
        order = np.zeros(features.shape[1], np.int64)
        order[slot[0]] = nodes[host]
        pieces = self._pieces[self._row[rows]]
        return Graph(
            names=[
                f"{one.id} [{rank + 1}]" if many > 1 else one.id
                for one, rank, many in zip(operators, self._rank[rows], pieces, strict=True)
            ],
            kind=numbers,
            table=table,
            operator=self._row[rows],
            demand=demand,
            stage=stage,
            host=slot[0],
            nodes=order,
            hosts=features[0],
            queries=self._query_names(operators),
            foreign=tuple(sorted({one.kind for one in operators} - set(KINDS))),
        )

    def _flows(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Producer, consumer, input of the consumer and tuples/s of every flow between nodes."""
        queries, plan = self._queries, self._plan
        links = plan.links
        _, target, _, _ = queries.links
        inner = links.logical < 0
        sender_operator = np.append(queries.carried, 0)[links.logical]
        sender, receiver = np.maximum(links.producer, 0), np.maximum(links.consumer, 0)
        piece = self._rank_of[sender] if len(self._rank_of) else sender
        of = self._of_instance if len(self._of_instance) else np.zeros(1, np.int64)
        producer = self._start[sender_operator] + np.where(links.producer >= 0, piece, 0)
        producer = np.where(inner, of[sender], producer)
        consumer = np.where(
            links.consumer >= 0, of[receiver], self._start[np.append(target, 0)[links.logical]]
        )
        fused = np.isin(self._row, queries.fused)
        below = np.flatnonzero(fused)
        inputs = np.array([queries[row].inputs[0] for row in self._row[below].tolist()], np.int64)
        above = self._start[inputs] + self._rank[below]
        return (
            np.concatenate([producer, above]),
            np.concatenate([consumer, below]),
            np.concatenate([links.side, np.zeros(len(below), np.int64)]),
            np.concatenate([links.rate, np.full(len(below), np.nan)]),
        )

    def _used(self, producer: Ints, consumer: Ints) -> Bools:
        """Nodes that have a path to a sink."""
        sinks = self._queries.kind[self._row] == placed.SINK
        return _with_producers(sinks, producer, consumer)

    def _table(
        self,
        operators: Sequence[Operator],
        kinds: Sequence[str],
        rows: Ints,
        stage: Ints,
        ends: tuple[Ints, Ints],
        side: Ints,
        rate: Floats,
    ) -> tuple[Floats, Demand]:
        """Features and demand of nodes.

        Producers come first: a measured output changes all rates downstream.
        """
        emitted = self._emitted()[rows]
        share = self._share()[rows]
        into: list[list[int]] = [[] for _ in rows]
        for flow, end in enumerate(ends[1].tolist()):
            into[end].append(flow)
        # Measured output of each node over its estimated output.
        factor = np.ones(len(rows))
        known: list[Description | None] = [None] * len(rows)
        table = np.zeros((len(rows), WIDTH))
        output = emitted.copy()
        demand = Demand(ends, np.zeros(len(rate)), np.zeros((2, len(rows))))
        for row in np.lexsort(stage.T[::-1]).tolist():
            one, flows = operators[row], into[row]
            inputs = [0.0, 0.0]
            estimated = 0.0
            described: dict[int, Description] = {}
            for flow in flows:
                above = int(ends[0][flow])
                tuples = emitted[above] if np.isnan(rate[flow]) else float(rate[flow])
                estimated += tuples
                tuples *= factor[above]
                inputs[int(side[flow]) if one.kind == "join" else 0] += tuples
                before = known[above]
                assert before is not None  # producers come first
                demand.sent[flow] = 8e-6 * tuples * before.size
                # One piece describes all pieces on its side of a join.
                key = int(side[flow]) if one.kind == "join" else -above
                described.setdefault(key, before)
            received, before_it = sum(inputs), [described[key] for key in sorted(described)]
            measured = self._ratio(one)
            if one.kind == "sink":
                output[row] = received
            elif measured is not None and flows:
                output[row] = received * measured
            elif flows and estimated > 0:
                output[row] = emitted[row] * received / estimated
            factor[row] = output[row] / emitted[row] if emitted[row] > 0 else 1.0
            if one.kind == "source":
                description = self._descriptions.source(one)
            else:
                description = self._descriptions.operator(one, before_it)
            known[row] = description
            held_s = 0.0 if description.window is None else description.window[0]
            demand.asked[:, row] = received + output[row], held_s * demand.sent[flows].sum() / 8
            flow_of = Flow((inputs[0], inputs[1]), float(output[row]), float(share[row]))
            own = operator_features(kinds[row], description, before_it, flow_of)
            table[row, : len(own)] = own
        return table, demand

    def _ratio(self, operator: Operator) -> float | None:
        for name in (operator.id, operator.id.partition("(")[0], operator.logical):
            if name in self._measured:
                received, emitted = self._measured[name]
                return emitted / received if received > 0 else None
        return None

    def _emitted(self) -> Floats:
        """(o,) tuples/s each node emits, by estimates."""
        return self._queries.rate[self._row] * self._shares(self._plan.emitted_share)

    def _share(self) -> Floats:
        """(o,) share of its operator's inputs that each node takes."""
        left, right = (self._shares(self._plan.taken_share(side)) for side in (0, 1))
        return np.sqrt(left * right)

    def _shares(self, shares: Floats) -> Floats:
        """(o,) shares of nodes, by those of instances ((k,)); what combines parts has all."""
        instances = self._plan.instances
        if len(instances) == 0:
            return np.ones(len(self._row))
        if instances.feeds is not None:
            shares = shares.copy()
            feeding = instances.feeds >= 0
            combines = np.isin(instances.pair, instances.pair[feeding]) & ~feeding
            shares[combines] = 1.0
        return np.where(self._instance < 0, 1.0, shares[self._instance])

    def _query_names(self, operators: Sequence[Operator]) -> list[str]:
        sinks = [one for one in operators if one.kind == "sink"]
        if self._problem.queries:
            return [self._problem.queries[one.query].id for one in sinks]
        first = len(self._problem.sources)
        return [self._problem.pair_name(one.inputs[0] - first) for one in sinks]


def _stages(kind: Ints, ends: tuple[Ints, Ints]) -> Ints:
    """(o, 3) stage of each operator: aggregates, joins after the last of them, filters after those.

    The path from the sources with the greatest counts decides, so stages follow the data flow.
    Common parts of queries of different shapes, such as the aggregate before the sink, have the
    same stage.

    Args:
        kind: (o,) of operators.
        ends: producers and consumers ((e,), (e,)) of flows.
    """
    step = np.zeros((len(KINDS), 3), np.int64)
    for column, name in enumerate(("aggregate", "join", "filter")):
        step[KINDS.index(name), column] = 1
    inputs: list[list[int]] = [[] for _ in kind]
    for producer, consumer in zip(*(one.tolist() for one in ends), strict=True):
        inputs[consumer].append(producer)
    stages: dict[int, tuple[int, ...]] = {}
    open_ = list(range(len(kind)))
    while open_:
        one = open_[-1]
        missing = [above for above in inputs[one] if above not in stages]
        if one in stages or missing:
            open_ = open_[:-1] if one in stages else open_ + missing
            continue
        stage = max((stages[above] for above in inputs[one]), default=(0, 0, 0))
        column = int(step[kind[one]].argmax())
        if step[kind[one]].any():
            counted = stage[column] + 1
            stage = (*stage[:column], counted, *(0,) * (2 - column))
        stages[one] = stage
    return np.array([stages[one] for one in range(len(kind))], np.int64).reshape(-1, 3)


# --- batches -------------------------------------------------------------------------------------


def layout_of(graphs: Sequence[Graph]) -> Mapping[Group, int]:
    """Places for operators of each stage and type: the most that one of the graphs needs."""
    most: dict[Group, int] = {}
    for graph in graphs:
        for group, many in Counter(graph.groups).items():
            most[group] = max(most.get(group, 0), many)
    return dict(sorted(most.items()))


def _places(graph: Graph, groups: Mapping[Group, int]) -> Ints:
    """(o,) place of each operator in a layout."""
    ends = np.cumsum(list(groups.values())).tolist()
    free = {group: end - many for (group, many), end in zip(groups.items(), ends, strict=True)}
    place = []
    for group in graph.groups:
        place.append(free[group])
        free[group] += 1
    return np.array(place, np.int64)


@dataclass(frozen=True, eq=False)
class Stack:
    """Graphs as padded arrays.

    Attributes:
        layout: what they share.
        batch: the arrays, not scaled.
        sinks: per graph, places of its sinks among those of the layout's last group.
    """

    layout: Layout
    batch: Batch
    sinks: list[Ints]


def stack(
    graphs: Sequence[Graph], groups: Mapping[Group, int] | None = None, hosts: int | None = None
) -> Stack:
    """Graphs as padded arrays of single precision.

    Args:
        graphs: at least one.
        groups: `layout_of` these graphs, or more; None computes it.
        hosts: places for hosts; None takes the most that one graph needs.
    """
    groups = layout_of(graphs) if groups is None else groups
    layout = tuple((KINDS[group[-1]], many) for group, many in groups.items())
    many, total = len(graphs), sum(groups.values())
    last = layout[-1][1] if layout else 0
    wide = hosts or max(len(graph.hosts) for graph in graphs)
    table = np.zeros((total, many, WIDTH), np.float32)
    inputs = np.zeros((many, total, total), np.float32)
    placement = np.zeros((many, total, wide), np.float32)
    features = np.zeros((many, wide, len(HOST)), np.float32)
    sinks = []
    for number, graph in enumerate(graphs):
        place = _places(graph, groups)
        table[place, number] = graph.table
        # Two flows between the same operators are one edge.
        inputs[number, place[graph.ends[1]], place[graph.ends[0]]] = 1.0
        placement[number, place, graph.host] = 1.0
        features[number, : len(graph.hosts)] = graph.hosts
        sinks.append(place[graph.sinks] - (total - last))
    columns, edges, start = [], [], 0
    for kind, count in layout:
        columns.append(table[start : start + count, :, : len(FEATURES[kind])])
        edges.append(inputs[:, start : start + count, :start])
        start += count
    return Stack(layout, Batch(tuple(columns), tuple(edges), placement, features), sinks)
