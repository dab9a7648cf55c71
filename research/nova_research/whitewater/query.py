"""Queries and networks as WhiteWater has them (sections 3 and 4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Links
from nova_core.strategies.base import POSITIVE, check_range

Kind = Literal["source", "filter", "project", "join", "sink", "aggregate"]
Inputs = Sequence[tuple[int, ...]]
"""What every operator of a query receives from."""
INPUTS: dict[str, int] = {"source": 0, "filter": 1, "project": 1, "join": 2, "sink": 1}
"""How many inputs each kind has; an aggregate has one or more."""
# Sets of columns are bits of a 64-bit number in the kernels.
MOST_COLUMNS = 62


@dataclass(frozen=True)
class ProfiledOperator:
    """One operator.

    Attributes:
        id: unique in its query; what errors call it.
        kind: ``source`` (EMIT), ``filter`` (SELECT), ``project``, ``join`` or ``sink``, which only
            receives. An ``aggregate``, which the text does not have, emits the same whatever it
            receives: results of windows.
        inputs: operators whose output it receives, by their place in the query, all before it.
        hosts: nodes it may run on; a source or sink has one.
        rate: of a source: r^p, expected at most, tuples/s; of an aggregate: what it emits.
        selectivity: of a filter: output per input tuple; of a join: per pair of tuples (Table 3).
        cost: instructions per tuple received.
        window: of a join: w, s.
        columns: names: of a source those it emits, of a filter those it reads, of a project those
            it keeps, of a join the two it compares, one of either input.
        takes: share of the output of each input that it receives; empty for all. Less than 1 where
            a filter runs with that input.
    """

    id: str
    kind: Kind
    inputs: tuple[int, ...] = ()
    hosts: tuple[int, ...] = (0,)
    rate: float = 0.0
    selectivity: float = 1.0
    cost: float = 0.0
    window: float = 0.0
    columns: tuple[str, ...] = ()
    takes: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class ProfiledQuery:
    """Operators, producers before consumers, with the rates to expect of their sources.

    The text has trees: every operator feeds one other, or is a root. Only those can be reordered,
    or have a limit of latency.

    Attributes:
        operators: all of them.
        tuple_bytes: m_t, size of any tuple.
        hash_bytes: h, what a join's hash table takes; it has two.
        latency_limit: L, ms on every path from a source to a root (section 4.4).

    Raises:
        ProblemError: naming the operator, the value and what is accepted.
    """

    operators: Sequence[ProfiledOperator]
    tuple_bytes: float = 1.0
    hash_bytes: float = 0.0
    latency_limit: float = math.inf

    def __post_init__(self) -> None:
        check_range("query:", self, "tuple_bytes hash_bytes", 0)
        check_range("query:", self, "latency_limit", POSITIVE, math.inf, "> 0 ms")
        if not self.operators:
            raise ProblemError("query: it has no operators")
        if len({one.id for one in self.operators}) < len(self.operators):
            raise ProblemError("query: two operators have the same id")
        feeds: dict[int, str] = {}
        emitted: list[frozenset[str]] = []
        for number, one in enumerate(self.operators):
            where = f"operator {one.id!r}"
            _check(one, number, where)
            for producer in one.inputs:
                if producer in feeds and self.latency_limit < math.inf:
                    fed = self.operators[producer].id
                    raise ProblemError(
                        f"{where}: {fed!r} feeds {feeds[producer]!r} already; "
                        "only trees can have a latency_limit"
                    )
                if self.operators[producer].kind == "sink":
                    raise ProblemError(f"{where}: a sink emits nothing")
                feeds[producer] = one.id
            emitted.append(_emitted(one, where, [emitted[i] for i in one.inputs]))
        names = [c for one in self.operators if one.kind == "source" for c in one.columns]
        if len(set(names)) < len(names):
            raise ProblemError("query: two sources emit columns of the same name")
        if len(names) > MOST_COLUMNS:
            raise ProblemError(f"query: {len(names)} columns; at most {MOST_COLUMNS} are possible")

    def __len__(self) -> int:
        return len(self.operators)

    def __getitem__(self, operator: int) -> ProfiledOperator:
        return self.operators[operator]

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """What every operator receives from, in the order given."""
        return tuple(one.inputs for one in self.operators)

    @cached_property
    def reorderable(self) -> bool:
        """Whether it has the text's trees of operators, whose order can be changed."""
        fed = [producer for one in self.operators for producer in one.inputs]
        return len(set(fed)) == len(fed) and not any(
            one.kind == "aggregate" or one.takes for one in self.operators
        )

    @cached_property
    def profile(self) -> dict[str, float]:
        """p: expected rate of every source, tuples/s (section 3)."""
        return {one.id: one.rate for one in self.operators if one.kind == "source"}


