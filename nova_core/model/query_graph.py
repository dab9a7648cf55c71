"""From queries over logical streams to a graph of operators over physical ones.

Filters whose predicate reads one input alone move before joins, streams are expanded to their
sources (paper, section 3.3), and decomposable aggregates get partial ones behind their inputs
(section 3.6). None of that changes what a query emits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.operator_graph import Operator, OperatorGraph
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.model.queries import (
    Aggregate,
    Filter,
    Join,
    LogicalOperator,
    Project,
    Query,
    inputs_of,
)
from nova_core.model.query_checks import check_queries

PARTIAL = "partial"
"""Expression of an aggregate that emits partial results."""

ANY_PARTS = 2**30


@dataclass(frozen=True, eq=False)
class QueryGraph:
    """Queries as physical operators, with what placement needs to know.

    Attributes:
        graph: sources, filters, projections, aggregates, joins and a sink per query.
        root: (o,) the operator each runs with: a filter with what it reads from, any other with
            itself.
        parts: (o,) how many shares an operator can be cut into by the values of columns: groups of
            an aggregate, keys of a join.
        combines: (o,) whether an operator can be computed of partial results.
        joins: the query's operator of each join, by its number.
        rewriting: options of `expand`: ``push_filters`` and ``split_aggregates``.
    """

    graph: OperatorGraph
    root: Ints
    parts: Ints
    combines: Bools
    joins: Mapping[int, Join]
    rewriting: Mapping[str, bool]

    @cached_property
    def links(self) -> tuple[Ints, Ints, Ints, Floats]:
        """(e,) producer, consumer, number of the consumer's input and tuples/s of every link.

        Operators that run with others are left out; their output is that of what they run with.
        """
        root = self.root.tolist()
        producer, consumer, side, rate = [], [], [], []
        operators = self.graph.operators
        for number, operator in enumerate(operators):
            if root[number] == number:
                for place, one in enumerate(operator.inputs):
                    producer.append(root[one])
                    consumer.append(number)
                    side.append(place)
                    rate.append(operators[one].output_rate)
        return (
            np.array(producer, np.int64),
            np.array(consumer, np.int64),
            np.array(side, np.int64),
            np.array(rate, np.float64),
        )

    @cached_property
    def carried(self) -> Ints:
        """(e,) operator whose output a link carries: its producer, or what runs with that."""
        rows = np.flatnonzero(self.root == np.arange(len(self.root))).tolist()
        return np.array([one for row in rows for one in self.graph[row].inputs], np.int64)

    @cached_property
    def bodies(self) -> Ints:
        """Operators that are placed, in order."""
        free = self.graph.pinned() < 0
        return np.flatnonzero(free & (self.root == np.arange(len(self.root))))

    @cached_property
    def names(self) -> list[str]:
        """Ids of the bodies."""
        return [self.graph[one].id for one in self.bodies.tolist()]

    @cached_property
    def input_rate(self) -> Floats:
        """(2b,) tuples/s of what bodies receive: left and right of a join; of others all, and 0."""
        _, consumer, side, rate = self.links
        row = np.searchsorted(self.bodies, np.arange(len(self.root)))
        joins = np.array([one.kind == "join" for one in self.graph.operators])
        body = np.isin(consumer, self.bodies)
        at = 2 * row[consumer] + np.where(joins[consumer], side, 0)
        return np.bincount(at[body], rate[body], 2 * len(self.bodies)).astype(np.float64)

    @cached_property
    def runs_with(self) -> Mapping[int, list[str]]:
        """Ids of the filters and projections that run with an operator, by its number."""
        ids: dict[int, list[str]] = defaultdict(list)
        for one in self.fused.tolist():
            ids[int(self.root[one])].append(self.graph[one].id)
        return ids

    @cached_property
    def fused(self) -> Ints:
        """Operators that run with others, in order."""
        return np.flatnonzero(self.root != np.arange(len(self.root)))

    @cached_property
    def required(self) -> Floats:
        """(o,) tuples/s each body receives, 0 of all others: C_r (paper, section 2.2)."""
        _, consumer, _, rate = self.links
        rates = np.bincount(consumer, rate, len(self.root)).astype(np.float64)
        rates[self.graph.pinned() >= 0] = 0.0
        return rates

    @cached_property
    def paths(self) -> Floats:
        """(e,) source-to-sink paths through every link."""
        producer, consumer, _, _ = self.links
        ends, many = list(zip(producer.tolist(), consumer.tolist(), strict=True)), len(self.root)
        before, after = [0.0] * many, [0.0] * many
        for number, operator in enumerate(self.graph.operators):
            before[number] = float(operator.kind == "source")
            after[number] = float(operator.kind == "sink")
        # Links are in the order of their consumers, which come after their producers.
        for one, other in ends:
            before[other] += before[one]
        for one, other in reversed(ends):
            after[one] += after[other]
        return np.array([before[one] * after[other] for one, other in ends], np.float64)


@dataclass(frozen=True)
class _Step:
    """A logical operator after rewriting.

    Attributes:
        operator: what it is.
        inputs: names of what it reads now.
        absorbs: filters that stood right behind it and run further up now.
        moved: whether it is such a filter.
    """

    operator: LogicalOperator
    inputs: list[str]
    absorbs: list[str] = field(default_factory=list)
    moved: bool = False


def pushed(query: Query) -> list[_Step]:
    """The query's operators with every filter as far up as what it `reads` allows."""
    steps = {one.id: _Step(one, inputs_of(one)) for one in query.operators}
    order = [one.id for one in query.operators]
    for one in query.operators:
        if not isinstance(one, Filter) or one.reads is UNSET:
            continue
        way = _way_up(one, steps)
        if way is None:
            continue
        below, side = way
        # The filter's consumers now read its former input.
        before = steps[one.id].inputs[0]
        steps[before].absorbs.append(one.id)
        steps[before].absorbs.extend(steps[one.id].absorbs)
        for other in steps.values():
            other.inputs[:] = [before if name == one.id else name for name in other.inputs]
        steps[one.id] = _Step(one, [steps[below].inputs[side]], moved=True)
        steps[below].inputs[side] = one.id
        order.remove(one.id)
        order.insert(order.index(below), one.id)
    return [steps[name] for name in order]


