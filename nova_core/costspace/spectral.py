"""A start for large topologies: classical MDS of the few latencies that were measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.measurements import NeighbourGraph
from nova_core.costspace.sweeps import Workers
from nova_core.model.problem import Floats

# Outliers would each have an eigenvector of their own; cut, they leave the first ones to geography.
_CLIP = 0.5
# Rough eigenvectors do: sweeps come after.
_TOLERANCE = 0.3
_RESTARTS = 10


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
        found = np.empty(n, np.float32)
        workers.run(
            spectrum.product, 0, n, graph.start, graph.neighbour, centred, weight * vector.ravel(),
            found,
        )  # fmt: skip
        return np.asarray(weight * found)

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
    except ArpackNoConvergence as found_some:
        values = found_some.eigenvalues.real
        vectors = found_some.eigenvectors.real
    position = random.normal(scale=scale * 1e-3, size=(n, dimensions))
    found = vectors * np.sqrt(np.maximum(values, 0.0))
    position[:, : found.shape[1]] += found[:, ::-1] * (scale / _typical_distance(graph, found))
    return position.astype(np.float32)


def _typical_distance(graph: NeighbourGraph, position: Floats) -> float:
    """Median distance between neighbours; 1 where all are in one place."""
    neighbour = graph.neighbour[: graph.SAMPLE]
    row = np.searchsorted(graph.start, np.arange(len(neighbour)), side="right") - 1
    apart = position[row] - position[neighbour]
    if not apart.size:
        return 1.0
    return float(np.median(np.sqrt((apart**2).sum(axis=1)))) or 1.0


__all__ = ["spectral_start"]
