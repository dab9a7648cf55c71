"""What is placed, as a graph: operators, and which of them feeds which, as columns.

A graph describes pairs of a join matrix and whole queries alike: a pair is the smallest query, a
join between two sources and a sink. Units: rates in tuples/s, sizes in bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from nova_core.model.arrays import NARROW, Bools, Codes, Floats, Ints, Strings, runs
from nova_core.model.problem import Problem
from nova_core.model.queries import Join
from nova_core.model.requirements import Requirements, requirements_of

KINDS = ("source", "filter", "project", "aggregate", "join", "sink")
SOURCE, FILTER, PROJECT, AGGREGATE, JOIN, SINK = range(len(KINDS))


class Ids(Protocol):
    """Names of operators; unlike a list, it may make each name when it is asked for."""

    def __getitem__(self, operator: int, /) -> str:
        """The name of one operator."""

    def of(self, operators: Ints) -> Strings:
        """(k,) names of some operators."""


class Operator(NamedTuple):
    """One operator of a graph, for who looks at single ones.

    Attributes:
        id: unique in its graph.
        kind: one of KINDS.
        inputs: operators whose output it receives, by their number.
        rate: tuples/s it emits to each operator that receives from it; of a sink 0.
        node: it must run on, -1 for one that can be placed.
        query: number of its query, the first of several, or of a pair's join; -1 of a source.
        logical: id of the query's operator it is one of; empty where there is none.
        partial: whether it emits partial results of an aggregate.
    """

    id: str
    kind: str
    inputs: tuple[int, ...]
    rate: float
    node: int
    query: int
    logical: str
    partial: bool


class Links(NamedTuple):
    """Links between operators, ordered by their consumer.

    Attributes:
        producer: (e,) operator. What runs with another one counts as that.
        consumer: (e,) operator.
        side: (e,) of the consumer: 0 for its left or only input, 1 for a join's right one.
        rate: (e,) tuples/s.
    """

    producer: Ints
    consumer: Ints
    side: Codes
    rate: Floats


@dataclass(frozen=True, eq=False)
class Graph:
    """Operators, producers before consumers.

    Attributes:
        ids: names of the operators.
        kind: (o,) rows of KINDS.
        input_at: (o + 1,) where each operator's inputs begin in ``input``.
        input: operators whose output each one receives.
        rate: (o,) tuples/s each emits; 0 of sinks.
        node: (o,) node it must run on, -1 for one that can be placed.
        source: (o,) row of the problem's sources; means nothing of others.
        query: (o,) number of its query, or of a pair's join; -1 of sources, the first one of what
            several queries share.
        root: (o,) the operator each runs with: a filter with what it reads from, any other with
            itself.
        parts: (o,) how many shares an operator can be cut into by the values of columns: groups of
            an aggregate, keys of a join.
        combines: (o,) whether an operator can be computed of partial results.
        partial: (o,) whether it emits partial results of an aggregate.
        requirement: (o,) what it requires of the nodes it runs on, a row of ``requirements``; -1
            for nothing but room.
        requirements: what operators require, and the nodes that meet it.
        joins: the query's operator of each join that has keys, by its number.
        logical: (o,) ids of the queries' operators, empty where there is none; None for pairs.
        queries: how many queries there are, or joins of pairs.
    """

    ids: Ids
    kind: Codes
    input_at: Ints
    input: Ints
    rate: Floats
    node: Ints
    source: Ints
    query: Ints
    root: Ints
    parts: Ints
    combines: Bools
    partial: Bools
    requirement: Ints
    requirements: Requirements
    joins: Mapping[int, Join]
    logical: Sequence[str] | None
    queries: int

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, operator: int) -> Operator:
        return Operator(
            self.ids[operator],
            KINDS[self.kind[operator]],
            tuple(self.inputs(operator).tolist()),
            float(self.rate[operator]),
            int(self.node[operator]),
            int(self.query[operator]),
            "" if self.logical is None else self.logical[operator],
            bool(self.partial[operator]),
        )

    def __iter__(self) -> Iterator[Operator]:
        return map(self.__getitem__, range(len(self)))

    def inputs(self, operator: int) -> Ints:
        """Operators whose output one receives."""
        inputs: Ints = self.input[self.input_at[operator] : self.input_at[operator + 1]]
        return inputs

    @cached_property
    def reader(self) -> Ints:
        """(i,) the operator that receives each ``input``."""
        return np.repeat(np.arange(len(self), dtype=NARROW), np.diff(self.input_at))

    @cached_property
    def links(self) -> Links:
        """Links between operators, without those of what runs with others."""
        side = np.zeros(len(self.input), np.int8)
        side[self.input_at[:-1][self.kind == JOIN] + 1] = 1
        if not len(self.fused):
            return Links(self.input, self.reader, side, self.rate[self.input])
        own = self.root[self.reader] == self.reader
        sender = self.input[own]
        return Links(self.root[sender], self.reader[own], side[own], self.rate[sender])

    @cached_property
    def carried(self) -> Ints:
        """(e,) operator whose output a link carries: its producer, or what runs with that."""
        if not len(self.fused):
            return self.input
        carried: Ints = self.input[self.root[self.reader] == self.reader]
        return carried

    @cached_property
    def bodies(self) -> Ints:
        """(b,) operators that are placed, in order."""
        placed = self.node < 0
        placed[self.fused] = False
        return np.flatnonzero(placed)

    @cached_property
    def body_of(self) -> Ints:
        """(o,) row of each operator in ``bodies``, -1 of others."""
        row = np.full(len(self), -1, NARROW)
        row[self.bodies] = np.arange(len(self.bodies))
        return row

    @property
    def names(self) -> Strings:
        """(b,) names of the bodies."""
        return self.ids.of(self.bodies)

    @cached_property
    def input_rate(self) -> Floats:
        """(2b,) tuples/s of what bodies receive: left and right of a join; of others all, and 0."""
        _, consumer, side, rate = self.links
        # What sinks receive is summed in front.
        at = (2 * self.body_of + 2)[consumer]
        at += side
        received = np.bincount(at, rate, 2 * len(self.bodies) + 2)[2:]
        return received.astype(np.float64, copy=False)

    @cached_property
    def required(self) -> Floats:
        """(o,) tuples/s each body receives, 0 of all others: C_r (paper, section 2.2)."""
        links = self.links
        rates = np.bincount(links.consumer, links.rate, len(self)).astype(np.float64)
        rates[self.node >= 0] = 0.0
        return rates

    def allowed(self, body: int) -> Bools:
        """(n,) nodes that have what a body (a row of ``bodies``) requires."""
        return self.requirements.able(self.requirement[self.bodies[body : body + 1]])

    @property
    def at_body(self) -> tuple[Ints, Ints]:
        """Links by the body that they are counted with, in a run per body.

        That is a link's consumer, or its producer where the consumer is a sink: first what a body
        receives, then what it sends to sinks. A link from a source to a sink belongs to none.

        Returns:
            (b + 1,) where the runs begin, and the links.
        """
        producer, consumer, _, _ = self.links
        row = self.body_of[consumer]
        row = np.where(row >= 0, row, self.body_of[producer])
        order = np.argsort(row, kind="stable")[np.count_nonzero(row < 0) :]
        count = np.bincount(row[order], minlength=len(self.bodies))
        return np.concatenate(([0], np.cumsum(count))), order.astype(NARROW)

    @cached_property
    def inner(self) -> Ints:
        """Links from one body to another."""
        return np.flatnonzero((self.body_of >= 0)[self.links.producer] & self._into_body)

    @cached_property
    def straight(self) -> Ints:
        """Links from a source to a sink."""
        return np.flatnonzero((self.node >= 0)[self.links.producer] & ~self._into_body)

    @property
    def _into_body(self) -> Bools:
        return (self.body_of >= 0)[self.links.consumer]

    @cached_property
    def depth(self) -> Ints:
        """(o,) operators on the longest way from a source to each one."""
        depth = (np.diff(self.input_at) > 0).astype(NARROW)
        further = np.flatnonzero((depth > 0)[self.input])
        producer, consumer = self.input[further], self.reader[further]
        while True:
            least = depth[producer] + 1
            deeper = least > depth[consumer]
            if not deeper.any():
                return depth
            np.maximum.at(depth, consumer[deeper], least[deeper])

    @property
    def paths(self) -> Floats:
        """(e,) source-to-sink paths through every link."""
        producer, consumer, _, _ = self.links
        before = (self.kind == SOURCE).astype(np.float64)
        after = (self.kind == SINK).astype(np.float64)
        # What an operator receives is counted before what it emits.
        steps = groups(self.depth[consumer])
        for rows in steps:
            np.add.at(before, consumer[rows], before[producer[rows]])
        for rows in reversed(steps):
            np.add.at(after, producer[rows], after[consumer[rows]])
        return np.asarray(before[producer] * after[consumer])

    @property
    def ways(self) -> tuple[Ints, Ints]:
        """A row per source-to-sink path: its source and its sink, by their number."""
        sources: list[Ints] = []
        sinks: list[Ints] = []
        reached = sink = np.flatnonzero(self.kind == SINK)
        while len(reached):
            first = self.input_at[reached]
            count = self.input_at[reached + 1] - first
            reached, sink = self.input[runs(first, count)], np.repeat(sink, count)
            starts = self.kind[reached] == SOURCE
            sources.append(reached[starts])
            sinks.append(sink[starts])
            reached, sink = reached[~starts], sink[~starts]
        return np.concatenate(sources), np.concatenate(sinks)

    def tuple_bytes(self, sources: Floats | None) -> Floats:
        """(o,) bytes of a tuple each operator emits, NaN where they are not known.

        A filter emits what it receives, and a join what it receives of both inputs.

        Args:
            sources: (s,) bytes of the problem's sources, or None.
        """
        size = np.full(len(self), np.nan)
        if sources is None:
            return size
        reads = self.kind == SOURCE
        size[reads] = sources[self.source[reads]]
        follows = np.flatnonzero((self.kind == FILTER) | (self.kind == JOIN))
        for rows in groups(self.depth[follows]):
            same = follows[rows]
            first = self.input_at[same]
            joins = self.kind[same] == JOIN
            size[same] = size[self.input[first]]
            size[same[joins]] += size[self.input[first[joins] + 1]]
        return size

    @cached_property
    def runs_with(self) -> Mapping[int, list[str]]:
        """Ids of the filters and projections that run with an operator, by its number."""
        ids: dict[int, list[str]] = defaultdict(list)
        for one in self.fused.tolist():
            ids[int(self.root[one])].append(self.ids[one])
        return ids

    @cached_property
    def fused(self) -> Ints:
        """Operators that run with others, in order."""
        return np.flatnonzero(self.root != np.arange(len(self.root)))

    def serves(self, operator: int) -> list[int]:
        """Numbers of the queries whose sinks an operator's tuples reach: several may share it."""
        first, readers = self._readers
        reached, open_ = {operator}, [operator]
        while open_:
            one = open_.pop()
            more = set(readers[first[one] : first[one + 1]].tolist()) - reached
            reached |= more
            open_ += more
        return sorted(int(self.query[one]) for one in reached if self.kind[one] == SINK)

    @cached_property
    def _readers(self) -> tuple[Ints, Ints]:
        """(o + 1,) where the readers of each operator begin, and the readers."""
        order = np.argsort(self.input, kind="stable")
        return np.searchsorted(self.input[order], np.arange(len(self) + 1)), self.reader[order]

    def feeding(self, operators: Bools) -> Bools:
        """(o,) some operators, and all that their tuples come from."""
        feeding = operators.copy()
        while True:
            further = self.input[feeding[self.reader]]
            if feeding[further].all():
                return feeding
            feeding[further] = True

    def upstream_sources(self, operator: int) -> list[int]:
        """Sources whose tuples reach an operator, in the order of inputs; for a source, itself."""
        reached, open_ = dict.fromkeys([operator]), [operator]
        while open_:
            below = [i for i in self.inputs(open_.pop()).tolist() if i not in reached]
            reached.update(dict.fromkeys(below))
            open_ += below
        return [n for n in reached if self.kind[n] == SOURCE]


