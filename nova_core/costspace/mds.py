"""Multidimensional scaling of dense latencies, from kept libraries."""

from __future__ import annotations

import warnings

import numpy as np

from nova_core.costspace.measurements import NeighbourGraph
from nova_core.model.problem import Floats

_SMACOF_ITERATIONS = 1000


def classical_mds(distance: Floats, dimensions: int) -> Floats:
    """(n, d) positions whose scalar products fit doubly centred squares best (Torgerson 1952).

    Args:
        distance: (n, n) ms, symmetric, nothing missing.
        dimensions: d.
    """
    from scipy.linalg import eigh

    n = len(distance)
    square = distance**2
    mean = square.mean(axis=0)
    products = -0.5 * (square - mean - mean[:, None] + mean.mean())
    kept = min(dimensions, n)
    values, vectors = eigh(products, subset_by_index=[n - kept, n - 1])
    position = np.zeros((n, dimensions))
    position[:, :kept] = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
    return position


def shortest_paths(graph: NeighbourGraph) -> Floats:
    """(n, n) latencies over the shortest paths of measured pairs, ms, in the order of the rows."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    n = len(graph)
    # scipy takes an edge of 0 for none; a billionth of a ms changes nothing.
    latency = np.maximum(graph.latency.astype(np.float64), 1e-9)
    edges = csr_array((latency, graph.neighbour, graph.start), shape=(n, n))
    return np.asarray(shortest_path(edges, method="D", directed=True))


def smacof(latency: Floats, dimensions: int) -> Floats:
    """(n, d) positions of least stress, by SMACOF from the classical solution (scikit-learn).

    Args:
        latency: (n, n) ms, symmetric, nothing missing.
        dimensions: d.
    """
    from sklearn.manifold import smacof as sklearn_smacof

    with warnings.catch_warnings():
        # Arguments that other versions of scikit-learn have other defaults for, or warn about.
        warnings.simplefilter("ignore", FutureWarning)
        position, _ = sklearn_smacof(
            latency,
            n_components=dimensions,
            init=classical_mds(latency, dimensions),
            n_init=1,
            max_iter=_SMACOF_ITERATIONS,
            eps=1e-7,
            normalized_stress=False,
        )
    return np.asarray(position)


__all__ = ["classical_mds", "shortest_paths", "smacof"]
