from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from nova_core.costspace import CostSpace, errors, triangle_violations
from nova_core.errors import ProblemError
from nova_core.model.problem import PairLatencies


def test_errors_by_hand() -> None:
    space = CostSpace(np.array([[0.0, 0], [3, 4], [0, 10]]), np.array([1.0, 0, 2]))
    latency = np.array([[0, 5.0, 13], [7, 0, 0], [13, 0, 0]])
    # Estimated 6, 13 and 6.7...; measured 6 (the mean of 5 and 7), 13 and 0.
    far = np.sqrt(9 + 36) + 2
    report = errors(space, latency)
    assert report.pairs == 3
    assert report.mae == pytest.approx(far / 3)
    assert report.bias == pytest.approx(far / 3)
    assert report.median_error == pytest.approx(0)
    assert report.p90_error == pytest.approx(0.8 * far)
    assert report.median_relative == report.p90_relative == pytest.approx(0)
    assert report.stress == pytest.approx(far / np.sqrt(6**2 + 13**2))
    assert report.node_mae.tolist() == pytest.approx([0, far / 2, far / 2])
    assert report.worst_nodes(2).tolist() == [1, 2]


def test_pairs_and_matrix_say_the_same() -> None:
    random = np.random.default_rng(0)
    space = CostSpace(random.normal(size=(9, 2)))
    latency = np.triu(random.random((9, 9)), 1)
    latency += latency.T
    source, target = np.triu_indices(9, 1)
    one = errors(space, latency)
    other = errors(space, PairLatencies(source, target, latency[source, target]))
    assert one.mae == pytest.approx(other.mae)
    assert one.p90_relative == pytest.approx(other.p90_relative)
    assert one.node_mae == pytest.approx(other.node_mae)


def test_missing_pairs_do_not_count() -> None:
    space = CostSpace(np.zeros((3, 2)))
    latency = np.full((3, 3), np.nan)
    with pytest.raises(ProblemError, match="no pair was measured"):
        errors(space, latency)
    latency[0, 1] = 4.0
    report = errors(space, latency)
    assert (report.pairs, report.mae, report.median_relative) == (1, 4.0, 1.0)
    assert report.worst_nodes().tolist() == [0, 1]
    assert np.isnan(report.node_mae[2])
    with pytest.raises(ProblemError, match="the space has 3 nodes"):
        errors(space, np.zeros((4, 4)))


def test_all_zero_latencies_have_no_relative_error() -> None:
    report = errors(CostSpace(np.zeros((3, 2))), np.zeros((3, 3)))
    assert report.mae == 0
    assert np.isnan(report.median_relative)
    assert np.isnan(report.stress)


def test_space_of_wrong_shapes() -> None:
    with pytest.raises(ProblemError, match=r"shape \(3,\)"):
        CostSpace(np.zeros(3))
    with pytest.raises(ProblemError, match="heights of shape"):
        CostSpace(np.zeros((3, 2)), np.zeros(2))


def test_distances_broadcast_and_are_zero_to_oneself() -> None:
    space = CostSpace(np.array([[0.0, 0], [3, 4]]), np.array([1.0, 2]), np.array([0.0, 1]))
    assert space.distance(0, 1) == pytest.approx(8)
    assert space.distance(np.array([0, 1]), 1).tolist() == [8, 0]
    assert space.matrix().tolist() == [[0, 8], [8, 0]]
    taken = space.take(np.array([1]))
    assert taken.position.tolist() == [[3, 4]]
    assert taken.height is not None
    assert taken.height.tolist() == [2]


def test_triangle_violations_by_hand() -> None:
    # 0-1 takes 10, over 2 it takes 5; every other way is longer.
    latency = np.array([[0, 10.0, 2, 8], [10, 0, 3, 8], [2, 3, 0, 6], [8, 8, 6, 0]])
    report = triangle_violations(latency)
    assert (report.triples, report.pairs) == (4, 6)
    assert report.share == pytest.approx(0.25)
    assert report.severity == pytest.approx(1.0)
    assert report.pairs_with_detour == pytest.approx(1 / 6)
    assert report.median_saving == report.p90_saving == pytest.approx(0.5)


def test_triangle_violations_agree_with_looking_at_every_triple() -> None:
    random = np.random.default_rng(1)
    latency = random.random((25, 25))
    latency = latency + latency.T
    hole = random.random((25, 25)) < 0.1
    latency[hole | hole.T] = np.nan
    np.fill_diagonal(latency, 0)
    excess, triples = [], 0
    for a, b, c in combinations(range(25), 3):
        sides = sorted((latency[a, b], latency[b, c], latency[a, c]))
        if not np.isnan(sides).any():
            triples += 1
            if sides[2] > sides[0] + sides[1]:
                excess.append(sides[2] / (sides[0] + sides[1]) - 1)
    report = triangle_violations(latency)
    # A triple with one side missing is seen from that side only where the others are known.
    assert report.share == pytest.approx(len(excess) / report.triples, rel=1e-3)
    assert report.severity == pytest.approx(np.mean(excess))
    assert report.triples == triples


def test_distances_violate_nothing() -> None:
    points = CostSpace(np.random.default_rng(0).normal(size=(30, 2)))
    report = triangle_violations(points.matrix())
    assert (report.share, report.severity, report.pairs_with_detour) == (0, 0, 0)
    nothing = triangle_violations(np.full((3, 3), np.nan))
    assert (nothing.triples, nothing.share, nothing.pairs) == (0, 0, 0)
