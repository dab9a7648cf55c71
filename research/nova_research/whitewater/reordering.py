"""Another order of a query's filters and joins: the first of WhiteWater's two phases (section 5.4).

Its search looks for the order that a single machine keeps up with longest. Queries are cut into
blocks of filters and joins that may change places; what else there is stays where it is, and with
it aggregates, projections, operators that several read, and joins whose condition is not known or
compares more than one stream on a side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from msgspec import UNSET

from nova_core.io.binding import Bound, bind, bound_queries, keyed_streams
from nova_core.io.expressions import Expression, columns_of
from nova_core.model.expansion import graph_of
from nova_core.model.graph import JOIN
from nova_core.model.problem import Problem
from nova_core.model.queries import Filter, Join, LogicalOperator, Query, inputs_of
from nova_research.whitewater.query import (
    Network,
    ProfiledOperator,
    ProfiledQuery,
    bottom_up,
)
from nova_research.whitewater.search import SearchParameters, optimize

# An order must be better by this share, or the written one stays.
LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Order:
    """The orders of a query before and after the search.

    Attributes:
        query: its id.
        before: the order that is written; joins as ``(a * b)``, filters as ``filter(a)``.
        after: the order that the search chooses.
        load: tuples/s that joins receive as written.
        reordered: the same in the other order.
    """

    query: str
    before: str
    after: str
    load: float
    reordered: float


@dataclass(frozen=True)
class _Tree:
    """A block, or a part of it.

    Attributes:
        name: the operator at its root; of a leaf the stream or operator whose output it is.
        children: parts it reads; none of a leaf.
        labels: of the leaves below.
        reads: labels of the leaves whose columns the root looks at.
        joins: what joins in it have in common: match, window and slide; None where there is none.
    """

    name: str
    children: tuple[_Tree, ...] = ()
    labels: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    joins: tuple[object, ...] | None = None

    def parts(self) -> Iterator[_Tree]:
        """All parts, children first."""
        for child in self.children:
            yield from child.parts()
        yield self


@dataclass
class _Blocks:
    """The blocks of a query, while its operators are read."""

    problem: Problem
    query: Query
    bound: Mapping[str, Bound]
    open: dict[str, _Tree] = field(default_factory=dict)
    leaf_name: dict[str, str] = field(default_factory=dict)

    def of_query(self) -> list[_Tree]:
        """Blocks of more than one operator."""
        readers = Counter(name for one in self.query.operators for name in inputs_of(one))
        roots: dict[str, _Tree] = {}
        for one in self.query.operators:
            tree = self._tree(one)
            if tree is None:
                continue
            for child in tree.children:
                if child.children:
                    del roots[child.name]
            roots[one.id] = tree
            if readers[one.id] == 1:
                self.open[one.id] = tree
        return [tree for tree in roots.values() if any(child.children for child in tree.children)]

    def _part(self, name: str) -> _Tree:
        """What an operator reads: a part of its block, or a leaf."""
        return self.open[name] if name in self.open else self._leaf(name)

    def _leaf(self, name: str) -> _Tree:
        label = f"{name} {len(self.leaf_name)}"
        self.leaf_name[label] = name
        return _Tree(name, labels=(label,))

    def _tree(self, one: LogicalOperator) -> _Tree | None:
        if isinstance(one, Filter):
            part = self._part(one.input)
            return _Tree(one.id, (part,), part.labels, self._filter_reads(one, part), part.joins)
        if not isinstance(one, Join):
            return None
        shape = (self._by_key(one), one.window, one.slide)
        parts = [self._part(name) for name in one.inputs]
        for side, part in enumerate(parts):
            if part.joins not in (None, shape):
                parts[side] = self._leaf(one.inputs[side])
        labels = parts[0].labels + parts[1].labels
        reads = self._join_reads(one, parts)
        return None if reads is None else _Tree(one.id, tuple(parts), labels, reads, shape)

    def _by_key(self, one: Join) -> bool:
        """Whether a join pairs sources of one key."""
        if one.match is not UNSET:
            return one.match == "key"
        keyed = keyed_streams(self.problem)
        return all(name in keyed for side in one.inputs for name in self._streams(side))

    def _streams(self, name: str) -> set[str]:
        above = {one.id: inputs_of(one) for one in self.query.operators}
        if name not in above:
            return {name}
        return set().union(*(self._streams(each) for each in above[name]))

    def _filter_reads(self, one: Filter, part: _Tree) -> tuple[str, ...]:
        condition = self.bound[one.id].condition if self.bound else None
        if condition is not None:
            return self._labels(condition, part)
        return tuple(x for x in part.labels if self.leaf_name[x] == one.reads) or part.labels

    def _join_reads(self, one: Join, parts: list[_Tree]) -> tuple[str, ...] | None:
        """One leaf of each side; None unless the join is known to compare only these."""
        if not self.bound:
            # All keys are equal, so any leaf of a side will do.
            by_key = self._by_key(one)
            return (parts[0].labels[0], parts[1].labels[0]) if by_key else None
        condition = self.bound[one.id].condition
        if condition is None:
            return None
        sides = [self._labels(condition, part) for part in parts]
        return sides[0] + sides[1] if [len(side) for side in sides] == [1, 1] else None

    def _labels(self, condition: Expression, part: _Tree) -> tuple[str, ...]:
        """Leaves of a part whose columns a condition reads."""
        read = set(columns_of(condition))
        return tuple(x for x in part.labels if read & set(self.bound[self.leaf_name[x]].columns))


def reordered(problem: Problem, seed: int = 0) -> tuple[Problem, list[Order]]:
    """The problem with its queries in the order that WhiteWater finds, and what changed.

    By WhiteWater's model (Table 3) a join emits a constant share of the product of its inputs'
    rates. That share is taken from the written order. Selectivities are adapted so that operators
    emit what follows from it; the query as a whole emits the same as before.

    Args:
        problem: with queries.
        seed: of the search.

    Raises:
        ProblemError: for queries that do not go with the problem.
    """
    graph = graph_of(problem)
    rates: list[dict[str, float]] = [defaultdict(float) for _ in problem.queries]
    for one in graph:
        if one.kind not in ("source", "sink"):
            rates[one.query][one.logical] += one.rate
    streams: dict[str, float] = defaultdict(float)
    sources = problem.sources
    for name, rate in zip(sources.stream.tolist(), sources.rate.tolist(), strict=True):
        streams[name] += rate
    orders = []
    for number, query in enumerate(problem.queries):
        known = {**streams, **rates[number]}
        blocks = _Blocks(problem, query, bind(query, problem) if problem.streams else {})
        changed, targets = query, dict[str, float]()
        for tree in blocks.of_query():
            order = _search(tree, query, known, blocks.leaf_name, seed)
            if order is not None:
                changed = _rewired(changed, tree.name, order.inputs)
                targets |= order.rates
        other = _with_rates(problem, number, changed, targets)
        load, after = _received(problem, number), _received(other, number)
        if after >= load:
            other, changed, after = problem, query, load
        problem = other
        orders.append(Order(query.id, _text(query), _text(changed), load, after))
    return replace(problem, queries=bound_queries(problem, problem.name)), orders


@dataclass(frozen=True)
class _BlockOrder:
    """A block's order.

    Attributes:
        inputs: what every operator reads now, producers first.
        rates: tuples/s that joins emit now.
    """

    inputs: dict[str, list[str]]
    rates: dict[str, float]


def _search(
    tree: _Tree, query: Query, rates: Mapping[str, float], leaf_name: Mapping[str, str], seed: int
) -> _BlockOrder | None:
    """The best order of a block on one machine that is just fast enough for the written one.

    None where that is the best.
    """
    operator = {one.id: one for one in query.operators}
    parts = list(tree.parts())
    number = {id(part): row for row, part in enumerate(parts)}
    profiled = []
    for part in parts:
        inputs = tuple(number[id(child)] for child in part.children)
        if not inputs:
            [label] = part.labels
            one = ProfiledOperator(label, "source", rate=rates[part.name], columns=(label,))
        else:
            incoming = float(np.prod([rates[child.name] for child in part.children]))
            share, columns = rates[part.name] / incoming, part.reads
            if isinstance(operator[part.name], Join):
                one = ProfiledOperator(
                    part.name, "join", inputs, cost=1.0, window=1.0, selectivity=share / 2,
                    columns=columns,
                )  # fmt: skip
            else:
                one = ProfiledOperator(
                    part.name, "filter", inputs, selectivity=share, columns=columns
                )
        profiled.append(one)
    block = ProfiledQuery(profiled)
    _, load = _flows(block, block.inputs)
    if load == 0:
        return None
    machine = Network(speed=np.array([load]))
    solution = optimize(block, machine, "reactive-tabu", SearchParameters(alpha=0.0, seed=seed))
    if solution.value <= 1 + LEAST_GAIN:
        return None
    emitted, _ = _flows(block, solution.inputs)
    names = [leaf_name.get(one.id, one.id) for one in block.operators]
    order = [row for row in bottom_up(solution.inputs) if solution.inputs[row]]
    return _BlockOrder(
        {names[row]: [names[i] for i in solution.inputs[row]] for row in order},
        {names[row]: emitted[row] for row in order if block[row].kind == "join"},
    )


def _received(problem: Problem, query: int) -> float:
    """Tuples/s that the joins of a query receive, pair by pair of sources."""
    graph = graph_of(problem)
    return float(graph.required[(graph.query == query) & (graph.kind == JOIN)].sum())


def _flows(query: ProfiledQuery, inputs: tuple[tuple[int, ...], ...]) -> tuple[list[float], float]:
    """Tuples/s of every operator's output, and what joins receive in all."""
    emitted, load = [0.0] * len(query), 0.0
    for row in bottom_up(inputs):
        one, incoming = query[row], [emitted[i] for i in inputs[row]]
        share = {"source": one.rate, "join": 2 * one.selectivity}.get(one.kind, one.selectivity)
        emitted[row] = share * float(np.prod(incoming))
        load += sum(incoming) if one.kind == "join" else 0.0
    return emitted, load


