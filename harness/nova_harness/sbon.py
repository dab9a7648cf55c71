"""SBON's simulation again: Table 1, Figures 8 and 9, and what operator reuse saves.

P. Pietzuch et al., *Network-Aware Operator Placement for Stream-Processing Systems*, ICDE 2006,
sections 4.1 and 4.2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import cast

import msgspec
import numpy as np

from nova_core.costspace import CostSpace, embed, errors, sample_pairs
from nova_core.errors import NovaError
from nova_core.model.operator_graph import OperatorGraph
from nova_core.model.problem import Floats, Ints
from nova_core.strategies.sbon import comparators
from nova_core.strategies.sbon.mapping import Mapper
from nova_core.strategies.sbon.relaxation import relaxation
from nova_core.strategies.sbon.running import ReuseParameters, share
from nova_core.strategies.trees import RootedTree
from nova_harness.figure_inputs import SpaceParameters
from nova_harness.sbon_queries import aggregations, delays, same_aggregation, usage_by_query
from nova_harness.sbon_results import (
    PUBLISHED,
    PUBLISHED_SAVING,
    Percentile,
    Result,
    ReuseRow,
    Row,
    SpaceRow,
)
from nova_workloads.transit_stub import TransitStub, TransitStubParameters, transit_stub


class Reuse(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Parameters of the part on reuse.

    Attributes:
        queries: how many ask for the same, one part of the experiment each.
        groups: of so many queries, on each topology.
        rate: of each of the two producers.
        output_rate: of an aggregator.
        radius: how far away an operator that is reused may run, ms.
    """

    queries: list[int]
    groups: int
    rate: float
    output_rate: float
    radius: float


