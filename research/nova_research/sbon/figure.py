"""SBON's simulation again: Table 1, Figures 8 and 9, and savings by operator reuse.

P. Pietzuch et al., *Network-Aware Operator Placement for Stream-Processing Systems*, ICDE 2006,
sections 4.1 and 4.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

import msgspec
import numpy as np
from msgspec import Meta

from nova_core.costspace import CostSpace, embed, errors, sample_pairs
from nova_core.errors import NovaError
from nova_core.model.problem import Floats, Ints
from nova_core.strategies.trees import RootedTree
from nova_research.figures.base import Figure, Run, Table, listed
from nova_research.figures.inputs import SpaceParameters
from nova_research.operators import OperatorGraph
from nova_research.sbon import comparators
from nova_research.sbon.mapping import Mapper
from nova_research.sbon.queries import (
    aggregations,
    delays,
    same_aggregation,
    usage_by_query,
)
from nova_research.sbon.relaxation import relaxation
from nova_research.sbon.running import ReuseParameters, share
from nova_research.sbon.transit_stub import TransitStub, TransitStubParameters, transit_stub

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

# Table 1: increase of network usage and of delay, %.
PUBLISHED = {
    "optimal": (0.0, 13.0),
    "relaxation": (15.0, 24.0),
    "ip-multicast": (27.0, 0.0),
    "producer": (43.0, 75.0),
    "consumer": (60.0, 0.0),
    "random": (81.0, 76.0),
}
# Saving of network usage, %, by reuse among four queries (section 4.2.2).
PUBLISHED_SAVING = 21.0
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#999999")


class Reuse(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Parameters of the part on reuse: producers in one region, consumers in another, far away.

    Attributes:
        queries: numbers of identical queries; each is one part of the experiment.
        groups: number of such groups of queries on each topology.
        rate: of each of the two producers.
        output_rate: of an aggregator.
        radius: how far away an operator that is reused may run, ms.
        k: instead of a radius, numbers of nearest nodes whose operators may be reused; each is one
            part.
    """

    queries: tuple[int, ...] = (2, 4, 8, 16)
    groups: int = 20
    rate: float = 1.0
    output_rate: float = 0.25
    radius: float = 100.0
    k: tuple[int, ...] = (1, 10)

    @property
    def regions(self) -> dict[str, tuple[float, int | None]]:
        """Radius and k by their labels in the table."""
        nearest = {f"k = {k}": (np.inf, k) for k in self.k}
        return {f"{self.radius:g} ms": (self.radius, None), **nearest}


class SbonParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment.

    Attributes:
        seeds: transit-stub topologies; figures are means over them.
        queries: on each.
        producers: of a query.
        rate: what each sends, KB/s.
        selectivity: how many times less an aggregator emits.
        topology: parameters that differ from the text; see `nova_research.sbon.transit_stub`.
        neighbours: others that every node measures.
        space: embedded by Vivaldi: three latency dimensions, as in the text's prototype, and a
            height, which is one more dimension for the mapping.
        spaces: other spaces that RELAXATION runs in.
        reuse: of section 4.2.2.
    """

    seeds: Annotated[int, Meta(ge=1, description="Topologies, figures are means over them")] = 10
    queries: Annotated[int, Meta(ge=1, description="Queries on each topology")] = 1000
    producers: Annotated[int, Meta(ge=1)] = 4
    rate: Annotated[float, Meta(gt=0)] = 2.0
    selectivity: Annotated[float, Meta(gt=0)] = 8.0
    topology: dict[str, float] = {}
    neighbours: int = 32
    space: SpaceParameters = SpaceParameters(dimensions=3, height=True)
    spaces: tuple[SpaceParameters, ...] = (
        SpaceParameters(dimensions=2, height=False),
        SpaceParameters(dimensions=2, height=True),
        SpaceParameters(dimensions=3, height=False),
        SpaceParameters(dimensions=4, height=False),
        SpaceParameters(dimensions=4, height=True),
        SpaceParameters(dimensions=5, height=False),
    )
    reuse: Reuse = Reuse()

    def network(self) -> TransitStubParameters:
        """The topologies' parameters.

        Raises:
            NovaError: for an unknown parameter, or one out of range.
        """
        known = {field.name: field.type for field in fields(TransitStubParameters)}
        for name in self.topology:
            if name not in known:
                raise NovaError(f"topology: unknown field {name!r}; it has {', '.join(known)}")
        whole = {n: int(v) for n, v in self.topology.items() if known[n] == "int" and v % 1 == 0}
        return TransitStubParameters(**cast("dict[str, int]", {**self.topology, **whole}))


@dataclass(frozen=True, eq=False)
class _Measured:
    """One topology: (q,) network usage and relative increase of delay of each algorithm."""

    usage: dict[str, Floats]
    delay: dict[str, Floats]


@dataclass(frozen=True)
class Row:
    """An algorithm in Table 1; in %, means over topologies and standard deviations among them.

    Attributes:
        algorithm: its name.
        usage: increase of the network usage of all queries over the optimum.
        usage_spread: its spread.
        published_usage: the text's value.
        delay: mean over queries of the increase of delay over the longest route.
        delay_spread: its spread.
        published_delay: the text's value.
        usage_p80: increase of the 80th percentile of queries' network usage over the optimum's.
        faster: share of queries with less delay than the longest route has.
    """

    algorithm: str
    usage: float
    usage_spread: float
    published_usage: float
    delay: float
    delay_spread: float
    published_delay: float
    usage_p80: float
    faster: float


@dataclass(frozen=True)
class Percentile:
    """A point of Figures 8 and 9, over the queries of all topologies.

    Attributes:
        algorithm: its name.
        percent: of queries that have no more than this.
        usage: network usage of a query, KB in flight.
        delay: increase of delay, %.
    """

    algorithm: str
    percent: int
    usage: float
    delay: float


@dataclass(frozen=True)
class SpaceRow:
    """RELAXATION in a cost space, %.

    Attributes:
        space: its name.
        error: median relative error of estimated latencies.
        usage: increase of network usage over the optimum.
        usage_spread: standard deviation among topologies.
        worst_usage: the greatest of a topology.
        delay: increase of delay.
    """

    space: str
    error: float
    usage: float
    usage_spread: float
    worst_usage: float
    delay: float


@dataclass(frozen=True)
class ReuseRow:
    """Savings by reuse, %, means over groups of queries.

    Attributes:
        region: in which an operator that is reused may run: a radius, or the k nearest nodes.
        queries: of a group.
        saving: of measured network usage, with multicast operators.
        saving_spread: standard deviation among topologies.
        saving_unicast: the same without multicast operators.
        least_saving: the least of a single group.
        shared: operators left of a group's aggregators, mean.
        published: the text's value, or NaN.
    """

    region: str
    queries: int
    saving: float
    saving_spread: float
    saving_unicast: float
    least_saving: float
    shared: float
    published: float


@dataclass(frozen=True)
class Result:
    """The experiment's numbers.

    Attributes:
        nodes: of a topology.
        topologies: how many.
        queries: on each.
        table: Table 1.
        distributions: Figures 8 and 9.
        spaces: RELAXATION in several cost spaces, the table's first.
        reuse: savings.
    """

    nodes: int
    topologies: int
    queries: int
    table: list[Row]
    distributions: list[Percentile]
    spaces: list[SpaceRow]
    reuse: list[ReuseRow]


class Sbon(Figure[SbonParameters, Result]):
    """SBON's algorithms on transit-stub topologies: its Table 1, Fig. 8 and 9, and reuse."""

    name = "sbon"
    source = "SBON, sections 4.1 and 4.2.2, Table 1, Figures 8, 9 and 13"
    Parameters = SbonParameters
    published: ClassVar[Mapping[str, tuple[float, float]]] = PUBLISHED
    quick: ClassVar = {
        "seeds": 2,
        "queries": 300,
        "spaces": [{"dimensions": 3, "height": False}],
        "reuse": {"queries": [4], "groups": 5, "k": [10]},
    }

    def run(self, parameters: SbonParameters, run: Run) -> Result:
        """Place the queries of every topology with every algorithm."""
        network = parameters.network()
        measured: list[_Measured] = []
        # [topology][space], and [topology][region and queries][group].
        spaces: list[list[tuple[float, float, float]]] = []
        savings: list[list[list[tuple[float, float, int]]]] = []
        nodes = 0
        for seed in range(parameters.seeds):
            run.advance(seed, parameters.seeds)
            topology = transit_stub(seed, network)
            nodes = len(topology)
            graph = aggregations(
                nodes,
                parameters.queries,
                parameters.producers,
                parameters.rate,
                parameters.selectivity,
                seed,
            )
            space = _space(topology, parameters.space, parameters, seed)
            measured.append(_compare(topology, graph, space, seed))
            spaces.append([_in_space(topology, graph, space, measured[-1])])
            spaces[-1] += [
                _in_space(topology, graph, _space(topology, other, parameters, seed), measured[-1])
                for other in parameters.spaces
            ]
            savings.append(_savings(topology, space, parameters.reuse, seed))
        run.advance(parameters.seeds, parameters.seeds)
        labels = [one.label for one in (parameters.space, *parameters.spaces)]
        return Result(
            nodes=nodes,
            topologies=parameters.seeds,
            queries=parameters.queries,
            table=_table(measured),
            distributions=_distributions(measured),
            spaces=[_space_row(name, [s[i] for s in spaces]) for i, name in enumerate(labels)],
            reuse=[
                _reuse_row(region, count, np.array([of_topology[i] for of_topology in savings]))
                for i, (region, count) in enumerate(
                    product(parameters.reuse.regions, parameters.reuse.queries)
                )
            ],
        )

    def tables(self, result: Result) -> list[Table]:
        """Table 1, the distributions behind Figures 8 and 9, spaces, and reuse."""
        penalties = listed(
            "sbon-table1",
            f"Penalties, %: {result.queries:,} queries on each of {result.topologies} transit-stub "
            f"topologies of {result.nodes:,} nodes",
            result.table,
            {
                "algorithm": "algorithm",
                ">network usage": "usage",
                ">±": "usage_spread",
                ">published": ("published_usage", 0),
                ">80th percentile": "usage_p80",
                ">delay": "delay",
                ">± ": "delay_spread",
                ">published ": ("published_delay", 0),
                ">faster than the route": "faster",
            },
            "±: standard deviation among topologies",
        )
        shown = [row for row in result.distributions if row.percent in (20, 50, 80, 95)]
        distributions = listed(
            "sbon-distributions",
            "Points of Figures 8 and 9, over the queries of all topologies",
            shown,
            {
                "algorithm": "algorithm",
                ">% of queries": "percent",
                ">network usage up to, KB": ("usage", 2),
                ">delay up to, %": "delay",
            },
        )
        return [
            penalties,
            replace(distributions, rows=result.distributions),
            listed(
                "sbon-spaces",
                "RELAXATION in other cost spaces, %",
                result.spaces,
                {
                    "space": "space",
                    ">median error": "error",
                    ">network usage": "usage",
                    ">±": "usage_spread",
                    ">worst topology": "worst_usage",
                    ">delay": "delay",
                },
                "the first is the table's",
            ),
            listed(
                "sbon-reuse",
                "Network usage saved by reuse among queries for the same aggregation, %",
                result.reuse,
                {
                    "region": "region",
                    ">queries": "queries",
                    ">saved": "saving",
                    ">±": "saving_spread",
                    ">least": "least_saving",
                    ">published": ("published", 0),
                    ">without multicast": "saving_unicast",
                    ">operators": "shared",
                },
                "region: how far away, or on how many of the nearest nodes, a running operator is "
                "looked for; operators: aggregators left of as many as there are queries, mean",
            ),
        ]

    def draw(self, result: Result) -> Drawing:
        """Table 1 as bars, Figures 8 and 9, and the savings."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(10.5, 7.4))
        (bars, saved), (usage, delay) = figure.subplots(2, 2)
        place = np.arange(len(result.table))
        for shift, what, colour in ((-0.2, "usage", "#D55E00"), (0.2, "delay", "#0072B2")):
            values = [getattr(row, what) for row in result.table]
            spread = [getattr(row, f"{what}_spread") for row in result.table]
            published = [getattr(row, f"published_{what}") for row in result.table]
            label = "network usage" if what == "usage" else "delay"
            bars.bar(place + shift, values, 0.38, yerr=spread, color=colour, label=label, capsize=2)
            bars.plot(place + shift, published, "k_", ms=13, mew=2)
        bars.plot([], [], "k_", ms=13, mew=2, label="published")
        bars.set_xticks(place, [row.algorithm for row in result.table], rotation=20, ha="right")
        bars.set_ylabel("penalty, %")
        bars.legend(frameon=False)
        reuse = [row for row in result.reuse if row.region == result.reuse[0].region]
        queries = [str(row.queries) for row in reuse]
        for shift, what, label in (
            (-0.2, "saving", "with multicast"),
            (0.2, "saving_unicast", "without"),
        ):
            values = [getattr(row, what) for row in reuse]
            saved.bar(np.arange(len(queries)) + shift, values, 0.38, label=label)
        saved.set_xticks(np.arange(len(queries)), queries)
        saved.set_xlabel("queries for the same aggregation")
        saved.set_ylabel("network usage saved by reuse, %")
        saved.legend(frameon=False)
        for name, colour in zip(PUBLISHED, COLOURS, strict=True):
            rows = [row for row in result.distributions if row.algorithm == name]
            percent = [row.percent for row in rows]
            usage.plot([row.usage for row in rows], percent, color=colour, label=name)
            delay.plot([row.delay for row in rows], percent, color=colour, label=name)
        usage.set_xlabel("network usage of a query, KB in flight")
        delay.set_xlabel("increase of delay, %")
        delay.set_xlim(-50, 250)
        usage.legend(frameon=False, loc="lower right")
        for axes in (usage, delay):
            axes.set_ylabel("queries, %")
        figure.suptitle(
            f"SBON on {result.topologies} transit-stub topologies of {result.nodes} nodes, "
            f"{result.queries} queries each",
            x=0.01,
            ha="left",
        )
        return figure


def _space(
    topology: TransitStub, space: SpaceParameters, parameters: SbonParameters, seed: int
) -> CostSpace:
    return embed(
        sample_pairs(topology.latency, parameters.neighbours, seed=seed),
        len(topology),
        dimensions=space.dimensions,
        height=space.height,
        method="vivaldi",
        seed=seed,
    )


def _mapper(space: CostSpace) -> Mapper:
    """Heights are one more dimension, whose ideal value is 0, as for load."""
    return Mapper(space.position, axes=None if space.height is None else space.height[:, None])


def _compare(topology: TransitStub, graph: OperatorGraph, space: CostSpace, seed: int) -> _Measured:
    """All algorithms on the same queries."""

    def routes(sink: int) -> RootedTree:
        return RootedTree(topology.towards[sink], topology.hops[sink])

    placed: dict[str, Ints] = {
        "optimal": comparators.optimal(graph, topology.latency),
        "relaxation": relaxation(graph, _mapper(space)).nodes,
        "ip-multicast": comparators.ip_multicast(graph, routes),
        "producer": comparators.producer(graph, seed),
        "consumer": comparators.consumer(graph),
        "random": comparators.random_nodes(graph, len(topology), seed),
    }
    usage = {name: usage_by_query(graph, at, topology.latency) for name, at in placed.items()}
    return _Measured(usage, {name: _penalty(graph, at, topology) for name, at in placed.items()})


def _penalty(graph: OperatorGraph, nodes: Ints, topology: TransitStub) -> Floats:
    delay, direct = delays(graph, nodes, topology.latency)
    return delay / direct - 1


def _in_space(
    topology: TransitStub, graph: OperatorGraph, space: CostSpace, measured: _Measured
) -> tuple[float, float, float]:
    """Median error of a space, and RELAXATION's penalties in it, as shares."""
    nodes = relaxation(graph, _mapper(space)).nodes
    usage = graph.network_usage(nodes, topology.latency)
    delay = _penalty(graph, nodes, topology).mean()
    error = errors(space, topology.latency).median_relative
    return error, usage / measured.usage["optimal"].sum() - 1, float(delay)


