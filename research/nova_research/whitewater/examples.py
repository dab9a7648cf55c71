"""WhiteWater's examples and settings: Table 2, Figure 5, section 6.4, alpha, exhaustive search.

Numbers are the text's where it gives them; others are parameters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from nova_core.model.problem import Links
from nova_research.figures.base import Figure, Run, Table, cell, listed
from nova_research.whitewater.query import Network, ProfiledOperator, ProfiledQuery
from nova_research.whitewater.random_queries import COSTS, LARGE, WINDOW, QueryShape, random_query
from nova_research.whitewater.search import SearchParameters, Solution, optimize

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

# The text's query of up to 16 hours: 15 operators, five of them joins, 11 nodes.
SIXTEEN_HOURS = QueryShape(sources=(6, 6), operators=15, nodes=11, options=2, others=9)
NO_SEARCH = "random"  # keeps the configuration that it starts with


class ExamplesParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters.

    Attributes:
        rate: of section 6.4's streams, which configuration C1 can just process, tuples/s.
        joined: output of its join on C, relative to the rate of a stream; the text has none.
        alphas: probabilities of a physical move that annealing is tried with (section 5.3).
        queries: large random queries for that.
        exhaustive: random queries of the introduction's size that are searched exhaustively.
    """

    rate: float = 8517.0
    joined: tuple[float, ...] = (0.0001, 0.25, 0.5, 0.57, 1.0)
    alphas: tuple[float, ...] = (0.25, 0.4, 0.5, 0.6, 0.75)
    queries: Annotated[int, Meta(ge=1, description="Large queries for alpha")] = 200
    exhaustive: Annotated[int, Meta(ge=1, description="Queries searched exhaustively")] = 5


@dataclass(frozen=True)
class Example:
    """A configuration's throughput.

    Attributes:
        example: which example of the text.
        configuration: its name.
        throughput: by the model, tuples/s of a stream.
        expected: by the text's formula or figure; NaN where it has none.
    """

    example: str
    configuration: str
    throughput: float
    expected: float


@dataclass(frozen=True)
class Section64:
    """Section 6.4: annealing from the query as written, all on one node, to two nodes.

    Attributes:
        joined: output of the join on C, relative to a stream's rate.
        before: throughput of C1, tuples/s of a stream, which sets the nodes' speed.
        after: throughput of the configuration that annealing finds.
        optimum: throughput of the best configuration, by exhaustive search.
        pushed: whether both selections are at the streams, as in the text's C2.
        apart: whether the joins are on different nodes, as in C2.
        published: throughput of C2 in the text.
    """

    joined: float
    before: float
    after: float
    optimum: float
    pushed: bool
    apart: bool
    published: float


@dataclass(frozen=True)
class Alpha:
    """Annealing with a probability of physical moves.

    Attributes:
        alpha: the probability.
        ratio: mean ratio of throughput to the best of all alphas on the query.
        lowest: its 5th percentile.
        best: share of queries where none is better, %.
    """

    alpha: float
    ratio: float
    lowest: float
    best: float


@dataclass(frozen=True)
class Exhaustive:
    """An exhaustive search of a query with 15 operators, five of them joins, on 11 nodes.

    Attributes:
        query: its seed.
        configurations: number evaluated.
        seconds: of processor time.
        annealing: throughput that annealing finds, relative to the optimum.
    """

    query: int
    configurations: int
    seconds: float
    annealing: float


@dataclass(frozen=True)
class Result:
    """All examples."""

    examples: list[Example]
    section64: list[Section64]
    alphas: list[Alpha]
    exhaustive: list[Exhaustive]


