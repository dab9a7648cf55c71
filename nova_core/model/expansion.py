"""From queries over logical streams to a graph of operators over physical ones.

Filters whose predicate reads one input alone move before joins, streams are expanded to their
sources (paper, section 3.3), decomposable aggregates get partial ones behind their inputs (section
3.6), and operators that emit the same tuples become one. None of that changes what a query emits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.arrays import Ints, Strings
from nova_core.model.graph import AGGREGATE, FILTER, JOIN, PROJECT, SINK, SOURCE, Graph, pair_graph
from nova_core.model.problem import Nodes, Problem
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
from nova_core.model.requirements import (
    ANY_NODE,
    PARTS,
    Rule,
    known_of,
    met_by,
    parts_of,
    requirements_of,
    rule_of,
)

ANY_PARTS = 2**30


class Rewriting(NamedTuple):
    """What `expand` may change in queries; by default they stay as they are written.

    Attributes:
        push_filters: whether filters move before joins.
        split_aggregates: whether decomposable aggregates get partial ones behind their inputs.
        share_operators: whether operators that emit the same tuples become one.
    """

    push_filters: bool = False
    split_aggregates: bool = False
    share_operators: bool = False


AS_WRITTEN = Rewriting()


class Step(msgspec.Struct):
    """A logical operator after rewriting.

    Attributes:
        operator: what it is.
        inputs: names of what it reads now.
        absorbs: filters that stood right behind it and run further up now.
        moved: whether it is such a filter.
        asks: what it requires of its nodes.
        does: what it does to its inputs, whatever these are, if others that do the same may be
            shared.
    """

    operator: LogicalOperator
    inputs: list[str]
    absorbs: list[str] = msgspec.field(default_factory=list)
    moved: bool = False
    asks: Rule = ANY_NODE
    does: bytes | None = None


def steps_of(query: Query, rewriting: Rewriting, *, columns: bool) -> list[Step]:
    """The steps of a query.

    Args:
        query: the query.
        rewriting: how it may be changed.
        columns: whether tuples have columns, so that expressions say what operators do.
    """
    if rewriting.push_filters:
        steps = pushed(query)
    else:
        steps = [Step(one, inputs_of(one)) for one in query.operators]
    for step in steps:
        step.asks = rule_of(**parts_of(step.operator))
        if rewriting.share_operators:
            step.does = _what(step.operator, columns)
    return steps


def _what(operator: LogicalOperator, columns: bool) -> bytes:
    """What an operator does to its inputs, whatever these are.

    Only where tuples have columns does it say so itself; else its name stands for its predicate.
    Columns that projections and aggregates make are called by the operator's name.
    """
    named = not columns or not isinstance(operator, Filter | Join)
    aside: dict[str, Any] = dict.fromkeys(PARTS, UNSET)
    if isinstance(operator, Join):
        aside["inputs"] = []
    else:
        aside["input"] = ""
    if isinstance(operator, Filter):
        aside["reads"] = UNSET
    if not named:
        aside["id"] = ""
    return msgspec.json.encode(msgspec.structs.replace(operator, **aside))


def pushed(query: Query) -> list[Step]:
    """The query's operators with every filter as far up as what it `reads` allows."""
    steps = {one.id: Step(one, inputs_of(one)) for one in query.operators}
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
        steps[one.id] = Step(one, [steps[below].inputs[side]], moved=True)
        steps[below].inputs[side] = one.id
        order.remove(one.id)
        order.insert(order.index(below), one.id)
    return [steps[name] for name in order]


def _way_up(moved: Filter, steps: dict[str, Step]) -> tuple[str, int] | None:
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


def _reaches(name: str, target: str, steps: dict[str, Step]) -> bool:
    if name == target:
        return True
    return name in steps and any(_reaches(one, target, steps) for one in steps[name].inputs)


# There is one for each operator, and no reference cycle that the garbage collector has to find.
class _Small(msgspec.Struct, frozen=True, gc=False):
    pass


