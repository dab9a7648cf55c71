"""How far measured latencies are from distances: violations of the triangle inequality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.costspace.measurements import symmetric
from nova_core.model.problem import Floats

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


__all__ = ["TriangleReport", "triangle_violations"]
