"""Random queries and networks after WhiteWater's evaluation (IEEE TC 2007, section 6).

The text gives operators' costs, windows, the latency of links and how queries grow. It does not
give speeds of nodes and links, selectivities of operators, or rates of streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Links
from nova_research.whitewater.query import Network, ProfiledOperator, ProfiledQuery

COSTS = {"filter": 20.0, "project": 50.0, "join": 800.0}  # instructions per tuple
WINDOW = 5.0  # s
HOP = 60.0  # ms per link
# Chosen here: ranges are drawn from evenly by logarithm.
RATES = (10.0, 1000.0)  # tuples/s of a source
SPEEDS = (1e5, 1e7)  # instructions/s: a join of two streams of 100 tuples/s takes 160,000
MEMORY = (1e6, 1e8)  # bytes; the windows of such a join take 100,000
BANDWIDTH = (1e4, 1e7)  # bytes/s; such a stream takes 10,000
TUPLE_BYTES = 100.0
HASH_BYTES = 1e4
FILTERED = (0.05, 0.95)  # selectivity of a filter
JOINED = (0.1, 1.5)  # a join's output, relative to its slower input
COLUMNS = (2, 4)  # of a source
PATIENCE = 0.8  # share of the longest path's hops that the latency limit allows


@dataclass(frozen=True)
class QueryShape:
    """How large random queries and their networks are.

    Attributes:
        sources: fewest and most.
        operators: most, sources included.
        nodes: of the network.
        options: nodes that each operator but a source may run on.
        others: most operators that are no sources; None for the rest of ``operators``.
    """

    sources: tuple[int, int]
    operators: int
    nodes: int
    options: int
    others: int | None = None

    def __post_init__(self) -> None:
        low, high = self.sources
        if not 1 <= low <= high:
            raise ProblemError(f"queries: sources is {low} to {high}; expected 1 <= low <= high")
        if high > 15:
            raise ProblemError(f"queries: {high} sources; at most 15 are possible")
        if self.operators < 2 * high:
            raise ProblemError(
                f"queries: operators is {self.operators}; {high} sources with their joins and one "
                f"more operator need {2 * high}"
            )
        if not 1 <= self.options <= self.nodes:
            raise ProblemError(
                f"queries: options is {self.options}; expected 1 to the {self.nodes} nodes"
            )


SMALL = QueryShape(sources=(1, 2), operators=7, nodes=5, options=2, others=5)
"""Section 6.1: one or two emitters, at most five other operators with two nodes each."""
LARGE = QueryShape(sources=(3, 13), operators=40, nodes=11, options=5)
"""Section 6.2: 3 to maxOps / 3 emitters and up to maxOps = 40 operators."""


def random_query(shape: QueryShape, seed: int) -> tuple[ProfiledQuery, Network]:
    """A query built bottom up from random operators, and a network for it.

    Args:
        shape: how large.
        seed: one seed gives one query.
    """
    random = np.random.default_rng(seed)
    grown = _Growing(shape, random)
    sources = int(random.integers(shape.sources[0], shape.sources[1] + 1))
    for _ in range(sources):
        grown.add_source()
    # Emitters leave room for their joins and one more.
    least, most = max(sources - 1, 1), shape.operators - sources
    if shape.others is not None:
        most = min(most, shape.others)
    for left in range(int(random.integers(least, most + 1)), 0, -1):
        roots = len(grown.roots)
        kinds = ["join"] if roots > 1 else []
        if left > roots - 1:
            kinds += ["filter", "project"]
        grown.add(str(random.choice(kinds)))
    operators = grown.operators
    depth = [0] * len(operators)
    for number, one in enumerate(operators):
        depth[number] = max((depth[i] + 1 for i in one.inputs), default=0)
    limit = HOP * (1 + PATIENCE * max(depth))
    query = ProfiledQuery(operators, TUPLE_BYTES, HASH_BYTES, limit)
    return query, random_network(shape.nodes, random)


def random_network(nodes: int, random: np.random.Generator) -> Network:
    """Nodes of different speed and memory, linked each to each with different bandwidth."""
    source, target = np.nonzero(~np.eye(nodes, dtype=bool))
    return Network(
        speed=_between(random, SPEEDS, nodes),
        memory=_between(random, MEMORY, nodes),
        links=Links(source, target, _between(random, BANDWIDTH, len(source))),
        latency=np.where(np.eye(nodes, dtype=bool), 0.0, HOP),
    )


def _between(
    random: np.random.Generator, bounds: tuple[float, float], count: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.exp(random.uniform(np.log(bounds[0]), np.log(bounds[1]), count))


class _Growing:
    """A query while operators are put on top of it."""

    def __init__(self, shape: QueryShape, random: np.random.Generator) -> None:
        self._shape, self._random = shape, random
        self.operators: list[ProfiledOperator] = []
        self.roots: list[int] = []
        self._rate: list[float] = []
        self._columns: list[tuple[str, ...]] = []

    def add_source(self) -> None:
        """A new emitter on some node."""
        name = f"emit{len(self.operators)}"
        many = int(self._random.integers(COLUMNS[0], COLUMNS[1] + 1))
        columns = tuple(f"{name}.{letter}" for letter in "abcd"[:many])
        rate = float(_between(self._random, RATES, 1)[0])
        host = int(self._random.integers(self._shape.nodes))
        operator = ProfiledOperator(name, "source", hosts=(host,), rate=rate, columns=columns)
        self._put(operator, rate, columns)

    def add(self, kind: str) -> None:
        """A new operator on top of one root, or of two."""
        random = self._random
        count = 2 if kind == "join" else 1
        inputs = tuple(random.choice(self.roots, count, replace=False).tolist())
        rates = [self._rate[i] for i in inputs]
        available = [c for i in inputs for c in self._columns[i]]
        name = f"{kind}{len(self.operators)}"
        hosts = tuple(random.choice(self._shape.nodes, self._shape.options, False).tolist())
        cost = COSTS[kind]
        if kind == "filter":
            part = float(random.uniform(*FILTERED))
            operator = ProfiledOperator(
                name, "filter", inputs, hosts, selectivity=part, cost=cost,
                columns=(str(random.choice(available)),),
            )  # fmt: skip
            self._put(operator, rates[0] * part, available)
        elif kind == "project":
            # It drops one column where that leaves one.
            dropped = random.choice(available) if len(available) > 1 else ""
            remaining = tuple(c for c in available if c != dropped)
            operator = ProfiledOperator(
                name, "project", inputs, hosts, cost=cost, columns=remaining
            )
            self._put(operator, rates[0], remaining)
        else:
            output = min(rates) * float(random.uniform(*JOINED))
            part = min(1.0, output / (2 * WINDOW * rates[0] * rates[1]))
            compared = tuple(str(random.choice(self._columns[i])) for i in inputs)
            operator = ProfiledOperator(
                name, "join", inputs, hosts, selectivity=part, cost=cost, window=WINDOW,
                columns=compared,
            )  # fmt: skip
            self._put(operator, 2 * WINDOW * rates[0] * rates[1] * part, available)

    def _put(self, operator: ProfiledOperator, rate: float, columns: Sequence[str]) -> None:
        self.roots = [r for r in self.roots if r not in operator.inputs] + [len(self.operators)]
        self.operators.append(operator)
        self._rate.append(rate)
        self._columns.append(tuple(columns))