def _rewired(query: Query, root: str, inputs: Mapping[str, list[str]]) -> Query:
    """The query with a block's operators in another order; its readers read the new root."""
    top = list(inputs)[-1]
    operators: dict[str, LogicalOperator] = {}
    for one in query.operators:
        reads = inputs.get(one.id) or [top if i == root else i for i in inputs_of(one)]
        operators[one.id] = _reading(one, reads, inputs)
    last = query.operators[-1].id
    order: dict[str, None] = {}
    stack = [top if last == root else last]
    while stack:
        name = stack[-1]
        waiting = [i for i in inputs_of(operators[name]) if i in operators and i not in order]
        if waiting:
            stack += waiting[::-1]
        else:
            order[stack.pop()] = None
    return msgspec.structs.replace(query, operators=[operators[name] for name in order])


def _reading(one: LogicalOperator, inputs: list[str], moved: Container[str]) -> LogicalOperator:
    if isinstance(one, Join):
        return msgspec.structs.replace(one, inputs=inputs)
    changed = msgspec.structs.replace(one, input=inputs[0])
    if isinstance(changed, Filter) and changed.reads in moved:
        # That operator may now emit something else; the filter is in its final place.
        return msgspec.structs.replace(changed, reads=UNSET)
    return changed


def _with_rates(
    problem: Problem, number: int, query: Query, targets: Mapping[str, float]
) -> Problem:
    """The problem with a query whose joins' selectivities are set to emit the target rates."""

    def with_query(one: Query) -> Problem:
        queries = (*problem.queries[:number], one, *problem.queries[number + 1 :])
        return replace(problem, queries=queries)

    for row, one in enumerate(query.operators):
        if one.id not in targets:
            continue
        operators = list(query.operators)
        operators[row] = msgspec.structs.replace(one, selectivity=1.0)
        unit = msgspec.structs.replace(query, operators=operators)
        graph = graph_of(with_query(unit))
        emitted = sum(
            each.rate for each in graph if each.query == number and each.logical == one.id
        )
        operators[row] = msgspec.structs.replace(one, selectivity=targets[one.id] / emitted)
        query = msgspec.structs.replace(query, operators=operators)
    return with_query(query)


def _text(query: Query) -> str:
    """A query's order in one line."""
    shown: dict[str, str] = {}
    for one in query.operators:
        inputs = [shown.get(name, name) for name in inputs_of(one)]
        joined = isinstance(one, Join)
        shown[one.id] = f"({' * '.join(inputs)})" if joined else f"{one.id}({inputs[0]})"
    return shown[query.operators[-1].id]