def _savings(
    topology: TransitStub, space: CostSpace, parameters: Reuse, seed: int
) -> list[list[tuple[float, float, int]]]:
    """Shares saved with and without multicast, and operators left.

    By region and number of queries, then by group.
    """
    savings = []
    for (radius, k), count in product(parameters.regions.values(), parameters.queries):
        groups = []
        for group in range(parameters.groups):
            graph = same_aggregation(
                topology, count, parameters.rate, parameters.output_rate, [seed, 2, count, group]
            )
            alone = graph.network_usage(relaxation(graph, _mapper(space)).nodes, topology.latency)
            shared = [
                share(graph, _mapper(space), ReuseParameters(radius, k, multicast))
                for multicast in (True, False)
            ]
            cost = [s.graph.network_usage(s.placement.nodes, topology.latency) for s in shared]
            saved = [1 - one / alone if alone > 0 else 0.0 for one in cost]
            groups.append((saved[0], saved[1], count - shared[0].reused))
        savings.append(groups)
    return savings


def _table(measured: list[_Measured]) -> list[Row]:
    rows = []
    for name, (usage, delay) in PUBLISHED.items():
        totals = [100 * (m.usage[name].sum() / m.usage["optimal"].sum() - 1) for m in measured]
        means = [100 * m.delay[name].mean() for m in measured]
        p80 = [np.percentile(_all(measured, "usage", one), 80) for one in (name, "optimal")]
        rows.append(
            Row(
                algorithm=name,
                usage=float(np.mean(totals)),
                usage_spread=float(np.std(totals)),
                published_usage=usage,
                delay=float(np.mean(means)),
                delay_spread=float(np.std(means)),
                published_delay=delay,
                usage_p80=float(100 * (p80[0] / p80[1] - 1)),
                faster=float(100 * (_all(measured, "delay", name) < -1e-9).mean()),
            )
        )
    return rows