def _way_up(moved: Filter, steps: dict[str, _Step]) -> tuple[str, int] | None:
    """The operator before which a filter can run, and which of its inputs; None to stay."""
    place = None
    below = moved.id
    while True:
        name = steps[below].inputs[0] if place is None else steps[below].inputs[place[1]]
        if name == moved.reads or name not in steps:
            return place
        readers = sum(step.inputs.count(name) for step in steps.values())
        step = steps[name]
        if readers > 1 or isinstance(step.operator, Aggregate):
            return place
        sides = [
            side for side, one in enumerate(step.inputs) if _reaches(one, str(moved.reads), steps)
        ]
        if len(sides) != 1:
            return place
        place, below = (name, sides[0]), name


def _reaches(name: str, target: str, steps: dict[str, _Step]) -> bool:
    if name == target:
        return True
    return name in steps and any(_reaches(one, target, steps) for one in steps[name].inputs)


@dataclass(frozen=True)
class _Flow:
    """What one physical operator emits.

    Attributes:
        operator: its number.
        rate: tuples/s.
        nominal: tuples/s if no filter had been moved up.
        key: key of the sources it comes from, if they have one in common.
        label: names of those sources.
        pending: filters moved up, with their selectivity, whose old place is further downstream.
    """

    operator: int
    rate: float
    nominal: float
    key: str
    label: str
    pending: tuple[tuple[str, float], ...] = ()