class Emission(_Small, frozen=True):
    """How the rate of what an operator emits follows from the rates of what it receives.

    Attributes:
        kind: the operator's kind; None where filters end that have been moved up from there.
        inputs: emissions that it receives.
        share: selectivity; of an aggregate, tuples/s that it emits at most.
        moved: whether it is a filter that has been moved up.
        pending: shares that filters let pass: of a join those that were moved up from below it, of
            what has no kind those that end there.
    """

    kind: int | None
    inputs: tuple[int, ...] = ()
    share: float = 1.0
    moved: bool = False
    pending: tuple[float, ...] = ()

    def rates(self, known: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Tuples/s, and tuples/s if no filter had been moved up.

        Args:
            known: the same of the emissions before it.
        """
        rate, nominal = known[self.inputs[0]]
        if self.kind == JOIN:
            nominal = rate = self.share * min(nominal, known[self.inputs[1]][1])
            for share in self.pending:
                rate *= share
        elif self.kind == AGGREGATE:
            nominal = rate = min(sum(known[one][0] for one in self.inputs), self.share)
        elif self.kind is None:
            for share in self.pending:
                nominal *= share
        else:
            rate *= self.share
            nominal = nominal if self.moved else nominal * self.share
        return rate, nominal


class Partial(NamedTuple):
    """Whether an input of an aggregate has a partial one, which depends on its rate.

    Attributes:
        input: the emission.
        most: tuples/s that the partial aggregate would emit.
        node: where the input runs, -1 where that is not fixed.
        there: whether it has one.
    """

    input: int
    most: float
    node: int
    there: bool

    def pays(self, rate: float, sources: Sources) -> bool:
        """Whether the partial aggregate emits less than it receives, and has room."""
        return self.most < rate and (self.node < 0 or sources.room(self.node) >= rate)


class _Flow(_Small, frozen=True):
    """What one physical operator emits.

    Attributes:
        operator: its number.
        emission: how much it emits.
        key: key of the sources it comes from, if they have one in common.
        label: names of those sources.
        pending: filters moved up, with their selectivity, whose old place is further downstream.
    """

    operator: int
    emission: int
    key: str
    label: str
    pending: tuple[tuple[str, float], ...] = ()


# As above: it refers to nothing that refers to it.
class Row(msgspec.Struct, gc=False):
    """An operator before it is a row of the graph's columns, see `nova_core.model.graph.Graph`."""

    id: str
    kind: int
    inputs: tuple[int, ...]
    rate: float = 0.0
    node: int = -1
    source: int = -1
    query: int = -1
    root: int = -1
    parts: int = 1
    combines: bool = False
    partial: bool = False
    rule: Rule = ANY_NODE
    emits: Rule = ANY_NODE
    logical: str = ""
    # What it does to its inputs, if others that do the same may be shared.
    does: bytes | None = None


class _Ids(list[str]):
    def of(self, operators: Ints) -> Strings:
        return np.array([self[one] for one in operators.tolist()], np.str_)


class SourceOf(_Small, frozen=True):
    """A source, as queries read it.

    Attributes:
        row: its number.
        id: its name.
        node: where it is.
        rate: tuples/s.
        key: region or key; empty for none.
    """

    row: int
    id: str
    node: int
    rate: float
    key: str


class Sources(Protocol):
    """What queries read."""

    def of(self, stream: str, /) -> Iterable[SourceOf]:
        """The sources of a logical stream, in order."""

    def rule(self, stream: str, /) -> Rule:
        """What a stream's tuples require of every node where they are."""

    def room(self, node: int, /) -> float:
        """Tuples/s that operators on a node may receive; 0 where none may run."""

    def meets(self, node: int, rule: Rule, /) -> bool:
        """Whether a node has what a rule requires."""


class _ProblemSources:
    def __init__(self, problem: Problem) -> None:
        s = problem.sources
        key = [""] * len(s) if s.key is None else s.key.tolist()
        rows = zip(s.ids.tolist(), s.node.tolist(), s.rate.tolist(), key, strict=True)
        self._by_stream: dict[str, list[SourceOf]] = defaultdict(list)
        for row, (stream, values) in enumerate(zip(s.stream.tolist(), rows, strict=True)):
            self._by_stream[stream].append(SourceOf(row, *values))
        self._room = np.where(problem.nodes.worker, problem.nodes.capacity, 0.0)
        self._rules, self._nodes = problem.stream_rules, problem.nodes

    def of(self, stream: str) -> list[SourceOf]:
        return self._by_stream[stream]

    def rule(self, stream: str) -> Rule:
        return self._rules.get(stream, ANY_NODE)

    def room(self, node: int) -> float:
        return float(self._room[node])

    def meets(self, node: int, rule: Rule) -> bool:
        return met_by(rule, known_of(self._nodes, node))


class Expansion:
    """Queries become physical operators, one after the other.

    Attributes:
        rows: the operators so far, producers before consumers.
        joins: the query's operator of each join, by its number.
        emissions: how rates follow from each other.
        emitters: the operator of each emission.
        rates: tuples/s of each emission, and tuples/s if no filter had been moved up.
        partials: which inputs of aggregates have partial ones.
    """

    def __init__(self, sources: Sources, rewriting: Rewriting) -> None:
        """Start empty.

        Args:
            sources: what queries read.
            rewriting: how queries may be changed.
        """
        self._available = sources
        self._rewriting = rewriting
        self.rows: list[Row] = []
        # The rows that do something to some inputs.
        self._doing: dict[tuple[Any, ...], int] = {}
        self.joins: dict[int, Join] = {}
        self.emissions: list[Emission] = []
        self.emitters: list[int] = []
        self.rates: list[tuple[float, float]] = []
        self.partials: list[Partial] = []
        self._streams: dict[str, list[_Flow]] = {}

    def add(self, row: Row) -> int:
        """Add an operator, unless one that is there emits the same tuples at the same rate."""
        number = len(self.rows)
        if row.does is not None:
            rule = None if row.rule is ANY_NODE else row.rule  # quicker to look up
            what = (row.does, row.inputs, row.rate, row.partial, rule)
            same = self._doing.setdefault(what, number)
            if same != number:
                return same
        if row.root < 0:
            row.root = number
        self.rows.append(row)
        return number

    def graph(self, queries: int, nodes: Nodes) -> Graph:
        """What was added, as columns.

        Args:
            queries: how many queries that are.
            nodes: of the problem.

        Raises:
            ProblemError: for two operators of one name, and a rate that is no finite number.
        """
        rows = self.rows
        seen: set[str] = set()
        for one in rows:
            if one.id in seen:
                raise ProblemError(f"operator {one.id!r} is there twice")
            seen.add(one.id)
            if not np.isfinite(one.rate):
                raise ProblemError(f"operator {one.id!r}: emits {one.rate} tuples/s; use less")
        count = [len(one.inputs) for one in rows]
        requirements, requirement = requirements_of([one.rule for one in rows], nodes)
        return Graph(
            ids=_Ids(one.id for one in rows),
            kind=np.array([one.kind for one in rows], np.int8),
            input_at=np.cumsum([0, *count]),
            input=np.array([one for row in rows for one in row.inputs], np.int64),
            rate=np.array([one.rate for one in rows], np.float64),
            node=np.array([one.node for one in rows], np.int64),
            source=np.array([one.source for one in rows], np.int64),
            query=np.array([one.query for one in rows], np.int64),
            root=np.array([one.root for one in rows], np.int64),
            parts=np.array([one.parts for one in rows], np.int64),
            combines=np.array([one.combines for one in rows], bool),
            partial=np.array([one.partial for one in rows], bool),
            requirement=requirement,
            requirements=requirements,
            joins=self.joins,
            logical=[one.logical for one in rows],
            queries=queries,
        )

    def stream(self, name: str) -> list[_Flow]:
        """A flow per source of a logical stream."""
        if name not in self._streams:
            flows = self._streams[name] = []
            rule = self._available.rule(name)
            for one in self._available.of(name):
                row = self.add(Row(one.id, SOURCE, (), one.rate, one.node, one.row, emits=rule))
                emission = self._emitted(row, Emission(SOURCE), (one.rate, one.rate))
                flows.append(_Flow(row, emission, one.key, one.id))
        return self._streams[name]

    def _emitted(self, row: int, emission: Emission, rates: tuple[float, float]) -> int:
        """The number of one more emission, of an operator."""
        self.emitters.append(row)
        self.emissions.append(emission)
        self.rates.append(rates)
        return len(self.emissions) - 1

    def query(
        self, number: int, query: Query, steps: Sequence[Step], sink: int, place: str
    ) -> None:
        """Add a query's operators and its sink.

        Args:
            number: of the query.
            query: the query.
            steps: of `steps_of`.
            sink: the node of its sink.
            place: what errors begin with.

        Raises:
            ProblemError: for missing keys, or a join without pairs.
        """
        flows: dict[str, list[_Flow]] = {}
        last = query.operators[-1].id
        for step in steps:
            operator = step.operator
            inputs = [flows[n] if n in flows else self.stream(n) for n in step.inputs]
            name = f"{query.id}/{operator.id}"
            if isinstance(operator, Join):
                emitted = self._join(number, name, operator, inputs, step, place)
            elif isinstance(operator, Aggregate):
                emitted = self._aggregate(number, name, operator, inputs[0], step, place)
            else:
                emitted = [self._unary(number, name, operator, one, step) for one in inputs[0]]
            if step.absorbs:
                emitted = [self._absorb(flow, step.absorbs) for flow in emitted]
            flows[operator.id] = emitted
            if last in step.absorbs:
                last = operator.id
        ends = tuple(flow.operator for flow in flows[last])
        self.add(Row(f"{query.id}/sink", SINK, ends, node=sink, query=number))

    def _unary(
        self, query: int, name: str, operator: Filter | Project, flow: _Flow, step: Step
    ) -> _Flow:
        share = float(operator.selectivity or 1.0)
        kind = FILTER if isinstance(operator, Filter) else PROJECT
        emission = Emission(kind, (flow.emission,), share, step.moved)
        rates = emission.rates(self.rates)
        tuples = self._arriving((flow.operator,))
        rule = _rule(step, tuples)
        joins = share <= 1 and self._follows(rule, self.rows[flow.operator].root)
        number = self.add(
            Row(
                f"{name}({flow.label})",
                kind,
                (flow.operator,),
                rates[0],
                query=query,
                root=self.rows[flow.operator].root if joins else -1,
                parts=1 if joins else ANY_PARTS,
                rule=rule,
                emits=tuples,
                logical=operator.id,
                does=step.does,
            )
        )
        emitted = self._emitted(number, emission, rates)
        pending = (*flow.pending, (operator.id, share)) if step.moved else flow.pending
        return _Flow(number, emitted, flow.key, flow.label, pending)

    def _join(
        self,
        query: int,
        name: str,
        operator: Join,
        inputs: list[list[_Flow]],
        step: Step,
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
            order = {flow.operator: place for place, flow in enumerate(left)}
            pairs = [(a, b) for a, b in pairs if order[a.operator] < order[b.operator]]
        if not pairs:
            raise ProblemError(
                f"{place}: match of {operator.id!r}: no {step.inputs[0]!r} has the key of a "
                f"{step.inputs[1]!r}; nothing is joined"
            )
        joined = []
        for one, other in pairs:
            pending = one.pending + other.pending
            shares = tuple(share for _, share in pending)
            read = (one.emission, other.emission)
            emission = Emission(JOIN, read, operator.selectivity, pending=shares)
            rates = emission.rates(self.rates)
            label = f"{one.label}*{other.label}"
            ends = (one.operator, other.operator)
            tuples = self._arriving(ends)
            number = self.add(
                Row(
                    f"{name}({label})",
                    JOIN,
                    ends,
                    rates[0],
                    query=query,
                    parts=operator.keys,
                    rule=_rule(step, tuples),
                    emits=tuples,
                    logical=operator.id,
                    does=step.does,
                )
            )
            self.joins.setdefault(number, operator)
            key = one.key if one.key == other.key else ""
            emitted = self._emitted(number, emission, rates)
            joined.append(_Flow(number, emitted, key, label, pending))
        return joined

    def _aggregate(
        self,
        query: int,
        name: str,
        operator: Aggregate,
        flows: list[_Flow],
        step: Step,
        place: str,
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
            emission = Emission(AGGREGATE, tuple(one.emission for one in members), most)
            rates = emission.rates(self.rates)
            ends = [
                self._partial(query, whole, operator, flow, most, step)
                if self._rewriting.split_aggregates and operator.decomposable and len(members) > 1
                else flow.operator
                for flow in members
            ]
            number = self.add(
                Row(
                    whole,
                    AGGREGATE,
                    tuple(ends),
                    rates[0],
                    query=query,
                    parts=operator.groups,
                    combines=operator.decomposable,
                    rule=_rule(step, self._arriving(ends)),
                    logical=operator.id,
                    does=step.does,
                )
            )
            emitted = self._emitted(number, emission, rates)
            results.append(_Flow(number, emitted, key, key or operator.id))
        return results

    def _partial(
        self, query: int, name: str, operator: Aggregate, flow: _Flow, most: float, step: Step
    ) -> int:
        """The partial aggregate of one input, where it emits less than it receives."""
        node = self.rows[self.rows[flow.operator].root].node
        tuples = self._arriving((flow.operator,))
        rule = _rule(step, tuples)
        if node >= 0 and not self._available.meets(node, rule):
            return flow.operator
        partial = Partial(flow.emission, most, node, True)
        there = partial.pays(self.rates[flow.emission][0], self._available)
        self.partials.append(partial._replace(there=there))
        if not there:
            return flow.operator
        return self.add(
            Row(
                f"{name}.partial({flow.label})",
                AGGREGATE,
                (flow.operator,),
                most,
                query=query,
                parts=operator.groups,
                partial=True,
                rule=rule,
                emits=tuples,
                logical=operator.id,
                does=step.does,
            )
        )

    def _absorb(self, flow: _Flow, absorbs: list[str]) -> _Flow:
        """What an operator emits once filters end that have been moved up from behind it."""
        ends = tuple(share for name, share in flow.pending if name in absorbs)
        if not ends:
            return flow
        emission = Emission(None, (flow.emission,), pending=ends)
        pending = tuple(one for one in flow.pending if one[0] not in absorbs)
        emitted = self._emitted(flow.operator, emission, emission.rates(self.rates))
        return msgspec.structs.replace(flow, emission=emitted, pending=pending)

    def _arriving(self, inputs: Sequence[int]) -> Rule:
        """The rule of the tuples that inputs emit."""
        rule = ANY_NODE
        for one in inputs:
            emits = self.rows[one].emits
            if emits is not ANY_NODE:  # quicker than by its value
                rule &= emits
        return rule

    def _follows(self, rule: Rule, other: int) -> bool:
        """Whether wherever an operator may run, or must, a rule is met."""
        if rule is ANY_NODE:
            return True
        row = self.rows[other]
        return (
            row.rule & rule == row.rule if row.node < 0 else self._available.meets(row.node, rule)
        )


def _rule(step: Step, tuples: Rule) -> Rule:
    """What an operator requires of its nodes, and the tuples that reach it."""
    return tuples if step.asks is ANY_NODE else step.asks & tuples


def graph_of(problem: Problem, rewriting: Rewriting = AS_WRITTEN) -> Graph:
    """What a problem asks to place: its pairs, or its queries' physical operators.

    A problem keeps the graphs that were made of it.

    Args:
        problem: with the joins or queries.
        rewriting: how queries may be changed; pairs stay as they are.

    Raises:
        ProblemError: for unknown names, missing keys, or a join without pairs.
    """
    kept: dict[Rewriting, Graph] = problem.graphs
    if rewriting not in kept:
        kept[rewriting] = expand(problem, rewriting) if problem.queries else pair_graph(problem)
    return kept[rewriting]


def expand(problem: Problem, rewriting: Rewriting) -> Graph:
    """A problem's queries as one graph of physical operators; `graph_of` keeps it.

    Raises:
        ProblemError: for unknown names, missing keys, or a join without pairs.
    """
    check_queries(problem, problem.name)
    expansion = Expansion(_ProblemSources(problem), rewriting)
    for number, query in enumerate(problem.queries):
        steps = steps_of(query, rewriting, columns=bool(problem.streams))
        sink = problem.node_index[query.sink]
        expansion.query(number, query, steps, sink, f"{problem.name}: queries[{number}]")
    return expansion.graph(len(problem.queries), problem.nodes)
