"""From queries over logical streams to a graph of operators over physical ones.

Filters whose predicate reads one input alone move before joins, streams are expanded to their
sources (paper, section 3.3), decomposable aggregates get partial ones behind their inputs (section
3.6), and operators that emit the same tuples become one. None of that changes what a query emits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.arrays import Ints, Strings
from nova_core.model.graph import AGGREGATE, FILTER, JOIN, PROJECT, SINK, SOURCE, Graph, pair_graph
from nova_core.model.problem import Problem
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
    Rule,
    known_of,
    met_by,
    requirements_of,
    rule_of,
    stream_rules,
    zone_rule,
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


@dataclass
class _Row:
    """An operator before it is a row of the graph's columns."""

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


class _Ids(list[str]):
    def of(self, operators: Ints) -> Strings:
        return np.array([self[one] for one in operators.tolist()], np.str_)


class _Expansion:
    def __init__(self, problem: Problem, rewriting: Rewriting) -> None:
        self._problem = problem
        self._rewriting = rewriting
        self._rows: list[_Row] = []
        # What operators of queries do, and the rows that do it to some inputs.
        self._does: dict[tuple[int, str], bytes] = {}
        self._doing: dict[tuple[Any, ...], int] = {}
        self._joins: dict[int, Join] = {}
        sources = problem.sources
        self._by_stream: dict[str, list[int]] = defaultdict(list)
        for number, stream in enumerate(sources.stream.tolist()):
            self._by_stream[stream].append(number)
        self._sources: dict[int, _Flow] = {}
        self._streams = stream_rules(problem)
        self._room = np.where(problem.nodes.worker, problem.nodes.capacity, 0.0)

    def add(self, row: _Row) -> int:
        """Add an operator, unless one that is there emits the same tuples at the same rate."""
        number = len(self._rows)
        does = self._does.get((row.query, row.logical))
        if does is not None:
            rule = None if row.rule is ANY_NODE else row.rule  # quicker to look up
            what = (does, row.inputs, row.rate, row.partial, rule)
            same = self._doing.setdefault(what, number)
            if same != number:
                return same
        if row.root < 0:
            row.root = number
        self._rows.append(row)
        return number

    def _what(self, operator: LogicalOperator) -> bytes:
        """What an operator does to its inputs, whatever these are.

        Only where tuples have columns does it say so itself; else its name stands for its
        predicate. Columns that projections and aggregates make are called by the operator's name.
        """
        named = not self._problem.streams or not isinstance(operator, Filter | Join)
        known = msgspec.to_builtins(operator)
        aside = ("input", "inputs", "reads", "requires", "zones")
        for name in aside if named else (*aside, "id"):
            known.pop(name, None)
        return msgspec.json.encode(known)

    def graph(self) -> Graph:
        """What was added, as columns.

        Raises:
            ProblemError: for two operators of one name, and a rate that is no finite number.
        """
        rows = self._rows
        seen: set[str] = set()
        for one in rows:
            if one.id in seen:
                raise ProblemError(f"operator {one.id!r} is there twice")
            seen.add(one.id)
            if not np.isfinite(one.rate):
                raise ProblemError(f"operator {one.id!r}: emits {one.rate} tuples/s; use less")
        count = [len(one.inputs) for one in rows]
        requirements, requirement = requirements_of([one.rule for one in rows], self._problem.nodes)
        return Graph(
            ids=_Ids(one.id for one in rows),
            kind=np.array([one.kind for one in rows], np.int64),
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
            joins=self._joins,
            logical=[one.logical for one in rows],
            queries=len(self._problem.queries),
        )

    def stream(self, name: str) -> list[_Flow]:
        """A flow per source of a logical stream."""
        s, flows = self._problem.sources, []
        for row in self._by_stream[name]:
            if row not in self._sources:
                rate, label = float(s.rate[row]), str(s.ids[row])
                emits = self._streams.get(name, ANY_NODE)
                number = self.add(_Row(label, SOURCE, (), rate, int(s.node[row]), row, emits=emits))
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
            if self._rewriting.share_operators:
                self._does[number, operator.id] = self._what(operator)
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
        self.add(_Row(f"{query.id}/sink", SINK, ends, node=sink, query=number))

    def _unary(
        self, query: int, name: str, operator: Filter | Project, flow: _Flow, moved: bool
    ) -> _Flow:
        share = float(operator.selectivity or 1.0)
        rate = flow.rate * share
        tuples = self._arriving((flow.operator,))
        rule = _rule(operator, tuples)
        joins = share <= 1 and self._follows(rule, self._rows[flow.operator].root)
        number = self.add(
            _Row(
                f"{name}({flow.label})",
                FILTER if isinstance(operator, Filter) else PROJECT,
                (flow.operator,),
                rate,
                query=query,
                root=self._rows[flow.operator].root if joins else -1,
                parts=1 if joins else ANY_PARTS,
                rule=rule,
                emits=tuples,
                logical=operator.id,
            )
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
            order = {flow.operator: place for place, flow in enumerate(left)}
            pairs = [(a, b) for a, b in pairs if order[a.operator] < order[b.operator]]
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
            tuples = self._arriving(ends)
            number = self.add(
                _Row(
                    f"{name}({label})",
                    JOIN,
                    ends,
                    rate,
                    query=query,
                    parts=operator.keys,
                    rule=_rule(operator, tuples),
                    emits=tuples,
                    logical=operator.id,
                )
            )
            self._joins.setdefault(number, operator)
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
                if self._rewriting.split_aggregates and operator.decomposable and len(members) > 1
                else flow.operator
                for flow in members
            ]
            number = self.add(
                _Row(
                    whole,
                    AGGREGATE,
                    tuple(ends),
                    emitted,
                    query=query,
                    parts=operator.groups,
                    combines=operator.decomposable,
                    rule=_rule(operator, self._arriving(ends)),
                    logical=operator.id,
                )
            )
            label = key or operator.id
            results.append(_Flow(number, emitted, emitted, key, label))
        return results

    def _partial(self, query: int, name: str, operator: Aggregate, flow: _Flow, most: float) -> int:
        """The partial aggregate of one input, where it emits less than it receives."""
        source = self._rows[self._rows[flow.operator].root].node
        tuples = self._arriving((flow.operator,))
        rule = _rule(operator, tuples)
        here = source < 0 or (self._room[source] >= flow.rate and self._meets(source, rule))
        if most >= flow.rate or not here:
            return flow.operator
        return self.add(
            _Row(
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
            )
        )

    def _arriving(self, inputs: Sequence[int]) -> Rule:
        """The rule of the tuples that inputs emit."""
        rule = ANY_NODE
        for one in inputs if self._streams else ():
            rule &= self._rows[one].emits
        return rule

    def _meets(self, node: int, rule: Rule) -> bool:
        return met_by(rule, *known_of(self._problem.nodes, node))

    def _follows(self, rule: Rule, other: int) -> bool:
        """Whether wherever an operator may run, or must, a rule is met."""
        if rule is ANY_NODE:
            return True
        row = self._rows[other]
        return row.rule & rule == row.rule if row.node < 0 else self._meets(row.node, rule)