def _all(measured: list[_Measured], what: str, algorithm: str) -> Floats:
    return np.concatenate([getattr(one, what)[algorithm] for one in measured])


def _distributions(measured: list[_Measured]) -> list[Percentile]:
    percent = np.arange(101)
    points = []
    for name in PUBLISHED:
        usage, delay = (np.percentile(_all(measured, w, name), percent) for w in ("usage", "delay"))
        # KB/s times ms are bytes.
        rows = zip(percent.tolist(), (usage / 1000).tolist(), (100 * delay).tolist(), strict=True)
        points += [Percentile(name, *row) for row in rows]
    return points


def _space_row(name: str, penalties: list[tuple[float, float, float]]) -> SpaceRow:
    error, usage, delay = 100 * np.array(penalties).T
    return SpaceRow(
        name,
        float(error.mean()),
        float(usage.mean()),
        float(usage.std()),
        float(usage.max()),
        float(delay.mean()),
    )


def _reuse_row(region: str, queries: int, savings: Floats) -> ReuseRow:
    """A row from (topologies, groups, 3) savings."""
    saving = 100 * savings[..., 0]
    return ReuseRow(
        region=region,
        queries=queries,
        saving=float(saving.mean()),
        saving_spread=float(saving.mean(axis=1).std()),
        saving_unicast=float(100 * savings[..., 1].mean()),
        least_saving=float(saving.min()),
        shared=float(savings[..., 2].mean()),
        published=PUBLISHED_SAVING if queries == 4 else np.nan,
    )
