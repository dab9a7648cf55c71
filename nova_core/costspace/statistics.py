"""How measured latencies behave: spread, coverage, symmetry, triangle violations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nova_core.costspace.latency_files import Measurements
from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints, PairLatencies

# Directions that differ by more than this share of their mean count as asymmetric.
ASYMMETRIC = 0.1
# Pairs whose detours are looked at; of more, as many are drawn.
PAIRS_LOOKED_AT = 50_000
PERCENTILES = (10, 50, 90, 99)


@dataclass(frozen=True)
class Statistics:
    """Figures of measured latencies, each pair once by the mean of its directions.

    Attributes:
        nodes: how many.
        pairs: measured pairs.
        coverage: their share of all pairs of nodes.
        least_degree: others measured with the node that has the fewest.
        degree: median of that over nodes.
        groups: unconnected groups of nodes; 1 when all are connected.
        mean: ms.
        percentiles: of the latencies, ms, by percent.
        both_ways: pairs measured in both directions.
        asymmetric_share: share of those whose directions are more than 10 % apart; 0 of none.
        triangles: triples of nodes looked at, all three pairs of which were measured.
        sampled: whether these are a sample.
        violated_triangles: share of them with one side longer than the other two together; no
            metric space has such a triangle (Ledlie et al. 2007).
        pairs_with_detour: share of the pairs with a shorter way over some third node.
        severity_median: of the violations, direct latency over that of the detour, median; NaN
            without any.
        severity_p90: its 90th percentile.
    """

    nodes: int
    pairs: int
    coverage: float
    least_degree: int
    degree: float
    groups: int
    mean: float
    percentiles: dict[int, float]
    both_ways: int
    asymmetric_share: float
    triangles: int
    sampled: bool
    violated_triangles: float
    pairs_with_detour: float
    severity_median: float
    severity_p90: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"percentiles": {f"p{k}": v for k, v in self.percentiles.items()}}


def statistics_of(measured: Measurements, seed: int = 0) -> Statistics:
    """Work out the figures.

    Args:
        measured: latencies between at least two nodes.
        seed: of the sample of pairs whose triangles are looked at.

    Raises:
        ProblemError: when nothing was measured.
    """
    pairs, nodes = measured.pairs(), len(measured.ids)
    if not len(pairs):
        raise ProblemError("latencies: no pair of nodes was measured")
    degree = np.bincount(pairs.source, minlength=nodes) + np.bincount(pairs.target, minlength=nodes)
    both_ways, asymmetric = _asymmetry(*measured.directed(), nodes)
    triangles = _triangles(pairs, nodes, seed)
    values = np.percentile(pairs.latency, PERCENTILES).tolist()
    return Statistics(
        nodes=nodes,
        pairs=len(pairs),
        coverage=len(pairs) / (nodes * (nodes - 1) / 2),
        least_degree=int(degree.min()),
        degree=float(np.median(degree)),
        groups=_groups(pairs, nodes),
        mean=float(pairs.latency.mean()),
        percentiles=dict(zip(PERCENTILES, values, strict=True)),
        both_ways=both_ways,
        asymmetric_share=asymmetric,
        **triangles,
    )


def _asymmetry(source: Ints, target: Ints, latency: Floats, nodes: int) -> tuple[int, float]:
    """How many pairs were measured both ways, and the share of them that is asymmetric."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    key = low * nodes + high
    order = np.argsort(key, kind="stable")
    key, latency = key[order], latency[order]
    twice = np.flatnonzero(key[:-1] == key[1:])
    if not len(twice):
        return 0, 0.0
    apart = np.abs(latency[twice] - latency[twice + 1])
    mean = (latency[twice] + latency[twice + 1]) / 2
    return len(twice), float((apart > ASYMMETRIC * mean).mean())


def _groups(pairs: PairLatencies, nodes: int) -> int:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    edges = csr_array(
        (np.ones(len(pairs), np.int8), (pairs.source, pairs.target)), shape=(nodes, nodes)
    )
    count, _ = connected_components(edges, directed=False)
    return int(count)


def _triangles(pairs: PairLatencies, nodes: int, seed: int) -> dict[str, Any]:
    """Triangle violations: every triangle once from each of its sides looked at."""
    ends = np.concatenate([pairs.source, pairs.target])
    others = np.concatenate([pairs.target, pairs.source])
    order = np.argsort(ends, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=nodes))))
    neighbour, latency = others[order], np.tile(pairs.latency, 2)[order]
    looked_at = np.arange(len(pairs))
    if len(pairs) > PAIRS_LOOKED_AT:
        looked_at = np.sort(
            np.random.default_rng(seed).choice(len(pairs), PAIRS_LOOKED_AT, replace=False)
        )
    from_first = np.full(nodes, np.nan)
    sides = violations = detoured = with_third = 0
    severity = []
    for pair in looked_at.tolist():
        a, b, direct = pairs.source[pair], pairs.target[pair], pairs.latency[pair]
        mine, theirs = slice(start[a], start[a + 1]), slice(start[b], start[b + 1])
        from_first[neighbour[mine]] = latency[mine]
        detour = from_first[neighbour[theirs]] + latency[theirs]
        from_first[neighbour[mine]] = np.nan
        detour = detour[~np.isnan(detour)]
        # Differences of rounding are no violations.
        shorter = detour[detour < direct * (1 - 1e-9)]
        sides += len(detour)
        violations += len(shorter)
        with_third += len(detour) > 0
        detoured += len(shorter) > 0
        severity.append(direct / np.maximum(shorter, 1e-9))
    ratios = np.concatenate(severity)
    median, p90 = np.percentile(ratios, [50, 90]).tolist() if len(ratios) else (np.nan, np.nan)
    return {
        "triangles": sides // 3,
        "sampled": len(looked_at) < len(pairs),
        # A triangle has three sides, of which at most one is too long.
        "violated_triangles": 3 * violations / max(sides, 1),
        "pairs_with_detour": detoured / max(with_third, 1),
        "severity_median": median,
        "severity_p90": p90,
    }


__all__ = ["Statistics", "statistics_of"]