def groups(level: Ints) -> list[Ints]:
    """Rows of each level (0 and more), the least first, each in order."""
    # Small numbers are sorted in one pass.
    small = level.astype(np.min_scalar_type(int(level.max(initial=0))))
    count = np.bincount(level)
    return np.split(np.argsort(small, kind="stable"), np.cumsum(count[count > 0])[:-1])


class _PairIds:
    """Names of a problem's sources, pairs and joins' sinks."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def __getitem__(self, operator: int) -> str:
        p = self._problem
        row = operator - len(p.sources)
        if row < 0:
            return str(p.sources.ids[operator])
        if row < len(p.matrix):
            return p.pair_name(row)
        return f"{p.joins.ids[row - len(p.matrix)]}/sink"

    def of(self, operators: Ints) -> Strings:
        p, first = self._problem, len(self._problem.sources)
        if np.array_equal(operators, np.arange(first, first + len(p.matrix))):
            return p.pair_names()
        return np.array([self[one] for one in operators.tolist()], np.str_)


def pair_graph(problem: Problem) -> Graph:
    """A problem's pairs: its sources, a join per row of the matrix, a sink per logical join."""
    s, m, j = problem.sources, problem.matrix, problem.joins
    sources, pairs, sinks = len(s), len(m), len(j)
    rate = np.concatenate([s.rate, m.output_rate, np.zeros(sinks)])
    many = len(rate)
    requirements, of_join = requirements_of(problem.join_rules(), problem.nodes)
    requirement = np.broadcast_to(np.int64(-1), many)
    if requirements.rules:
        requirement = requirement.copy()
        requirement[sources : sources + pairs] = of_join[m.join]
    every = np.arange(many, dtype=NARROW)
    input_at = np.zeros(many + 1, NARROW)
    input_at[sources + 1 :] = 2
    input_at[sources + pairs + 1 :] = np.bincount(m.join, minlength=sinks)
    inputs = np.empty(3 * pairs, NARROW)
    inputs[: 2 * pairs : 2], inputs[1 : 2 * pairs : 2] = m.left, m.right
    inputs[2 * pairs :] = np.argsort(m.join, kind="stable") + sources
    return Graph(
        # A copy: the problem itself keeps the graph, and they would live until a collection.
        ids=_PairIds(replace(problem)),
        kind=np.repeat(np.array([SOURCE, JOIN, SINK], np.int8), [sources, pairs, sinks]),
        input_at=np.cumsum(input_at, out=input_at),
        input=inputs,
        rate=rate,
        node=np.concatenate([s.node, np.full(pairs, -1), j.sink], dtype=NARROW),
        source=every,
        query=np.concatenate([np.full(sources, -1), m.join, np.arange(sinks)], dtype=NARROW),
        root=every,
        parts=np.broadcast_to(np.int64(1), many),
        combines=np.broadcast_to(np.False_, many),
        partial=np.broadcast_to(np.False_, many),
        requirement=requirement,
        requirements=requirements,
        joins={},
        logical=None,
        queries=sinks,
    )