class _Expansion:
    def __init__(self, problem: Problem, split: bool) -> None:
        self._problem = problem
        self._split = split
        self.operators: list[Operator] = []
        self.root: list[int] = []
        self.parts: list[int] = []
        self.combines: list[bool] = []
        self.joins: dict[int, Join] = {}
        sources = problem.sources
        self._by_stream: dict[str, list[int]] = defaultdict(list)
        for number, stream in enumerate(sources.stream.tolist()):
            self._by_stream[stream].append(number)
        self._sources: dict[int, _Flow] = {}
        self._room = np.where(problem.nodes.worker, problem.nodes.capacity, 0.0)

    def add(
        self, operator: Operator, root: int | None = None, parts: int = 1, combines: bool = False
    ) -> int:
        number = len(self.operators)
        self.operators.append(operator)
        self.root.append(number if root is None else root)
        self.parts.append(parts)
        self.combines.append(combines)
        return number

    def stream(self, name: str) -> list[_Flow]:
        """A flow per source of a logical stream."""
        s, flows = self._problem.sources, []
        for row in self._by_stream[name]:
            if row not in self._sources:
                rate, label = float(s.rate[row]), str(s.ids[row])
                number = self.add(
                    Operator(label, "source", output_rate=rate, node=int(s.node[row]), query=-1)
                )
                key = "" if s.key is None else str(s.key[row])
                self._sources[row] = _Flow(number, rate, rate, key, label)
            flows.append(self._sources[row])
        return flows

    def query(self, number: int, query: Query, steps: Sequence[_Step], place: str) -> None:
        """Add a query's operators and its sink."""
        flows: dict[str, list[_Flow]] = {}
        last = query.operators[-1].id
        for step in steps:
            operator = step.operator
            inputs = [flows[n] if n in flows else self.stream(n) for n in step.inputs]
            name = f"{query.id}/{operator.id}"
            if isinstance(operator, Join):
                emitted = self._join(number, name, operator, inputs, step, place)
            elif isinstance(operator, Aggregate):
                emitted = self._aggregate(number, name, operator, inputs[0], place)
            else:
                emitted = [
                    self._unary(number, name, operator, one, step.moved) for one in inputs[0]
                ]
            flows[operator.id] = [_absorb(flow, step.absorbs) for flow in emitted]
            if last in step.absorbs:
                last = operator.id
        ends = tuple(flow.operator for flow in flows[last])
        sink = self._problem.node_index[query.sink]
        self.add(Operator(f"{query.id}/sink", "sink", ends, node=sink, query=number))

    def _unary(
        self, query: int, name: str, operator: Filter | Project, flow: _Flow, moved: bool
    ) -> _Flow:
        share = float(operator.selectivity or 1.0)
        rate = flow.rate * share
        joins = share <= 1
        number = self.add(
            Operator(
                f"{name}({flow.label})",
                "filter" if isinstance(operator, Filter) else "project",
                (flow.operator,),
                rate,
                query=query,
                logical=operator.id,
            ),
            self.root[flow.operator] if joins else None,
            1 if joins else ANY_PARTS,
        )
        if moved:
            pending = (*flow.pending, (operator.id, share))
            return _Flow(number, rate, flow.nominal, flow.key, flow.label, pending)
        return _Flow(number, rate, flow.nominal * share, flow.key, flow.label, flow.pending)

    def _join(
        self,
        query: int,
        name: str,
        operator: Join,
        inputs: list[list[_Flow]],
        step: _Step,
        place: str,
    ) -> list[_Flow]:
        left, right = inputs
        match = operator.match
        keyless = next((flow for flow in [*left, *right] if not flow.key), None)
        if match == "key" and keyless is not None:
            raise ProblemError(
                f"{place}: match of {operator.id!r}: key, but {keyless.label!r} has no key"
            )
        if match == "all" or (match is UNSET and keyless is not None):
            pairs = list(product(left, right))
        else:
            by_key: dict[str, list[_Flow]] = defaultdict(list)
            for flow in right:
                by_key[flow.key].append(flow)
            pairs = [(one, other) for one in left for other in by_key[one.key]]
        if step.inputs[0] == step.inputs[1]:
            pairs = [(a, b) for a, b in pairs if a.operator < b.operator]
        if not pairs:
            raise ProblemError(
                f"{place}: match of {operator.id!r}: no {step.inputs[0]!r} has the key of a "
                f"{step.inputs[1]!r}; nothing is joined"
            )
        joined = []
        for one, other in pairs:
            nominal = operator.selectivity * min(one.nominal, other.nominal)
            pending = one.pending + other.pending
            rate = nominal
            for _, share in pending:
                rate *= share
            label = f"{one.label}*{other.label}"
            ends = (one.operator, other.operator)
            number = self.add(
                Operator(f"{name}({label})", "join", ends, rate, query=query, logical=operator.id),
                parts=operator.keys,
            )
            self.joins[number] = operator
            key = one.key if one.key == other.key else ""
            joined.append(_Flow(number, rate, nominal, key, label, pending))
        return joined

    def _aggregate(
        self, query: int, name: str, operator: Aggregate, flows: list[_Flow], place: str
    ) -> list[_Flow]:
        groups: dict[str, list[_Flow]] = defaultdict(list)
        for flow in flows:
            if operator.by == "key" and not flow.key:
                raise ProblemError(
                    f"{place}: by of {operator.id!r}: key, but {flow.label!r} has no key"
                )
            groups[flow.key if operator.by == "key" else ""].append(flow)
        if operator.output_rate is not UNSET:
            most = float(operator.output_rate)
        else:
            assert operator.window is not UNSET  # checked when read
            every = operator.window if operator.slide is UNSET else operator.slide
            most = operator.groups / float(every)
        results = []
        for key, members in groups.items():
            whole = f"{name}({key})" if key else name
            emitted = min(sum(flow.rate for flow in members), most)
            ends = [
                self._partial(query, whole, operator, flow, most)
                if self._split and operator.decomposable and len(members) > 1
                else flow.operator
                for flow in members
            ]
            number = self.add(
                Operator(
                    whole, "aggregate", tuple(ends), emitted, query=query, logical=operator.id
                ),
                None,
                operator.groups,
                operator.decomposable,
            )
            label = key or operator.id
            results.append(_Flow(number, emitted, emitted, key, label))
        return results

    def _partial(self, query: int, name: str, operator: Aggregate, flow: _Flow, most: float) -> int:
        """The partial aggregate of one input, where it emits less than it receives."""
        root = self.operators[self.root[flow.operator]]
        here = root.node is None or self._room[root.node] >= flow.rate
        if most >= flow.rate or not here:
            return flow.operator
        return self.add(
            Operator(
                f"{name}.{PARTIAL}({flow.label})",
                "aggregate",
                (flow.operator,),
                most,
                query=query,
                expression=PARTIAL,
                logical=operator.id,
            ),
            None,
            operator.groups,
        )


