"""SBON's migration: queries whose operators migrate with the network, beside fixed ones.

P. Pietzuch et al., *Network-Aware Operator Placement for Stream-Processing Systems*, ICDE 2006,
section 4.2.1. The text's run was on PlanetLab for five hours; this one is on measured latencies of
consecutive hours, with random load, because the load of PlanetLab's nodes is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from nova_core.costspace import CostSpace, embed, sample_pairs
from nova_core.errors import NovaError
from nova_core.model.problem import Floats
from nova_research.figures.base import Figure, Run, Table, cell, listed
from nova_research.figures.inputs import HOURS, latencies
from nova_research.operators import OperatorGraph
from nova_research.sbon.mapping import Mapper
from nova_research.sbon.queries import aggregations, delays, usage_by_query
from nova_research.sbon.relaxation import relaxation
from nova_research.sbon.running import Thresholds, reoptimize

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

# A pair whose network usage changes by less than this share has not changed.
UNCHANGED = 1e-9


class Variant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One way to run the queries.

    Attributes:
        label: its name.
        load: weight of load in the cost space, ms per unit of load; 0 is a pure latency space.
        displacement: least movement of a virtual position that starts a search for a node, ms.
        migration: network usage that a migration must save, tuples/s * ms.
        measured: whether savings are calculated from measured latencies, or from the space's.
        first_neighbours: others that nodes have measured when queries are first placed; None for
            the same number as later.
    """

    label: str
    load: float = 1.0
    displacement: float = 1.0
    migration: float = 0.0
    measured: bool = False
    first_neighbours: int | None = None


