"""Clusters of nodes led by one of them, as LEACH-SF makes them, and operators along their heads.

After M. Shokouhifar and A. Jalali, *Optimized Sugeno fuzzy clustering algorithm for wireless sensor
networks*, Eng. Appl. Artif. Intell. 60 (2017), as Nova's paper adapts it to joins (section 4.1):
fuzzy c-means (Bezdek, 1981) forms the clusters; rules over a node's residual energy, its distance
from the sink and its distance from the cluster's centre tell how well it would lead. A host's
capacity takes the place of a sensor's energy.

The original has its rule table tuned for each application by an artificial bee colony. Here the
conclusion of a rule is the weighted mean of how good its premises are; the weights are parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.strategies.base import POSITIVE, Strategy, check_range
from nova_core.strategies.trees import RootedTree, minimum_spanning_tree, relayed_plan, rooted

# How good a premise is that holds at the low, medium or high end.
_LEVELS = np.array([0.0, 0.5, 1.0])
# Nodes times clusters processed at once, so that they fit into the processor's cache.
_BLOCK = 1 << 16
# Squared distance, as a share of the nodes' mean squared spread, below which a node counts as
# lying on a centre.
_ON_CENTRE = 1e-18


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
        check_range("clusters:", self, "share", POSITIVE, 1, "above 0 to 1")
        check_range("clusters: weight", self, "centre sink capacity", 0)
        if not self.centre + self.sink + self.capacity > 0:
            raise ProblemError("clusters: all weights are 0; give at least one of them more")
        check_range("clusters:", self, "seed", 0, 2**32 - 1)


class ClusterSugenoFuzzy(Strategy):
    """Run every operator at the head of its sources' cluster, or at the sink where they have two.

    Every source sends to its head, every head to the sink.
    """

    name = "cl-sf"
    Parameters = ClusterParameters
    parameters: ClusterParameters

    def place(self, problem: Problem) -> Plan:
        """Place; capacity only helps to choose heads, and is not kept."""
        head = cluster_heads(problem, self.parameters)
        return relayed_plan(self, problem, lambda sink: _star(head, sink), head)


class ClusterTreeSugenoFuzzy(Strategy):
    """Run every operator where its sources' ways meet in the spanning tree of heads and sink.

    Every source sends to the head of its cluster, from where tuples travel along the tree.
    """

    name = "cl-tree-sf"
    Parameters = ClusterParameters
    parameters: ClusterParameters

    def place(self, problem: Problem) -> Plan:
        """Place; capacity only helps to choose heads, and is not kept.

        Raises:
            ProblemError: when the routes would be too long to write down.
        """
        head = cluster_heads(problem, self.parameters)
        return relayed_plan(self, problem, lambda sink: _tree(problem, head, sink), head)


def _star(head: Ints, sink: int) -> RootedTree:
    every = np.arange(len(head))
    is_head = head == every
    parent, depth = np.where(is_head, sink, head), np.where(is_head, 1, 2)
    parent[sink], depth[sink] = sink, 0
    return RootedTree(parent, depth)


def _tree(problem: Problem, head: Ints, sink: int) -> RootedTree:
    member, height = np.union1d(head, [sink]), problem.nodes.height
    heights = None if height is None else height[member]
    edges = minimum_spanning_tree(problem.latency_position[member], heights)
    tree = rooted(edges, len(member), int(np.searchsorted(member, sink)))
    parent, depth = head.copy(), np.zeros(len(head), np.int64)
    depth[member] = tree.depth
    parent[member] = member[tree.parent]
    others = np.ones(len(head), bool)
    others[member] = False
    depth[others] = depth[head[others]] + 1
    return RootedTree(parent, depth)


def cluster_heads(problem: Problem, parameters: ClusterParameters) -> Ints:
    """(n,) the head of every node's cluster; a head is its own.

    Any node but a sink may lead, also one that may not host operators: that counts as no capacity.
    In a cluster of sinks alone every node is its own head.
    """
    nodes = problem.nodes
    count = max(1, round(parameters.share * len(nodes)))
    position = problem.latency_position
    clusters = fuzzy_c_means(position, count, parameters.seed)
    label = clusters.label
    sinks = np.unique(problem.sinks)
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


@dataclass(frozen=True, eq=False)
class Clusters:
    """Fuzzy clusters, with every node counted to the one it belongs to most.

    Attributes:
        centre: (c, d) where the clusters are, ms.
        label: (n,) cluster each node belongs to most: that of the nearest centre.
    """

    centre: Floats
    label: Ints


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
    return Clusters(centre * spread + middle, np.asarray(label, np.int64))


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