def bottom_up(inputs: Inputs) -> list[int]:
    """Operators, each after all it receives from."""
    order: list[int] = []
    readers = Counter(child for children in inputs for child in children)
    waiting = [o for o in range(len(inputs)) if o not in readers]
    while waiting:
        operator = waiting.pop()
        order.append(operator)
        for child in inputs[operator]:
            readers[child] -= 1
            if not readers[child]:
                waiting.append(child)
    return order[::-1]


def _check(one: ProfiledOperator, number: int, where: str) -> None:
    if one.kind not in get_args(Kind):
        kinds = ", ".join(get_args(Kind))
        raise ProblemError(f"{where}: kind {one.kind!r}; expected one of {kinds}")
    if len(one.inputs) != INPUTS.get(one.kind, max(1, len(one.inputs))):
        expected = f"a {one.kind} has {INPUTS.get(one.kind, 'one or more')}"
        raise ProblemError(f"{where}: {len(one.inputs)} inputs; {expected}")
    if one.takes and (len(one.takes) != len(one.inputs) or not min(one.takes) >= 0):
        expected = "one of 0 or more for each input, or none"
        raise ProblemError(f"{where}: takes {list(one.takes)}; expected {expected}")
    if any(not 0 <= producer < number for producer in one.inputs):
        raise ProblemError(f"{where}: inputs must be operators before it")
    if not one.hosts or len(set(one.hosts)) < len(one.hosts):
        raise ProblemError(f"{where}: hosts {list(one.hosts)}; expected one or more, each once")
    if one.kind in ("source", "sink") and len(one.hosts) > 1:
        raise ProblemError(f"{where}: {len(one.hosts)} hosts; a {one.kind} has one")
    check_range(f"{where}:", one, "cost selectivity", 0)
    positive = {"source": "rate", "join": "window", "aggregate": "rate"}.get(one.kind, "")
    check_range(f"{where}:", one, positive, POSITIVE, expected="more than 0")


def _emitted(one: ProfiledOperator, where: str, inputs: list[frozenset[str]]) -> frozenset[str]:
    """Columns of an operator's output."""
    columns = frozenset(one.columns)
    if one.kind == "source":
        return columns
    available = frozenset().union(*inputs)
    if one.kind == "join":
        sides = [len(columns & side) for side in inputs]
        if columns and sides != [1, 1]:
            raise ProblemError(
                f"{where}: compares {', '.join(one.columns)}; expected one column of each input"
            )
        return available
    missing = sorted(columns - available)
    if missing:
        raise ProblemError(f"{where}: no input has column {missing[0]!r}")
    return columns if one.kind == "project" else available


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes and links.

    Attributes:
        speed: (n,) N.I, instructions/s; inf for no limit.
        memory: (n,) N.M, bytes; None for no limit.
        links: budgets in bytes/s of directed pairs of nodes; others have no limit.
        latency: (n, n) ms between nodes; None for none.

    Raises:
        ProblemError: naming the value and what is accepted.
    """

    speed: Floats
    memory: Floats | None = None
    links: Links = field(default_factory=Links.none)
    latency: Floats | None = None

    def __post_init__(self) -> None:
        count = len(self.speed)
        for name in ("speed", "memory"):
            values = getattr(self, name)
            if values is None:
                continue
            if len(values) != count:
                raise ProblemError(f"network: {name} has {len(values)} rows; expected {count}")
            wrong = np.flatnonzero(~(values >= 0))
            if len(wrong):
                node = int(wrong[0])
                raise ProblemError(
                    f"network: {name} of node {node} is {values[node]:g}; expected 0 or more"
                )
        ends = np.concatenate([self.links.source, self.links.target])
        if len(ends) and not (ends.min() >= 0 and ends.max() < count):
            raise ProblemError(f"network: a link names a node that is none of the {count}")
        if not (self.links.budget >= 0).all():
            raise ProblemError("network: a link's budget is negative; expected 0 or more bytes/s")
        if self.latency is not None:
            if self.latency.shape != (count, count):
                raise ProblemError(
                    f"network: latency has shape {self.latency.shape}; expected {(count, count)}"
                )
            if not (self.latency >= 0).all():
                raise ProblemError("network: a latency is negative; expected 0 or more ms")

    def __len__(self) -> int:
        return len(self.speed)

    def require_hosts(self, query: ProfiledQuery) -> None:
        """Refuse a query that names unknown nodes.

        Raises:
            ProblemError: naming the operator and the node.
        """
        for one in query.operators:
            for node in one.hosts:
                if not 0 <= node < len(self):
                    raise ProblemError(
                        f"operator {one.id!r}: host {node} is none of the {len(self)} nodes"
                    )
