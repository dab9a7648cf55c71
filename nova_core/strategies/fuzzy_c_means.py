"""Fuzzy c-means: clusters every node belongs to in part (Bezdek, 1981)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.model.problem import Floats, Ints

# Nodes times clusters looked at together: what stays in the processor's cache.
_BLOCK = 1 << 16
# Squared distance, as a share of the nodes' mean squared spread, below which a node counts as
# lying on a centre.
_ON_CENTRE = 1e-18


@dataclass(frozen=True, eq=False)
class Clusters:
    """Fuzzy clusters, with every node counted to the one it belongs to most.

    Attributes:
        centre: (c, d) where the clusters are, ms.
        label: (n,) cluster each node belongs to most: that of the nearest centre.
        iterations: rounds it took.
    """

    centre: Floats
    label: Ints
    iterations: int


def fuzzy_c_means(
    position: Floats, count: int, seed: int, tolerance: float = 1e-4, most_iterations: int = 1000
) -> Clusters:
    """Cluster nodes with the fuzzifier m = 2.

    Takes O(n c d) time per iteration and O(n) memory: memberships are never kept.

    Args:
        position: (n, d) coordinates, ms.
        count: c, clusters; there are never more than nodes at distinct places.
        seed: of the first centres, which are drawn far apart (k-means++).
        tolerance: how far a centre may still move in the last round, as a share of the nodes'
            mean distance from their middle.
        most_iterations: rounds after which to stop in any case.
    """
    from scipy.spatial import cKDTree

    middle = position.mean(axis=0)
    centred = position - middle
    spread = float(np.sqrt((centred**2).sum(axis=1).mean()))
    scaled = centred / spread if spread > 0 else centred
    centre, step, rounds = _first_centres(scaled, count, seed), np.inf, 0
    while step > tolerance and rounds < most_iterations:
        moved = _weighted_means(scaled, centre)
        step, centre, rounds = float(np.abs(moved - centre).max()), moved, rounds + 1
    label = cKDTree(centre).query(scaled)[1]
    return Clusters(centre * spread + middle, np.asarray(label, np.int64), rounds)


def _first_centres(position: Floats, count: int, seed: int) -> Floats:
    from sklearn.cluster import kmeans_plusplus

    distinct = np.unique(position, axis=0)
    if count >= len(distinct):
        return np.asarray(distinct, np.float64)
    return np.asarray(kmeans_plusplus(distinct, count, random_state=seed)[0], np.float64)


def _weighted_means(position: Floats, centre: Floats) -> Floats:
    """Every centre's mean of all nodes, weighted by the squares of their memberships."""
    dimensions = position.shape[1]
    sums = np.zeros((len(centre), dimensions + 1))
    rows = max(1, _BLOCK // len(centre))
    for begin in range(0, len(position), rows):
        part = position[begin : begin + rows]
        squared = np.full((len(part), len(centre)), _ON_CENTRE)
        for axis in range(dimensions):
            difference = part[:, axis, None] - centre[:, axis]
            difference *= difference
            squared += difference
        # A membership is 1 / squared over the sum of this over all clusters.
        closeness = np.divide(1.0, squared, out=squared)
        share = 1.0 / closeness.sum(axis=1)
        closeness *= closeness
        values = np.column_stack([part, np.ones(len(part))]) * (share * share)[:, None]
        sums += closeness.T @ values
    return np.asarray(sums[:, :-1] / sums[:, -1:])


__all__ = ["Clusters", "fuzzy_c_means"]