def _absorb(flow: _Flow, absorbs: list[str]) -> _Flow:
    nominal = flow.nominal
    for name, share in flow.pending:
        if name in absorbs:
            nominal *= share
    pending = tuple(one for one in flow.pending if one[0] not in absorbs)
    return _Flow(flow.operator, flow.rate, nominal, flow.key, flow.label, pending)


def expand(
    problem: Problem, *, push_filters: bool = True, split_aggregates: bool = True
) -> QueryGraph:
    """A problem's queries as one graph of physical operators.

    Args:
        problem: with the queries.
        push_filters: whether filters move before joins.
        split_aggregates: whether decomposable aggregates get partial ones behind their inputs.

    Raises:
        ProblemError: for unknown names, missing keys, or a join without pairs.
    """
    check_queries(problem, problem.name)
    expansion = _Expansion(problem, split_aggregates)
    for number, query in enumerate(problem.queries):
        steps = pushed(query) if push_filters else [_Step(o, inputs_of(o)) for o in query.operators]
        expansion.query(number, query, steps, f"{problem.name}: queries[{number}]")
    return QueryGraph(
        OperatorGraph(expansion.operators),
        np.array(expansion.root, np.int64),
        np.array(expansion.parts, np.int64),
        np.array(expansion.combines, bool),
        expansion.joins,
        {"push_filters": push_filters, "split_aggregates": split_aggregates},
    )
