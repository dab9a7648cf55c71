"""Multidimensional scaling of dense latencies and of sparse measurements."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.measurements import NeighbourGraph
from nova_core.model.problem import Floats
from nova_core.workers import Workers

_SMACOF_ITERATIONS = 1000
# Each outlier would have its own eigenvector; clipping leaves the first ones to geography.
_CLIP = 0.5
# Rough eigenvectors suffice: sweeps follow.
_TOLERANCE = 0.3
_RESTARTS = 10


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
    rank = min(dimensions, n)
    values, vectors = eigh(products, subset_by_index=[n - rank, n - 1])
    position = np.zeros((n, dimensions))
    position[:, :rank] = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
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


def spectral_start(
    graph: NeighbourGraph, dimensions: int, seed: int, workers: Workers
) -> NDArray[np.float32]:
    """(n, d) positions, ms, in the order of the rows, unfolded but rough.

    Doubly centred latencies -(d_ij - d_i. - d_.j + d_..) / 2 are the scalar products of points
    whose squared distances are the latencies; heights drop out of them. Measured entries divided by
    the square root of their rows' counts are a sparse sample of that matrix with the same first
    eigenvectors, up to noise. Their directions are what counts, so lengths are scaled to the
    median latency.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    from nova_core.costspace.kernels import spectrum

    n = len(graph)
    degree = np.diff(graph.start)
    scale = graph.typical_latency
    # A row of few entries would also have an eigenvector of its own.
    weight = (1 / np.sqrt(np.maximum(degree, degree.mean() / 2))).astype(np.float32)
    mean = np.empty(n, np.float32)
    workers.run(spectrum.row_means, 0, n, graph.start, graph.latency, mean)
    centred = np.empty(len(graph.neighbour), np.int8)
    workers.run(
        spectrum.centre, 0, n, graph.start, graph.neighbour, graph.latency, mean,
        np.float32(mean.mean()), np.float32(_CLIP * scale), centred,
    )  # fmt: skip

    def product(vector: NDArray[np.float32]) -> NDArray[np.float32]:
        result = np.empty(n, np.float32)
        workers.run(
            spectrum.product, 0, n, graph.start, graph.neighbour, centred, weight * vector.ravel(),
            result,
        )  # fmt: skip
        return np.asarray(weight * result)

    random = np.random.default_rng(seed)
    try:
        values, vectors = eigsh(
            LinearOperator((n, n), matvec=product, dtype=np.float32),
            k=dimensions,
            which="LA",
            ncv=2 * dimensions + 6,
            tol=_TOLERANCE,
            v0=random.normal(size=n).astype(np.float32),
            maxiter=_RESTARTS,
        )
    except ArpackNoConvergence as partial:
        values = partial.eigenvalues.real
        vectors = partial.eigenvectors.real
    position = random.normal(scale=scale * 1e-3, size=(n, dimensions))
    axes = vectors * np.sqrt(np.maximum(values, 0.0))
    position[:, : axes.shape[1]] += axes[:, ::-1] * (scale / _typical_distance(graph, axes))
    return position.astype(np.float32)


def _typical_distance(graph: NeighbourGraph, position: Floats) -> float:
    """Median distance between neighbours; 1 where all are in one place."""
    neighbour = graph.neighbour[: graph.SAMPLE]
    row = np.searchsorted(graph.start, np.arange(len(neighbour)), side="right") - 1
    apart = position[row] - position[neighbour]
    if not apart.size:
        return 1.0
    return float(np.median(np.sqrt((apart**2).sum(axis=1)))) or 1.0