def _rule(operator: LogicalOperator, tuples: Rule) -> Rule:
    """What an operator requires of its nodes, and the tuples that reach it."""
    if operator.requires is UNSET and operator.zones is UNSET:
        return tuples
    rule = zone_rule(operator.zones) & tuples
    if operator.requires is not UNSET:
        tags, memory = operator.requires.tags, operator.requires.memory
        rule &= rule_of(
            "" if tags is UNSET else ",".join(tags),
            np.nan if memory is UNSET or memory is None else memory,
        )
    return ANY_NODE if rule == ANY_NODE else rule


def _absorb(flow: _Flow, absorbs: list[str]) -> _Flow:
    nominal = flow.nominal
    for name, share in flow.pending:
        if name in absorbs:
            nominal *= share
    pending = tuple(one for one in flow.pending if one[0] not in absorbs)
    return _Flow(flow.operator, flow.rate, nominal, flow.key, flow.label, pending)


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
    expansion = _Expansion(problem, rewriting)
    for number, query in enumerate(problem.queries):
        if rewriting.push_filters:
            steps = pushed(query)
        else:
            steps = [_Step(one, inputs_of(one)) for one in query.operators]
        expansion.query(number, query, steps, f"{problem.name}: queries[{number}]")
    return expansion.graph()
