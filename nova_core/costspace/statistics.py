"""How measured latencies behave: spread, coverage, symmetry, triangle violations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.costspace.measurements import symmetric
from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints, PairLatencies

if TYPE_CHECKING:
    from nova_core.costspace.measurements import Measurements

# Directions that differ by more than this share of their mean count as asymmetric.
ASYMMETRIC = 0.1
# Triangles are searched in a matrix; for more nodes it would not fit into memory.
MOST_NODES = 5_000
PERCENTILES = (10, 50, 90, 99)
# Most pairs whose triangles are examined; of more, a sample.
_MOST_PAIRS = 200_000


@dataclass(frozen=True)
class TriangleReport:
    """Triangle violations; no embedding can follow them.

    Attributes:
        triples: how many triples of nodes were looked at, once for each of their sides.
        share: share of triples whose longest side is longer than the other two together.
        severity: mean over those of longest / sum of the others, less 1.
        pairs: how many pairs of nodes.
        pairs_with_detour: share of pairs with a third node on a shorter way.
        median_saving: median over those pairs of 1 - shortest way / direct.
        p90_saving: its 90th percentile.
    """

    triples: int
    share: float
    severity: float
    pairs: int
    pairs_with_detour: float
    median_saving: float
    p90_saving: float


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
        triangles: violations of the triangle inequality, or None above 5 000 nodes.
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
    triangles: TriangleReport | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"percentiles": {f"p{k}": v for k, v in self.percentiles.items()}}


def statistics_of(measured: Measurements, seed: int = 0) -> Statistics:
    """Work out the figures.

    Args:
        measured: latencies between at least two nodes.
        seed: of the sample of pairs whose triangles are examined.

    Raises:
        ProblemError: when nothing was measured.
    """
    pairs, nodes = measured.pairs(), len(measured.ids)
    if not len(pairs):
        raise ProblemError("latencies: no pair of nodes was measured")
    degree = np.bincount(pairs.source, minlength=nodes) + np.bincount(pairs.target, minlength=nodes)
    both_ways, asymmetric = _asymmetry(*measured.directed(), nodes)
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
        triangles=_triangles(pairs, nodes, seed),
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


def _triangles(pairs: PairLatencies, nodes: int, seed: int) -> TriangleReport | None:
    if nodes > MOST_NODES:
        return None
    latency = np.full((nodes, nodes), np.nan)
    latency[pairs.source, pairs.target] = pairs.latency
    return triangle_violations(latency, seed=seed)


def triangle_violations(latency: Floats, *, seed: int = 0) -> TriangleReport:
    """Look at all triples of nodes; of very many pairs at a random sample.

    Args:
        latency: (n, n) ms, NaN where nothing was measured; directions are averaged.
        seed: of the sample.

    Raises:
        ProblemError: for latencies that cannot be.
    """
    from nova_core.costspace.kernels import triangles as kernel

    mean = symmetric(latency)
    source, target = np.nonzero(np.triu(~np.isnan(mean), 1))
    if len(source) > _MOST_PAIRS:
        some = np.random.default_rng(seed).choice(len(source), _MOST_PAIRS, replace=False)
        source, target = source[some], target[some]
    count = len(source)
    shorter, known = np.zeros(count, np.int64), np.zeros(count, np.int64)
    excess, best = np.zeros(count), np.zeros(count)
    kernel.detours(0, count, source, target, mean, shorter, known, excess, best)
    # Each triple is seen from its three sides and at most one is longer than the others together.
    triples, violations = int(known.sum()) / 3, int(shorter.sum())
    detour = shorter > 0
    saving = 1 - best[detour] / mean[source, target][detour]
    median_saving, p90_saving = np.quantile(saving, (0.5, 0.9)) if detour.any() else (0.0, 0.0)
    return TriangleReport(
        triples=round(triples),
        share=violations / triples if triples else 0.0,
        severity=float(excess.sum()) / violations if violations else 0.0,
        pairs=count,
        pairs_with_detour=float(detour.mean()) if count else 0.0,
        median_saving=float(median_saving),
        p90_saving=float(p90_saving),
    )