class SbonMigrationParameters(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """Parameters of the experiment.

    Attributes:
        latencies: in the data directory, in order of time.
        synthetic_nodes: hosts of the synthetic internet.
        synthetic_hours: its hours.
        nodes: drawn from those measured; the default is the text's number.
        pairs: of queries with the same ends, one of which may migrate.
        groups: repetitions with other nodes, ends and loads.
        selectivity: input over output of an aggregator: 2 tuples/s become 0.25 tuples/s.
        neighbours: others that every node measures.
        dimensions: of the latency space.
        load_mean: of nodes, the text's 40.
        load_spread: standard deviation of the loads' logarithms.
        load_memory: correlation of a node's load with that of the hour before.
        variants: ways to run the queries.
    """

    latencies: tuple[str, ...] = HOURS
    synthetic_nodes: int = 130
    synthetic_hours: int = 6
    nodes: Annotated[int, Meta(ge=4, description="Nodes, drawn from those measured")] = 130
    pairs: Annotated[int, Meta(ge=1, description="Pairs of queries in a group")] = 24
    groups: Annotated[int, Meta(ge=1, description="Groups, figures are means over them")] = 20
    selectivity: float = 8.0
    neighbours: int = 32
    dimensions: int = 3
    load_mean: float = 40.0
    load_spread: float = 0.5
    load_memory: float = 0.7
    variants: tuple[Variant, ...] = (
        Variant("as in the text"),
        Variant("pure latency space", load=0.0),
        Variant("migrates when it saves 10", migration=10.0),
        Variant("migrates when it saves 50", migration=50.0),
        Variant("looks after 10 ms", displacement=10.0),
        Variant("looks after 30 ms", displacement=30.0),
        Variant("savings measured", measured=True),
        Variant("pure latency, savings measured", load=0.0, measured=True),
        Variant("first placed knowing 4 others", first_neighbours=4),
    )


@dataclass(frozen=True)
class Row:
    """Queries that may migrate, against the same fixed ones, over the hours; means of groups.

    Attributes:
        variant: its name.
        usage: change of the network usage of all queries, %.
        usage_spread: standard deviation among groups.
        less: share of pairs in which the one that may migrate uses less, %.
        more: share in which it uses more.
        moves: migrations of a query.
        delay: change of the queries' mean delay, %.
    """

    variant: str
    usage: float
    usage_spread: float
    less: float
    more: float
    moves: float
    delay: float


@dataclass(frozen=True)
class Pair:
    """A pair of the first variant: Figure 12.

    Attributes:
        group: its group.
        usage: change of network usage, %.
        moves: migrations.
    """

    group: int
    usage: float
    moves: int


@dataclass(frozen=True)
class Result:
    """The experiment's numbers.

    Attributes:
        latencies: where they come from.
        nodes: in a group.
        hours: in which operators are re-evaluated.
        rows: by variant.
        pairs: of the first variant, by change.
    """

    latencies: str
    nodes: int
    hours: int
    rows: list[Row]
    pairs: list[Pair]


@dataclass(frozen=True, eq=False)
class _Network:
    """A group: (n, n) latencies, a space and (n,) loads of every hour; and the queries."""

    latency: Sequence[Floats]
    spaces: Sequence[CostSpace]
    load: Sequence[Floats]
    graph: OperatorGraph


class SbonMigration(Figure[SbonMigrationParameters, Result]):
    """Operators that migrate with the network, hour by hour, beside the same fixed queries."""

    name = "sbon-migration"
    source = "SBON, section 4.2.1, Figure 12"
    Parameters = SbonMigrationParameters
    data = "measured latencies"
    # Change of network usage, %; pairs with less, %; migrations of a query; change of delay, %.
    published: ClassVar[Mapping[str, float]] = {
        "usage": -16.9,
        "less": 75.0,
        "moves": 3.5,
        "delay": -10.5,
    }
    quick: ClassVar = {"groups": 4}

    def run(self, parameters: SbonMigrationParameters, run: Run) -> Result:
        """Place the queries in the first hour, and let some migrate in the others."""
        if len(parameters.latencies) < 2:
            raise NovaError("sbon-migration: latencies: one hour; expected two or more")
        if not parameters.variants:
            raise NovaError("sbon-migration: variants: expected one or more")
        source, ids, hours = latencies(
            run.data, parameters.latencies, parameters.synthetic_nodes, parameters.synthetic_hours
        )
        if len(ids) < parameters.nodes:
            raise NovaError(
                f"sbon-migration: nodes is {parameters.nodes}; {len(ids)} were measured"
            )
        # [variant][group]: (5, q) totals, see `_follow`.
        totals: list[list[Floats]] = [[] for _ in parameters.variants]
        for group in range(parameters.groups):
            run.advance(group, parameters.groups)
            network = _network(hours, parameters, group)
            for variant, results in zip(parameters.variants, totals, strict=True):
                results.append(_follow(network, variant, parameters, group))
        run.advance(parameters.groups, parameters.groups)
        pairs = [
            Pair(group, 100 * float(after / before - 1), int(moves))
            for group, one in enumerate(totals[0])
            for before, after, moves in one[:3].T
        ]
        return Result(
            source,
            parameters.nodes,
            len(hours) - 1,
            [
                _row(v.label, np.array(one))
                for v, one in zip(parameters.variants, totals, strict=True)
            ],
            sorted(pairs, key=lambda pair: pair.usage),
        )

    def tables(self, result: Result) -> list[Table]:
        """A row per variant, the text's first; and the pairs."""
        title = (
            f"Queries that may migrate against those that may not, {result.hours} hours "
            f"({result.latencies}), %"
        )
        rows = listed(
            "sbon-migration",
            title,
            result.rows,
            {
                "variant": "variant",
                ">network usage": "usage",
                ">±": "usage_spread",
                ">pairs with less": ("less", 0),
                ">with more": ("more", 0),
                ">migrations": "moves",
                ">delay": "delay",
            },
            "±: standard deviation among groups",
        )
        p = self.published
        text = ("published, PlanetLab", p["usage"], "", p["less"], "", p["moves"], p["delay"])
        lines = [*rows.lines, [cell(value) for value in text]]
        pairs = listed(
            "sbon-migration-pairs",
            "Figure 12: pairs by change of network usage, every tenth of them",
            result.pairs[:: max(1, len(result.pairs) // 10)],
            {">change, %": "usage", ">migrations": "moves"},
        )
        return [
            replace(rows, lines=lines),
            replace(pairs, rows=result.pairs),
        ]

    def draw(self, result: Result) -> Drawing:
        """Figure 12: change of every pair, and the variants' totals."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(10.0, 4.0))
        pairs, totals = figure.subplots(1, 2)
        pairs.bar(range(len(result.pairs)), [pair.usage for pair in result.pairs], width=1.0)
        pairs.set_xlabel(f"pairs, {result.rows[0].variant}")
        pairs.set_ylabel("change of network usage, %")
        names = [row.variant for row in result.rows]
        totals.barh(names, [row.usage for row in result.rows], color="#0072B2")
        totals.axvline(self.published["usage"], color="#D55E00", linestyle=":")
        totals.invert_yaxis()
        totals.set_xlabel("network usage of all, % (dotted: published)")
        return figure


def _network(hours: Sequence[Floats], parameters: SbonMigrationParameters, group: int) -> _Network:
    random = np.random.default_rng([group, 7])
    drawn = random.choice(len(hours[0]), parameters.nodes, replace=False)
    latency = [hour[np.ix_(drawn, drawn)] for hour in hours]
    spaces: list[CostSpace] = []
    for hour in latency:
        spaces.append(
            _space(hour, parameters, group, parameters.neighbours, spaces[-1] if spaces else None)
        )
    log_load = parameters.load_spread * random.standard_normal(parameters.nodes)
    load = []
    for _ in hours:
        # Mean of exp(N(0, s)) is exp(s²/2).
        load.append(parameters.load_mean * np.exp(log_load - parameters.load_spread**2 / 2))
        new = parameters.load_spread * random.standard_normal(parameters.nodes)
        log_load = parameters.load_memory * log_load + np.sqrt(1 - parameters.load_memory**2) * new
    graph = aggregations(parameters.nodes, parameters.pairs, 2, 1.0, parameters.selectivity, group)
    return _Network(latency, spaces, load, graph)


def _space(
    latency: Floats,
    parameters: SbonMigrationParameters,
    seed: int,
    neighbours: int,
    start: CostSpace | None = None,
) -> CostSpace:
    return embed(
        sample_pairs(latency, min(neighbours, parameters.nodes - 1), seed=seed),
        parameters.nodes,
        dimensions=parameters.dimensions,
        method="vivaldi",
        seed=seed,
        start=start,
    )


def _follow(
    network: _Network, variant: Variant, parameters: SbonMigrationParameters, group: int
) -> Floats:
    """(5, q) network usage without and with migration, moves, and delays without and with."""

    def mapper(space: CostSpace, load: Floats) -> Mapper:
        axes = variant.load * load[:, None] if variant.load > 0 else None
        return Mapper(space.position, axes=axes)

    graph = network.graph
    first = network.spaces[0]
    if variant.first_neighbours is not None:
        first = _space(network.latency[0], parameters, group, variant.first_neighbours)
    start = placed = relaxation(graph, mapper(first, network.load[0]))
    thresholds = Thresholds(variant.displacement, variant.migration)
    totals = np.zeros((5, parameters.pairs))
    query = np.array([operator.query for operator in graph.operators])
    for latency, space, load in zip(
        network.latency[1:], network.spaces[1:], network.load[1:], strict=True
    ):
        measured = latency if variant.measured else None
        placed, moved = reoptimize(graph, placed, mapper(space, load), measured, thresholds)
        for row, one in ((0, start), (1, placed)):
            totals[row] += usage_by_query(graph, one.nodes, latency)
            totals[row + 3] += delays(graph, one.nodes, latency)[0]
        np.add.at(totals[2], query[[one.operator for one in moved]], 1)
    return totals


def _row(label: str, by_group: Floats) -> Row:
    """A row from (groups, 5, q) totals."""
    before, after, moves, slow, slower = by_group.transpose(1, 0, 2)
    change = after / before - 1
    totals = 100 * (after.sum(axis=1) / before.sum(axis=1) - 1)
    return Row(
        label,
        float(100 * (after.sum() / before.sum() - 1)),
        float(totals.std()),
        float(100 * (change < -UNCHANGED).mean()),
        float(100 * (change > UNCHANGED).mean()),
        float(moves.mean()),
        float(100 * (slower.sum() / slow.sum() - 1)),
    )