class WhitewaterExamples(Figure[ExamplesParameters, Result]):
    """WhiteWater's examples: Table 2, Figure 5, section 6.4, alpha, and exhaustive search."""

    name = "whitewater-examples"
    source = "WhiteWater, Table 2, Figures 1 and 5, sections 1, 5.3 and 6.4"
    Parameters = ExamplesParameters
    published: ClassVar[Mapping[str, float]] = {
        "one phase": 500.0,
        "two phases": 100.0,
        "before": 8517.0,
        "after": 37313.0,
        "alpha": 0.5,
        "hours": 16.0,
    }
    quick: ClassVar = {"queries": 20, "exhaustive": 1}

    def run(self, parameters: ExamplesParameters, run: Run) -> Result:
        """Evaluate, search and time."""
        steps = 2 + len(parameters.joined) + len(parameters.alphas) + parameters.exhaustive
        examples = [*_table2(), *self._figure5()]
        run.advance(2, steps)
        section64 = [
            _section64(parameters.rate, one, self.published["after"]) for one in parameters.joined
        ]
        run.advance(2 + len(parameters.joined), steps)
        alphas = _alphas(parameters.alphas, parameters.queries)
        run.advance(steps - parameters.exhaustive, steps)
        return Result(
            examples, section64, alphas, [_exhaustive(n) for n in range(parameters.exhaustive)]
        )

    def _figure5(self) -> list[Example]:
        """One phase finds a configuration that two phases miss by filtering first on one machine.

        The figure's speeds are not in the text: here the emitter's links have room for 500 tuples/s
        to N1 and 100 to N2.
        """
        query = ProfiledQuery(
            [
                ProfiledOperator("emit", "source", rate=1.0, columns=("a", "b"), hosts=(2,)),
                ProfiledOperator(
                    "o1", "filter", (0,), (0,), selectivity=0.5, cost=1, columns=("a",)
                ),
                ProfiledOperator(
                    "o2", "filter", (1,), (1,), selectivity=0.2, cost=1, columns=("b",)
                ),
            ]
        )
        links = Links(np.array([2, 2]), np.array([0, 1]), np.array([500.0, 100.0]))
        network = Network(np.full(3, 1e9), links=links)
        examples = []
        for phases, name in ((1, "one phase"), (2, "two phases")):
            best = optimize(query, network, "exhaustive", SearchParameters(phases=phases))
            expected = self.published[name]
            examples.append(Example("Figure 5", name, best.value, expected))
        return examples

    def tables(self, result: Result) -> list[Table]:
        """A table per part."""
        return [
            listed(
                "whitewater-examples",
                "Throughput of the text's examples, tuples/s of a stream",
                result.examples,
                {
                    "example": "example",
                    "configuration": "configuration",
                    ">throughput": "throughput",
                    ">in the text": "expected",
                },
            ),
            listed(
                "whitewater-section64",
                "Section 6.4: from one node to two, tuples/s of a stream",
                result.section64,
                {
                    ">output of the join on C": ("joined", 4),
                    ">C1": ("before", 0),
                    ">annealing": ("after", 0),
                    ">optimum": ("optimum", 0),
                    ">published": ("published", 0),
                    "selections at streams": (lambda row: cell("yes" if row.pushed else "no"), 0),
                    "joins apart": (lambda row: cell("yes" if row.apart else "no"), 0),
                },
                "output: relative to a stream's rate, which the text does not give",
            ),
            listed(
                "whitewater-alpha",
                "Annealing by the probability of a physical move",
                result.alphas,
                {
                    ">alpha": ("alpha", 2),
                    ">of the best alpha": ("ratio", 3),
                    ">5th percentile": ("lowest", 3),
                    ">best, % of queries": ("best", 0),
                },
                "published: 0.5 is the most consistent",
            ),
            listed(
                "whitewater-exhaustive",
                "Exhaustive search of 15 operators on 11 nodes (published: up to 16 hours)",
                result.exhaustive,
                {
                    ">query": "query",
                    ">configurations": "configurations",
                    ">seconds": ("seconds", 2),
                    ">annealing / optimum": ("annealing", 3),
                },
            ),
        ]

    def draw(self, result: Result) -> Drawing:
        """Section 6.4's gain, and alphas."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(8.0, 3.6))
        gain, alphas = figure.subplots(1, 2)
        rows = result.section64
        gain.plot([r.joined for r in rows], [r.after for r in rows], "o-", label="annealing")
        gain.axhline(self.published["after"], color="#D55E00", linestyle=":", label="published")
        gain.set_xlabel("output of the join on C / rate")
        gain.set_ylabel("tuples/s of a stream")
        gain.legend(frameon=False)
        alphas.plot([r.alpha for r in result.alphas], [r.ratio for r in result.alphas], "o-")
        alphas.set_xlabel("alpha")
        alphas.set_ylabel("throughput / best alpha's, mean")
        return figure


def _value(query: ProfiledQuery, network: Network, nodes: Sequence[int]) -> float:
    return optimize(query, network, NO_SEARCH, nodes=nodes).value


def _table2() -> list[Example]:
    """Two selections on two nodes, against the formula of Table 2."""
    cost, selectivity, speed = (20.0, 50.0), (0.5, 0.2), (1e5, 2e5)
    operators = [ProfiledOperator("emit", "source", rate=1.0, columns=("a", "b"), hosts=(2,))]
    operators += [
        ProfiledOperator(
            f"o{i + 1}", "filter", (i,), (0, 1), selectivity=selectivity[i], cost=cost[i],
            columns=("ab"[i],),
        )
        for i in range(2)
    ]  # fmt: skip
    query = ProfiledQuery(operators)
    network = Network(np.array([*speed, np.inf]))
    examples = []
    for name, (first, second) in (("C1", (0, 1)), ("C2", (1, 0))):
        expected = min(speed[first] / cost[0], speed[second] / (selectivity[0] * cost[1]))
        examples.append(
            Example("Table 2", name, _value(query, network, [2, first, second]), expected)
        )
    return examples


def _section64(rate: float, joined: float, published: float) -> Section64:
    one, other, away = 0, 1, 2
    # Table 3: output is 2 w r1 r2 s; the join on C is 100 times as selective as that on B.
    on_c = joined / (2 * WINDOW * rate)
    both = (one, other)
    query = ProfiledQuery(
        [
            ProfiledOperator("AB", "source", rate=rate, columns=("A", "AB.B"), hosts=(away,)),
            ProfiledOperator("BC", "source", rate=rate, columns=("BC.B", "BC.C"), hosts=(away,)),
            ProfiledOperator("CD", "source", rate=rate, columns=("CD.C", "D"), hosts=(away,)),
            ProfiledOperator(
                "on C", "join", (1, 2), both, selectivity=on_c, cost=COSTS["join"], window=WINDOW,
                columns=("BC.C", "CD.C"),
            ),
            ProfiledOperator(
                "on B", "join", (0, 3), both, selectivity=100 * on_c, cost=COSTS["join"],
                window=WINDOW, columns=("AB.B", "BC.B"),
            ),
            ProfiledOperator(
                "A = 0", "filter", (4,), both, selectivity=0.01, cost=COSTS["filter"],
                columns=("A",),
            ),
            ProfiledOperator(
                "D = 0", "filter", (5,), both, selectivity=0.01, cost=COSTS["filter"],
                columns=("D",),
            ),
            ProfiledOperator("sink", "sink", (6,), (away,)),
        ]
    )  # fmt: skip
    start = [away] * 3 + [one] * 4 + [away]

    def network(speed: float) -> Network:
        return Network(np.array([speed, speed, np.inf]))

    # The speed with which C1 can just process the rate.
    low, high = 1.0, 1e15
    for _ in range(100):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if _value(query, network(middle), start) >= 1 else (middle, high)

    def found(method: str) -> Solution:
        return optimize(query, network(high), method, SearchParameters(), nodes=start)

    best = found("annealing")
    return Section64(
        joined,
        rate * _value(query, network(high), start),
        rate * best.value,
        rate * found("exhaustive").value,
        pushed=best.inputs[5] == (0,) and best.inputs[6] == (2,),
        apart=best.nodes[3] != best.nodes[4],
        published=published,
    )


def _alphas(alphas: Sequence[float], queries: int) -> list[Alpha]:
    values = np.array(
        [
            [
                max(
                    optimize(
                        *random_query(LARGE, seed),
                        "annealing",
                        SearchParameters(alpha=alpha, seed=seed),
                    ).value,
                    0.0,
                )
                for alpha in alphas
            ]
            for seed in range(queries)
        ]
    )
    best = values.max(axis=1)
    ratio = values[best > 0] / best[best > 0, None]
    return [
        Alpha(
            alpha,
            float(ratio[:, i].mean()),
            float(np.percentile(ratio[:, i], 5)),
            float(100 * (ratio[:, i] > 1 - 1e-6).mean()),
        )
        for i, alpha in enumerate(alphas)
    ]


def _exhaustive(seed: int) -> Exhaustive:
    query, network = random_query(SIXTEEN_HOURS, seed)
    begin = time.process_time()
    best = optimize(query, network, "exhaustive", SearchParameters(seed=seed))
    seconds = time.process_time() - begin
    other = optimize(query, network, "annealing", SearchParameters(seed=seed))
    ratio = other.value / best.value if best.value > 0 else np.nan
    return Exhaustive(seed, best.evaluations, seconds, float(ratio))
