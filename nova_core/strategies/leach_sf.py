"""LEACH-SF: fuzzy clusters of nodes, each led by one chosen by Sugeno-fuzzy rules.

After M. Shokouhifar and A. Jalali, *Optimized Sugeno fuzzy clustering algorithm for wireless sensor
networks*, Eng. Appl. Artif. Intell. 60 (2017), as Nova's paper adapts it to joins (section 4.1):
fuzzy c-means forms the clusters; rules over a node's residual energy, its distance from the sink
and its distance from the cluster's centre tell how well it would lead. What energy is to a sensor,
capacity is to a host.

The original has its rule table tuned for each application by an artificial bee colony. Here the
conclusion of a rule is the weighted mean of how good its premises are; the weights are parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.strategies.fuzzy_c_means import fuzzy_c_means

# How good a premise is that holds at the low, medium or high end.
_LEVELS = np.array([0.0, 0.5, 1.0])


@dataclass(frozen=True)
class ClusterParameters:
    """Parameters of LEACH-SF clustering.

    Attributes:
        share: clusters as a share of the nodes, above 0 to 1; LEACH and its successors use 0.05 to
            0.1, and the default is what comes nearest to the figures Nova's paper shows.
        centre: weight of being near the cluster's centre in the rules' conclusions.
        sink: weight of being near the sink.
        capacity: weight of having much capacity; the paper's heads are "chosen primarily for their
            topological position".
        seed: of the clusters' first centres.
    """

    share: float = 0.065
    centre: float = 1.0
    sink: float = 1.0
    capacity: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ProblemError(f"clusters: share is {self.share:g}; expected above 0 to 1")
        for name in ("centre", "sink", "capacity"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ProblemError(
                    f"clusters: weight {name} is {getattr(self, name):g}; expected 0 or more"
                )
        if not self.centre + self.sink + self.capacity > 0:
            raise ProblemError("clusters: all weights are 0; give at least one of them more")
        if not 0 <= self.seed < 2**32:
            raise ProblemError(f"clusters: seed is {self.seed}; expected 0 to {2**32 - 1}")


def cluster_heads(problem: Problem, parameters: ClusterParameters) -> Ints:
    """(n,) the head of every node's cluster; a head is its own.

    Any node but a sink may lead, also one that may not host joins, but that counts as no capacity.
    In a cluster of sinks alone every node is its own head.
    """
    nodes = problem.nodes
    count = max(1, round(parameters.share * len(nodes)))
    position = problem.latency_position
    clusters = fuzzy_c_means(position, count, parameters.seed)
    label = clusters.label
    sinks = np.unique(problem.sink_node)
    score = head_priority(
        _within_cluster(np.linalg.norm(position - clusters.centre[label], axis=1), label),
        _within_cluster(_sink_distance(problem, sinks), label),
        _within_cluster(_capacity(problem), label),
        parameters,
    )
    score[sinks] = -np.inf
    # The best of every cluster comes first; of equals, the first node.
    order = np.lexsort((-score, label))
    first = np.concatenate(([True], np.diff(label[order]) != 0))
    best = np.empty(label.max() + 1, np.int64)
    best[label[order][first]] = order[first]
    head = best[label]
    return np.where(np.isin(head, sinks), np.arange(len(head)), head)


def head_priority(
    centre_distance: Floats, sink_distance: Floats, capacity: Floats, weights: ClusterParameters
) -> Floats:
    """(n,) zero-order Sugeno inference of how well nodes would lead, 0 to 1.

    Every input has the triangular terms low, medium and high, and there is one rule for each of
    their 27 combinations. A rule fires as much as its weakest premise holds; the result is the mean
    of the rules' conclusions, weighted by that.

    Args:
        centre_distance: (n,) distance from the centre of the cluster, scaled to 0..1.
        sink_distance: (n,) distance from the sink, likewise.
        capacity: (n,) capacity, likewise.
        weights: of the three in a conclusion.
    """
    near_centre, near_sink = _terms(1.0 - centre_distance), _terms(1.0 - sink_distance)
    strong = _terms(capacity)
    fires = np.minimum(
        np.minimum(near_centre[:, :, None, None], near_sink[:, None, :, None]),
        strong[:, None, None, :],
    )
    total = weights.centre + weights.sink + weights.capacity
    conclusion = (
        weights.centre * _LEVELS[:, None, None]
        + weights.sink * _LEVELS[:, None]
        + weights.capacity * _LEVELS
    ) / total
    return np.asarray((fires * conclusion).sum(axis=(1, 2, 3)) / fires.sum(axis=(1, 2, 3)))


def _terms(value: Floats) -> Floats:
    """(n, 3) how much values of 0..1 are low, medium and high."""
    low, high = np.clip(1.0 - 2.0 * value, 0.0, 1.0), np.clip(2.0 * value - 1.0, 0.0, 1.0)
    return np.stack([low, 1.0 - low - high, high], axis=1)


def _within_cluster(value: Floats, label: Ints) -> Floats:
    """Values scaled to 0..1 over each cluster; 0.5 where all of one are alike."""
    count = int(label.max()) + 1
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, label, value)
    np.maximum.at(most, label, value)
    span = (most - least)[label]
    scaled = np.full(len(value), 0.5)
    np.divide(value - least[label], span, out=scaled, where=span > 0)
    return scaled


def _sink_distance(problem: Problem, sinks: Ints) -> Floats:
    """(n,) latency to the nearest sink, ms."""
    every = np.arange(len(problem.nodes))
    nearest = np.full(len(every), np.inf)
    for sink in sinks:
        np.minimum(nearest, problem.distance(every, np.full(len(every), sink)), out=nearest)
    return nearest


def _capacity(problem: Problem) -> Floats:
    """(n,) what nodes may host, tuples/s; unlimited counts as twice the greatest limit."""
    capacity = np.where(problem.nodes.worker, problem.nodes.capacity, 0.0)
    limited = capacity[np.isfinite(capacity)]
    most = max(float(limited.max(initial=0.0)), 1.0)
    return np.minimum(capacity, 2.0 * most)


__all__ = ["ClusterParameters", "cluster_heads", "head_priority"]