class Sbon(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment, see ``harness/experiments/sbon.yaml``."""

    experiment: int
    seeds: int
    queries: int
    producers: int
    rate: float
    selectivity: float
    topology: dict[str, float]
    neighbours: int
    space: SpaceParameters
    spaces: list[SpaceParameters]
    reuse: Reuse

    def network(self) -> TransitStubParameters:
        """The topologies' parameters.

        Raises:
            NovaError: for one that is not there, or out of range.
        """
        known = {field.name: field.type for field in fields(TransitStubParameters)}
        for name in self.topology:
            if name not in known:
                raise NovaError(f"topology: unknown field {name!r}; it has {', '.join(known)}")
        whole = {n: int(v) for n, v in self.topology.items() if known[n] == "int" and v % 1 == 0}
        return TransitStubParameters(**cast("dict[str, int]", {**self.topology, **whole}))


@dataclass(frozen=True, eq=False)
class _Measured:
    """Of one topology: (q,) network usage and relative increase of delay of each algorithm."""

    usage: dict[str, Floats]
    delay: dict[str, Floats]


def run(asked: Sbon, advance: Callable[[int, int], None] = lambda *_: None) -> Result:
    """Run the experiment.

    Args:
        asked: its parameters.
        advance: called with steps done and steps in all.

    Raises:
        NovaError: for parameters out of range.
    """
    for name in ("seeds", "queries", "producers"):
        if getattr(asked, name) < 1:
            raise NovaError(f"sbon: {name} is {getattr(asked, name)}; expected 1 or more")
    for name in ("rate", "selectivity"):
        if not 0 < getattr(asked, name) < np.inf:
            raise NovaError(f"sbon: {name} is {getattr(asked, name):g}; expected more than 0")
    network = asked.network()
    measured: list[_Measured] = []
    # [topology][space], and [topology][queries][group].
    spaces: list[list[tuple[float, float, float]]] = []
    savings: list[list[list[tuple[float, float, int]]]] = []
    nodes = 0
    for seed in range(asked.seeds):
        advance(seed, asked.seeds)
        made = transit_stub(seed, network)
        nodes = len(made)
        graph = aggregations(
            nodes, asked.queries, asked.producers, asked.rate, asked.selectivity, seed
        )
        space = _space(made, asked.space, asked, seed)
        measured.append(_compare(made, graph, space, seed))
        spaces.append([_in_space(made, graph, space, measured[-1])])
        spaces[-1] += [
            _in_space(made, graph, _space(made, other, asked, seed), measured[-1])
            for other in asked.spaces
        ]
        savings.append(_savings(made, space, asked.reuse, seed))
    advance(asked.seeds, asked.seeds)
    labels = [one.label for one in (asked.space, *asked.spaces)]
    return Result(
        nodes=nodes,
        topologies=asked.seeds,
        queries=asked.queries,
        table=_table(measured),
        distributions=_distributions(measured),
        spaces=[_space_row(name, [s[i] for s in spaces]) for i, name in enumerate(labels)],
        reuse=[
            _reuse_row(count, np.array([topology[i] for topology in savings]))
            for i, count in enumerate(asked.reuse.queries)
        ],
    )


def _space(made: TransitStub, space: SpaceParameters, asked: Sbon, seed: int) -> CostSpace:
    return embed(
        sample_pairs(made.latency, asked.neighbours, seed=seed),
        len(made),
        dimensions=space.dimensions,
        height=space.height,
        method="vivaldi",
        seed=seed,
    )


def _mapper(space: CostSpace) -> Mapper:
    """Heights are one more dimension, in which operators wish for 0 as for load."""
    return Mapper(space.position, axes=None if space.height is None else space.height[:, None])


def _compare(made: TransitStub, graph: OperatorGraph, space: CostSpace, seed: int) -> _Measured:
    """All algorithms on the same queries."""

    def routes(sink: int) -> RootedTree:
        return RootedTree(made.towards[sink], made.hops[sink])

    placed: dict[str, Ints] = {
        "optimal": comparators.optimal(graph, made.latency),
        "relaxation": relaxation(graph, _mapper(space)).nodes,
        "ip-multicast": comparators.ip_multicast(graph, routes),
        "producer": comparators.producer(graph, seed),
        "consumer": comparators.consumer(graph),
        "random": comparators.random_nodes(graph, len(made), seed),
    }
    usage = {name: usage_by_query(graph, at, made.latency) for name, at in placed.items()}
    return _Measured(usage, {name: _penalty(graph, at, made) for name, at in placed.items()})


def _penalty(graph: OperatorGraph, nodes: Ints, made: TransitStub) -> Floats:
    delay, direct = delays(graph, nodes, made.latency)
    return delay / direct - 1


def _in_space(
    made: TransitStub, graph: OperatorGraph, space: CostSpace, measured: _Measured
) -> tuple[float, float, float]:
    """Median error of a space, and RELAXATION's penalties in it, as shares."""
    found = relaxation(graph, _mapper(space)).nodes
    usage = graph.network_usage(found, made.latency)
    delay = _penalty(graph, found, made).mean()
    error = errors(space, made.latency).median_relative
    return error, usage / measured.usage["optimal"].sum() - 1, float(delay)


def _savings(
    made: TransitStub, space: CostSpace, asked: Reuse, seed: int
) -> list[list[tuple[float, float, int]]]:
    """Of every number of queries and group: shares saved with and without multicast; operators."""
    found = []
    for count in asked.queries:
        groups = []
        for group in range(asked.groups):
            graph = same_aggregation(
                made, count, asked.rate, asked.output_rate, [seed, 2, count, group]
            )
            alone = graph.network_usage(relaxation(graph, _mapper(space)).nodes, made.latency)
            shared = [
                share(graph, _mapper(space), ReuseParameters(asked.radius, multicast))
                for multicast in (True, False)
            ]
            cost = [s.graph.network_usage(s.placement.nodes, made.latency) for s in shared]
            saved = [1 - one / alone if alone > 0 else 0.0 for one in cost]
            groups.append((saved[0], saved[1], count - shared[0].reused))
        found.append(groups)
    return found


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
    found = []
    for name in PUBLISHED:
        usage, delay = (np.percentile(_all(measured, w, name), percent) for w in ("usage", "delay"))
        # KB/s times ms are bytes.
        rows = zip(percent.tolist(), (usage / 1000).tolist(), (100 * delay).tolist(), strict=True)
        found += [Percentile(name, *row) for row in rows]
    return found


def _space_row(name: str, found: list[tuple[float, float, float]]) -> SpaceRow:
    error, usage, delay = 100 * np.array(found).T
    return SpaceRow(
        name,
        float(error.mean()),
        float(usage.mean()),
        float(usage.std()),
        float(usage.max()),
        float(delay.mean()),
    )


def _reuse_row(queries: int, found: Floats) -> ReuseRow:
    """Of (topologies, groups, 3) savings."""
    saving = 100 * found[..., 0]
    return ReuseRow(
        queries=queries,
        saving=float(saving.mean()),
        saving_spread=float(saving.mean(axis=1).std()),
        saving_unicast=float(100 * found[..., 1].mean()),
        least_saving=float(saving.min()),
        shared=float(found[..., 2].mean()),
        published=PUBLISHED_SAVING if queries == 4 else np.nan,
    )
