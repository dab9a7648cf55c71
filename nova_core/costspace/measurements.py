"""What was measured: as read, as pairs, and as the graph that embeddings work on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nova_core.costspace.percentile_filter import filtered
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.latencies import mean_of_directions
from nova_core.model.problem import (
    GREATEST_LATENCY,
    Floats,
    Ints,
    PairLatencies,
    Problem,
    Strings,
)
from nova_core.workers import Workers

# Rounds of digests: nodes with equal latencies are told apart by their neighbours' digests.
_REFINEMENTS = 3
# Groups, and nodes of each, that an error names.
_NAMED = 5


class DisconnectedError(ProblemError):
    """Measured pairs fall apart into unconnected groups of nodes.

    Attributes:
        component: (n,) number of each node's group; 0 is the largest.
    """

    def __init__(self, component: Ints, ids: Strings | None = None) -> None:
        """Name how many groups there are, how large, and some nodes of each.

        Args:
            component: (n,) number of each node's group.
            ids: (n,) the nodes' names; None for their numbers.
        """
        self.component = component
        groups = []
        for group, size in enumerate(np.bincount(component)[:_NAMED].tolist()):
            nodes = np.flatnonzero(component == group)[:_NAMED]
            names = ", ".join(map(str, (nodes if ids is None else ids[nodes]).tolist()))
            more = ", ..." * (size > _NAMED)
            groups.append(f"node {names}" if size == 1 else f"{size} nodes ({names}{more})")
        count = int(component.max()) + 1
        more = f", and {count - _NAMED} more" if count > _NAMED else ""
        super().__init__(
            f"the measured pairs fall apart into {count} unconnected groups: {'; '.join(groups)}"
            f"{more}; measure pairs between the groups, or embed each by itself"
        )


@dataclass(frozen=True, eq=False)
class Measurements:
    """Latencies that were measured between named nodes.

    Attributes:
        ids: (n,) names.
        matrix: (n, n) ms as measured, both directions, NaN where nothing was; or None.
        rows: (m,) pairs as they were measured, in order of time: source measured target; or None.
        problem: the problem they belong to, or None for a file of latencies alone.
    """

    ids: Strings
    matrix: Floats | None = None
    rows: PairLatencies | None = None
    problem: Problem | None = None

    def directed(self) -> tuple[Ints, Ints, Floats]:
        """((k,), (k,), (k,)) each direction once: source, target and filtered latency, ms.

        Of several measurements of one direction the 20th percentile of the last ten counts, which
        follows changes of routes but not the load of hosts (SBON, section 3.1.1).
        """
        if self.matrix is not None:
            known = ~np.isnan(self.matrix)
            np.fill_diagonal(known, False)
            source, target = np.nonzero(known)
            return source, target, self.matrix[source, target]
        assert self.rows is not None
        n = len(self.ids)
        key, value = filtered(self.rows.source * n + self.rows.target, self.rows.latency)
        return key // n, key % n, value

    def pairs(self) -> PairLatencies:
        """Each measured pair once, by the mean of its directions."""
        source, target, latency = self.directed()
        n = len(self.ids)
        low, high = np.minimum(source, target), np.maximum(source, target)
        key, row, count = np.unique(low * n + high, return_inverse=True, return_counts=True)
        mean = np.bincount(row, latency, len(key)) / count
        return PairLatencies(key // n, key % n, mean)


@dataclass(frozen=True, eq=False)
class NeighbourGraph:
    """Measured pairs from both ends, in an order that does not depend on the nodes' names.

    Row i holds what node ``node[i]`` measured or had measured to it: the entries
    ``start[i]:start[i + 1]`` of ``neighbour`` (rows again) and ``latency``. Rows are ordered by a
    digest of their latencies, so the same measurements under other names give the same graph and,
    with the same seed, the same random choices.

    Attributes:
        node: (n,) node of each row.
        start: (n + 1,) first entry of each row.
        neighbour: (2m,) row at the other end, in order within a row. Rows are random to the
            measurements, so a part of a row's entries is a random sample of them.
        latency: (2m,) ms.
    """

    node: Ints
    start: Ints
    neighbour: NDArray[np.int32]
    latency: NDArray[np.float32]

    # Entries from which typical values are taken; they are in random order.
    SAMPLE: ClassVar[int] = 1_000_000

    def __len__(self) -> int:
        return len(self.node)

    @cached_property
    def mean_latency(self) -> float:
        """Mean measured latency, ms; 1 where all are 0, so that it can divide."""
        some = self.latency[: self.SAMPLE]
        return (float(np.mean(some, dtype=np.float64)) if len(some) else 0.0) or 1.0

    @cached_property
    def typical_latency(self) -> float:
        """The median measured latency, ms; the mean where that is 0."""
        some = self.latency[: self.SAMPLE]
        return (float(np.median(some)) if len(some) else 0.0) or self.mean_latency


def check_latencies(latency: Floats, where: Callable[[int], str]) -> None:
    """Refuse (m,) latencies that are negative or absurd; NaN stands for what was not measured.

    Raises:
        ProblemError: for the first of them, beginning with where it is.
    """
    bad = np.flatnonzero((latency < 0) | (latency > GREATEST_LATENCY))
    if len(bad):
        first = int(bad[0])
        raise ProblemError(
            f"{where(first)}: {latency[first]} ms; expected 0 to {GREATEST_LATENCY:g}, or NaN "
            f"where nothing was measured ({len(bad)} such latencies)"
        )


def symmetric(latency: Floats) -> Floats:
    """(n, n) mean of both directions, ms; one direction where only that was measured; 0 to itself.

    Raises:
        ProblemError: for a matrix that is not square, or a negative or infinite latency.
    """
    latency = np.asarray(latency, np.float64)
    if latency.ndim != 2 or latency.shape[0] != latency.shape[1]:
        raise ProblemError(f"latencies: shape {latency.shape}; a square matrix is expected")
    n = len(latency)
    check_latencies(latency.ravel(), lambda i: f"latencies: nodes {i // n} to {i % n}")
    mean = mean_of_directions(latency)
    np.fill_diagonal(mean, 0.0)
    return mean


def pairs_of(latency: Floats) -> PairLatencies:
    """All pairs of an (n, n) matrix that were measured, each once, by the mean of its directions.

    Raises:
        ProblemError: as `symmetric`.
    """
    mean = symmetric(latency)
    source, target = np.nonzero(np.triu(~np.isnan(mean), 1))
    return PairLatencies(source, target, mean[source, target])


def sample_pairs(
    latency: Floats, neighbours: int = 32, near: float = 0.0, seed: int = 0
) -> PairLatencies:
    """The pairs that are known when every node measures only some others.

    Args:
        latency: (n, n) ms, NaN where nothing was measured; directions are averaged.
        neighbours: m, how many others each node measures; fewer where fewer are there. The other
            node learns the result too, so nodes know up to twice as many on average.
        near: share of the neighbours that are a node's nearest; the others are random.
        seed: of the random choice.

    Returns:
        Pairs, each once.

    Raises:
        ProblemError: for fewer than one neighbour, a share outside [0, 1], or as `symmetric`.
    """
    if neighbours < 1:
        raise ProblemError(f"neighbours: {neighbours}; expected at least 1")
    if not 0 <= near <= 1:
        raise ProblemError(f"near: {near}; expected a share between 0 and 1")
    mean = symmetric(latency)
    n = len(mean)
    random = np.random.default_rng(seed)
    nearest = round(neighbours * near)
    order = random.random((n, n))
    order[np.isnan(mean)] = np.inf
    np.fill_diagonal(order, np.inf)
    if nearest:
        # Ties in latency, common where it was rounded, are broken by chance.
        by_latency = np.lexsort((order, np.where(np.isinf(order), np.inf, mean)), axis=1)
        np.put_along_axis(order, by_latency[:, :nearest], -1.0, axis=1)
        order[np.isnan(mean)] = np.inf
        np.fill_diagonal(order, np.inf)
    count = min(neighbours, max(n - 1, 0))
    chosen = np.argsort(order, axis=1, kind="stable")[:, :count]
    known = np.zeros((n, n), bool)
    np.put_along_axis(known, chosen, np.isfinite(np.take_along_axis(order, chosen, 1)), axis=1)
    source, target = np.nonzero(np.triu(known | known.T, 1))
    return PairLatencies(source, target, mean[source, target])


def usable(pairs: PairLatencies, nodes: int) -> PairLatencies:
    """Pairs fit for embedding: without those of a node with itself, and without missing ones.

    Raises:
        ProblemError: for nodes that are not there, and latencies that are negative or absurd.

    Warns:
        ProblemWarning: when latencies are missing (NaN); those pairs are left out.
    """
    source, target, latency = pairs.source, pairs.target, pairs.latency
    if not len(source) == len(target) == len(latency):
        raise ProblemError(
            f"pairs: {len(source)} sources, {len(target)} targets, {len(latency)} latencies; "
            "expected one of each per pair"
        )
    if not len(pairs):
        return pairs
    for end in (source, target):
        if end.min() < 0 or end.max() >= nodes:
            wrong = end[(end < 0) | (end >= nodes)][0]
            raise ProblemError(f"pairs: node {wrong}; expected 0 to {nodes - 1}")
    # A sum is NaN or huge when any value is, so the good case needs no temporary array.
    if latency.min() >= 0 and latency.max() <= GREATEST_LATENCY and (source != target).all():
        return pairs
    check_latencies(latency, lambda i: f"pairs: nodes {source[i]} and {target[i]}")
    missing = np.isnan(latency)
    if missing.any():
        warnings.warn(
            f"pairs: {missing.sum()} of {len(pairs)} latencies are missing; left out",
            ProblemWarning,
            stacklevel=2,
        )
    keep = ~missing & (source != target)
    return PairLatencies(source[keep], target[keep], latency[keep])


def neighbour_graph(
    pairs: PairLatencies, nodes: int, seed: int = 0, threads: int | None = None
) -> NeighbourGraph:
    """The graph of measured pairs.

    Args:
        pairs: each pair once or more; several values of a pair all count.
        nodes: n.
        seed: of the digests that order the rows.
        threads: None takes all cores.

    Raises:
        ProblemError: when the pairs do not connect all nodes, or as `usable`.
    """
    from nova_core.costspace.kernels import graph

    pairs = usable(pairs, nodes)
    latency = np.asarray(pairs.latency, np.float32)
    source = np.ascontiguousarray(pairs.source, np.int64)
    target = np.ascontiguousarray(pairs.target, np.int64)
    key, degree = graph.digests(source, target, latency, nodes, seed)
    order = np.argsort(key, kind="stable")
    for _ in range(_REFINEMENTS):
        if nodes < 2 or (np.diff(key[order]) != 0).all():
            break
        key = graph.refined_digests(source, target, latency, key)
        order = np.argsort(key, kind="stable")
    row = np.empty(nodes, np.int32)
    row[order] = np.arange(nodes, dtype=np.int32)
    start, neighbour, measured = graph.rows(source, target, latency, row, degree)
    with Workers(nodes, threads) as workers:
        workers.run(graph.sort_rows, 0, nodes, start, neighbour, measured)
    _refuse_components(start, neighbour, order)
    return NeighbourGraph(order, start, neighbour, measured)


def _refuse_components(start: Ints, neighbour: NDArray[np.int32], node: Ints) -> None:
    """Raise unless every node can be reached from every other over measured pairs.

    Args:
        start: (n + 1,) first entry of each row of the graph.
        neighbour: (2m,) row at the other end of each entry.
        node: (n,) the node of each row.

    Raises:
        DisconnectedError: naming the groups.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(node)
    if n < 2:
        return
    # A few entries per row connect nearly every connected graph, and take little memory.
    for most in (2, 6, len(neighbour)):
        degree = np.minimum(np.diff(start), most)
        first = np.concatenate([[0], np.cumsum(degree)])
        entry = np.repeat(start[:-1] - first[:-1], degree) + np.arange(first[-1])
        entries = csr_array((np.ones(len(entry), np.int8), neighbour[entry], first), shape=(n, n))
        count, group = connected_components(entries, directed=True, connection="weak")
        if count == 1:
            return
    label = np.empty(n, np.int64)
    label[node] = group
    sizes = np.bincount(label, minlength=count)
    # Largest first; equal ones in the order of their first nodes.
    first = np.full(count, n)
    np.minimum.at(first, label, np.arange(n))
    order = np.lexsort((first, -sizes))
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    raise DisconnectedError(rank[label])
